from __future__ import annotations

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.catalog import load
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.shake import Shake, shaking

SHAKE = Shake(hold_s=0.5, shake_s=2.0, far_m=0.02)


@pytest.mark.parametrize("name", ["gripper@wrist", "gripper@arm7"])
def test_the_palm_goes_aside_as_asked_and_does_not_tilt(name: str):
    robot = load(name)
    kinematics, q = Kinematics(robot), np.array(robot.home)
    aside = shaking(robot, kinematics, q)
    still = kinematics.palm(q)
    offset = SHAKE.offset(np.linspace(0.5, 2.5, 41))
    there = kinematics.palm(q + offset @ aside.T)
    assert np.abs(offset).max() > 0.018
    moved = there[:, :3, 3] - still[:3, 3]
    np.testing.assert_allclose(moved, offset, atol=1.5e-3)  # an arm's way is straight for small ways only
    turned = se3.log(se3.inverse(still) @ there)[:, 3:]
    assert np.abs(turned).max() < 0.01
    hand = [robot.joints.index(j) for j in robot.hand_joints]
    np.testing.assert_array_equal(aside[hand], 0.0)


def test_it_is_still_before_and_after():
    np.testing.assert_array_equal(SHAKE.offset(np.array([-1.0, 0.0, 0.5])), 0.0)
    # Each axis has gone to and fro a whole number of times by the end, and stays where it ended.
    np.testing.assert_allclose(SHAKE.offset(np.array([2.5, 3.0, 99.0])), 0.0, atol=1e-12)
    assert SHAKE.duration_s == 2.5


def test_each_axis_has_its_own_frequency():
    t = np.arange(0.0, 2.0, 0.001) + 0.5
    offset = SHAKE.offset(t)
    for axis, often in enumerate(SHAKE.often_hz):
        found = np.abs(np.fft.rfft(offset[:, axis]))
        assert np.fft.rfftfreq(len(t), 0.001)[found.argmax()] == often
    np.testing.assert_allclose(np.abs(offset).max(axis=0), 0.02, rtol=1e-4)
    assert SHAKE.offset(t.reshape(2, -1)).shape == (2, 1000, 3)


@pytest.mark.parametrize("bad", [{"hold_s": -1.0}, {"shake_s": 601.0}, {"far_m": 0.3}, {"far_m": float("nan")}])
def test_shakes_that_nobody_would_want_are_refused(bad: dict[str, float]):
    with pytest.raises(InputError, match="up to 600 s"):
        Shake(**bad)
