"""The geometry of a rigid object: what it looks like and what it collides with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8


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
