import mujoco
import numpy as np
import pytest
import trimesh

from dexloop.core.errors import InputError
from dexloop.robots.catalog import load
from dexloop.sim.parts import Primitive, Robot, Table, Thing
from dexloop.sim.scene import Scene, SceneCfg, compose
from dexloop.sim.shape import Mesh, Shape
from dexloop.sim.world import World
from tests.sim.scenes import push_scene


def brick(*extents: float) -> Mesh:
    box = trimesh.creation.box(extents)
    return Mesh(np.asarray(box.vertices, dtype=np.float64), np.asarray(box.faces, dtype=np.int64))


def test_a_mesh_object_weighs_what_it_shall_and_lies_still():
    shape = Shape(brick(0.04, 0.06, 0.08), None, (brick(0.04, 0.06, 0.08),))
    scene = compose(Table(), Thing("brick", shape, 0.25, pose=(0, 0, 0.04, 1, 0, 0, 0)))
    assert scene.model.body("brick").mass == pytest.approx(0.25)
    expected = 0.25 / 12 * np.array([0.06**2 + 0.08**2, 0.04**2 + 0.08**2, 0.04**2 + 0.06**2])
    np.testing.assert_allclose(np.sort(scene.model.body("brick").inertia), np.sort(expected), rtol=1e-6)
    pose = World(scene).rollout(steps=500, record=("object.pose",))["object.pose"][0, -1]
    np.testing.assert_allclose(pose, [0, 0, 0.04, 1, 0, 0, 0], atol=2e-4)


def test_two_objects_are_known_by_their_names():
    things = [
        Thing(n, Primitive("box", (0.02,) * 3), 0.1, pose=(x, 0, 0.02, 1, 0, 0, 0)) for n, x in (("a", 0), ("b", 0.1))
    ]
    scene = compose(Table(), *things)
    assert "object" not in scene.roles
    world = World(scene, 1, parameters=["a.mass", "b.mass"])
    world.set({"a.mass": 0.3})
    assert world.snapshot()[0].body("a").mass == pytest.approx(0.3)
    assert world.snapshot()[0].body("b").mass == pytest.approx(0.1)


def test_two_parts_of_one_name_are_refused():
    thing = Thing("cup", Primitive("box", (0.02,) * 3), 0.1)
    with pytest.raises(InputError, match=r"cannot be compiled.*cup"):
        compose(thing, thing)


def test_any_mjcf_can_be_opened(tmp_path):
    file = tmp_path / "scene.xml"
    file.write_text(
        """<mujoco><worldbody>
             <geom name="table" type="plane" size="1 1 .1" friction=".4"/>
             <body name="mug" pos="0 0 .05"><freejoint/><geom type="box" size=".05 .05 .05" mass=".2"/></body>
           </worldbody></mujoco>"""
    )
    scene = Scene.open(file)
    world = World(scene, 2, parameters=["object.mass", "object.com", "mug.friction", "table.friction"])
    world.set({"object.com": np.array([0.01, 0.0, 0.0])})
    assert scene.roles["object"] == scene.roles["mug"]


def test_a_model_that_is_none(tmp_path):
    with pytest.raises(InputError, match="there is no model"):
        Scene.open(tmp_path / "none.xml")
    (tmp_path / "bad.xml").write_text("<mujoco><worldbody><body/></mujoco>")
    with pytest.raises(InputError, match="cannot be compiled"):
        Scene.open(tmp_path / "bad.xml")


def test_the_configuration_reaches_the_model():
    model = push_scene(timestep_s=0.001, elliptic_cones=False, noslip_iterations=4, max_delay_s=0.02).model
    assert (model.opt.timestep, model.opt.cone, model.opt.noslip_iterations) == (
        0.001,
        mujoco.mjtCone.mjCONE_PYRAMIDAL,
        4,
    )
    assert model.actuator_history[0, 0] >= 20
    assert SceneCfg().max_delay_s > 0


def test_bare_links_leave_it_to_the_object_how_it_slides_on_them():
    thing = Thing("cube", Primitive("box", (0.02,) * 3), 0.1, pose=(0, 0, 0.6, 1, 0, 0, 0), friction=0.37)
    hand = load("dex16@wrist")
    scene = compose(Robot(hand, fingertip_friction=0.81), thing, cfg=SceneCfg(max_delay_s=0.0))
    model, data = scene.model, mujoco.MjData(scene.model)
    pads = {name for fingertip in hand.fingertips for name in fingertip.geoms}
    seen = {"pad": set(), "bare": set()}
    at = int(model.joint("cube.free").qposadr[0])
    for geom in np.flatnonzero((model.geom_contype > 0) & (model.geom_bodyid != model.body("cube").id)):
        mujoco.mj_kinematics(model, data)
        data.qpos[at : at + 3] = data.geom_xpos[geom]
        mujoco.mj_forward(model, data)
        for contact in data.contact:
            other = contact.geom[contact.geom != model.geom("cube.0").id]
            if len(other) == 1:
                kind = "pad" if model.geom(int(other[0])).name in pads else "bare"
                seen[kind].add(round(float(contact.friction[0]), 6))
    assert seen == {"pad": {0.81}, "bare": {0.37}}
