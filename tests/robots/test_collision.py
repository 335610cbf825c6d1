from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.robots import Collisions

XML = """<mujoco><worldbody>
<geom name="wall" type="box" size="0.01 1 1" pos="0.5 0 0"/>
<body name="cart"><joint name="x" type="slide" axis="1 0 0"/><geom type="sphere" size="0.1" mass="1"/>
  <body name="arm" pos="-0.3 0 0"><joint name="y" type="slide" axis="1 0 0"/><geom type="sphere" size="0.1" mass="1"/>
    <body name="tip" pos="-0.3 0 0"><joint name="z" type="slide" axis="1 0 0"/><geom type="sphere" size="0.1" mass="1"/>
</body></body></body>
<body name="ball" pos="0 0.5 0"><freejoint/><geom type="sphere" size="0.05"/></body>
<body name="block" pos="0 0.55 0"><freejoint/><geom type="sphere" size="0.05"/></body>
</worldbody></mujoco>"""


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def test_distances_are_those_of_spheres_and_walls(model) -> None:
    collisions = Collisions(model, ["x", "y", "z"])
    assert collisions.free(np.zeros(3))  # ball and block overlap, but that is not the robot's doing
    (touch,) = collisions.touches(np.array([0.41, 0, 0]))
    assert (touch.robot, touch.other) == ("cart", "wall")
    assert touch.distance_m == pytest.approx(-0.02, abs=1e-9)
    assert str(touch) == "cart with wall (-20.0 mm)"


def test_it_touches_itself_but_not_its_neighbour(model) -> None:
    collisions = Collisions(model, ["x", "y", "z"])
    assert collisions.free(np.array([0, 0.2, 0]))  # parent and child may overlap: they share a joint
    (touch,) = collisions.touches(np.array([0, 0.0, 0.45]))
    assert {touch.robot, touch.other} == {"cart", "tip"}


def test_margin_ignore_and_other_things(model) -> None:
    near = np.array([0.385, 0, 0])  # 5 mm from the wall
    assert Collisions(model, ["x", "y", "z"]).free(near)
    assert not Collisions(model, ["x", "y", "z"], margin_m=0.006).free(near)
    assert Collisions(model, ["x", "y", "z"], margin_m=0.004).free(near)
    assert Collisions(model, ["x", "y", "z"], ignore=[("cart", "wall")]).free(np.array([0.41, 0, 0]))
    qpos = model.qpos0.copy()
    qpos[3:6] = [0, 0.12, 0]  # the ball next to the cart
    (touch,) = Collisions(model, ["x", "y", "z"], qpos=qpos).touches(np.zeros(3))
    assert (touch.robot, touch.other) == ("cart", "ball")
    assert model.geom_margin.max() == 0  # the caller's model is left alone
