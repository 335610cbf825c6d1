"""Which pictures of a scan to use: sharp ones, spread over the camera's motion, none twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dexloop.core.camera import Camera
from dexloop.core.capture import Recording, Video
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.vision.video import read_frames

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
GUESSED_FOV = 1.1
"""Across the longer side of a usual phone's picture [rad]."""

_SMALL_PX = 240
"""Longer side of what motion and sharpness are read from."""
_STILL = 0.004
"""Less motion than this, as a fraction of the picture's width, shows the same thing again."""
_LOST = 0.25
"""Motion that is written down where nothing could be followed from one picture to the next, same unit."""
_FLAT_GREY = 4.0
"""Standard deviation of grey levels below which a picture shows nothing."""
_SOFTER = 0.6
"""A picture with less than this part of its neighbours' sharpness is shaken."""
_BLURRED = 0.55
"""Blur (see `_blur`) above which fine detail is gone."""
_FEWEST = 8
"""Pictures below which no object is seen from all sides."""


@dataclass(frozen=True, eq=False)
class Frame:
    """A picture of a scan, not yet located."""

    name: str
    index: int
    """Its number in the video or the folder, from 0."""
    rgb: UInt8[np.ndarray, "h w 3"]
    camera: Camera
    """Nominal intrinsics, at the picture's own size."""
    sharpness: float
    """Variance of the Laplacian over that of its neighbours in time; 1 is usual."""


@dataclass(frozen=True, eq=False)
class Frames:
    """The pictures to use, and what was found out while choosing them."""

    frames: tuple[Frame, ...]
    camera_known: bool
    """False if the focal length was guessed."""
    statuses: tuple[Status, ...]


def choose_frames(
    source: Recording | str | Path, *, camera: Camera | None = None, count: int = 60, max_side_px: int = 960
) -> Frames:
    """Chooses pictures of a video, or of a folder of pictures.

    The camera's way is cut into `count` pieces of equal motion (median displacement of followed points), and the
    sharpest picture of each is taken: standing still adds nothing, and a shaken stretch is bridged by its best frame.

    Args:
        source: A recording with one video, a video file, or a folder with pictures in the order of their names.
        camera: Nominal intrinsics at full size; a `Recording` brings its own. Guessed if nobody says.
        count: How many at most.
        max_side_px: Larger pictures are made smaller, to this longer side [px].

    Raises:
        InputError: Nothing usable is in it; the message says what to film again.
    """
    if count < _FEWEST:
        raise InputError(f"{count} pictures are too few to see an object from all sides: ask for {_FEWEST} or more")
    known = camera is not None
    if isinstance(source, Recording):
        video = _video(source)
        known = known or not any(status.code == "camera_guessed" for status in source.checks)
        camera, path = camera or video.info.camera, video.path
    else:
        path = Path(source)
    files = _pictures(path) if path.is_dir() else None
    statuses: list[Status] = []
    look = _Looks(path)
    for k, picture in enumerate(_read(path, files, None, statuses)):
        look.add(k, picture)
    if not look.indices:
        raise InputError(f"{path} holds no picture that can be read: copy or film it again")
    chosen = look.choose(count, statuses)
    names = {k: files[k].stem if files else f"{path.stem}_{k:05d}" for k in chosen}
    pictures = _read(path, files, chosen, [])
    frames = [
        _frame(names[k], k, picture, camera, max_side_px, float(look.relative[k]))
        for k, picture in zip(chosen, pictures, strict=True)
    ]
    sizes = {(f.camera.width, f.camera.height) for f in frames}
    if len(sizes) > 1:
        listed = ", ".join(f"{w} x {h}" for w, h in sorted(sizes))
        statuses.append(
            Status(Level.WARN, "mixed_sizes", f"pictures have several sizes ({listed} px); each is a camera of its own")
        )
    if not known:
        statuses.append(
            Status(Level.WARN, "camera_guessed", "the focal length is not known and will be found from the scan")
        )
    return Frames(tuple(frames), known, tuple(statuses))


class _Looks:
    """What is remembered of every picture while the scan is read once: no more than a thumbnail."""

    def __init__(self, path: Path):
        self.path = path
        self.indices: list[int] = []
        self._sharp: list[float] = []
        self._blur: list[float] = []
        self._contrast: list[float] = []
        self._motion: list[float] = []
        self._thumbs: list[np.ndarray] = []
        self._last: np.ndarray | None = None
        self.relative: dict[int, float] = {}

    def add(self, index: int, picture: UInt8[np.ndarray, "h w 3"]) -> None:
        import cv2

        scale = _SMALL_PX / max(picture.shape[:2])
        size = (max(round(picture.shape[1] * scale), 8), max(round(picture.shape[0] * scale), 8))
        grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
        small = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
        self.indices.append(index)
        # Twice the thumbnail's size still shows the blur of a shaken hand, and reads alike for any resolution.
        wide, high = 2 * size[0], 2 * size[1]
        fine = cv2.resize(grey, (wide, high), interpolation=cv2.INTER_AREA) if wide < grey.shape[1] else grey
        self._sharp.append(float(cv2.Laplacian(fine, cv2.CV_32F).var()))
        self._blur.append(_blur(fine.astype(np.float32)))
        self._contrast.append(float(small.std()))
        self._motion.append(0.0 if self._last is None else _motion(self._last, small))
        self._thumbs.append(cv2.resize(small, (32, 32), interpolation=cv2.INTER_AREA))
        self._last = small

    def choose(self, count: int, statuses: list[Status]) -> list[int]:
        """Returns the numbers of the pictures to use, in order."""
        contrast, blur = np.array(self._contrast), np.array(self._blur)
        n = len(self.indices)
        seen = contrast > _FLAT_GREY
        if not seen.any():
            mean = "black" if np.mean([t.mean() for t in self._thumbs]) < 20 else "of one grey"
            raise InputError(
                f"{self.path}: all {n} pictures are {mean} (contrast {contrast.max():.1f} grey levels): take the cap "
                f"off, turn the light on and film again"
            )
        if not seen.all():
            statuses.append(_drop("blank", int((~seen).sum()), n, "showed nothing"))
        relative = _relative(np.array(self._sharp), seen)
        self.relative = dict(zip(self.indices, relative.tolist(), strict=True))
        again = _again(np.stack(self._thumbs), np.array(self._motion), seen)
        if again.any():
            statuses.append(_drop("duplicates", int(again.sum()), n, "showed the same as another one"))
        use = seen & ~again
        if int(use.sum()) < _FEWEST:
            raise InputError(
                f"{self.path} has only {int(use.sum())} different pictures ({n} in all): walk once around the object, "
                f"so that there are {_FEWEST} or more, better 40"
            )
        soft = use & (relative < _SOFTER)
        if (use & ~soft).sum() >= _FEWEST and soft.any():
            statuses.append(_drop("shaken", int(soft.sum()), n, "were less sharp than their neighbours"))
            use &= ~soft
        if float(np.median(blur[use])) > _BLURRED:
            statuses.append(
                Status(
                    Level.WARN,
                    "blurred",
                    f"the pictures are blurred throughout (blur {np.median(blur[use]):.2f} of 1)",
                    "film again: walk slower, with more light, and let the camera focus",
                )
            )
        return [self.indices[k] for k in _spread(np.cumsum(self._motion), relative, use, count)]


def _spread(
    way: Float[np.ndarray, " n"], sharp: Float[np.ndarray, " n"], use: Bool[np.ndarray, " n"], count: int
) -> Int[np.ndarray, " m"]:
    """Returns the sharpest usable picture of each of `count` equal pieces of the way."""
    index = np.flatnonzero(use)
    if len(index) <= count:
        return index
    at = way[index] - way[index[0]]
    piece = np.minimum((at / max(at[-1], 1e-9) * count).astype(int), count - 1)
    order = np.lexsort((-sharp[index], piece))
    first = np.unique(piece[order], return_index=True)[1]
    return np.sort(index[order[first]])


def _relative(sharp: Float[np.ndarray, " n"], seen: Bool[np.ndarray, " n"], reach: int = 5) -> Float[np.ndarray, " n"]:
    """Sharpness over its median among the neighbours in time, so that a change of scenery does not count as blur."""
    padded = np.pad(np.where(seen, sharp, np.nan), reach, constant_values=np.nan)
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    full = np.where(np.isnan(around).all(axis=1, keepdims=True), 1.0, around)
    return np.where(seen, sharp, 0.0) / np.maximum(np.nanmedian(full, axis=1), 1e-6)


def _again(
    thumbs: UInt8[np.ndarray, "n h w"], motion: Float[np.ndarray, " n"], seen: Bool[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Returns which pictures repeat an earlier one: not moved since it, or the same picture at another place."""
    again = np.zeros(len(motion), bool)
    since = 0.0
    for k in range(1, len(motion)):
        since += motion[k]
        again[k] = since < _STILL
        since = 0.0 if not again[k] else since
    # Noise differs by some grey levels; another view differs by tens.
    small = thumbs.reshape(len(thumbs), -1).astype(np.float32)
    square = np.sum(small**2, axis=1)
    distance = np.sqrt(np.maximum(square[:, None] + square[None] - 2 * small @ small.T, 0) / small.shape[1])
    same = np.tril(distance < 0.5, -1) & ~again[None] & seen[None]
    return (again | same.any(axis=1)) & seen


def _motion(before: UInt8[np.ndarray, "h w"], after: UInt8[np.ndarray, "h w"]) -> float:
    """Median displacement of followed points, as a fraction of the picture's width."""
    import cv2

    if before.shape != after.shape:
        return _LOST
    corners = cv2.goodFeaturesToTrack(before, 150, 0.01, 5)
    if corners is None or len(corners) < 12:
        return _LOST if np.abs(before.astype(np.int16) - after).mean() > 1.0 else 0.0
    moved, found, _ = cv2.calcOpticalFlowPyrLK(before, after, corners, np.zeros_like(corners))
    ok = np.asarray(found).ravel() > 0
    if ok.mean() < 0.3:
        return _LOST
    step = np.linalg.norm(np.asarray(moved - corners).reshape(-1, 2)[ok], axis=1)
    return float(min(np.median(step) / before.shape[1], _LOST))


def _blur(grey: Float[np.ndarray, "h w"]) -> float:
    """Returns 0 for a sharp and 1 for a blurred picture: how little of its fine change more blur takes away.

    After Crete et al., "The blur effect" (2007).
    """
    import cv2

    worst = 0.0
    for kernel in ((9, 1), (1, 9)):
        axis = 1 if kernel[0] > 1 else 0
        soft = cv2.blur(grey, kernel)
        change, left = np.abs(np.diff(grey, axis=axis)), np.abs(np.diff(soft, axis=axis))
        worst = max(worst, 1.0 - float(np.maximum(change - left, 0).sum() / max(change.sum(), 1e-6)))
    return worst


def _drop(code: str, dropped: int, of: int, why: str) -> Status:
    level = Level.WARN if dropped > 0.5 * of else Level.OK
    action = "film again, slower and without stopping" if level is Level.WARN else ""
    return Status(level, code, f"{dropped} of {of} pictures {why} and were left out", action)


def _frame(
    name: str,
    index: int,
    picture: UInt8[np.ndarray, "h w 3"],
    camera: Camera | None,
    max_side_px: int,
    sharpness: float,
) -> Frame:
    import cv2

    h, w = picture.shape[:2]
    full = _fitted(camera, w, h) if camera is not None else guess_camera(w, h)
    scale = min(1.0, max_side_px / max(w, h))
    if scale < 1.0:
        picture = cv2.resize(picture, (round(w * scale), round(h * scale)), interpolation=cv2.INTER_AREA)
    return Frame(name, index, picture, full.resized(picture.shape[1], picture.shape[0]), sharpness)


def _fitted(camera: Camera, width: int, height: int) -> Camera:
    """Returns the camera at a picture's size; the picture must be a scaled version of what the camera takes."""
    if (camera.width, camera.height) == (width, height):
        return camera
    if abs(camera.width * height / (camera.height * width) - 1.0) < 0.01:
        return camera.resized(width, height)
    return guess_camera(width, height)  # turned or cropped: what is known does not fit


def guess_camera(width: int, height: int) -> Camera:
    """Returns a camera with the field of view of a usual phone."""
    focal = 0.5 * max(width, height) / float(np.tan(0.5 * GUESSED_FOV))
    return Camera("phone", width, height, focal, focal, 0.5 * (width - 1), 0.5 * (height - 1))


def _video(recording: Recording) -> Video:
    if len(recording.videos) != 1:
        raise UnknownName("video", "", recording.videos, f"Recording {recording.name!r} must hold one video of a scan.")
    return recording.video(next(iter(recording.videos)))


def _pictures(folder: Path) -> list[Path]:
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise InputError(f"{folder} holds no picture: put {', '.join(IMAGE_SUFFIXES)} files there, or give a video")
    return files


def _read(
    path: Path, files: list[Path] | None, chosen: list[int] | None, statuses: list[Status]
) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    if files is None:
        yield from read_frames(path, chosen)
        return
    import cv2

    broken = []
    for file in files if chosen is None else [files[k] for k in chosen]:
        found = cv2.imread(str(file), cv2.IMREAD_COLOR)
        if found is None:
            broken.append(file.name)
            # A place is kept for it, so that numbers stay those of the folder; nothing is to be seen there.
            yield np.zeros((8, 8, 3), np.uint8)
        else:
            yield np.ascontiguousarray(found[..., ::-1])
    if broken:
        named = ", ".join(broken[:3]) + (" ..." if len(broken) > 3 else "")
        statuses.append(
            Status(Level.WARN, "broken_pictures", f"{len(broken)} files cannot be read: {named}", "copy them again")
        )
