"""What the loop decides between its stages; that it goes round as a whole is tested with the demo."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dexloop import loop as looping
from dexloop.capture.plans import FreeMotion, Lift, Press, Push, describe
from dexloop.core.artifact import Artifact, load_arrays, write_text, writing
from dexloop.core.artifacts import Demos, Episodes, Ledger, Policy
from dexloop.core.capture import StreamInfo
from dexloop.core.errors import HaltError
from dexloop.core.run import Run
from dexloop.identify.design import Design, Ranked
from dexloop.loop import PLANS, TOLD, Cfgs, Decisions, Round, _guess, _record, _record_best, _record_first, loop
from dexloop.loop_cfg import LoopCfg
from dexloop.rig.protocol import Features, Samples
from dexloop.rig.recorder import Recorder
from dexloop.robots.pickup import Load
from dexloop.sim.believed import mean_of
from tests.lab_trials import write_belief

STREAM = StreamInfo("x", "scalar", ("x",), ("m",), "robot")


def test_a_guess_is_one_of_the_object_and_not_of_the_sensors(tmp_path: Path):
    rng = np.random.default_rng(0)
    rows = {
        "object.mass": 0.4,
        "clock.camera": 0.05,
        "actuator.gain": 0.9,
        "gain.joint_effort": 1.2,
        "bias.p.x": 1.0,
    }
    belief = write_belief(tmp_path / "belief", {k: v * np.exp(0.01 * rng.normal(size=60)) for k, v in rows.items()})
    guess = _guess(Run.create(tmp_path / "run"), belief, LoopCfg(guess_kg=0.3, guess_friction=0.6))
    assert guess.header.meta["labels"] == [*TOLD, "table.friction", "clock.camera", "gain.joint_effort", "bias.p.x"]
    for label in ("clock.camera", "gain.joint_effort", "bias.p.x"):
        assert mean_of(guess, label, otherwise=np.nan) == mean_of(belief, label, otherwise=np.nan)
    posterior, told = load_arrays(guess.path / "posterior.npz"), Load.of(guess)
    np.testing.assert_allclose(posterior["mean"], posterior["samples"].mean(axis=0))
    assert posterior["covariance"].shape == (6, 6)
    np.testing.assert_allclose([told.mass_kg, told.friction], [0.3, 0.6], rtol=0.1)
    assert set(guess.header.meta["parameters"]) == {*TOLD, "table.friction"}


def test_a_recording_that_was_interrupted_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plans, last = [FreeMotion(), FreeMotion()], 1

    def capture(_rig: object, plans: list, out: Path, **_: Any) -> None:
        with Recorder(out, Features("bench", {}, (STREAM,), (), None, {})) as recorder:
            for k, _plan in enumerate(plans):
                recorder.start(f"motion_{k}")
                recorder.append_samples("x", Samples(np.zeros(1), np.zeros((1, 1))))
                if k == last:
                    raise KeyboardInterrupt
                recorder.finish_recording()

    monkeypatch.setattr(looping, "capture", capture)
    out, rig, tell = tmp_path / "1_capture", SimpleNamespace(), lambda _text, _done: None
    with pytest.raises(KeyboardInterrupt):
        _record(rig, plans, out, tell)  # type: ignore[arg-type]
    assert not out.exists()
    last = -1
    made = _record(rig, plans, out, tell)  # type: ignore[arg-type]
    assert list(made.recordings) == ["motion_0", "motion_1"]
    made.verify()
    assert [p.name for p in tmp_path.iterdir()] == ["1_capture"]


@pytest.mark.parametrize("kinds", [("joint_position",), ("joint_position", "touch")])
def test_only_a_robot_that_feels_presses(kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    rig = SimpleNamespace(features=SimpleNamespace(streams=[SimpleNamespace(kind=kind) for kind in kinds]))
    monkeypatch.setattr(looping, "_record", lambda _rig, plans, *_: plans)
    done = _record_first(rig, PLANS, Path("unused"), lambda _text, _done: None)  # type: ignore[arg-type]
    assert done == [plan for plan in PLANS if "touch" in kinds or not isinstance(plan, Press)]
    assert any(isinstance(plan, Press) for plan in PLANS)


@pytest.mark.parametrize("anew", [True, False], ids=["a bench set up anew", "always the same robot"])
def test_a_motion_in_which_the_robot_was_stopped_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, anew: bool
):
    plans = [Lift(), Push(speed_m_s=0.3)]
    design = Design(tuple(
        Ranked(SimpleNamespace(words=type(p).__name__, plan=describe(p)), 2.0 - k, {}, 1) for k, p in enumerate(plans)
    ))  # type: ignore[arg-type]  # fmt: skip
    monkeypatch.setattr(Ranked, "words", property(lambda self: self.candidate.words))
    done: list[Any] = []

    def record(_rig: Any, given: Any, *_: Any) -> None:
        done.append(given[0])
        if isinstance(given[0], Lift):
            raise HaltError("it was stopped: fingertip force; look at it, then reset it")

    monkeypatch.setattr(looping, "_record", record)
    same = object()
    place: Any = SimpleNamespace(recording=lambda _number: object() if anew else same)
    file = tmp_path / "decisions.jsonl"
    go = lambda: _record_best(  # noqa: E731
        design, place, 1, tmp_path / "push_1" / "motion", ("object.mass",), Decisions(file), lambda *_: None
    )
    if not anew:
        with pytest.raises(HaltError, match=r"fingertip force.*start again after that, and another motion is chosen"):
            go()
        assert done == plans[:1]
    go()
    assert done == plans
    assert "another motion is chosen" in file.read_text()
    design = Design(design.ranked[:1])
    with pytest.raises(HaltError, match="in each motion"):
        go()


def test_a_decision_that_was_torn_is_made_again(tmp_path: Path):
    file = tmp_path / "decisions.jsonl"
    assert Decisions(file).note("identified", "it is known to 20 %")
    whole = file.read_bytes()
    for torn in (b'{"what": "round 1", "why": "h\xc3', b'{"what": "round 1"'):
        file.write_bytes(whole + torn)
        log = Decisions(file)
        assert file.read_bytes() == whole
        assert not log.note("identified", "again")
    assert log.note("round 1", "held")
    assert [json.loads(line)["what"] for line in file.read_text().splitlines()] == ["identified", "round 1"]
    file.write_bytes(b'{"wh')
    assert Decisions(file).note("round 1", "held")


class Stages:
    """Stages that do nothing, and are counted."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stopped: dict[int, tuple[str, ...]]):
        self.run, self.deployed, self._stopped = Run.create(tmp_path / "run"), [], stopped
        self.rig: Any = SimpleNamespace(features=SimpleNamespace(scene={}))
        rng = np.random.default_rng(0)
        rows = {k: 0.3 * np.exp(0.01 * rng.normal(size=20)) for k in (*TOLD, "clock.camera")}
        belief = write_belief(tmp_path / "belief", rows)
        monkeypatch.setattr(looping, "_known", lambda *_: (None, None, belief))
        monkeypatch.setattr(looping, "_again", lambda *_: (None, belief))
        monkeypatch.setattr(looping, "demonstrate", lambda *a, **_: made(Demos, a[3]))
        monkeypatch.setattr(looping, "train", lambda _demos, path, **_: made(Policy, path))
        monkeypatch.setattr(looping, "deploy", self.deploy)
        monkeypatch.setattr(looping, "audit", self.audit)
        monkeypatch.setattr(looping, "trials_of", self.trials_of)

    def deploy(self, *given: Any, cfg: Any, **_: Any) -> None:
        self.deployed.append(cfg.trials)
        made(Episodes, given[4], trials=cfg.trials, held=0, load={})

    def audit(self, *given: Any, cfg: Any, **_: Any) -> None:
        todo = {"do": "re-identify", "parameters": ["object.mass"], "motion": None, "why": "so"}
        success = {"sim": 1.0, "real": 0.0, "gap": 1.0, "interval": [0.0, 1.0]}
        made(Ledger, given[4], next=todo, success=success, round=cfg.round)

    def trials_of(self, episodes: Episodes) -> list[tuple[Any, None]]:
        name = episodes.path.parent.name
        number = int(name.removeprefix("round_")) if name.startswith("round_") else 1
        return [(SimpleNamespace(number=1, stopped=self._stopped.get(number, ())), None)]

    def recording(self, number: int) -> Any:
        raise AssertionError("nothing is recorded here")

    def trial(self, round_: int, number: int) -> Any:
        return self.rig

    def go(self, **cfg: Any) -> list[Round]:
        return loop(self.run, self, cfg=LoopCfg(**{"rounds": 2, "trials": 3, **cfg}), cfgs=Cfgs())

    def decided(self) -> dict[str, str]:
        lines = (self.run.path / "decisions.jsonl").read_text().splitlines()
        return {row["what"]: row["why"] for row in map(json.loads, lines)}


def made(kind: type[Artifact], path: Path, **meta: Any) -> Artifact:
    with writing(path, kind) as draft:
        for name in kind.required:
            file = draft.folder / name.replace("*", "01")
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, "{}")
        draft.meta |= meta
    return kind.open(path)


@pytest.mark.parametrize(("budget", "trials"), [(3, [3]), (4, [3, 1]), (7, [3, 3, 1]), (2, [2]), (12, [3, 3, 3])])
def test_no_more_trials_are_made_than_there_is_budget_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int, trials: list[int]
):
    stages = Stages(tmp_path, monkeypatch, stopped={})
    rounds = stages.go(budget=budget)
    assert stages.deployed == trials
    assert len(rounds) == len(trials)
    assert any("budget" in why for why in stages.decided().values()) == (
        budget < 5
    )  # else it is the rounds that are over
    assert len(stages.go(budget=budget)) == len(rounds), "it is the same when it is asked again"
    assert stages.deployed == trials


@pytest.mark.parametrize("number", [0, 1])
def test_a_robot_that_was_stopped_is_looked_at_before_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    stages = Stages(tmp_path, monkeypatch, stopped={number: ("fingertip force",)})
    with pytest.raises(
        HaltError, match=rf"in round {number} .*fingertip force\): a person must look at it, then start"
    ):
        stages.go()
    assert len(stages.deployed) == number + 1
    assert "a person must look" in stages.decided()[f"stopped in round {number}"]
    assert len(stages.go()) == 3, "someone started it again, and so has looked"
    assert len(stages.deployed) == 3


def test_a_bench_that_is_set_up_anew_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stages = Stages(tmp_path, monkeypatch, stopped={0: ("emergency stop",), 1: ("emergency stop",)})
    stages.trial = lambda *_: SimpleNamespace(features=stages.rig.features)  # type: ignore[method-assign]
    assert len(stages.go()) == 3
