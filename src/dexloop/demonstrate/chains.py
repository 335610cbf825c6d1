"""The fingers of a robot hand as chains of joints from the palm to the fingertip, read off its model once.

Flat arrays, so that compiled code can walk along them. A joint that MuJoCo couples to another one (a joint equality, or
a fixed tendon of two joints that keeps its length) follows it and is no unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import compiled

_SLIDE, _HINGE = int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE)
_GRID = 2001
"""Values at which a coupled joint's limits are looked up."""


class Links(NamedTuple):
    """The arrays that compiled code works on. All poses are seen from the palm's site.

    A link moves by its joint's displacement d: T = T_before · (R_fixed, p_fixed) · (turn about, or shift along, axis).
    """

    start: Int[np.ndarray, " f1"]
    """Links `start[f]` to `start[f + 1]` lead from the palm to fingertip f."""
    R_fixed: Float[np.ndarray, "l 3 3"]
    p_fixed: Float[np.ndarray, "l 3"]
    axis: Float[np.ndarray, "l 3"]
    slide: Bool[np.ndarray, " l"]
    joint: Int[np.ndarray, " l"]
    """Row of the joint in the arrays below."""
    R_tip: Float[np.ndarray, "f 3 3"]
    p_tip: Float[np.ndarray, "f 3"]
    """Of the fingertip's site, seen from the last link."""
    source: Int[np.ndarray, " j"]
    """The joint that it follows, which stands before it; itself if it is free."""
    unknown: Int[np.ndarray, " j"]
    """Column of the unknown that moves it."""
    polynomial: Float[np.ndarray, "j 5"]
    """Displacement by that of its source, constant term first; not read of a free joint."""
    zero: Float[np.ndarray, " j"]
    """Position at which a free joint's displacement is zero; for a coupled one, to be added to its displacement."""


@dataclass(frozen=True, eq=False)
class Chains:
    """A hand's fingers, and which of its joints are unknowns."""

    links: Links
    names: tuple[str, ...]
    """Of the joints in the links' arrays: the hand's, and those that follow one of them without being driven."""
    joints: tuple[str, ...]
    """The hand's, in the embodiment's order."""
    rows: Int[np.ndarray, " h"]
    """Where each of them stands in `names`."""
    free: tuple[str, ...]
    """Hand joints that are unknowns: all but those that follow another one."""
    lower: Float[np.ndarray, " m"]
    upper: Float[np.ndarray, " m"]
    """Of the unknowns: their own limits, and those of the joints that follow them [rad or m]."""
    rest: Float[np.ndarray, " m"]
    """The robot's home [rad or m]."""
    slides: Bool[np.ndarray, " m"]

    def expand(self, x: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n h"]:
        """Returns all hand joints of the unknowns [rad or m]."""
        return self.positions(x)[:, self.rows]

    def reduce(self, q: Float[np.ndarray, "n h"]) -> Float[np.ndarray, "n m"]:
        """Returns the unknowns of hand joints [rad or m], brought inside their limits."""
        return np.clip(q[:, [self.joints.index(j) for j in self.free]], self.lower, self.upper)

    def positions(self, x: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n j"]:
        """Returns the joints of `names` [rad or m]."""
        links = self.links
        d = np.zeros((len(x), len(links.source)))
        for j, source in enumerate(links.source):
            if source == j:
                d[:, j] = x[:, links.unknown[j]] - links.zero[j]
            else:
                d[:, j] = np.polynomial.polynomial.polyval(d[:, source], links.polynomial[j])
        return d + links.zero


def chains(embodiment: Embodiment) -> Chains:
    """Reads the chains from the palm to every fingertip.

    Joints of the arm stay at home; a joint that nothing drives and nothing couples stays at its reference.

    Raises:
        InputError: A finger hangs on a joint that is no hinge or slide, or is closed to a loop.
    """
    model = compiled(embodiment)
    home = {model.joint(j).id: q for j, q in zip(embodiment.joints, embodiment.home, strict=True)}
    hand = [model.joint(j).id for j in embodiment.hand_joints]
    follows = _couplings(model, hand, embodiment.name)
    order = list(follows)
    palm = model.site(embodiment.palm).id
    fixed: list[np.ndarray] = []
    axes: list[np.ndarray] = []
    ids: list[int] = []
    starts, tips = [0], []
    for tip in embodiment.fingertips:
        site = model.site(tip.site).id
        T = se3.inverse(_placed(model.site_pos[palm], model.site_quat[palm]))
        for joint, sign, before in _path(model, int(model.site_bodyid[palm]), int(model.site_bodyid[site])):
            T = T @ before
            if joint < 0:
                continue
            if model.jnt_type[joint] not in (_SLIDE, _HINGE):
                raise InputError(f"finger {tip.name!r} hangs on {model.joint(joint).name!r}, neither hinge nor slide")
            axis = sign * model.jnt_axis[joint]
            if joint in follows:
                fixed.append(T)
                axes.append(axis)
                ids.append(joint)
                T = np.eye(4)
            elif joint in home:
                T = T @ _moved(axis, home[joint] - model.qpos0[model.jnt_qposadr[joint]], model.jnt_type[joint])
            elif _loops(model):
                raise InputError(
                    f"finger {tip.name!r} of {embodiment.name} hangs on {model.joint(joint).name!r}, which only a "
                    "closed loop moves: couple it to a driven joint by a joint equality instead"
                )
        tips.append(T @ _placed(model.site_pos[site], model.site_quat[site]))
        starts.append(len(ids))
    free = [j for j in hand if follows[j][0] == j]
    place = np.stack(fixed) if fixed else np.zeros((0, 4, 4))
    links = Links(
        np.array(starts, dtype=np.int64),
        np.ascontiguousarray(place[:, :3, :3]),
        np.ascontiguousarray(place[:, :3, 3]),
        np.array(axes).reshape(-1, 3),
        np.array([model.jnt_type[j] == _SLIDE for j in ids], dtype=np.bool_),
        np.array([order.index(j) for j in ids], dtype=np.int64),
        np.ascontiguousarray(np.stack(tips)[:, :3, :3]),
        np.ascontiguousarray(np.stack(tips)[:, :3, 3]),
        np.array([order.index(follows[j][0]) for j in order], dtype=np.int64),
        np.array([free.index(_root(follows, j)) for j in order], dtype=np.int64),
        np.stack([follows[j][1] for j in order]),
        model.qpos0[model.jnt_qposadr[order]].copy(),
    )
    lower, upper = _limits(model, links, order, free)
    rest = np.array([home[j] for j in free])
    return Chains(
        links,
        tuple(model.joint(j).name for j in order),
        embodiment.hand_joints,
        np.array([order.index(j) for j in hand], dtype=np.int64),
        tuple(model.joint(j).name for j in free),
        lower,
        upper,
        np.clip(rest, lower, upper),
        np.array([model.jnt_type[j] == _SLIDE for j in free], dtype=np.bool_),
    )


def _placed(pos: np.ndarray, quat: np.ndarray) -> Float[np.ndarray, "4 4"]:
    return se3.from_rt(se3.quat_to_matrix(quat), pos)


def _moved(axis: np.ndarray, by: float, kind: int) -> Float[np.ndarray, "4 4"]:
    slide = kind == _SLIDE
    return se3.from_rt(np.eye(3) if slide else se3.quat_to_matrix(se3.so3_exp(axis * by)), axis * by * slide)


def _path(model: mujoco.MjModel, start: int, end: int) -> list[tuple[int, float, np.ndarray]]:
    """Returns the joints on the way from one body to another: up the tree to where their branches meet, then down.

    Each comes as (joint, 1 or -1 where it is passed backwards, fixed motion before it); the last has joint -1.
    """
    above = _ancestors(model, start)
    down = _ancestors(model, end)
    meet = next(b for b in above if b in down)
    way: list[tuple[int, float, np.ndarray]] = []
    T = np.eye(4)
    for body in above[: above.index(meet)]:
        for j in reversed(_joints(model, body)):
            at = model.jnt_pos[j] * (model.jnt_type[j] == _HINGE)
            way.append((j, -1.0, T @ se3.from_rt(np.eye(3), at)))
            T = se3.from_rt(np.eye(3), -at)
        T = T @ se3.inverse(_placed(model.body_pos[body], model.body_quat[body]))
    for body in reversed(down[: down.index(meet)]):
        T = T @ _placed(model.body_pos[body], model.body_quat[body])
        for j in _joints(model, body):
            at = model.jnt_pos[j] * (model.jnt_type[j] == _HINGE)
            way.append((j, 1.0, T @ se3.from_rt(np.eye(3), at)))
            T = se3.from_rt(np.eye(3), -at)
    return [*way, (-1, 1.0, T)]


def _ancestors(model: mujoco.MjModel, body: int) -> list[int]:
    found = [body]
    while found[-1]:
        found.append(int(model.body_parentid[found[-1]]))
    return found


def _joints(model: mujoco.MjModel, body: int) -> list[int]:
    return list(range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body]))


def _loops(model: mujoco.MjModel) -> bool:
    """Whether anything is held together other than by joints."""
    joint = int(mujoco.mjtEq.mjEQ_JOINT)
    return any(model.eq_active0[e] and model.eq_type[e] != joint for e in range(model.neq))


def _couplings(model: mujoco.MjModel, hand: Sequence[int], name: str) -> dict[int, tuple[int, Float[np.ndarray, "5"]]]:
    """Returns for each hand joint, and each that follows one, the joint that it follows (itself, if none) and how.

    A joint stands after the one that it follows.
    """
    equations = _equations(model)
    bent = {first for first, _, polynomial in equations if polynomial[2:].any()}
    follows: dict[int, tuple[int, np.ndarray]] = {}
    for joint in [j for j in hand if j not in bent]:
        if joint in follows:
            continue
        follows[joint] = (joint, np.zeros(5))
        new = True
        while new:
            new = False
            for first, second, polynomial in equations:
                if second in follows and first not in follows:
                    follows[first], new = (second, polynomial), True
                elif first in follows and second not in follows and polynomial[1] and not polynomial[2:].any():
                    inverse = np.array([-polynomial[0], 1.0, 0.0, 0.0, 0.0]) / polynomial[1]
                    follows[second], new = (first, inverse), True
    for joint in hand:
        if joint not in follows:
            raise InputError(
                f"joint {model.joint(joint).name!r} of {name} follows, by a polynomial, a joint that is not driven: "
                "write the equality the other way round"
            )
    return follows


def _equations(model: mujoco.MjModel) -> list[tuple[int, int, Float[np.ndarray, "5"]]]:
    """Returns (first, second, polynomial): the first joint's displacement is the polynomial of the second's."""
    found = []
    for e in range(model.neq):
        if not model.eq_active0[e]:
            continue
        one, two, a = int(model.eq_obj1id[e]), int(model.eq_obj2id[e]), model.eq_data[e, :5].copy()
        if model.eq_type[e] == mujoco.mjtEq.mjEQ_JOINT and two >= 0:
            found.append((one, two, a))
        elif model.eq_type[e] == mujoco.mjtEq.mjEQ_TENDON and not a[2:].any():
            # Linear in both: one tendon over two joints, or two tendons over one joint each.
            parts = [*_wrapped(model, one, 1.0), *(_wrapped(model, two, -a[1]) if two >= 0 else [])]
            if len(parts) == 2 and all(c for _, c in parts):
                (first, c1), (second, c2) = parts
                found.append((first, second, np.array([a[0] / c1, -c2 / c1, 0.0, 0.0, 0.0])))
    return found


def _wrapped(model: mujoco.MjModel, tendon: int, factor: float) -> list[tuple[int, float]]:
    """Returns the joints of a fixed tendon with their coefficients; nothing of one that runs through space."""
    wraps = range(model.tendon_adr[tendon], model.tendon_adr[tendon] + model.tendon_num[tendon])
    if any(model.wrap_type[w] != mujoco.mjtWrap.mjWRAP_JOINT for w in wraps):
        return []
    return [(int(model.wrap_objid[w]), factor * float(model.wrap_prm[w])) for w in wraps]


def _root(follows: dict[int, tuple[int, np.ndarray]], joint: int) -> int:
    while follows[joint][0] != joint:
        joint = follows[joint][0]
    return joint


def _limits(
    model: mujoco.MjModel, links: Links, order: list[int], free: list[int]
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Returns the range of every unknown in which all joints that follow it keep their limits."""
    limited = model.jnt_limited.astype(bool)
    lower = np.where(limited[free], model.jnt_range[free, 0], -np.inf)
    upper = np.where(limited[free], model.jnt_range[free, 1], np.inf)
    for k in range(len(free)):
        mine = [j for j in range(len(order)) if links.unknown[j] == k]
        if len(mine) == 1:
            continue
        x = np.linspace(max(lower[k], -np.pi), min(upper[k], np.pi), _GRID)
        d = {mine[0]: x - links.zero[mine[0]]}
        inside = np.ones(_GRID, dtype=bool)
        for j in mine[1:]:
            d[j] = np.polynomial.polynomial.polyval(d[links.source[j]], links.polynomial[j])
            if limited[order[j]]:
                low, high = model.jnt_range[order[j]]
                slack = 1e-9 * (high - low)
                q = d[j] + links.zero[j]
                inside &= (q >= low - slack) & (q <= high + slack)
        if not inside.any():
            raise InputError(f"the joints coupled to {model.joint(free[k]).name!r} have limits that exclude each other")
        lower[k], upper[k] = x[inside][[0, -1]]
    return lower, upper
