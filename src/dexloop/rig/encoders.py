"""Whether joint encoders are alive: one that repeats itself while its joint should move is not believed.

Two things give a frozen reading away. An encoder with noise never repeats itself, even at rest: if all of those do so
at once, the reading is an old one with a new time. An encoder without noise may repeat itself for long, but not while
its joint is told to go far.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numba import njit

NOISY = 200
"""So many different readings in a row at rest, and an encoder has noise."""
FROZEN_S = 0.1
"""A reading that stays the same while its joint is told to go as far as it could in this time is frozen [s]."""
ALIVE, NOT_FINITE, REPEATED = -1, -2, -3


class Encoders:
    """Watches the readings of all joints.

    Args:
        speed: Limits [rad/s or m/s].
    """

    def __init__(self, speed: Float[np.ndarray, " n"]):
        self._far = np.asarray(speed, dtype=np.float64) * FROZEN_S
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        n = len(self._far)
        self._last = np.full(n, np.nan)
        self._since, self._told = np.zeros(n), np.full(n, np.nan)
        self._different = np.zeros(n, dtype=np.int64)

    def see(self, reading: Float[np.ndarray, " n"], told: Float[np.ndarray, " n"]) -> int:
        """Returns ALIVE, NOT_FINITE, REPEATED (all that have noise repeat themselves), or the number of a joint whose
        reading stays the same though it was told to move.

        Args:
            reading: What the encoders say now [rad or m].
            told: What the joints were last told [rad or m]; NaN before the first command.
        """
        return int(_see(reading, told, self._last, self._since, self._told, self._different, self._far))


@njit(cache=True, nogil=True)
def _see(reading, told, last, since, told_before, different, far):
    n = len(reading)
    for i in range(n):
        if not np.isfinite(reading[i]):
            return NOT_FINITE
    noisy, repeated, frozen = 0, 0, ALIVE
    for i in range(n):
        same = reading[i] == last[i]
        has_noise = different[i] >= NOISY
        if has_noise:
            noisy += 1
            repeated += same
        if same:
            if since[i] != since[i]:  # the first command came after this reading
                since[i] = told[i]
            if abs(told[i] - since[i]) > far[i] and frozen == ALIVE:
                frozen = i
            if not has_noise:
                different[i] = 0
        else:
            since[i] = told[i]
            # NaN is not NaN: before the first command every joint rests.
            rests = told[i] == told_before[i] or told[i] != told[i]
            if not has_noise:
                different[i] = different[i] + 1 if rests else 0
        last[i] = reading[i]
        told_before[i] = told[i]
    if noisy > 0 and repeated == noisy:
        return REPEATED
    return frozen
