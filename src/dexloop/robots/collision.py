"""Which parts of a robot touch something, in a given pose."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.robots.describe import qpos_addresses


@dataclass(frozen=True)
class Touch:
    """Two parts that are too close."""

    robot: str
    """Body of the robot."""
    other: str
    """Body of the robot or of the scene, or the geom where the scene's body is the world itself."""
    distance_m: float
    """Negative when they overlap."""

    def __str__(self) -> str:
        return f"{self.robot} with {self.other} ({1e3 * self.distance_m:.1f} mm)"


class Collisions:
    """Checks poses of a robot against itself and against the rest of a scene.

    Args:
        model: The robot, alone or in a scene.
        joints: The robot's joints, in the order poses are given in.
        qpos: Where everything else in the scene is; the model's reference pose by default.
        margin_m: Count as touching what is closer than this.
        ignore: Pairs of body names that may touch.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        joints: Sequence[str],
        *,
        qpos: Float[np.ndarray, " nq"] | None = None,
        margin_m: float = 0.0,
        ignore: Iterable[tuple[str, str]] = (),
    ):
        self._address = qpos_addresses(model, joints)
        self._joints = np.array([model.joint(j).id for j in joints], dtype=int)
        self._mine = robot_bodies(model, joints)
        self._ignore = {frozenset(pair) for pair in ignore}
        self._margin = margin_m
        self.model = model
        if margin_m > 0:
            self.model = copy.copy(model)
            self.model.geom_margin[:] = np.maximum(model.geom_margin, margin_m)
        self._data = mujoco.MjData(self.model)
        if qpos is not None:
            self._data.qpos[:] = qpos

    def touches(self, q: Float[np.ndarray, " n"]) -> list[Touch]:
        """Returns what touches at a pose, deepest first."""
        found = []
        for contact in self._contacts(q):
            a, b = (int(self.model.geom_bodyid[g]) for g in contact.geom)
            first, second = (a, b) if self._mine[a] else (b, a)
            other_geom = contact.geom[1 if first == a else 0]
            touch = Touch(self._name(first), self._name(second, int(other_geom)), float(contact.dist))
            if frozenset((touch.robot, touch.other)) not in self._ignore:
                found.append(touch)
        return sorted(found, key=lambda touch: touch.distance_m)

    def free(self, q: Float[np.ndarray, " n"]) -> bool:
        """Returns whether nothing touches at a pose."""
        if self._ignore:
            return not self.touches(q)
        return next(self._contacts(q), None) is None

    def _contacts(self, q: Float[np.ndarray, " n"]) -> Iterator[Any]:
        self._data.qpos[self._address] = q
        mujoco.mj_kinematics(self.model, self._data)
        mujoco.mj_collision(self.model, self._data)
        for contact in self._data.contact:
            a, b = contact.geom
            if a < 0 or b < 0 or contact.dist > self._margin:
                continue
            if self._mine[self.model.geom_bodyid[a]] or self._mine[self.model.geom_bodyid[b]]:
                yield contact

    def _name(self, body: int, geom: int = -1) -> str:
        if body == 0 and geom >= 0:
            return self.model.geom(geom).name or "world"
        return self.model.body(body).name or f"body {body}"


def robot_bodies(model: mujoco.MjModel, joints: Sequence[str]) -> np.ndarray:
    """Returns a mask of the bodies that the joints move, or that their chain stands on (not the world itself)."""
    moved = np.zeros(model.nbody, dtype=bool)
    for joint in joints:
        body = int(model.jnt_bodyid[model.joint(joint).id])
        while body:
            moved[body] = True
            body = int(model.body_parentid[body])
    for body in range(1, model.nbody):  # parents come before their children
        free = model.body_jntnum[body] and model.jnt_type[model.body_jntadr[body]] == mujoco.mjtJoint.mjJNT_FREE
        moved[body] |= bool(moved[model.body_parentid[body]]) and not free
    return moved
