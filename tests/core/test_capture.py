"""A Capture comes back from disk as it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.artifact import save_arrays, writing
from dexloop.core.camera import Camera
from dexloop.core.capture import (
    KINDS,
    POSE_CHANNELS,
    WRENCH_CHANNELS,
    Capture,
    Recording,
    StreamInfo,
    VideoInfo,
)
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status

JOINTS = StreamInfo(
    "joints",
    "joint_position",
    ("j0", "j1"),
    ("rad", "m"),
    clock="robot",
    rate_hz=500.0,
    limits=((-1.5, 1.5), (0.0, 0.1)),
)
POSE = StreamInfo("object_pose", "pose", POSE_CHANNELS, ("m",) * 3 + ("1",) * 4, clock="camera", about="object")
FRONT = VideoInfo(
    "front",
    Camera.from_fov("front", 64, 48, 0.7, se3.look_at(np.array([0.0, -1.0, 0.5]), np.zeros(3))),
    clock="camera",
    fps=30.0,
)
PHONE = VideoInfo("phone", Camera.from_fov("phone", 64, 48, 0.9), clock="phone", fps=30.0)
CHECK = Status(Level.WARN, "dropped_frames", "2 of 30 frames are missing", "Record again if it matters.")


def write(path: Path, names: tuple[str, ...] = ("push",), *, scale: float = 1.0, replace: bool = False) -> Capture:
    recordings = []
    with writing(path, Capture, seed=1, replace=replace) as draft:
        for k, name in enumerate(names):
            folder = draft.folder / "recordings" / name
            (folder / "streams").mkdir(parents=True)
            (folder / "videos").mkdir()
            t = np.arange(5) / 500 + k
            save_arrays(folder / "streams" / "joints.npz", t=t, value=scale * np.arange(10.0).reshape(5, 2))
            save_arrays(folder / "streams" / "object_pose.npz", t=t[:2], value=np.tile([0, 0, 0, 1.0, 0, 0, 0], (2, 1)))
            for video in (FRONT, PHONE):
                (folder / "videos" / f"{video.name}.mp4").write_bytes(b"not decoded here")
                save_arrays(folder / "videos" / f"{video.name}.npz", t=np.arange(3) / 30)
            recordings.append(
                Recording(
                    name,
                    folder,
                    plan={"plan": "Push", "speed_m_s": 0.1},
                    robot={"name": "gripper", "joints": ["j0", "j1"]},
                    scene={"object": "cube"},
                    streams={"joints": JOINTS, "object_pose": POSE},
                    videos={"front": FRONT, "phone": PHONE},
                    checks=(CHECK,),
                    markers={"release": 0.75},
                ).to_json()
            )
        draft.meta["recordings"] = recordings
        draft.status = CHECK
    return Capture.open(path)


@pytest.mark.parametrize("info", [JOINTS, POSE])
def test_stream_info_round_trip(info: StreamInfo) -> None:
    assert StreamInfo.from_json(json.loads(json.dumps(info.to_json()))) == info


@pytest.mark.parametrize("info", [FRONT, PHONE])
def test_video_info_round_trip(info: VideoInfo) -> None:
    assert VideoInfo.from_json(json.loads(json.dumps(info.to_json()))) == info


def test_capture_round_trip(tmp_path: Path) -> None:
    capture = write(tmp_path / "capture", ("push", "lift"))
    capture.verify()
    assert list(capture.recordings) == ["push", "lift"]
    assert capture.status == CHECK
    lift = capture.recording("lift")
    assert lift.streams == {"joints": JOINTS, "object_pose": POSE}
    assert lift.videos == {"front": FRONT, "phone": PHONE}
    assert lift.checks == (CHECK,)
    assert (lift.plan["plan"], lift.markers["release"], lift.scene["object"]) == ("Push", 0.75, "cube")
    stream = lift.stream("joints")
    assert stream.info is lift.streams["joints"]
    np.testing.assert_array_equal(stream.t, np.arange(5) / 500 + 1)
    np.testing.assert_array_equal(stream.value, np.arange(10.0).reshape(5, 2))
    video = lift.video("front")
    np.testing.assert_array_equal(video.t, np.arange(3) / 30)
    assert video.path.read_bytes() == b"not decoded here"
    pose = video.info.camera.T_world_camera
    assert pose is not None
    np.testing.assert_array_equal(pose, FRONT.camera.T_world_camera)


def test_of_kind(tmp_path: Path) -> None:
    push = write(tmp_path / "capture").recording()
    assert [s.info.name for s in push.of_kind("pose")] == ["object_pose"]
    assert push.of_kind("wrench") == ()


def test_a_stream_is_read_once(tmp_path: Path) -> None:
    push = write(tmp_path / "capture").recording()
    first = push.stream("joints")
    assert push.stream("joints") is first


def test_a_capture_opened_twice_reads_its_own_files(tmp_path: Path) -> None:
    """Also when it was replaced in between by one with the same header and other numbers."""
    before = write(tmp_path / "capture").recording()
    np.testing.assert_array_equal(before.stream("joints").value[-1], [8, 9])
    same = Capture.open(tmp_path / "capture").recording()
    np.testing.assert_array_equal(same.stream("joints").value[-1], [8, 9])
    after = write(tmp_path / "capture", scale=2.0, replace=True).recording()
    np.testing.assert_array_equal(after.stream("joints").value[-1], [16, 18])


def test_unknown_names_list_what_there_is(tmp_path: Path) -> None:
    capture = write(tmp_path / "capture", ("push", "lift"))
    with pytest.raises(UnknownName, match="there is push, lift"):
        capture.recording("pusch")
    with pytest.raises(UnknownName, match=r"push, lift\. There are several: say which\."):
        capture.recording()
    with pytest.raises(UnknownName, match=r"there is joints, object_pose\. Recording 'push'"):
        capture.recording("push").stream("wrench")
    with pytest.raises(UnknownName, match="there is front, phone"):
        capture.recording("push").video("side")


def test_an_empty_capture_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"there is none\. The capture is empty\."):
        write(tmp_path / "capture", ()).recording()


def test_a_missing_stream_file_is_named(tmp_path: Path) -> None:
    push = write(tmp_path / "capture").recording()
    (push.folder / "streams" / "joints.npz").unlink()
    with pytest.raises(InputError, match=r"joints\.npz cannot be read"):
        push.stream("joints")


def test_channels_of_fixed_kinds() -> None:
    """x, y, z, then the quaternion with w first; force before torque: as the conventions page says."""
    assert POSE_CHANNELS == ("x", "y", "z", "qw", "qx", "qy", "qz")
    assert WRENCH_CHANNELS == ("fx", "fy", "fz", "tx", "ty", "tz")
    assert {"pose", "wrench", "joint_position", "joint_command"} <= KINDS.keys()
