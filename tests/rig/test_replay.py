from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dexloop.core.camera import Camera
from dexloop.core.capture import Capture, StreamInfo, VideoInfo
from dexloop.core.errors import HaltError, InputError, UnknownName
from dexloop.rig.protocol import Features, Frames, Rig, Samples
from dexloop.rig.recorder import Recorder
from dexloop.rig.replay import ReplayRig
from dexloop.vision.video import read_video

LIMITS = ((-1.0, 2.0), (-3.0, 4.0))


def record(path: Path, camera_zero: float) -> Capture:
    joints = StreamInfo("joints", "joint_position", ("a", "b"), ("rad", "m"), "robot", 250.0, LIMITS)
    camera = VideoInfo("front", Camera.from_fov("front", 64, 48, 1.0), "camera", 30.0)
    features = Features("bench", {"name": "r", "joints": ["a", "b"]}, (joints,), (camera,), None, {"table_z": 0.1})
    with Recorder(path, features) as recorder:
        recorder.start("one")
        i = np.arange(250)
        recorder.append_samples("joints", Samples(10 + i / 250, np.column_stack([i, 2.0 * i])))
        pictures = np.broadcast_to((5 * np.arange(30, dtype=np.uint8))[:, None, None, None], (30, 48, 64, 3)).copy()
        recorder.append_frames("front", Frames(camera_zero + np.arange(30) / 30, pictures))
    return Capture.open(path)


def play(rig: ReplayRig, step: float) -> tuple[list[Samples], list[Frames]]:
    samples, frames = [], []
    rig.connect()
    while True:
        seen = rig.observe()
        samples += [s for n, s in seen.samples.items() if n == "joints"]
        frames += list(seen.frames.values())
        if rig.finished:
            return samples, frames
        rig.sleep(step)


@pytest.mark.parametrize("camera_zero", [10.02, 0.0, 1.7e9])
@pytest.mark.parametrize("step", [0.002, 0.0371, 5.0])
def test_everything_is_played_once_with_its_own_stamps(tmp_path: Path, camera_zero: float, step: float):
    capture = record(tmp_path / "c", camera_zero)
    rig = ReplayRig(capture)
    assert isinstance(rig, Rig)
    for _ in range(2):  # connecting again starts again
        samples, frames = play(rig, step)
        recorded = capture.recording().stream("joints")
        assert np.array_equal(np.concatenate([s.t for s in samples]), recorded.t)
        assert np.array_equal(np.concatenate([s.value for s in samples]), recorded.value)
        video = capture.recording().video("front")
        assert np.array_equal(np.concatenate([f.t for f in frames]), video.t)
        assert np.array_equal(np.concatenate([f.image for f in frames]), read_video(video.path))


def test_nothing_comes_before_its_time(tmp_path: Path):
    rig = ReplayRig(record(tmp_path / "c", 10.02))
    rig.connect()
    assert rig.now() == 10.0
    rig.sleep(0.1)
    seen = rig.observe()
    assert seen.samples["joints"].t[-1] == pytest.approx(10.1)
    assert seen.frames["front"].t[-1] <= 10.1 < seen.frames["front"].t[-1] + 1 / 30
    assert dict(rig.observe().samples) == {}


def test_features_are_readable_while_disconnected(tmp_path: Path):
    features = ReplayRig(record(tmp_path / "c", 10.0)).features
    assert features.robot["joints"] == ["a", "b"]
    assert features.scene == {"table_z": 0.1}
    assert features.command is not None
    assert features.command.position_limits == LIMITS
    assert features.command.units == ("rad", "m")
    assert features.command.home == (0.0, 0.0)
    assert features.command.rate_hz == 250


def test_commands_are_kept_but_move_nothing(tmp_path: Path):
    rig = ReplayRig(record(tmp_path / "c", 10.0))
    with pytest.raises(InputError, match="connect"):
        rig.send(np.zeros(2))
    rig.connect()
    rig.sleep(0.5)
    rig.send(np.array([0.1, 0.2]))
    assert rig.sent[0][0] == 10.5
    assert rig.sent[0][1].tolist() == [0.1, 0.2]
    for wrong in (np.zeros(3), np.array([np.nan, 0])):
        with pytest.raises(InputError, match="2 finite numbers"):
            rig.send(wrong)
    with pytest.raises(InputError, match="forward"):
        rig.sleep(-1)
    rig.stop()
    with pytest.raises(HaltError, match="connect again"):
        rig.send(np.zeros(2))
    rig.connect()
    assert rig.sent == []
    rig.disconnect()
    rig.disconnect()
    with pytest.raises(InputError, match="connect"):
        rig.observe()
    with pytest.raises(UnknownName):
        ReplayRig(record(tmp_path / "d", 10.0), "two")
