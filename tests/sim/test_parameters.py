"""Every parameter is checked against a model that was compiled with the value in it."""

import numpy as np
import pytest

from dexloop.core.errors import InputError, NoEffect, UnknownName
from dexloop.sim.parameters import available, parameter, parameters
from dexloop.sim.parts import Table
from dexloop.sim.world import World
from tests.sim.scenes import Pusher, box, push_control, push_scene

RECORD = ("object.pose", "joint.position", "joint.effort")
SPIN = {"pose": (0.0, 0.0, 0.15, 0.9, 0.3, 0.2, 0.1)}  # falls askew, so that mass properties show
INERTIA = np.array([[1.0e-4, 2.0e-5, 0.0], [2.0e-5, 1.2e-4, 1.0e-5], [0.0, 1.0e-5, 0.9e-4]])
INERTIA_VECTOR = np.array([1.0e-4, 1.2e-4, 0.9e-4, 2.0e-5, 0.0, 1.0e-5])


def trajectories(scene, values=None):
    world = World(scene, 2, parameters=values or ())
    if values:
        world.set(values)
    return world.rollout(push_control(), record=RECORD).require()


@pytest.mark.parametrize(
    ("values", "compiled"),
    [
        ({"object.mass": 0.31}, {"thing": box(mass_kg=0.31)}),
        ({"table.friction": 0.23}, {"table": Table(friction=0.23)}),
        ({"object.friction": 1.8}, {"thing": box(friction=1.8)}),
        ({"joint[slide].friction": 0.7}, {"pusher": Pusher(frictionloss=0.7)}),
        ({"joint.armature": 0.3}, {"pusher": Pusher(armature=0.3)}),
    ],
)
def test_a_written_value_equals_a_compiled_one(values, compiled):
    written, built = trajectories(push_scene(), values), trajectories(push_scene(**compiled))
    nominal = trajectories(push_scene())
    for name in RECORD:
        np.testing.assert_allclose(written[name], built[name], atol=1e-9)
    assert max(np.abs(written[name] - nominal[name]).max() for name in RECORD) > 1e-4


def test_mass_properties_equal_compiled_ones():
    com = (0.006, -0.004, 0.003)
    written = trajectories(
        push_scene(thing=box(**SPIN)),
        {"object.inertia": INERTIA_VECTOR, "object.mass": 0.2, "object.com": np.array(com)},
    )
    built = trajectories(push_scene(thing=box(mass_kg=0.2, com=com, inertia=INERTIA, **SPIN)))
    np.testing.assert_allclose(written["object.pose"], built["object.pose"], atol=1e-9)


def test_mass_alone_keeps_the_radius_of_gyration():
    world = World(push_scene(), 1, parameters=["object.mass"])
    before = world.snapshot()[0].body("box").inertia.copy()
    world.set({"object.mass": 0.36})
    np.testing.assert_allclose(world.snapshot()[0].body("box").inertia, before * 3)


def test_inertia_wins_over_mass_whatever_the_order():
    world = World(push_scene(), 1, parameters=["object.inertia", "object.mass"])
    world.set({"object.inertia": INERTIA_VECTOR})
    world.set({"object.mass": 0.5})
    np.testing.assert_allclose(np.sort(world.snapshot()[0].body("box").inertia), np.linalg.eigvalsh(INERTIA), rtol=1e-9)


def test_gain_scales_the_servos_law():
    world = World(push_scene(), 3, parameters=["actuator.gain"])
    gain = np.array([0.8, 1.0, 1.2])
    world.set({"actuator.gain": gain})
    out = world.rollout(np.full((50, 1), 0.1), record=("actuator.force", "joint.position", "joint.speed"))
    q, v = out["joint.position"][:, :-1, 0], out["joint.speed"][:, :-1, 0]
    np.testing.assert_allclose(out["actuator.force"][:, 1:, 0], 500 * gain[:, None] * (0.1 - q) - 20 * v, rtol=1e-9)


def test_delay_shifts_the_motion_in_time():
    world = World(push_scene(), 2, parameters=["actuator.delay"])
    world.set({"actuator.delay": np.array([0.0, 0.03])})
    world.reset(ctrl=np.zeros(1))
    control = np.zeros((300, 1))
    control[50:] = 0.05
    q = world.rollout(control, record=("joint.position",))["joint.position"][..., 0]
    shift = int(0.03 / 0.002)
    np.testing.assert_allclose(q[1, shift:], q[0, :-shift], atol=1e-4)


def test_a_fresh_reset_has_the_command_in_its_past():
    world = World(push_scene(), 1, parameters=["actuator.delay"])
    world.set({"actuator.delay": 0.04})
    world.reset(qpos=np.array([0, 0.1, 0.03, 1, 0, 0, 0, 0.05]), ctrl=np.array([0.05]))
    q = world.rollout(np.full((100, 1), 0.05), record=("joint.position",))["joint.position"]
    assert np.abs(q - 0.05).max() < 1e-3, "a past of zeros would have jerked the finger back"


def test_contact_stiffness_is_the_one_it_had_until_it_is_changed():
    scene = push_scene()
    world = World(scene, 1, parameters=["table.stiffness", "table.damping"])
    nominal = trajectories(scene)
    world.set({"table.stiffness": world.parameters[0].nominal, "table.damping": world.parameters[1].nominal})
    same = world.rollout(push_control(), record=RECORD)
    np.testing.assert_allclose(same["object.pose"][0], nominal["object.pose"][0], atol=1e-9)
    world.set({"table.stiffness": 500.0})
    world.reset()
    z = world.rollout(steps=400, record=("object.pose",))["object.pose"][0, -1, 2]
    assert z < nominal["object.pose"][0, 0, 2] - 1e-4, "a soft table lets the box sink"


def test_camera_pose_and_intrinsics_are_the_written_ones():
    world = World(push_scene(), 2, parameters=["camera.pose", "camera.intrinsics"])
    world.set({"camera.pose": np.array([[0, 0, 0, 0, 0, 0], [0.01, 0, 0, 0, 0.02, 0]])})
    from dexloop.core import se3
    from dexloop.sim.render import camera_of
    from tests.sim.scenes import CAMERA

    moved = camera_of(*world.snapshot(1), "cam")
    expected = CAMERA.T_world_camera @ se3.exp(np.array([0.01, 0, 0, 0, 0.02, 0]))
    np.testing.assert_allclose(moved.T_world_camera, expected, atol=1e-9)
    world.set({"camera.intrinsics": np.array([300.0, 310.0, 150.0, 130.0])})
    again = camera_of(*world.snapshot(0), "cam")
    assert (again.fx, again.fy, again.cx, again.cy) == pytest.approx((300.0, 310.0, 150.0, 130.0), rel=1e-5)


def test_names_that_match_nothing_list_the_choices():
    scene = push_scene()
    for name in ("object.weight", "mug.mass", "mass", "joint[nope].friction", "object[nope].mass"):
        with pytest.raises(UnknownName, match=r"object\.mass"):
            parameter(scene.model, scene.roles, name)
    with pytest.raises(UnknownName, match=r"did you mean 'object\.mass'"):
        parameter(scene.model, scene.roles, "object.maas")


def test_what_cannot_have_an_effect_is_refused():
    with pytest.raises(NoEffect, match="max_delay_s"):
        World(push_scene(max_delay_s=0.0), 1, parameters=["actuator.delay"])


def test_a_table_can_be_lower_than_it_was_made_and_nothing_else_has_a_height():
    scene = push_scene()
    world = World(scene, 2, parameters=["table.height"])
    world.set({"table.height": np.array([0.0, -0.01])})
    z = world.rollout(None, steps=400, record=("object.pose",)).require()["object.pose"][:, -1, 2]
    assert z[0] - z[1] == pytest.approx(0.01, abs=1e-4)
    assert "object.height" not in available(scene.model, scene.roles)
    with pytest.raises(NoEffect, match="only what stands in the world"):
        parameter(scene.model, scene.roles, "object.height")


def test_every_listed_name_can_be_made_and_written():
    scene = push_scene()
    names = available(scene.model, scene.roles)
    assert {"object.mass", "table.friction", "actuator.delay", "joint.armature", "camera.pose"} <= set(names)
    for name in names:
        world = World(scene, 2, parameters=[name])
        world.set({name: world.parameters[0].nominal})


@pytest.mark.parametrize("value", [np.nan, -0.1, 0.0, 1e9])
def test_bad_values_are_refused(value):
    world = World(push_scene(), 2, parameters=["object.mass"])
    with pytest.raises(InputError, match=r"object\.mass must be from"):
        world.set({"object.mass": value})


def test_an_impossible_inertia_is_refused():
    world = World(push_scene(), 1, parameters=["object.inertia"])
    with pytest.raises(InputError, match="no inertia that a body could have"):
        world.set({"object.inertia": np.array([1e-4, 1e-4, 9e-4, 0, 0, 0])})


def test_a_name_given_twice_is_refused():
    scene = push_scene()
    with pytest.raises(InputError, match="twice"):
        parameters(scene.model, scene.roles, ["object.mass", "object.mass"])


def test_grip_sets_how_fast_friction_acts():
    """At grip g a slide slower than mu·9.81/g is braked by less than Coulomb's friction, so it goes further."""
    world = World(push_scene(), 2, parameters=["table.grip"])
    world.set({"table.grip": np.array([20.0, 300.0])})
    qvel = np.zeros(world.model.nv)
    qvel[1] = 0.2
    world.reset(qvel=qvel)
    weak, strong = world.rollout(steps=500, record=("object.pose",))["object.pose"][:, -1, 1]
    assert strong == pytest.approx(0.2**2 / (2 * 0.5 * 9.81), rel=0.1)
    assert weak > 1.5 * strong
    with pytest.raises(NoEffect, match=r"pusher\.grip has no effect"):
        World(push_scene(), 1, parameters=["pusher.grip"])


def test_stock_mjcf_can_have_a_delay(tmp_path):
    from dexloop.sim.scene import Scene

    file = tmp_path / "m.xml"
    file.write_text(
        """<mujoco><worldbody><body><joint name="j" type="slide"/><geom size=".1"/></body></worldbody>
           <actuator><position joint="j" kp="10"/></actuator></mujoco>"""
    )
    World(Scene.open(file), 1, parameters=["actuator.delay"]).set({"actuator.delay": 0.03})
