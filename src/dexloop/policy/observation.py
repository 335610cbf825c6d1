"""What a policy sees. Every array begins with the same n, be it worlds of a batch or ticks of a recording.

Poses are relative to each other, never to the world: where a bench stands, and which way it faces, makes no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.policy.contract import Terms
from dexloop.policy.fields import LONG_S, PHASES, POINTS
from dexloop.robots.pickup import Load

Array = np.ndarray

_LIFT = PHASES.index("lift")
_QUANTILE = 1.96
"""Of the normal distribution, at which `mass_high_kg` lies."""


@dataclass(frozen=True, eq=False)
class Observation:
    """What is seen at n moments, of one object."""

    palm: Float[Array, "n 9"]
    """The palm's pose in the frame of the object where it stood at the start, as `encode_pose` writes it."""
    object: Float[Array, "n 9"]
    """The object's pose in the palm's frame."""
    slip: Float[Array, "n 3"]
    """How far the object moved in the palm's frame since the lift began [m]; zero before."""
    q: Float[Array, "n h"]
    """Hand joints [rad or m]."""
    push: Float[Array, "n h"]
    """Command minus position of the hand's joints [rad or m]: what makes servos push."""
    touch: Float[Array, "n f"]
    """[N], in the order of the embodiment's fingertips."""
    belief: Float[Array, "n 4"]
    """As `encode_belief` writes it."""
    phase: Float[Array, "n p"]
    """1 for the present phase, 0 for the others."""
    clock: Float[Array, "n 1"]
    """Since the phase began, at most `LONG_S` [s]."""
    points: Float[Array, "128 3"]
    """On the object's surface, in its own frame [m]."""

    def __len__(self) -> int:
        return len(self.palm)

    def fields(self) -> dict[str, Array]:
        """Returns all that goes by the moment, by name: everything but the points."""
        return {name: value for name, value in vars(self).items() if name != "points"}


@dataclass(frozen=True, eq=False)
class Past:
    """What observations need of what was before. For ticks of a recording, write it down; in a loop, let it follow."""

    T_world_start: Float[Array, "n 4 4"]
    """Where the object stood at the start."""
    phase: Int[Array, " n"]
    """The present one."""
    since_s: Float[Array, " n"]
    """When it began."""
    p_palm_lifted: Float[Array, "n 3"]
    """Where the object was in the palm's frame when the lift began [m]; NaN before."""

    @staticmethod
    def start(T_world_object: Float[Array, "n 4 4"], t_s: float) -> Past:
        """Returns the past of a trial that begins now, in the first phase."""
        n = len(T_world_object)
        return Past(np.array(T_world_object), np.zeros(n, dtype=int), np.full(n, t_s), np.full((n, 3), np.nan))

    def then(
        self,
        phase: Int[Array, " n"],
        t_s: float,
        T_world_palm: Float[Array, "n 4 4"],
        T_world_object: Float[Array, "n 4 4"],
    ) -> Past:
        """Returns the past after phases have been chosen; a phase that goes on keeps its beginning.

        Back to a phase before the lift, there is no slip any more.
        """
        place = se3.transform(se3.inverse(T_world_palm), T_world_object[:, :3, 3])
        begins = (phase >= _LIFT) & (self.phase < _LIFT)
        lifted = np.where(begins[:, None], place, self.p_palm_lifted)
        lifted = np.where((phase < _LIFT)[:, None], np.nan, lifted)
        since = np.where(phase != self.phase, t_s, self.since_s)
        return replace(self, phase=np.array(phase), since_s=since, p_palm_lifted=lifted)


def observe(
    terms: Terms,
    past: Past,
    *,
    t_s: float | Float[Array, " n"],
    q: Float[Array, "n j"],
    command: Float[Array, "n j"],
    touch: Float[Array, "n f"],
    T_world_palm: Float[Array, "n 4 4"],
    T_world_object: Float[Array, "n 4 4"],
    belief: Float[Array, "n 4"],
    points: Float[Array, "128 3"],
) -> Observation:
    """Returns what a policy sees.

    Args:
        terms: The policy's, or those it shall be trained for.
        past: Where objects stood, and since when which phase goes on.
        t_s: Now, on the clock of `past` [s].
        q: All joints, in command order [rad or m].
        command: What they were last told [rad or m].
        touch: What each fingertip feels [N].
        T_world_palm: Of the palm's site.
        T_world_object: Of the object.
        belief: About mass and friction, as `encode_belief` writes it; one row holds for all.
        points: On the object's surface, in its own frame [m].

    Raises:
        InputError: Shapes that do not fit the robot or each other.
    """
    n, j = len(past.phase), len(terms.joints)
    shapes = {
        "q": (q, (n, j)), "command": (command, (n, j)), "touch": (touch, (n, len(terms.fingertips))),
        "T_world_palm": (T_world_palm, (n, 4, 4)), "T_world_object": (T_world_object, (n, 4, 4)),
    }  # fmt: skip
    for name, (value, shape) in shapes.items():
        if np.shape(value) != shape:
            raise InputError(f"{name} is {list(np.shape(value))}; {terms.embodiment} at {n} moments has {list(shape)}")
    hand = [terms.joints.index(joint) for joint in terms.hand_joints]
    T_palm_object = se3.inverse(T_world_palm) @ T_world_object
    moved = T_palm_object[:, :3, 3] - past.p_palm_lifted
    # The phase tells whether there can be slip, not the NaN: where a lift has no beginning, NaN shall be noticed.
    before = (past.phase < _LIFT)[:, None]
    return Observation(
        encode_pose(se3.inverse(past.T_world_start) @ T_world_palm),
        encode_pose(T_palm_object),
        np.where(before, 0.0, moved),
        np.asarray(q)[:, hand],
        (np.asarray(command) - q)[:, hand],
        np.asarray(touch),
        np.broadcast_to(belief, (n, 4)),
        np.eye(len(terms.phases))[past.phase],
        np.minimum(np.broadcast_to(t_s - past.since_s, (n,)), LONG_S)[:, None],
        np.asarray(points),
    )


def encode_pose(T: Float[Array, "*n 4 4"]) -> Float[Array, "*n 9"]:
    """Returns position [m], first and second column of the rotation."""
    return np.concatenate([T[..., :3, 3], T[..., :3, 0], T[..., :3, 1]], axis=-1)


def decode_pose(x: Float[Array, "*n 9"]) -> Float[Array, "*n 4 4"]:
    """Returns the pose whose first column points along the first given one, and whose second lies in the plane of both.

    This is the Gram-Schmidt process; it undoes `encode_pose`, and takes columns that are not quite at right angles.
    """
    a, b = x[..., 3:6], x[..., 6:9]
    a = a / np.linalg.norm(a, axis=-1, keepdims=True)
    b = b - np.sum(a * b, axis=-1, keepdims=True) * a
    b = b / np.linalg.norm(b, axis=-1, keepdims=True)
    return se3.from_rt(np.stack([a, b, np.cross(a, b)], axis=-1), x[..., :3])


def encode_belief(
    mass_kg: float | Float[Array, " n"],
    log_mass_sd: float | Float[Array, " n"],
    friction: float | Float[Array, " n"],
    friction_sd: float | Float[Array, " n"],
) -> Float[Array, "n 4"]:
    """Returns what a policy is told of mass and friction: each with how unsure it is.

    Args:
        mass_kg: Mean [kg].
        log_mass_sd: Standard deviation of the logarithm of mass, which is about sd over mean.
        friction: Mean of the coefficient between fingertip and object.
        friction_sd: Its standard deviation.

    Raises:
        InputError: A mass that is not above zero.
    """
    if not np.all(np.asarray(mass_kg) > 0):
        raise InputError("the believed mass must be above zero [kg]")
    columns = (np.log(mass_kg), log_mass_sd, friction, friction_sd)
    return np.stack(np.broadcast_arrays(*map(np.atleast_1d, columns)), axis=-1).astype(np.float64)


def encode_loads(loads: Sequence[Load]) -> Float[Array, "n 4"]:
    """Returns what a policy is told of loads: the friction is the least that is likely, and so has no spread."""
    mass, high, friction = (np.array([getattr(x, k) for x in loads]) for k in ("mass_kg", "mass_high_kg", "friction"))
    return encode_belief(mass, np.log(high / mass) / _QUANTILE, friction, 0.0)


def rows(terms: Terms, fields: Mapping[str, Array]) -> Float[Array, "n d"]:
    """Returns all fields of observations behind each other, in the order of the contract.

    Raises:
        InputError: A field is missing, is of another size, or holds a number that is not finite.
    """
    parts = []
    n = len(next(iter(fields.values()), ()))
    for field in terms.observation:
        if field.name not in fields:
            raise InputError(f"the observation has no {field.name!r}: {field.meaning}")
        value = np.asarray(fields[field.name])
        if value.shape != (n, field.size):
            raise InputError(
                f"{field.name!r} of the observation is {list(value.shape)}, and the policy takes {[n, field.size]}: "
                f"{field.meaning} [{field.unit}]"
            )
        require_finite(f"{field.name!r} of the observation", value)
        parts.append(value)
    return np.concatenate(parts, axis=1)


def require_finite(name: str, value: Array) -> None:
    """Refuses numbers that are none.

    Raises:
        InputError: One is NaN or infinite.
    """
    if not np.isfinite(value).all():
        where = np.argwhere(~np.isfinite(value))[0].tolist()
        raise InputError(f"{name} holds {value[tuple(where)]} at {where}: mend what it comes from")


def require_points(points: Array) -> None:
    """Checks the points of one object, or of several.

    Raises:
        InputError: Their number is another, or one is not finite.
    """
    if points.shape[-2:] != (POINTS, 3):
        raise InputError(f"the object's points are {list(points.shape)}: give {POINTS} on its surface, {[POINTS, 3]}")
    require_finite("the object's points", points)
