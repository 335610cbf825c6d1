from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dexloop.audit.predict import CHANNELS, measured, moved, predicted
from dexloop.core import se3
from dexloop.policy.rehearsal import Stage
from dexloop.robots.handling import Handling
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.pickup import Load, Pickup
from dexloop.robots.traces import RATE_HZ, Traces
from tests.policy.planted import ball
from tests.policy.played import BRISK
from tests.robots.pinched import ROBOT, T_WORLD_BASE, T_WORLD_OBJECT, box_scene, pinch, worlds

T = np.arange(1, 101) / RATE_HZ
LIFT_S = 1.0


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage(box_scene(), ROBOT, "box", T_WORLD_BASE, ball(0.03))


def traced(q: np.ndarray, T_world_object: np.ndarray) -> Traces:
    m = len(q)
    palm = T_WORLD_BASE @ Kinematics(ROBOT).palm(q)
    return Traces(T[:m], q, q, np.ones_like(q), np.ones((m, 2)), T_world_object, palm)


def test_slip_is_how_far_the_object_moved_in_the_palm_since_the_lift():
    """A hand that rises and turns; what it holds slides out of it by a millimetre each tenth of a second."""
    q = np.tile(ROBOT.home, (100, 1))
    q[:, ROBOT.joints.index("wrist_z")] += 0.05 * T
    q[:, ROBOT.joints.index("wrist_rz")] += 0.3 * T
    palm = T_WORLD_BASE @ Kinematics(ROBOT).palm(q)
    slid = np.where(T > LIFT_S, 0.01 * (T - LIFT_S), 0.0)
    held = palm @ se3.from_rt(np.tile(np.eye(3), (100, 1, 1)), np.stack([0 * T, slid, 0.1 + 0 * T], axis=1))
    found = measured(traced(q, held), LIFT_S)
    assert set(found.values) == set(CHANNELS)
    assert {name: value.shape[0] for name, value in found.values.items()} == dict.fromkeys(CHANNELS, 1)
    np.testing.assert_allclose(found.values["slip"][0, :, 0], slid, atol=1e-12)
    np.testing.assert_allclose(found.values["pose"][0], held[:, :3, 3])
    assert (measured(traced(q, held), np.nan).values["slip"] == 0).all()


def test_the_commands_are_sent_again_to_each_world_from_where_the_trial_began(stage: Stage):
    pickup = Pickup(ROBOT, stage.scene.model, pinch(), T_WORLD_OBJECT, Load(0.2, 0.24, 0.4), BRISK)
    commands = pickup.command(T)
    seen = replace(traced(commands, np.tile(T_WORLD_OBJECT, (100, 1, 1))), position=pickup.before + 0.0 * commands)
    poses = np.stack([T_WORLD_OBJECT, moved(T_WORLD_OBJECT, np.array([0.2, 0.0, 0.0]))])
    done: list[float] = []
    found, lost = predicted(seen, stage, poses, worlds([0.2, 0.2], [0.5, 0.5]), 1.2, progress=done.append)
    assert lost == frozenset()
    assert done[-1] == 1.0
    np.testing.assert_allclose(found.values["joints"][0, 0], pickup.before, atol=2e-3)
    # What lies between two commands was sent too: it is as if the motion itself had been sent, at every step.
    bench = Handling(stage.scene, ROBOT, "box", worlds([0.2], [0.5]), q=pickup.before[None],
                     T_world_object=T_WORLD_OBJECT[None], rate_hz=RATE_HZ)  # fmt: skip
    arm = [ROBOT.joints.index(j) for j in ROBOT.arm_joints]
    for k, t in enumerate(T[:80]):
        q = bench.step(pickup.command(t - bench.dt + bench.fine)[None]).position[0, arm]
        np.testing.assert_allclose(found.values["joints"][0, k, arm], q, atol=4e-4)
    up = found.values["pose"][:, -1, 2] - found.values["pose"][:, 0, 2]
    assert up == pytest.approx([0.1, 0.0], abs=6e-3)  # one is taken up, the other stands elsewhere
    assert found.values["force"][0, -1].min() > 2.0
    assert found.values["force"][1].max() == pytest.approx(0.0, abs=1e-6)


def test_an_object_is_moved_on_the_table():
    lying = se3.exp(np.array([0.1, 0.2, 0.03, np.pi / 2, 0.0, 0.0]))
    there = moved(lying, np.array([0.01, -0.02, 0.4]))
    np.testing.assert_allclose(there[:3, 3] - lying[:3, 3], [0.01, -0.02, 0.0], atol=1e-12)
    turn = there[:3, :3] @ lying[:3, :3].T
    np.testing.assert_allclose(turn, [[np.cos(0.4), -np.sin(0.4), 0], [np.sin(0.4), np.cos(0.4), 0], [0, 0, 1]],
                               atol=1e-12)  # fmt: skip
    np.testing.assert_array_equal(lying[:3, 3], se3.exp(np.array([0.1, 0.2, 0.03, np.pi / 2, 0, 0]))[:3, 3])
