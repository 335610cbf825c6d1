from __future__ import annotations

import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.demonstrate.watching import _taken, nearest
from dexloop.vision.hand_path import HandPath
from dexloop.vision.tracking import Track

T = np.arange(60) / 30.0


def path(lowest_s: float = 1.0) -> HandPath:
    """A hand that comes down to the origin and goes up again; it was not seen in the first frames."""
    t = T[5:]
    landmarks = np.zeros((len(t), 21, 3))
    landmarks[:, :, 2] = np.abs(t - lowest_s)[:, None]
    return HandPath(t, landmarks, np.ones(len(t), bool), True, np.ones(len(t)), np.full(20, 0.03))


def track(lifted_s: float = 1.2, lost: slice = slice(0, 0), jump: int | None = None) -> Track:
    pose = np.tile([0.1, 0.2, 0.03, 1.0, 0.0, 0.0, 0.0], (len(T), 1))
    pose[:, 2] += np.maximum(T - lifted_s, 0.0) * 0.2
    if jump is not None:
        pose[jump, 0] += 0.05
    gone = np.zeros(len(T), bool)
    gone[lost] = True
    fields = Track.__dataclass_fields__
    given = {"pose": pose, "covariance": np.zeros((len(T), 6, 6)), "lost": gone}
    return Track(**{name: given.get(name, np.zeros(len(T))) for name in fields})


def test_the_grasp_is_just_before_the_object_moves():
    found = _taken(path(), T, track(lifted_s=1.2))
    assert found.moved
    assert path().t[found.grasp] == pytest.approx(1.2 + 0.008 / 0.2, abs=0.05)  # 8 mm at 0.2 m/s
    np.testing.assert_allclose(found.T_world_object[:3, 3], [0.1, 0.2, 0.03])


def test_a_tracker_that_errs_for_a_frame_is_not_believed():
    found = _taken(path(), T, track(lifted_s=1.2, jump=12))
    assert path().t[found.grasp] == pytest.approx(1.24, abs=0.05)


def test_an_object_that_is_lost_while_it_is_lifted_is_found_by_what_is_seen_later():
    found = _taken(path(), T, track(lifted_s=1.0, lost=slice(31, 40)))
    assert found.moved
    assert path().t[found.grasp] == pytest.approx(40 / 30, abs=0.05)


def test_an_object_that_stays_is_grasped_where_the_hand_is_nearest():
    found = _taken(path(lowest_s=0.9), T, track(lifted_s=9.0))
    assert not found.moved
    assert path().t[found.grasp] == pytest.approx(0.9, abs=0.035)  # the object is 3 cm high
    assert nearest(path(lowest_s=0.9), found.T_world_object) == found.grasp


def test_an_object_that_is_never_found_is_an_error():
    with pytest.raises(InputError, match="was not found"):
        _taken(path(), T, track(lost=slice(0, len(T))))


def test_bad_options_are_refused():
    for bad in ({"hand": "both"}, {"keep": 1.5}, {"tries": 0}, {"hand_length_m": 8.5}):
        with pytest.raises(InputError):
            DemonstrateCfg(**bad)
