"""Video files: written so that a killed process leaves them readable, read as a stream of RGB pictures."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, UInt8

from dexloop.core.artifact import storage_errors
from dexloop.core.errors import InputError

if TYPE_CHECKING:
    import av.container
    import av.video.frame
    import av.video.stream

Picture = UInt8[np.ndarray, "h w 3"]


@dataclass(frozen=True)
class VideoProbe:
    """What a video file holds, as a player would show it."""

    width: int
    """[px]"""
    height: int
    """[px]"""
    fps: float
    """Average frame rate [1/s]."""
    frames: int
    duration: float
    """From the first picture to the end of the last [s]."""


class VideoWriter:
    """Writes H.264 in a fragmented MP4 file: each half second is complete on disk, whatever happens next.

    Args:
        path: The file; one that is there is replaced.
        width: [px], even, because colour is stored at half the resolution.
        height: [px], even.
        fps: Frame rate that players shall show [1/s].
        crf: Constant rate factor of x264; 17 is visually without loss.
        preset: x264's trade of time for file size.

    Raises:
        InputError: The size is odd or the frame rate is not positive.
        StorageError: The file cannot be made.
    """

    def __init__(
        self, path: str | Path, width: int, height: int, fps: float, *, crf: int = 17, preset: str = "veryfast"
    ):
        import av

        self.path, self.width, self.height, self.fps = Path(path), int(width), int(height), float(fps)
        self.frames = 0
        if min(self.width, self.height) < 2 or self.width % 2 or self.height % 2:
            raise InputError(
                f"a video cannot be {width} x {height} pixels: H.264 needs an even width and height; "
                f"crop or pad the pictures by one row or column"
            )
        if not (np.isfinite(fps) and fps > 0):
            raise InputError(f"a video's frame rate must be positive, not {fps}")
        with storage_errors(self.path):
            # The file is ours and unbuffered, so that what was muxed is in the system's hands at once and so that an
            # error of the disk arrives as the OSError that it is.
            self._file = _Whole(self.path.open("wb", buffering=0))
        with self._guard():
            self._container = av.open(
                self._file,
                "w",
                format="mp4",
                container_options={"movflags": "frag_keyframe+empty_moov+default_base_moof", "flush_packets": "1"},
            )
            rate = Fraction(self.fps).limit_denominator(100_000)
            gop = max(1, round(self.fps / 2))
            options: dict[str, object] = {
                "crf": str(crf),
                "preset": preset,
                "tune": "zerolatency",
                "g": str(gop),
                "keyint_min": str(gop),
            }
            self._stream = self._container.add_stream("libx264", rate=rate)
            self._stream.width, self._stream.height = self.width, self.height
            self._stream.pix_fmt = "yuv420p"
            self._stream.options = options | {"sc_threshold": "0"}
        self._open = True

    def write(self, picture: Picture) -> None:
        """Appends one RGB picture.

        Raises:
            InputError: It has another size than the video.
            StorageError: The disk is full; the file is readable up to the last half second.
        """
        import av

        if not self._open:
            raise InputError(f"{self.path} is closed: no picture can be added")
        self.check(picture)
        with self._guard():
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts = self.frames
            self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def check(self, picture: np.ndarray) -> None:
        """Raises `InputError` if this is no RGB picture of the video's size."""
        if picture.shape != (self.height, self.width, 3) or picture.dtype != np.uint8:
            raise InputError(
                f"{self.path.name} takes pictures of {self.height} x {self.width} x 3 bytes, not "
                f"{' x '.join(map(str, picture.shape))} {picture.dtype}"
            )

    def sync(self) -> None:
        """Asks the system to put what was written on the disk, against a power cut."""
        if self._open:
            with self._guard():
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Writes what is still in the encoder; safe to call twice."""
        if not self._open:
            return
        self._open = False
        try:
            with self._guard():
                self._container.mux(self._stream.encode(None))
                self._container.close()
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Lets go of the file without writing any more, after the disk failed."""
        self._open = False
        with contextlib.suppress(Exception):
            self._file.close()
        with contextlib.suppress(Exception):
            self._container.close()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        with storage_errors(self.path):
            yield

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Whole:
    """A raw file whose `write` writes everything or raises, and that cannot seek, so that muxing only ever appends."""

    def __init__(self, raw: io.FileIO):
        self._raw = raw
        self.fileno, self.close = raw.fileno, raw.close

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while len(view):
            view = view[self._raw.write(view) :]
        return len(data)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[tuple[av.container.InputContainer, av.video.stream.VideoStream]]:
    """Opens a video for reading and turns whatever is wrong with it into one `InputError`."""
    import av
    from av.error import FFmpegError

    if not path.is_file():
        raise InputError(f"{path} does not exist: no video can be read")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty (0 bytes): record or copy the video again")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise InputError(f"{path} holds no video: it has only {_kinds(container)}")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            yield container, stream
    except FFmpegError as error:
        if _looks_like_mp4(path):
            raise InputError(
                f"{path} is a damaged or truncated MP4 ({error.strerror}): copy it again, or repair it with ffmpeg"
            ) from error
        raise InputError(
            f"{path} is no video that can be read ({error.strerror}): give an MP4 file with H.264, H.265, AV1 or VP9"
        ) from error


def _kinds(container: av.container.InputContainer) -> str:
    return ", ".join(sorted({s.type for s in container.streams})) or "nothing"


def _looks_like_mp4(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(12)[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free")


def _turned(frame: av.video.frame.VideoFrame) -> Picture:
    """Returns the picture upright: phones store it as the sensor saw it and say how to turn it."""
    return np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90))


def read_frames(path: str | Path, indices: Sequence[int] | None = None) -> Iterator[Picture]:
    """Reads pictures one after another, without holding the video in memory.

    Args:
        path: Video file.
        indices: Which pictures, counted from 0 in increasing order; all if left out.

    Raises:
        InputError: The file is missing, no video, damaged, or has fewer pictures than asked for.
    """
    path = Path(path)
    if indices is not None:
        yield from _read_chosen(path, [int(i) for i in indices])
        return
    count = 0
    with _reading(path) as (container, stream):
        for frame in container.decode(stream):
            yield _turned(frame)
            count += 1
    if count == 0:
        raise InputError(f"{path} has no picture in it: record or copy the video again")


def _read_chosen(path: Path, wanted: list[int]) -> Iterator[Picture]:
    if min(wanted, default=0) < 0 or any(a >= b for a, b in itertools.pairwise(wanted)):
        raise InputError(f"pictures of {path} must be asked for in increasing order, from 0 on")
    if not wanted:
        return
    pts = _shown_at(path)[0]
    if wanted[-1] >= len(pts):
        raise InputError(f"{path} has {len(pts)} pictures: number {wanted[-1]} (counted from 0) does not exist")
    left = [int(pts[i]) for i in reversed(wanted)]
    with _reading(path) as (container, stream):
        # An episode in the middle of a long file: begin at the last key frame before it.
        container.seek(left[-1], stream=stream, backward=True)
        for frame in container.decode(stream):
            if frame.pts == left[-1]:
                yield _turned(frame)
                left.pop()
                if not left:
                    return
    raise InputError(f"{path} is damaged: picture {wanted[-len(left)]} (counted from 0) cannot be read; copy it again")


def read_video(path: str | Path) -> UInt8[np.ndarray, "n h w 3"]:
    """Reads a whole video into memory; see `read_frames` for long ones."""
    return np.stack(list(read_frames(path)))


def count_frames(path: str | Path) -> int:
    """Decodes everything and returns how many pictures there are; a damaged tail raises `InputError`."""
    path = Path(path)
    with _reading(path) as (container, stream):
        decoded = sum(1 for _ in container.decode(stream))
        promised = stream.frames
    if decoded < promised:
        raise InputError(
            f"{path} is a damaged or truncated MP4: {decoded} of its {promised} pictures can be read; copy it again"
        )
    return decoded


def frame_times(path: str | Path) -> Float[np.ndarray, " n"]:
    """Returns when each picture is shown, as the file says [s from the first picture].

    Phones film at a varying rate, so these are better than `index / fps` where nothing else is known.
    """
    pts, base = _shown_at(Path(path))
    return (pts - pts[0]).astype(np.float64) * base


def _shown_at(path: Path) -> tuple[Int[np.ndarray, " n"], float]:
    """Returns when each picture is shown, in ticks, and the length of a tick [s], without decoding anything."""
    with _reading(path) as (container, stream):
        pts = np.sort([p.pts for p in container.demux(stream) if p.pts is not None and p.size]).astype(np.int64)
        base = stream.time_base
    if not len(pts):
        raise InputError(f"{path} has no picture in it: record or copy the video again")
    return pts, float(base or 1)


def probe(path: str | Path) -> VideoProbe:
    """Returns size, rate and length of a video. Pictures are counted by their packets; only the first is decoded.

    Raises:
        InputError: The file is missing, empty, truncated or no video.
    """
    path = Path(path)
    with _reading(path) as (container, stream):
        first = next(iter(container.decode(stream)), None)
        if first is None:
            raise InputError(f"{path} has no picture in it: record or copy the video again")
        rate = float(stream.average_rate or 0)
        promised = stream.frames
    t = frame_times(path)
    if len(t) < promised:
        raise InputError(
            f"{path} is a damaged or truncated MP4: {len(t)} of its {promised} pictures are there; copy it again"
        )
    if len(t) > 1:
        rate = float((len(t) - 1) / t[-1]) if t[-1] > 0 else rate
    width, height = (first.width, first.height) if first.rotation % 180 == 0 else (first.height, first.width)
    return VideoProbe(width, height, rate, len(t), float(t[-1] + (1 / rate if rate else 0.0)))


def trim_fragments(path: str | Path) -> None:
    """Cuts a fragmented MP4 of `VideoWriter` behind its last complete fragment, after its writer was killed.

    An MP4 file is a row of boxes, each led by its length (4 bytes, big-endian) and its type (4 letters).
    """
    path = Path(path)
    size, at, whole = path.stat().st_size, 0, 0
    with path.open("rb") as file:
        while at + 8 <= size:
            file.seek(at)
            head = file.read(16)
            length = int.from_bytes(head[:4], "big")
            if length == 1:  # a long box carries 8 bytes of length behind its type
                length = int.from_bytes(head[8:16], "big")
            if length < 8 or at + length > size:
                break
            at += length
            if head[4:8] in (b"moov", b"mdat"):  # a fragment is a `moof` and the `mdat` behind it
                whole = at
    if whole < size:
        os.truncate(path, whole)
