"""Finds ways to hold an object near a demonstrated one, and says how much friction each of them needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.demonstrate.enclose import enclose
from dexloop.demonstrate.pinch import Posture, Unfit, pinch
from dexloop.demonstrate.retarget import Retargeter
from dexloop.demonstrate.touching import Touching
from dexloop.robots.grip import carrying_wrench, hold_forces_batch, required_wrenches
from dexloop.robots.hold import Hold
from dexloop.robots.pickup import PickupCfg
from dexloop.robots.squeeze import Squeeze

FRICTIONS = np.array([0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.36, 0.43, 0.5, 0.6, 0.75, 0.9])
"""That are tried."""
_NEAR, _FAR = np.array([0.012, 0.010, 0.012, 0.12, 0.12, 0.20]), np.array([0.03, 0.03, 0.03, 0.3, 0.3, 0.4])
"""Standard deviations by which every other try differs from what was shown [m, rad]."""
_LITTLE = np.array([0.006, 0.006, 0.006, 0.08, 0.08, 0.08])
"""And by which the second half of the tries differs from the best of the first half."""
_PARENTS = 6
_ASIDE_M, _HEIGHTS = 0.12, (0.25, 0.75)
"""How far from the object's middle a palm begins that comes from the side [m], and at which shares of its height."""
_FEW, _PATIENCE = 12, 3
"""As long as fewer holds than this were found, it goes on, up to so many times as long."""
_OF_A_KIND = 0.75
"""Share of the holds that are returned which one kind may take: where its palm does not get to, another's may."""
_ALIKE_M = 0.015
"""Two holds whose palms are nearer than this, on average over the object's size, are one."""
_IN_THE_WAY_M = 0.004
"""How deep the open hand may be in the object on its way [m]: it would move it a little."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a search gave."""

    holds: tuple[Hold, ...]
    """The one that needs the least friction first; each is unlike those before it."""
    tried: int
    reasons: dict[str, int]
    """Why others were not kept."""


def find_holds(
    touching: Touching,
    retargeter: Retargeter,
    T_world_palm: Float[np.ndarray, "4 4"],
    hand: Float[np.ndarray, " h"],
    *,
    mass_kg: float,
    com: Float[np.ndarray, "3"],
    tries: int = 200,
    most: int = 8,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _done: None,
) -> Found:
    """Searches around a demonstrated posture, near and farther away, then around the best that was found.

    Args:
        touching: Hand, object and table.
        retargeter: Of the same robot.
        T_world_palm: Where the palm was shown.
        hand: Hand joints as shown [rad or m].
        mass_kg: To be held, on the safe side.
        com: Centre of mass in the object's frame [m].
        tries: How many postures are tried, pinching and enclosing in turn, the latter also from sides from which
            nobody showed it; more where that gives few holds.
        most: How many holds to return.
        seed: Of the random numbers.
        progress: Told which share is done.
    """
    rng = np.random.default_rng(seed)
    squeeze = Squeeze(touching.embodiment, touching.model)
    reasons: Counter[str] = Counter()
    found: list[Hold] = []
    k = 0
    while k < tries or (k < _PATIENCE * tries and sum(np.isfinite(h.friction_needed) for h in found) < _FEW):
        best = sorted(found, key=lambda h: h.friction_needed)[:_PARENTS]
        parent = best[int(rng.integers(len(best)))] if best and k > tries // 2 else None
        kind = parent.kind if parent else ("pinch", "enclose")[k % 2]
        if parent:
            T, shown, spread = touching.T_world_object @ parent.T_object_palm, parent.q_touch, _LITTLE
        elif k % 4 == 3:
            T, shown, spread = _from_a_side(touching, rng), hand, _LITTLE
        else:
            T, shown, spread = T_world_palm, hand, (_FAR if k % 4 >= 2 else _NEAR) * (k > 1)
        T = T @ se3.exp(rng.standard_normal(6) * spread)
        try:
            if kind == "pinch":
                posture = pinch(touching, retargeter, T, shown, rng, anywhere=parent is None)
            else:
                posture = enclose(touching, T, hand, rng)
            _way_is_free(touching, posture)
            found.append(_hold(kind, touching, squeeze, posture, mass_kg, com))
        except Unfit as reason:
            reasons[f"{kind}: {reason}"] += 1
        k += 1
        progress(min(k / tries, 1.0))
    found.sort(key=lambda h: h.friction_needed)
    kept: list[Hold] = []
    for hold in found:
        if not np.isfinite(hold.friction_needed):
            reasons[f"{hold.kind}: motors too weak"] += 1
        elif any(_apart(hold, other) < _ALIKE_M for other in kept):
            reasons[f"{hold.kind}: like a better one"] += 1
        elif len(kept) < most and sum(h.kind == hold.kind for h in kept) < np.ceil(_OF_A_KIND * most):
            kept.append(hold)
        else:
            reasons[f"{hold.kind}: better ones were found"] += 1
    return Found(tuple(kept), k, dict(reasons))


def _from_a_side(touching: Touching, rng: np.random.Generator) -> Float[np.ndarray, "4 4"]:
    """Returns a palm that faces the object's middle from any side, with fingers around it level with the table.

    Who shows a grasp from above has stronger fingertips than a robot: from the side its palm and thumb bear the load.
    """
    around = rng.uniform(-np.pi, np.pi)
    z = np.array([np.cos(around), np.sin(around), 0.0])
    y = np.array([0.0, 0.0, rng.choice([-1.0, 1.0])])
    height = rng.uniform(*_HEIGHTS) * (touching.top_z - touching.table_z)
    at = np.array([*touching.middle[:2], touching.table_z + height]) - _ASIDE_M * z
    return se3.from_rt(np.stack([np.cross(y, z), y, z], axis=1), at)


def _way_is_free(touching: Touching, posture: Posture) -> None:
    """Checks that the open hand gets there from behind."""
    q = posture.q_open
    for part in (0.15, 0.3, 0.6, 1.0):
        T = se3.from_rt(np.eye(3), -part * PickupCfg().back_m * posture.T_world_palm[:3, 2]) @ posture.T_world_palm
        found = touching.reach(T, q)
        if found is None:
            raise Unfit("the arm does not reach")
        q = found
        touching.place(q)
        around, own = touching.overlaps()
        if own > 0:
            raise Unfit("the hand is in the way of itself")
        if around > 0 or min((t.gap_m for t in touching.touches(0.0)), default=0.0) < -_IN_THE_WAY_M:
            raise Unfit("something is in the way")


def _hold(kind: str, touching: Touching, squeeze: Squeeze, posture: Posture, mass_kg: float, com: np.ndarray) -> Hold:
    T_object_world = se3.inverse(touching.T_world_object)
    points = np.stack([t.point for t in posture.touches])
    normals = np.stack([t.normal for t in posture.touches])
    hold = Hold(
        kind, touching.embodiment.hand_joints, T_object_world @ posture.T_world_palm, touching.hand_of(posture.q_open),
        touching.hand_of(posture.q_touch), se3.transform(T_object_world, points), normals @ T_object_world[:3, :3].T,
        tuple(t.link for t in posture.touches), np.inf,
    )  # fmt: skip
    needed = friction_needed(hold, touching.T_world_object, squeeze, posture.q_touch, mass_kg, com)
    return replace(hold, friction_needed=needed)


def friction_needed(
    hold: Hold,
    T_world_object: Float[np.ndarray, "4 4"],
    squeeze: Squeeze,
    q: Float[np.ndarray, " n"],
    mass_kg: float,
    com: Float[np.ndarray, "3"],
) -> float:
    """Returns the least of `FRICTIONS` with which the motors can hold a mass and move it; infinite if with none."""
    contacts = hold.contacts(T_world_object, 0.5)
    centre = se3.transform(T_world_object, np.asarray(com))
    b = len(FRICTIONS)
    grips = hold_forces_batch(
        contacts,
        np.repeat(FRICTIONS[:, None], len(contacts), axis=1),
        np.repeat(carrying_wrench(mass_kg, centre, centre)[None], b, axis=0),
        np.repeat(required_wrenches(mass_kg, centre, centre)[None], b, axis=0),
        centre=centre,
        motors=squeeze.motors(q, contacts),
    )
    enough = np.flatnonzero(grips.feasible)
    return float(FRICTIONS[enough[0]]) if len(enough) else np.inf


def _apart(hold: Hold, other: Hold) -> float:
    """Returns how far apart two palms are [m]; a radian counts like a hand's breadth."""
    step = se3.log(se3.inverse(hold.T_object_palm) @ other.T_object_palm)
    return float(np.linalg.norm(step[:3]) + 0.08 * np.linalg.norm(step[3:]))
