from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots import Kinematics, Trajectory, load, straight, through
from dexloop.robots.trajectory import acceleration_limits

ARM = load("arm7")


@pytest.mark.parametrize("profile", ["trapezoid", "quintic"])
@given(seed=st.integers(0, 1000), points=st.integers(2, 4), scale=st.floats(0.001, 1.0), speed=st.floats(0.1, 1.0))
def test_limits_hold_and_waypoints_are_met(profile, seed: int, points: int, scale: float, speed: float) -> None:
    rng = np.random.default_rng(seed)
    waypoints = scale * rng.uniform(*ARM.position_limits.T, size=(points, 7))
    motion = through(ARM, waypoints, profile=profile, speed=speed, rate_hz=500)
    v = np.diff(motion.q, axis=0) * 500
    a = np.diff(v, axis=0) * 500
    assert np.all(np.abs(v) <= speed * ARM.speed_limits * (1 + 1e-9))
    # A finite difference over a corner between two segments sees half of each: never more than the limit.
    assert np.all(np.abs(a) <= acceleration_limits(ARM) * (1 + 1e-6) + 1e-6)
    np.testing.assert_allclose(motion.q[0], waypoints[0])
    np.testing.assert_allclose(motion.q[-1], waypoints[-1], atol=1e-12)
    for point in waypoints:
        assert np.abs(motion.q - point).max(axis=1).min() < 0.02  # samples fall beside a corner, not on it


def test_a_trapezoid_takes_as_long_as_it_must() -> None:
    """One joint, 1 rad, at most 1.5 rad/s and 6 rad/s²: 1/1.5 + 1.5/6 s."""
    goal = np.zeros(7)
    goal[0] = 1.0
    motion = through(ARM, np.stack([np.zeros(7), goal]), profile="trapezoid", rate_hz=1000)
    assert motion.duration_s == pytest.approx(1 / 1.5 + 1.5 / 6, abs=1.1e-3)
    assert np.abs(np.diff(motion.q[:, 0])).max() * 1000 == pytest.approx(1.5, rel=1e-3)  # it does reach full speed
    slower = through(ARM, np.stack([np.zeros(7), goal]), profile="quintic", rate_hz=1000)
    assert slower.duration_s > motion.duration_s


def test_joints_move_in_step() -> None:
    goal = np.array([1.0, 0.5, 0.2, -0.4, 0.1, 0.3, -0.6])
    motion = through(ARM, np.stack([np.zeros(7), goal]))
    share = motion.q / goal
    np.testing.assert_allclose(share, share[:, :1].repeat(7, axis=1), atol=1e-12)


def test_a_robot_that_stays_has_one_sample() -> None:
    motion = through(ARM, ARM.home[None])
    np.testing.assert_array_equal(motion.q, ARM.home[None])
    assert motion.duration_s == 0
    np.testing.assert_array_equal(motion.at(3.0), ARM.home)


def test_at_interpolates_and_holds_the_ends() -> None:
    motion = Trajectory(np.array([0.0, 1.0, 2.0]), np.array([[0.0], [2.0], [3.0]]))
    np.testing.assert_allclose(motion.at(np.array([-1.0, 0.25, 1.5, 9.0]))[:, 0], [0, 0.5, 2.5, 3])
    assert motion.at(1.0).shape == (1,)


@pytest.mark.parametrize(
    ("waypoints", "options", "message"),
    [
        (np.zeros((2, 3)), {}, r"must be \[k, 7\]"),
        (np.full((2, 7), 9.0), {}, "waypoint 0 has arm_j1 at 9.000"),
        (np.full((1, 7), np.nan), {}, "beyond its limits"),
        (np.zeros((2, 7)), {"speed": 0.0}, "speed is a fraction"),
        (np.array([np.zeros(7), np.ones(7)]), {"profile": "spline"}, "no profile 'spline'"),
    ],
)
def test_bad_input_is_named(waypoints, options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        through(ARM, waypoints, **options)


def test_a_line_is_straight_and_its_turn_steady(hand_on_arm) -> None:
    kinematics = Kinematics(hand_on_arm)
    start = kinematics.palm(hand_on_arm.home)
    goal = start @ se3.exp(np.array([0, 0, 0, 0.1, 0.2, 0.3]))
    goal[:3, 3] = start[:3, 3] + [0.03, 0.08, -0.05]
    motion = straight(hand_on_arm, hand_on_arm.palm, [goal], hand_on_arm.home, rate_hz=50)
    assert motion.trajectory is not None, motion.status
    poses = kinematics.palm(motion.trajectory.q)
    np.testing.assert_allclose(poses[-1], goal, atol=1e-3)
    way = goal[:3, 3] - start[:3, 3]
    along = (poses[:, :3, 3] - start[:3, 3]) @ way / (way @ way)
    off = poses[:, :3, 3] - start[:3, 3] - along[:, None] * way
    assert np.abs(off).max() < 2e-4
    assert np.all(np.diff(along) > -1e-3)
    turned = np.linalg.norm(se3.so3_log(se3.quat_from_matrix(start[:3, :3].T @ poses[:, :3, :3])), axis=-1)
    np.testing.assert_allclose(turned, along * turned[-1], atol=3e-3)
    v = np.abs(np.diff(motion.trajectory.q, axis=0)) * 50
    assert np.all(v <= hand_on_arm.speed_limits * 1.001)
    np.testing.assert_allclose(motion.trajectory.q[:, 7:], np.tile(hand_on_arm.home[7:], (len(poses), 1)), atol=1e-9)


def test_a_line_too_fast_for_the_joints_is_slowed_down() -> None:
    wrist = load("gripper@wrist")
    start = Kinematics(wrist).palm(wrist.home)
    goal = start.copy()
    goal[0, 3] += 0.3
    motion = straight(wrist, wrist.palm, [goal], wrist.home, speed_m_s=4.0, rate_hz=100)
    assert motion.trajectory is not None
    assert "slowed down" in motion.status.message
    v = np.diff(motion.trajectory.q, axis=0) * 100
    assert np.abs(v[:, 0]).max() <= 0.8 * 1.001
    assert np.abs(np.diff(v, axis=0)[:, 0]).max() * 100 <= 0.8 / 0.25 * 1.1


def test_a_line_out_of_reach_says_how_far_it_went(hand_on_arm) -> None:
    goal = Kinematics(hand_on_arm).palm(hand_on_arm.home)
    goal[0, 3] += 0.9
    motion = straight(hand_on_arm, hand_on_arm.palm, [goal], hand_on_arm.home, speed_m_s=1.0, rate_hz=30)
    assert motion.trajectory is None
    assert motion.status.code in ("line_leaves_reach", "line_jumps")
    assert "% of the way" in motion.status.message
