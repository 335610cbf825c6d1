"""The design of the next motion, against plain MuJoCo, against physics, and with the capture planner."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from dexloop.capture.plans import Lift, Push
from dexloop.core.capture import Recording, StreamInfo
from dexloop.core.errors import InputError, UnknownName
from dexloop.identify import design as design_module
from dexloop.identify.design import Candidate, Design, Expected, Ranked, Sensor, design, joined
from dexloop.identify.posterior import Posterior
from dexloop.identify.solver import MODEL_SD
from dexloop.identify.unknowns import clock_unknown, gain_unknown, model_unknown
from dexloop.next_motion import candidates, command_line, say, standard_plans, to_json
from dexloop.robots.catalog import load
from dexloop.sim.scene import Scene
from tests.identify import benches

RATE_HZ = 250.0
T_BOX = np.eye(4)
T_BOX[2, 3] = 0.03


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene.open(benches.model_file(tmp_path_factory.mktemp("push"), benches.Push()), max_delay_s=0.0)


def push(speed: float, name: str = "push", distance: float = 0.05) -> Candidate:
    """The ball touches the box after 8 mm, goes on at constant speed, and stops dead, so that the box coasts."""
    command = benches.ramp(speed, start_s=0.2, distance=0.008 + distance, rest_s=0.3)
    end = (len(command) - 1) / RATE_HZ
    return Candidate(name, f"push at {speed:g} m/s", ("slide",), command, RATE_HZ, 0.1, end, T_BOX)


def slow_push() -> Candidate:
    """Its momentum, 2.5 mN s, and how the box creeps before it slides are nothing to a coarse sensor."""
    return replace(push(0.01, "slow", 0.03), start_s=0.2 + 0.008 / 0.01 - 0.3)


EFFORT = Sensor("joint_effort", "joint_effort", "", "qfrc_actuator", ("slide",), ("slide",), RATE_HZ, 10,
                np.array([0.03]), np.ones(1))  # fmt: skip
POSE = Sensor("pose", "pose", "", "qpos", ("box",), ("x", "y", "z", "rx", "ry", "rz"), 100.0, 1,
              np.array([5e-4] * 3 + [5e-3] * 3), np.ones(6))  # fmt: skip


COARSE = replace(EFFORT, noise=np.array([0.2]))
LEVEL = replace(POSE, noise=np.array([5e-4] * 3 + [np.inf, np.inf, 5e-3]))
"""Without tilt: in simulation a box presses itself into the table by its mass, and leans by that when pushed."""


def belief(scene: Scene, *, extra: tuple = (), sd: float = 0.3) -> Posterior:
    unknowns = (model_unknown(scene, "object.mass"), model_unknown(scene, "table.friction"), *extra)
    mean = np.concatenate([u.mean for u in unknowns])
    width = np.concatenate([np.full(1, sd), np.full(1, sd), *(u.sd for u in extra)])
    return Posterior(unknowns, mean, np.diag(width**2))


def mass_after(scene: Scene, candidate: Candidate, sensors: tuple[Sensor, ...], known: Posterior) -> float:
    """The standard deviation of log mass that is expected, but for the floor that no recording lowers."""
    found = design(scene, known, [candidate], sensors, asked=["object.mass"], samples=1)
    return _own(found.best.expected["object.mass"])


def _own(expected: Expected) -> float:
    return float(np.sqrt((expected.after / 1.96) ** 2 - MODEL_SD**2))


def test_a_fast_push_tells_mass_and_a_slow_one_does_not(scene: Scene) -> None:
    """F = m a + mu m g: without acceleration, force and motion depend on mu m only."""
    found = design(
        scene, belief(scene), [slow_push(), push(0.6, "fast")], (COARSE, LEVEL), asked=["object.mass"], samples=4
    )
    assert [r.candidate.name for r in found] == ["fast", "slow"]
    assert found.ranked[0].expected["object.mass"].after < 0.3 * found.ranked[0].expected["object.mass"].before
    assert found.ranked[1].expected["object.mass"].after > 0.6 * found.ranked[1].expected["object.mass"].before
    assert all(r.samples == 4 for r in found)


def test_a_slow_push_is_as_good_as_any_for_the_product(scene: Scene) -> None:
    """With the mass known, friction follows from a slow push."""
    known = belief(scene)
    pinned = Posterior(known.unknowns, known.mean, np.diag([0.011**2, 0.3**2]))
    found = design(scene, pinned, [slow_push()], (COARSE, POSE), asked=["table.friction"], samples=1)
    assert found.best.expected["table.friction"].after / 1.96 < 0.05


def test_forces_alone_are_no_better_than_the_scale_of_the_sensor(scene: Scene) -> None:
    """Mass found by pushing scales with the effort sensor: log F = log gain + log mu + log m, with mu unknown too."""
    gain = gain_unknown("joint_effort", 0.3)
    with_gain = mass_after(scene, slow_push(), (COARSE,), belief(scene, extra=(gain,)))
    without = mass_after(scene, slow_push(), (COARSE,), belief(scene))
    assert with_gain == pytest.approx((1 / 0.3**2 + 1 / (0.3**2 + 0.3**2)) ** -0.5, rel=0.05)
    assert without == pytest.approx((1 / 0.3**2 + 1 / 0.3**2) ** -0.5, rel=0.05)


def test_what_is_unknown_of_the_robot_counts(scene: Scene) -> None:
    """Whether it is asked for or not; what is not asked for is varied at the first draw only."""
    known = belief(scene, extra=(model_unknown(scene, "actuator.gain"),))
    alone = mass_after(scene, push(0.6), (EFFORT, POSE), known)
    both = design(scene, known, [push(0.6)], (EFFORT, POSE), asked=["object.mass", "actuator.gain"], samples=1)
    assert _own(both.best.expected["object.mass"]) == pytest.approx(alone, rel=1e-6)
    assert alone > 1.02 * mass_after(scene, push(0.6), (EFFORT, POSE), belief(scene))


def test_an_unknown_clock_costs_information(scene: Scene) -> None:
    late = replace(POSE, clock="clock.camera")
    loose = belief(scene, extra=(clock_unknown("camera", same=False),))
    assert mass_after(scene, push(0.6), (EFFORT, late), loose) > 1.001 * mass_after(
        scene, push(0.6), (EFFORT, POSE), belief(scene)
    )


def test_what_is_expected_is_what_plain_mujoco_gives(scene: Scene) -> None:
    """The same numbers by stepping MuJoCo itself: central differences, all unknowns in one matrix, then inverted."""
    blurred = replace(POSE, noise=4.0 * POSE.noise)
    candidate, sensors = push(0.5), (COARSE, blurred)
    known = belief(scene)
    values = np.exp(known.mean)

    def predicted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mass, friction = values * np.exp(x[:2])
        place = x[2:]
        model = mujoco.MjModel.from_xml_string(benches.Push(mass, friction).xml())
        data = mujoco.MjData(model)
        data.ctrl[0] = candidate.command[0, 0]
        mujoco.mj_step(model, data, 200)  # comes to rest
        data.qvel[:], data.qpos[:2] = 0.0, place[:2]
        data.qpos[3:7] = [np.cos(place[2] / 2), 0.0, 0.0, np.sin(place[2] / 2)]
        steps = int((candidate.end_s - candidate.start_s) / 0.002)
        effort, pose = [], []
        for k in range(steps):
            now = candidate.start_s + 0.002 * k
            data.ctrl[0] = candidate.command[int(now * RATE_HZ + 1e-6), 0]
            mujoco.mj_step(model, data)
            effort.append(float(data.qfrc_actuator[6]))
            pose.append([*data.qpos[:3], *(2.0 * data.qpos[4:7])])
        averaged = np.array(effort)[: steps // 20 * 20].reshape(-1, 20).mean(axis=1) / noise
        return np.array(effort), np.concatenate([averaged, (np.array(pose)[4::5] / blurred.noise).ravel()])

    noise = 1.0
    noise = np.hypot(COARSE.noise[0], 0.02 * predicted(np.zeros(5))[0].std())  # a model is off by a fiftieth itself

    columns = []
    for k, step in enumerate([0.02, 0.02, 1e-4, 1e-4, 1e-3]):
        ends = []
        for sign in (1.0, -1.0):
            x = np.zeros(5)
            x[k] = sign * step
            ends.append(predicted(x)[1])
        columns.append((ends[0] - ends[1]) / (2 * step))
    J = np.stack(columns, axis=1)
    prior = np.diag([0.3**-2, 0.3**-2, 2e-3**-2, 2e-3**-2, 0.02**-2])
    floor = MODEL_SD
    prior[0, 0] = prior[1, 1] = 1.0 / (0.3**2 - floor**2)
    covariance = np.linalg.inv(prior + J.T @ J)
    found = design(scene, known, [candidate], sensors, asked=["object.mass", "table.friction"], samples=1)
    for k, name in enumerate(("object.mass", "table.friction")):
        wanted = np.sqrt(covariance[k, k] + floor**2)
        assert found.best.expected[name].after / 1.96 == pytest.approx(wanted, rel=0.15)
    before, after = np.linalg.det(known.covariance), np.linalg.det(covariance[:2, :2] + floor**2 * np.eye(2))
    assert found.best.gain == pytest.approx(0.5 * np.log(before / after), abs=0.3)


def test_what_does_not_move_is_held_fast_without_harm(scene: Scene, tmp_path: Path, monkeypatch) -> None:
    """A finger on the pusher that stays where it is: the same is expected as with the finger simulated."""
    finger = """<body name="finger" pos="-0.02 0 0.05"><joint name="idle" axis="0 0 1" armature="0.01"/>
        <geom type="capsule" fromto="0 0 0 0 0.04 0" size="0.005" mass="0.02" contype="0" conaffinity="0"/></body>"""
    xml = benches.Push().xml()
    at = xml.rindex("</body>")
    xml = xml[:at] + finger + xml[at:]
    xml = xml.replace("</actuator>", '<position name="idle" joint="idle" kp="50" kv="2"/></actuator>')
    hand = Scene.open(benches.model_file(tmp_path, xml), max_delay_s=0.0)
    one = push(0.6)
    both = replace(
        one, joints=("slide", "idle"), command=np.column_stack([one.command, np.full(len(one.command), 0.3)])
    )
    prepared, _ = design_module._prepared(hand, belief(hand), both, (EFFORT, POSE))
    assert [prepared.scene.model.joint(j).name for j in range(prepared.scene.model.njnt)][1:] == ["slide"]
    held = mass_after(hand, both, (EFFORT, POSE), belief(hand))
    monkeypatch.setattr(design_module, "_STILL", 0.0)
    assert held == pytest.approx(mass_after(hand, both, (EFFORT, POSE), belief(hand)), rel=0.02)


def test_a_motion_that_touches_nothing_tells_nothing(scene: Scene) -> None:
    away = push(0.5)
    away = replace(away, command=0.1 * away.command)
    found = design(scene, belief(scene), [away], (EFFORT, POSE), asked=["object.mass"])
    assert found.best.gain < 0.02
    assert "nothing new" in found.best.words


def test_words_say_what_shrinks(scene: Scene) -> None:
    expected = {
        "object.mass": Expected(0.25, 0.04, "ratio"),
        "object.com.x": Expected(5e-3, 5e-3, "m"),
        "table.friction": Expected(1.4, 0.1, "ratio"),
    }
    ranked = Ranked(push(0.6), 3.0, expected, 4)
    shrink = "table.friction from a factor of 4.1 to ±10 %, object.mass from ±25 % to ±4 %"
    assert ranked.words == f"push at 0.6 m/s: expected to shrink {shrink}"


def test_bad_input_is_refused(scene: Scene) -> None:
    known, sensors = belief(scene), (EFFORT, POSE)
    with pytest.raises(UnknownName, match=r"object\.mas'.*object\.mass"):
        design(scene, known, [push(0.5)], sensors, asked=["object.mas"])
    with pytest.raises(InputError, match="give motions"):
        design(scene, known, [], sensors, asked=["object.mass"])
    with pytest.raises(InputError, match="at least one draw"):
        design(scene, known, [push(0.5)], sensors, asked=["object.mass"], samples=0)
    with pytest.raises(UnknownName, match="elbow"):
        design(scene, known, [replace(push(0.5), joints=("elbow",))], sensors, asked=["object.mass"])
    with pytest.raises(InputError, match="ends before it begins"):
        design(scene, known, [replace(push(0.5), end_s=0.05)], sensors, asked=["object.mass"])


def test_sensors_come_back_from_json_and_are_joined() -> None:
    dead = replace(POSE, noise=np.array([1e-3] * 5 + [np.inf]))
    again = Sensor.from_json(json.loads(json.dumps(dead.to_json())))
    assert again.elements == dead.elements
    np.testing.assert_array_equal(again.noise, dead.noise)
    two = replace(EFFORT, elements=("a", "b"), channels=("a", "b"), noise=np.array([1.0, 2.0]), correlation=np.ones(2))
    told = replace(EFFORT, elements=("b",), channels=("b",), noise=np.array([5.0]), correlation=np.array([3.0]))
    effort, pose = joined([two], [told, dead])
    assert effort.noise.tolist() == [1.0, 5.0]
    assert effort.correlation.tolist() == [1.0, 3.0]
    assert pose is dead
    assert two.without({"a"}).noise.tolist() == [2.0]


# With the capture planner.


def recorded(folder: Path) -> Recording:
    """A recording of a gripper that says where it was, and nothing else."""
    robot = load("gripper@wrist")
    T_base, T_object = np.eye(4), np.eye(4)
    T_base[0, 3], T_object[2, 3] = -0.26, 0.04
    command = StreamInfo("joint_command", "joint_command", robot.joints, robot.units, "robot", RATE_HZ)
    place = {"T_world_object_rough": T_object.tolist(), "object_size_m": [0.06, 0.06, 0.08]}
    about = {"name": robot.name, "joints": list(robot.joints), "T_world_base": T_base.tolist()}
    return Recording("push", folder, {}, about, place, {"joint_command": command}, {})


def test_candidates_are_within_reach_or_left_out_with_a_reason(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    able, unable = candidates(recording, [Push(speed_m_s=0.3, distance_m=0.04), Push(height_m=0.5)])
    assert [c.words for c in able] == ["push at 0.3 m/s, 30 mm high"]
    assert "misses the object" in unable["push at 0.12 m/s, 500 mm high"]
    robot, only = load("gripper@wrist"), able[0]
    speed = np.abs(np.diff(only.command, axis=0)).max(axis=0) * only.rate_hz
    assert (speed <= 1.02 * robot.speed_limits).all()
    assert 0.0 <= only.start_s < only.end_s <= len(only.command) / only.rate_hz
    with pytest.raises(InputError, match="no robot"):
        candidates(replace(recording, robot={}), [Push()])


def test_standard_plans_differ_and_can_be_recorded_by_command() -> None:
    plans = standard_plans(0.08, 0.05)
    assert len({say(p) for p in plans}) == len(plans) == 12
    assert {p.speed_m_s for p in plans if isinstance(p, Push)} == {0.1, 0.3, 0.6}
    assert any(isinstance(p, Lift) for p in plans)
    candidate = replace(push(0.6), plan={"plan": "Push", **Push(speed_m_s=0.6, release=False).__dict__})
    found = Design((Ranked(candidate, 1.0, {"object.mass": Expected(0.2, 0.1, "ratio")}, 1),))
    row = json.loads(json.dumps(to_json(found)))["ranked"][0]
    assert row["command"] == "dexloop capture push --speed-m-s 0.6 --no-release"
    assert command_line({"plan": "Lift", **Lift().__dict__}) == "dexloop capture lift"
