"""Enclosing: the object lies against the palm, thumb and fingers close around it.

Whatever presses it against the palm is answered by the palm, so that it can be held much harder than by fingertips,
whose levers are long. The hand comes open, with the object's near side at the palm and its flank at the thumb's root,
and closes by simulation until it rests on the object.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.demonstrate.pinch import Posture, Unfit
from dexloop.demonstrate.touching import Touching

_SQUARE = 0.7
"""The palm goes to a surface that faces it: cosine of the steepest angle."""
_GAP_M = 3e-4
"""Between palm and object."""
_COMING = 16
_OPEN_RAD = 0.7
"""How much further the hand is open than was shown."""
_CLOSED_RAD = 2.6
_TORQUE = 0.25
"""Share of what motors can do with which the hand closes, at a finger's first joint."""
_THUMB_X_M = (-0.022, 0.0)
"""Where the object's flank comes to be along the palm's x, before the thumb."""
_FLANK_Z_M = 0.025
"""How far from the palm the flank is looked for."""
_SUNK_M = 0.003
_NEAR_M = 0.0015
"""What is nearer to the object than this touches it."""


def enclose(
    touching: Touching, T_world_palm: Float[np.ndarray, "4 4"], hand: Float[np.ndarray, " h"], rng: np.random.Generator
) -> Posture:
    """Finds one enclosing hold near a demonstrated posture.

    Args:
        touching: Hand, object and table.
        T_world_palm: Where the palm was shown.
        hand: Hand joints as shown [rad or m].
        rng: Draws where along the palm the object is, and how fingers share their torque.

    Raises:
        Unfit: There is none.
    """
    closing = touching.closing
    if len(touching.embodiment.fingertips) < 3:
        raise Unfit("two jaws enclose nothing")
    opened = touching.clip_hand(hand - _OPEN_RAD * closing)
    T = _facing(touching, T_world_palm)
    T, q = _against(touching, T, opened)
    flank = touching.cast(T[:3, 3] + _FLANK_Z_M * T[:3, 2], T[:3, 0])
    if flank is None:
        raise Unfit("the object is not before the palm")
    shift = float((flank[0] - T[:3, 3]) @ T[:3, 0]) - rng.uniform(*_THUMB_X_M)
    T, q = _against(touching, se3.from_rt(np.eye(3), shift * T[:3, 0]) @ T, opened)
    if min((t.gap_m for t in touching.touches(0.0)), default=0.0) < -2e-3:
        raise Unfit("the open hand is inside the object")
    weaker = np.array([rng.uniform(*share) for share in touching.shares])
    torque = _TORQUE * touching.hand_efforts * weaker
    goal = touching.clip_hand(opened + _CLOSED_RAD * closing)
    q_touch = touching.close(q, goal, torque)
    if not np.isfinite(q_touch).all():
        raise Unfit("closing the hand diverged")
    q_touch[touching.arm] = q[touching.arm]
    touching.place(q_touch)
    near = tuple(touching.touches(_NEAR_M))
    if min((t.gap_m for t in near), default=0.0) < -_SUNK_M:
        raise Unfit("fingers stay inside the object")
    if len({t.finger for t in near}) < 3:
        raise Unfit("fewer than three parts of the hand touch")
    return Posture(T, q, q_touch, near)


def _facing(touching: Touching, T: np.ndarray) -> np.ndarray:
    """Turns the palm so that it faces the surface before it, with the object's middle before its own."""
    touching.place(touching.embodiment.home)
    seen = T[:3, :3].T @ (touching.middle - T[:3, 3])
    T = T @ se3.from_rt(np.eye(3), np.array([seen[0], 0.0, 0.0]))
    hits = [touching.cast(T[:3, 3] + x * T[:3, 0], T[:3, 2]) for x in (-0.008, 0.0, 0.008)]
    hits = [hit for hit in hits if hit is not None]
    if not hits:
        raise Unfit("the object is not before the palm")
    point, normal = (np.mean(column, axis=0) for column in zip(*hits, strict=True))
    normal /= np.linalg.norm(normal)
    if -normal @ T[:3, 2] < _SQUARE:
        raise Unfit("must be turned too far")
    turn = np.cross(T[:3, 2], -normal)
    size = float(np.linalg.norm(turn))
    if size < 1e-9:
        return T
    R = se3.quat_to_matrix(se3.so3_exp(np.arctan2(size, -normal @ T[:3, 2]) * turn / size))
    return se3.from_rt(R, point - R @ point) @ T


def _against(touching: Touching, T: np.ndarray, hand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moves the open hand along the palm's z until the palm touches, and up until nothing is in the table."""
    q = touching.with_hand(hand)
    for _ in range(_COMING):
        found = touching.reach(T, q)
        if found is None:
            raise Unfit("the arm does not reach")
        q = found
        touching.place(q)
        gap, (around, _) = touching.palm_gap(), touching.overlaps()
        if abs(gap - _GAP_M) < _GAP_M and around == 0.0:
            return T, q
        by = (gap - _GAP_M) * T[:3, 2] + np.array([0.0, 0.0, around + 1e-3 if around else 0.0])
        T = se3.from_rt(np.eye(3), by) @ T
    raise Unfit("the palm does not get to the object")
