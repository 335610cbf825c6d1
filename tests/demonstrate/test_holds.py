from __future__ import annotations

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.demonstrate.holds import Found, find_holds, friction_needed
from dexloop.demonstrate.pinch import Unfit, pinch
from dexloop.demonstrate.retarget import Retargeter
from dexloop.demonstrate.touching import Touching
from dexloop.robots.squeeze import Squeeze
from tests.demonstrate import boxes

MASS_KG = 0.15


@pytest.fixture(scope="module")
def touching() -> Touching:
    return Touching(boxes.scene(), boxes.robot(), "box", boxes.T_WORLD_OBJECT)


@pytest.fixture(scope="module")
def retargeter(touching: Touching) -> Retargeter:
    return Retargeter(touching.embodiment)


@pytest.fixture(scope="module")
def shown(touching: Touching) -> np.ndarray:
    """Fingers bent over the box."""
    hand = dict(zip(touching.embodiment.hand_joints, touching.hand_of(touching.embodiment.home), strict=True))
    for finger in ("index", "middle", "ring"):
        hand |= {f"hand_{finger}_mcp": 0.8, f"hand_{finger}_pip": 0.6, f"hand_{finger}_dip": 0.3}
    hand |= {"hand_thumb_rot": 1.5, "hand_thumb_cmc": 0.3}
    return np.array(list(hand.values()))


@pytest.fixture(scope="module")
def found(touching: Touching, retargeter: Retargeter, shown: np.ndarray) -> Found:
    return find_holds(
        touching, retargeter, boxes.from_above(), shown, mass_kg=MASS_KG, com=np.zeros(3), tries=60, most=4
    )


def test_holds_are_found_and_their_contacts_lie_on_the_surface(found: Found):
    assert found.holds
    half = np.array(boxes.HALF)
    for hold in found.holds:
        outside = np.abs(hold.points) - half
        assert outside.max() < 0.003  # soft contacts: half of a gap or of an overlap
        assert (np.abs(outside).min(axis=1) < 0.003).all()  # on a face
        assert np.linalg.norm(hold.normals, axis=1) == pytest.approx(1.0)
        if hold.kind == "pinch":  # what the thumb does is answered by the fingers
            thumb = np.array(["thumb" in link for link in hold.links])
            facing = hold.normals[thumb].mean(axis=0) @ hold.normals[~thumb].mean(axis=0)
            assert facing < -0.8


def test_the_open_hand_is_clear_and_the_closed_one_touches(touching: Touching, found: Found):
    for hold in found.holds:
        T = boxes.T_WORLD_OBJECT @ hold.T_object_palm
        q = touching.reach(T, touching.with_hand(hold.q_touch))
        assert q is not None
        touching.place(q)
        assert touching.overlaps()[0] == 0.0
        gaps = [t.gap_m for t in touching.touches(0.002)]
        assert gaps
        assert min(gaps) > -0.0035
        back = se3.from_rt(np.eye(3), -0.12 * T[:3, 2]) @ T
        q = touching.reach(back, touching.with_hand(hold.q_open))
        assert q is not None
        touching.place(q)
        assert touching.overlaps() == (0.0, 0.0)
        assert not touching.touches(0.0)


def test_the_best_comes_first_and_all_are_different(found: Found):
    needed = [hold.friction_needed for hold in found.holds]
    assert needed == sorted(needed)
    assert np.isfinite(needed).all()
    palms = np.stack([hold.T_object_palm for hold in found.holds])
    for i in range(len(palms)):
        for j in range(i):
            assert not np.allclose(palms[i], palms[j], atol=1e-3)


def test_every_try_is_accounted_for(found: Found):
    assert sum(found.reasons.values()) + len(found.holds) == found.tried


def test_a_heavier_object_needs_more_friction(touching: Touching, found: Found):
    hold, squeeze = found.holds[0], Squeeze(touching.embodiment, touching.model)
    q = touching.reach(boxes.T_WORLD_OBJECT @ hold.T_object_palm, touching.with_hand(hold.q_touch))
    assert q is not None
    needed = [friction_needed(hold, boxes.T_WORLD_OBJECT, squeeze, q, m, np.zeros(3)) for m in (0.05, 0.15, 0.6, 5.0)]
    assert needed == sorted(needed)
    assert needed[0] < needed[2]
    assert needed[3] == np.inf


def test_a_hand_far_away_pinches_nothing(touching: Touching, retargeter: Retargeter, shown: np.ndarray):
    far = boxes.from_above()
    far[1, 3] = 0.4
    with pytest.raises(Unfit, match="misses"):
        pinch(touching, retargeter, far, shown, np.random.default_rng(0), anywhere=False)


def test_a_heavy_box_that_was_shown_from_above_is_also_enclosed_from_a_side(
    touching: Touching, retargeter: Retargeter, shown: np.ndarray
):
    found = find_holds(touching, retargeter, boxes.from_above(), shown, mass_kg=0.6, com=np.zeros(3), tries=120, most=8)
    sides = [h for h in found.holds if abs((boxes.T_WORLD_OBJECT @ h.T_object_palm)[2, 2]) < 0.3]
    assert sides
    assert {h.kind for h in sides} == {"enclose"}
    assert len([h for h in found.holds if h.kind == "enclose"]) <= 6  # others may be where these do not get to
