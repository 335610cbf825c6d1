from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dexloop.audit.cfg import AuditCfg
from dexloop.audit.ledger import REQUIRED, case, check, lines_of, read
from dexloop.audit.predict import CHANNELS
from dexloop.audit.stage import Compared, _decide, audit, compare
from dexloop.core.artifact import load_arrays, write_text, writing
from dexloop.core.artifacts import Episodes, Ledger, Policy, Twin
from dexloop.core.capture import StreamInfo
from dexloop.core.errors import InputError
from dexloop.policy.trials import trials_of
from dexloop.rig.layout import link_or_copy
from dexloop.rig.protocol import Features, Samples
from dexloop.rig.recorder import Recorder
from dexloop.robots.outcome import HELD, STOPPED
from tests.lab_trials import LabTrials, write_belief

QUICK = AuditCfg(worlds=2, bands=4)


@pytest.fixture(scope="module")
def compared(lab_trials: LabTrials) -> list[Compared]:
    bench = lab_trials.bench
    with bench.played():
        return compare(lab_trials.episodes, bench.policy, bench.twin, bench.belief, cfg=QUICK)


def audited(trials: LabTrials, done: list[Compared], out: Path, **more: Any) -> Ledger:
    """An audit of what was compared already, for that takes long."""
    bench = trials.bench
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dexloop.audit.stage.compare", lambda *_, **__: done)
        return audit(trials.episodes, bench.policy, bench.twin, bench.belief, out, **{"cfg": QUICK, **more})


@pytest.fixture(scope="module")
def ledger(lab_trials: LabTrials, compared: list[Compared], tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return audited(lab_trials, compared, tmp_path_factory.mktemp("audit") / "ledger")


def other_episodes(
    like: LabTrials, out: Path, trials: Sequence[dict[str, Any]], *, empty: bool = False, **asked: Any
) -> Episodes:
    """Episodes with some other trials, whose recordings are those of the first one or hold next to nothing."""
    source = like.episodes
    stream = StreamInfo("x", "scalar", ("x",), ("m",), "robot")
    about = trials_of(source)[0][1].recording().robot
    with writing(out, Episodes) as draft:
        for row in trials:
            folder = draft.folder / "trials" / f"{row['number']:02d}"
            if empty:
                with Recorder(folder, Features("lab", about, (stream,), (), None, {})) as recorder:
                    recorder.start("trial")
                    recorder.append_samples("x", Samples(np.zeros(1), np.zeros((1, 1))))
                continue
            first = source.path / "trials" / "01"
            for file in (p for p in first.rglob("*") if p.is_file()):
                link_or_copy(file, folder / file.relative_to(first))
        write_text(draft.folder / "trials.json", json.dumps(list(trials)))
        draft.meta |= {**source.header.meta, "asked": {**source.header.meta["asked"], **asked}}
    return Episodes.open(out)


def first_trial(like: LabTrials, **change: Any) -> dict[str, Any]:
    return {**json.loads((like.episodes.path / "trials.json").read_text())[0], **change}


def test_each_trial_has_a_row_that_says_everything(ledger: Ledger, lab_trials: LabTrials):
    rows = read(ledger.path)
    assert [r["trial"] for r in rows] == [1, 2]
    for r in rows:
        assert set(r) == {*REQUIRED, "before"}
        assert (r["object"], r["robot"], r["round"]) == ("cube", "gripper@wrist", 1)
        assert r["real"]["verdict"] == r["signature"] == HELD
        assert r["sim"]["worlds"] == 2
        assert sum(r["sim"]["verdicts"].values()) == 2
        assert r["told"]["mass_kg"] == pytest.approx(lab_trials.bench.lab.truth().mass_kg, rel=0.05)
        assert r["gap"]["slip_m"]["real"] == r["real"]["slip_m"]
        for name, given in (("policy", lab_trials.bench.policy), ("episodes", lab_trials.episodes)):
            assert r["inputs"][name]["hash"] == given.hash
            assert (ledger.path / r["inputs"][name]["path"]).resolve() == given.path.resolve()
    assert case(ledger.path, 2)["trial"] == 2


def test_what_is_believed_nearly_right_holds_in_simulation_as_it_did_in_reality(ledger: Ledger):
    """The lab's physics is of another make; a simulation with the lab's own numbers should still come close."""
    assert ledger.header.meta["success"]["gap"] == 0.0
    for r in read(ledger.path):
        assert r["sim"]["held"] == 1.0
        assert r["verdict"] != "contradicts"
        assert abs(r["gap"]["slip_m"]["gap"]) < 4e-3
        assert abs(r["gap"]["off_s"]["gap"]) < 0.1
        assert abs(r["gap"]["peak_force_n"]["gap"]) < 0.3 * r["real"]["peak_force_n"]


def test_the_traces_are_saved_on_one_clock(ledger: Ledger):
    for number in (1, 2):
        found = load_arrays(ledger.path / "traces" / f"{number:02d}.npz")
        m = len(found["t"])
        assert m > 100
        for name in CHANNELS:
            shape = found[f"{name}.real"].shape
            assert shape[0] == m
            assert found[f"{name}.middle"].shape == found[f"{name}.sd"].shape == shape
            assert (found[f"{name}.sd"] > 0).all()
        # Real and simulated rise together: they are aligned in time.
        apart = found["pose.real"][:, 2] - found["pose.middle"][:, 2]
        assert np.abs(apart).max() < 0.01
        assert np.ptp(found["pose.real"][:, 2]) > 0.08


def test_a_second_audit_goes_on_and_changes_nothing_of_the_first(
    ledger: Ledger, lab_trials: LabTrials, compared: list[Compared], tmp_path: Path
):
    again = {"before": ledger, "changed": {"belief": "object.mass"}, "cfg": replace(QUICK, round=2)}
    second = audited(lab_trials, compared[:1], tmp_path / "second", **again)
    old, new = lines_of(ledger.path), lines_of(second.path)
    assert new[: len(old)] == old
    assert len(new) == len(old) + 1
    last = check(new)[-1]
    assert (last["case"], last["round"], last["changed"]) == (3, 2, {"belief": "object.mass"})
    assert (second.header.meta["cases"], second.header.meta["new"]) == (3, 1)
    # A ledger that was tampered with is not gone on with.
    file = ledger.path / "ledger.jsonl"
    text = file.read_text()
    try:
        file.write_text(text.replace(HELD, "lost", 1))
        with pytest.raises(InputError, match="line 2 does not follow"):
            audited(lab_trials, compared[:1], tmp_path / "third", **again)
        file.write_text(old[0] + "\n")
        with pytest.raises(InputError, match=r"was changed after it was written: ledger\.jsonl"):
            audited(lab_trials, compared[:1], tmp_path / "third", **again)
    finally:
        file.write_text(text)


def test_a_trial_that_was_stopped_at_once_has_a_row_all_the_same(lab_trials: LabTrials, tmp_path: Path):
    bench = lab_trials.bench
    nothing = {"verdict": STOPPED, "slip_m": 0.0, "rise_m": 0.0, "peak_force_n": 0.0, "off_s": None}
    stopped = other_episodes(
        lab_trials, tmp_path / "stopped", [first_trial(lab_trials, outcome=nothing, moments={"begin": 1.0})], empty=True
    )
    with bench.played():
        made = audit(stopped, bench.policy, bench.twin, bench.belief, tmp_path / "ledger", cfg=replace(QUICK, worlds=1))
    [only] = read(made.path)
    assert only["signature"] == STOPPED
    assert only["next"]["do"] == "look"
    assert only["causes"] == only["divergence"] == []


def test_what_does_not_belong_together_is_refused(lab_trials: LabTrials, tmp_path: Path):
    bench = lab_trials.bench
    with bench.played():
        none = other_episodes(lab_trials, tmp_path / "none", [])
        with pytest.raises(InputError, match="holds no trial"):
            compare(none, bench.policy, bench.twin, bench.belief)
        shadow = other_episodes(lab_trials, tmp_path / "shadow", [first_trial(lab_trials)], shadow=True)
        with pytest.raises(InputError, match="ran in the shadow"):
            compare(shadow, bench.policy, bench.twin, bench.belief)
    strange = type("Other", (), {"contract": bench.player.contract, "points": {"mug": np.zeros((128, 3))}})()
    with replace(bench, player=strange).played(), pytest.raises(InputError, match="trained for mug, not for cube"):
        compare(lab_trials.episodes, bench.policy, bench.twin, bench.belief)
    wrong = write_belief(tmp_path / "belief", {"mug.mass": [0.1, 0.2], "object.mass": [0.1, 0.1]})
    with bench.played(), pytest.raises(InputError, match=r"speaks of mug\.mass"):
        compare(lab_trials.episodes, bench.policy, bench.twin, wrong)


def test_another_policy_or_twin_than_was_deployed_is_refused(
    lab_trials: LabTrials, compared: list[Compared], tmp_path: Path
):
    bench = lab_trials.bench
    with writing(tmp_path / "policy", Policy) as draft:
        for name in Policy.required:
            write_text(draft.folder / name, "another")
    with writing(tmp_path / "twin", Twin) as draft:
        write_text(draft.folder / "scene.xml", "another")
    for given, role in ((replace(bench, policy=Policy.open(tmp_path / "policy")), "policy"),
                        (replace(bench, twin=Twin.open(tmp_path / "twin")), "twin")):  # fmt: skip
        with pytest.raises(InputError, match=f"was not deployed with .*: give the {role} of that time"):
            audited(replace(lab_trials, bench=given), compared, tmp_path / "ledger")


def said(verdict: str, *causes: tuple[str, float]) -> dict[str, Any]:
    rows = [{"parameter": name, "explains": share, "says": f"{name} is off"} for name, share in causes]
    first = [name for name, _ in causes]
    return {"verdict": verdict, "causes": rows, "next": {"do": "re-identify" if causes else "widen",
            "parameters": first, "motion": {"for": first[:1]}, "why": "alone"}}  # fmt: skip


def test_all_trials_together_say_what_explains_most():
    gap, cfg = {"gap": 0.0}, AuditCfg()
    agrees = {**said("agrees"), "next": {"do": "nothing"}}
    assert _decide([agrees], gap, cfg)["do"] == "nothing"
    mass, friction = ("object.mass", 0.5), ("fingertip.friction", 0.4)
    found = _decide([said("diverges", mass), said("contradicts", friction, mass), agrees], gap, cfg)
    assert found["parameters"] == ["object.mass", "fingertip.friction"]
    assert found["motion"] == {"for": ["object.mass"]}
    assert "2 of 3 trials" in found["why"]
    assert _decide([said("contradicts"), agrees], gap, cfg)["do"] == "widen"
    # A stop is never as predicted. What differs when a motion is broken off says less than what differs else.
    stopped = {**said("agrees", friction), "next": {"do": "look", "parameters": []}}
    assert _decide([stopped, agrees], gap, cfg)["do"] == "look"
    assert _decide([said("contradicts"), stopped], gap, cfg)["do"] == "look"
    assert _decide([said("diverges", mass), stopped], gap, cfg)["parameters"] == ["object.mass"]
