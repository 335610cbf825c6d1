from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.artifact import write_text, writing
from dexloop.core.artifacts import Policy
from dexloop.core.errors import InputError
from dexloop.policy.start import Start
from dexloop.robots.kinematics import Kinematics
from tests.robots.pinched import ROBOT, T_WORLD_BASE, T_WORLD_OBJECT

START = Start(se3.exp(np.array([0.0, 0.01, 0.2, 3.0, 0.2, 0.0])), np.array([0.03, 0.02]))


def policy(folder: Path, **meta: object) -> Policy:
    with writing(folder / "policy", Policy) as draft:
        write_text(draft.folder / "weights.safetensors", "none")
        write_text(draft.folder / "contract.json", "{}")
        draft.meta |= meta
    return Policy.open(folder / "policy")


def test_the_palm_is_before_the_object_wherever_that_stands():
    turned = T_WORLD_OBJECT @ se3.exp(np.array([0.03, 0.02, 0.0, 0.0, 0.0, 0.8]))
    for T in (T_WORLD_OBJECT, turned):
        q = START.posture(ROBOT, T_WORLD_BASE, T)
        palm = T_WORLD_BASE @ Kinematics(ROBOT).palm(q)
        np.testing.assert_allclose(palm, T @ START.T_object_palm, atol=1e-3)
        np.testing.assert_array_equal(q[[ROBOT.joints.index(j) for j in ROBOT.hand_joints]], START.hand)


def test_an_object_out_of_reach_is_an_error():
    far = se3.from_rt(np.eye(3), np.array([9.0, 0.0, 0.0]))
    with pytest.raises(InputError, match=r"does not get to where the policy begins.*move the object"):
        START.posture(ROBOT, T_WORLD_BASE, far)


def test_a_policy_says_where_it_begins_or_is_refused(tmp_path: Path):
    found = Start.of(policy(tmp_path / "a", start=START.to_json()))
    np.testing.assert_array_equal(found.T_object_palm, START.T_object_palm)
    np.testing.assert_array_equal(found.hand, START.hand)
    for name, meta in (("b", {}), ("c", {"start": {"hand": [0.0]}}), ("d", {"start": [1.0]})):
        with pytest.raises(InputError, match="does not say where it begins"):
            Start.of(policy(tmp_path / name, **meta))
