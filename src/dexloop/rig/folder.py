"""A folder of files as a source: `capture.toml`, one CSV a stream, MP4 videos. See `docs/capture-format.md`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dexloop.core.camera import Camera
from dexloop.core.capture import POSE_CHANNELS, WRENCH_CHANNELS, Stream, StreamInfo, VideoInfo
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.rig.capture_toml import FILE, CaptureEntry, StreamEntry, VideoEntry, inside, read_entry
from dexloop.rig.csv_table import Table, read_table
from dexloop.rig.imported import ImportedRecording, ImportedVideo, guessed_camera
from dexloop.rig.units import KIND_UNITS, TIME_UNITS, Unit, unit, unit_of_kind
from dexloop.rig.validation import check_joints_agree, check_overlap, check_stream, check_times
from dexloop.vision.video import VideoProbe, frame_times, probe

_ORDERS = {"wxyz": ("qw", "qx", "qy", "qz"), "xyzw": ("qx", "qy", "qz", "qw")}


def is_folder_source(path: Path) -> bool:
    """Whether a folder has a `capture.toml`, itself or in a folder inside it."""
    return path.is_dir() and ((path / FILE).is_file() or any(path.glob(f"*/{FILE}")))


def read_folder(folder: str | Path) -> list[ImportedRecording]:
    """Reads one recording, or one from each folder inside that has its own `capture.toml`.

    A `capture.toml` above such folders gives the robot and the scene of those that do not say theirs.

    Raises:
        InputError: The first thing that is wrong, with file, line and what to do.
        UnknownName: A key, kind or unit that does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give the folder that holds {FILE}")
    inner = sorted(p.parent for p in folder.glob(f"*/{FILE}"))
    above = read_entry(folder / FILE) if (folder / FILE).is_file() or not inner else CaptureEntry()
    if not inner:
        return [_read_recording(folder, above, CaptureEntry())]
    if above.streams or above.videos:
        raise InputError(
            f"{folder} has streams or videos in its own {FILE} and also recordings in "
            f"{', '.join(p.name for p in inner)}: move its files into a folder of their own"
        )
    return [_read_recording(path, read_entry(path / FILE), above) for path in inner]


def _read_recording(folder: Path, entry: CaptureEntry, above: CaptureEntry) -> ImportedRecording:
    file = folder / FILE
    if not entry.streams and not entry.videos:
        raise InputError(f"{file} names nothing to import: add [streams.NAME] or [videos.NAME]")
    robot = dict(entry.robot if entry.robot is not None else above.robot or {})
    joints = _robot_joints(robot, file)
    notes: list[Status] = []
    streams: list[Stream] = []
    for name, said in (entry.streams or {}).items():
        stream, odd = _read_stream(folder, name, said, joints)
        streams.append(stream)
        notes += odd
    videos: list[ImportedVideo] = []
    for name, said in (entry.videos or {}).items():
        video, odd = _read_video(folder, name, said)
        videos.append(video)
        notes += odd
    found = check_joints_agree(streams, joints, str(file))
    check_overlap([(s.info.name, s.info.clock, s.t) for s in [*streams, *videos]], str(file))
    if found:
        robot = {"name": "", **robot, "joints": list(found)}
    notes += _left_out(folder, entry)
    markers = {k: float(v) for k, v in (entry.markers or {}).items()}
    notes += _odd_markers(markers, streams)
    return ImportedRecording(
        name=entry.name or folder.resolve().name,
        robot=robot,
        scene=dict(entry.scene if entry.scene is not None else above.scene or {}),
        streams=tuple(streams),
        videos=tuple(videos),
        place=str(file),
        notes=tuple(notes),
        markers=markers,
    )


def _left_out(folder: Path, entry: CaptureEntry) -> list[Status]:
    """Tells of data files in the folder that nobody named: most likely forgotten."""
    named = {said.file or f"{name}.csv" for name, said in (entry.streams or {}).items()}
    for name, said in (entry.videos or {}).items():
        named |= {said.file or f"{name}.mp4", said.times or ""}
    there = (p.name for p in folder.iterdir() if p.suffix.lower() in (".csv", ".mp4"))
    left = sorted(name for name in there if name not in named)
    if not left:
        return []
    message = f"{folder} also holds {', '.join(left)}, which {FILE} does not name"
    return [Status(Level.WARN, "left_out", message, "Name it under streams or videos, or move it away.")]


def _odd_markers(markers: dict[str, float], streams: list[Stream]) -> list[Status]:
    """Tells of moments that lie outside everything that was recorded."""
    times = [s.t for s in streams if len(s.t)]
    if not times:
        return []
    first, last = min(float(t[0]) for t in times), max(float(t[-1]) for t in times)
    odd = [name for name, t in markers.items() if not first <= t <= last]
    if not odd:
        return []
    message = f"the markers {', '.join(odd)} lie outside the recording ({first:.3f} to {last:.3f} s)"
    return [Status(Level.WARN, "markers", message, "Give them in seconds on the robot's clock.")]


def _robot_joints(robot: dict[str, Any], file: Path) -> tuple[str, ...]:
    known = ("name", "joints", "T_world_base")
    for key in robot:
        if key not in known:
            raise UnknownName("key", key, known, f"It stands in {file} under robot.")
    joints = robot.get("joints", [])
    if not isinstance(joints, list) or not all(isinstance(j, str) for j in joints):
        raise InputError(f"{file}: robot.joints must be a list of names in quotes")
    if "T_world_base" in robot:
        robot["T_world_base"] = _matrix(robot["T_world_base"], f"{file}: robot.T_world_base").tolist()
    return tuple(joints)


def _read_stream(
    folder: Path, name: str, said: StreamEntry, joints: tuple[str, ...]
) -> tuple[Stream, tuple[Status, ...]]:
    place = f"{folder / FILE}: streams.{name}"
    table = read_table(inside(folder, said.file or f"{name}.csv", place))
    columns, channels = _columns(table, said, joints, place)
    if said.time_unit not in TIME_UNITS:
        raise UnknownName("time unit", said.time_unit, TIME_UNITS, f"It stands in {place}.")
    units = _units(said, channels, place)
    info = StreamInfo(
        name=name,
        kind=said.kind,
        channels=channels,
        units=tuple(u.si for u in units),
        clock=said.clock,
        rate_hz=None if said.rate_hz is None else float(said.rate_hz),
        limits=_limits(said.limits, units, place),
        about=said.about,
    )
    t = table.data[:, 0] * unit(said.time_unit).factor
    value = table.data[:, [table.columns.index(c) for c in columns]] * [u.factor for u in units]
    csv_name = dict(zip(channels, columns, strict=True))
    return check_stream(
        Stream(info, t, value), lambda row, c: table.place(row, csv_name.get(c, c)), whole=str(table.path)
    )


def _columns(
    table: Table, said: StreamEntry, joints: tuple[str, ...], place: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns which columns of the file to take, in order, and what the channels are called."""
    if table.columns[0] != "t":
        where = "later" if "t" in table.columns else "not"
        raise InputError(
            f"{table.path}, line 1: the first column must be 't', the time, but it is {table.columns[0]!r} "
            f"('t' comes {where}); the columns are {', '.join(table.columns)}"
        )
    ignored = said.ignore or []
    for name in ignored:
        if name not in table.columns:
            raise UnknownName("column", str(name), table.columns[1:], f"{place} wants it ignored.")
    there = tuple(c for c in table.columns[1:] if c not in ignored)
    if not there:
        raise InputError(f"{table.path} has no column but the time: add the columns of {said.kind}")
    if said.kind == "pose":
        return _pose_columns(table, there, said.quaternion, place)
    if said.quaternion:
        raise InputError(f"{place}: quaternion means nothing for a {said.kind}; remove it")
    wanted = tuple(str(c) for c in said.channels or ())
    if said.kind == "wrench":
        wanted = WRENCH_CHANNELS
        if not set(wanted) & set(there) and len(there) == len(wanted):
            return there, wanted  # named otherwise, but in the order of the kind
        if len(there) != len(wanted):
            raise InputError(_wrong_count(table, "wrench", there, wanted))
    elif not wanted:
        wanted = joints if said.kind.startswith("joint_") and joints else there
    _exactly(table, there, wanted, place)
    return wanted, wanted


def _pose_columns(
    table: Table, there: tuple[str, ...], order: str, place: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if order and order not in _ORDERS:
        raise UnknownName("quaternion order", order, _ORDERS, f"It stands in {place}.")
    if len(there) != len(POSE_CHANNELS):
        raise InputError(_wrong_count(table, "pose", there, POSE_CHANNELS))
    if set(there) == set(POSE_CHANNELS):
        named = tuple(c for c in there if c.startswith("q"))
        if order and named != _ORDERS[order]:
            raise InputError(
                f"{place}: quaternion = {order!r}, but the columns of {table.path} are called {', '.join(named)}; "
                f"remove one of the two"
            )
        return POSE_CHANNELS, POSE_CHANNELS
    if set(there) & set(POSE_CHANNELS[3:]):
        _exactly(table, there, POSE_CHANNELS, place)
    if not order:
        raise InputError(
            f'{place}: say quaternion = "wxyz" or "xyzw", because the columns {", ".join(there[3:])} of {table.path} '
            f"do not tell; or name them qw, qx, qy, qz"
        )
    by_channel = dict(zip((*POSE_CHANNELS[:3], *_ORDERS[order]), there, strict=True))
    return tuple(by_channel[c] for c in POSE_CHANNELS), POSE_CHANNELS


def _wrong_count(table: Table, kind: str, there: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    return (
        f"{table.path}, line 1: a {kind} has {len(wanted)} channels ({', '.join(wanted)}), the file has {len(there)} "
        f"({', '.join(there)}); correct the columns, or list what does not belong under ignore"
    )


def _exactly(table: Table, there: tuple[str, ...], wanted: tuple[str, ...], place: str) -> None:
    missing = [c for c in wanted if c not in there]
    if missing:
        raise InputError(
            f"{table.path}, line 1: column {missing[0]!r} is missing; {place} wants {', '.join(wanted)}, there is "
            f"{', '.join(there)}"
        )
    extra = [c for c in there if c not in wanted]
    if extra:
        raise InputError(
            f"{table.path}, line 1: column {extra[0]!r} is not wanted by {place}; remove it, or say "
            f'ignore = ["{extra[0]}"]'
        )


def _units(said: StreamEntry, channels: tuple[str, ...], place: str) -> list[Unit]:
    names = [said.unit] if isinstance(said.unit, str) else [str(u) for u in said.unit]
    if said.kind == "pose":
        length = unit(names[0] or "m", place=f"It stands in {place}.")
        if len(names) != 1 or length.si != "m":
            raise InputError(f'{place}: the unit of a pose is one length, such as "m" or "mm", not {said.unit!r}')
        return [length] * 3 + [Unit(1.0, "1")] * 4
    if said.kind == "wrench":
        names = ["N", "N·m"] if names == [""] else names
        if len(names) != 2:
            raise InputError(f'{place}: the unit of a wrench is a force and a torque, such as ["N", "N·mm"]')
        pair = [unit(n, place=f"It stands in {place}.") for n in names]
        if [u.si for u in pair] != ["N", "N·m"]:
            raise InputError(f'{place}: {said.unit!r} is no force and torque; write such as ["N", "N·mm"]')
        return [pair[0]] * 3 + [pair[1]] * 3
    if names == [""]:
        if said.kind == "scalar":
            raise InputError(f'{place}: a scalar needs its unit, such as unit = "A"; "1" where there is none')
        names = [KIND_UNITS[said.kind][0]]
    if len(names) not in (1, len(channels)):
        raise InputError(f"{place}: {len(names)} units for {len(channels)} channels; give one, or one for each")
    units = [unit_of_kind(n, said.kind, place=place) for n in names]
    return units * len(channels) if len(units) == 1 else units


def _limits(said: list | None, units: list[Unit], place: str) -> tuple[tuple[float, float], ...] | None:
    if said is None:
        return None
    try:
        pairs = np.array(said, dtype=np.float64)
    except (ValueError, TypeError):
        pairs = np.zeros(0)
    if pairs.shape != (len(units), 2) or (pairs[:, 0] >= pairs[:, 1]).any():
        raise InputError(f"{place}: limits must be one [low, high] for each of the {len(units)} channels")
    scaled = pairs * np.array([[u.factor] for u in units])
    return tuple((float(low), float(high)) for low, high in scaled.tolist())


def _read_video(folder: Path, name: str, said: VideoEntry) -> tuple[ImportedVideo, list[Status]]:
    place = f"{folder / FILE}: videos.{name}"
    path = inside(folder, said.file or f"{name}.mp4", place)
    found = probe(path)
    if said.fps is not None and said.fps <= 0:
        raise InputError(f"{place}: fps must be positive, not {said.fps}")
    if said.time_unit not in TIME_UNITS:
        raise UnknownName("time unit", said.time_unit, TIME_UNITS, f"It stands in {place}.")
    if said.times:
        t = _frame_times(inside(folder, said.times, place), said, found, path, place)
    elif said.fps is not None:
        t = (said.start or 0.0) + np.arange(found.frames) / float(said.fps)
    else:
        t = (said.start or 0.0) + frame_times(path)
    camera, notes = _camera(name, said, found, place)
    # Times that begin at an arbitrary zero have nothing to do with another stream's.
    clock = said.clock or ("host" if said.times or said.start is not None else name)
    fps = float(said.fps or ((len(t) - 1) / (t[-1] - t[0]) if len(t) > 1 else found.fps))
    return ImportedVideo(VideoInfo(name, camera, clock, fps), t, path, str(path)), notes


def _frame_times(file: Path, said: VideoEntry, found: VideoProbe, path: Path, place: str) -> np.ndarray:
    if said.start is not None or said.fps is not None:
        raise InputError(f"{place}: times gives the time of each frame, so start and fps mean nothing; remove them")
    table = read_table(file)
    if "t" not in table.columns:
        raise InputError(f"{file}, line 1: there is no column 't'; the columns are {', '.join(table.columns)}")
    t = table.data[:, table.columns.index("t")] * unit(said.time_unit).factor
    if len(t) != found.frames:
        raise InputError(
            f"{file} has {len(t)} times but {path} has {found.frames} frames: give one line for each frame"
        )
    if not np.isfinite(t).all():
        row = int(np.argmax(~np.isfinite(t)))
        raise InputError(f"{table.place(row, 't')}: a frame's time must be a number, not {t[row]}")
    check_times(t, table.place, whole=str(file))
    return t


def _camera(name: str, said: VideoEntry, found: VideoProbe, place: str) -> tuple[Camera, list[Status]]:
    pose = None if said.T_world_camera is None else _matrix(said.T_world_camera, f"{place}: T_world_camera")
    numbers = {k: getattr(said, k) for k in ("fx", "fy", "cx", "cy")}
    given = [k for k, v in numbers.items() if v is not None]
    if given and said.fov_y_deg is not None:
        raise InputError(f"{place}: give either fov_y_deg or fx, fy, cx, cy, not both")
    if given:
        missing = [k for k in numbers if k not in given]
        if missing:
            raise InputError(f"{place}: {', '.join(missing)} missing; a calibration is fx, fy, cx and cy [px]")
        if min(numbers["fx"], numbers["fy"]) <= 0:
            raise InputError(f"{place}: fx and fy must be positive [px]")
        return Camera(
            name, found.width, found.height, **{k: float(v) for k, v in numbers.items()}, T_world_camera=pose
        ), []
    if said.fov_y_deg is not None:
        if not 1 <= said.fov_y_deg < 180:
            raise InputError(f"{place}: fov_y_deg must be between 1 and 180 degrees, not {said.fov_y_deg}")
        return Camera.from_fov(name, found.width, found.height, math.radians(said.fov_y_deg), pose), []
    camera, note = guessed_camera(name, found)
    return Camera(**{**{f: getattr(camera, f) for f in camera.__dataclass_fields__}, "T_world_camera": pose}), [note]


def _matrix(said: Any, place: str) -> np.ndarray:
    """Reads a rigid motion: four rows of four numbers."""
    try:
        T = np.array(said, dtype=np.float64)
    except (ValueError, TypeError):
        T = np.zeros(0)
    if T.shape != (4, 4) or not np.allclose(T[3], [0, 0, 0, 1]):
        raise InputError(f"{place} must be four rows of four numbers, the last one 0 0 0 1")
    if not np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-3) or np.linalg.det(T[:3, :3]) < 0:
        raise InputError(f"{place} is no rigid motion: its upper left 3 x 3 part must be a rotation")
    return T
