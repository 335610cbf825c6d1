"""How a grasp went, told from signals alone: the same for a real robot and for a simulated one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core import se3

SLIP_M = 0.01
"""What moves farther in the hand has slipped [m]."""
LIFTED = 0.5
"""It was lifted if it rose by this share of what the palm did."""
LEAST_M = 0.05
"""A palm that rose by less has lifted nothing [m]."""
SEEN_S = 0.06
"""Slip is a mean over this time, for trackers are noisy [s]."""
OFF_M = 0.005
"""What has risen by this is off the table [m]."""
HELD, SLIPPED, DROPPED, MISSED, CRUSHED = "held", "slipped", "dropped", "missed", "crushed"
DIVERGED, LATE, STOPPED = "diverged", "late", "stopped"


@dataclass(frozen=True)
class Outcome:
    """What came of one trial."""

    verdict: str
    """"held", or why it was not: "slipped", "dropped", "missed" (never lifted), "crushed", "diverged" (a simulation),
    "late" (it never came to lift), "stopped" (by the gate)."""
    slip_m: float
    """Farthest that the object moved in the palm's frame after the squeeze [m]."""
    rise_m: float
    """Of the object in the end [m]."""
    peak_force_n: float
    """Highest sum of what the fingertips felt [N]."""
    off_s: float
    """When it left the table, after the lift began [s]; NaN if never."""

    @property
    def held(self) -> bool:
        """Whether it was held to the end."""
        return self.verdict == HELD


def outcome(
    t: Float[np.ndarray, " m"],
    T_world_palm: Float[np.ndarray, "m 4 4"],
    T_world_object: Float[np.ndarray, "m 4 4"],
    touch: Float[np.ndarray, "m f"],
    *,
    lift: int | None,
    crush_n: float = np.inf,
    failure: str = "",
) -> Outcome:
    """Judges one trial.

    Args:
        t: Moments, evenly spaced [s].
        T_world_palm: The palm's poses.
        T_world_object: The object's.
        touch: What each fingertip felt [N].
        lift: At which moment the lift began; None if it never did.
        crush_n: Grip force that the object bears: half of all forces [N].
        failure: What ended the trial before its time: "diverged", "late" or "stopped".
    """
    force = touch.sum(axis=1)
    peak = float(force.max(initial=0.0))
    height = T_world_object[:, 2, 3]
    if lift is None or lift >= len(t):  # or it was stopped as the lift began
        return Outcome(failure or LATE, 0.0, float(height[-1] - height[0]), peak, np.nan)
    few = max(round(SEEN_S / float(t[1] - t[0])), 1)
    place = se3.transform(se3.inverse(T_world_palm), T_world_object[:, :3, 3])
    smooth = np.stack([place[max(k - few + 1, 0) : k + 1].mean(axis=0) for k in range(lift, len(t))])
    slip = float(np.linalg.norm(smooth - place[max(lift - few, 0) : lift + 1].mean(axis=0), axis=1).max())
    rise, raised = height[lift:] - height[lift], float(T_world_palm[-1, 2, 3] - T_world_palm[lift, 2, 3])
    off = np.flatnonzero(rise > OFF_M)
    said = failure or _verdict(rise, raised, slip, 0.5 * peak, crush_n)
    return Outcome(said, slip, float(rise[-1]), peak, float(t[lift + off[0]] - t[lift]) if len(off) else np.nan)


def _verdict(rise: np.ndarray, raised: float, slip: float, grip_n: float, crush_n: float) -> str:
    if grip_n > crush_n:
        return CRUSHED
    if raised < LEAST_M or rise[-1] < LIFTED * raised:
        return DROPPED if rise.max() > LIFTED * max(raised, LEAST_M) else MISSED
    return HELD if slip <= SLIP_M else SLIPPED
