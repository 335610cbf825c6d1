from __future__ import annotations

import math

import numpy as np
import pytest
from numba import njit
from scipy.integrate import cumulative_simpson

from dexloop.rig.braking import brake, extent, holds, rest, safe


@njit
def _worst(draws: np.ndarray) -> np.ndarray:
    """Brakes once from each drawn state and returns by how much, at most, the rest of the stop then goes farther up,
    farther down, faster up or faster down than the stop before, as a part of it."""
    worst = np.full(4, -np.inf)
    for k in range(len(draws)):
        v, a, A, h = draws[k]
        up, down, fast, slow = extent(v, a, A, 1.0)
        new = brake(v, a, h, A, 1.0)
        v2 = v + new * h
        q2 = v2 * h
        up2, down2, fast2, slow2 = extent(v2, new, A, 1.0)
        way, speed = up + down + abs(q2) + 1e-12, abs(fast) + abs(slow) + 1e-12
        worst[0] = max(worst[0], (q2 + up2 - up) / way)
        worst[1] = max(worst[1], (down2 - q2 - down) / way)
        worst[2] = max(worst[2], (fast2 - max(fast, 0.0)) / speed)
        worst[3] = max(worst[3], (min(slow, 0.0) - slow2) / speed)
    return worst


def states(n: int, seed: int) -> np.ndarray:
    """Speed, acceleration, its limit and time step, over many orders of magnitude; the jerk's limit is the unit."""
    rng = np.random.default_rng(seed)
    A, h = np.exp(rng.uniform(-4, 4, n)), np.exp(rng.uniform(-5, 3, n))
    a = rng.choice([-1.0, 0.0, 1.0, *rng.uniform(-1, 1, 12)], n) * A
    v = rng.uniform(-1, 1, n) * np.exp(rng.uniform(-8, 5, n))
    on_the_turn = rng.random(n) < 0.3
    v[on_the_turn] = (-0.5 * a * np.abs(a) * rng.choice([1.0, 0.95, 1.05], n))[on_the_turn]
    return np.stack([v, a, A, h], axis=1)


def test_braking_never_makes_a_stop_longer_or_faster_at_whatever_time_step():
    worst = np.max([_worst(states(200_000, seed)) for seed in range(5)], axis=0)
    assert (worst < 1e-12).all(), worst


def test_the_extent_of_a_stop_agrees_with_integrating_it():
    drawn = states(80, 7)
    for v, a, A, _ in drawn[np.abs(drawn[:, 0]) + np.abs(drawn[:, 1]) > 0]:
        # The same stop, as jerk over time: turn to -p, hold, turn back; mirrored where it brakes too hard already.
        sign = 1.0 if v + a * abs(a) / 2 >= 0 else -1.0
        v, a = sign * v, sign * a
        p = min(math.sqrt(v + a * a / 2), A)
        spans = (a + p, max((v + a * a / 2 - p * p) / max(p, 1e-12), 0.0), p)
        ends = np.cumsum(spans)
        t = np.unique(np.concatenate([np.linspace(0, ends[-1], 40_001), ends]))
        accel = np.interp(t, [0.0, *ends], [a, -p, -p, 0.0])
        speed = v + cumulative_simpson(accel, x=t, initial=0)
        way = cumulative_simpson(speed, x=t, initial=0)
        found = extent(sign * v, sign * a, A, 1.0)
        expected = (way.max(), -way.min(), max(speed.max(), 0.0), min(speed.min(), 0.0))
        expected = expected if sign > 0 else (expected[1], expected[0], -expected[3], -expected[2])
        scale = np.ptp(way) + np.ptp(speed)
        assert speed[-1] == pytest.approx(0.0, abs=1e-6 * scale)
        clipped = (found[0], found[1], max(found[2], 0.0), min(found[3], 0.0))
        assert clipped == pytest.approx(expected, abs=1e-5 * scale)


def test_what_holds_may_stand_still_at_once():
    A, J, soonest = 10.0, 2000.0, 0.002
    rng = np.random.default_rng(0)
    tried = 0
    for v, a in zip(rng.uniform(-0.02, 0.02, 500), rng.uniform(-8, 8, 500), strict=True):
        if holds(v, a, A, J, soonest):
            tried += 1
            for h in (soonest, 0.003, 0.05):
                pull = -v / h
                assert abs(pull) <= A
                assert abs(pull - a) / h <= J * (1 + 1e-12)
                for after in (soonest, 0.05):
                    assert abs(0.0 - pull) / after <= J
    assert tried > 50


def test_a_fast_state_near_a_limit_is_not_safe():
    about = (-1.0, 1.0, 2.0, 10.0, 1000.0, 0.0, 0.002)
    assert safe(0.0, 1.0, 0.0, *about)
    assert not safe(0.99, 1.0, 0.0, *about)
    assert safe(0.99, -1.0, 0.0, *about)
    assert not safe(0.0, 2.1, 0.0, *about)
    assert not safe(0.0, 1.99, 9.0, *about)  # it would get too fast before it turns


def test_where_a_stop_ends():
    bounds = np.array([[-9.0], [9.0], [2.0], [10.0], [1e9], [0.0]])
    state = np.array([[0.5], [1.0], [0.0]])
    assert rest(state, bounds)[0] == pytest.approx(0.5 + 1.0 / 20.0, rel=1e-6)  # v² / 2a
    assert rest(state * np.array([[1.0], [-1.0], [1.0]]), bounds)[0] == pytest.approx(0.5 - 1.0 / 20.0, rel=1e-6)
