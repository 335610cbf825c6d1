"""The command's exit codes, on fake benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main

SOURCE = """
import os
from benchmarks.metric import Metric

def run():
    value = float(os.environ["FAKE_VALUE"])
    names = os.environ.get("FAKE_NAMES", "rate").split()
    return [Metric(name, value, "1/s", "higher", 0.1, target=90.0) for name in names]
"""


class Bench:
    """A package with the benchmark `fake`, whose figures the test chooses, and a baseline of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.name, self.monkeypatch = folder, f"fake_{folder.name}", monkeypatch
        self.baseline = folder / "baseline.json"
        monkeypatch.syspath_prepend(str(folder))
        self.add("__init__", "")
        self.add("fake", SOURCE)

    def add(self, module: str, source: str) -> None:
        file = self.folder / self.name / f"{module}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)

    def run(self, *arguments: str, value: float = 100.0, names: str = "rate") -> int:
        self.monkeypatch.setenv("FAKE_VALUE", str(value))
        self.monkeypatch.setenv("FAKE_NAMES", names)
        return main([*arguments, "--baseline", str(self.baseline)], package=self.name)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_gate(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("--gate") == 1  # a gate without a baseline would let anything through
    captured = capsys.readouterr()
    assert "there is no baseline" in captured.err
    assert "new" in captured.out
    assert bench.run("--update-baseline") == 0
    assert bench.run("--gate", value=91.0) == 0
    assert bench.run("--gate", value=1000.0) == 0
    capsys.readouterr()
    assert bench.run("--gate", value=89.0) == 1
    captured = capsys.readouterr()
    assert "failed: fake.rate: step back" in captured.err
    assert "-11.0%" in captured.out
    assert bench.run(value=89.0) == 0  # without --gate it is only shown
    assert "step back" in capsys.readouterr().out


def test_a_new_metric_passes_the_gate(bench: Bench) -> None:
    assert bench.run("--update-baseline", names="rate") == 0
    assert bench.run("--gate", names="rate other") == 0


def test_gate_fails_when_a_metric_vanishes(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("--update-baseline", names="rate other") == 0
    assert bench.run("--gate", names="rate") == 1
    assert "failed: fake.other: vanished" in capsys.readouterr().err


def test_gate_fails_when_a_whole_benchmark_vanishes(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.add("second", SOURCE)
    assert bench.run("--update-baseline") == 0
    (bench.folder / bench.name / "second.py").unlink()
    assert bench.run("--gate") == 1
    assert "failed: second.rate: vanished" in capsys.readouterr().err
    assert bench.run("fake", "--gate") == 0  # it was not asked for here


def test_target(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("--target", value=90.0) == 0
    assert "target missed" not in capsys.readouterr().out
    assert bench.run(value=80.0) == 0
    assert "target missed" in capsys.readouterr().out  # always shown
    assert bench.run("--target", value=80.0) == 1
    assert "failed: fake.rate: target missed" in capsys.readouterr().err


def test_a_benchmark_that_raises_fails_and_keeps_its_baseline(bench: Bench) -> None:
    bench.add("second", SOURCE.replace("def run():", "def run():\n    if 'BROKEN' in os.environ: raise RuntimeError"))
    assert bench.run("--update-baseline") == 0
    bench.monkeypatch.setenv("BROKEN", "1")
    assert bench.run(value=200.0) == 1
    assert bench.run("--update-baseline", value=200.0) == 1
    metrics = json.loads(bench.baseline.read_text())["metrics"]
    assert {name: entry["value"] for name, entry in metrics.items()} == {"fake.rate": 200.0, "second.rate": 100.0}


def test_json(bench: Bench) -> None:
    bench.add("broken", "def run():\n    raise RuntimeError('out of luck')\n")
    file = bench.folder / "figures.json"
    assert bench.run("--update-baseline", "fake") == 0
    assert bench.run("--json", str(file), value=80.0) == 1
    data: dict[str, Any] = json.loads(file.read_text())
    assert data["metrics"] == [
        {
            "name": "fake.rate",
            "value": 80.0,
            "unit": "1/s",
            "direction": "higher",
            "tolerance": 0.1,
            "target": 90.0,
            "note": "",
            "baseline": 100.0,
            "verdict": "step back",
            "misses_target": True,
        }
    ]
    assert "out of luck" in data["failures"]["broken"]
    assert "cpu" in data["machine"]


def test_list(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.add("second", "raise RuntimeError('listing imports nothing')\n")
    assert bench.run("--list") == 0
    assert capsys.readouterr().out.split() == ["fake", "second"]


def test_bad_input(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("fkae") == 2
    assert "unknown benchmark 'fkae' (did you mean 'fake'?): there is fake" in capsys.readouterr().err
    bench.baseline.write_text("{")
    assert bench.run() == 2
    assert "is damaged" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        bench.run("--gate", "--update-baseline")
