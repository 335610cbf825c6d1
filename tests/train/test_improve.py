"""A policy is corrected where it comes by itself."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.demonstrate.episodes import variations
from dexloop.policy.contract import Terms
from dexloop.policy.observation import Observation
from dexloop.policy.rehearsal import Stage
from dexloop.policy.start import Start
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.pickup import Load, Pickup
from dexloop.sim.believed import Draws
from dexloop.train.cfg import TrainCfg
from dexloop.train.examples import Examples
from dexloop.train.from_demos import examples_of
from dexloop.train.imitate import imitate
from dexloop.train.improve import Task, _Corrections, improve
from tests.policy.planted import ball
from tests.robots.pinched import ROBOT, T_WORLD_BASE, T_WORLD_OBJECT, box_scene, pinch, worlds

LOAD = Load(0.15, 0.17, 0.6)
TERMS = Terms.of(ROBOT, rate_hz=50.0)
POINTS = ball(0.03)


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage(box_scene(), ROBOT, "box", T_WORLD_BASE, POINTS)


@pytest.fixture(scope="module")
def demos(stage: Stage) -> dict[str, np.ndarray]:
    count = 8
    arrays, _ = variations(
        ROBOT, stage.scene, "box", [pinch()], T_WORLD_OBJECT, LOAD, worlds([0.15] * count, [0.6] * count), seed=3
    )
    return arrays


@pytest.fixture(scope="module")
def examples(demos: dict[str, np.ndarray]) -> Examples:
    return examples_of(demos, ROBOT, TERMS, T_WORLD_BASE, POINTS)


def test_where_a_demonstration_goes_the_correction_is_what_it_did(
    stage: Stage, demos: dict[str, np.ndarray], examples: Examples
):
    own = int(demos["episode"][0])
    T = se3.from_pose(demos["start"][own])
    load = Load(demos["mass_kg"][own], demos["mass_high_kg"][own], demos["friction"][own])
    corrections = _Corrections([Pickup(ROBOT, stage.scene.model, pinch(), T, load)], stage)
    rows = np.flatnonzero(examples.episode == own)
    for row in rows:
        seen = Observation(**{k: v[[row]] for k, v in examples.observation.items()}, points=POINTS)
        past = SimpleNamespace(T_world_start=T[None])
        corrections.note(SimpleNamespace(seen=seen, past=past, brain=SimpleNamespace(contract=TERMS)))  # pyright: ignore[reportArgumentType]
    found = corrections.examples()
    assert len(found) == len(rows)
    np.testing.assert_allclose(found.palm, examples.palm[rows], atol=2e-3)
    np.testing.assert_allclose(found.hand, examples.hand[rows], atol=1e-3)
    np.testing.assert_allclose(found.force, examples.force[rows], rtol=0.05, atol=0.1)
    assert (found.phase == examples.phase[rows]).mean() > 0.97  # a phase may begin a moment sooner or later


def test_a_policy_is_improved_in_worlds_of_the_belief(stage: Stage, demos: dict[str, np.ndarray], examples: Examples):
    cfg = TrainCfg(epochs=6, hidden=64, rounds=1, worlds=4)
    before = imitate(examples, TERMS, cfg=cfg)
    hand = [ROBOT.joints.index(j) for j in ROBOT.hand_joints]
    pickup = Pickup(ROBOT, stage.scene.model, pinch(), T_WORLD_OBJECT, LOAD)
    palm = se3.inverse(T_WORLD_OBJECT) @ T_WORLD_BASE @ Kinematics(ROBOT).palm(pickup.before)
    asked: list[tuple[int, int]] = []

    def drawn(n: int, seed: int) -> Draws:
        asked.append((n, seed))
        return worlds([0.15] * n, [0.6] * n)

    task = Task(stage, Start(palm, pickup.before[hand]), [pinch()], T_WORLD_OBJECT, LOAD, drawn)
    told: set[str] = set()
    after = improve(before, examples, TERMS, task, cfg=cfg, progress=lambda text, _done: told.add(text))
    (row,) = after.training["improvement"]
    assert 0.0 <= row["held_before"] <= 1.0
    assert row["examples"] > len(examples)
    assert (after.network is not before.network) == (row["held_after"] >= row["held_before"])
    assert [n for n, _ in asked] == [4, 4]
    assert asked[0][1] != asked[1][1], "it is tried in other worlds than it is corrected in"
    assert "in simulated worlds that it was not trained in" in after.status.message
    assert told >= {"trying the policy", "correcting the policy", "imitating"}
