"""Signals by name: what a rollout can record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import DATA_FIELDS

from dexloop.core.errors import UnknownName
from dexloop.sim.roles import Roles, select

SIGNALS = {
    "pose": "x y z [m], qw qx qy qz of a body",
    "velocity": "linear in world axes [m/s], angular in body axes [rad/s] of a free body",
    "position": "of joints [rad or m]",
    "speed": "of joints [rad/s or m/s]",
    "effort": "of the motors, by joint [N·m or N]",
    "force": "of actuators [N·m or N]",
    "touch": "normal force of touch sensors [N]",
    "reading": "of sensors, as MuJoCo gives it",
}
"""Quantities that a role can have, as in "object.pose"; any field of MjData is a signal too."""

Index = slice | np.ndarray


@dataclass(frozen=True, eq=False)
class Signal:
    """Where a signal is found: slices of one or more fields of MjData, laid side by side."""

    name: str
    sources: tuple[tuple[str, Index], ...]

    def take(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Cuts the signal out of recorded fields [n, t, ...]; without a copy where it can be."""
        pieces = []
        for field, index in self.sources:
            array = fields[field]
            flat = array.reshape(*array.shape[:2], -1) if array.ndim > 3 and self.name != field else array
            pieces.append(flat if self.name == field else flat[:, :, index])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)


def signal(model: mujoco.MjModel, roles: Roles, name: str) -> Signal:
    """Finds a signal: a field of MjData ("qpos"), or a role's quantity ("object.pose", "sensor[imu].reading").

    Raises:
        UnknownName: There is none; the choices are listed.
    """
    if name in DATA_FIELDS:
        return Signal(name, ((name, slice(None)),))
    selector, _, quantity = name.rpartition(".")
    try:
        s = select(model, roles, selector)
    except UnknownName as error:
        raise UnknownName("signal", name, _available(model, roles), str(error)) from error
    if quantity in ("pose", "velocity") and len(s.bodies) == 1:
        found = _body(model, s.bodies[0], quantity)
    elif quantity == "position" and s.joints:
        found = (("qpos", _index([model.jnt_qposadr[j] for j in s.joints])),)
    elif quantity in ("speed", "effort") and s.joints:
        field = {"speed": "qvel", "effort": "qfrc_actuator"}[quantity]
        found = ((field, _index([model.jnt_dofadr[j] for j in s.joints])),)
    elif quantity == "force" and s.actuators:
        found = (("actuator_force", _index(s.actuators)),)
    elif quantity in ("touch", "reading") and s.sensors:
        entries = [model.sensor_adr[k] + i for k in s.sensors for i in range(model.sensor_dim[k])]
        found = (("sensordata", _index(entries)),)
    else:
        found = None
    if found is None:
        raise UnknownName("signal", name, _available(model, roles), "Or any field of MjData, such as qpos.")
    return Signal(name, found)


def _body(model: mujoco.MjModel, body: int, quantity: str) -> tuple[tuple[str, Index], ...] | None:
    joint = model.body_jntadr[body]
    if joint >= 0 and model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
        # State fields are those after the step; derived ones such as xpos are one step older.
        adr = int(model.jnt_qposadr[joint] if quantity == "pose" else model.jnt_dofadr[joint])
        return (("qpos", slice(adr, adr + 7)),) if quantity == "pose" else (("qvel", slice(adr, adr + 6)),)
    if quantity == "pose":
        return ("xpos", slice(3 * body, 3 * body + 3)), ("xquat", slice(4 * body, 4 * body + 4))
    return None


def _index(entries: object) -> Index:
    ids = np.asarray(entries, dtype=np.intp)
    contiguous = len(ids) > 0 and bool((np.diff(ids) == 1).all())
    return slice(int(ids[0]), int(ids[-1]) + 1) if contiguous else ids


def _available(model: mujoco.MjModel, roles: Roles) -> list[str]:
    names = []
    for role, s in roles.items():
        names += [f"{role}.{q}" for q in ("position", "speed", "effort") if s.joints]
        names += [f"{role}.force"] if s.actuators else []
        names += [f"{role}.touch" if role == "fingertip" else f"{role}.reading"] if s.sensors else []
        names += [f"{role}.pose"] if len(s.bodies) == 1 else []
        names += [f"{role}.velocity"] if len(s.bodies) == 1 and _body(model, s.bodies[0], "velocity") else []
    return sorted(names)
