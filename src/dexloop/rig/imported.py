"""A recording as it was found in somebody else's files, before it is written into a `Capture`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core.camera import Camera
from dexloop.core.capture import Recording, Stream, VideoInfo
from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status
from dexloop.rig.layout import check_infos, check_name, save_stream, save_times, video_file, worst_first
from dexloop.vision.video import Picture, VideoProbe, VideoWriter, count_frames

Check = Callable[[Recording], tuple[Status, ...]]

_GUESSED_FOV_X = np.radians(65.0)
"""Horizontal field of view of a usual phone's main camera while filming [rad]."""


@dataclass(frozen=True, eq=False)
class ImportedVideo:
    """Pictures of one camera: an MP4 file that is taken over as it is, or pictures that are to be encoded."""

    info: VideoInfo
    t: Float[np.ndarray, " n"]
    """[s] on `info.clock`."""
    source: Path | Callable[[], Iterator[Picture]]
    place: str
    """Where it was found, for messages."""


@dataclass(frozen=True, eq=False)
class ImportedRecording:
    """One recording of a source."""

    name: str
    robot: Mapping[str, Any]
    scene: Mapping[str, Any]
    streams: tuple[Stream, ...]
    videos: tuple[ImportedVideo, ...]
    place: str
    """Where it was found, for messages."""
    notes: tuple[Status, ...] = ()
    """What the reader of the source has to say: topics it left out, calibrations it had to guess."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    markers: Mapping[str, float] = field(default_factory=dict)


def save_recording(folder: Path, found: ImportedRecording, check: Check | None) -> Recording:
    """Writes a recording into `folder` in the layout of a Capture.

    Args:
        folder: Of this recording inside the Capture that is being written.
        found: What to write.
        check: Looks at the written recording; what it says joins the reader's notes.
    """
    check_name("recording", found.name, place=found.place)
    check_infos([s.info for s in found.streams], [v.info for v in found.videos])
    if not found.streams and not found.videos:
        raise InputError(f"{found.place} holds nothing that can be imported: no stream and no video")
    for stream in found.streams:
        save_stream(folder, stream.info.name, stream.t, stream.value)
    for video in found.videos:
        _save_video(folder, video)
    recording = Recording(
        name=found.name,
        folder=folder,
        plan=dict(found.plan),
        robot=dict(found.robot),
        scene=dict(found.scene),
        streams={s.info.name: s.info for s in found.streams},
        videos={v.info.name: v.info for v in found.videos},
        checks=worst_first(found.notes),
        markers=dict(found.markers),
    )
    if check is None:
        return recording
    checks = worst_first((*found.notes, *check(recording)))
    return Recording(**{**{f: getattr(recording, f) for f in recording.__dataclass_fields__}, "checks": checks})


def _save_video(folder: Path, video: ImportedVideo) -> None:
    name, camera = video.info.name, video.info.camera
    file = video_file(folder, name)
    if isinstance(video.source, Path):
        # Everything is decoded once: a damaged tail must show now, not weeks later in another stage.
        frames = count_frames(video.source)
        shutil.copyfile(video.source, file)
    else:
        with VideoWriter(file, camera.width, camera.height, video.info.fps) as writer:
            for picture in video.source():
                writer.write(picture)
        frames = writer.frames
    if frames != len(video.t):
        raise InputError(
            f"{video.place}: the video has {frames} pictures but there are {len(video.t)} times: "
            f"give one time for each picture"
        )
    save_times(folder, name, video.t)


def guessed_camera(name: str, probe: VideoProbe) -> tuple[Camera, Status]:
    """Returns a camera with the field of view of a usual phone, and the warning that goes with it."""
    focal = 0.5 * max(probe.width, probe.height) / float(np.tan(0.5 * _GUESSED_FOV_X))
    camera = Camera(name, probe.width, probe.height, focal, focal, 0.5 * (probe.width - 1), 0.5 * (probe.height - 1))
    return camera, Status(
        Level.WARN,
        "camera_guessed",
        f"the focal length of camera {name!r} is not known and was guessed as {focal:.0f} px",
        "calibrate the camera and give fx, fy, cx, cy",
    )
