from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from dexloop.core.errors import InputError, MissingPart
from dexloop.vision import hand_bundle
from dexloop.vision.hand_bundle import bundle_path, make_bundle

MEMBERS = (
    "mediapipe/modules/palm_detection/palm_detection_full.tflite",
    "mediapipe/modules/hand_landmark/hand_landmark_full.tflite",
)


def _wheel(folder: Path, members: tuple[str, ...] = MEMBERS) -> Path:
    path = folder / "mediapipe-0.10.21-cp311-cp311-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for member in members:
            wheel.writestr(member, f"network {member}")
    return path


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """A stand-in for pip that gives a small wheel, and an empty cache; returns pip's command lines."""
    calls: list[list[str]] = []
    here = tmp_path / "index"
    here.mkdir()
    monkeypatch.setattr(hand_bundle, "SHA256", hand_bundle._sha256(make_bundle(_wheel(here))))
    monkeypatch.setattr(hand_bundle, "cache_file", lambda: tmp_path / "cache" / "hand_landmarker.task")
    monkeypatch.delenv(hand_bundle.ENV, raising=False)

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        _wheel(Path(command[command.index("--dest") + 1]))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(hand_bundle.subprocess, "run", pip)
    return calls


def test_made_once_from_the_wheel_then_kept(index: list[list[str]]):
    path = bundle_path()
    with zipfile.ZipFile(path) as bundle:
        assert bundle.namelist() == ["hand_detector.tflite", "hand_landmarks_detector.tflite"]
        assert bundle.read("hand_detector.tflite") == f"network {MEMBERS[0]}".encode()
        assert {i.compress_type for i in bundle.infolist()} == {zipfile.ZIP_STORED}  # MediaPipe maps it into memory
    assert bundle_path() == path
    assert len(index) == 1
    assert "mediapipe==0.10.21" in index[0]
    assert "--no-deps" in index[0]
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_cache_is_made_anew(index: list[list[str]]):
    path = bundle_path()
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert bundle_path().read_bytes() == whole
    assert len(index) == 2


def test_a_wheel_with_other_networks_is_refused(index: list[list[str]], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hand_bundle, "SHA256", "0" * 64)
    with pytest.raises(MissingPart, match="DEXLOOP_HAND_TASK"):
        bundle_path()
    assert not hand_bundle.cache_file().exists()


def test_offline_the_message_says_what_to_do(index: list[list[str]], monkeypatch: pytest.MonkeyPatch):
    def offline(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")

    monkeypatch.setattr(hand_bundle.subprocess, "run", offline)
    with pytest.raises(
        MissingPart, match=r"No matching distribution.*put a hand_landmarker.task at .*DEXLOOP_HAND_TASK"
    ):
        bundle_path()


def test_ones_own_bundle_by_argument_or_environment(
    index: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = tmp_path / "own.task"
    own.write_bytes(make_bundle(_wheel(tmp_path)))
    assert bundle_path(own) == own
    monkeypatch.setenv(hand_bundle.ENV, str(own))
    assert bundle_path() == own
    assert index == []


def test_what_is_no_bundle_is_refused(index: list[list[str]], tmp_path: Path):
    with pytest.raises(InputError, match="no hand model at"):
        bundle_path(tmp_path / "missing.task")
    text = tmp_path / "text.task"
    text.write_text("hello")
    with pytest.raises(InputError, match=r"it lacks hand_detector\.tflite"):
        bundle_path(text)


def test_a_wheel_without_networks_is_named(tmp_path: Path):
    with pytest.raises(MissingPart, match=r"should be mediapipe==0\.10\.21"):
        make_bundle(_wheel(tmp_path, MEMBERS[:1]))
