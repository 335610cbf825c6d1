"""Puts printed patches together into a `LabObject`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from dexloop.core import se3
from dexloop.lab.objects.mass import Spread
from dexloop.lab.objects.model import LabObject
from dexloop.lab.objects.patches import Patch, convex, merge
from dexloop.sim.shape import Mesh, Shape

ATLAS_PX = 1024
_BLEED_PX = 6  # each print's border is repeated outwards, so that mip-mapping mixes in no foreign colour

Printed = tuple[Patch, Image.Image]


def assemble(
    name: str,
    title: str,
    printed: Sequence[Printed],
    parts: Sequence[Mesh],
    spread: Spread,
    *,
    mass_kg: float,
    crush_force_n: float | None,
    down: tuple[float, float, float] = (0.0, 0.0, -1.0),
) -> LabObject:
    """Packs the prints into one texture, moves the origin to the middle of the bounding box, and lays it to rest.

    Args:
        name: Of the object.
        title: For people.
        printed: Patches and their prints, at most one atlas full.
        parts: Convex pieces, in the coordinates of the patches.
        spread: Of the mass, in the same coordinates.
        mass_kg: Nominal mass.
        crush_force_n: Grip force that destroys it.
        down: Direction in the object that points at the table at rest, to within the nearest facet.
    """
    texture, patches = _pack(printed)
    surface = merge(patches)
    vertices = surface.vertices
    middle = 0.5 * (vertices.min(axis=0) + vertices.max(axis=0))
    visual = Mesh(vertices - middle, surface.faces, surface.uv)
    pieces = tuple(Mesh(p.vertices - middle, p.faces) for p in parts)
    com = spread.com - middle
    return LabObject(
        name=name,
        title=title,
        shape=Shape(visual, texture, pieces),
        mass_kg=mass_kg,
        com=com,
        inertia_per_kg=spread.inertia,
        crush_force_n=crush_force_n,
        T_rest=_rest(pieces, np.asarray(down)),
    )


def _pack(printed: Sequence[Printed]) -> tuple[UInt8[np.ndarray, "h w 3"], list[Patch]]:
    """Shelf-packs the prints, tallest first."""
    atlas = np.full((ATLAS_PX, ATLAS_PX, 3), 128, dtype=np.uint8)
    patches: list[Patch] = []
    x = y = shelf = 0
    for i in sorted(range(len(printed)), key=lambda i: -printed[i][1].height):
        patch, image = printed[i]
        tile = np.pad(np.asarray(image.convert("RGB")), ((_BLEED_PX,) * 2, (_BLEED_PX,) * 2, (0, 0)), mode="edge")
        h, w = tile.shape[:2]
        if x + w > ATLAS_PX:
            x, y, shelf = 0, y + shelf, 0
        if x + w > ATLAS_PX or y + h > ATLAS_PX:
            raise ValueError(f"the prints do not fit {ATLAS_PX} px: {[p.size for _, p in printed]}")
        atlas[y : y + h, x : x + w] = tile
        low = np.array([x + _BLEED_PX, ATLAS_PX - (y + _BLEED_PX + image.height)], dtype=np.float64)
        uv = (low + patch.uv * [image.width, image.height]) / ATLAS_PX
        patches.append(Patch(patch.vertices, patch.faces, uv))
        x, shelf = x + w, max(shelf, h)
    return atlas, patches


def _rest(parts: Sequence[Mesh], down: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4 4"]:
    """Lays the facet of the hull that faces most `down` flat on z = 0."""
    hull = convex(np.concatenate([p.vertices for p in parts]))
    a, b, c = np.moveaxis(hull.vertices[hull.faces], 1, 0)
    normals = np.cross(b - a, c - a)
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    normal = normals[np.argmax(normals @ down)]
    axis = np.cross(normal, [0.0, 0.0, -1.0])
    sine = float(np.linalg.norm(axis))
    turn = np.zeros(3) if sine < 1e-9 else axis / sine * np.arctan2(sine, -normal[2])
    R = se3.quat_to_matrix(se3.so3_exp(turn))
    return se3.from_rt(R, np.array([0.0, 0.0, -float((hull.vertices @ R.T)[:, 2].min())]))
