from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dexloop.core.artifact import write_text, writing
from dexloop.core.artifacts import Episodes, Policy
from dexloop.core.errors import InputError
from dexloop.core.status import Level
from dexloop.deploy.cfg import DeployCfg
from dexloop.deploy.stage import PILOT_SHARE, _Bench, _outside, _over, _shifts, deploy, guarded
from dexloop.lab import Lab, LabCfg
from dexloop.lab.rig import LabRig
from dexloop.policy.bundle import Action
from dexloop.policy.observation import Observation
from dexloop.policy.trials import Trial, trials_of
from dexloop.report.deploy import deploy_section
from dexloop.robots.outcome import HELD, LATE, MISSED, SLIPPED, STOPPED
from dexloop.robots.pickup import Load
from tests.lab_trials import QUICK, Bench, LabTrials

FREE = replace(QUICK, pilots=0)


def deployed(bench: Bench, out: Path, **more: Any) -> Episodes:
    bench.connected.clear()
    bench.verdicts.clear()
    given = {"policy": bench.policy, "twin": bench.twin, "belief": bench.belief, "rig_of": bench.rig_of, **more}
    first = [given.pop(k) for k in ("policy", "twin", "belief", "rig_of")]
    with bench.played():
        return deploy(*first, out, **{"cfg": FREE, "witness": bench.witness, **given})


def faulty(bench: Bench, after_s: float) -> Callable[[int], LabRig]:
    """Rigs whose effort sensors fail at some time."""

    def rig_of(number: int) -> LabRig:
        rig = bench.rig_of(number)
        sense = rig._bench.sense

        def broken() -> dict[str, np.ndarray]:
            felt = sense()
            return felt if rig.now() < after_s else {**felt, "joint_effort": np.full_like(felt["joint_effort"], np.nan)}

        rig._bench.sense = broken  # type: ignore[method-assign]
        return rig

    return rig_of


def misnamed(rig: LabRig, what: str) -> LabRig:
    """A rig that has another order of joints than its robot, or other fingers."""
    features = rig.features
    assert features.command is not None
    joints = features.command.joints
    if what == "command":
        command = replace(features.command, joints=(joints[1], joints[0], *joints[2:]))
        rig._features = replace(features, command=command)
    else:
        streams = (replace(s, channels=("a", "b")) if s.name == "touch" else s for s in features.streams)
        rig._features = replace(features, streams=tuple(streams))
    return rig


def said(episodes: Episodes) -> list[dict[str, Any]]:
    return json.loads((episodes.path / "trials.json").read_text(), parse_constant=lambda x: pytest.fail(f"{x} in JSON"))


def test_trials_are_recorded_and_judged_as_the_truth_has_it(lab_trials: LabTrials):
    trials, truth = trials_of(lab_trials.episodes), lab_trials.bench.lab.truth()
    assert [t.outcome["verdict"] for t, _ in trials] == [lab_trials.verdicts[k] for k in (1, 2)] == [HELD] * 2
    assert lab_trials.episodes.status.level is Level.OK
    for trial, capture in trials:
        capture.verify()
        recording = capture.recording()
        assert {"joint_command", "joint_position", "joint_effort", "touch", "object_pose"} <= set(recording.streams)
        assert recording.markers == trial.moments
        span = recording.stream("joint_position").t[[0, -1]]
        assert span[0] == pytest.approx(trial.moments["begin"], abs=0.03)
        assert span[1] == pytest.approx(trial.moments["end"], abs=0.03)
        slip_m, grip_n = lab_trials.felt[trial.number]
        assert trial.outcome["slip_m"] == pytest.approx(slip_m, abs=2e-3)
        assert 0.5 * trial.outcome["peak_force_n"] == pytest.approx(grip_n, rel=0.15)
        # Where it was put is where it was seen: the twin's frame is the tracker's here.
        T, (x, y, turn) = np.array(trial.T_world_object), trial.shift
        np.testing.assert_allclose(T[:2, 3] - truth.T_world_object[:2, 3], [x, y], atol=2.5e-3)
        R = T[:3, :3] @ truth.T_world_object[:3, :3].T
        assert np.arctan2(R[1, 0], R[0, 0]) == pytest.approx(turn, abs=0.04)


def test_what_the_gate_did_is_written_down_and_pilots_go_gently(lab_trials: LabTrials):
    first, second = said(lab_trials.episodes)
    assert (first["pilot"], second["pilot"]) == (True, False)
    assert first["gate"], "half of the limits make a gate slow some command"
    for event in first["gate"]:
        assert event["action"] in ("slow", "clip", "hold")
        assert event["reasons"]
    speeds = []
    for _, capture in trials_of(lab_trials.episodes):
        sent = capture.recording().stream("joint_command")
        speeds.append(np.abs(np.diff(sent.value, axis=0) / np.diff(sent.t)[:, None]).max(axis=0))
    limits = guarded(lab_trials.bench.lab.rig()).gate.limits.speed
    assert (speeds[0] <= PILOT_SHARE * limits * 1.01).all()
    gentle = guarded(lab_trials.bench.lab.rig(), gentle=True).gate.limits
    np.testing.assert_allclose(gentle.speed, PILOT_SHARE * limits)


def test_a_deployment_that_was_killed_goes_on_with_the_next_trial(lab_trials: LabTrials):
    assert lab_trials.connected == ([1], [2])
    assert {"01", "01.json", "asked.json"} <= set(lab_trials.left)
    assert not lab_trials.episodes.path.with_name("episodes.trials").exists()
    assert [t.number for t, _ in trials_of(lab_trials.episodes)] == [1, 2]
    lab_trials.episodes.verify()
    meta = lab_trials.episodes.header.meta
    assert (meta["object"], meta["robot"], meta["trials"], meta["held"]) == ("cube", "gripper@wrist", 2, 2)


def test_finished_trials_are_used_again_but_not_those_of_another_deployment(lab_trials: LabTrials, tmp_path: Path):
    """As if it had been killed just before it was done: nothing moves any more."""
    bench, left = lab_trials.bench, tmp_path / "episodes.trials"
    shutil.copytree(lab_trials.episodes.path / "trials", left)
    for row in said(lab_trials.episodes):
        write_text(left / f"{row['number']:02d}.json", json.dumps(row))
    again = deployed(bench, tmp_path / "episodes", cfg=QUICK)
    assert bench.connected == []
    assert said(again) == said(lab_trials.episodes)
    assert not left.exists()
    left.mkdir()
    write_text(left / "asked.json", "{}")
    with pytest.raises(InputError, match="with another policy, twin, belief or options"):
        deployed(bench, tmp_path / "episodes", cfg=QUICK, replace=True)
    assert bench.connected == []


def test_a_command_that_is_no_number_stops_the_robot_and_ends_the_deployment(lab_trials: LabTrials, tmp_path: Path):
    bench = lab_trials.bench

    class Mad:
        def __init__(self) -> None:
            self.contract, self.points = bench.player.contract, bench.player.points

        def act(self, seen: Observation) -> Action:
            wise = bench.player.act(seen)
            return replace(wise, hand=wise.hand * (np.nan if seen.clock[0, 0] > 0.2 else 1.0))

    mad = replace(bench, player=Mad())  # type: ignore[arg-type]
    episodes = deployed(mad, tmp_path / "episodes")
    [only] = said(episodes)
    assert only["outcome"]["verdict"] == STOPPED
    assert only["gate"][-1]["action"] == "stop"
    assert only["gate"][-1]["reasons"] == only["stopped"] == ["command not finite"]
    assert only["gate"][-1]["asked"] is None
    assert bench.connected == [1]
    assert episodes.status.code == "ended_early"
    assert not bench.rigs[1]._connected
    [(_, capture)] = trials_of(episodes)
    assert "command not finite" in capture.status.message
    assert np.isfinite(capture.recording().stream("joint_command").value).all()


@pytest.mark.parametrize("after_s", [0.9, 1.85])
def test_a_fault_on_the_way_or_at_once_is_a_stopped_trial(lab_trials: LabTrials, tmp_path: Path, after_s: float):
    """Then nothing was done that could be judged, but what happened is written down."""
    bench = lab_trials.bench
    episodes = deployed(bench, tmp_path / "episodes", rig_of=faulty(bench, after_s))
    [(trial, capture)] = trials_of(episodes)
    assert trial.outcome["verdict"] == STOPPED
    assert trial.gate[-1]["reasons"] == ["observation not finite"]
    assert list(capture.recordings) == ["trial_01"]
    assert bench.connected == [1]


def test_a_pilot_that_fails_ends_the_deployment(lab_trials: LabTrials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dexloop.deploy.trial.LIMIT_S", 0.2)

    def alone(number: int) -> LabRig:
        rig = lab_trials.bench.rig_of(number)
        del rig.operator  # nobody is there to put the object
        return rig

    episodes = deployed(lab_trials.bench, tmp_path / "episodes", cfg=QUICK, rig_of=alone)
    [only] = said(episodes)
    assert only["outcome"]["verdict"] == LATE
    assert only["shift"] is None
    assert "where it stood" in deploy_section(episodes)
    assert lab_trials.bench.verdicts == {1: MISSED}
    assert episodes.status.code == "ended_early"
    assert "pilot 1 late" in episodes.status.message


def test_in_the_shadow_nothing_is_sent(lab_trials: LabTrials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dexloop.deploy.trial.LIMIT_S", 0.2)
    bench = lab_trials.bench

    def deaf(number: int) -> LabRig:
        rig = bench.rig_of(number)
        rig.send = lambda _target: pytest.fail("a command was sent")  # type: ignore[method-assign]
        return rig

    episodes = deployed(bench, tmp_path / "episodes", rig_of=deaf, cfg=replace(FREE, trials=1, shadow=True))
    assert episodes.status.code == "shadow"
    assert said(episodes)[0]["outcome"]["verdict"] == MISSED
    assert "joint_position" in trials_of(episodes)[0][1].recording().streams


def test_what_does_not_fit_together_is_refused_before_anything_moves(lab_trials: LabTrials, tmp_path: Path):
    bench, out = lab_trials.bench, tmp_path / "episodes"
    player = bench.player
    points = {"mug": player.points["cube"]}

    def other(name: str, **more: Any) -> Bench:
        changed = type("Other", (), {"contract": player.contract, "points": player.points, "act": player.act, **more})
        return replace(bench, player=changed())

    with pytest.raises(InputError, match="was trained for mug, not for cube"):
        deployed(other("points", points=points), out)
    reordered = replace(player.contract, joints=tuple(reversed(player.contract.joints)))
    with pytest.raises(InputError, match="joint order changed"):
        deployed(other("contract", contract=reordered), out)
    arm = Lab(LabCfg(object="cube", robot="gripper@arm7", seed=3, video=False))
    with pytest.raises(InputError, match=r"the policy is for gripper@wrist"):
        deployed(replace(bench, lab=arm), out)
    for swap, words in (("command", "joint order changed"), ("touch", "stream 'touch' .* has no")):
        with pytest.raises(InputError, match=words):
            deployed(bench, out, rig_of=lambda number, swap=swap: misnamed(bench.rig_of(number), swap))
    bulb = Lab(LabCfg(object="light_bulb", robot="gripper@wrist", seed=3, video=False))
    with pytest.raises(InputError, match="the twin is of cube, and before lab/light_bulb stands light_bulb"):
        deployed(replace(bench, lab=bulb), out)
    (tmp_path / "taken").mkdir()
    write_text(tmp_path / "taken" / "mine.txt", "precious")
    with pytest.raises(InputError):
        deployed(bench, tmp_path / "taken")
    assert bench.connected == []
    assert not out.exists()


def test_objects_are_put_all_over_the_area_in_an_order_that_is_not():
    shifts = np.array(_shifts(DeployCfg(trials=40, around_m=0.02, turn_rad=0.3, trial_seed=1)))
    reach = np.array([0.02, 0.02, 0.3])
    assert (np.abs(shifts) <= reach).all()
    # One in each fortieth of every axis.
    for column in ((shifts / reach + 1) / 2 * 40).T:
        np.testing.assert_array_equal(np.sort(np.floor(column)), np.arange(40))
        assert np.abs(np.corrcoef(column, np.arange(40))[0, 1]) < 0.6
    np.testing.assert_array_equal(shifts, _shifts(DeployCfg(trials=40, around_m=0.02, turn_rad=0.3, trial_seed=1)))
    assert not np.array_equal(shifts, _shifts(DeployCfg(trials=40, around_m=0.02, turn_rad=0.3, trial_seed=2)))


def test_so_many_failures_in_a_row_end_it():
    def trials(*verdicts: str) -> list[Trial]:
        return [Trial(k, False, (0.0, 0.0, 0.0), [], [], {}, {}, {"verdict": v}, []) for k, v in enumerate(verdicts)]

    cfg = DeployCfg(failures=2)
    assert _over(trials(SLIPPED), cfg) == ""
    assert _over(trials(SLIPPED, HELD, MISSED), cfg) == ""
    assert _over(trials(HELD, SLIPPED, MISSED), cfg) == "2 trials in a row failed"
    assert _over(trials(HELD, STOPPED), cfg) == "the gate stopped trial 1"


@pytest.mark.parametrize("shadow", [False, True])
def test_whoever_ends_a_trial_finds_the_robot_stopped(lab_trials: LabTrials, tmp_path: Path, shadow: bool):
    bench, stopped = lab_trials.bench, []

    def rig_of(number: int) -> LabRig:
        rig = bench.rig_of(number)
        sense = rig._bench.sense

        def interrupted() -> dict[str, np.ndarray]:
            if rig.now() > 0.8:
                raise KeyboardInterrupt
            return sense()

        rig._bench.sense, rig.stop = interrupted, lambda: stopped.append(rig._connected)  # type: ignore[method-assign]
        return rig

    with pytest.raises(KeyboardInterrupt):
        deployed(bench, tmp_path / "episodes", rig_of=rig_of, cfg=replace(FREE, shadow=shadow))
    assert stopped == ([] if shadow else [True])
    assert not bench.rigs[1]._connected
    assert not (tmp_path / "episodes").exists()


def test_a_deployment_that_was_killed_after_a_stop_does_not_go_on(lab_trials: LabTrials, tmp_path: Path):
    """It held before it was stopped, so that nothing but what is written of the gate speaks against the next trial."""
    bench, left = lab_trials.bench, tmp_path / "episodes.trials"
    shutil.copytree(lab_trials.episodes.path / "trials" / "01", left / "01")
    first = {**said(lab_trials.episodes)[0], "stopped": ["fingertip force"]}
    write_text(left / "01.json", json.dumps(first))
    rig = bench.rig_of(1)
    episodes = deployed(bench, tmp_path / "episodes", cfg=QUICK, rig_of=lambda _number: rig)
    assert bench.connected == []
    assert said(episodes) == [first]
    assert "the gate stopped trial 1: look at the robot" in episodes.status.message


def test_a_robot_that_the_gate_stopped_is_not_used_again():
    first, other = object(), object()
    rigs = {1: first, 2: first, 3: other}
    stage: Any = None  # nothing is carried out
    bench = _Bench(
        rigs.__getitem__, stage, DeployCfg(trials=3), scanned=False, pose_late_s=0.0, load=stage, witness=stage
    )  # type: ignore[arg-type]

    def trial(number: int, *stopped: str) -> Trial:
        return Trial(number, False, None, [], [], {}, {}, {}, [], stopped)

    assert bench.refuses(trial(1)) == ""
    assert "stopped trial 1: look at the robot" in bench.refuses(trial(1, "fingertip force"))
    assert bench.refuses(trial(2, "fingertip force")) == "", "a bench that was set up anew"
    assert bench.refuses(trial(3, "fingertip force")) == "", "there is no such trial"


def test_what_a_policy_was_not_trained_on_is_said(tmp_path: Path):
    with writing(tmp_path / "policy", Policy) as draft:
        for name in Policy.required:
            (draft.folder / name).write_text("{}")
        draft.meta["trained_on"] = {"object.mass": [0.1, 0.4], "fingertip.friction": [0.3, 0.9]}
    policy = Policy.open(tmp_path / "policy")
    assert _outside(policy, Load(0.2, 0.25, 0.5)) == ""
    said = _outside(policy, Load(0.8, 0.9, 0.5))
    assert "object.mass of 0.8, and was trained from 0.1 to 0.4" in said
    assert "friction" not in said
