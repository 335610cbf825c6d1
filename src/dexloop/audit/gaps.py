"""How far simulation and reality are apart, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dexloop.robots.outcome import Outcome

_Z = 1.96
"""Of 95 % intervals."""


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Returns the 95 % interval of a rate (Wilson's score interval)."""
    if trials == 0:
        return 0.0, 1.0
    p, z2 = successes / trials, _Z**2 / trials
    middle, half = p + z2 / 2, _Z * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials))
    return max((middle - half) / (1 + z2), 0.0), min((middle + half) / (1 + z2), 1.0)


def rate_gap(sim: Sequence[bool], real: Sequence[bool]) -> dict[str, Any]:
    """Returns the success rate in simulation less that in reality, with its 95 % interval (Newcombe's method)."""
    a, b = float(np.mean(sim)), float(np.mean(real))
    (a_low, a_high), (b_low, b_high) = wilson(sum(sim), len(sim)), wilson(sum(real), len(real))
    return {
        "sim": a, "real": b, "gap": a - b,
        "interval": [a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)],
        "real_interval": [b_low, b_high], "sim_interval": [a_low, a_high],
    }  # fmt: skip


def measure_gaps(sim: Sequence[Outcome], real: Outcome) -> dict[str, Any]:
    """Returns, for slip, peak force and timing of one trial: what was found, what simulations say, and the gap between
    it and their median, with the interval in which 90 % of the simulations lie around it."""
    found = {}
    for name, unit in (("slip_m", "m"), ("peak_force_n", "N"), ("off_s", "s")):
        values = np.array([getattr(o, name) for o in sim])
        values, there = values[np.isfinite(values)], getattr(real, name)
        if not len(values) or not math.isfinite(there):
            found[name] = None
            continue
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        found[name] = {
            "unit": unit, "real": float(there), "sim": float(middle), "gap": float(middle - there),
            "interval": [float(low - there), float(high - there)],
        }  # fmt: skip
    return found
