import mujoco
import numpy as np
import pytest

from dexloop.core.errors import Diverged, InputError, NoEffect, UnknownName
from dexloop.sim.divergence import Dump, read_dump, write_dump
from dexloop.sim.roles import roles_of
from dexloop.sim.scene import Scene
from dexloop.sim.world import World
from tests.sim.scenes import Pusher, box, push_control, push_scene


def test_a_world_equals_plain_mujoco():
    scene, control = push_scene(), push_control(300)
    out = World(scene, 3).rollout(control, record=("qpos", "qvel", "sensordata"))
    data, expected = mujoco.MjData(scene.model), []
    for u in control:
        data.ctrl[:] = u
        mujoco.mj_step(scene.model, data)
        expected.append(data.qpos.copy())
    for i in range(3):
        np.testing.assert_array_equal(out["qpos"][i], expected)


def test_worlds_do_not_see_each_other():
    masses = np.array([0.05, 0.12, 0.4])
    together = World(push_scene(), 3, parameters=["object.mass", "table.friction"])
    together.set({"object.mass": masses, "table.friction": np.array([0.2, 0.5, 0.8])})
    out = together.rollout(push_control())["qpos"]
    alone = World(push_scene(), 1, parameters=["object.mass", "table.friction"])
    alone.set({"object.mass": 0.4, "table.friction": 0.8})
    np.testing.assert_array_equal(out[2], alone.rollout(push_control())["qpos"][0])


def test_a_sliding_box_stops_where_coulomb_says():
    # v²/(2 mu g), the classic: independent of mass.
    world = World(push_scene(thing=box()), 4, parameters=["object.mass", "table.friction"])
    mu = np.array([0.2, 0.3, 0.4, 0.4])
    world.set({"table.friction": mu, "object.mass": np.array([0.1, 0.1, 0.1, 0.5])})
    speed = 0.6
    qvel = np.zeros(world.model.nv)
    qvel[1] = speed  # along y, clear of the pusher
    world.reset(qvel=qvel)
    y = world.rollout(steps=500, record=("object.pose",))["object.pose"][:, -1, 1]
    np.testing.assert_allclose(y, speed**2 / (2 * mu * 9.81), rtol=0.02)


def test_stepping_equals_rolling_out():
    control = push_control(40)
    whole = World(push_scene(), 2).rollout(np.repeat(control, 5, axis=0))["qpos"]
    world = World(push_scene(), 2)
    for k, u in enumerate(control):
        now = world.step(u, steps=5)["qpos"]
        np.testing.assert_array_equal(now, whole[:, 5 * k + 4])


def test_state_can_be_put_back():
    world = World(push_scene(), 2)
    world.rollout(push_control(50))
    state = world.state()
    first = world.rollout(push_control(80))["qpos"]
    world.set_state(state)
    np.testing.assert_array_equal(world.rollout(push_control(80))["qpos"], first)


def test_a_diverging_world_is_reported_dumped_and_spoils_nothing(tmp_path, capfd):
    world = World(push_scene(), 4, parameters=["object.mass"], dumps=tmp_path)
    world.set({"object.mass": np.array([0.1, 0.2, 0.3, 0.4])})
    healthy = world.rollout(push_control(100))["qpos"]
    world.reset()
    world.engine.field("qvel")[2] = 1e13
    out = world.rollout(push_control(100))
    assert list(out.diverged) == [2]
    assert capfd.readouterr() == ("", ""), "it is said once, to whoever asked"
    assert np.isnan(out["qpos"][2, -1]).all()
    assert np.isfinite(np.delete(out["qpos"], 2, axis=0)).all()
    assert list(world.rollout(push_control(5)).diverged) == [2], "it stays diverged until it is reset"
    np.testing.assert_array_equal(np.delete(out["qpos"], 2, axis=0), np.delete(healthy, 2, axis=0))
    with pytest.raises(Diverged, match="number 2"):
        out.require()
    dump = read_dump(out.dumps[0])
    assert dump.parameters == {"object.mass": [0.3]}
    assert dump.model.body("box").mass == pytest.approx(0.3)
    step, _ = dump.replay()
    assert step < 5, "the dump blows up again"


def test_a_dump_replays_what_was_moved(tmp_path):
    """A push by hand ends where it ended, and a file from before there was `moving` can be read."""
    spec = push_scene().spec.copy()
    spec.worldbody.add_body(name="a", mocap=True, pos=[0.3, 0.3, 0.3])
    hand = spec.worldbody.add_body(name="hand", mocap=True, pos=[0, -0.06, 0.03])
    hand.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.015, 0, 0])
    scene = Scene(spec, model := spec.compile(), roles_of(model, things=["box"]))
    path = np.tile([0.0, -0.06, 0.03, 1.0, 0.0, 0.0, 0.0], (200, 1))
    path[:, 1] += np.linspace(0.0, 0.1, 200)
    world = World(scene, 1)
    state = world.state()[0]
    expected = world.rollout(np.zeros((200, 1)), moving={"hand": path})["qpos"][0, -1]
    places, turns = np.tile([0.3, 0.3, 0.3], (200, 2)), np.tile([1.0, 0.0, 0.0, 0.0], (200, 2))
    places[:, 3:], turns[:, 4:] = path[:, :3], path[:, 3:]
    moving = {"mocap_pos": places, "mocap_quat": turns}
    file = write_dump(tmp_path, Dump(model, state, np.zeros((200, 1)), 200, "a test", {}, moving))
    step, data = read_dump(file).replay()
    assert step == 200
    np.testing.assert_array_equal(data.qpos, expected)
    old = read_dump(write_dump(tmp_path, Dump(model, state, np.zeros((200, 1)), 200, "a test", {})))
    assert old.moving == {}
    assert np.abs(old.replay()[1].qpos - expected).max() > 0.01


def test_a_world_moved_by_hand_dumps_how(tmp_path, capfd):
    spec = push_scene().spec.copy()
    spec.worldbody.add_body(name="hand", mocap=True)
    scene = Scene(spec, model := spec.compile(), roles_of(model, things=["box"]))
    path = np.random.default_rng(0).normal(size=(2, 20, 7))
    world = World(scene, 2, dumps=tmp_path)
    world.engine.field("qvel")[1] = 1e13
    dump = read_dump(world.rollout(np.zeros((20, 1)), moving={"hand": path}).dumps[0])
    np.testing.assert_array_equal(dump.moving["mocap_pos"], path[1, :, :3])
    np.testing.assert_array_equal(dump.moving["mocap_quat"], path[1, :, 3:])
    assert dump.control is not None


def test_a_dump_that_is_none_is_refused(tmp_path):
    file = tmp_path / "x.npz"
    np.savez(file, a=np.zeros(3))
    with pytest.raises(InputError, match="no dump"):
        read_dump(file)


def test_require_effect_finds_the_parameter_that_moves_nothing():
    world = World(push_scene(), 1, parameters=["object.mass", "table.friction", "actuator.gain"])
    world.require_effect(push_control(), record=("object.pose", "joint.effort"))
    sliding = World(push_scene(), 1, parameters=["object.friction", "table.friction"])
    qvel = np.zeros(sliding.model.nv)
    qvel[1] = 0.3  # along y, clear of the pusher: only the table is touched, and its friction has priority
    sliding.reset(qvel=qvel)
    with pytest.raises(NoEffect, match=r"^object\.friction changes nothing"):
        sliding.require_effect(np.zeros((100, 1)), record=("object.pose",))


def test_bad_calls():
    world = World(push_scene(), 2, parameters=["object.mass"])
    with pytest.raises(InputError, match="1 actuators, the control has 3"):
        world.rollout(np.zeros((10, 3)))
    with pytest.raises(InputError, match="at least 1"):
        world.rollout()
    with pytest.raises(UnknownName, match=r"object\.pose"):
        world.rollout(steps=1, record=("object.poze",))
    with pytest.raises(UnknownName, match="Name it when the world is made"):
        world.set({"table.friction": 0.3})
    with pytest.raises(InputError, match=r"takes \[2, 1\] numbers"):
        world.set({"object.mass": np.ones(3)})
    with pytest.raises(InputError, match="at least one simulation"):
        World(push_scene(), 0)


def test_a_failed_set_changes_nothing():
    world = World(push_scene(), 1, parameters=["object.mass", "table.friction"])
    with pytest.raises(InputError, match=r"table\.friction must be"):
        world.set({"object.mass": 0.5, "table.friction": 99.0})
    assert world.snapshot()[0].body("box").mass == pytest.approx(0.12)
    np.testing.assert_array_equal(world.values, [[0.12, 0.5]])


def test_a_value_that_was_never_set_is_never_written():
    """A nominal value outside the bounds, such as no armature at all, is no reason to refuse another parameter."""
    scene = push_scene(pusher=Pusher(armature=0.0))
    world = World(scene, 1, parameters=["object.mass", "joint[slide].armature"])
    world.set({"object.mass": 0.3})
    assert world.snapshot()[0].body("box").mass == pytest.approx(0.3)


def test_a_window_can_be_entered_with_its_past_commands():
    """A delayed actuator goes on as it did, when the state and the commands before it are given."""
    control = push_control(300)
    world = World(push_scene(), 1, parameters=["actuator.delay"])
    world.set({"actuator.delay": 0.03})
    world.reset(ctrl=control[0])
    whole = world.rollout(control, record=("qpos", "qvel"))
    k = 150
    start = {"qpos": whole["qpos"][0, k - 1], "qvel": whole["qvel"][0, k - 1], "ctrl": control[k - 1]}
    world.reset(**start, past=control[k - 40 : k])
    again = world.rollout(control[k : k + 50])["qpos"]
    np.testing.assert_allclose(again[0], whole["qpos"][0, k : k + 50], atol=1e-6)
    world.reset(**start)
    wrong = world.rollout(control[k : k + 50])["qpos"]
    assert np.abs(wrong[0] - whole["qpos"][0, k : k + 50]).max() > 1e-4


def test_wrong_shapes_and_numbers_are_told():
    world = World(push_scene(), 2)
    for call, words in [
        (lambda: world.reset(qpos=np.zeros(3)), "qpos takes"),
        (lambda: world.reset(qvel=np.full(world.model.nv, np.nan)), "not a finite number"),
        (lambda: world.step(np.zeros(4)), "ctrl takes"),
        (lambda: world.set(np.zeros((2, 3))), r"parameters take \[2, 0\]"),
        (lambda: world.rollout(np.zeros((3, 10, 1))), "2 worlds, the control is for 3"),
        (lambda: world.rollout(np.full((10, 1), np.nan)), "not a finite number"),
    ]:
        with pytest.raises(InputError, match=words):
            call()


def test_a_world_writes_only_a_few_dumps(tmp_path, capfd):
    world = World(push_scene(), 8, dumps=tmp_path)
    for _ in range(3):
        world.reset()
        world.engine.field("qvel")[:] = 1e13
        world.rollout(push_control(5))
    assert len(list(tmp_path.glob("*.npz"))) == 3


def test_stiction_holds_more_than_friction_in_motion_does():
    """At rest a box bears a push of up to stiction times what it bears sliding, and slides on as without."""
    tilt = np.arctan(0.55)  # a slope that friction 0.5 does not hold, and 0.6 does
    scene = push_scene()
    scene.model.opt.gravity[:] = [9.81 * np.sin(tilt), 0.0, -9.81 * np.cos(tilt)]
    world = World(scene, 2, parameters=["table.friction", "table.stiction"])
    world.set({"table.friction": 0.5, "table.stiction": np.array([1.0, 1.2])})
    moved = world.rollout(steps=400, record=("object.pose",))["object.pose"][:, -1, 0]
    assert moved[0] - moved[1] > 0.02
    assert world.values[:, 0] == pytest.approx([0.5, 0.5])
    speed = np.zeros((2, scene.model.nv))
    dof = int(scene.model.jnt_dofadr[scene.model.body_jntadr[scene.roles["object"].bodies[0]]])
    speed[:, dof + 1] = 0.5
    world.reset(qvel=speed)
    v = world.rollout(steps=40, record=("object.velocity",))["object.velocity"][:, :, 1]
    np.testing.assert_allclose(v[0, -1], v[1, -1], rtol=1e-6)
