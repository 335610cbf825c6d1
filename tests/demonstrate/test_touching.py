from __future__ import annotations

import numpy as np
import pytest

from dexloop.core.errors import UnknownName
from dexloop.demonstrate.touching import Touching
from dexloop.robots.kinematics import Kinematics
from tests.demonstrate import boxes


@pytest.fixture(scope="module")
def touching() -> Touching:
    return Touching(boxes.scene(), boxes.robot(), "box", boxes.T_WORLD_OBJECT)


def test_rays_meet_the_sides_of_a_box(touching: Touching):
    touching.place(touching.embodiment.home)
    centre = boxes.T_WORLD_OBJECT[:3, 3]
    for k, half in enumerate(boxes.HALF):
        for sign in (1.0, -1.0):
            along = -sign * np.eye(3)[k]
            found = touching.cast(centre, along)
            assert found is not None
            point, normal = found
            np.testing.assert_allclose(point, centre - half * along, atol=1e-9)
            np.testing.assert_allclose(normal, -along, atol=1e-9)
    assert touching.cast(centre + np.array([0.0, 0.2, 0.0]), np.array([1.0, 0.0, 0.0])) is None


def test_gaps_are_those_of_the_palm_and_the_box(touching: Touching):
    """Lowered by what the gap says again and again, the palm comes to touch; lowered further, it is inside."""
    T = boxes.from_above()
    T[0, 3] = boxes.T_WORLD_OBJECT[0, 3]
    opened = touching.clip_hand(touching.hand_of(touching.embodiment.home) - 0.6 * touching.closing)
    q = touching.reach(T, touching.with_hand(opened))
    assert q is not None
    touching.place(q)
    first = touching.palm_gap()
    assert first > 0
    for _ in range(12):  # nothing comes nearer faster than the hand moves, so it never gets inside
        T[2, 3] -= touching.palm_gap()
        q = touching.reach(T, q)
        assert q is not None
        touching.place(q)
        assert -1e-4 < touching.palm_gap() < first
    assert touching.palm_gap() == pytest.approx(0.0, abs=2e-4)
    T[2, 3] -= 0.002
    q = touching.reach(T, q)
    assert q is not None
    touching.place(q)
    assert touching.palm_gap() == pytest.approx(-0.002, abs=5e-4)


def test_joints_close_that_move_a_fingertip_along_its_pad(touching: Touching):
    robot = touching.embodiment
    way = dict(zip(robot.hand_joints, touching.closing, strict=True))
    assert all(way[f"hand_{f}_{j}"] == 1.0 for f in ("index", "middle", "ring") for j in ("mcp", "pip", "dip"))
    assert all(way[f"hand_{f}_abd"] == 0.0 for f in ("index", "middle", "ring"))
    assert way["hand_thumb_rot"] == 0.0
    kinematics = Kinematics(robot)
    closed = touching.with_hand(touching.clip_hand(touching.hand_of(robot.home) + 0.3 * touching.closing))
    tips = [kinematics.fingertips(q)[:, :3, 3] for q in (robot.home, closed)]
    apart = [np.linalg.norm(t[:-1].mean(axis=0) - t[-1]) for t in tips]
    assert apart[1] < apart[0] - 0.01


@pytest.mark.parametrize("sunk_m", [0.0, 0.002])
def test_a_hand_closes_until_it_rests_on_the_object(sunk_m: float):
    """Also on one that has sunk into the table a little, which pushes it out: it does not float away meanwhile."""
    there = boxes.T_WORLD_OBJECT.copy()
    there[2, 3] -= sunk_m
    touching = Touching(boxes.scene(), boxes.robot(), "box", there)
    T = boxes.from_above()
    q = touching.reach(T, touching.embodiment.home)
    assert q is not None
    touching.place(q)
    goal = touching.clip_hand(touching.hand_of(q) + 1.5 * touching.closing)
    closed = touching.close(q, goal, 0.15 * touching.hand_efforts)
    touching.place(closed)
    found = touching.touches(0.002)
    assert {"index", "middle", "ring"} & {t.finger for t in found}
    assert min(t.gap_m for t in found) > -0.003
    for t in found:  # normals point into the box, so its middle is ahead
        assert t.normal @ (boxes.T_WORLD_OBJECT[:3, 3] - t.point) > 0
    assert (np.abs(goal - touching.hand_of(closed)) > 0.05).any()


def test_what_overlaps_with_the_table_is_told_apart_from_the_hand_itself(touching: Touching):
    touching.place(touching.embodiment.home)
    assert touching.overlaps() == (0.0, 0.0)
    T = boxes.from_above()
    T[:3, 3] = [0.25, 0.0, 0.03]
    q = touching.reach(T, touching.embodiment.home)
    assert q is not None
    touching.place(q)
    around, own = touching.overlaps()
    assert around > 0.005
    assert own == 0.0


def test_an_unknown_object_is_named():
    with pytest.raises(UnknownName, match="box"):
        Touching(boxes.scene(), boxes.robot(), "mug", boxes.T_WORLD_OBJECT)
