from __future__ import annotations

import math

import numpy as np
import pytest

from dexloop.audit.gaps import measure_gaps, rate_gap, wilson
from dexloop.robots.outcome import Outcome


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17, 857-872, table I, method 3.
        (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
        (8, 10, 0.4902, 0.9433),
    ],
)  # fmt: skip
def test_intervals_of_rates_are_those_of_the_literature(successes: int, trials: int, low: float, high: float):
    assert wilson(successes, trials) == pytest.approx((low, high), abs=6e-5)


def test_nothing_tried_is_nothing_known_and_mirrored_rates_have_mirrored_intervals():
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(3, 17)
    assert wilson(14, 17) == pytest.approx((1 - high, 1 - low))


def test_gaps_between_rates_are_those_of_the_literature():
    """Newcombe 1998, Statistics in Medicine 17, 873-890, table II, method 10: 56/70 against 48/80, and 9/10 against
    3/10."""
    found = rate_gap([True] * 56 + [False] * 14, [True] * 48 + [False] * 32)
    assert found["gap"] == pytest.approx(0.2)
    assert found["interval"] == pytest.approx([0.0524, 0.3339], abs=6e-5)
    found = rate_gap([True] * 9 + [False], [True] * 3 + [False] * 7)
    assert found["interval"] == pytest.approx([0.1705, 0.8090], abs=6e-5)
    assert (found["sim"], found["real"]) == (0.9, 0.3)
    back = rate_gap([True] * 3 + [False] * 7, [True] * 9 + [False])
    assert back["interval"] == pytest.approx([-0.8090, -0.1705], abs=6e-5)


def done(slip_m: float, force_n: float = 5.0, off_s: float = 0.2) -> Outcome:
    return Outcome("held", slip_m, 0.1, force_n, off_s)


def test_gaps_are_from_the_middle_of_simulations_and_so_are_their_intervals():
    sims = [done(1e-3 * k, off_s=math.nan if k % 2 else 0.3) for k in range(21)]
    found = measure_gaps(sims, done(2e-3))
    slip = found["slip_m"]
    assert (slip["unit"], slip["real"], slip["sim"]) == ("m", 2e-3, pytest.approx(0.01))
    assert slip["gap"] == pytest.approx(0.008)
    assert slip["interval"] == pytest.approx([-1e-3, 0.017])
    assert found["peak_force_n"]["gap"] == 0.0
    assert found["off_s"]["gap"] == pytest.approx(0.1)  # of those that left the table


def test_what_never_happened_has_no_gap():
    never = done(0.0, off_s=math.nan)
    assert measure_gaps([done(0.0)] * 3, never)["off_s"] is None
    assert measure_gaps([never] * 3, done(0.0))["off_s"] is None
    assert measure_gaps([], done(0.0)) == {"slip_m": None, "peak_force_n": None, "off_s": None}
    assert all(np.isfinite(v["gap"]) for v in measure_gaps([done(0.0)], done(0.0)).values())
