from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.policy.acting import Acting
from dexloop.policy.bundle import Action
from dexloop.policy.contract import Contract
from dexloop.policy.observation import Observation, encode_belief
from dexloop.robots import Embodiment, load
from dexloop.robots.kinematics import Kinematics
from tests.policy.planted import ball

BASE = se3.from_rt(np.eye(3), np.array([-0.26, 0.0, 0.0]))
N = 2


class Puppet:
    """A brain that answers what it is told to, and remembers what it saw."""

    def __init__(self, contract: Contract):
        self.contract = contract
        self.answer: Action | None = None
        self.seen: list[Observation] = []

    def act(self, observation: Observation) -> Action:
        self.seen.append(observation)
        assert self.answer is not None
        return self.answer


@pytest.fixture
def start(robot: Embodiment) -> dict[str, Any]:
    T = se3.from_rt(np.eye(3), np.array([0.02, 0.0, 0.03]))
    return {
        "T_world_base": BASE, "T_world_object": np.repeat(T[None], N, axis=0),
        "belief": encode_belief(np.array([0.1, 0.2]), 0.05, 0.5, 0.0), "points": ball(0.03),
        "q": np.tile(robot.home, (N, 1)), "t_s": 0.0,
    }  # fmt: skip


def answer(robot: Embodiment, start: dict[str, Any], shift_m: float, phase: int) -> Action:
    """The palm goes up from home by so much, seen from where the object stood."""
    palm = BASE @ Kinematics(robot).palm(robot.home)
    palm[2, 3] += shift_m
    goal = se3.inverse(start["T_world_object"]) @ palm
    hand = np.tile(robot.home[-len(robot.hand_joints) :], (N, 1)) + 0.01
    return Action(goal, hand, np.zeros((N, 4)), np.full(N, phase), np.zeros((N, 5)))


def looks(robot: Embodiment, start: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return start["q"], np.zeros((N, len(robot.fingertips))), start["T_world_object"]


def test_the_palm_goes_where_the_policy_says(robot: Embodiment, contract: Contract, start: dict[str, Any]) -> None:
    puppet = Puppet(contract)
    acting = Acting(puppet, robot, **start)  # type: ignore[arg-type] - it acts like a brain
    puppet.answer = answer(robot, start, 0.01, 0)
    acting.step(0.0, *looks(robot, start))
    palm = BASE @ Kinematics(robot).palm(acting.command)
    wanted = start["T_world_object"] @ puppet.answer.palm
    np.testing.assert_allclose(palm, wanted, atol=2e-3)
    hand = [robot.joints.index(j) for j in robot.hand_joints]
    np.testing.assert_allclose(acting.command[:, hand], puppet.answer.hand)
    np.testing.assert_allclose(puppet.seen[0].belief, start["belief"])


def test_no_joint_is_told_to_go_faster_than_it_may(
    robot: Embodiment, contract: Contract, start: dict[str, Any]
) -> None:
    puppet = Puppet(contract)
    acting = Acting(puppet, robot, **start)  # type: ignore[arg-type]
    puppet.answer = answer(robot, start, 0.5, 0)
    acting.step(0.0, *looks(robot, start))
    step = np.abs(acting.command - start["q"])
    assert step.max() == pytest.approx((robot.speed_limits / contract.rate_hz)[2] / 1.5)
    way = acting.path(np.linspace(0.0, 1.0, 101))
    speed = np.abs(np.diff(way, axis=1)) * 100 * contract.rate_hz
    assert (speed <= robot.speed_limits * (1.0 + 1e-9)).all()
    # A cubic from rest to its mean speed is a third faster in between; one that turns round is faster by half.
    assert speed[..., 2].max() == pytest.approx(4 / 3 / 1.5 * robot.speed_limits[2], rel=1e-3)
    low, high = robot.position_limits.T
    assert ((acting.command >= low) & (acting.command <= high)).all()


def test_phases_follow_each_other_one_at_a_time(robot: Embodiment, contract: Contract, start: dict[str, Any]) -> None:
    puppet = Puppet(contract)
    acting = Acting(puppet, robot, **start)  # type: ignore[arg-type]
    puppet.answer = answer(robot, start, 0.0, 4)
    for k in range(6):
        acting.step(0.02 * k, *looks(robot, start))
        assert acting.phase.tolist() == [min(k + 1, 4)] * N
    puppet.answer = answer(robot, start, 0.0, 0)
    acting.step(1.0, *looks(robot, start))
    assert acting.phase.tolist() == [4] * N


def test_another_robot_and_numbers_that_are_none_are_refused(
    robot: Embodiment, contract: Contract, start: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="gripper"):
        Acting(Puppet(contract), load("gripper@wrist"), **start)  # type: ignore[arg-type]
    acting = Acting(Puppet(contract), robot, **start)  # type: ignore[arg-type]
    q, touch, T = looks(robot, start)
    with pytest.raises(InputError, match="not finite"):
        acting.step(0.0, np.full_like(q, np.nan), touch, T)
    changed = replace(contract, joints=tuple(reversed(contract.joints)))
    with pytest.raises(InputError):
        Acting(Puppet(changed), robot, **start)  # type: ignore[arg-type]


def test_the_path_between_commands_is_smooth(robot: Embodiment, contract: Contract, start: dict[str, Any]) -> None:
    """It goes through the commands, and begins with the speed with which the last one ended: motors are not jerked."""
    puppet = Puppet(contract)
    acting = Acting(puppet, robot, **start)  # type: ignore[arg-type]
    share = np.linspace(0.0, 1.0, 201)
    np.testing.assert_allclose(acting.path(share), np.repeat(start["q"][:, None], 201, axis=1), atol=1e-15)
    commands, paths = [start["q"]], []
    for k, shift in enumerate((0.002, 0.005, 0.005, 0.001)):
        puppet.answer = answer(robot, start, shift, 0)
        acting.step(0.02 * k, *looks(robot, start))
        commands.append(acting.command)
        paths.append(acting.path(share))
    for before, after, path in zip(commands, commands[1:], paths, strict=False):
        np.testing.assert_allclose(path[:, 0], before, atol=1e-15)
        np.testing.assert_allclose(path[:, -1], after, atol=1e-15)
    ends = [(np.diff(path, axis=1) / np.diff(share)[:, None])[:, [0, -1]] for path in paths]
    for k in range(3):
        np.testing.assert_allclose(ends[k][:, 1], ends[k + 1][:, 0], atol=2e-4)
        np.testing.assert_allclose(ends[k][:, 1], commands[k + 1] - commands[k], atol=2e-4)
    assert np.abs(ends[1]).max() > 2e-3  # there was something to be smooth about


def test_the_path_stays_inside_the_limits(robot: Embodiment, contract: Contract, start: dict[str, Any]) -> None:
    puppet = Puppet(contract)
    acting = Acting(puppet, robot, **start)  # type: ignore[arg-type]
    low, high = robot.position_limits.T
    hand = [robot.joints.index(j) for j in robot.hand_joints]
    # Fast up to a limit and then at rest there: a cubic alone would overshoot it.
    puppet.answer = replace(answer(robot, start, 0.0, 0), hand=np.tile(high[hand], (N, 1)))
    for k in range(50):
        acting.step(0.02 * k, *looks(robot, start))
        path = acting.path(np.linspace(0.0, 1.0, 11))
        assert ((path >= low) & (path <= high)).all()
    np.testing.assert_allclose(acting.command[:, hand], puppet.answer.hand)
