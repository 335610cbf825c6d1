from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.policy.rehearsal import Stage, _judged, rehearse
from dexloop.robots.outcome import CRUSHED, DIVERGED, DROPPED, HELD, LATE, MISSED, SLIPPED, Outcome
from dexloop.robots.pickup import PHASES, Load, Pickup
from dexloop.robots.shake import Shake
from tests.policy.planted import ball
from tests.policy.played import BRISK, Player
from tests.robots.pinched import ROBOT, T_WORLD_BASE, T_WORLD_OBJECT, box_scene, pinch, worlds

LOAD, SHORT = Load(0.2, 0.24, 0.4), Shake(hold_s=0.2, shake_s=0.4)


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage(box_scene(), ROBOT, "box", T_WORLD_BASE, ball(0.03))


@pytest.fixture(scope="module")
def player(stage: Stage) -> Player:
    pickup = Pickup(ROBOT, stage.scene.model, pinch(), T_WORLD_OBJECT, LOAD, BRISK)
    return Player(pickup, T_WORLD_BASE, T_WORLD_OBJECT)


def rehearsed(brain: Any, stage: Stage, masses: list[float], frictions: list[float], **more: Any) -> list[Outcome]:
    n = len(masses)
    given = {"T_world_object": np.tile(T_WORLD_OBJECT, (n, 1, 1)), "loads": [LOAD] * n, **more}
    told = given.pop("T_world_object"), given.pop("loads")
    return rehearse(brain, brain.start, stage, *told, worlds(masses, frictions), **{"shake": SHORT, **given})


def test_what_is_as_believed_is_held_and_what_is_heavy_or_slippery_is_not(player: Player, stage: Stage):
    moved = np.tile(T_WORLD_OBJECT, (4, 1, 1))
    moved[1] = T_WORLD_OBJECT @ se3.exp(np.array([0.02, -0.01, 0.0, 0.0, 0.0, 0.5]))
    loads = [LOAD, LOAD, LOAD, Load(0.2, 0.24, 0.4, crush_n=0.5)]
    done: list[float] = []
    light, aside, heavy, frail = rehearsed(
        player, stage, [0.2, 0.2, 3.0, 0.2], [0.5, 0.5, 0.25, 0.5], T_world_object=moved, loads=loads,
        progress=done.append,
    )  # fmt: skip
    for one in (light, aside):  # it is taken up wherever it stands
        assert one.verdict == HELD
        assert one.slip_m < 0.005
        assert one.rise_m == pytest.approx(0.1, abs=0.025)
        assert 0.0 < one.off_s < 1.0
        assert one.peak_force_n > 2 * 0.2 * 9.81
    assert heavy.verdict in (MISSED, DROPPED, SLIPPED)
    assert frail.verdict == CRUSHED
    assert done == sorted(done)
    assert 0.0 < done[-1] <= 1.0  # it ends when the last is done, not when the time is up


def test_at_half_the_pace_the_same_is_done_in_twice_the_time(player: Player, stage: Stage):
    [fast], [slow] = (rehearsed(player, stage, [0.2], [0.5], pace=pace) for pace in (1.0, 0.5))
    assert (fast.verdict, slow.verdict) == (HELD, HELD)
    assert slow.off_s == pytest.approx(2.0 * fast.off_s, rel=0.1)
    assert slow.rise_m == pytest.approx(0.1, abs=0.025)


def test_a_policy_that_never_lifts_is_late(player: Player, stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dexloop.policy.rehearsal.LIMIT_S", 0.5)
    [found] = rehearsed(player, stage, [0.2], [0.5])  # it would lift after 1.2 s
    assert found.verdict == LATE
    assert np.isnan(found.off_s)
    assert found.rise_m == pytest.approx(0.0, abs=1e-3)


def test_each_world_is_judged_by_itself_up_to_its_own_end():
    """Three that rise: one falls when its own trial is over, one became unstable, one was not up in time."""
    dt, n = 0.02, 100
    up = np.array([1.0, 1.0, np.inf])
    t = dt * np.arange(n)
    rise = 0.1 * np.clip((t - 0.5) / 0.4, 0.0, 1.0)
    fallen = np.where(t > up[0] + SHORT.duration_s + 0.05, 0.0, rise)
    things = np.stack([fallen, rise, rise])

    def poses(height: np.ndarray) -> np.ndarray:
        return se3.from_rt(np.broadcast_to(np.eye(3), (3, 3, 3)), np.stack([0 * height, 0 * height, height], axis=1))

    rows = [
        SimpleNamespace(T_world_palm=poses(np.full(3, rise[k])), T_world_object=poses(things[:, k]),
                        touch=np.ones((3, 2)))
        for k in range(n)
    ]  # fmt: skip
    phases = np.tile(np.where(t < 0.5, 2, 3), (3, 1))
    bench = SimpleNamespace(dt=dt, diverged={1: "bad acceleration"})
    held, unstable, late = _judged(rows, phases, up, bench, [LOAD] * 3, SHORT)  # type: ignore[arg-type]
    assert (held.verdict, unstable.verdict, late.verdict) == (HELD, DIVERGED, LATE)
    assert held.rise_m == pytest.approx(0.1)
    assert late.rise_m == pytest.approx(0.1)


def test_shaking_makes_the_hand_move_and_may_shake_it_off(player: Player, stage: Stage):
    """What is just held still is lost when it is shaken hard: the shake reaches the object."""
    hard = Shake(hold_s=0.1, shake_s=0.8, far_m=0.05, often_hz=(3.0, 4.0, 5.0))
    calm = Shake(hold_s=0.9, shake_s=0.0)
    worst = ([0.35], [0.5])
    assert rehearsed(player, stage, *worst, shake=calm)[0].verdict == HELD
    assert rehearsed(player, stage, *worst, shake=hard)[0].verdict != HELD


def test_numbers_that_do_not_agree_and_what_is_out_of_reach_are_refused(player: Player, stage: Stage):
    with pytest.raises(InputError, match="2 worlds need as many poses and loads, not 1 and 2"):
        rehearsed(player, stage, [0.2] * 2, [0.5] * 2, T_world_object=T_WORLD_OBJECT[None])
    far = se3.from_rt(np.eye(3), np.array([9.0, 0.0, 0.0]))
    with pytest.raises(InputError, match="does not get to where the policy begins"):
        rehearsed(player, stage, [0.2], [0.5], T_world_object=far[None])


def test_the_player_plays_all_phases_in_order(player: Player):
    """The stand-in of these tests is itself right: phases follow each other, and its hand is that of the motion."""
    assert player.contract.phases == PHASES
    np.testing.assert_allclose(player.start.hand, pinch().q_open, atol=1e-9)
