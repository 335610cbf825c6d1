"""Turns fingertip forces into targets of position servos, which is all that a rig or a simulation takes.

A servo pushes with kp · (target - q): where a joint shall push with a torque τ, its target is q + τ / kp. The torque is
Jᵀ f, what holds the object, and what carries the finger itself: in a small hand that is a tenth of it or more.

A target that follows the measured joints at each tick makes the finger push with that force wherever it goes, and
nothing draws it back: forces that are a little wrong then move the object slowly. A target that stays is a spring, and
holds the object where it is. So update `q` slowly, or when the grasp has changed, and the forces with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError, UnknownName
from dexloop.robots.describe import dof_addresses, qpos_addresses
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.grasp import Contacts
from dexloop.robots.grip import Grip, Motors
from dexloop.robots.kinematics import compiled
from dexloop.robots.servos import is_position_servo


@dataclass(frozen=True, eq=False)
class Targets:
    """What to send to the servos."""

    q: Float[np.ndarray, " n"]
    """Targets of all joints, within their limits [rad or m]. Those of the arm are the positions that were given."""
    torques: Float[np.ndarray, " h"]
    """What the hand's joints push with, as far as they can [N·m or N]."""
    clipped: tuple[str, ...]
    """Joints that push less than they should, because of their motor or because their target is at the joint's stop."""


class Squeeze:
    """Torques and servo targets of one robot's hand.

    Args:
        embodiment: The robot.
        model: A scene that holds it (names unchanged), for where it stands and which way gravity acts; the robot alone
            by default.

    Raises:
        InputError: A joint of the hand is not driven by a position servo.
    """

    def __init__(self, embodiment: Embodiment, model: mujoco.MjModel | None = None):
        self.embodiment = embodiment
        self.model = compiled(embodiment) if model is None else model
        self._data = mujoco.MjData(self.model)
        self._q = qpos_addresses(self.model, embodiment.joints)
        self._v = dof_addresses(self.model, embodiment.hand_joints)
        self._hand = np.array([embodiment.joints.index(j) for j in embodiment.hand_joints], dtype=int)
        self._limits = embodiment.effort_limits[self._hand]
        servos = [self.model.actuator(embodiment.actuators[k]).id for k in self._hand]
        for joint, servo in zip(embodiment.hand_joints, servos, strict=True):
            if not is_position_servo(self.model, servo):
                raise InputError(f"joint {joint!r} has no position servo: a target cannot make it push")
        self._kp = self.model.actuator_gainprm[servos, 0] * self.model.actuator_gear[servos, 0] ** 2
        bodies = {self.model.body(b).name: b for b in range(1, self.model.nbody)}
        self._bodies = bodies | {tip.name: bodies[tip.body] for tip in embodiment.fingertips}

    def motors(self, q: Float[np.ndarray, " n"], contacts: Contacts) -> Motors:
        """Returns what the hand's motors can do at these contacts, beyond carrying the fingers.

        Args:
            q: All joints [rad or m].
            contacts: Where fingers touch; each must say which finger.

        Raises:
            UnknownName: A finger that the robot does not have.
        """
        load = self._load(q)
        return Motors(self._jacobians(contacts), -self._limits - load, self._limits - load)

    def targets(self, q: Float[np.ndarray, " n"], contacts: Contacts, grip: Grip) -> Targets:
        """Returns the targets with which the fingers push with the forces of a grip.

        Args:
            q: All joints [rad or m].
            contacts: Where fingers touch; each must say which finger.
            grip: Forces there.

        Raises:
            UnknownName: A finger that the robot does not have.
        """
        load = self._load(q)
        push = np.concatenate([grip.forces, grip.torsion[:, None] * contacts.normals], axis=1)
        wanted = load + np.einsum("nkj,nk->j", self._jacobians(contacts), push)
        torques = np.clip(wanted, -self._limits, self._limits)
        target = np.array(q, dtype=np.float64)
        aim = target[self._hand] + torques / self._kp
        target[self._hand] = np.clip(aim, *self.embodiment.position_limits[self._hand].T)
        torques = torques - self._kp * (aim - target[self._hand])
        short = np.abs(torques - wanted) > 1e-9 + 1e-6 * np.abs(wanted)
        return Targets(target, torques, tuple(np.array(self.embodiment.hand_joints)[short].tolist()))

    def _load(self, q: Float[np.ndarray, " n"]) -> Float[np.ndarray, " h"]:
        """Puts the robot there, and returns the torques that hold its fingers against gravity and springs."""
        if np.shape(q) != self._q.shape or not np.isfinite(q).all():
            raise InputError(f"{self.embodiment.name} takes {len(self._q)} finite joint values")
        model, data = self.model, self._data
        data.qpos[self._q] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_tendon(model, data)
        mujoco.mj_passive(model, data)
        needed = np.zeros(model.nv)
        mujoco.mj_rne(model, data, 0, needed)
        return (needed - data.qfrc_passive)[self._v]

    def _jacobians(self, contacts: Contacts) -> Float[np.ndarray, "n 6 h"]:
        """Returns the velocity of each finger at its contact, by speed of the hand's joints, where the robot is now."""
        if not contacts.fingers:
            raise InputError("contacts must say which fingers they belong to")
        full = np.zeros((6, self.model.nv))
        found = np.zeros((len(contacts), 6, len(self._v)))
        for k, (finger, point) in enumerate(zip(contacts.fingers, contacts.points, strict=True)):
            if finger not in self._bodies:
                tips = [tip.name for tip in self.embodiment.fingertips]
                raise UnknownName("finger", finger, tips, "Or any body of the robot.")
            mujoco.mj_jac(self.model, self._data, full[:3], full[3:], point, self._bodies[finger])
            found[k] = full[:, self._v]
        return found
