"""What a fixed camera sees behind the object: learnt as the video goes on, wherever the object is not."""

from __future__ import annotations

import cv2
import numpy as np
from jaxtyping import Bool, Float

_SAME = 12.0
"""Grey levels within which a pixel shows what it showed before."""
_PERSISTENT = 6
"""Frames after which something new that stays is background."""
_MEMORY = 0.15
"""Weight of a new frame where nothing changed."""


class Background:
    """Grey levels of the scene without the object, and where they are known.

    Args:
        shape: Height and width of the picture [px].
    """

    def __init__(self, shape: tuple[int, int]):
        self.grey = np.zeros(shape, dtype=np.float32)
        self.known = np.zeros(shape, dtype=bool)
        self._new = np.zeros(shape, dtype=np.float32)
        self._age = np.zeros(shape, dtype=np.uint8)

    def learn(self, grey: Float[np.ndarray, "h w"], free: Bool[np.ndarray, "h w"]) -> None:
        """Takes in a frame.

        Args:
            grey: The frame.
            free: Where the object surely is not.
        """
        first = free & ~self.known
        self.grey[first], self.known[first] = grey[first], True
        old = free & ~first
        same = old & (np.abs(grey - self.grey) < _SAME)
        self.grey[same] += _MEMORY * (grey[same] - self.grey[same])
        # A hand that passes by is no background, but what it uncovers is, and so is what was put down.
        other = old & ~same
        steady = other & (np.abs(grey - self._new) < _SAME)
        self._age[~steady] = 0
        self._age[steady] += 1
        self._new[other] = grey[other]
        settled = self._age >= _PERSISTENT
        self.grey[settled], self._age[settled] = grey[settled], 0

    def region(
        self, left: int, top: int, width: int, height: int
    ) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
        """Returns grey levels of a region, guessed from around where unknown, and how far each is known (0 to 1)."""
        grey, known = cut(self.grey, left, top, width, height), cut(self.known, left, top, width, height)
        k = known.astype(np.float32)
        if k.all():
            return grey, k
        seen, missing = np.where(known, grey, 0.0).astype(np.float32), ~known
        filled = seen.copy()
        for sigma in (2.0, 6.0, 20.0):
            weight = cv2.GaussianBlur(k, (0, 0), sigma)
            near = missing & (weight > 0.02)
            filled[near] = cv2.GaussianBlur(seen, (0, 0), sigma)[near] / weight[near]
            missing &= ~near
        filled[missing] = float(grey[known].mean()) if known.any() else 128.0
        return filled, k


def cut(values: np.ndarray, left: int, top: int, width: int, height: int) -> np.ndarray:
    """Returns a region of a picture; zero where the region reaches beyond it."""
    out = np.zeros((height, width, *values.shape[2:]), dtype=values.dtype)
    h, w = values.shape[:2]
    x0, x1, y0, y1 = max(left, 0), min(left + width, w), max(top, 0), min(top + height, h)
    if x0 < x1 and y0 < y1:
        out[y0 - top : y1 - top, x0 - left : x1 - left] = values[y0:y1, x0:x1]
    return out
