"""Roles: what "object", "table", "fingertip", "joint", "actuator" and "camera" stand for in a compiled model."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import mujoco
import numpy as np

from dexloop.core.errors import UnknownName


@runtime_checkable
class FingertipModel(Protocol):
    """What a scene needs to know of a fingertip; `robots.embodiment.Fingertip` is one."""

    @property
    def geoms(self) -> tuple[str, ...]:
        """Geoms of the pad."""
        ...


@runtime_checkable
class RobotModel(Protocol):
    """What a scene needs to know of a robot; `robots.embodiment.Embodiment` is one."""

    @property
    def make_spec(self) -> Callable[[], mujoco.MjSpec]:
        """Gives a fresh model."""
        ...

    @property
    def joints(self) -> tuple[str, ...]:
        """Actuated joints in command order."""
        ...

    @property
    def actuators(self) -> tuple[str, ...]:
        """One a joint, in the same order."""
        ...

    @property
    def fingertips(self) -> Sequence[FingertipModel]:
        """Where it touches."""
        ...


@dataclass(frozen=True)
class Selection:
    """Elements of a model by number. A body brings its geoms."""

    bodies: tuple[int, ...] = ()
    geoms: tuple[int, ...] = ()
    joints: tuple[int, ...] = ()
    actuators: tuple[int, ...] = ()
    cameras: tuple[int, ...] = ()
    sensors: tuple[int, ...] = ()


Roles = Mapping[str, Selection]

_SELECTOR = re.compile(r"^(?P<role>[^\[\].]+)(\[(?P<glob>[^\]]+)\])?$")
_LISTS = {
    "bodies": mujoco.mjtObj.mjOBJ_BODY,
    "geoms": mujoco.mjtObj.mjOBJ_GEOM,
    "joints": mujoco.mjtObj.mjOBJ_JOINT,
    "actuators": mujoco.mjtObj.mjOBJ_ACTUATOR,
    "cameras": mujoco.mjtObj.mjOBJ_CAMERA,
    "sensors": mujoco.mjtObj.mjOBJ_SENSOR,
}


def roles_of(
    model: mujoco.MjModel, *, things: Sequence[str] = (), robots: Sequence[RobotModel] = ()
) -> dict[str, Selection]:
    """Finds the roles in a model.

    Args:
        model: Any compiled model.
        things: Names of the free objects, if known; otherwise every body with a free joint and nothing driven on it.
        robots: Embodiments in it, if known; they say which joints and fingertips are meant.

    Returns:
        A selection by role. Every named body is a role of its own name too, as is "object" where there is one object.
    """
    roles: dict[str, Selection] = {}
    for body in range(1, model.nbody):
        if name := model.body(body).name:
            roles[name] = _body(model, body)
    driven = _driven_joints(model)
    free = [b for b in range(1, model.nbody) if is_free(model, b) and not _carries(model, b, driven)]
    objects = [model.body(n).id for n in things] or free
    if len(objects) == 1:
        roles["object"] = _body(model, objects[0])
    fixed = tuple(g for g in range(model.ngeom) if model.body_weldid[model.geom_bodyid[g]] == 0 and _collides(model, g))
    table = tuple(g for g in fixed if "table" in _names(model, g))
    if table or fixed:
        roles["table"] = Selection(geoms=table or fixed)
    tips = tuple(model.geom(g).id for robot in robots for f in robot.fingertips for g in f.geoms)
    touch = tuple(s for s in range(model.nsensor) if model.sensor_type[s] == mujoco.mjtSensor.mjSENS_TOUCH)
    if tips or touch:
        roles["fingertip"] = Selection(geoms=tips, sensors=touch)
    joints = tuple(model.joint(j).id for robot in robots for j in robot.joints)
    roles["joint"] = Selection(joints=joints or driven)
    actuators = tuple(model.actuator(a).id for robot in robots for a in robot.actuators)
    roles["actuator"] = Selection(actuators=actuators or tuple(range(model.nu)))
    roles["camera"] = Selection(cameras=tuple(range(model.ncam)))
    roles["sensor"] = Selection(sensors=tuple(range(model.nsensor)))
    return roles


def select(model: mujoco.MjModel, roles: Roles, selector: str) -> Selection:
    """Resolves "object", "joint" or "joint[if_*]".

    Raises:
        UnknownName: The role, or the pattern in brackets, matches nothing.
    """
    match = _SELECTOR.match(selector)
    if match is None or match["role"] not in roles:
        raise UnknownName("role", match["role"] if match else selector, sorted(roles))
    selection = roles[match["role"]]
    if match["glob"] is None:
        return selection
    kept, names = {}, []
    for field, kind in _LISTS.items():
        ids = getattr(selection, field)
        named = {i: mujoco.mj_id2name(model, kind, i) or "" for i in ids}
        names += named.values()
        kept[field] = tuple(i for i, name in named.items() if fnmatch.fnmatchcase(name, match["glob"]))
    if not any(kept.values()):
        raise UnknownName(f"{match['role']} in {selector!r}", match["glob"], sorted(n for n in names if n))
    return Selection(**kept)


def _body(model: mujoco.MjModel, body: int) -> Selection:
    geoms = np.flatnonzero(model.geom_bodyid == body)
    return Selection(bodies=(body,), geoms=tuple(int(g) for g in geoms if _collides(model, int(g))))


def _collides(model: mujoco.MjModel, geom: int) -> bool:
    return bool(model.geom_contype[geom] or model.geom_conaffinity[geom])


def _names(model: mujoco.MjModel, geom: int) -> tuple[str, str]:
    return model.geom(geom).name, model.body(int(model.geom_bodyid[geom])).name


def is_free(model: mujoco.MjModel, body: int) -> bool:
    """Whether a body floats freely."""
    first = model.body_jntadr[body]
    return bool(first >= 0 and model.jnt_type[first] == mujoco.mjtJoint.mjJNT_FREE)


def _driven_joints(model: mujoco.MjModel) -> tuple[int, ...]:
    hinges = np.isin(model.jnt_type, (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE))
    by_joint = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
    driven = [int(j) for j in model.actuator_trnid[by_joint, 0] if hinges[j]]
    return tuple(dict.fromkeys(driven)) or tuple(int(j) for j in np.flatnonzero(hinges))


def _carries(model: mujoco.MjModel, body: int, joints: tuple[int, ...]) -> bool:
    return any(model.body_rootid[model.jnt_bodyid[j]] == body for j in joints)
