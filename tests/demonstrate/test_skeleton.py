from __future__ import annotations

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.demonstrate import skeleton

from .conftest import FIST, PINCH, gesture

T_ANY = se3.exp(np.array([0.3, -0.2, 0.9, 1.1, -0.7, 0.4]))


@pytest.mark.parametrize("angles", [{}, FIST, PINCH])
def test_palm_lies_as_the_hand_was_put(angles: dict[str, float]):
    """The lab's hand has x towards the fingers and z out of its back; what fingers do does not matter."""
    found = skeleton.palm(gesture(angles, T_ANY)[None], right=True)[0]
    np.testing.assert_allclose(found[:3, 3], T_ANY[:3, 3], atol=1e-12)
    assert np.arccos(found[:3, 0] @ T_ANY[:3, 0]) < np.radians(4)
    assert np.arccos(-found[:3, 2] @ T_ANY[:3, 2]) < np.radians(4)
    np.testing.assert_allclose(found[:3, :3] @ found[:3, :3].T, np.eye(3), atol=1e-12)
    assert np.linalg.det(found[:3, :3]) == pytest.approx(1.0)


def test_palm_of_a_left_hand_faces_the_same_way():
    right = gesture(PINCH)
    left = right * [1.0, -1.0, 1.0]
    A, B = skeleton.palm(right[None], right=True)[0], skeleton.palm(left[None], right=False)[0]
    M = np.diag([1.0, -1.0, 1.0])
    np.testing.assert_allclose(B[:3, :3], M @ A[:3, :3] @ M, atol=1e-12)


def test_noise_turns_the_palm_less_than_if_three_points_told_it():
    points = gesture({})
    noisy = points + np.random.default_rng(0).normal(0.0, 3e-3, (2000, 21, 3))
    z = skeleton.palm(points[None], right=True)[0, :3, 2]
    turned = np.arccos(skeleton.palm(noisy, right=True)[:, :3, 2] @ z)
    normal = [skeleton.unit(np.cross(p[:, 5] - p[:, 0], p[:, 17] - p[:, 0])) for p in (points[None], noisy)]
    three = np.arccos(normal[1] @ normal[0][0])
    assert np.sqrt(np.mean(turned**2)) < 0.97 * np.sqrt(np.mean(three**2))


@pytest.mark.parametrize("angles", [PINCH, {"index_1": 0.3}, FIST])
def test_jaws_run_from_the_first_finger_to_the_second(angles: dict[str, float]):
    points = gesture(angles, T_ANY)[None]
    T = skeleton.jaws(points, ("index", "thumb"))[0]
    assert np.linalg.det(T[:3, :3]) == pytest.approx(1.0)
    assert T[:3, 0] @ (points[0, 4] - points[0, 8]) > 0.95 * np.linalg.norm(points[0, 4] - points[0, 8])
    assert T[:3, 2] @ (0.5 * (points[0, 4] + points[0, 8]) - points[0, 0]) > 0.04


def test_jaws_know_their_line_where_tips_touch():
    points = gesture(PINCH)
    points[4] = points[8]
    T = skeleton.jaws(points[None], ("index", "thumb"))[0]
    np.testing.assert_allclose(T[:3, 0], skeleton.unit((points[3] - points[7])[None])[0], atol=1e-12)
    assert np.linalg.det(T[:3, :3]) == pytest.approx(1.0)


def test_lengths_are_those_of_the_bones():
    points = np.stack([gesture({k: s * a for k, a in FIST.items()}, T_ANY) for s in (0.0, 0.5, 1.0)])
    points[1, 8] += 0.1  # one landmark that jumped
    found = skeleton.lengths(points)
    assert found["index"] == pytest.approx(0.044 + 0.026 + 0.021 - 0.3 * 0.0068)
    assert found["middle"] == pytest.approx(0.049 + 0.0295 + 0.022 - 0.3 * 0.0070)


@pytest.mark.parametrize("shape", [(21, 3), (4, 20, 3), (4, 21, 2), (0, 21, 3)])
def test_other_shapes_are_refused(shape: tuple[int, ...]):
    with pytest.raises(InputError, match="landmarks are n x 21 x 3, at least one frame; these are"):
        skeleton.check(np.zeros(shape))


def test_frames_without_a_hand_are_named():
    points = np.tile(gesture({}), (20, 1, 1))
    points[7, 3, 1] = np.nan
    with pytest.raises(InputError, match=r"no hand in frame 7 of 20: leave them out"):
        skeleton.check(points)
    points[3:16] = np.nan
    with pytest.raises(InputError, match=r"frames 3, 4, 5, 6, 7, 8, 9, 10 and 5 more of 20"):
        skeleton.check(points)


def test_a_palm_that_is_a_line_is_refused():
    points = np.tile(gesture({}), (3, 1, 1))
    points[1] = points[1, :1] + np.linspace(0, 0.2, 21)[:, None] * [1.0, 0.0, 0.0]
    with pytest.raises(InputError, match="on a line in frame 1"):
        skeleton.palm(points, right=True)
    with pytest.raises(InputError, match="in metres"):  # millimetres the wrong way round
        skeleton.palm(1e-3 * points, right=True)
