from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.baseline import Entry, Line, Verdict, compare, read, this_machine, update
from benchmarks.metric import Metric
from dexloop.core.errors import InputError


def metric(value: float, name: str = "rate", unit: str = "1/s") -> Metric:
    return Metric(name, value, unit, "higher", 0.1)


def entry(value: float, unit: str = "1/s") -> Entry:
    return Entry(value, unit, "a machine")


@pytest.mark.parametrize(
    ("now", "before", "verdict", "passes"),
    [
        (metric(100), entry(100), Verdict.SAME, True),
        (metric(150), entry(100), Verdict.BETTER, True),
        (metric(50), entry(100), Verdict.STEP_BACK, False),
        (metric(math.nan), entry(100), Verdict.STEP_BACK, False),
        (metric(math.nan), None, Verdict.STEP_BACK, False),
        (metric(100, unit="ms"), entry(100), Verdict.STEP_BACK, False),
        (metric(100), None, Verdict.NEW, True),
        (None, entry(100), Verdict.VANISHED, False),
    ],
)
def test_verdict(now: Metric | None, before: Entry | None, verdict: Verdict, passes: bool) -> None:
    line = Line("sim.rate", now, before)
    assert line.verdict is verdict
    assert line.verdict.passes is passes


def test_compare_knows_what_vanished() -> None:
    baseline = {"sim.rate": entry(1), "sim.gone": entry(1), "robots.ik": entry(1), "old.rate": entry(1)}
    lines = compare({"sim": [metric(1), metric(2, "fresh")]}, baseline)
    assert {line.name: line.verdict for line in lines} == {
        "sim.rate": Verdict.SAME,
        "sim.fresh": Verdict.NEW,
        "sim.gone": Verdict.VANISHED,  # robots did not run and old is not said to be gone
    }
    with_gone = compare({"sim": [metric(1)]}, baseline, gone={"old"})
    assert [line.name for line in with_gone if line.verdict is Verdict.VANISHED] == ["sim.gone", "old.rate"]


def test_update_and_read(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    assert read(file) == {}
    update(compare({"sim": [metric(1), metric(2, "other")], "robots": [metric(3)]}, {}), file)
    here = this_machine()
    assert read(file) == {
        "sim.rate": Entry(1, "1/s", here),
        "sim.other": Entry(2, "1/s", here),
        "robots.rate": Entry(3, "1/s", here),
    }
    update(compare({"sim": [metric(5)]}, read(file)), file)
    assert {name: e.value for name, e in read(file).items()} == {"sim.rate": 5, "robots.rate": 3}


def test_a_baseline_without_a_figure_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    with pytest.raises(InputError, match=r"sim\.rate is nan"):
        update(compare({"sim": [metric(math.nan)]}, {}), file)
    assert not file.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"metrics": {"sim.rate": {"value": 1}}}', '{"metrics": []}'])
def test_a_damaged_baseline_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"baseline\.json is damaged"):
        read(file)


def test_the_committed_baseline_is_whole(repository: Path) -> None:
    """Every metric belongs to a benchmark that exists, and says where it was measured."""
    benchmarks = {file.stem for file in (repository / "benchmarks").glob("*.py")}
    file = repository / "benchmarks" / "baseline.json"
    entries = read(file)
    assert {name.split(".")[0] for name in entries} <= benchmarks
    assert all(e.machine and math.isfinite(e.value) for e in entries.values())
    if file.exists():
        assert list(entries) == sorted(json.loads(file.read_text())["metrics"])
