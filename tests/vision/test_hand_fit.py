from __future__ import annotations

import numpy as np
import pytest

from dexloop.vision.hand_fit import _Problem, fit_skeleton
from dexloop.vision.hand_skeleton import ANGLES_MEAN, GAUGE, LENGTHS, TIPS, UNKNOWNS, Posture
from tests.vision import hand_motions
from tests.vision.hand_motions import HAND_M


def _rays(hand: Posture) -> np.ndarray:
    points = hand.landmarks()
    return points[..., :2] / points[..., 2:]


def _off_track() -> tuple[_Problem, Posture]:
    """A problem with a gap and uneven times, and a posture that is no solution."""
    rng = np.random.default_rng(7)
    hand, n = hand_motions.posture(12), 12
    t = np.cumsum(rng.uniform(0.03, 0.07, n))
    seen = np.ones(n, bool)
    seen[4:6] = False
    rays = _rays(hand) + 0.004 * rng.normal(size=(n, 21, 2))
    rays[3, 8] += 0.1  # an outlier
    trust = seen * rng.uniform(0.2, 1.0, n)
    problem = _Problem(rays, trust, t, HAND_M * LENGTHS, stretch=True)
    return problem, hand.moved(0.02 * rng.normal(size=(n, UNKNOWNS)), 0.02 * rng.normal(size=20))


def test_equations_hold_the_slope_of_the_cost():
    problem, at = _off_track()
    equations = problem.equations(at)
    h = 1e-6
    rng = np.random.default_rng(1)
    for _ in range(12):
        step, stretch = rng.normal(size=equations.g.shape), rng.normal(size=20)
        slope = (problem.cost(at.moved(h * step, h * stretch)) - problem.cost(at.moved(-h * step, -h * stretch))) / h
        # The cost is a sum of squares: its slope is twice J'r, and the two differences are 2 h apart.
        expected = 4.0 * ((equations.g * step).sum() + equations.g_length @ stretch)
        assert slope == pytest.approx(expected, rel=2e-5)


def test_banded_step_is_that_of_the_dense_matrix():
    problem, at = _off_track()
    e = problem.equations(at)
    n, p = e.g.shape
    dense = np.zeros((n * p + 20, n * p + 20))
    for i in range(n):
        for block, apart in ((e.same, 0), (e.next_, 1), (e.second_next, 2)):
            if i + apart < n:
                rows, columns = slice(i * p, (i + 1) * p), slice((i + apart) * p, (i + apart + 1) * p)
                dense[rows, columns] = block[i]
                dense[columns, rows] = block[i].T
        dense[i * p : (i + 1) * p, n * p :] = e.border[i]
        dense[n * p :, i * p : (i + 1) * p] = e.border[i].T
    dense[n * p :, n * p :] = e.corner
    damping = 0.05
    dense[range(len(dense)), range(len(dense))] *= 1.0 + damping
    expected = -np.linalg.solve(dense, np.concatenate([e.g.ravel(), e.g_length]))
    step, stretch = e.step(damping)
    np.testing.assert_allclose(step.ravel(), expected[: n * p], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(stretch, expected[n * p :], rtol=1e-6, atol=1e-9)


def test_still_hand_of_mean_shape_is_found_exactly():
    """Nothing pulls away from it: no joint, no bone, no acceleration."""
    one = hand_motions.posture(10)
    still = Posture(
        np.tile(one.wrist[0], (10, 1)),
        np.tile(one.R[0], (10, 1, 1)),
        np.tile(ANGLES_MEAN, (10, 1, 1)),
        HAND_M * LENGTHS,
    )
    shape = still.landmarks() @ np.array([[0.9, 0.1, 0.0], [-0.1, 0.9, 0.2], [0.0, -0.2, 1.1]])  # a poor start
    found = fit_skeleton(_rays(still), shape, np.ones(10, bool), hand_motions.times(10), HAND_M)
    np.testing.assert_allclose(found.posture.landmarks(), still.landmarks(), atol=1e-3)
    np.testing.assert_allclose(found.posture.angles, still.angles, atol=0.01)


def test_planted_motion_is_found_from_its_pixels():
    hand, t = hand_motions.posture(), hand_motions.times()
    true = hand.landmarks()
    found = fit_skeleton(_rays(hand), true, np.ones(40, bool), t, HAND_M)
    assert (found.trust > 0).all()
    off = found.posture.landmarks() - true
    assert np.median(np.linalg.norm(off, axis=-1)) < 5e-3
    assert np.abs(off[..., :2]).max() < 8e-3  # across the line of sight
    assert np.abs(off[..., 2]).max() < 0.04  # along it, worst where the film begins
    assert found.posture.lengths.ravel()[GAUGE] == pytest.approx(HAND_M, rel=1e-3)
    assert np.abs(_rays(found.posture) - _rays(hand)).max() < 0.003


def test_other_proportions_are_taken_over():
    hand, t = hand_motions.posture(stretch=0.12), hand_motions.times()
    found = fit_skeleton(_rays(hand), hand.landmarks(), np.ones(40, bool), t, HAND_M)
    true, got = np.log(hand.lengths / HAND_M / LENGTHS), np.log(found.posture.lengths / HAND_M / LENGTHS)
    assert np.corrcoef(true.ravel(), got.ravel())[0, 1] > 0.8
    assert np.abs(got - true).mean() < 0.85 * np.abs(true).mean()


def test_frames_that_show_no_hand_are_left_out_and_bridged():
    hand, t = hand_motions.posture(), hand_motions.times()
    rays, shape = _rays(hand), hand.landmarks().copy()
    bad = [11, 12, 25]
    middle = rays[bad].mean(axis=1, keepdims=True)
    rays[bad] = middle + (rays[bad][:, ::-1] - middle) * [1.0, -1.0]  # fingers taken for others, and upside down
    seen = np.ones(40, bool)
    seen[30:34] = False
    rays[30:34] = np.nan
    shape[30:34] = np.nan
    found = fit_skeleton(rays, shape, seen, t, HAND_M)
    assert np.flatnonzero(found.trust == 0).tolist() == [*bad, 30, 31, 32, 33]
    assert np.median(found.trust[found.trust > 0]) > 0.9
    error = np.linalg.norm(found.posture.landmarks() - hand.landmarks(), axis=-1)
    assert np.median(error) < 6e-3
    assert error[found.trust == 0].max() < 0.02


def test_one_wild_landmark_does_not_move_the_hand():
    hand, t = hand_motions.posture(), hand_motions.times()
    wild = _rays(hand)
    wild[:, 16] += 0.15  # a tip of a finger is seen a tenth of a metre off
    found = fit_skeleton(wild, hand.landmarks(), np.ones(40, bool), t, HAND_M)
    others = [0, 4, 5, 8, 9, 12, 17]
    assert (found.trust > 0).all()
    assert np.median(np.linalg.norm(_rays(found.posture) - _rays(hand), axis=-1)[:, others]) < 2e-3
    assert np.median(np.linalg.norm(found.posture.landmarks() - hand.landmarks(), axis=-1)[:, others]) < 0.02


def test_many_frames_share_what_some_of_them_tell():
    t = hand_motions.times(150)
    hand = hand_motions.posture(150, stretch=0.05)
    found = fit_skeleton(_rays(hand), hand.landmarks(), np.ones(150, bool), t, HAND_M)
    error = np.linalg.norm(found.posture.landmarks() - hand.landmarks(), axis=-1)
    assert np.median(error[:, TIPS]) < 0.01
    jerk = np.diff(found.posture.landmarks(), n=2, axis=0)
    assert np.abs(jerk).max() < 2 * np.abs(np.diff(hand.landmarks(), n=2, axis=0)).max()
