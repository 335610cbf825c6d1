import numpy as np

from dexloop.sim.world import World
from tests.sim.scenes import push_control, push_scene


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
