"""The geometry of a rigid object: what it looks like and what it collides with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, UInt8

from dexloop.core import se3
from dexloop.core.errors import InputError

if TYPE_CHECKING:
    import mujoco


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles, counter-clockwise seen from outside."""

    vertices: Float[np.ndarray, "v 3"]
    """[m]"""
    faces: Int[np.ndarray, "f 3"]
    uv: Float[np.ndarray, "v 2"] | None = None
    """Texture coordinates, v up (OpenGL). Vertices on a seam appear twice."""


@dataclass(frozen=True, eq=False)
class Shape:
    """An object in its own frame."""

    visual: Mesh
    texture: UInt8[np.ndarray, "h w 3"] | None
    """RGB, row 0 at v = 1."""
    parts: tuple[Mesh, ...]
    """Convex pieces that together fill the object; these collide."""


def shape_of(model: mujoco.MjModel, body: int) -> Shape:
    """Returns what a body of a compiled model looks like, from its first mesh that does not collide.

    Raises:
        InputError: It has no mesh.
    """
    geoms = [int(g) for g in np.flatnonzero((model.geom_bodyid == body) & (model.geom_dataid >= 0))]
    seen = [g for g in geoms if not model.geom_contype[g] and not model.geom_conaffinity[g]] or geoms
    if not seen:
        raise InputError(f"body {model.body(body).name!r} has no mesh: it cannot be recognised in a picture")
    drawn = _mesh(model, seen[0])
    texture = None
    material = int(model.geom_matid[seen[0]])
    if material >= 0 and (picture := int(model.mat_texid[material].max())) >= 0:
        height, width, channels = (int(f[picture]) for f in (model.tex_height, model.tex_width, model.tex_nchannel))
        start = int(model.tex_adr[picture])
        texture = model.tex_data[start : start + height * width * channels].reshape(height, width, channels)[..., :3]
    return Shape(drawn, texture, tuple(_mesh(model, g) for g in geoms if g != seen[0]))


def _mesh(model: mujoco.MjModel, geom: int) -> Mesh:
    """Returns a geom's mesh in the frame of its body."""
    k = int(model.geom_dataid[geom])
    vertices = model.mesh_vert[model.mesh_vertadr[k] : model.mesh_vertadr[k] + model.mesh_vertnum[k]]
    faces = slice(int(model.mesh_faceadr[k]), int(model.mesh_faceadr[k] + model.mesh_facenum[k]))
    T = se3.from_pose(np.concatenate([model.geom_pos[geom], model.geom_quat[geom]]))
    placed = se3.transform(T, vertices.astype(np.float64))
    index, start = model.mesh_face[faces], int(model.mesh_texcoordadr[k])
    if start < 0:
        return Mesh(placed, index.astype(np.int64))
    # MuJoCo numbers corners and texture coordinates apart: a vertex for each pair of them.
    corner = model.mesh_facetexcoord[faces]
    pairs, which = np.unique(np.stack([index.ravel(), corner.ravel()], axis=1), axis=0, return_inverse=True)
    uv = model.mesh_texcoord[start + pairs[:, 1]].astype(np.float64)
    uv[:, 1] = 1.0 - uv[:, 1]  # MuJoCo's v runs downwards
    return Mesh(placed[pairs[:, 0]], which.reshape(-1, 3).astype(np.int64), uv)
