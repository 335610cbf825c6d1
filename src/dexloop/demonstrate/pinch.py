"""Pinching: fingertips on one side of an object, the thumb's on the other, pressing against each other.

A demonstration shows roughly where. Rays along the line from thumb to fingers find the surface; the hand is turned
until that line meets it squarely on both sides; fingertips are brought there, and moved out as far as a finger, which
is thick and comes at an angle, would be inside the object.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.demonstrate.retarget import Retargeter
from dexloop.demonstrate.touching import Touch, Touching

_SQUARE = 0.85
"""A fingertip presses on a surface that faces it: cosine of the steepest angle."""
_MOST_TURN_RAD = 1.2
"""A hand that had to be turned farther would be another demonstration."""
_TURNS = 3
_PALM_M_RAD = (0.012, 0.2)
"""How far the palm may give way so that fingertips get where they should."""
_OFF_M = 0.003
"""A fingertip that misses its place by more does not reach it."""
_OUT = 8
"""How often fingers are moved out of the object."""
_SUNK_M = 0.0012
"""How deep a finger may be in the object; contacts are soft."""
_OPEN_M = (0.022, 0.016, 0.011)
"""How far fingertips are off the surface when the hand is open: the first that can be."""
_LEAST_SPREAD = 0.7
"""Fingers side by side come together to this share of how they were shown."""
CLEAR_M = 0.012
"""Contacts are at least this far above the table."""


class Unfit(Exception):
    """This try gives no hold; the reason in a few words."""


@dataclass(frozen=True, eq=False)
class Posture:
    """Of the whole robot, touching the object."""

    T_world_palm: Float[np.ndarray, "4 4"]
    q_open: Float[np.ndarray, " n"]
    q_touch: Float[np.ndarray, " n"]
    touches: tuple[Touch, ...]


def pinch(
    touching: Touching,
    retargeter: Retargeter,
    T_world_palm: Float[np.ndarray, "4 4"],
    hand: Float[np.ndarray, " h"],
    rng: np.random.Generator,
    *,
    anywhere: bool = True,
) -> Posture:
    """Finds one pinch near a demonstrated posture.

    Args:
        touching: Hand, object and table.
        retargeter: Of the same robot.
        T_world_palm: Where the palm was shown.
        hand: Hand joints as shown [rad or m].
        rng: Draws how far fingers are spread, and where.
        anywhere: Whether to pinch at any height, and nearer to the object's middle than was shown.

    Raises:
        Unfit: There is none.
    """
    T = _towards_middle(touching, T_world_palm, hand, rng) if anywhere else T_world_palm
    T, line, middle, side = _squared(touching, T, hand)
    places, normals = _places(touching, T, hand, line, middle, side, rng)
    return _touched(touching, retargeter, T, hand, places, normals)


def _tips(touching: Touching, T: np.ndarray, hand: np.ndarray) -> Float[np.ndarray, "f 3"]:
    seen = touching.fingertips(hand)
    return se3.transform(T, seen)


def _towards_middle(touching: Touching, T: np.ndarray, hand: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shifts the hand across its line of pressing, some part of the way to the object's middle, to any height of it."""
    tips = _tips(touching, T, hand)
    line = _unit(tips[:-1].mean(axis=0) - tips[-1])
    shown = 0.5 * (tips[:-1].mean(axis=0) + tips[-1])
    height = rng.uniform(touching.table_z + CLEAR_M, touching.top_z)
    off = np.array([*(rng.uniform(-0.3, 1.0) * (touching.middle - shown)[:2]), height - shown[2]])
    return se3.from_rt(np.eye(3), off - (off @ line) * line) @ T


def _squared(
    touching: Touching, T: np.ndarray, hand: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Turns the hand until the line from thumb to fingers meets the surface squarely.

    Returns:
        The palm's pose, the line's direction, a point on it halfway through the object, and the direction in which
        fingers lie side by side.
    """
    touching.place(touching.embodiment.home)
    tips = _tips(touching, T, hand)
    line = _unit(tips[:-1].mean(axis=0) - tips[-1])
    middle = 0.5 * (tips[:-1].mean(axis=0) + tips[-1])
    side = _side(tips, line)
    for _ in range(_TURNS):
        side = _side(_tips(touching, T, hand), line)
        far = [touching.cast(middle + x * side, -line) for x in (-0.01, 0.0, 0.01)]
        near = [touching.cast(middle + x * side, line) for x in (-0.006, 0.006)]
        far, near = ([hit for hit in hits if hit is not None] for hits in (far, near))
        if not far or not near:
            raise Unfit("misses the object")
        facing = np.mean([n for _, n in far], axis=0) - np.mean([n for _, n in near], axis=0)
        if np.linalg.norm(facing) < 0.5:
            raise Unfit("no sides that face each other")
        facing = _unit(facing)
        turn = np.cross(line, facing)
        angle = float(np.arctan2(np.linalg.norm(turn), line @ facing))
        if angle > _MOST_TURN_RAD:
            raise Unfit("must be turned too far")
        if angle > 1e-9:
            R = se3.quat_to_matrix(se3.so3_exp(angle * _unit(turn)))
            T = se3.from_rt(R, middle - R @ middle) @ T
        line = facing
        halfway = 0.5 * (np.mean([p for p, _ in far], axis=0) + np.mean([p for p, _ in near], axis=0))
        shift = ((halfway - middle) @ line) * line
        T = se3.from_rt(np.eye(3), shift) @ T
        middle = middle + shift
    return T, line, middle, side


def _places(
    touching: Touching,
    T: np.ndarray,
    hand: np.ndarray,
    line: np.ndarray,
    middle: np.ndarray,
    side: np.ndarray,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns where each fingertip goes on the surface, and the outward normals there."""
    tips = _tips(touching, T, hand)
    spread = rng.uniform(_LEAST_SPREAD, 1.0)
    names = [tip.name for tip in touching.embodiment.fingertips]
    places, normals = {}, {}
    for k, name in enumerate(names):
        thumb = k == len(names) - 1
        aside = rng.normal(0.0, 0.004) if thumb else spread * float((tips[k] - tips[:-1].mean(axis=0)) @ side)
        along = line if thumb else -line
        hit = touching.cast(middle + aside * side, along)
        if hit is not None and hit[1] @ -along > _SQUARE and hit[0][2] > touching.table_z + CLEAR_M:
            places[name], normals[name] = hit
    if names[-1] not in places:
        raise Unfit("no place for the thumb")
    if len(places) < min(3, len(names)):
        raise Unfit("no place for two fingers")
    return places, normals


def _touched(
    touching: Touching,
    retargeter: Retargeter,
    T: np.ndarray,
    hand: np.ndarray,
    places: dict[str, np.ndarray],
    normals: dict[str, np.ndarray],
) -> Posture:
    """Brings fingertips to their places, and out of the object."""
    aim, own = dict(places), 0.0
    for _ in range(_OUT):
        reached = retargeter.reach({n: p[None] for n, p in aim.items()}, hand[None], T[None], palm_m_rad=_PALM_M_RAD)
        if np.nanmax(reached.error_m) > _OFF_M:
            raise Unfit("fingers do not reach")
        T_palm = reached.T_world_palm[0]
        q = touching.reach(T_palm, touching.with_hand(reached.q[0]))
        if q is None:
            raise Unfit("the arm does not reach")
        touching.place(q)
        deep = {n: max([-t.gap_m for t in touching.touches(0.0) if t.finger == n], default=0.0) for n in aim}
        around, own = touching.overlaps()
        if max(deep.values()) < _SUNK_M and around == 0.0 and own < _SUNK_M:
            break
        if around:
            T = se3.from_rt(np.eye(3), np.array([0.0, 0.0, around + 1e-3])) @ T
        aim = {n: p + max(deep[n] - 0.3 * _SUNK_M, 0.0) * normals[n] for n, p in aim.items()}
    else:
        raise Unfit("the hand is in the way of itself" if own >= _SUNK_M else "fingers stay inside the object")
    near = tuple(t for t in touching.touches(0.5 * _SUNK_M) if t.finger in aim)
    if len({t.finger for t in near}) < len(aim):
        raise Unfit("a finger does not touch")
    return Posture(T_palm, _opened(touching, retargeter, T_palm, reached.q, q, aim, normals), q, near)


def _opened(
    touching: Touching,
    retargeter: Retargeter,
    T_palm: np.ndarray,
    hand: np.ndarray,
    q: np.ndarray,
    places: dict[str, np.ndarray],
    normals: dict[str, np.ndarray],
) -> Float[np.ndarray, " n"]:
    """Moves fingertips off the surface, as far as the hand can without touching itself."""
    for far in _OPEN_M:
        targets = {n: (p + far * normals[n])[None] for n, p in places.items()}
        q_open = touching.with_hand(retargeter.reach(targets, hand, T_palm[None]).q[0])
        q_open[touching.arm] = q[touching.arm]
        touching.place(q_open)
        if touching.overlaps() == (0.0, 0.0):
            return q_open
    raise Unfit("the hand is in the way of itself")


def _side(tips: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Returns the direction in which fingers lie side by side, square to the line; any such for two jaws."""
    across = tips[0] - tips[-2] if len(tips) > 2 else np.array([0.0, 0.0, 1.0])
    across = across - (across @ line) * line
    if np.linalg.norm(across) < 1e-6:
        across = np.cross(line, [1.0, 0.0, 0.0])
    return _unit(across)


def _unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v)
