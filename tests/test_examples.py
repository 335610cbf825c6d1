"""Every example runs as it stands and says something true."""

import re
import subprocess
import sys

import pytest


def run(repository, name: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, str(repository / "examples" / name), *args], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_examples_are_tested(repository):
    assert {p.name for p in (repository / "examples").glob("*.py")} == {"01_push_in_the_lab.py", "02_many_worlds.py"}


def test_pushing_in_the_lab(repository, tmp_path):
    out = run(repository, "01_push_in_the_lab.py", "--out", str(tmp_path / "c"))
    slow = float(re.search(r"push_1: ([\d.]+) N", out)[1])
    weight = float(re.search(r"is ([\d.]+) N", out)[1])
    assert slow == pytest.approx(weight, rel=0.5), "a slow push feels friction times weight, and the finger's own drag"


def test_many_worlds(repository):
    out = run(repository, "02_many_worlds.py")
    assert float(re.search(r"Coulomb: ([\d.]+) %", out)[1]) < 2.0
