from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level
from dexloop.robots import Collisions, Embodiment, IkCfg, Kinematics, load, solve_ik


def random_poses(robot: Embodiment, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(*robot.position_limits.T, size=(n, len(robot.joints)))


def test_batches_have_the_shape_they_came_in(hand_on_arm) -> None:
    kinematics = Kinematics(hand_on_arm)
    q = random_poses(hand_on_arm, 6).reshape(2, 3, -1)
    assert kinematics.palm(q).shape == (2, 3, 4, 4)
    assert kinematics.fingertips(q).shape == (2, 3, 4, 4, 4)
    assert kinematics.jacobians(q, hand_on_arm.palm).shape == (2, 3, 6, len(hand_on_arm.joints))
    np.testing.assert_array_equal(kinematics.palm(q)[1, 2], kinematics.palm(q[1, 2]))


@pytest.mark.parametrize("name", ["dex16@arm7", "gripper@wrist"])
def test_jacobians_are_the_derivatives_of_poses(name: str) -> None:
    robot = load(name)
    kinematics = Kinematics(robot)
    h = 1e-6
    for q in random_poses(robot, 5):
        for site in (robot.palm, robot.fingertips[-1].site):
            J = kinematics.jacobians(q, site)
            for k in range(len(q)):
                step = np.zeros(len(q))
                step[k] = h
                a, b = kinematics.poses(q - step, site), kinematics.poses(q + step, site)
                v = (b[:3, 3] - a[:3, 3]) / (2 * h)
                w = se3.so3_log(se3.quat_from_matrix(b[:3, :3] @ a[:3, :3].T)) / (2 * h)
                np.testing.assert_allclose(J[:, k], np.concatenate([v, w]), atol=1e-6)


def test_ik_finds_poses_that_are_known_to_exist(hand_on_arm) -> None:
    kinematics = Kinematics(hand_on_arm)
    for q in random_poses(hand_on_arm, 15, seed=1):
        T = kinematics.palm(q)
        found = solve_ik(hand_on_arm, {hand_on_arm.palm: T})
        assert found.converged, found.status
        reached = kinematics.palm(found.q)
        assert np.linalg.norm(reached[:3, 3] - T[:3, 3]) < 1e-4
        turn = se3.so3_log(se3.quat_from_matrix(reached[:3, :3].T @ T[:3, :3]))
        assert np.linalg.norm(turn) < 1e-3
        low, high = hand_on_arm.position_limits.T
        assert np.all((found.q >= low) & (found.q <= high))


def test_ik_of_palm_and_all_fingertips_at_once(hand_on_wrist) -> None:
    kinematics = Kinematics(hand_on_wrist)
    q = hand_on_wrist.home + np.random.default_rng(0).uniform(-0.2, 0.2, 22)
    q = np.clip(q, *hand_on_wrist.position_limits.T)
    targets: dict[str, np.ndarray] = {f.site: kinematics.poses(q, f.site)[:3, 3] for f in hand_on_wrist.fingertips}
    targets[hand_on_wrist.palm] = kinematics.palm(q)
    found = solve_ik(hand_on_wrist, targets)
    assert found.converged, found.status
    for site, target in targets.items():
        p = target if target.shape == (3,) else target[:3, 3]
        assert np.linalg.norm(kinematics.poses(found.q, site)[:3, 3] - p) < 1e-4


def test_an_unreachable_target_is_said_to_be_so(hand_on_arm) -> None:
    """The arm is 1.27 m long above its base, the palm 0.07 m further: 3 m away leaves more than 1.6 m."""
    target = np.array([3.0, 0.0, 0.34])
    found = solve_ik(hand_on_arm, {hand_on_arm.palm: target}, cfg=IkCfg(restarts=3))
    assert not found.converged
    assert found.status.level == Level.FAIL
    assert found.status.code == "ik_unreachable"
    here = Kinematics(hand_on_arm).palm(found.q)[:3, 3]
    assert found.position_error_m == pytest.approx(np.linalg.norm(here - target))
    assert 3.0 - (0.4 + 0.4 + 0.126 + 0.07) < found.position_error_m < 2.2
    assert f"{1e3 * found.position_error_m:.1f} mm" in found.status.message


def test_only_the_joints_that_may_move_do(hand_on_arm) -> None:
    kinematics = Kinematics(hand_on_arm)
    T = kinematics.palm(hand_on_arm.home)
    T[:3, 3] += [0.05, 0.1, -0.05]
    q0 = hand_on_arm.home.copy()
    q0[-1] += 0.1
    found = solve_ik(hand_on_arm, {hand_on_arm.palm: T}, q0, joints=hand_on_arm.arm_joints)
    assert found.converged
    np.testing.assert_allclose(found.q[7:], q0[7:], atol=1e-9)


def test_near_a_singular_pose_it_stays_calm(hand_on_arm) -> None:
    """The stretched arm cannot move along itself at first order, but a pose a centimetre back is found nearby."""
    straight = np.concatenate([np.zeros(7), hand_on_arm.home[7:]])
    straight[1] = 1.2
    T = Kinematics(hand_on_arm).palm(straight)
    T[:3, 3] -= 0.01 * np.array([np.sin(1.2), 0, np.cos(1.2)])
    found = solve_ik(hand_on_arm, {hand_on_arm.palm: T}, straight, joints=hand_on_arm.arm_joints)
    assert found.converged, found.status


def with_post(robot: Embodiment) -> mujoco.MjModel:
    spec = robot.make_spec()
    spec.worldbody.add_geom(name="post", type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.02, 0.02, 0.1], pos=[0.11, 0, 0.30])
    return spec.compile()


def test_it_avoids_what_is_in_the_way_or_says_that_it_cannot(hand_on_wrist) -> None:
    """The palm goes where it should, and the fingers move aside from a post that stands where they were."""
    scene = with_post(hand_on_wrist)
    collisions = Collisions(scene, hand_on_wrist.joints)
    start = hand_on_wrist.home.copy()
    start[0] = -0.2
    assert collisions.free(start)
    T = Kinematics(hand_on_wrist).palm(hand_on_wrist.home)
    naive = solve_ik(hand_on_wrist, {hand_on_wrist.palm: T}, start, scene=scene)
    assert naive.converged
    assert not collisions.free(naive.q)
    careful = solve_ik(hand_on_wrist, {hand_on_wrist.palm: T[:3, 3]}, start, scene=scene, avoid_collisions=True)
    assert careful.converged, careful.status
    assert collisions.free(careful.q)
    inside = np.array([0.11, 0, 0.30])  # the palm cannot be inside the post
    stuck = solve_ik(hand_on_wrist, {hand_on_wrist.palm: inside}, start, scene=scene, avoid_collisions=True,
                     cfg=IkCfg(restarts=2))  # fmt: skip
    assert not stuck.converged


def test_loose_things_in_a_scene_stay_where_they_are(hand_on_wrist) -> None:
    spec = hand_on_wrist.make_spec()
    ball = spec.worldbody.add_body(name="ball", pos=[1, 0, 1])
    ball.add_freejoint()
    ball.add_geom(size=[0.02, 0, 0])
    T = Kinematics(hand_on_wrist).palm(hand_on_wrist.home)
    T[:3, 3] += 0.1
    assert solve_ik(hand_on_wrist, {hand_on_wrist.palm: T}, scene=spec.compile()).converged


def test_bad_input_is_named(hand_on_wrist) -> None:
    with pytest.raises(UnknownName, match="unknown site 'plam'"):
        solve_ik(hand_on_wrist, {"plam": np.eye(4)})
    with pytest.raises(InputError, match="proper rotation"):
        solve_ik(hand_on_wrist, {hand_on_wrist.palm: 2 * np.eye(4)})
    with pytest.raises(InputError, match="at least one target"):
        solve_ik(hand_on_wrist, {})
    with pytest.raises(InputError, match="22 joints"):
        solve_ik(hand_on_wrist, {hand_on_wrist.palm: np.eye(4)}, np.zeros(3))
    with pytest.raises(InputError, match="has 22 joints, not 3"):
        Kinematics(hand_on_wrist).palm(np.zeros(3))
