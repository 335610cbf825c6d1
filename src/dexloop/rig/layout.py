"""How a recording lies on disk inside a `Capture`; see `dexloop.core.capture.Capture`."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dexloop.core.artifact import OK, Draft, save_arrays
from dexloop.core.capture import Recording, StreamInfo, VideoInfo
from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status, worst

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")


def check_name(what: str, name: str, *, place: str = "") -> str:
    """Returns the name if a file can be called so on every system.

    Raises:
        InputError: It has other characters than letters, digits, `_`, `-` and `.`.
    """
    if not _NAME.fullmatch(name) or name.endswith("."):
        lead = f"{place}: " if place else ""
        raise InputError(
            f"{lead}{what} name {name!r} cannot be a file's name: use letters, digits, '_', '-' and '.', "
            f"beginning with a letter or digit"
        )
    return name


def check_infos(streams: Iterable[StreamInfo], videos: Iterable[VideoInfo]) -> None:
    """Checks that streams and videos can be written side by side: names usable and none twice."""
    for what, infos in (("stream", list(streams)), ("video", list(videos))):
        seen: set[str] = set()
        for info in infos:
            check_name(what, info.name)
            # Some file systems do not tell "Cam" from "cam".
            if info.name.lower() in seen:
                raise InputError(f"there are two {what}s called {info.name!r}: give each its own name")
            seen.add(info.name.lower())


def save_stream(folder: Path, name: str, t: Float[np.ndarray, " n"], value: Float[np.ndarray, "n c"]) -> None:
    """Writes one stream of the recording in `folder`."""
    (folder / "streams").mkdir(parents=True, exist_ok=True)
    save_arrays(folder / "streams" / f"{name}.npz", t=np.asarray(t, np.float64), value=np.asarray(value, np.float64))


def video_file(folder: Path, name: str) -> Path:
    """Returns where a video of the recording in `folder` belongs, with its folder made."""
    (folder / "videos").mkdir(parents=True, exist_ok=True)
    return folder / "videos" / f"{name}.mp4"


def save_times(folder: Path, name: str, t: Float[np.ndarray, " n"]) -> None:
    """Writes the times of a video's frames."""
    save_arrays(video_file(folder, name).with_suffix(".npz"), t=np.asarray(t, np.float64))


def link_or_copy(source: Path, target: Path) -> None:
    """Makes `target` hold what `source` holds, without taking room on the disk where that is possible."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(source, target)


def worst_first(checks: Iterable[Status]) -> tuple[Status, ...]:
    """Returns statuses sorted as `Recording.checks` wants them."""
    order = [Level.FAIL, Level.WARN, Level.OK]
    return tuple(sorted(checks, key=lambda s: order.index(s.level)))


def describe(draft: Draft, recordings: Iterable[Recording]) -> None:
    """Puts the recordings and their worst status into a Capture that is being written."""
    found = list(recordings)
    draft.meta["recordings"] = [r.to_json() for r in found]
    draft.status = worst([c for r in found for c in r.checks if c.level is not Level.OK], otherwise=OK)
