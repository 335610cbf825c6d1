from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.robots.outcome import CRUSHED, DROPPED, HELD, LATE, MISSED, SLIPPED, STOPPED, Outcome, outcome

DT, LIFT = 0.02, 50
T = DT * np.arange(200)
UP = 0.1 * np.clip((T - T[LIFT]) / 1.0, 0.0, 1.0)
"""A palm that rises by 10 cm in a second, from the fiftieth moment on."""


def poses(height: np.ndarray, aside: np.ndarray | float = 0.0) -> np.ndarray:
    # The palm looks down and is turned: what happens in its frame is not what happens in the world's.
    R = se3.quat_to_matrix(se3.so3_exp(np.array([3.0, 0.4, 0.0])))
    place = np.stack([np.broadcast_to(0.3 + aside, height.shape), np.full_like(height, -0.1), height], axis=1)
    return se3.from_rt(np.broadcast_to(R, (len(height), 3, 3)), place)


def judged(thing: np.ndarray, *, palm: np.ndarray | None = None, grip_n: float = 3.0, **more: Any) -> Outcome:
    touch = np.full((len(thing), 2), grip_n)
    return outcome(T, poses(0.15 + UP) if palm is None else palm, thing, touch, **{"lift": LIFT, **more})


def test_what_rises_with_the_palm_is_held():
    found = judged(poses(0.03 + UP))
    assert found.verdict == HELD
    assert found.held
    assert found.slip_m == pytest.approx(0.0, abs=1e-12)
    assert found.rise_m == pytest.approx(0.1)
    assert found.peak_force_n == pytest.approx(6.0)
    # It rises by 10 cm in a second: after 50 ms by 5 mm, and the moment after that it has risen by more.
    assert found.off_s == pytest.approx(0.06)


def test_slip_is_how_far_it_moved_in_the_hand():
    aside = np.where(T[LIFT] + 0.5 < T, 0.008, 0.0)
    found = judged(poses(0.03 + UP, aside))
    assert found.verdict == HELD
    assert found.slip_m == pytest.approx(0.008)
    found = judged(poses(0.03 + UP, 1.5 * aside))
    assert found.verdict == SLIPPED
    assert found.slip_m == pytest.approx(0.012)
    assert not found.held


def test_what_moved_before_the_lift_has_not_slipped():
    before = np.where(T[LIFT] - 0.2 > T, 0.05, 0.0)
    assert judged(poses(0.03 + UP, before)).slip_m == pytest.approx(0.0, abs=1e-12)


def test_a_tracker_that_errs_for_one_moment_makes_no_slip():
    found = judged(poses(0.03 + UP, np.where(np.arange(200) == 120, 0.02, 0.0)))
    assert found.slip_m == pytest.approx(0.02 / 3)  # a mean over 60 ms, which are three moments
    assert found.verdict == HELD


def test_what_stays_on_the_table_was_missed():
    found = judged(poses(np.full_like(T, 0.03)))
    assert found.verdict == MISSED
    assert np.isnan(found.off_s)
    assert found.rise_m == 0.0
    assert found.slip_m == pytest.approx(0.1)


def test_what_was_up_and_is_down_again_was_dropped():
    found = judged(poses(0.03 + UP * (T < 3.0)))
    assert found.verdict == DROPPED
    assert found.rise_m == 0.0
    assert np.isfinite(found.off_s)


def test_a_palm_that_does_not_rise_has_lifted_nothing():
    low = 0.4 * UP
    assert not judged(poses(0.03 + low), palm=poses(0.15 + low)).held
    assert judged(poses(np.full_like(T, 0.03)), palm=poses(0.15 + low)).verdict == MISSED
    enough = 0.51 * UP
    assert judged(poses(0.03 + enough), palm=poses(0.15 + enough)).verdict == HELD


def test_a_grip_is_half_of_all_forces():
    thing = poses(0.03 + UP)
    assert judged(thing, grip_n=9.9, crush_n=10.0).verdict == HELD
    assert judged(thing, grip_n=10.1, crush_n=10.0).verdict == CRUSHED


def test_what_ended_it_before_its_time_is_the_verdict():
    thing = poses(0.03 + UP)
    stopped = judged(thing, failure=STOPPED)
    assert stopped.verdict == STOPPED
    assert stopped.rise_m == pytest.approx(0.1)
    never = judged(thing, lift=None)
    assert never.verdict == LATE
    assert np.isnan(never.off_s)
    assert never.peak_force_n == pytest.approx(6.0)
    assert judged(thing, lift=None, failure=STOPPED).verdict == STOPPED
    assert judged(thing, lift=len(T), failure=STOPPED) == judged(thing, lift=None, failure=STOPPED)
