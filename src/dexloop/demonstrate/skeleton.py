"""What 21 landmarks say about a human hand: where its palm is, how long its fingers are."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError

FINGERS = ("thumb", "index", "middle", "ring", "little")
KNUCKLES = {"thumb": 1, "index": 5, "middle": 9, "ring": 13, "little": 17}
"""First landmark of each finger; three more follow, the last of them the tip."""
WRIST = 0
_LEAST_M2 = 1e-4
"""A palm between wrist and knuckles is never smaller [m²]: less is a line, or not in metres."""
_BEFORE = 0.1
"""Share that the joints before the tips have in the line between two fingers."""


def check(landmarks: np.ndarray) -> Float[np.ndarray, "n 21 3"]:
    """Returns landmarks as they are, if they can be used.

    Raises:
        InputError: They have another shape, no frame, or frames without a hand, which it names.
    """
    points = np.asarray(landmarks, dtype=np.float64)
    if points.ndim != 3 or points.shape[1:] != (21, 3) or not len(points):
        raise InputError(
            f"landmarks are n x 21 x 3, at least one frame; these are {' x '.join(map(str, points.shape))}"
        )
    gone = np.flatnonzero(~np.isfinite(points).all(axis=(1, 2)))
    if len(gone):
        raise InputError(f"there is no hand in {frames(gone)} of {len(points)}: leave them out, or fill them in first")
    return points


def frames(numbers: np.ndarray) -> str:
    """Names some frames in a message: the first few of them."""
    shown = ", ".join(str(int(k)) for k in numbers[:8])
    return f"frame{'s' * (len(numbers) > 1)} {shown}" + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")


def tip(points: Float[np.ndarray, "n 21 3"], finger: str) -> Float[np.ndarray, "n 3"]:
    """Returns the landmark at the end of a finger."""
    return points[:, KNUCKLES[finger] + 3]


def palm(points: Float[np.ndarray, "n 21 3"], *, right: bool) -> Float[np.ndarray, "n 4 4"]:
    """Returns the pose of the palm: origin in the wrist, x towards the knuckles, z out of the palm.

    The normal is that of the plane that fits wrist and knuckles best, so that one landmark that is off turns it less
    than if three of them told it. Index and little knuckle tell which side is which.
    """
    wrist = points[:, WRIST]
    spokes = points[:, [KNUCKLES[f] for f in FINGERS[1:]]] - wrist[:, None]
    area = 0.5 * np.cross(spokes[:, 0], spokes[:, -1]) * (1.0 if right else -1.0)
    flat = np.flatnonzero(np.linalg.norm(area, axis=1) < _LEAST_M2)
    if len(flat):
        raise InputError(
            f"wrist and knuckles lie on a line in {frames(flat)}: these are not landmarks of a hand in metres"
        )
    corners = np.concatenate([np.zeros((len(points), 1, 3)), spokes], axis=1)
    z = np.linalg.svd(corners - corners.mean(axis=1, keepdims=True))[2][:, 2]
    z = z * np.where(np.sum(z * area, axis=1, keepdims=True) < 0, -1.0, 1.0)
    x = spokes.mean(axis=1)
    x = unit(x - z * np.sum(x * z, axis=1, keepdims=True))
    return se3.from_rt(np.stack([x, np.cross(z, x), z], axis=-1), wrist)


def jaws(points: Float[np.ndarray, "n 21 3"], fingers: tuple[str, str]) -> Float[np.ndarray, "n 4 4"]:
    """Returns the pose of two fingers taken as a gripper's jaws: x from the first to the second, z the way they point.

    The origin is in the wrist. Where the tips touch, the joints before them still tell the line of the jaws.
    """
    (first, before_first), (second, before_second) = ((tip(points, f), points[:, KNUCKLES[f] + 2]) for f in fingers)
    x = unit(second - first + _BEFORE * (before_second - before_first))
    z = 0.5 * (first + second) - points[:, WRIST]
    z = unit(z - x * np.sum(x * z, axis=1, keepdims=True))
    return se3.from_rt(np.stack([x, np.cross(z, x), z], axis=-1), points[:, WRIST])


def lengths(points: Float[np.ndarray, "n 21 3"]) -> dict[str, float]:
    """Returns the length of each finger from its first landmark to its tip [m]: of each bone the median over frames."""
    found = {}
    for finger, first in KNUCKLES.items():
        bones = np.linalg.norm(np.diff(points[:, first : first + 4], axis=1), axis=-1)
        found[finger] = float(np.median(bones, axis=0).sum())
    return found


def unit(v: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
    """Returns vectors of length 1."""
    return v / np.linalg.norm(v, axis=-1, keepdims=True)
