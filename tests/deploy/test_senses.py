from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.deploy.senses import Senses, channels_of, mean_pose, pose_clock
from dexloop.rig.protocol import Features, Observation, Samples
from tests.deploy.standin import STREAMS, features, heard
from tests.robots.pinched import ROBOT, T_WORLD_OBJECT

X, TURN = ROBOT.joints.index("wrist_x"), ROBOT.joints.index("wrist_rz")


def moved(x: float, turn: float = 0.0) -> np.ndarray:
    q = np.array(ROBOT.home)
    q[X] += x
    q[TURN] += turn
    return q


def test_the_latest_of_everything_is_known_once_it_was_heard():
    senses = Senses(features(), ROBOT)
    with pytest.raises(InputError, match="nothing was heard of where the object is"):
        senses.T_world_object(carried=False)
    senses.hear(Observation({"joint_position": Samples(np.zeros(0), np.zeros((0, 8)))}, {}))
    assert senses.position is None
    senses.hear(heard(0.0, moved(0.1)))
    senses.hear(heard(0.1, moved(0.2)))
    np.testing.assert_array_equal(senses.position, moved(0.2))
    np.testing.assert_array_equal(senses.touch, [2.0, 1.0])  # right, left: as the robot has them
    np.testing.assert_allclose(senses.T_world_object(carried=False), T_WORLD_OBJECT, atol=1e-12)


def test_what_is_carried_has_moved_with_the_palm_since_it_was_seen():
    """The tracker saw it 40 ms ago, by a clock that is 30 ms late; since then the hand went aside and turned."""
    senses = Senses(features(), ROBOT, pose_late_s=0.03)
    for k in range(26):
        t = 0.004 * k
        seen = heard(t, moved(0.5 * t, t), pose_t=0.06 + 0.03)
        if k:
            seen = Observation({name: s for name, s in seen.samples.items() if name != "object_pose"}, {})
        senses.hear(seen)
    np.testing.assert_allclose(senses.T_world_object(carried=False), T_WORLD_OBJECT, atol=1e-12)
    found = senses.T_world_object(carried=True)
    # Both turns are about the wrist's vertical; what is rigidly in the hand turns and goes with it.
    from dexloop.robots.kinematics import Kinematics
    from tests.robots.pinched import T_WORLD_BASE

    then, now = (T_WORLD_BASE @ Kinematics(ROBOT).palm(moved(0.5 * t, t)) for t in (0.06, 0.1))
    np.testing.assert_allclose(se3.inverse(now) @ found, se3.inverse(then) @ T_WORLD_OBJECT, atol=1e-9)
    assert np.linalg.norm(found[:3, 3] - T_WORLD_OBJECT[:3, 3]) > 0.015


def test_twin_and_tracker_may_mean_other_frames():
    senses = Senses(features(), ROBOT)
    T_track = se3.exp(np.array([0.3, 0.1, 0.05, 0.2, 0.1, 1.0]))
    senses.T_track_object = se3.inverse(T_track) @ T_WORLD_OBJECT
    senses.hear(heard(0.0, moved(0.0), T_track))
    np.testing.assert_allclose(senses.T_world_object(carried=False), T_WORLD_OBJECT, atol=1e-12)
    go = se3.exp(np.array([0.1, 0.0, 0.2, 0.0, 0.3, 0.0]))
    senses.hear(heard(0.1, moved(0.0), go @ T_track))
    np.testing.assert_allclose(senses.T_world_object(carried=False), go @ T_WORLD_OBJECT, atol=1e-12)


def test_a_rig_without_a_tracker_is_refused():
    with pytest.raises(InputError, match=r"has no object_pose: a trial needs .* joint_command, joint_position, touch"):
        Senses(features(STREAMS[:3]), ROBOT)
    with pytest.raises(InputError, match=r"has no joint_command and .* and no object_pose.* there is nothing"):
        Senses(features(()), ROBOT)


def changed(name: str, **change: Any) -> Features:
    return features(tuple(replace(s, **change) if s.name == name else s for s in STREAMS))


def test_channels_are_taken_by_their_names_and_those_that_do_not_fit_are_refused():
    turned = changed("joint_position", channels=ROBOT.joints[::-1], units=ROBOT.units[::-1])
    senses = Senses(turned, ROBOT)
    senses.hear(heard(0.0, moved(0.1)[::-1]))
    np.testing.assert_array_equal(senses.position, moved(0.1))
    with pytest.raises(InputError, match=r"stream 'touch' .* has no left; there is right, thumb"):
        Senses(changed("touch", channels=("right", "thumb")), ROBOT)
    with pytest.raises(InputError, match="wrist_x in rad instead of m"):
        Senses(changed("joint_position", units=("rad",) * len(ROBOT.joints)), ROBOT)
    sites = tuple(tip.site for tip in ROBOT.fingertips)
    assert channels_of(changed("touch", channels=sites[::-1]), ROBOT)["touch"] == [1, 0]


def test_the_tracker_has_the_clock_that_its_stream_names():
    assert pose_clock(features()) == "clock.camera"
    assert pose_clock(changed("object_pose", clock="mocap")) == "clock.mocap"
    assert pose_clock(changed("object_pose", clock="robot")) == "clock.object_pose"


def test_samples_that_are_no_numbers_are_not_heard():
    senses = Senses(features(), ROBOT)
    senses.hear(heard(0.0, moved(0.1)))
    lost = Observation({k: Samples(s.t + 0.1, s.value * np.nan) for k, s in heard(0.0, moved(0.2)).samples.items()}, {})
    senses.hear(lost)
    np.testing.assert_array_equal(senses.position, moved(0.1))
    np.testing.assert_allclose(senses.T_world_object(carried=True), T_WORLD_OBJECT, atol=1e-12)
    poses = np.tile(se3.to_pose(T_WORLD_OBJECT), (3, 1))
    poses[0, 2] = np.nan
    np.testing.assert_allclose(mean_pose(poses), T_WORLD_OBJECT, atol=1e-12)
    with pytest.raises(InputError, match="does not see the object"):
        mean_pose(poses[:1])


def test_a_mean_pose_minds_no_signs_of_quaternions():
    rng = np.random.default_rng(0)
    T = se3.exp(np.array([0.1, 0.2, 0.3, 0.5, -0.4, 2.9]))
    poses = se3.to_pose(T @ se3.exp(0.003 * rng.normal(size=(400, 6))))
    poses[::3, 3:] *= -1.0
    np.testing.assert_allclose(mean_pose(poses), T, atol=1e-3)
