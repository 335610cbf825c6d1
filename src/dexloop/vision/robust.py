"""Least squares on pictures: what does not belong is left out, and neighbours that err together count once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

_REJECT = 4.0
"""Residuals beyond this many standard deviations count as something else: a finger, a highlight."""
_BLOCK_PX = 16
"""Side of the blocks whose errors are taken as independent of each other [px]."""


def tukey(
    residual: Float[np.ndarray, " m"], *, least: float = 0.5, most: float = np.inf
) -> tuple[Float[np.ndarray, " m"], float]:
    """Returns Tukey's weights, 0 to 1, and the scale of the residuals (1.48 median |r|, kept between two bounds)."""
    scale = float(np.clip(1.4826 * np.median(np.abs(residual)), least, most)) if len(residual) else least
    return np.clip(1.0 - (residual / (_REJECT * scale)) ** 2, 0.0, None) ** 2, scale


def block_of(rows: Int[np.ndarray, " m"], columns: Int[np.ndarray, " m"], width: int) -> Int[np.ndarray, " m"]:
    """Returns the number of the block that each pixel lies in, in a picture of some width [px]."""
    return (rows // _BLOCK_PX) * (width // _BLOCK_PX + 1) + columns // _BLOCK_PX


def block_sums(values: Float[np.ndarray, "m p"], block: Int[np.ndarray, " m"]) -> Float[np.ndarray, "b p"]:
    """Returns the sums of the rows over each block."""
    size = int(block.max()) + 1 if len(block) else 1
    return np.stack([np.bincount(block, column, minlength=size) for column in values.T], axis=1)


def weighted_correlation(
    a: Float[np.ndarray, " m"], b: Float[np.ndarray, " m"], weight: Float[np.ndarray, " m"]
) -> float:
    """Returns the correlation of two pictures over what counts, -1 to 1; 0 where one of them is even."""
    w = weight / max(float(weight.sum()), 1e-9)
    a, b = a - w @ a, b - w @ b
    return float((w * a) @ b / np.sqrt(max(float((w * a) @ a) * float((w * b) @ b), 1e-12)))
