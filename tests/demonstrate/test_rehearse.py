from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.demonstrate.rehearse import OUT_OF_REACH, Rehearsed, best_of, rehearse
from dexloop.robots.hold import Hold
from dexloop.robots.outcome import HELD, MISSED
from dexloop.robots.pickup import Load
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene
from tests.demonstrate import boxes

LOAD = Load(0.15, 0.17, 0.8)
JAWS = "gripper@wrist"
WORLDS = Draws(("object.mass", "fingertip.friction"), (1, 1), np.array([[0.15, 0.9], [0.16, 1.0], [0.17, 0.8]]))


@pytest.fixture(scope="module")
def scene() -> Scene:
    return boxes.scene(JAWS)


@pytest.fixture(scope="module")
def hold(scene: Scene) -> Hold:
    return boxes.pinch_by_jaws(scene)


def beside(hold: Hold) -> Hold:
    """A hold that statics take for a good one, but whose hand closes beside the object."""
    return replace(hold, T_object_palm=se3.from_rt(np.eye(3), np.array([0.15, 0, 0])) @ hold.T_object_palm)


def test_what_holds_is_chosen_whatever_statics_say(scene: Scene, hold: Hold):
    missing = replace(beside(hold), friction_needed=0.1)
    done = []
    tried = best_of(
        boxes.robot(JAWS), scene, "box", [missing, hold], boxes.T_WORLD_OBJECT, LOAD, WORLDS, look=1, most=2,
        progress=done.append,
    )  # fmt: skip
    assert [each[0] for each in tried] == [hold, missing]
    good, bad = (went for _, went in tried)
    assert good.outcomes == {HELD: 3}
    assert good.share == 1.0
    assert max(good.slips_m) < 0.01
    assert bad.outcomes == {MISSED: 3}
    assert bad.share == 0.0
    assert done[-1] == 1.0
    assert (np.diff(done) >= 0.0).all()


def test_only_the_best_of_a_first_look_are_rehearsed_in_all_worlds(scene: Scene, hold: Hold):
    tried = best_of(
        boxes.robot(JAWS), scene, "box", [beside(hold), hold], boxes.T_WORLD_OBJECT, LOAD, WORLDS, look=1, most=1
    )
    assert [each[0] for each in tried] == [hold]
    [whole] = rehearse(boxes.robot(JAWS), scene, "box", [hold], boxes.T_WORLD_OBJECT, LOAD, WORLDS)
    assert tried[0][1].outcome == whole.outcome  # in two pieces or in one
    np.testing.assert_allclose(tried[0][1].slips_m, whole.slips_m, atol=1e-9)


def test_a_hold_out_of_reach_is_the_worst(scene: Scene, hold: Hold):
    far = replace(hold, T_object_palm=se3.from_rt(np.eye(3), np.array([9.0, 0, 0])) @ hold.T_object_palm)
    reached, went = rehearse(boxes.robot(JAWS), scene, "box", [hold, far], boxes.T_WORLD_OBJECT, LOAD, WORLDS)
    assert reached.outcomes == {HELD: 3}  # beside one that is not
    assert went.pickup is None
    assert went.outcomes == {OUT_OF_REACH: 3}
    assert went.rank > Rehearsed((MISSED,), (0.3,), None).rank


def test_of_those_that_hold_alike_the_one_that_slips_less_is_better():
    firm, loose = (Rehearsed((HELD, HELD), (slip, slip), None) for slip in (1e-3, 9e-3))
    once = Rehearsed((HELD, MISSED), (1e-4, 0.0), None)
    assert sorted([once, loose, firm], key=lambda r: r.rank) == [firm, loose, once]
