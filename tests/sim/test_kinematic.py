from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dexloop.core import se3
from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.kinematic import Guided, ToolPath, guide
from dexloop.sim.parts import SOFT_ONSET, Table
from dexloop.sim.scene import Scene, SceneCfg, compose
from dexloop.sim.world import Rollout, World
from tests.sim.scenes import Pusher, box, push_scene

MU, MASS, G = 0.5, 0.12, 9.81
LOW = 0.005
"""Height at which the tool pushes [m]: higher up and without friction the box begins to rock, whatever pushes it."""


@dataclass(frozen=True)
class Tool:
    """A smooth ball at the end of nothing."""

    kind: str = "mocap"
    name: str = "tool"
    y: float = 0.0

    def add_to(self, spec: mujoco.MjSpec) -> None:
        body = spec.worldbody.add_body(name=self.name, pos=[-0.06, self.y, LOW], mocap=self.kind == "mocap")
        if self.kind == "free":
            body.add_freejoint()
        body.add_geom(
            type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.015, 0, 0], priority=3, condim=1, solref=[0.006, 1],
            solimp=SOFT_ONSET,
        )  # fmt: skip


def scene(kind: str = "mocap", **cfg) -> Scene:
    return compose(Table(friction=MU), Tool(kind), box(mass_kg=MASS), cfg=SceneCfg(**cfg))


def straight(x: np.ndarray, height: float = LOW) -> np.ndarray:
    pose = np.tile([0.0, 0.0, height, 1.0, 0.0, 0.0, 0.0], (len(x), 1))
    pose[:, 0] = x
    return pose


def follow(guided: Guided, path: ToolPath, duration_s: float, *record: str, start_s: float = 0.0) -> Rollout:
    world = World(guided.scene, 1)
    plan = guided.follow(path, start_s, int(duration_s / world.model.opt.timestep))
    qpos, qvel = world.model.qpos0.copy(), np.zeros(world.model.nv)
    qpos[guided.qpos], qvel[guided.qvel] = plan.pose, plan.velocity
    world.reset(qpos=qpos, qvel=qvel)
    return world.rollout(moving=plan.moving, record=record).require()


def wave(t: np.ndarray) -> np.ndarray:
    """A smooth path at up to 0.3 m/s and 4 rad/s, above the table."""
    x = np.stack([0.06 * np.sin(5 * t), 0.05 * np.cos(4 * t), 0.3 + 0.01 * np.sin(9 * t)], axis=-1)
    turn = np.stack([0.3 * np.sin(5 * t), 0.2 * np.cos(3 * t), 2.0 * np.sin(2 * t)], axis=-1)
    return np.concatenate([x, Rotation.from_rotvec(turn).as_quat(scalar_first=True)], axis=-1)


@pytest.mark.parametrize("kind", ["mocap", "fixed", "free"])
@pytest.mark.parametrize("timestep_s", [0.001, 0.002])
def test_the_tool_is_where_it_was_measured_when_it_was(kind, timestep_s):
    t = np.arange(0, 1.5, 0.005) + np.random.default_rng(0).uniform(-0.001, 0.001, 300)
    path = ToolPath.fit(t, wave(t))
    out = follow(guide(scene(kind, timestep_s=timestep_s), "tool"), path, 1.2, "tool.pose", start_s=0.1)
    when = 0.1 + timestep_s * np.arange(1, out["tool.pose"].shape[1] + 1)
    truth, found = wave(when), out["tool.pose"][0]
    assert np.linalg.norm(np.diff(truth[:, :3], axis=0), axis=1).max() / timestep_s > 0.3, "the path is fast"
    # 0.1 ms at 0.3 m/s is 0.03 mm, at 4 rad/s 0.4 mrad.
    assert np.linalg.norm(found[:, :3] - truth[:, :3], axis=1).max() < 3e-5
    turned = Rotation.from_quat(found[:, 3:], scalar_first=True)
    assert (turned * Rotation.from_quat(truth[:, 3:], scalar_first=True).inv()).magnitude().max() < 4e-4
    # That is what the fit leaves; the tool follows the fitted path exactly, however it accelerates.
    np.testing.assert_allclose(found[:, :3], path.at(when)[:, :3], atol=1e-9)
    fitted = Rotation.from_quat(path.at(when)[:, 3:], scalar_first=True)
    assert (turned * fitted.inv()).magnitude().max() < 1e-5


def test_a_steady_push_takes_coulombs_force():
    t = np.arange(0, 1.3, 0.004)
    out = follow(
        guide(scene(), "tool"), ToolPath.fit(t, straight(-0.05 + 0.15 * t)), 1.2, "tool.wrench", "object.velocity"
    )
    force = out["tool.wrench"][0, 300:, :3]
    np.testing.assert_allclose(force[:, 0], -MU * MASS * G, rtol=0.01)  # on the tool: the box pushes back
    np.testing.assert_allclose(force[:, 1:], 0, atol=1e-3)
    np.testing.assert_allclose(out["object.velocity"][0, 300:, 0], 0.15, rtol=1e-3)


def test_an_accelerating_push_takes_the_inertia_too():
    t, a = np.arange(0, 1.3, 0.004), 1.0
    x = -0.06 + 0.05 * t + 0.5 * a * np.maximum(t - 0.5, 0) ** 2
    out = follow(guide(scene(), "tool"), ToolPath.fit(t, straight(x)), 1.0, "tool.wrench")
    np.testing.assert_allclose(out["tool.wrench"][0, 350:480, 0], -MASS * (a + MU * G), rtol=0.01)


def test_a_tool_pushed_back_stays_on_its_path_where_a_plain_mocap_body_sinks_in():
    t = np.arange(0, 1.3, 0.004)
    poses, plain = straight(-0.05 + 0.3 * t), scene()
    guided = guide(plain, "tool")
    out = follow(guided, ToolPath.fit(t, poses), 1.0, "tool.pose", "object.pose")
    when = 0.002 * np.arange(1, 501)
    np.testing.assert_allclose(out["tool.pose"][0, :, 0], -0.05 + 0.3 * when, atol=1e-6)
    gap = out["object.pose"][0, 300:, 0] - out["tool.pose"][0, 300:, 0] - 0.03 - 0.015
    sunk = World(plain, 1).rollout(moving={"tool": se3.interpolate(when, t, poses)}, record=("object.pose",))
    naive = sunk["object.pose"][0, 300:, 0] - (-0.05 + 0.3 * when[300:]) - 0.03 - 0.015
    assert np.abs(gap).max() < 3e-4
    assert naive.min() < -2e-3, "2 · 6 ms · 0.3 m/s is 3.6 mm"


def test_worlds_may_start_at_different_times():
    t = np.arange(0, 1.5, 0.01)
    guided, path, starts = guide(scene(), "tool"), ToolPath.fit(t, wave(t)), np.array([0.1, 0.35])
    both = guided.follow(path, starts, 50)
    for i, start in enumerate(starts):
        one = guided.follow(path, float(start), 50)
        np.testing.assert_array_equal(both.pose[i], one.pose)
        np.testing.assert_array_equal(both.velocity[i], one.velocity)
        np.testing.assert_array_equal(both.moving["tool.target"][i], one.moving["tool.target"])


def test_noise_is_smoothed_and_what_was_measured_cleanly_is_not():
    rng, t = np.random.default_rng(1), np.arange(0, 1.5, 0.004)
    clean = wave(t)
    np.testing.assert_allclose(ToolPath.fit(t, clean).at(t)[10:-10], clean[10:-10], atol=1e-5)
    noisy = clean.copy()
    noisy[:, :3] += 1e-4 * rng.normal(size=(len(t), 3))
    left = ToolPath.fit(t, noisy).at(t)[:, :3] - clean[:, :3]
    assert np.sqrt(np.mean(left**2)) < 0.6e-4
    acceleration = np.diff(ToolPath.fit(t, noisy).at(t)[:, :3], 2, axis=0) / 0.004**2
    # Straight lines between the noisy samples would jump with sqrt(6) · 0.1 mm / (4 ms)², about 15 m/s².
    assert np.abs(acceleration - np.diff(clean[:, :3], 2, axis=0) / 0.004**2).std() < 1.5


def test_a_flipped_quaternion_is_the_same_rotation():
    t = np.arange(0, 1.0, 0.01)
    poses = wave(t)
    flipped = poses.copy()
    flipped[40:, 3:] *= -1
    a, b = ToolPath.fit(t, poses).at(t), ToolPath.fit(t, flipped).at(t)
    np.testing.assert_allclose(a, b, atol=1e-12)


def test_a_path_goes_on_for_a_moment_and_no_longer():
    t = np.arange(0, 1.0, 0.01)
    path = ToolPath.fit(t, straight(0.2 * t))
    np.testing.assert_allclose(path.at(np.array([-0.05, 1.04]))[:, 0], [-0.01, 0.208], atol=1e-6)
    with pytest.raises(InputError, match=r"measured from 0\.000 s to 0\.990 s.*1\.300 s"):
        path.at(np.array([0.5, 1.3]))


def test_the_given_scene_is_not_changed():
    given = scene("fixed")
    before, bodies = given.spec.to_xml(), given.model.nbody
    guide(given, "tool")
    assert given.spec.to_xml() == before
    assert given.model.nbody == bodies


@pytest.mark.parametrize("kind", ["mocap", "fixed", "free"])
def test_roles_stay_right(kind):
    guided = guide(scene(kind), "tool").scene
    m = guided.model
    assert guided.roles["object"].bodies == (m.body("box").id,)
    assert guided.roles["tool"].bodies == (m.body("tool").id,)
    assert guided.roles["table"].geoms == (m.geom("table").id,)
    assert "tool.target" not in guided.roles


def test_roles_in_a_file_of_ones_own(tmp_path):
    """Two free bodies: which is the object is known only when the other one is the tool."""
    file = tmp_path / "scene.xml"
    file.write_text(
        """<mujoco><worldbody>
        <geom name="floor" type="plane" size="1 1 0.1"/>
        <body name="stick" pos="-0.1 0 0.03"><freejoint/><geom type="sphere" size="0.01"/></body>
        <body name="cup" pos="0 0 0.03"><freejoint/><geom type="box" size="0.03 0.03 0.03"/></body>
        <body pos="0.3 0 0.1"><geom type="box" size="0.01 0.1 0.1"/></body>
        <body name="arm" pos="0.5 0 0.2"><joint name="swing" axis="0 0 1"/><geom size="0.02"/></body>
        </worldbody><keyframe><key qpos="0 0 0 1 0 0 0 0 0 0 1 0 0 0 0"/></keyframe></mujoco>"""
    )
    given = Scene.open(file)
    assert "object" not in given.roles
    guided = guide(given, "stick").scene
    assert guided.roles["object"].bodies == (guided.model.body("cup").id,)
    assert guided.roles["joint"].joints == (guided.model.joint("swing").id,)
    assert guide(given, "cup").scene.roles["object"].bodies == (guided.model.body("stick").id,)
    only = tmp_path / "only.xml"
    only.write_text('<mujoco><worldbody><body name="a"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>')
    assert "object" in Scene.open(only).roles
    assert "object" not in guide(Scene.open(only), "a").scene.roles


def test_a_robots_joints_keep_their_roles():
    given = compose(Table(), Tool("fixed"), Pusher(), box())
    guided = guide(given, "tool").scene
    assert guided.roles["joint"].joints == (guided.model.joint("slide").id,)
    assert guided.roles["actuator"] == given.roles["actuator"]


def test_the_tool_does_not_touch_what_stands():
    t = np.arange(0, 1.0, 0.01)
    path = ToolPath.fit(t, straight(-0.2 + 0 * t, height=0.0))  # half in the table
    out = follow(guide(scene(), "tool"), path, 0.5, "tool.wrench", "tool.pose")
    np.testing.assert_array_equal(out["tool.wrench"], 0.0)
    # An object has named contacts with the table, which go by another way in MuJoCo.
    box_path = ToolPath.fit(t, straight(0.1 * t, height=0.02))
    out = follow(guide(scene(), "box"), box_path, 0.5, "box.wrench")
    np.testing.assert_array_equal(out["box.wrench"], 0.0)


def test_two_tools():
    both = compose(Table(), Tool(), Tool(name="other", y=0.1), box())
    first = guide(both, "tool")
    second = guide(first.scene, "other")
    assert second.scene.roles["object"].bodies == (second.scene.model.body("box").id,)
    world = World(second.scene, 1)
    world.rollout(steps=50, record=("tool.wrench", "other.wrench")).require()


def test_what_cannot_be_guided():
    for body, words in [("pusher", "moved by its joints"), ("held", "held by the equality hold"), ("part", "directly")]:
        spec = push_scene().spec.copy()
        held = spec.worldbody.add_body(name="held", pos=[0.3, 0.3, 0.3])
        held.add_freejoint()
        held.add_geom(size=[0.01, 0, 0])
        spec.worldbody.add_body(name="stand").add_body(name="part").add_geom(size=[0.01, 0, 0])
        spec.add_equality(
            name="hold", type=mujoco.mjtEq.mjEQ_WELD, objtype=mujoco.mjtObj.mjOBJ_BODY, name1="held", name2="world"
        )
        model = spec.compile()
        with pytest.raises(InputError, match=words):
            guide(Scene(spec, model, {}), body)
    with pytest.raises(UnknownName, match="there is box, tool"):
        guide(scene(), "tol")


def test_a_path_that_is_none():
    t = np.arange(0, 1.0, 0.01)
    good = wave(t)
    for times, poses, words in [
        (t[:4], good[:4], "at least 5"),
        (t[::-1].copy(), good, "goes back in time, or stands, at sample 1"),
        (t, np.where(np.arange(7) == 2, np.nan, good), "not a finite number"),
        (t, np.where(np.arange(7) > 2, 0.0, good), "has length 0, not 1"),
    ]:
        with pytest.raises(InputError, match=words):
            ToolPath.fit(times, poses)
