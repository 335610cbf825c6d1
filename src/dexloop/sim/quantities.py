"""What a parameter can be about: how to read it from a model and write it into many worlds at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.sim.engine import STICTION, STRIBECK, STRIBECK_M_S
from dexloop.sim.roles import Selection
from dexloop.sim.transforms import Identity, Log, LogCholesky, Transform, inertia_matrix, inertia_vector

Array = np.ndarray
Expand = Callable[[str], np.ndarray]
"""Gives the live per-world array [n, ...] of a model field."""
Read = Callable[[mujoco.MjModel, Selection], np.ndarray]
Write = Callable[[Expand, mujoco.MjModel, Selection, np.ndarray], None]


@dataclass(frozen=True)
class Quantity:
    """One kind of parameter."""

    name: str
    on: str
    """The element it belongs to: "bodies", "geoms", "joints", "actuators" or "cameras"."""
    unit: str
    bounds: tuple[float, float]
    """Of each component [unit]."""
    transform: Transform
    read: Read
    """Gives the nominal value [k]."""
    write: Write
    """Writes values [n, k] into n worlds."""
    single: bool = False
    """Whether it means something for one element only."""
    size: int = 1


def _mass_read(model: mujoco.MjModel, s: Selection) -> Float[Array, " 1"]:
    return model.body_mass[list(s.bodies)].copy()


def _mass_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: Float[Array, "n 1"]) -> None:
    # The inertia follows the mass, as if the density had changed; an inertia parameter written later overrides it.
    body = s.bodies[0]
    expand("body_mass")[:, body] = value[:, 0]
    expand("body_inertia")[:, body] = model.body_inertia[body] * (value / model.body_mass[body])


def _com_read(model: mujoco.MjModel, s: Selection) -> Float[Array, " 3"]:
    return model.body_ipos[s.bodies[0]].copy()


def _com_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: Float[Array, "n 3"]) -> None:
    expand("body_ipos")[:, s.bodies[0]] = value


def _inertia_read(model: mujoco.MjModel, s: Selection) -> Float[Array, " 6"]:
    body = s.bodies[0]
    R = se3.quat_to_matrix(model.body_iquat[body])
    return inertia_vector(R @ np.diag(model.body_inertia[body]) @ R.T)


def _inertia_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: Float[Array, "n 6"]) -> None:
    principal, axes = np.linalg.eigh(inertia_matrix(value))
    axes[..., :, 0] *= np.sign(np.linalg.det(axes))[..., None]  # a rotation, not a reflection
    expand("body_inertia")[:, s.bodies[0]] = principal
    expand("body_iquat")[:, s.bodies[0]] = se3.quat_from_matrix(axes)


def _owned_pairs(model: mujoco.MjModel, s: Selection) -> list[int]:
    """Named contact pairs whose surface the selected geoms decide: those in which none has priority over them."""
    owned = []
    for pair, (a, b) in enumerate(zip(model.pair_geom1, model.pair_geom2, strict=True)):
        mine, other = (a, b) if a in s.geoms else (b, a)
        if mine in s.geoms and model.geom_priority[mine] >= model.geom_priority[other]:
            owned.append(pair)
    return owned


def _friction_of(column: int, pair_columns: list[int]) -> tuple[Read, Write]:
    """Reads and writes one kind of friction, the same for all selected geoms and the pairs that they decide."""

    def read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
        return model.geom_friction[[s.geoms[0]], column].copy()

    def write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
        expand("geom_friction")[:, list(s.geoms), column] = value
        if pairs := _owned_pairs(model, s):
            for k in pair_columns:
                expand("pair_friction")[:, pairs, k] = value

    return read, write


def _solref_read(column: int) -> Read:
    def read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
        return _direct(model.geom_solref[s.geoms[0]])[[column]]

    return read


def _solref_write(column: int) -> Write:
    def write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
        _write_solref(expand("geom_solref"), model.geom_solref, list(s.geoms), column, value)
        if pairs := _owned_pairs(model, s):
            _write_solref(expand("pair_solref"), model.pair_solref, pairs, column, value)

    return write


def _write_solref(solref: np.ndarray, nominal: np.ndarray, ids: list[int], column: int, value: np.ndarray) -> None:
    for k in ids:
        # The direct form has both numbers negative; the other one keeps what it stands for now.
        positive = solref[:, k, 0] > 0
        if positive.any():
            solref[positive, k] = -_direct(nominal[k])
        solref[:, k, column] = -value[:, 0]


def _grip_read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
    pairs = _owned_pairs(model, s)
    return -model.pair_solreffriction[pairs[:1], 1] if pairs else np.zeros(1)


def _grip_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
    expand("pair_solreffriction")[:, _owned_pairs(model, s), 1] = -value


def _slide(field: str, nominal: float) -> tuple[Read, Write]:
    """Reads and writes what the engine knows of sliding beyond MuJoCo's model, of the table's named contacts."""

    def read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
        return np.full(1, nominal) if _owned_pairs(model, s) else np.zeros(1)

    def write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
        expand(field)[:] = value

    return read, write


def _height_read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
    return np.zeros(1)


def _height_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
    # MuJoCo looks for contacts within boxes that stay where they were compiled, so disable its midphase to go higher.
    expand("geom_pos")[:, list(s.geoms), 2] = model.geom_pos[list(s.geoms), 2] + value


def _direct(solref: np.ndarray) -> np.ndarray:
    """Stiffness [1/s²] and damping [1/s] of a contact, from either form of MuJoCo's solref."""
    if solref[0] <= 0:
        return -solref
    time_constant, ratio = solref
    return np.array([1.0 / (time_constant * ratio) ** 2, 2.0 / time_constant])


def _dofs(model: mujoco.MjModel, s: Selection) -> list[int]:
    return [int(model.jnt_dofadr[j]) for j in s.joints]


def _dof(field: str) -> tuple[Read, Write]:
    """One joint: the value itself. Several: a factor on their own values, for they differ in size."""

    def read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
        return getattr(model, field)[_dofs(model, s)].copy() if len(s.joints) == 1 else np.ones(1)

    def write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
        dofs = _dofs(model, s)
        expand(field)[:, dofs] = value if len(dofs) == 1 else value * getattr(model, field)[dofs]

    return read, write


def _factor_read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
    return np.ones(1)


def _gain_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
    ids = list(s.actuators)
    expand("actuator_gainprm")[:, ids, 0] = value * model.actuator_gainprm[ids, 0]
    expand("actuator_biasprm")[:, ids, 1] = value * model.actuator_biasprm[ids, 1]


def _servo_damping_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
    ids = list(s.actuators)
    expand("actuator_biasprm")[:, ids, 2] = value * model.actuator_biasprm[ids, 2]


def _delay_read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
    return model.actuator_delay[[s.actuators[0]]].copy()


def _delay_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
    expand("actuator_delay")[:, list(s.actuators)] = value


def _camera_pose_read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
    return np.zeros(6)


def _camera_pose_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
    camera = s.cameras[0]
    nominal = se3.from_pose(np.concatenate([model.cam_pos[camera], model.cam_quat[camera]]))
    # The tangent is given in OpenCV axes, like every camera here; MuJoCo's have y and z reversed.
    moved = se3.to_pose(nominal @ se3.exp(value * np.array([1.0, -1.0, -1.0, 1.0, -1.0, -1.0])))
    expand("cam_pos")[:, camera], expand("cam_quat")[:, camera] = moved[:, :3], moved[:, 3:]


def _intrinsics_read(model: mujoco.MjModel, s: Selection) -> np.ndarray:
    return to_pixels(model, s.cameras[0])


def _intrinsics_write(expand: Expand, model: mujoco.MjModel, s: Selection, value: np.ndarray) -> None:
    camera = s.cameras[0]
    width, height = model.cam_resolution[camera]
    pitch = model.cam_sensorsize[camera].astype(np.float64) / (width, height)
    centre = 0.5 * np.array([width - 1, height - 1]) - value[:, 2:]
    expand("cam_intrinsic")[:, camera] = np.concatenate([value[:, :2], centre], axis=1) * np.tile(pitch, 2)


def to_pixels(model: mujoco.MjModel, camera: int) -> Float[Array, " 4"]:
    """Returns fx, fy, cx, cy [px] of a camera in a model, in the OpenCV convention."""
    width, height = (int(v) for v in model.cam_resolution[camera])
    centre = 0.5 * np.array([width - 1, height - 1])
    if not model.cam_sensorsize[camera].any():  # a camera that knows only its field of view
        f = 0.5 * height / np.tan(0.5 * np.deg2rad(model.cam_fovy[camera]))
        return np.array([f, f, *centre])
    pitch = model.cam_sensorsize[camera].astype(np.float64) / (width, height)
    focal, principal = model.cam_intrinsic[camera, :2] / pitch, model.cam_intrinsic[camera, 2:] / pitch
    # MuJoCo's principal point is measured from the image centre, towards the upper left.
    return np.concatenate([focal, centre - principal]).astype(np.float64)


_POSITIVE = (1e-6, 1e6)
_stiction, _stribeck = _slide(STICTION, 1.0), _slide(STRIBECK, STRIBECK_M_S)
_FACTOR = (0.05, 20.0)
_friction, _torsion = _friction_of(0, [0, 1]), _friction_of(1, [2])
_loss, _armature, _damping = _dof("dof_frictionloss"), _dof("dof_armature"), _dof("dof_damping")

QUANTITIES: tuple[Quantity, ...] = (
    Quantity("mass", "bodies", "kg", (1e-4, 100.0), Log(), _mass_read, _mass_write, single=True),
    Quantity("com", "bodies", "m", (-1.0, 1.0), Identity(), _com_read, _com_write, single=True, size=3),
    Quantity("inertia", "bodies", "kg·m²", (-1.0, 1.0), LogCholesky(), _inertia_read, _inertia_write, True, 6),
    Quantity("friction", "geoms", "1", (0.01, 3.0), Log(), *_friction),
    Quantity("torsion", "geoms", "m", (1e-6, 0.1), Log(), *_torsion),
    Quantity("stiffness", "geoms", "1/s²", (1.0, 1e8), Log(), _solref_read(0), _solref_write(0)),
    Quantity("damping", "geoms", "1/s", (1e-2, 1e5), Log(), _solref_read(1), _solref_write(1)),
    Quantity("grip", "geoms", "1/s", (1.0, 1e4), Log(), _grip_read, _grip_write),
    Quantity("stiction", "geoms", "1", (1.0, 3.0), Log(), *_stiction),
    Quantity("stribeck", "geoms", "m/s", (1e-3, 1.0), Log(), *_stribeck),
    Quantity("height", "geoms", "m", (-0.05, 0.05), Identity(), _height_read, _height_write),
    Quantity("friction", "joints", "N·m or N", _POSITIVE, Log(), *_loss),
    Quantity("armature", "joints", "kg·m² or kg", _POSITIVE, Log(), *_armature),
    Quantity("damping", "joints", "N·m·s or N·s/m", _POSITIVE, Log(), *_damping),
    Quantity("gain", "actuators", "× nominal", _FACTOR, Log(), _factor_read, _gain_write),
    Quantity("damping", "actuators", "× nominal", _FACTOR, Log(), _factor_read, _servo_damping_write),
    Quantity("delay", "actuators", "s", (0.0, 1.0), Identity(), _delay_read, _delay_write),
    Quantity("pose", "cameras", "m, rad", (-0.5, 0.5), Identity(), _camera_pose_read, _camera_pose_write, True, 6),
    Quantity("intrinsics", "cameras", "px", (0.0, 1e5), Identity(), _intrinsics_read, _intrinsics_write, True, 4),
)
"""In writing order: mass before inertia."""
