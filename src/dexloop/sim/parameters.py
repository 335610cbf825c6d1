"""Parameters by name, such as `object.mass`, `table.friction` or `joint[index_*].armature`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError, NoEffect, UnknownName
from dexloop.sim.quantities import QUANTITIES, Expand, Quantity
from dexloop.sim.roles import Roles, Selection, is_free, select
from dexloop.sim.scene import Scene
from dexloop.sim.transforms import Transform


@dataclass(frozen=True, eq=False)
class Parameter:
    """A named number (or a few) of a world: its unit, its bounds, and how it is read and written."""

    name: str
    selection: Selection
    quantity: Quantity
    unit: str
    bounds: tuple[float, float]
    """Of each component [unit]."""
    nominal: Float[np.ndarray, " k"]
    """The model's own value [unit]."""

    @property
    def size(self) -> int:
        """Number of components."""
        return self.quantity.size

    @property
    def transform(self) -> Transform:
        """To and from unconstrained coordinates."""
        return self.quantity.transform

    def write(self, expand: Expand, model: mujoco.MjModel, value: Float[np.ndarray, "n k"]) -> None:
        """Writes values into n worlds; `check` them first."""
        self.quantity.write(expand, model, self.selection, value)

    def check(self, value: Float[np.ndarray, "n k"]) -> None:
        """Checks values before anything is written.

        Raises:
            InputError: A value is not finite, out of bounds, or no body could have it.
        """
        lower, upper = self.bounds
        if not np.isfinite(value).all() or (value < lower).any() or (value > upper).any():
            raise InputError(f"{self.name} must be from {lower:g} to {upper:g} {self.unit}, not {_show(value)}")
        if self.quantity.name == "inertia":
            try:
                self.transform.to_free(value)
            except np.linalg.LinAlgError as error:
                raise InputError(f"{self.name} is no inertia that a body could have: {_show(value)}") from error


def parameter(model: mujoco.MjModel, roles: Roles, name: str) -> Parameter:
    """Finds a parameter by name.

    Raises:
        UnknownName: The role or the quantity does not exist; the choices are listed.
        NoEffect: The model has nothing that it could change.
    """
    selector, dot, quantity_name = name.rpartition(".")
    if not dot:
        raise UnknownName("parameter", name, available(model, roles))
    try:
        selection = select(model, roles, selector)
    except UnknownName as error:
        raise UnknownName("parameter", name, available(model, roles), str(error)) from error
    quantity = _quantity(selection, quantity_name)
    if quantity is None:
        raise UnknownName("parameter", name, available(model, roles))
    count = len(getattr(selection, quantity.on))
    if quantity.single and count != 1:
        raise UnknownName(
            "parameter", name, available(model, roles), f"{selector!r} are {count} {quantity.on}: name one in brackets."
        )
    unit, bounds = quantity.unit, quantity.bounds
    if quantity.on == "joints":
        unit, bounds = _joint_unit(model, selection, quantity)
    if quantity.name == "delay":
        bounds = (0.0, _longest_delay(model, selection, name))
    if quantity.name == "intrinsics" and not model.cam_sensorsize[selection.cameras[0]].any():
        raise NoEffect(
            f"{name} has no effect: the camera has a field of view only; give it focal length and sensor size"
        )
    if quantity.name in _OF_PAIRS and not quantity.read(model, selection).any():
        raise NoEffect(
            f"{name} has no effect: only contacts named as pairs, such as an object's with the table, have it"
        )
    if quantity.name == "height" and not _stands(model, selection):
        raise NoEffect(f"{name} has no effect: only what stands in the world has a height, such as the table")
    _refuse_if_nothing_to_scale(model, selection, quantity, name)
    return Parameter(name, selection, quantity, unit, bounds, quantity.read(model, selection))


def parameters(model: mujoco.MjModel, roles: Roles, names: Iterable[str]) -> tuple[Parameter, ...]:
    """Finds parameters by name, in the order in which they must be written.

    Raises:
        InputError: A name is given twice.
    """
    names = list(names)
    if len(set(names)) != len(names):
        raise InputError(f"a parameter is named twice: {', '.join(names)}")
    found = [parameter(model, roles, name) for name in names]
    return tuple(sorted(found, key=lambda p: QUANTITIES.index(p.quantity)))


def available(model: mujoco.MjModel, roles: Roles) -> list[str]:
    """Lists the names of parameters: of the general roles and of free bodies. Other bodies have them by their names."""
    names = []
    for role, selection in roles.items():
        if selection.bodies and role != "object" and not is_free(model, selection.bodies[0]):
            continue  # a robot's many links would drown the rest
        for quantity in QUANTITIES:
            count = len(getattr(selection, quantity.on))
            if not count or _quantity(selection, quantity.name) != quantity:
                continue
            if quantity.name in _OF_PAIRS and not quantity.read(model, selection).any():
                continue
            if quantity.name == "height" and not _stands(model, selection):
                continue
            names.append(
                f"{role}[NAME].{quantity.name}" if quantity.single and count > 1 else f"{role}.{quantity.name}"
            )
    return sorted(set(names))


def _stands(model: mujoco.MjModel, s: Selection) -> bool:
    return all(model.geom_bodyid[g] == 0 for g in s.geoms)


def _quantity(selection: Selection, name: str) -> Quantity | None:
    return next((q for q in QUANTITIES if q.name == name and getattr(selection, q.on)), None)


def _joint_unit(model: mujoco.MjModel, s: Selection, quantity: Quantity) -> tuple[str, tuple[float, float]]:
    if len(s.joints) != 1:
        return "× nominal", (0.05, 20.0)
    angular, linear = quantity.unit.split(" or ")
    is_slide = model.jnt_type[s.joints[0]] == mujoco.mjtJoint.mjJNT_SLIDE
    return (linear if is_slide else angular), quantity.bounds


def _longest_delay(model: mujoco.MjModel, s: Selection, name: str) -> float:
    samples = int(model.actuator_history[list(s.actuators), 0].min())
    if samples < 3:
        raise NoEffect(f"{name} has no effect: the actuators have no history buffer; compose with max_delay_s > 0")
    return (samples - 2) * float(model.opt.timestep)


def _refuse_if_nothing_to_scale(model: mujoco.MjModel, s: Selection, quantity: Quantity, name: str) -> None:
    if quantity.on == "actuators" and quantity.name in ("gain", "damping"):
        scaled = model.actuator_gainprm[:, 0] if quantity.name == "gain" else model.actuator_biasprm[:, 2]
        nothing = not scaled[list(s.actuators)].any()
    elif quantity.on == "joints" and len(s.joints) > 1:
        field = {"friction": "dof_frictionloss", "armature": "dof_armature", "damping": "dof_damping"}[quantity.name]
        nothing = not getattr(model, field)[[int(model.jnt_dofadr[j]) for j in s.joints]].any()
    else:
        return
    if nothing:
        raise NoEffect(f"{name} has no effect: it is a factor, and all it would scale is zero in this model")


_OF_PAIRS = ("grip", "stiction", "stribeck")
"""What only contacts named as pairs have."""


def _show(value: np.ndarray) -> str:
    return np.array2string(value[:3].squeeze(), precision=5, threshold=8)


def write_model(scene: Scene, values: Mapping[str, float | np.ndarray]) -> None:
    """Writes parameter values into a scene's own model, for a simulation of one."""
    model = scene.model
    for p in parameters(model, scene.roles, values):
        value = np.broadcast_to(np.asarray(values[p.name], dtype=np.float64), (1, p.size))
        p.check(value)
        p.write(lambda field: getattr(model, field)[None], model, value)
    mujoco.mj_setConst(model, mujoco.MjData(model))
