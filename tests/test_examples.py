"""Every example runs as it stands and says something true."""

import os
import re
import subprocess
import sys

import pytest

from dexloop.audit import ledger

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Threads of linear algebra wait for each other where cores are busy, as they are while tests run."""


def run(repository, name: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, str(repository / "examples" / name), *args],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | ONE_THREAD,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_examples_are_tested(repository):
    assert {p.name for p in (repository / "examples").glob("*.py")} == {
        "01_push_in_the_lab.py",
        "02_many_worlds.py",
        "03_identify_your_own_model.py",
        "04_friction_mini_lab.py",
    }


def test_pushing_in_the_lab(repository, tmp_path):
    out = run(repository, "01_push_in_the_lab.py", "--out", str(tmp_path / "c"))
    slow = float(re.search(r"push_1: ([\d.]+) N", out)[1])
    weight = float(re.search(r"is ([\d.]+) N", out)[1])
    assert slow == pytest.approx(weight, rel=0.5), "a slow push feels friction times weight, and the finger's own drag"


def test_many_worlds(repository):
    out = run(repository, "02_many_worlds.py")
    assert float(re.search(r"Coulomb: ([\d.]+) %", out)[1]) < 2.0


def test_identifying_your_own_model(repository, tmp_path):
    out = run(repository, "03_identify_your_own_model.py", "--out", str(tmp_path))
    for what in (r"object\.mass", r"table\.friction", "tracker's clock"):
        mean, low, high, planted = map(
            float, re.search(rf"{what} \[.+\]: ([\d.]+) \(([\d.]+) to ([\d.]+)\), planted ([\d.]+)", out).groups()
        )
        assert low <= planted <= high, out
        assert high - low < 0.3 * mean, "an interval that holds everything says nothing"


def test_the_friction_mini_lab(repository, tmp_path):
    out = run(repository, "04_friction_mini_lab.py", "--quick", "--out", str(tmp_path / "lab"))
    rows = ledger.read(tmp_path / "lab" / "round_2" / "8_audit")  # which checks that it is whole
    case = next(row for row in rows if row["changed"]["finger friction in the lab"] == 0.2)
    assert case["changed"]["trained at"] == [0.5, 0.65, 0.8]
    low, high = case["trained_on"]["fingertip.friction"]
    assert 0.5 / 1.8 <= low < high <= 0.8, "what it was told while it was trained is what such worlds let one believe"
    real, simulated = case["signature"] == "held", case["sim"]["held"]
    said = float(re.search(r"gap at friction 0.2: ([+-]\d+) points", out)[1])
    assert said == pytest.approx(100 * (simulated - real), abs=0.5)
    assert case["gap"]["slip_m"]["real"] == case["real"]["slip_m"]
    assert case["next"]["do"] in out
