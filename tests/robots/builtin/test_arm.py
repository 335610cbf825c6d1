from __future__ import annotations

import numpy as np
import pytest

from dexloop.robots import Kinematics, check, load
from dexloop.robots.builtin import arm
from tests.robots.conftest import settle


@pytest.fixture(scope="module")
def robot():
    return arm.make()


def turn(axis: tuple[int, int, int], angle: float) -> np.ndarray:
    """Rodrigues' formula, written out again."""
    x, y, z = axis
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=float)
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def test_it_is_sound(robot) -> None:
    assert check(robot) == []
    assert robot.fingertips == ()
    assert robot.mount == "arm_mount"


def test_its_hand_is_where_the_product_of_turns_says(robot) -> None:
    """Shoulder, elbow and wrist are points, so the flange follows from seven turns and four lengths."""
    rng = np.random.default_rng(0)
    for q in rng.uniform(*robot.position_limits.T, size=(20, 7)):
        R = [turn(axis, angle) for axis, angle in zip(arm.AXES, q, strict=True)]
        upper = R[0] @ R[1]
        fore = upper @ R[2] @ R[3]
        flange = fore @ R[4] @ R[5]
        up = np.array([0, 0, 1.0])
        p = arm.SHOULDER_M * up + upper @ up * arm.UPPER_M + fore @ up * arm.FORE_M + flange @ up * arm.FLANGE_M
        T = Kinematics(robot).poses(q, robot.mount)
        np.testing.assert_allclose(T[:3, 3], p, atol=1e-12)
        np.testing.assert_allclose(T[:3, :3], flange @ R[6], atol=1e-12)


def test_home_points_the_flange_down(robot) -> None:
    np.testing.assert_allclose(Kinematics(robot).poses(robot.home, robot.mount)[:3, 2], [0, 0, -1], atol=1e-12)


@pytest.mark.parametrize("name", ["arm7", "dex16@arm7", "gripper@arm7"])
def test_it_holds_its_home_under_gravity(name: str) -> None:
    robot = load(name)
    error = settle(robot, robot.home, 1.5) - robot.home
    n = len(robot.arm_joints)
    assert np.abs(error[:n]).max() < 2e-3
    assert np.abs(error[n:]).max(initial=0) < 0.02
    site = robot.palm or robot.mount
    kinematics = Kinematics(robot)
    moved = kinematics.poses(robot.home + error, site)[:3, 3] - kinematics.poses(robot.home, site)[:3, 3]
    assert np.linalg.norm(moved) < 2e-3
