"""Import: recorded files from anywhere become a `Capture`, or one clear error says what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dexloop.core.artifact import writing
from dexloop.core.camera import Camera
from dexloop.core.capture import Capture, Recording, VideoInfo
from dexloop.core.errors import InputError
from dexloop.core.status import Status
from dexloop.rig.bag_files import is_bag
from dexloop.rig.capture_toml import FILE
from dexloop.rig.folder import is_folder_source, read_folder
from dexloop.rig.imported import ImportedRecording, ImportedVideo, guessed_camera, save_recording
from dexloop.rig.layout import describe
from dexloop.rig.lerobot_dataset import is_lerobot_dataset, read_lerobot_dataset
from dexloop.rig.mcap import read_bag
from dexloop.vision.video import frame_times, probe

VIDEO_SUFFIXES = (".mp4", ".mov", ".m4v")

Check = Callable[[Recording], tuple[Status, ...]]


@dataclass(frozen=True)
class ImportCfg:
    """What the files themselves do not say. An option that no source can use is an error."""

    units: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """LeRobot datasets: unit by feature, such as `{"observation.state": "deg"}`. Bags: "m" by sliding joint."""
    episodes: tuple[int, ...] | None = None
    """LeRobot datasets: which episodes; all if left out."""
    fps: float | None = None
    """Bare videos: the true frame rate [1/s]; the file's own times if left out."""
    fov_y_deg: float | None = None
    """Bare videos: vertical field of view [degrees]."""
    intrinsics: tuple[float, float, float, float] | None = None
    """Bare videos: fx, fy, cx, cy [px]."""


_USED_BY = {
    "folder": (),
    "bag": ("units",),
    "LeRobot dataset": ("units", "episodes"),
    "video": ("fps", "fov_y_deg", "intrinsics"),
}


def import_capture(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    cfg: ImportCfg | None = None,
    check: Check | None = None,
    replace: bool = False,
) -> Capture:
    """Imports one or more sources into one Capture.

    A source is a folder with `capture.toml` (see `docs/capture-format.md`), an MCAP file or ROS 2 bag, a LeRobot
    dataset of version 3, or a bare video of a scan or of a human hand. The sources are only read.

    Args:
        sources: Files or folders.
        out: Where the Capture shall be.
        cfg: What the files do not say.
        check: Looks at each imported recording; what it says goes into the recording's `checks`.
        replace: Put it in the place of a Capture that is there.

    Raises:
        InputError: The first thing that is wrong, with file, line and what to do. Nothing was written.
        UnknownName: A key, kind, unit or episode that does not exist; the message lists those there are.
        MissingPart: An optional library is needed; the message says how to get it.
        StorageError: The disk is full. Nothing was written.
    """
    cfg = cfg or ImportCfg()
    paths = [Path(s) for s in ([sources] if isinstance(sources, str | Path) else sources)]
    if not paths:
        raise InputError("nothing to import: give at least one file or folder")
    kinds = {path: source_kind(path) for path in paths}
    if len({path.resolve() for path in paths}) != len(paths):
        raise InputError("a source is named twice: name each once")
    _refuse_unused(cfg, set(kinds.values()))
    with writing(out, Capture, replace=replace) as draft:
        found = [recording for path, kind in kinds.items() for recording in _read(path, kind, cfg)]
        _refuse_same_names(found)
        saved = [save_recording(draft.folder / "recordings" / r.name, r, check) for r in found]
        describe(draft, saved)
        draft.meta["sources"] = [f"{kind}: {path.name}" for path, kind in kinds.items()]
    return Capture.open(out)


def source_kind(path: Path) -> str:
    """Returns "folder", "bag", "LeRobot dataset" or "video".

    Raises:
        InputError: It does not exist, or it is none of these.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist: give a folder, an .mcap file or a video")
    if is_bag(path):
        return "bag"
    if path.is_file():
        if path.suffix.lower() in VIDEO_SUFFIXES:
            return "video"
        if path.suffix in (".csv", ".toml"):
            raise InputError(f"{path} is one file of a folder: give the folder, with a {FILE} in it")
        raise InputError(
            f"{path} cannot be imported: give a folder, an .mcap file, or a {', '.join(VIDEO_SUFFIXES)} video"
        )
    if is_lerobot_dataset(path):
        return "LeRobot dataset"
    if is_folder_source(path):
        return "folder"
    raise InputError(
        f"{path} has no {FILE} (nor is it a ROS 2 bag with metadata.yaml or a LeRobot dataset with meta/info.json): "
        f"write one that names the streams and videos, see docs/capture-format.md"
    )


def _read(path: Path, kind: str, cfg: ImportCfg) -> list[ImportedRecording]:
    if kind == "folder":
        return read_folder(path)
    if kind == "bag":
        units = {}
        for joint, name in cfg.units.items():
            if not isinstance(name, str):
                raise InputError(f"the unit of joint {joint!r} must be one word, not {name!r}")
            units[joint] = name
        return [read_bag(path, units=units)]
    if kind == "LeRobot dataset":
        return read_lerobot_dataset(path, units=cfg.units, episodes=cfg.episodes)
    return [_read_video(path, cfg)]


def _read_video(path: Path, cfg: ImportCfg) -> ImportedRecording:
    found = probe(path)
    if cfg.fps is not None and not (math.isfinite(cfg.fps) and cfg.fps > 0):
        raise InputError(f"fps must be positive, not {cfg.fps}")
    t = frame_times(path) if cfg.fps is None else np.arange(found.frames) / cfg.fps
    notes: tuple[Status, ...] = ()
    if cfg.intrinsics is not None:
        camera = Camera("camera", found.width, found.height, *cfg.intrinsics)
    elif cfg.fov_y_deg is not None:
        if not 1.0 <= cfg.fov_y_deg <= 170.0:
            raise InputError(f"the vertical field of view is from 1 to 170 degrees, not {cfg.fov_y_deg:g}")
        camera = Camera.from_fov("camera", found.width, found.height, math.radians(cfg.fov_y_deg))
    else:
        camera, note = guessed_camera("camera", found)
        notes = (note,)
    info = VideoInfo("camera", camera, "camera", cfg.fps or found.fps)
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in path.stem).lstrip("_-") or "video"
    return ImportedRecording(
        name=name,
        robot={},
        scene={},
        streams=(),
        videos=(ImportedVideo(info, t, path, str(path)),),
        place=str(path),
        notes=notes,
    )


def _refuse_unused(cfg: ImportCfg, kinds: set[str]) -> None:
    """An option that none of the sources reads would change nothing, and its user would not learn it."""
    if cfg.intrinsics is not None and cfg.fov_y_deg is not None:
        raise InputError("intrinsics and fov_y_deg say the same thing twice: give one of them")
    for option in ("units", "episodes", "fps", "fov_y_deg", "intrinsics"):
        given = getattr(cfg, option)
        if given is None or given == {}:
            continue
        users = [kind for kind, used in _USED_BY.items() if option in used]
        if not kinds & set(users):
            raise InputError(
                f"{option} means nothing for a {' or '.join(sorted(kinds))}, only for a {' or '.join(users)}: remove it"
                + (f", or write it into {FILE}" if "folder" in kinds else "")
            )


def _refuse_same_names(found: list[ImportedRecording]) -> None:
    places: dict[str, str] = {}
    for recording in found:
        key = recording.name.lower()
        if key in places:
            raise InputError(
                f"two recordings are called {recording.name!r}, in {places[key]} and in {recording.place}: "
                f"rename one of them"
            )
        places[key] = recording.place
