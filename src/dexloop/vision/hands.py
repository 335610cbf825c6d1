"""A person's hand in a video: 21 landmarks a frame, by MediaPipe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, UInt8

from dexloop.core.errors import InputError
from dexloop.vision.hand_bundle import bundle_path

LANDMARKS = 21


@dataclass(frozen=True, eq=False)
class HandTrack:
    """One hand through a video; frames in which it was not found hold NaN."""

    found: Bool[np.ndarray, " n"]
    landmarks_px: Float[np.ndarray, "n 21 2"]
    """Pixels, pixel centres at whole numbers: wrist, then thumb to little finger, each from root to tip."""
    world: Float[np.ndarray, "n 21 3"]
    """Shape of the hand about its middle, in the camera's axes [m]. Where the hand is, it does not say."""
    right: Bool[np.ndarray, " n"]
    """Whether the frame was taken for a right hand."""
    score: Float[np.ndarray, " n"]
    """How sure it is of that, 0 to 1."""

    @property
    def share_found(self) -> float:
        """Share of frames with a hand, 0 to 1."""
        return float(self.found.mean())

    @property
    def handedness(self) -> str:
        """ "right" or "left": what most frames say."""
        if not self.found.any():
            raise InputError("there is no hand in the video: neither a right nor a left one")
        return "right" if self.right[self.found].mean() >= 0.5 else "left"


def detect_hands(
    frames: Iterable[UInt8[np.ndarray, "h w 3"]],
    fps: float,
    *,
    bundle: str | Path | None = None,
    min_confidence: float = 0.5,
    mirrored: bool = False,
) -> HandTrack:
    """Tracks one hand through the frames of a video.

    Args:
        frames: RGB pictures in the order of time.
        fps: Frames per second.
        bundle: A `hand_landmarker.task` of one's own (see `hand_bundle`).
        min_confidence: Below this neither palm nor hand counts as found.
        mirrored: The picture is a mirror image, as from a selfie camera.

    Raises:
        InputError: There is no frame, or the rate is not positive.
        MissingPart: The model cannot be had.
    """
    if not fps > 0:
        raise InputError(f"frames per second must be positive, not {fps}")
    pixels: list[np.ndarray] = []
    world: list[np.ndarray] = []
    right: list[bool] = []
    score: list[float] = []
    with _Landmarker(bundle_path(bundle), min_confidence) as landmarker:
        for i, frame in enumerate(frames):
            h, w = frame.shape[:2]
            seen = landmarker.detect(frame, round(1000.0 * i / fps))
            if seen.hand_landmarks:
                # MediaPipe measures from the picture's edge; here a pixel's centre is a whole number.
                pixels.append(np.array([[p.x * w - 0.5, p.y * h - 0.5] for p in seen.hand_landmarks[0]]))
                world.append(np.array([[p.x, p.y, p.z] for p in seen.hand_world_landmarks[0]]))
                label = seen.handedness[0][0]
                # Unlike older versions, it takes a picture as it is, not for a mirror image.
                right.append((label.category_name == "Right") != mirrored)
                score.append(float(label.score))
            else:
                pixels.append(np.full((LANDMARKS, 2), np.nan))
                world.append(np.full((LANDMARKS, 3), np.nan))
                right.append(False)
                score.append(0.0)
    if not pixels:
        raise InputError("the video has no frames: nothing to look for a hand in")
    where = np.stack(pixels)
    return HandTrack(np.isfinite(where[:, 0, 0]), where, np.stack(world), np.array(right), np.array(score))


class _Landmarker:
    """MediaPipe's landmarker, closed when done: left open, it keeps its threads."""

    def __init__(self, bundle: Path, min_confidence: float):
        import mediapipe as mp
        from mediapipe.tasks.python import BaseOptions, vision

        self._mp = mp
        self._landmarker = vision.HandLandmarker.create_from_options(
            vision.HandLandmarkerOptions(
                base_options=BaseOptions(model_asset_path=str(bundle)),
                running_mode=vision.RunningMode.VIDEO,
                num_hands=1,
                min_hand_detection_confidence=min_confidence,
                min_hand_presence_confidence=min_confidence,
                min_tracking_confidence=min_confidence,
            )
        )

    def detect(self, frame: np.ndarray, time_ms: int):
        image = self._mp.Image(image_format=self._mp.ImageFormat.SRGB, data=np.ascontiguousarray(frame))
        return self._landmarker.detect_for_video(image, time_ms)

    def __enter__(self) -> _Landmarker:
        return self

    def __exit__(self, *_: object) -> None:
        self._landmarker.close()
