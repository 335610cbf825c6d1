"""MCAP files and ROS 2 bags as a source: joint states, poses, transforms, wrenches and images.

Each topic keeps a clock of its own: the stamps in its headers, which its driver wrote, or the recorder's log time where
a driver left them at zero. How far the log time lies behind the stamps is in `scene["clocks"]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from dexloop.core.camera import Camera
from dexloop.core.capture import POSE_CHANNELS, WRENCH_CHANNELS, Stream, StreamInfo, VideoInfo
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.rig.bag_files import Bag, Message, open_bag
from dexloop.rig.imported import ImportedRecording, ImportedVideo, guessed_camera
from dexloop.rig.ros_images import cannot_decode, decode
from dexloop.rig.ros_messages import READABLE
from dexloop.rig.validation import check_stream
from dexloop.vision.video import Picture, VideoProbe

_JOINT_UNITS = {
    "rad": {"joint_position": "rad", "joint_velocity": "rad/s", "joint_effort": "N·m"},
    "m": {"joint_position": "m", "joint_velocity": "m/s", "joint_effort": "N"},
}


@dataclass
class _Gathered:
    """What a topic gave for one stream or video, message by message."""

    topic: str
    kind: str
    """As in `KINDS`, or "image"."""
    channels: tuple[str, ...] = ()
    about: str = ""
    frame: str = ""
    stamp: list[float] = field(default_factory=list)
    log: list[float] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)

    def add(self, header: SimpleNamespace, log_time: float, row: Any) -> None:
        self.stamp.append(header.stamp.sec + header.stamp.nanosec * 1e-9)
        self.log.append(log_time)
        self.rows.append(row)

    @property
    def clock(self) -> str:
        return _clean(self.topic)

    def times(self) -> tuple[np.ndarray, list[Status]]:
        """Returns the time of each message [s], and what there is to say about the stamps."""
        if all(s > 0 for s in self.stamp):
            return np.array(self.stamp), []
        note = Status(
            Level.WARN,
            "no_stamps",
            f"topic {self.topic} has messages without a stamp: the recorder's log time was taken instead",
            "let the driver fill header.stamp; log times carry the delay of the transport",
        )
        return np.array(self.log), [note]


def read_bag(path: str | Path, *, units: Mapping[str, str] | None = None) -> ImportedRecording:
    """Reads a bag as one recording.

    Args:
        path: An `.mcap` or `.db3` file, or the folder of a ROS 2 bag.
        units: "m" for each sliding joint; a JointState does not say, and joints turn [rad] unless named here.

    Raises:
        InputError: The bag is damaged, or a stream holds what cannot be.
        MissingPart: The optional part `mcap` is not installed.
        UnknownName: `units` names a joint that is not in the bag.
    """
    bag = open_bag(path)
    gathered, cameras, static, unread = _gather(bag)
    notes = _left_out(unread)
    scene: dict[str, Any] = {"clocks": {}} | ({"tf_static": static} if static else {})
    streams: list[Stream] = []
    videos: list[ImportedVideo] = []
    for name, data in gathered.items():
        t, odd = data.times()
        notes += odd
        if len(np.unique(t)) < 2:
            notes += _left_out({data.topic: "it has a single message"})
            continue
        scene["clocks"][data.clock] = {"log_minus_stamp_s": float(np.median(np.array(data.log) - t))}
        if data.kind == "image":
            video, odd = _video(bag, name, data, t, cameras)
            videos.append(video)
        else:
            stream, odd = _stream(bag, name, data, t, dict(units or {}))
            streams.append(stream)
        notes += odd
    joints = list(dict.fromkeys(c for s in streams if s.info.kind.startswith("joint") for c in s.info.channels))
    for joint in units or {}:
        if joint not in joints:
            raise UnknownName("joint", joint, joints, f"A unit was given for it, but {bag.path} has no such joint.")
    return ImportedRecording(
        name=_clean(bag.path.stem),
        robot={"name": "", "joints": joints} if joints else {},
        scene=scene,
        streams=tuple(streams),
        videos=tuple(videos),
        place=str(bag.path),
        notes=tuple(notes),
    )


def _gather(bag: Bag) -> tuple[dict[str, _Gathered], dict[str, SimpleNamespace], dict[str, Any], dict[str, str]]:
    """Goes once through the bag.

    Returns:
        What was found by the name of its stream or video, the CameraInfo by topic, the static transforms by child, and
        the reason for each topic that is left out.
    """
    unread = {t: f"{k} cannot be imported" for t, k in bag.topics.items() if k not in READABLE}
    unread |= {t: "it has no message" for t in bag.topics if not bag.counts[t]}
    found: dict[str, _Gathered] = {}
    cameras: dict[str, SimpleNamespace] = {}
    static: dict[str, Any] = {}
    for message in bag.messages([t for t in bag.topics if t not in unread]):
        topic, data = message.topic, message.data
        if message.datatype == "sensor_msgs/CameraInfo":
            cameras.setdefault(topic, data)
        elif message.datatype in ("sensor_msgs/Image", "sensor_msgs/CompressedImage"):
            if why := cannot_decode(data):
                unread[topic] = why
            else:
                found.setdefault(_clean(topic), _Gathered(topic, "image")).add(data.header, message.log_time, None)
        elif message.datatype == "sensor_msgs/JointState":
            _add_joints(found, message, bag.path)
        elif message.datatype == "geometry_msgs/WrenchStamped":
            row = [*_xyz(data.wrench.force), *_xyz(data.wrench.torque)]
            _add(found, _clean(topic), message, data.header, "wrench", row, about=data.header.frame_id)
        elif message.datatype == "geometry_msgs/PoseStamped":
            row = [*_xyz(data.pose.position), *_wxyz(data.pose.orientation)]
            about = re.sub(r"[/_]?pose$", "", topic.strip("/")).rpartition("/")[2]
            _add(found, _clean(topic), message, data.header, "pose", row, about=about)
        else:
            several = message.datatype == "tf2_msgs/TFMessage"
            for tf in data.transforms if several else [data]:
                row = [*_xyz(tf.transform.translation), *_wxyz(tf.transform.rotation)]
                if topic.endswith("tf_static"):
                    static[tf.child_frame_id] = {"parent": tf.header.frame_id, "pose": row}
                    continue
                name = f"{_clean(topic)}.{_clean(tf.child_frame_id)}" if several else _clean(topic)
                _add(found, name, message, tf.header, "pose", row, about=tf.child_frame_id)
    return found, cameras, static, unread


def _add(
    found: dict[str, _Gathered],
    name: str,
    message: Message,
    header: SimpleNamespace,
    kind: str,
    row: list[float],
    *,
    about: str,
) -> None:
    channels = POSE_CHANNELS if kind == "pose" else WRENCH_CHANNELS
    data = found.setdefault(name, _Gathered(message.topic, kind, channels, about, header.frame_id))
    if header.frame_id != data.frame:
        raise InputError(
            f"topic {message.topic}: {about or name!r} is given in frame {data.frame!r} and later in "
            f"{header.frame_id!r}; record them on two topics"
        )
    data.add(header, message.log_time, row)


def _add_joints(found: dict[str, _Gathered], message: Message, path: Path) -> None:
    """Adds a JointState, whose joints may come in another order each time, and of two robots on one topic."""
    data = message.data
    joints, topic = tuple(data.name), _clean(message.topic)
    for what in ("position", "velocity", "effort"):
        values = np.asarray(getattr(data, what), np.float64)
        if not len(values) or np.isnan(values).all():  # drivers write either where they do not measure
            continue
        if len(values) != len(joints):
            raise InputError(
                f"{path}, topic {message.topic}: {len(joints)} joint names but {len(values)} values of {what}; "
                f"mend the driver"
            )
        number = 1
        while True:
            name = f"{topic}.{what}" if number == 1 else f"{topic}.{number}.{what}"
            known = found.setdefault(name, _Gathered(message.topic, f"joint_{what}", joints))
            if set(known.channels) == set(joints):
                break
            number += 1
        order = [joints.index(c) for c in known.channels]
        known.add(data.header, message.log_time, values[order])


def _stream(
    bag: Bag, name: str, data: _Gathered, t: np.ndarray, units: Mapping[str, str]
) -> tuple[Stream, list[Status]]:
    order = np.argsort(t, kind="stable")
    order = order[np.concatenate([[True], np.diff(t[order]) > 0])]
    notes = _repeated(data, len(t) - len(order))
    t, value = t[order], np.array(data.rows, np.float64)[order]
    if data.kind == "pose":
        si = ("m",) * 3 + ("1",) * 4
        if data.frame != "world":
            notes.append(
                Status(
                    Level.WARN,
                    "not_world_frame",
                    f"the poses of {name!r} are in frame {data.frame!r}, not in 'world'",
                    "give the transform between the two, or record in the world's frame",
                )
            )
    elif data.kind == "wrench":
        si = ("N",) * 3 + ("N·m",) * 3
    else:
        for joint in data.channels:
            if units.get(joint, "rad") not in _JOINT_UNITS:
                raise UnknownName("unit of a ROS joint", units[joint], _JOINT_UNITS, f"It was given for {joint!r}.")
        si = tuple(_JOINT_UNITS[units.get(joint, "rad")][data.kind] for joint in data.channels)
    rate = float(1.0 / np.median(np.diff(t)))
    info = StreamInfo(name, data.kind, data.channels, si, data.clock, rate, about=data.about)
    place: Callable[[int, str], str] = lambda row, channel: (  # noqa: E731
        f"{bag.path}, topic {data.topic}, message {order[row]}" + (f", {channel!r}" if channel else "")
    )
    stream, odd = check_stream(Stream(info, t, value), place, whole=f"{bag.path}, topic {data.topic}")
    return stream, [*notes, *odd]


def _video(
    bag: Bag, name: str, data: _Gathered, t: np.ndarray, cameras: Mapping[str, SimpleNamespace]
) -> tuple[ImportedVideo, list[Status]]:
    # Pictures are decoded one by one while they are written, so they cannot be sorted: what comes late is left out.
    keep = np.concatenate([[True], t[1:] > np.maximum.accumulate(t)[:-1]])
    place = f"{bag.path}, topic {data.topic}"

    def pictures() -> Iterator[Picture]:
        for wanted, message in zip(keep, bag.messages([data.topic]), strict=True):
            if wanted:
                yield decode(message.data, place)

    height, width = next(iter(pictures())).shape[:2]
    fps = float(1.0 / np.median(np.diff(t[keep])))
    camera, notes = _camera(name, data.topic, width, height, fps, cameras)
    notes += _repeated(data, int((~keep).sum()))
    return ImportedVideo(VideoInfo(name, camera, data.clock, fps), t[keep], pictures, place), notes


def _camera(
    name: str, topic: str, width: int, height: int, fps: float, cameras: Mapping[str, SimpleNamespace]
) -> tuple[Camera, list[Status]]:
    """Finds the CameraInfo in the namespace of an image topic: `/cam/image_raw` goes with `/cam/camera_info`."""
    parent = topic
    while parent:
        parent = parent.rpartition("/")[0]
        info = cameras.get(f"{parent}/camera_info")
        # A picture of odd size was cut by one pixel.
        if info is not None and (info.width // 2 * 2, info.height // 2 * 2) == (width, height) and info.k[0] > 0:
            fx, fy, cx, cy = (float(info.k[i]) for i in (0, 4, 2, 5))
            return Camera(name, width, height, fx, fy, cx, cy), _distorted(name, info)
    camera, note = guessed_camera(name, VideoProbe(width, height, fps, 0, 0.0))
    return camera, [note]


def _distorted(name: str, info: SimpleNamespace) -> list[Status]:
    if not np.any(np.abs(np.asarray(info.d, np.float64)) > 1e-6):
        return []
    return [
        Status(
            Level.WARN,
            "distorted",
            f"camera {name!r} has lens distortion ({info.distortion_model}), its pictures are taken as they are",
            "record the rectified topic, such as image_rect",
        )
    ]


def _repeated(data: _Gathered, count: int) -> list[Status]:
    if not count:
        return []
    return [
        Status(
            Level.WARN,
            "repeated_stamps",
            f"{count} of {len(data.stamp)} messages on {data.topic} repeat a stamp or come late and are left out",
            "look for two publishers on one topic",
        )
    ]


def _left_out(topics: Mapping[str, str]) -> list[Status]:
    return [
        Status(Level.WARN, "topic_left_out", f"topic {topic} is left out: {why}", "nothing, if you do not need it")
        for topic, why in topics.items()
    ]


def _xyz(v: SimpleNamespace) -> tuple[float, float, float]:
    return v.x, v.y, v.z


def _wxyz(q: SimpleNamespace) -> tuple[float, float, float, float]:
    return q.w, q.x, q.y, q.z


def _clean(name: str) -> str:
    """Returns a topic or frame as a file can be called: "/cam/image_raw" becomes "cam.image_raw"."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name.strip("/").replace("/", ".")).lstrip("._-") or "unnamed"
