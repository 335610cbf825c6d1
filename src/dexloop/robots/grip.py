"""How hard to hold: contact forces that carry an object's weight and its accelerations, without waste.

A wrench here is what the fingers do to the object: force [N] and torque [N·m] about a centre, in world axes. To hold a
mass at rest it is the opposite of the weight.

Forces are the least ones (the sum of their squares, with a slight liking for even normal forces) that make the wanted
wrench, inside round friction cones, between a least touch and a crush limit, and within what the motors can do. The
problem is solved exactly (`robots.cones`) in well under a millisecond, so that a controller can solve it anew at each
tick, and thousands of beliefs in less than a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from dexloop.core.errors import InputError
from dexloop.robots.balance import LIMITS, Problem
from dexloop.robots.grasp import Contacts, contact_columns, size_of

GRAVITY = (0.0, 0.0, -9.81)
"""[m/s²]"""


@dataclass(frozen=True, eq=False)
class Motors:
    """What a hand's motors can do for contact forces; `robots.squeeze.Squeeze.motors` makes one."""

    jacobians: Float[np.ndarray, "n 6 j"]
    """Velocity and angular velocity of each contact, in world axes, by joint speed."""
    low: Float[np.ndarray, " j"]
    """Least torque that is there for contact forces: the motor's limit less what carries the fingers [N·m or N]."""
    high: Float[np.ndarray, " j"]
    """Greatest one."""


@dataclass(frozen=True, eq=False)
class Grip:
    """Forces at the contacts of one grasp."""

    forces: Float[np.ndarray, "n 3"]
    """What each finger does to the object, in world axes [N]. Always inside the friction cones and all limits."""
    torsion: Float[np.ndarray, " n"]
    """Torque of soft fingers about the normal, into the object [N·m]."""
    normal: Float[np.ndarray, " n"]
    """Normal forces [N]."""
    feasible: bool
    """Whether they make the wanted wrench and would bear all disturbances."""
    residual: Float[np.ndarray, "6"]
    """What is missing of the wanted wrench [N, N·m]."""
    held: float
    """Share of the disturbances that can be borne, 0 to 1."""
    margin_n: float
    """Friction left at the contact that is closest to sliding: µ · normal - tangential [N]."""
    limited_by: str
    """What stands in the way: "motor" (stronger motors could), "crush" (a higher limit on normal forces could; where it
    takes both, it says "motor"), "friction" (no force could, with these contacts), "" (nothing)."""
    torques: Float[np.ndarray, " j"]
    """Of the joints, for the contact forces alone [N·m or N]; empty without `Motors`."""


@dataclass(frozen=True, eq=False)
class Grips:
    """Forces of many grips at the same contacts, one for each belief; fields as in `Grip`."""

    forces: Float[np.ndarray, "b n 3"]
    torsion: Float[np.ndarray, "b n"]
    normal: Float[np.ndarray, "b n"]
    feasible: Bool[np.ndarray, " b"]
    residual: Float[np.ndarray, "b 6"]
    held: Float[np.ndarray, " b"]
    margin_n: Float[np.ndarray, " b"]
    limit: Int[np.ndarray, " b"]
    """Index into `balance.LIMITS`."""
    torques: Float[np.ndarray, "b j"]

    def __len__(self) -> int:
        return len(self.feasible)

    def __getitem__(self, k: int) -> Grip:
        return Grip(
            self.forces[k], self.torsion[k], self.normal[k], bool(self.feasible[k]), self.residual[k],
            float(self.held[k]), float(self.margin_n[k]), LIMITS[int(self.limit[k])], self.torques[k],
        )  # fmt: skip


def carrying_wrench(
    mass: float | Float[np.ndarray, "*#b"],
    com: Float[np.ndarray, "*#b 3"],
    centre: Float[np.ndarray, "3"],
    *,
    gravity: Sequence[float] | Float[np.ndarray, "3"] = GRAVITY,
    acceleration: Sequence[float] | Float[np.ndarray, "*#b 3"] = (0.0, 0.0, 0.0),
) -> Float[np.ndarray, "*b 6"]:
    """Returns the wrench that carries a mass: m (a - g) at the centre of mass.

    Args:
        mass: One or many [kg].
        com: Centre of mass in the world [m].
        centre: Where torques are taken about, in the world [m].
        gravity: [m/s²]
        acceleration: That the object shall have, in world axes [m/s²].
    """
    force = np.asarray(mass, dtype=np.float64)[..., None] * (np.asarray(acceleration) - np.asarray(gravity))
    return np.concatenate([force, np.cross(np.asarray(com) - centre, force)], axis=-1)


def required_wrenches(
    mass: float | Float[np.ndarray, "*#b"],
    com: Float[np.ndarray, "*#b 3"],
    centre: Float[np.ndarray, "3"],
    *,
    gravity: Sequence[float] | Float[np.ndarray, "3"] = GRAVITY,
    acceleration: float = 2.0,
    safety: float = 1.2,
) -> Float[np.ndarray, "*b 7 6"]:
    """Returns all wrenches that a grip must be ready for: the weight, and with an acceleration along ±x, ±y, ±z.

    A belief goes in as numbers on the safe side: a high quantile of the mass, and in the contacts a low friction.

    Args:
        mass: One or many [kg].
        com: Centre of mass in the world [m].
        centre: Where torques are taken about, in the world [m].
        gravity: [m/s²]
        acceleration: Greatest one to expect, of planned motion and of bumps [m/s²].
        safety: Factor on all forces.
    """
    ways = acceleration * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    heavy = safety * np.asarray(mass, dtype=np.float64)[..., None]
    return carrying_wrench(heavy, np.asarray(com)[..., None, :], centre, gravity=gravity, acceleration=ways)


def min_forces(
    contacts: Contacts,
    wrench: Float[np.ndarray, "6"],
    *,
    centre: Float[np.ndarray, "3"],
    f_min: float | Float[np.ndarray, " n"] = 0.0,
    f_max: float | Float[np.ndarray, " n"] = np.inf,
    motors: Motors | None = None,
) -> Grip:
    """Finds the least contact forces that make a wrench.

    Args:
        contacts: Where fingers touch, and friction there.
        wrench: That the fingers shall make [N, N·m].
        centre: Where its torque is taken about, in the world [m].
        f_min: Least normal force, so that no finger lets go [N]; lowered where a motor cannot give it.
        f_max: Greatest normal force: what the object can take, or what a finger should give [N].
        motors: What the joints can do.

    Returns:
        The forces. Where none are enough, those that miss the wrench least, by how much, and what limits them.
    """
    return hold_forces(contacts, wrench, np.zeros((0, 6)), centre=centre, f_min=f_min, f_max=f_max, motors=motors)


def hold_forces(
    contacts: Contacts,
    present: Float[np.ndarray, "6"],
    wrenches: Float[np.ndarray, "k 6"],
    *,
    centre: Float[np.ndarray, "3"],
    f_min: float | Float[np.ndarray, " n"] = 0.0,
    f_max: float | Float[np.ndarray, " n"] = np.inf,
    motors: Motors | None = None,
) -> Grip:
    """Finds the least squeeze that makes the present wrench and is ready for others.

    Nobody need notice a disturbance for it to be borne: servos hold like springs, and a sudden load is shared by the
    fingers as by equal springs at the contacts (the least change of forces that makes it). The forces are such that,
    after that change, no contact slides, lets go, is crushed or overloads its motor, for any of the wrenches.

    Args:
        contacts: Where fingers touch, and friction there.
        present: Wrench to make now [N, N·m], such as `carrying_wrench` of the best guess of the mass.
        wrenches: Those to be ready for, such as `required_wrenches`.
        centre: Where torques are taken about, in the world [m].
        f_min: Least normal force now [N]; lowered where a motor cannot give it.
        f_max: Greatest normal force [N].
        motors: What the joints can do.

    Returns:
        The forces now. Where not all disturbances can be borne, as much of them as possible: the share is `held`.
    """
    found = hold_forces_batch(
        contacts, contacts.mu[None], np.asarray(present)[None], np.asarray(wrenches)[None], centre=centre, f_min=f_min,
        f_max=f_max, motors=motors,
    )  # fmt: skip
    return found[0]


def min_forces_batch(
    contacts: Contacts,
    mu: Float[np.ndarray, "b n"],
    wrench: Float[np.ndarray, "b 6"],
    *,
    centre: Float[np.ndarray, "3"],
    f_min: float | Float[np.ndarray, " n"] = 0.0,
    f_max: float | Float[np.ndarray, " n"] = np.inf,
    motors: Motors | None = None,
) -> Grips:
    """Does what `min_forces` does, for many frictions and wrenches at the same contacts, on all cores."""
    none = np.zeros((len(wrench), 0, 6))
    return hold_forces_batch(contacts, mu, wrench, none, centre=centre, f_min=f_min, f_max=f_max, motors=motors)


def hold_forces_batch(
    contacts: Contacts,
    mu: Float[np.ndarray, "b n"],
    present: Float[np.ndarray, "b 6"],
    wrenches: Float[np.ndarray, "b k 6"],
    *,
    centre: Float[np.ndarray, "3"],
    f_min: float | Float[np.ndarray, " n"] = 0.0,
    f_max: float | Float[np.ndarray, " n"] = np.inf,
    motors: Motors | None = None,
) -> Grips:
    """Does what `hold_forces` does, for many frictions and wrenches at the same contacts, on all cores."""
    n, b = len(contacts), len(mu)
    middle = np.asarray(centre, dtype=np.float64)
    G = contact_columns(contacts, middle)
    least, most = (np.broadcast_to(np.asarray(f, dtype=np.float64), (n,)) for f in (f_min, f_max))
    if not ((least >= 0) & (least <= most)).all():
        raise InputError("normal forces need 0 <= f_min <= f_max")
    mu, present, wrenches = (np.ascontiguousarray(a, dtype=np.float64) for a in (mu, present, wrenches))
    if mu.shape != (b, n) or present.shape != (b, 6) or wrenches.shape[::2] != (b, 6):
        raise InputError(f"{b} grips of {n} contacts need mu [{b}, {n}], wrenches [{b}, 6] and [{b}, k, 6]")
    if not all(np.isfinite(a).all() for a in (mu, present, wrenches, middle)):
        raise InputError("friction, wrenches and centre must be finite numbers")
    turn, low, high = _torque_map(contacts, motors)
    problem = Problem(G, contacts.width, size_of(contacts, middle), least, most, turn, low, high)
    found = problem.solve(mu, present, wrenches)
    v = found.v.reshape(b, n, contacts.width)
    return Grips(
        forces=(contacts.frames @ v[:, :, :3, None])[..., 0],
        torsion=np.zeros((b, n)) if contacts.radius_m is None else contacts.radius_m * v[:, :, 3],
        normal=v[:, :, 0].copy(),
        feasible=found.feasible,
        residual=found.missed,
        held=found.held,
        margin_n=(mu * v[:, :, 0] - np.sqrt((v[:, :, 1:] ** 2).sum(axis=2))).min(axis=1),
        limit=problem.limits(mu, present, wrenches, found.feasible),
        torques=found.v @ turn.T,
    )


def _torque_map(contacts: Contacts, motors: Motors | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what makes joint torques of contact forces [j, m], and the torques' limits [j]."""
    n, width = len(contacts), contacts.width
    if motors is None:
        return np.zeros((0, n * width)), np.zeros(0), np.zeros(0)
    joints = len(motors.low)
    if motors.jacobians.shape != (n, 6, joints) or len(motors.high) != joints:
        raise InputError(f"motors for {n} contacts need jacobians [{n}, 6, j] and limits [j]")
    turn = np.zeros((joints, n, width))
    turn[:, :, :3] = np.einsum("npj,npq->jnq", motors.jacobians[:, :3], contacts.frames)
    if contacts.radius_m is not None:
        turn[:, :, 3] = np.einsum("npj,np->jn", motors.jacobians[:, 3:], contacts.normals * contacts.radius_m[:, None])
    return turn.reshape(joints, n * width), motors.low, motors.high
