import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.parts import Table
from dexloop.sim.scene import Scene, compose
from dexloop.sim.signals import sense_wrench
from dexloop.sim.world import World
from tests.sim.scenes import Pusher, box, push_control, push_scene


def test_signals_are_slices_of_the_state():
    world = World(push_scene(), 2)
    names = ("qpos", "qvel", "object.pose", "object.velocity", "joint.position", "joint.speed", "pusher.pose")
    out = world.rollout(push_control(50), record=names)
    slide = world.model.joint("slide").qposadr[0]
    free = world.model.joint("box.free").qposadr[0]
    np.testing.assert_array_equal(out["object.pose"], out["qpos"][..., free : free + 7])
    np.testing.assert_array_equal(out["joint.position"], out["qpos"][..., slide : slide + 1])
    # The pusher is no free body: its pose is derived, and one step older than its joint.
    np.testing.assert_allclose(out["pusher.pose"][:, 1:, 0], -0.1 + out["joint.position"][:, :-1, 0])
    np.testing.assert_array_equal(out["pusher.pose"][..., 3], 1.0)


def test_effort_is_the_servos_law():
    world = World(push_scene(), 1)
    control = push_control(60)
    out = world.rollout(control, record=("joint.position", "joint.speed", "joint.effort", "actuator.force"))
    q, v = out["joint.position"][0, :-1, 0], out["joint.speed"][0, :-1, 0]
    np.testing.assert_allclose(out["joint.effort"][0, 1:, 0], 500 * (control[1:, 0] - q) - 20 * v, atol=1e-9)
    np.testing.assert_array_equal(out["joint.effort"], out["actuator.force"])


def tilted_box() -> Scene:
    """A box lying on its side, so that its axes are not those of the world: x is up, z is along -x."""
    return compose(Table(friction=0.5), box(pose=(0.02, 0.0, 0.03, 2**-0.5, 0.0, -(2**-0.5), 0.0)), Pusher())


def test_the_wrench_of_a_resting_box_is_its_weight_in_its_own_axes():
    out = World(sense_wrench(tilted_box(), "box"), 1).rollout(steps=600, record=("box.wrench", "object.wrench"))
    np.testing.assert_allclose(out["box.wrench"][0, -1], [0.12 * 9.81, 0, 0, 0, 0, 0], atol=1e-5)
    np.testing.assert_array_equal(out["box.wrench"], out["object.wrench"])


def test_a_wrench_is_newtons_law_at_the_origin():
    """Pushed off its middle, a box accelerates and turns: m (a - g) and the torque about the centre say what acts."""
    scene = sense_wrench(tilted_box(), "box", "pusher")
    world = World(scene, 1)
    qpos = scene.model.qpos0.copy()
    qpos[scene.model.joint("box.free").qposadr[0] + 1] = 0.015
    world.reset(qpos=qpos)
    out = world.rollout(push_control(), record=("box.wrench", "pusher.wrench", "qacc", "xquat", "qvel", "xpos"))
    b, h = scene.model.body("box").id, scene.model.opt.timestep
    dof = scene.model.joint("box.free").dofadr[0]
    R = Rotation.from_quat(out["xquat"][0, 1:, b], scalar_first=True)
    speed = out["qvel"][0, :, dof : dof + 6]
    change = np.diff(speed, axis=0) / h
    force = R.apply(0.12 * (change[:, :3] + [0, 0, 9.81]), inverse=True)
    inertia, w = scene.model.body_inertia[b], speed[:-1, 3:]
    torque = inertia * change[:, 3:] + np.cross(w, inertia * w)
    assert np.abs(w).max() > 0.3, "it turns"
    assert np.abs(out["pusher.wrench"]).max() > 0.5, "it is pushed"
    np.testing.assert_allclose(out["box.wrench"][0, 1:, :3], force, atol=2e-3)
    np.testing.assert_allclose(out["box.wrench"][0, 1:, 3:], torque, atol=2e-4)


def test_a_body_that_touches_nothing_has_no_wrench():
    out = World(sense_wrench(push_scene(), "pusher"), 1).rollout(np.zeros((20, 1)), record=("pusher.wrench",))
    np.testing.assert_array_equal(out["pusher.wrench"], 0.0)


def test_a_wrench_needs_its_sensor():
    with pytest.raises(InputError, match=r"sense_wrench\(scene, 'box'\)"):
        World(push_scene(), 1).rollout(steps=1, record=("object.wrench",))
    with pytest.raises(UnknownName, match="there is box, pusher"):
        sense_wrench(push_scene(), "bx")
