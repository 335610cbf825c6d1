"""Points on the surface of geoms, for telling where a link ends."""

from __future__ import annotations

from collections.abc import Iterable

import mujoco
import numpy as np
from jaxtyping import Float

_SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float64)


def surface(model: mujoco.MjModel, data: mujoco.MjData, geoms: Iterable[int]) -> Float[np.ndarray, "n 3"]:
    """Returns points on geoms in the world: corners, vertices, or evenly spread ones on round shapes."""
    clouds = [_local(model, g) @ data.geom_xmat[g].reshape(3, 3).T + data.geom_xpos[g] for g in geoms]
    return np.concatenate(clouds) if clouds else np.zeros((0, 3))


def collides(model: mujoco.MjModel, geom: int) -> bool:
    """Returns whether a geom can touch anything."""
    return bool(model.geom_contype[geom] or model.geom_conaffinity[geom])


def _local(model: mujoco.MjModel, geom: int) -> Float[np.ndarray, "n 3"]:
    kind, size = model.geom_type[geom], model.geom_size[geom]
    shape = mujoco.mjtGeom
    if kind == shape.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first = model.mesh_vertadr[mesh]
        return np.asarray(model.mesh_vert[first : first + model.mesh_vertnum[mesh]], dtype=np.float64)
    if kind == shape.mjGEOM_BOX:
        return _SIGNS * size
    ball = _sphere()
    if kind == shape.mjGEOM_SPHERE:
        return ball * size[0]
    if kind == shape.mjGEOM_ELLIPSOID:
        return ball * size
    if kind == shape.mjGEOM_CAPSULE:
        return ball * size[0] + np.sign(ball[:, 2:]) * np.array([0.0, 0.0, size[1]])
    if kind == shape.mjGEOM_CYLINDER:
        rim = ball[:, :2] / np.linalg.norm(ball[:, :2], axis=1, keepdims=True)
        return np.column_stack([rim * size[0], np.sign(ball[:, 2]) * size[1]])
    return np.zeros((0, 3))  # planes and height fields have no end


def _sphere(n: int = 200) -> Float[np.ndarray, "n 3"]:
    """Returns points spread evenly on the unit sphere (Fibonacci)."""
    k = np.arange(n) + 0.5
    z = 1 - 2 * k / n
    angle = np.pi * (1 + 5**0.5) * k
    r = np.sqrt(1 - z**2)
    return np.column_stack([r * np.cos(angle), r * np.sin(angle), z])
