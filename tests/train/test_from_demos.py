from __future__ import annotations

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.policy.contract import Terms
from dexloop.policy.observation import decode_pose, encode_loads
from dexloop.robots.catalog import load
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.pickup import Load
from dexloop.train.from_demos import examples_of

ROBOT = load("gripper@wrist")
TERMS = Terms.of(ROBOT, rate_hz=50.0)
BASE = se3.from_rt(np.eye(3), np.array([-0.26, 0.0, 0.0]))
POINTS = np.random.default_rng(0).normal(size=(128, 3))
PHASES = np.repeat([0, 1, 2, 3, 4], 4)


def demos(episodes: int = 2) -> dict[str, np.ndarray]:
    """Every number is another one, so that whatever is mixed up shows."""
    rng = np.random.default_rng(1)
    n, per = episodes * len(PHASES), len(PHASES)
    q = rng.uniform(*ROBOT.position_limits.T, (n, len(ROBOT.joints)))
    command = rng.uniform(*ROBOT.position_limits.T, (n, len(ROBOT.joints)))
    return {
        "episode": np.repeat(np.arange(episodes), per), "t": np.tile(0.02 * (1 + np.arange(per)), episodes),
        "phase": np.tile(PHASES, episodes), "position": q, "command": command, "touch": rng.uniform(0, 5, (n, 2)),
        "force": rng.uniform(0, 5, (n, 2)), "object": se3.to_pose(se3.exp(rng.normal(size=(n, 6)))),
        "palm": se3.to_pose(BASE @ Kinematics(ROBOT).palm(q)), "firmness": np.ones(n),
        "hold": np.zeros(episodes, int), "start": se3.to_pose(se3.exp(rng.normal(size=(episodes, 6)))),
        "mass_kg": np.array([0.2, 0.4]), "mass_high_kg": np.array([0.25, 0.5]), "friction": np.array([0.3, 0.6]),
    }  # fmt: skip


def test_what_was_done_next_is_the_answer_to_what_was_seen():
    data = demos()
    found = examples_of(data, ROBOT, TERMS, BASE, POINTS)
    assert len(found) == 2 * (len(PHASES) - 1)  # the last moment of an episode has no next one
    hand = [ROBOT.joints.index(j) for j in ROBOT.hand_joints]
    kinematics = Kinematics(ROBOT)
    row = 0
    for k in range(len(data["t"]) - 1):
        if data["episode"][k] != data["episode"][k + 1]:
            continue
        own = int(data["episode"][k])
        np.testing.assert_allclose(found.observation["q"][row], data["position"][k, hand])
        np.testing.assert_allclose(found.observation["push"][row], (data["command"] - data["position"])[k, hand])
        np.testing.assert_allclose(found.observation["touch"][row], data["touch"][k])
        np.testing.assert_allclose(found.hand[row], data["command"][k + 1, hand])
        np.testing.assert_allclose(found.force[row], data["force"][k + 1])
        assert found.phase[row] == data["phase"][k + 1]
        told = se3.from_pose(data["start"][own]) @ decode_pose(found.palm[row])
        np.testing.assert_allclose(told, BASE @ kinematics.palm(data["command"][k + 1]), atol=1e-9)
        row += 1


def test_clock_and_slip_begin_with_their_phases():
    data = demos()
    found = examples_of(data, ROBOT, TERMS, BASE, POINTS)
    clock = found.observation["clock"][: len(PHASES) - 1, 0]
    # A phase begins at the moment in which it is chosen, one before its first; the first one with the episode.
    np.testing.assert_allclose(clock, 0.02 * np.r_[np.arange(4), np.tile(np.arange(1, 5), 4)][:-1], atol=1e-12)
    slip = found.observation["slip"]
    place = (se3.inverse(se3.from_pose(data["palm"])) @ se3.from_pose(data["object"]))[:, :3, 3]
    first = int(np.argmax(PHASES == 3))
    assert (slip[:first] == 0).all()
    np.testing.assert_allclose(slip[first:19], place[first:19] - place[first - 1], atol=1e-12)
    second, own = len(PHASES) - 1, len(PHASES)  # of the next episode, which has a slip of its own
    np.testing.assert_allclose(slip[second + first], place[own + first] - place[own + first - 1], atol=1e-12)


def test_belief_is_that_of_the_episode():
    found = examples_of(demos(), ROBOT, TERMS, BASE, POINTS)
    np.testing.assert_allclose(found.observation["belief"][0], [np.log(0.2), np.log(1.25) / 1.96, 0.3, 0.0])
    np.testing.assert_allclose(found.observation["belief"][-1], [np.log(0.4), np.log(1.25) / 1.96, 0.6, 0.0])
    np.testing.assert_allclose(encode_loads([Load(0.4, 0.5, 0.6)])[0],
                               found.observation["belief"][-1])  # fmt: skip


def test_what_is_missing_is_named():
    data = demos()
    del data["touch"], data["friction"]
    with pytest.raises(InputError, match="touch, friction"):
        examples_of(data, ROBOT, TERMS, BASE, POINTS)
