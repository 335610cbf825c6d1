"""Signals by name: what a rollout can record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import DATA_FIELDS

from dexloop.core import se3
from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.roles import Roles, Selection, select
from dexloop.sim.scene import Scene

SIGNALS = {
    "pose": "x y z [m], qw qx qy qz of a body",
    "velocity": "linear in world axes [m/s], angular in body axes [rad/s] of a free body",
    "position": "of joints [rad or m]",
    "speed": "of joints [rad/s or m/s]",
    "effort": "of the motors, by joint [N·m or N]",
    "force": "of actuators [N·m or N]",
    "touch": "normal force of touch sensors [N]",
    "reading": "of sensors, as MuJoCo gives it",
    "wrench": "force [N] and torque [N·m] of all contacts on a body, in its axes at its origin; see `sense_wrench`",
}
"""Quantities that a role can have, as in "object.pose"; any field of MjData is a signal too."""

Index = slice | np.ndarray


@dataclass(frozen=True, eq=False)
class Signal:
    """Where a signal is found: slices of one or more fields of MjData, laid side by side."""

    name: str
    sources: tuple[tuple[str, Index], ...]
    convert: Callable[[np.ndarray], np.ndarray] | None = None
    """What is made of them, where they are not the signal itself."""

    def take(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Cuts the signal out of recorded fields [n, t, ...]; without a copy where it can be."""
        pieces = []
        for field, index in self.sources:
            array = fields[field]
            flat = array.reshape(*array.shape[:2], -1) if array.ndim > 3 and self.name != field else array
            pieces.append(flat if self.name == field else flat[:, :, index])
        whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)
        return whole if self.convert is None else self.convert(whole)


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
    if quantity == "wrench" and len(s.bodies) == 1:
        return _wrench(model, s.bodies[0], name)
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


def sense_wrench(scene: Scene, *bodies: str) -> Scene:
    """Returns the scene with a sensor for the signal "BODY.wrench" of each body.

    What is fixed to a body belongs to it, and so does what hangs on its joints, as beyond a sensor at a wrist.

    Raises:
        UnknownName: There is no such body.
    """
    named = sorted({scene.model.body(b).name for b in range(1, scene.model.nbody)} - {""})
    for body in bodies:
        if body not in named:
            raise UnknownName("body", body, named)
    spec = scene.spec.copy()
    for body in bodies:
        add_wrench_sensor(spec, body)
    model = spec.compile()
    return Scene(spec, model, {**scene.roles, "sensor": Selection(sensors=tuple(range(model.nsensor)))})


def add_wrench_sensor(spec: mujoco.MjSpec, body: str) -> None:
    """Adds the sensor that "BODY.wrench" is read from, if it is not there."""
    if spec.sensor(f"{body}.wrench") is None:
        field = mujoco.mjtConDataField
        data = sum(1 << int(f) for f in (field.mjCONDATA_FORCE, field.mjCONDATA_TORQUE, field.mjCONDATA_POS))
        spec.add_sensor(
            name=f"{body}.wrench", type=mujoco.mjtSensor.mjSENS_CONTACT, objtype=mujoco.mjtObj.mjOBJ_XBODY,
            objname=body, intprm=[data, _NET_FORCE, 1],
        )  # fmt: skip


_NET_FORCE = 3
"""MuJoCo's number for reduce="netforce": all contacts as one, in world axes."""


def _wrench(model: mujoco.MjModel, body: int, name: str) -> Signal:
    sensor = _wrench_sensor(model, body)
    if sensor < 0:
        raise InputError(
            f"{name} needs a sensor: make the scene with dexloop.sim.signals.sense_wrench(scene, "
            f"{model.body(body).name!r})"
        )
    adr = int(model.sensor_adr[sensor])
    # Poses of the moment that the contacts are of: qpos is a step newer.
    place = ("xpos", slice(3 * body, 3 * body + 3)), ("xquat", slice(4 * body, 4 * body + 4))
    return Signal(name, (("sensordata", slice(adr, adr + 9)), *place), _in_body_axes)


def _wrench_sensor(model: mujoco.MjModel, body: int) -> int:
    return mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, f"{model.body(body).name}.wrench")


def _in_body_axes(rows: np.ndarray) -> np.ndarray:
    """Turns force, torque, their place in the world, and the body's pose into a wrench on the body at its origin."""
    # MuJoCo gives what the body does to the others.
    force, torque, place, origin = -rows[..., :3], -rows[..., 3:6], rows[..., 6:9], rows[..., 9:12]
    back = se3.quat_inverse(rows[..., 12:])
    torque = torque + np.cross(place - origin, force)
    return np.concatenate([se3.quat_rotate(back, force), se3.quat_rotate(back, torque)], axis=-1)


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
        names += [f"{role}.wrench"] if len(s.bodies) == 1 and _wrench_sensor(model, s.bodies[0]) >= 0 else []
        names += [f"{role}.velocity"] if len(s.bodies) == 1 and _body(model, s.bodies[0], "velocity") else []
    return sorted(names)
