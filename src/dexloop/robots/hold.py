"""A way to hold an object: where the hand goes, how it opens and closes, and where it then touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError
from dexloop.robots.grasp import Contacts

PATCH_M = 0.004
"""Friction torque about the normal over sliding friction: two thirds of the radius of a small, soft patch [m]."""


@dataclass(frozen=True, eq=False)
class Hold:
    """Where a hand touches an object, seen from the object."""

    kind: str
    """"pinch": between fingertips. "enclose": against the palm."""
    joints: tuple[str, ...]
    """The hand's."""
    T_object_palm: Float[np.ndarray, "4 4"]
    """The palm comes along its own z axis, and goes back along it."""
    q_open: Float[np.ndarray, " h"]
    """Before and after [rad or m]."""
    q_touch: Float[np.ndarray, " h"]
    """Touching without force [rad or m]."""
    points: Float[np.ndarray, "c 3"]
    """Contacts [m]."""
    normals: Float[np.ndarray, "c 3"]
    """Unit vectors into the object."""
    links: tuple[str, ...]
    """Body of the robot at each contact."""
    friction_needed: float
    """Least friction with which the motors can hold the object it was found for; infinite if with none."""

    def contacts(self, T_world_object: Float[np.ndarray, "4 4"], friction: float) -> Contacts:
        """Returns where it touches in the world, with a friction that all contacts have."""
        count = len(self.points)
        there = Contacts(
            self.points, self.normals, np.full(count, friction), self.links, radius_m=np.full(count, PATCH_M)
        )
        return there.moved(T_world_object)


def to_arrays(holds: Sequence[Hold]) -> dict[str, np.ndarray]:
    """Returns holds as plain arrays, as they are stored; contacts of all lie one after another."""
    if not holds:
        raise InputError("there is no hold to store")
    return {
        "kind": np.array([h.kind for h in holds]),
        "joints": np.array(holds[0].joints),
        "T_object_palm": np.stack([h.T_object_palm for h in holds]),
        "q_open": np.stack([h.q_open for h in holds]),
        "q_touch": np.stack([h.q_touch for h in holds]),
        "friction_needed": np.array([h.friction_needed for h in holds]),
        "count": np.array([len(h.points) for h in holds]),
        "points": np.concatenate([h.points for h in holds]),
        "normals": np.concatenate([h.normals for h in holds]),
        "links": np.array([link for h in holds for link in h.links]),
    }


def from_arrays(arrays: dict[str, np.ndarray]) -> list[Hold]:
    """Reads what `to_arrays` gave."""
    ends = np.cumsum(arrays["count"])
    joints = tuple(str(j) for j in arrays["joints"])
    found = []
    for k, end in enumerate(ends):
        own = slice(int(end - arrays["count"][k]), int(end))
        found.append(
            Hold(
                str(arrays["kind"][k]),
                joints,
                arrays["T_object_palm"][k],
                arrays["q_open"][k],
                arrays["q_touch"][k],
                arrays["points"][own],
                arrays["normals"][own],
                tuple(str(link) for link in arrays["links"][own]),
                float(arrays["friction_needed"][k]),
            )
        )
    return found
