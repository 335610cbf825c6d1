from __future__ import annotations

import itertools

import mujoco
import numpy as np
import pytest

from dexloop.core.errors import InputError, UnknownName
from dexloop.robots import Embodiment, PlanCfg, plan


@pytest.fixture(scope="module")
def scene(hand_on_arm: Embodiment) -> mujoco.MjModel:
    """A pole in front of the arm, on a table."""
    spec = hand_on_arm.make_spec()
    box = mujoco.mjtGeom.mjGEOM_BOX
    spec.worldbody.add_geom(name="pole", type=box, size=[0.02, 0.02, 0.4], pos=[0.55, 0, 0.4])
    spec.worldbody.add_geom(name="table", type=box, size=[0.4, 0.6, 0.02], pos=[0.6, 0, -0.02])
    return spec.compile()


@pytest.fixture(scope="module")
def ends(hand_on_arm: Embodiment) -> tuple[np.ndarray, np.ndarray]:
    start, goal = hand_on_arm.home.copy(), hand_on_arm.home.copy()
    start[0], goal[0] = -0.8, 0.8
    return start, goal


def deepest(robot: Embodiment, scene: mujoco.MjModel, path: np.ndarray, step: float = 0.002) -> float:
    """Walks a path in tiny steps with a plain forward pass and returns the least distance to anything."""
    data = mujoco.MjData(scene)
    worst = 0.0
    for a, b in itertools.pairwise(path):
        for s in np.linspace(0, 1, int(np.abs(b - a).max() / step) + 2):
            for joint, q in zip(robot.joints, (1 - s) * a + s * b, strict=True):
                data.joint(joint).qpos = q
            mujoco.mj_forward(scene, data)
            worst = min([worst, *(c.dist for c in data.contact)])
    return worst


def test_it_goes_round_a_pole(hand_on_arm, scene, ends) -> None:
    start, goal = ends
    assert deepest(hand_on_arm, scene, np.stack(ends), 0.02) < -0.005  # straight ahead it would hit
    found = plan(hand_on_arm, start, goal, scene=scene)
    assert found.path is not None, found.status
    assert found.status.code == "path_found"
    np.testing.assert_array_equal(found.path[0], start)
    np.testing.assert_array_equal(found.path[-1], goal)
    assert deepest(hand_on_arm, scene, found.path) == 0.0
    low, high = hand_on_arm.position_limits.T
    assert np.all((found.path >= low) & (found.path <= high))
    np.testing.assert_array_equal(found.path[:, 7:], np.tile(start[7:], (len(found.path), 1)))  # the hand stays


def test_the_same_seed_gives_the_same_path(hand_on_arm, scene, ends) -> None:
    first, again, other = (plan(hand_on_arm, *ends, scene=scene, cfg=PlanCfg(seed=s)) for s in (4, 4, 5))
    np.testing.assert_array_equal(first.path, again.path)
    assert other.path is not None
    assert other.path.shape != first.path.shape or not np.allclose(other.path, first.path)


def test_joints_outside_the_search_go_along(hand_on_arm, scene, ends) -> None:
    start, goal = ends[0], ends[1].copy()
    goal[8] = 1.0
    found = plan(hand_on_arm, start, goal, scene=scene)
    assert found.path is not None, found.status
    assert found.path[-1, 8] == 1.0
    assert deepest(hand_on_arm, scene, found.path) == 0.0


def test_a_free_way_is_straight(hand_on_arm) -> None:
    goal = hand_on_arm.home.copy()
    goal[0] = 0.5
    found = plan(hand_on_arm, hand_on_arm.home, goal)
    assert found.path is not None
    assert len(found.path) == 2


def test_ends_in_collision_are_named(hand_on_arm, scene, ends) -> None:
    at_pole = hand_on_arm.home  # the hand is where the pole is
    found = plan(hand_on_arm, at_pole, ends[1], scene=scene)
    assert found.path is None
    assert found.status.code == "start_in_collision"
    assert "with pole" in found.status.message
    found = plan(hand_on_arm, ends[0], at_pole, scene=scene)
    assert found.status.code == "goal_in_collision"
    beyond = ends[1].copy()
    beyond[1] = 3.0
    found = plan(hand_on_arm, ends[0], beyond, scene=scene)
    assert found.status.code == "outside_limits"
    assert "arm_j2" in found.status.message


def test_a_walled_in_goal_has_no_path(hand_on_wrist) -> None:
    """A slab across the whole workspace: no way through."""
    spec = hand_on_wrist.make_spec()
    box = mujoco.mjtGeom.mjGEOM_BOX
    spec.worldbody.add_geom(name="slab", type=box, size=[0.02, 5, 5], pos=[0.35, 0, 0])
    start, goal = hand_on_wrist.home.copy(), hand_on_wrist.home.copy()
    goal[0] = 0.8
    found = plan(hand_on_wrist, start, goal, scene=spec.compile(), cfg=PlanCfg(budget_s=0.3))
    assert found.path is None
    assert found.status.code == "no_path"
    assert "no path in 0.3 s" in found.status.message


def test_bad_input_is_named(hand_on_arm) -> None:
    with pytest.raises(InputError, match="23 values"):
        plan(hand_on_arm, np.zeros(2), hand_on_arm.home)
    with pytest.raises(UnknownName, match="unknown joint 'x'"):
        plan(hand_on_arm, hand_on_arm.home, hand_on_arm.home, joints=["x"])
