from __future__ import annotations

import struct
from pathlib import Path

import av
import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.vision.video import (
    VideoWriter,
    count_frames,
    frame_times,
    probe,
    read_frames,
    read_video,
    trim_fragments,
)


def picture(i: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A smooth gradient with a brightness that tells the frame."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x + i, y + 2 * i, np.full_like(x, 60 + i)], axis=-1).astype(np.uint8)


def write(path: Path, count: int = 40, fps: float = 30.0) -> Path:
    with VideoWriter(path, 64, 48, fps) as writer:
        for i in range(count):
            writer.write(picture(i))
    return path


def test_what_is_written_is_read(tmp_path: Path):
    path = write(tmp_path / "a.mp4")
    found = read_video(path)
    assert found.shape == (40, 48, 64, 3)
    assert found.dtype == np.uint8
    for i in (0, 17, 39):
        assert np.abs(found[i].astype(int) - picture(i)).mean() < 2.5
    some = list(read_frames(path, [3, 17, 39]))
    assert all(np.array_equal(a, found[i]) for a, i in zip(some, (3, 17, 39), strict=True))
    assert list(read_frames(path, [])) == []
    assert count_frames(path) == 40


@pytest.mark.parametrize("fps", [30.0, 29.97, 10.0, 240.0])
def test_probe_tells_size_rate_and_length(tmp_path: Path, fps: float):
    found = probe(write(tmp_path / "a.mp4", 50, fps))
    assert (found.width, found.height, found.frames) == (64, 48, 50)
    assert found.fps == pytest.approx(fps, rel=1e-4)
    assert found.duration == pytest.approx(50 / fps, rel=1e-3)
    assert frame_times(tmp_path / "a.mp4") == pytest.approx(np.arange(50) / fps, abs=1e-4)


def test_it_is_h264_that_others_can_play(tmp_path: Path):
    with av.open(str(write(tmp_path / "a.mp4"))) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"


def test_a_writer_that_is_never_closed_leaves_all_but_the_last_half_second(tmp_path: Path):
    writer = VideoWriter(tmp_path / "a.mp4", 64, 48, 30)
    for i in range(100):
        writer.write(picture(i))
    copy = tmp_path / "copy.mp4"
    copy.write_bytes((tmp_path / "a.mp4").read_bytes())
    writer.close()
    assert 100 - count_frames(copy) <= 15
    for torn in (1, 100, 1500):
        copy.write_bytes((tmp_path / "a.mp4").read_bytes()[:-torn])
        trim_fragments(copy)
        assert count_frames(copy) == len(frame_times(copy)) >= 75
    assert count_frames(tmp_path / "a.mp4") == 100


def test_a_phone_held_upright(tmp_path: Path):
    """The sensor's picture lies on its side and the track's matrix turns it a quarter clockwise."""
    path = write(tmp_path / "a.mp4", 5)
    data = bytearray(path.read_bytes())
    identity = struct.pack(">9i", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
    at = data.index(identity, data.index(b"tkhd"))
    data[at : at + 36] = struct.pack(">9i", 0, 0x10000, 0, -0x10000, 0, 0, 48 << 16, 0, 0x40000000)
    path.write_bytes(data)
    turned = read_video(path)
    assert (probe(path).width, probe(path).height) == (48, 64)
    assert turned.shape == (5, 64, 48, 3)
    # The sensor's left column, dark in red, becomes the top row.
    assert np.abs(turned[0].astype(int) - np.rot90(picture(0), -1)).mean() < 2.5


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"", "empty"),
        (b"\0\0\0\x18ftypisom\0\0\2\0isomiso2", "truncated MP4"),
        (b"t,x\n0,1\n" * 100, "no video"),
        (np.random.default_rng(0).bytes(5000), "no video"),
    ],
)
def test_what_is_no_video_is_one_clear_error(tmp_path: Path, content: bytes | None, words: str):
    path = tmp_path / "a.mp4"
    if content is not None:
        path.write_bytes(content)
    for read in (probe, count_frames, frame_times, read_video):
        with pytest.raises(InputError, match=words) as caught:
            read(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "keep"), [("", 0.2), ("", 0.9), ("faststart", 0.2), ("faststart", 0.5), ("faststart", 0.999)]
)
def test_a_truncated_ordinary_mp4_is_found(tmp_path: Path, keep: float, flags: str):
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w", options={"movflags": flags} if flags else {}) as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        noise = np.random.default_rng(0)
        for _ in range(30):
            frame = av.VideoFrame.from_ndarray(noise.integers(0, 255, (48, 64, 3), dtype=np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert count_frames(path) == 30
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(InputError, match="truncated"):
        count_frames(path)


def test_pictures_are_chosen_right_with_b_frames_and_long_groups(tmp_path: Path):
    """As cameras and other programs write them: pictures that are stored in another order than they are shown."""
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"bf": "3", "g": "50", "preset": "medium"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(160):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(i), format="rgb24")))
        container.mux(stream.encode(None))
    everything = read_video(path)
    assert len(everything) == 160
    for chosen in ([0], [159], range(100, 130), [3, 49, 50, 51, 149]):
        found = list(read_frames(path, list(chosen)))
        assert all(np.array_equal(a, everything[i]) for a, i in zip(found, chosen, strict=True))


def test_mistakes_are_told(tmp_path: Path):
    with pytest.raises(InputError, match="even width"):
        VideoWriter(tmp_path / "a.mp4", 63, 48, 30)
    with pytest.raises(InputError, match="positive"):
        VideoWriter(tmp_path / "a.mp4", 64, 48, 0)
    path = write(tmp_path / "b.mp4", 5)
    with pytest.raises(InputError, match="has 5 pictures: number 5"):
        list(read_frames(path, [1, 5]))
    with pytest.raises(InputError, match="increasing"):
        list(read_frames(path, [2, 1]))
    writer = VideoWriter(tmp_path / "c.mp4", 64, 48, 30)
    with pytest.raises(InputError, match="48 x 64 x 3"):
        writer.write(np.zeros((48, 64), np.uint8))
    writer.close()
    with pytest.raises(InputError, match="closed"):
        writer.write(picture(0))
