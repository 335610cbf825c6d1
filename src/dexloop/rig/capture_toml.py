"""`capture.toml`: what a folder of recorded files says of itself. The page `docs/capture-format.md` describes it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from dexloop.core.capture import KINDS
from dexloop.core.errors import InputError, UnknownName
from dexloop.rig.layout import check_name

FILE = "capture.toml"


@dataclass(frozen=True)
class StreamEntry:
    """A table `[streams.NAME]`; its fields are the keys of that table."""

    kind: str
    file: str = ""
    unit: str | list = ""
    clock: str = "host"
    time_unit: str = "s"
    channels: list | None = None
    ignore: list | None = None
    quaternion: str = ""
    about: str = ""
    rate_hz: float | None = None
    limits: list | None = None


@dataclass(frozen=True)
class VideoEntry:
    """A table `[videos.NAME]`; its fields are the keys of that table."""

    file: str = ""
    times: str = ""
    time_unit: str = "s"
    fps: float | None = None
    start: float | None = None
    clock: str = ""
    fx: float | None = None
    fy: float | None = None
    cx: float | None = None
    cy: float | None = None
    fov_y_deg: float | None = None
    T_world_camera: list | None = None


@dataclass(frozen=True)
class CaptureEntry:
    """A whole `capture.toml`; its fields are the keys at the top."""

    name: str = ""
    robot: Mapping[str, Any] | None = None
    scene: Mapping[str, Any] | None = None
    markers: Mapping[str, float] | None = None
    streams: Mapping[str, StreamEntry] | None = None
    videos: Mapping[str, VideoEntry] | None = None


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | list": (str, list),
    "float | None": (int, float),
    "list | None": (list,),
}
_WORDS = {str: "text in quotes", list: "a list in [ ]", float: "a number", dict: "a table"}


def read_entry(file: Path) -> CaptureEntry:
    """Reads and checks a `capture.toml`.

    Raises:
        InputError: It is missing, no TOML, or a value has the wrong type.
        UnknownName: A key that means nothing; the message lists those there are.
    """
    if not file.is_file():
        raise InputError(
            f"{file.parent} has no {FILE}: write one that names the streams and videos (docs/capture-format.md)"
        )
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text: save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is no valid TOML: {error}; mend that line") from error
    known = [f.name for f in fields(CaptureEntry)]
    for key in data:
        if key not in known:
            raise UnknownName("key", key, known, f"It stands at the top of {file}.")
    for key in ("robot", "scene", "markers", "streams", "videos"):
        if not isinstance(data.get(key, {}), dict):
            raise InputError(f"{file}: {key} must be a table, written as [{key}] or [{key}.NAME]")
    if not isinstance(data.get("name", ""), str):
        raise InputError(f"{file}: name must be {_WORDS[str]}")
    for key, value in data.get("markers", {}).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{file}: markers.{key} must be a number [s]")
    streams = {n: _entry(StreamEntry, t, "streams", n, file) for n, t in data.get("streams", {}).items()}
    videos = {n: _entry(VideoEntry, t, "videos", n, file) for n, t in data.get("videos", {}).items()}
    for name, stream in streams.items():
        if stream.kind not in KINDS:
            raise UnknownName("kind", stream.kind, KINDS, f"It stands in {file} under streams.{name}.")
    return CaptureEntry(**{**data, "streams": streams, "videos": videos})


def _entry(kind: type, table: Any, group: str, name: str, file: Path) -> Any:
    place = f"{file}: {group}.{name}"
    check_name(group[:-1], name, place=str(file))
    if not isinstance(table, dict):
        raise InputError(f"{place} must be a table: write [{group}.{name}] on a line of its own")
    known = {f.name: str(f.type) for f in fields(kind)}
    for key, value in table.items():
        if key not in known:
            raise UnknownName("key", key, known, f"It stands in {file} under {group}.{name}.")
        types = _TYPES[known[key]]
        if isinstance(value, bool) or not isinstance(value, types):
            wanted = " or ".join(_WORDS.get(t, "a number") for t in types if t is not int)
            raise InputError(f"{place}: {key} must be {wanted}, not {value!r}")
    if kind is StreamEntry and "kind" not in table:
        raise InputError(f"{place} has no kind: say kind = one of {', '.join(KINDS)}")
    return kind(**table)


def inside(folder: Path, name: str, place: str) -> Path:
    """Returns a file that an entry names, which must lie in its folder.

    Raises:
        InputError: The name is absolute or leads out of the folder.
    """
    for flavour in (PurePosixPath, PureWindowsPath):
        path = flavour(name)
        if path.is_absolute() or path.drive or ".." in path.parts:
            raise InputError(f"{place}: {name!r} leads out of {folder}; put the file into that folder")
    return folder / name
