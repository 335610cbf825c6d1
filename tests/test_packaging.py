"""What is declared, what is pinned and what the Makefile offers agree."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dexloop


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def pins(repository: Path) -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in (repository / "constraints.txt").read_text().splitlines()]
    return dict(line.split("==") for line in lines if line)


def direct(project: dict[str, Any]) -> dict[str, str]:
    """Every direct dependency with its least version, those of extras too."""
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    found = {re.split(r"[^\w-]", line)[0]: line.partition(">=")[2] for line in lines}
    return {name: least for name, least in found.items() if name != "dexloop"}


def test_every_direct_dependency_is_pinned(project: dict[str, Any], pins: dict[str, str]) -> None:
    assert direct(project).keys() - pins.keys() == set()


def test_pins_satisfy_what_is_declared(project: dict[str, Any], pins: dict[str, str]) -> None:
    def numbers(version: str) -> list[int]:
        return [int(n) for n in re.findall(r"\d+", version)]

    too_old = {n for n, least in direct(project).items() if least and numbers(pins[n]) < numbers(least)}
    assert not too_old


def test_torch_stays_the_cpu_build(pins: dict[str, str]) -> None:
    """Any other version pulls several gigabytes of CUDA packages."""
    assert pins["torch"] == "2.13.0"


def test_the_version_is_said_once(project: dict[str, Any]) -> None:
    assert project["version"] == dexloop.__version__


def test_make_without_a_target_lists_them_all(repository: Path) -> None:
    done = subprocess.run(["make"], cwd=repository, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  make (\w+) +\w", done.stdout, re.MULTILINE)
    assert {"help", "demo", "test", "check", "bench", "docs"} <= set(listed)
    phony = re.search(r"^\.PHONY: (.*)$", (repository / "Makefile").read_text(), re.MULTILINE)
    assert phony
    assert sorted(listed) == sorted(phony[1].split())


def test_the_readmes_commands_exist(repository: Path) -> None:
    text = "".join((repository / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "docs/index.md"))
    targets = set(re.findall(r"^(\w+):", (repository / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake (\w+)\s*(?:#|`|$)", text, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_ci_runs_the_readmes_test_command(repository: Path) -> None:
    script = (repository / ".ci" / "run").read_text()
    assert "make test" in script
    assert "make check" in script
    assert (repository / ".ci" / "run").stat().st_mode & 0o111, "it must be executable"
    subprocess.run(["bash", "-n", str(repository / ".ci" / "run")], check=True)
