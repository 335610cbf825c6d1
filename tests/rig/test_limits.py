from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexloop.core.errors import InputError, UnknownName
from dexloop.lab import Lab, LabCfg
from dexloop.rig.limits import RISE_S, SWELL_S, Limits
from dexloop.robots import load

ROBOT = load("dex16@wrist")
WHOLE = Limits.of(ROBOT, rate_hz=250.0)


def test_they_come_from_the_robot():
    assert WHOLE.joints == ROBOT.joints
    assert np.array_equal(WHOLE.position, ROBOT.position_limits)
    assert np.array_equal(WHOLE.speed, ROBOT.speed_limits)
    assert np.array_equal(WHOLE.effort, ROBOT.effort_limits)
    assert pytest.approx(ROBOT.speed_limits / RISE_S) == WHOLE.acceleration
    assert pytest.approx(WHOLE.acceleration / SWELL_S) == WHOLE.jerk
    assert WHOLE.period_s == 0.004
    assert Limits.of(ROBOT, rate_hz=10.0).policy_period_s == 0.5  # a slow robot's commands are farther apart


def test_a_rig_tells_the_same_and_what_its_fingers_feel():
    features = Lab(LabCfg(object="cube", seed=1, video=False)).rig().features
    limits = Limits.of_rig(features)
    assert limits.joints == ROBOT.joints
    assert np.array_equal(limits.position, WHOLE.position)
    assert len(limits.fingers) == 4
    assert limits.fingertip_force_n.tolist() == [50.0] * 4
    asked = Limits.of_rig(features, fingertip_force_n=np.array([10.0, 20.0, 99.0, np.inf]))
    assert asked.fingertip_force_n.tolist() == [10.0, 20.0, 50.0, 50.0]
    with pytest.raises(InputError, match="takes no commands"):
        Limits.of_rig(dataclasses.replace(features, command=None))


def test_tightening_for_all_for_each_and_by_name():
    tight = WHOLE.tightened(speed={"wrist_x": 0.3}, acceleration=5.0, jerk=WHOLE.jerk / 2, failures=1, stale_s=0.05)
    assert tight.speed[0] == 0.3
    assert np.array_equal(tight.speed[1:], WHOLE.speed[1:])
    assert (tight.acceleration == 5.0).all()
    assert (tight.failures, tight.stale_s) == (1, 0.05)
    tight = tight.tightened(position={"wrist_z": (0.1, 0.2)}, workspace_m=[[0, 0, 0], [1, 1, 1]])
    assert tight.position[2].tolist() == [0.1, 0.2]
    assert tight.tightened(workspace_m=[[0, 0, 0.1], [1, 1, 1]]).workspace_m is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"speed": 100.0},
        {"speed": {"wrist_x": 0.81}},
        {"position": {"wrist_z": (-9.0, 0.2)}},
        {"acceleration": np.nan},
        {"failures": 4},
        {"stale_s": 1.0},
        {"stale_s": float("nan")},
    ],
)
def test_loosening_is_refused(changes: dict):
    with pytest.raises(InputError, match="can only be tightened"):
        WHOLE.tightened(**changes)


def test_a_larger_workspace_is_refused():
    boxed = WHOLE.tightened(workspace_m=[[0, 0, 0], [1, 1, 1]])
    with pytest.raises(InputError, match="workspace_m can only be tightened"):
        boxed.tightened(workspace_m=[[0, 0, 0], [1, 1, 1.1]])


def test_unknown_names_are_told():
    with pytest.raises(UnknownName, match="there is position, speed"):
        WHOLE.tightened(sped=1.0)
    with pytest.raises(UnknownName, match="wrist_x"):
        WHOLE.tightened(speed={"wrist": 0.1})
    with pytest.raises(UnknownName):
        WHOLE.tightened(period_s=0.001)


@pytest.mark.parametrize(
    "changes",
    [
        {"speed": np.zeros(22)},
        {"jerk": np.full(22, np.inf)},
        {"effort": np.full(22, -1.0)},
        {"acceleration": np.ones(3)},
        {"position": np.zeros((22, 2))},
        {"stale_s": 0.0},
        {"drop_m": float("nan")},
        {"workspace_m": np.zeros((2, 3))},
        {"fingertip_force_n": np.ones(2)},
    ],
)
def test_what_is_no_limit_is_refused(changes: dict):
    with pytest.raises(InputError):
        dataclasses.replace(WHOLE, **changes)


def test_they_cannot_be_changed_behind_the_gates_back():
    with pytest.raises(ValueError, match="read-only"):
        WHOLE.speed[0] = 99.0
    given = np.array(ROBOT.speed_limits)
    limits = dataclasses.replace(WHOLE, speed=given)
    given[0] = 99.0
    assert limits.speed[0] == 0.8


@given(st.dictionaries(st.sampled_from(["speed", "acceleration", "jerk", "effort"]), st.floats(0.01, 200.0)))
def test_whatever_is_accepted_is_inside_what_was(changes: dict):
    try:
        tight = WHOLE.tightened(**changes)
    except InputError:
        assert any((value > getattr(WHOLE, name)).any() for name, value in changes.items())
        return
    for name in ("speed", "acceleration", "jerk", "effort"):
        assert (getattr(tight, name) <= getattr(WHOLE, name)).all()
