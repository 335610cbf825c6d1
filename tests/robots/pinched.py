"""A box on a table before a gripper, and the pinch that takes it up: all worked out by hand, and cheap to simulate."""

from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.robots.catalog import load
from dexloop.robots.hold import Hold
from dexloop.robots.kinematics import Kinematics
from dexloop.sim.believed import Draws
from dexloop.sim.parts import Primitive, Robot, Table, Thing
from dexloop.sim.scene import Scene, SceneCfg, compose

ROBOT = load("gripper@wrist")
HALF = (0.02, 0.02, 0.03)
T_WORLD_OBJECT = se3.from_rt(np.eye(3), np.array([0.02, 0.01, HALF[2]]))
T_WORLD_BASE = se3.from_rt(np.eye(3), np.array([-0.26, 0.0, 0.0]))


def box_scene(mass_kg: float = 0.2, friction: float = 0.5) -> Scene:
    pose = tuple(float(v) for v in se3.to_pose(T_WORLD_OBJECT))
    return compose(
        # The object first, as in a twin that a robot is put into: then joints and their forces are numbered otherwise.
        Table(), Thing("box", Primitive("box", HALF), mass_kg, pose=pose, friction=friction),
        Robot(ROBOT, T_WORLD_BASE, fingertip_friction=friction),
        cfg=SceneCfg(max_delay_s=0.0),
    )  # fmt: skip


def pinch(half_m: float = HALF[0]) -> Hold:
    """Two jaws on the sides ±x of a box, from above; where they touch follows from the jaws' own geometry."""
    kinematics, q = Kinematics(ROBOT), ROBOT.home.copy()
    hand = [ROBOT.joints.index(j) for j in ROBOT.hand_joints]

    def gap(value: float) -> tuple[float, np.ndarray]:
        q[hand] = value
        tips = kinematics.fingertips(q)[:, :3, 3]
        return float(np.linalg.norm(tips[0] - tips[1])), se3.transform(se3.inverse(kinematics.palm(q)), tips)

    low, high = ROBOT.position_limits[hand[0]]
    values = np.linspace(low, high, 200)
    gaps = np.array([gap(v)[0] for v in values])
    touch, opened = (float(values[np.argmin(np.abs(gaps - w))]) for w in (2 * half_m, 2 * half_m + 0.03))
    _, tips = gap(touch)
    down = np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])  # the palm's x is the line of the jaws
    T_object_palm = se3.from_rt(down, -down @ tips.mean(axis=0))
    points = se3.transform(T_object_palm, tips)
    normals = -points / np.linalg.norm(points, axis=1, keepdims=True)
    links = tuple(tip.body for tip in ROBOT.fingertips)
    return Hold("pinch", ROBOT.hand_joints, T_object_palm, np.full(2, opened), np.full(2, touch), points, normals,
                links, 0.2)  # fmt: skip


def worlds(masses: list[float], frictions: list[float]) -> Draws:
    """One world a mass: what is pinched slides on the jaws with this friction."""
    drawn = Draws(("object.mass",), (1,), np.array(masses)[:, None])
    return drawn.with_hand_friction(np.array(frictions))
