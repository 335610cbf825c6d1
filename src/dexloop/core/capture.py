"""The `Capture`: what was recorded, stream by stream, each on the clock it was recorded on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dexloop.core.artifact import Artifact, load_arrays
from dexloop.core.camera import Camera
from dexloop.core.errors import UnknownName
from dexloop.core.status import Status

KINDS: dict[str, str] = {
    "joint_position": "one channel a joint [rad, or m for a sliding joint]",
    "joint_velocity": "one channel a joint [rad/s or m/s]",
    "joint_effort": "one channel a joint, as the robot reports it [N·m or N]",
    "joint_command": "one channel a joint: the position target that was sent; it holds from its time on [rad or m]",
    "pose": "x y z [m], qw qx qy qz of T_world_body",
    "wrench": "fx fy fz [N], tx ty tz [N·m] on the body, in its frame unless `about` says otherwise",
    "touch": "normal force a fingertip [N]",
    "scalar": "anything else; say the unit",
}
"""What a stream can be, and what its channels mean. Images are videos, not streams."""

POSE_CHANNELS = ("x", "y", "z", "qw", "qx", "qy", "qz")
WRENCH_CHANNELS = ("fx", "fy", "fz", "tx", "ty", "tz")


@dataclass(frozen=True)
class StreamInfo:
    """What a stream of numbers is."""

    name: str
    kind: str
    """One of `KINDS`."""
    channels: tuple[str, ...]
    """Names of the columns; for joint kinds the joints' names."""
    units: tuple[str, ...]
    """SI, one for each channel; "1" where there is none."""
    clock: str
    """The clock its times were read on. Streams on different clocks have an unknown offset."""
    rate_hz: float | None = None
    """Nominal rate; None if irregular."""
    limits: tuple[tuple[float, float], ...] | None = None
    """Where each channel saturates, if known."""
    about: str = ""
    """The body it speaks of ("object", "wrist"); empty for the robot as a whole."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {k: getattr(self, k) for k in self.__dataclass_fields__}

    @staticmethod
    def from_json(data: dict[str, Any]) -> StreamInfo:
        """Reads what `to_json` wrote."""
        limits = data.get("limits")
        return StreamInfo(
            **{
                **data,
                "channels": tuple(data["channels"]),
                "units": tuple(data["units"]),
                "limits": None if limits is None else tuple((float(a), float(b)) for a, b in limits),
            }
        )


@dataclass(frozen=True)
class Stream:
    """Samples of a stream."""

    info: StreamInfo
    t: Float[np.ndarray, " n"]
    """Times on `info.clock` [s], increasing."""
    value: Float[np.ndarray, "n c"]


@dataclass(frozen=True)
class VideoInfo:
    """What a video is."""

    name: str
    camera: Camera
    """Nominal calibration, as the rig knows it. A moving camera has no `T_world_camera`."""
    clock: str
    fps: float
    """Nominal frame rate [1/s]; the true times are in `Video.t`."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {"name": self.name, "camera": self.camera.to_json(), "clock": self.clock, "fps": self.fps}

    @staticmethod
    def from_json(data: dict[str, Any]) -> VideoInfo:
        """Reads what `to_json` wrote."""
        return VideoInfo(**{**data, "camera": Camera.from_json(data["camera"])})


@dataclass(frozen=True)
class Video:
    """A video file and the time of each frame. `dexloop.vision.video.read_frames` gives its pictures."""

    info: VideoInfo
    t: Float[np.ndarray, " n"]
    """Times on `info.clock` [s]."""
    path: Path
    """MP4 file."""


@dataclass(frozen=True, eq=False)  # by identity, so that the cache below never answers for another folder's files
class Recording:
    """One motion: its streams and videos, read from disk when asked for."""

    name: str
    folder: Path
    plan: Mapping[str, Any]
    """The plan that was carried out, with its class's name under `plan`; empty for imported data."""
    robot: Mapping[str, Any]
    """`name` and `joints` of the robot that moved; empty if there was none."""
    scene: Mapping[str, Any]
    """What is publicly known of the place: table height, marker board, the object's name."""
    streams: Mapping[str, StreamInfo]
    videos: Mapping[str, VideoInfo]
    checks: tuple[Status, ...] = ()
    """What the checks after recording found, worst first."""
    markers: Mapping[str, float] = field(default_factory=dict)
    """Named moments [s on the robot's clock], such as "release"."""

    @functools.lru_cache(maxsize=256)  # noqa: B019 - a frozen record of files that do not change
    def stream(self, name: str) -> Stream:
        """Reads one stream.

        Raises:
            UnknownName: There is none of that name.
        """
        if name not in self.streams:
            raise UnknownName("stream", name, self.streams, f"Recording {self.name!r} was asked for it.")
        data = load_arrays(self.folder / "streams" / f"{name}.npz")
        return Stream(self.streams[name], data["t"], data["value"])

    def video(self, name: str) -> Video:
        """Opens one video (its times; the pictures are read by `vision.video`)."""
        if name not in self.videos:
            raise UnknownName("video", name, self.videos, f"Recording {self.name!r} was asked for it.")
        t = load_arrays(self.folder / "videos" / f"{name}.npz")["t"]
        return Video(self.videos[name], t, self.folder / "videos" / f"{name}.mp4")

    @property
    def duration_s(self) -> float:
        """From the first to the last sample or frame of the longest stream or video [s]."""
        times = [self.stream(name).t for name in self.streams] + [self.video(name).t for name in self.videos]
        return max((float(t[-1] - t[0]) for t in times if len(t)), default=0.0)

    def of_kind(self, kind: str) -> tuple[Stream, ...]:
        """Reads all streams of a kind."""
        return tuple(self.stream(name) for name, info in self.streams.items() if info.kind == kind)

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; the folder is implied by the name."""
        return {
            "name": self.name,
            "plan": dict(self.plan),
            "robot": dict(self.robot),
            "scene": dict(self.scene),
            "streams": [s.to_json() for s in self.streams.values()],
            "videos": [v.to_json() for v in self.videos.values()],
            "checks": [c.to_json() for c in self.checks],
            "markers": dict(self.markers),
        }

    @staticmethod
    def from_json(data: dict[str, Any], folder: Path) -> Recording:
        """Reads what `to_json` wrote; `folder` is where the recording's files are."""
        return Recording(
            name=data["name"],
            folder=folder,
            plan=data["plan"],
            robot=data["robot"],
            scene=data["scene"],
            streams={s["name"]: StreamInfo.from_json(s) for s in data["streams"]},
            videos={v["name"]: VideoInfo.from_json(v) for v in data["videos"]},
            checks=tuple(Status.from_json(c) for c in data["checks"]),
            markers=data["markers"],
        )


@dataclass(frozen=True)
class Capture(Artifact):
    """One or more recordings of one bench.

    On disk: `recordings/NAME/streams/STREAM.npz` (`t` [n], `value` [n, c]), `recordings/NAME/videos/CAMERA.mp4` with
    the frames' times in `CAMERA.npz` (`t` [n]); everything else is under `meta.recordings` in `artifact.json`.
    """

    kind: ClassVar[str] = "capture"

    @functools.cached_property
    def recordings(self) -> dict[str, Recording]:
        """The recordings by name, in the order they were made."""
        found = self.header.meta["recordings"]
        return {r["name"]: Recording.from_json(r, self.path / "recordings" / r["name"]) for r in found}

    def recording(self, name: str | None = None) -> Recording:
        """Returns the recording of that name, or the only one there is."""
        if name is None:
            if len(self.recordings) != 1:
                hint = "There are several: say which." if self.recordings else "The capture is empty."
                raise UnknownName("recording", "", self.recordings, hint)
            return next(iter(self.recordings.values()))
        if name not in self.recordings:
            raise UnknownName("recording", name, self.recordings)
        return self.recordings[name]
