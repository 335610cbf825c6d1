"""The doctor on healthy and on ill machines."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dexloop
from dexloop import doctor
from dexloop.core.status import Level
from dexloop.doctor import Finding, diagnose, import_problems, to_json, verdict


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder in place of the user's, and nothing set that would be looked at instead."""
    folder = tmp_path / "cache"
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(folder / name))
    monkeypatch.delenv("DEXLOOP_HAND_TASK", raising=False)
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)
    return folder / "dexloop"


@pytest.fixture
def healthy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine on which all is well, whatever this one is like; tests make it ill."""
    monkeypatch.setattr(doctor, "import_problems", lambda modules: dict.fromkeys(modules))
    monkeypatch.setattr("dexloop.sim.gl.probe", lambda: SimpleNamespace(backend="egl", message="egl draws"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100e9))
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4_000_000}[name])
    return monkeypatch


def by_name() -> dict[str, Finding]:
    findings = diagnose()
    assert len({f.name for f in findings}) == len(findings)
    return {f.name: f for f in findings}


def without(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    """Makes packages have another version, or none."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        key = name.replace("-", "_")
        if key not in versions:
            return real(name)
        found = versions[key]
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_a_healthy_machine(healthy: pytest.MonkeyPatch) -> None:
    found = by_name()
    assert {f.status.level for f in found.values()} == {Level.OK}, [str(f.status) for f in found.values()]
    assert found["dexloop"].detail == dexloop.__version__
    assert found["numpy"].detail == importlib.metadata.version("numpy")
    assert found["GL"].detail == "egl"
    assert found["memory"].detail == "16.4 GB"
    parts = {"hand landmarks", "menagerie", "mcap", "torch"}
    assert {"python", "CPU", "cache", "disk here", "disk of the cache", *parts} <= found.keys()
    assert verdict(found.values()).level is Level.OK


def test_this_machine_really(cache: Path) -> None:
    """Nothing replaced but the cache: the libraries are imported and the sphere is drawn. Tests need both anyway."""
    found = by_name()
    assert all(found[package].status.level is Level.OK for package in doctor.LIBRARIES.values())
    assert found["GL"].status.level is Level.OK, found["GL"].status.message
    assert not [f for f in found.values() if f.status.code == "check_failed"]


def test_every_requirement_is_looked_at(repository: Path) -> None:
    lines = importlib.metadata.requires("dexloop") or []
    required = {re.split(r"[^\w-]", line)[0] for line in lines if "extra ==" not in line}
    assert required <= set(doctor.LIBRARIES.values())
    assert required == set(doctor._requirements())
    for part in doctor.PARTS:
        assert not set(part.packages) & required


def test_a_missing_library(healthy: pytest.MonkeyPatch) -> None:
    without(healthy, mink=None)
    problem = "ModuleNotFoundError: No module named 'mink'"
    healthy.setattr(doctor, "import_problems", lambda modules: {**dict.fromkeys(modules), "mink": problem})
    finding = by_name()["mink"]
    assert (finding.status.level, finding.status.code) == (Level.FAIL, "missing")
    assert finding.status.action == "Run `pip install 'mink>=1.3'`."


def test_an_old_library(healthy: pytest.MonkeyPatch) -> None:
    without(healthy, mujoco="3.10.2")
    status = by_name()["mujoco"].status
    assert (status.level, status.code) == (Level.FAIL, "old")
    assert status.message == "mujoco 3.10.2 is older than 4.0"


@pytest.mark.parametrize("version", ["4.0", "4.0.0", "4.10.0rc1", "10.0+cpu"])
def test_a_new_library_is_not_taken_for_an_old_one(healthy: pytest.MonkeyPatch, version: str) -> None:
    without(healthy, mujoco=version)
    assert by_name()["mujoco"].status.level is Level.OK


@pytest.mark.parametrize(
    ("problem", "action"),
    [
        ("libGL.so.1: cannot open shared object file: No such file", r"apt-get install libgl1`"),
        ("libgthread-2.0.so.0: cannot open shared object file", r"apt-get install libglib2\.0-0`"),
        ("libfoo-3.so.1: cannot open shared object file", r"^Install the system's libfoo-3\.$"),
        ("undefined symbol: x", r"--force-reinstall opencv-contrib-python"),
    ],
)
def test_a_library_that_cannot_be_imported(healthy: pytest.MonkeyPatch, problem: str, action: str) -> None:
    text = f"ImportError: {problem}"
    healthy.setattr(doctor, "import_problems", lambda modules: {**dict.fromkeys(modules), "cv2": text})
    finding = by_name()["opencv-contrib-python"]
    assert (finding.status.level, finding.status.code) == (Level.FAIL, "broken")
    assert problem in finding.status.message
    assert re.search(action, finding.status.action)


def test_imports_are_tried_even_after_one_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crashing.py").write_text("import os\nprint('[hello]', flush=True)\nos.abort()\n")
    (tmp_path / "raising.py").write_text("raise OSError('libGL.so.1: cannot open shared object file')\n")
    (tmp_path / "chatty.py").write_text("print('welcome')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    problems = import_problems(["json", "crashing", "raising", "chatty", "no_such_module", "math"])
    assert list(problems) == ["json", "crashing", "raising", "chatty", "no_such_module", "math"]
    assert problems["json"] is problems["math"] is problems["chatty"] is None
    assert problems["crashing"] == "the process ended with code -6"
    assert problems["raising"] == "OSError: libGL.so.1: cannot open shared object file"
    assert "No module named 'no_such_module'" in (problems["no_such_module"] or "")


def test_two_opencv_wheels(healthy: pytest.MonkeyPatch) -> None:
    assert "opencv wheels" not in by_name()
    without(healthy, opencv_python="5.0.0")
    status = by_name()["opencv wheels"].status
    assert status.level is Level.WARN
    assert "pip uninstall opencv-python`" in status.action


def test_no_gl(healthy: pytest.MonkeyPatch) -> None:
    message = "no OpenGL backend draws (egl: no libEGL)"
    healthy.setattr("dexloop.sim.gl.probe", lambda: SimpleNamespace(backend=None, message=message))
    finding = by_name()["GL"]
    assert (finding.status.level, finding.detail) == (Level.FAIL, "none")
    assert finding.status.message == message
    assert "libegl1" in finding.status.action


def test_an_unwritable_cache(healthy: pytest.MonkeyPatch, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    finding = by_name()["cache"]
    assert (finding.status.level, finding.status.code) == (Level.FAIL, "no_cache")
    assert "XDG_CACHE_HOME" in finding.status.action


def test_the_doctor_leaves_nothing_in_the_cache(healthy: pytest.MonkeyPatch, cache: Path) -> None:
    diagnose()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("free", "level"), [(0.1e9, Level.FAIL), (2e9, Level.WARN), (6e9, Level.OK)])
def test_little_disk(healthy: pytest.MonkeyPatch, free: float, level: Level) -> None:
    healthy.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    found = by_name()
    assert found["disk here"].status.level is level
    assert found["disk of the cache"].status.level is level
    assert found["disk here"].detail == f"{free / 1e9:.1f} GB free"


def test_little_memory(healthy: pytest.MonkeyPatch) -> None:
    healthy.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 500_000}[name])
    assert by_name()["memory"].status.code == "little_memory"


def test_an_old_python(healthy: pytest.MonkeyPatch) -> None:
    healthy.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    status = by_name()["python"].status
    assert status.level is Level.FAIL
    assert "3.11 or newer" in status.action


def test_hand_model_in_the_cache(healthy: pytest.MonkeyPatch, cache: Path) -> None:
    absent = by_name()["hand landmarks"]
    assert (absent.status.level, absent.status.code) == (Level.OK, "absent")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "hand_landmarker.task").write_bytes(b"model")
    assert by_name()["hand landmarks"].status.code == "wrong_hand_model"
    healthy.setattr(
        "dexloop.vision.hand_bundle.SHA256", "9372c470eeadd5ecd9c3c74c2b3cb633f8e2f2fad799250a0f70d652b6b825e4"
    )
    assert by_name()["hand landmarks"].detail == "in the cache"


def test_hand_model_of_ones_own(healthy: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "own.task"
    healthy.setenv("DEXLOOP_HAND_TASK", str(own))
    missing = by_name()["hand landmarks"]
    assert (missing.status.level, missing.detail) == (Level.WARN, "missing")
    assert str(own) in missing.status.message
    with zipfile.ZipFile(own, "w") as bundle:
        bundle.writestr("hand_detector.tflite", "")
        bundle.writestr("hand_landmarks_detector.tflite", "")
    assert by_name()["hand landmarks"].detail == f"DEXLOOP_HAND_TASK={own}"


def test_menagerie(healthy: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without(healthy, mujoco_menagerie=None)
    assert "MENAGERIE_ROOT" in by_name()["menagerie"].status.action
    healthy.setenv("MENAGERIE_ROOT", str(tmp_path))
    assert by_name()["menagerie"].detail == f"MENAGERIE_ROOT={tmp_path}"
    healthy.setenv("MENAGERIE_ROOT", str(tmp_path / "nowhere"))
    assert by_name()["menagerie"].status.level is Level.WARN


def test_an_optional_part_says_how_to_get_it(healthy: pytest.MonkeyPatch) -> None:
    without(healthy, mcap="1.6.0", mcap_ros2_support=None, torch=None, pycolmap="4.2.1", mujoco_mjx=None)
    found = by_name()
    assert found["mcap"].status.code == "absent"  # all of its packages are needed
    assert "mcap-ros2-support not installed" in found["mcap"].status.message
    assert "pip install mcap mcap-ros2-support" in found["mcap"].status.action
    assert "torch==" in found["torch"].status.action  # a bare torch pulls gigabytes
    assert found["pycolmap"].detail == "4.2.1"
    assert verdict(found.values()).level is Level.OK


def test_a_check_that_fails_is_a_finding(healthy: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("no GL today")

    healthy.setattr("dexloop.sim.gl.probe", broken)
    found = by_name()
    assert found["GL"].status.code == "check_failed"
    assert "RuntimeError: no GL today" in found["GL"].status.message
    assert "menagerie" in found  # the others went on
    assert verdict(found.values()) is found["GL"].status


def test_json(healthy: pytest.MonkeyPatch) -> None:
    findings = diagnose()
    data = json.loads(json.dumps(to_json(findings)))
    assert data["status"] == {"level": "ok", "code": "ok", "message": "this machine is fit", "action": ""}
    assert [f["name"] for f in data["findings"]] == [f.name for f in findings]
    python = data["findings"][0]
    assert (python["name"], python["status"]["level"]) == ("python", "ok")
