from __future__ import annotations

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.demonstrate.episodes import variations
from dexloop.demonstrate.replay import replay
from dexloop.robots.hold import Hold
from dexloop.robots.outcome import DROPPED, HELD, MISSED, SLIPPED
from dexloop.robots.pickup import PHASES, Load, Pickup
from dexloop.robots.varied import BETTER
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene
from tests.demonstrate import boxes

LOAD = Load(0.15, 0.17, 0.8)


@pytest.fixture(scope="module")
def scene() -> Scene:
    return boxes.scene("gripper@wrist")


@pytest.fixture(scope="module")
def hold(scene: Scene) -> Hold:
    return boxes.pinch_by_jaws(scene)


def draws(masses: list[float], frictions: list[float]) -> Draws:
    return Draws(("object.mass", "fingertip.friction"), (1, 1), np.stack([masses, frictions], axis=1))


def test_what_is_as_believed_is_held_and_what_is_much_heavier_is_not(scene: Scene, hold: Hold):
    robot = boxes.robot("gripper@wrist")
    pickup = Pickup(robot, scene.model, hold, boxes.T_WORLD_OBJECT, LOAD)
    poses = np.repeat(boxes.T_WORLD_OBJECT[None], 3, axis=0)
    worlds = draws([0.15, 0.16, 1.5], [0.9, 1.0, 0.3])
    done = replay(scene, "box", [pickup] * 3, poses, worlds, feedback=False)
    assert done.outcome[:2] == (HELD, HELD)
    assert done.outcome[2] in (MISSED, DROPPED, SLIPPED)
    assert done.held.tolist() == [True, True, False]
    assert done.slip_m[0] < 0.01
    rise = done.T_world_object[:, -1, 2, 3] - done.T_world_object[:, 0, 2, 3]
    assert rise[0] == pytest.approx(pickup.cfg.lift_m, abs=0.03)  # the shake ends somewhere
    assert list(dict.fromkeys(done.phase[0])) == list(range(len(PHASES)))
    assert done.touch[0, done.phase[0] == 4].sum(axis=1).mean() > 1.0
    assert done.touch[0, done.phase[0] == 0].max() == 0.0


def test_feedback_holds_what_is_heavier_and_more_slippery_than_believed(scene: Scene, hold: Hold):
    """Alone it slips; squeezed harder as it slips, it is held, and the robot says how much harder."""
    robot = boxes.robot("gripper@wrist")
    pickup = Pickup(robot, scene.model, hold, boxes.T_WORLD_OBJECT, Load(0.06, 0.066, 0.9))
    poses = boxes.T_WORLD_OBJECT[None]
    alone, helped = (
        replay(scene, "box", [pickup], poses, draws([0.25], [0.5]), feedback=feedback) for feedback in (False, True)
    )
    assert (alone.firmness == 1.0).all()
    assert not alone.held[0]
    assert helped.firmness[0, -1] > 1.2
    assert helped.held[0]
    assert np.all(np.diff(helped.firmness[0, helped.phase[0] >= PHASES.index("lift")]) >= 0)


def test_new_demonstrations_are_of_other_places_and_masses(scene: Scene, hold: Hold):
    robot = boxes.robot("gripper@wrist")
    count = 6
    arrays, outcomes = variations(
        robot, scene, "box", [hold], boxes.T_WORLD_OBJECT, LOAD, draws([0.15] * count, [0.5] * count), seed=1
    )
    assert len(outcomes) == count
    assert HELD in outcomes
    kept = outcomes.count(HELD)
    assert len(arrays["start"]) == len(arrays["mass_kg"]) == kept
    assert np.unique(arrays["episode"]).tolist() == list(range(kept))
    n = len(arrays["t"])
    for name in ("phase", "position", "command", "touch", "force", "object", "palm", "firmness"):
        assert len(arrays[name]) == n
    assert np.ptp(arrays["mass_kg"]) > 0
    first = np.flatnonzero(np.diff(arrays["episode"], prepend=-1))
    moved = np.linalg.norm(arrays["object"][first, :3] - arrays["start"][:, :3], axis=1)
    assert moved.max() < 0.003  # an episode begins where it says that the object stands
    up = se3.from_pose(arrays["start"])[:, :3, 2]
    np.testing.assert_allclose(up, np.tile([0.0, 0.0, 1.0], (kept, 1)), atol=1e-9)
    pressing = arrays["phase"] >= 2
    assert (arrays["force"][~pressing] == 0).all()
    first_press = [int(np.argmax((arrays["episode"] == k) & pressing)) for k in range(kept)]
    hard, asked = arrays["force"][first_press].sum(axis=1), arrays["mass_high_kg"] / arrays["friction"]
    assert np.corrcoef(np.log(hard), np.log(asked))[0, 1] > 0.6  # heavy and slippery means hard


def test_new_demonstrations_at_given_frictions(scene: Scene, hold: Hold, monkeypatch):
    """Worlds have exactly these, in turn; what is believed lies below, as in all demonstrations."""
    worlds = []

    def noted(*args, **more):
        worlds.append(args[4])
        return replay(*args, **more)

    monkeypatch.setattr("dexloop.demonstrate.episodes.replay", noted)
    arrays, outcomes = variations(
        boxes.robot("gripper@wrist"), scene, "box", [hold], boxes.T_WORLD_OBJECT, LOAD, draws([0.15] * 4, [0.5] * 4),
        seed=1, frictions=(0.5, 0.8),
    )  # fmt: skip
    there = worlds[0].by_name()
    for name in ("fingertip.friction", "object.friction"):
        np.testing.assert_allclose(there[name][:, 0], [0.5, 0.8, 0.5, 0.8])
    given = np.array([0.5, 0.8, 0.5, 0.8])[[o == HELD for o in outcomes]]
    assert len(given)
    assert (arrays["friction"] <= given).all()
    assert (arrays["friction"] >= given / BETTER[1]).all()


def test_frictions_that_no_finger_has_are_refused():
    with pytest.raises(InputError, match="frictions are from"):
        DemonstrateCfg(frictions=(0.5, -0.1))


def test_numbers_that_do_not_agree_are_refused(scene: Scene, hold: Hold):
    robot = boxes.robot("gripper@wrist")
    pickup = Pickup(robot, scene.model, hold, boxes.T_WORLD_OBJECT, LOAD)
    with pytest.raises(InputError, match="as many poses"):
        replay(scene, "box", [pickup] * 2, boxes.T_WORLD_OBJECT[None], draws([0.1], [0.5]))
    with pytest.raises(InputError, match="in none of"):
        far = se3.from_rt(np.eye(3), np.array([5.0, 0.0, boxes.HALF[2]]))
        variations(robot, scene, "box", [hold], far, LOAD, draws([0.1], [0.5]), seed=0)
