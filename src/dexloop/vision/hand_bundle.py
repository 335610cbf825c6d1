"""Where MediaPipe's hand model comes from.

The `mediapipe` wheel of today carries no model, but an older one on PyPI still does. `hand_landmarker.task` is a plain
zip of the two networks; it is made once from that wheel and kept in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from dexloop.core.errors import InputError, MissingPart

ENV = "DEXLOOP_HAND_TASK"
"""Environment variable that names a `hand_landmarker.task` of one's own."""

WHEEL = "mediapipe==0.10.21"
_PLATFORM = (
    "--python-version",
    "3.11",
    "--implementation",
    "cp",
    "--abi",
    "cp311",
    "--platform",
    "manylinux_2_28_x86_64",
)
"""Always the same wheel, whatever runs here: only its networks are used, and those run anywhere."""
_MEMBERS = {
    "hand_detector.tflite": "mediapipe/modules/palm_detection/palm_detection_full.tflite",
    "hand_landmarks_detector.tflite": "mediapipe/modules/hand_landmark/hand_landmark_full.tflite",
}
SHA256 = "ef3f184fa8d5e6905ea4770282627d6937975119af763054312d05985c059bda"
"""Of the bundle that `make_bundle` writes; it is the same on every machine."""


def bundle_path(path: str | Path | None = None) -> Path:
    """Returns a `hand_landmarker.task` that is there and whole.

    Looks for, in this order: the argument, the file named by `DEXLOOP_HAND_TASK`, the cache folder, the wheel on PyPI.

    Args:
        path: A bundle of one's own.

    Raises:
        InputError: The file that was named is not there or is no bundle.
        MissingPart: There is none, and none can be fetched.
    """
    named = path or os.environ.get(ENV)
    if named:
        return _checked(Path(named))
    cached = cache_file()
    if cached.is_file() and _sha256(cached.read_bytes()) == SHA256:
        return cached
    # Missing, cut short or tampered with: it is made anew rather than trusted.
    with tempfile.TemporaryDirectory() as folder:
        data = make_bundle(_download(Path(folder)))
    if _sha256(data) != SHA256:
        raise MissingPart(
            f"the hand model made from {WHEEL} has SHA-256 {_sha256(data)}, not {SHA256}: the package index gave "
            f"another file; set {ENV} to a hand_landmarker.task that you trust"
        )
    cached.parent.mkdir(parents=True, exist_ok=True)
    part = cached.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(cached)
    return cached


def cache_file() -> Path:
    """Returns where the bundle is kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("dexloop")) / "hand_landmarker.task"


def make_bundle(wheel: Path) -> bytes:
    """Returns the bundle made of the two networks in a wheel of mediapipe, byte for byte the same each time."""
    import io

    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as bundle:
            for name, member in _MEMBERS.items():
                bundle.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), source.read(member))
    except (zipfile.BadZipFile, KeyError) as error:
        raise MissingPart(f"{wheel.name} holds no hand model ({error}): it should be {WHEEL}") from error
    return buffer.getvalue()


def _checked(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"no hand model at {path}: name an existing hand_landmarker.task, or unset {ENV} to fetch one")
    try:
        with zipfile.ZipFile(path) as bundle:
            missing = sorted(set(_MEMBERS) - set(bundle.namelist()))
    except zipfile.BadZipFile:
        missing = sorted(_MEMBERS)
    if missing:
        raise InputError(f"{path} is no hand_landmarker.task: it lacks {', '.join(missing)}")
    return path


def _download(folder: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", *_PLATFORM, "--dest", str(folder), WHEEL,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("mediapipe-*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise MissingPart(
            f"the hand model could not be fetched ({reason[-1] if reason else 'pip gave no reason'}): connect to a "
            f"package index once, or put a hand_landmarker.task at {cache_file()}, or set {ENV} to one"
        )
    return wheels[0]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
