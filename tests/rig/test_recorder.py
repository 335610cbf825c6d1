from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from dexloop.core.camera import Camera
from dexloop.core.capture import Capture, StreamInfo, VideoInfo
from dexloop.core.errors import InputError, StorageError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.rig.journal import journal_path
from dexloop.rig.protocol import Features, Frames, Observation, Samples
from dexloop.rig.recorder import Recorder, open_capture
from dexloop.vision.video import read_video

JOINTS = StreamInfo("joints", "joint_position", ("a", "b"), ("rad", "rad"), "robot", 250.0)
CAMERA = VideoInfo("front", Camera.from_fov("front", 64, 48, 1.0), "camera", 30.0)
FEATURES = Features("bench", {"name": "two", "joints": ["a", "b"]}, (JOINTS,), (CAMERA,), None, {"table_z": 0.0})


def samples(start: int, stop: int) -> Samples:
    """Joint a counts the samples, so that a lost or doubled one shows."""
    i = np.arange(start, stop, dtype=np.float64)
    return Samples(i / 250.0, np.column_stack([i, -0.5 * i]))


def frames(start: int, stop: int) -> Frames:
    """The picture's grey value counts the frames."""
    i = np.arange(start, stop)
    grey = (10 + 2 * i % 200).astype(np.uint8)
    return Frames(i / 30.0, np.broadcast_to(grey[:, None, None, None], (len(i), 48, 64, 3)).copy())


def greys(path: Path) -> np.ndarray:
    return read_video(path).mean(axis=(1, 2, 3))


def test_what_was_appended_is_in_the_capture(tmp_path: Path):
    with Recorder(tmp_path / "c", FEATURES) as recorder:
        recorder.start("one", plan={"plan": "Push", "speed": 0.1})
        for k in range(5):
            recorder.append(Observation({"joints": samples(50 * k, 50 * k + 50)}, {"front": frames(6 * k, 6 * k + 6)}))
        recorder.finish_recording((Status(Level.WARN, "odd", "odd", "look"),), markers={"release": 0.4})
        recorder.start("two", videos=(), scene={"object": "cube"})
        recorder.append_samples("joints", samples(0, 10))
    capture = Capture.open(tmp_path / "c")
    capture.verify()
    assert list(capture.recordings) == ["one", "two"]
    one = capture.recording("one")
    assert np.array_equal(one.stream("joints").t, np.arange(250) / 250)
    assert np.array_equal(one.stream("joints").value[:, 0], np.arange(250))
    assert np.array_equal(one.video("front").t, np.arange(30) / 30)
    assert np.allclose(greys(one.video("front").path), 10 + 2 * np.arange(30), atol=1.5)
    assert one.plan == {"plan": "Push", "speed": 0.1}
    assert one.markers == {"release": 0.4}
    assert one.robot["joints"] == ["a", "b"]
    assert [c.code for c in one.checks] == ["odd"]
    assert capture.recording("two").videos == {}
    assert capture.recording("two").scene == {"object": "cube"}
    assert capture.status.code == "odd"
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_checks_can_look_at_the_recording(tmp_path: Path):
    with Recorder(tmp_path / "c", FEATURES) as recorder:
        recorder.start("one", videos=())
        recorder.append_samples("joints", samples(0, 7))
        recorder.finish_recording(lambda r: [Status(Level.FAIL, "seen", f"{len(r.stream('joints').t)} samples")])
    assert recorder.capture is not None
    assert recorder.capture.status == Status(Level.FAIL, "seen", "7 samples")


def test_a_silent_stream_is_left_out_and_said(tmp_path: Path):
    with Recorder(tmp_path / "c", FEATURES) as recorder:
        recorder.start("one")
        recorder.append_samples("joints", samples(0, 7))
    assert recorder.capture is not None
    one = recorder.capture.recording()
    assert list(one.videos) == []
    assert "front" in one.checks[0].message


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("arm")])
def test_an_interrupted_block_keeps_everything(tmp_path: Path, error: BaseException):
    with pytest.raises(type(error)), Recorder(tmp_path / "c", FEATURES) as recorder:
        recorder.start("one")
        recorder.append_samples("joints", samples(0, 40))
        recorder.append_frames("front", frames(0, 4))
        raise error
    capture = open_capture(tmp_path / "c")
    capture.verify()
    one = capture.recording()
    assert len(one.stream("joints").t) == 40
    assert len(greys(one.video("front").path)) == len(one.video("front").t) == 4
    assert capture.status.code == "interrupted"
    assert "joints to 0.156 s" in capture.status.message
    assert not journal_path(tmp_path / "c").exists()


def test_an_error_before_anything_leaves_nothing(tmp_path: Path):
    with pytest.raises(RuntimeError), Recorder(tmp_path / "c", FEATURES):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_told(tmp_path: Path):
    with Recorder(tmp_path / "c", FEATURES) as recorder:
        with pytest.raises(InputError, match="call start"):
            recorder.append_samples("joints", samples(0, 1))
        with pytest.raises(InputError, match="file's name"):
            recorder.start("../up")
        odd = VideoInfo("odd", Camera.from_fov("odd", 63, 48, 1.0), "camera", 30.0)
        with pytest.raises(InputError, match="even width"):
            recorder.start("one", videos=(odd,))
        recorder.start("one")
        with pytest.raises(InputError, match="under way"):
            recorder.start("two")
        with pytest.raises(UnknownName, match=r"'joint'.*joints"):
            recorder.append_samples("joint", samples(0, 1))
        with pytest.raises(UnknownName, match="there is front"):
            recorder.append_frames("back", frames(0, 1))
        with pytest.raises(InputError, match="2 channels, not 3"):
            recorder.append_samples("joints", Samples(np.zeros(1), np.zeros((1, 3))))
        with pytest.raises(InputError, match="48 x 64 x 3"):
            recorder.append_frames("front", Frames(np.zeros(1), np.zeros((1, 4, 4, 3), np.uint8)))
        recorder.append_samples("joints", samples(0, 5))
        recorder.append_frames("front", frames(0, 2))
        recorder.finish_recording()
        with pytest.raises(InputError, match="each its own name"):
            recorder.start("One")
    assert recorder.capture is not None
    assert len(recorder.capture.recording().video("front").t) == 2
    with pytest.raises(InputError, match="exists already"):
        Recorder(tmp_path / "c", FEATURES)
    with pytest.raises(InputError, match=r"no artifact\.json"):
        open_capture(tmp_path / "nowhere")


def test_nothing_recorded_is_an_error(tmp_path: Path):
    recorder = Recorder(tmp_path / "c", FEATURES)
    recorder.start("one")
    with pytest.raises(InputError, match="nothing was recorded"):
        recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_a_capture_is_replaced_only_when_the_new_one_is_complete(tmp_path: Path):
    for count in (5, 9):
        with Recorder(tmp_path / "c", FEATURES, replace=True) as recorder:
            recorder.start("one", videos=())
            recorder.append_samples("joints", samples(0, count))
            if count == 9:
                assert len(Capture.open(tmp_path / "c").recording().stream("joints").t) == 5
    assert len(open_capture(tmp_path / "c").recording().stream("joints").t) == 9


KILLED = """
    import sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from tests.rig.test_recorder import FEATURES, Recorder, frames, samples
    recorder = Recorder(Path(sys.argv[1]), FEATURES)
    recorder.start("first", videos=())
    recorder.append_samples("joints", samples(0, 20))
    recorder.finish_recording(markers={"release": 0.01})
    recorder.start("second")
    begin, n, m = time.monotonic(), 0, 0
    while True:
        elapsed = time.monotonic() - begin
        if int(250 * elapsed) > n:
            recorder.append_samples("joints", samples(n, int(250 * elapsed)))
            n = int(250 * elapsed)
        if int(30 * elapsed) > m:
            recorder.append_frames("front", frames(m, int(30 * elapsed)))
            m = int(30 * elapsed)
        print(elapsed, flush=True)
        time.sleep(0.002)
"""


def test_sigkill_loses_at_most_the_last_second(tmp_path: Path, repository: Path):
    path = tmp_path / "c"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(path), str(repository)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = 0.0
        while last < 2.3:
            last = float(process.stdout.readline())
        with pytest.raises(InputError, match=f"process {process.pid}"):
            open_capture(path)
        os.kill(process.pid, signal.SIGKILL)
        lines = process.stdout.read().splitlines()
        last = float(lines[-1]) if lines else last
    with pytest.raises(InputError, match="is there already"):
        Recorder(path, FEATURES)

    capture = open_capture(path)
    capture.verify()
    assert capture.status.code == "interrupted"
    assert list(capture.recordings) == ["first", "second"]
    assert capture.recording("first").markers == {"release": 0.01}
    assert capture.recording("first").checks == ()
    second = capture.recording("second")
    joints, video = second.stream("joints"), second.video("front")
    assert np.array_equal(joints.value[:, 0], np.arange(len(joints.t)))
    # The samples are handed over at once; the video waits for its half-second fragment.
    assert joints.t[-1] > last - 0.1
    assert video.t[-1] > last - 1.0
    assert np.allclose(greys(video.path), 10 + 2 * np.arange(len(video.t)), atol=1.5)
    assert f"front to {video.t[-1]:.3f} s" in capture.status.message
    assert not journal_path(path).exists()
    assert open_capture(path).hash == capture.hash


def test_a_torn_row_and_a_torn_fragment_are_cut(tmp_path: Path):
    path = tmp_path / "c"
    recorder = Recorder(path, FEATURES)
    recorder.start("one")
    recorder.append_samples("joints", samples(0, 20))
    recorder.append_frames("front", frames(0, 40))
    recorder._let_go()  # as if the process were gone
    folder = journal_path(path) / "000"
    for file in (folder / "raw" / "joints.f64", folder / "videos" / "front.mp4"):
        os.truncate(file, file.stat().st_size - 11)
    one = open_capture(path).recording()
    assert np.array_equal(one.stream("joints").value[:, 0], np.arange(19))
    count = len(one.video("front").t)
    assert count >= 15
    assert np.allclose(greys(one.video("front").path), 10 + 2 * np.arange(count), atol=1.5)


def test_killed_between_the_last_two_steps(tmp_path: Path):
    path = tmp_path / "c"
    with Recorder(path, FEATURES) as recorder:
        recorder.start("one", videos=())
        recorder.append_samples("joints", samples(0, 20))
        journal = recorder._journal
    journal.folder.mkdir()
    (journal.folder / "journal.json").write_text(f'{{"version": 1, "id": "{journal.id}"}}')
    open_capture(path)
    assert not journal.folder.exists()


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of 2 MB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no small disk can be mounted here: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.parametrize("filled_by", ["samples", "video"])
def test_a_full_disk_is_one_clear_error(small_disk: Path, filled_by: str):
    with Recorder(small_disk / "early", FEATURES) as recorder:
        recorder.start("one")
        recorder.append_samples("joints", samples(0, 250))
        recorder.append_frames("front", frames(0, 30))
    rng, n = np.random.default_rng(0), 0
    begin = time.monotonic()
    with (
        pytest.raises(StorageError, match=r"the disk is full.*free some space"),
        Recorder(small_disk / "late", FEATURES) as late,
    ):
        late.start("one")
        while time.monotonic() < begin + 30:
            if filled_by == "samples" or n < 250:
                late.append_samples("joints", samples(n, n + 250))
                n += 250
            noise = rng.integers(0, 255, (6, 48, 64, 3), dtype=np.uint8)
            late.append_frames("front", Frames(np.arange(6) / 30, noise))
    open_capture(small_disk / "early").verify()

    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    recovered = open_capture(small_disk / "late")
    recovered.verify()
    assert recovered.status.code == "interrupted"
    joints, video = recovered.recording().stream("joints"), recovered.recording().video("front")
    assert np.array_equal(joints.value[:, 0], np.arange(len(joints.t)))
    assert len(joints.t) >= n - 250
    assert len(read_video(video.path)) == len(video.t) > 0
