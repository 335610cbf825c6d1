from __future__ import annotations

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.vision.hand_skeleton import (
    ANGLES_MEAN,
    GAUGE,
    LENGTHS,
    PALM,
    PARENT,
    TIPS,
    UNKNOWNS,
    Posture,
    bone_lengths,
    palm,
)
from tests.vision import hand_motions

HAND_M = 0.09


def _any_posture(n: int = 3) -> Posture:
    rng = np.random.default_rng(5)
    R = se3.quat_to_matrix(se3.so3_exp(rng.normal(size=(n, 3))))
    return Posture(rng.normal(size=(n, 3)), R, ANGLES_MEAN + 0.4 * rng.normal(size=(n, 5, 4)), HAND_M * LENGTHS)


def _flat(angles: np.ndarray) -> np.ndarray:
    """The landmarks of a hand in its palm's own frame."""
    return Posture(np.zeros((1, 3)), np.eye(3)[None], angles[None], HAND_M * LENGTHS).landmarks()[0]


def test_derivatives_are_those_of_finite_differences():
    hand, h = _any_posture(), 1e-6
    points, by = hand.derivatives()
    np.testing.assert_allclose(points, hand.landmarks(), atol=1e-15)
    assert by.shape == (3, UNKNOWNS + 20, 21, 3)
    for k in range(UNKNOWNS + 20):
        step, stretch = np.zeros((3, UNKNOWNS)), np.zeros(20)
        if k < UNKNOWNS:
            step[:, k] = h
        else:
            stretch[k - UNKNOWNS] = h
        change = hand.moved(step, stretch).landmarks() - hand.moved(-step, -stretch).landmarks()
        np.testing.assert_allclose(by[:, k], change / (2 * h), atol=1e-8, err_msg=f"unknown {k}")


def test_bones_keep_their_lengths_and_the_palm_its_shape():
    hand = _any_posture()
    points = hand.landmarks()
    np.testing.assert_allclose(bone_lengths(points), np.tile(hand.lengths.ravel(), (3, 1)), atol=1e-12)
    assert hand.lengths.ravel()[GAUGE] == pytest.approx(HAND_M)
    inside = (points - hand.wrist[:, None]) @ hand.R
    np.testing.assert_allclose(inside[:, PALM], np.tile(palm(hand.lengths), (3, 1, 1)), atol=1e-12)


def test_fingers_bend_towards_the_palm_of_a_right_hand():
    straight, bent = np.zeros((5, 4)), np.zeros((5, 4))
    bent[1:, 1] = np.pi / 2
    flat, hook = _flat(straight), _flat(bent)
    assert (flat[TIPS[1:], 0] > 1.5 * HAND_M).all()
    for tip, root in ((8, 5), (12, 9), (16, 13), (20, 17)):
        down = hook[tip] - hook[root]
        np.testing.assert_allclose(down, [0, 0, -np.linalg.norm(flat[tip] - flat[root])], atol=1e-12)
    assert (np.diff(flat[[5, 9, 13, 17], 1]) < 0).all()  # y towards the thumb's side: index first
    assert flat[4, 2] < -0.8 * HAND_M  # the thumb stands out of the palm
    only_tip = np.zeros((5, 4))
    only_tip[2, 3] = 1.0
    moved = np.linalg.norm(_flat(only_tip) - flat, axis=1)
    assert np.flatnonzero(moved > 1e-9).tolist() == [12]


def test_proportions_are_those_of_a_person():
    finger = LENGTHS[:, 1:].sum(axis=1)
    assert finger.argmax() in (0, 2)
    assert (np.diff(LENGTHS[1:, 1:], axis=1) < 0).all()
    assert 0.16 < HAND_M * (LENGTHS[2].sum()) < 0.20
    assert PARENT.tolist()[::4] == [0] * 5


def test_posture_between_frames():
    hand, t = hand_motions.posture(), hand_motions.times()
    keep = np.arange(40) % 4 == 0
    keep[-1] = True
    again = hand.chosen(keep).between(t[keep], t)
    assert np.abs(again.landmarks() - hand.landmarks()).max() < 3e-3
    np.testing.assert_allclose(again.landmarks()[keep], hand.landmarks()[keep], atol=1e-12)
