"""Where an object's splats begin: on its silhouettes' hull, drawn in to where features were found on it.

Silhouettes leave a cone upon a lid that no camera looked along, and splats that begin up there do not find down where
print repeats: the lid gets holes. Features that pictures share tell where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.twin.masks import SeenObject, surface_colours
from dexloop.twin.mesh import sample
from dexloop.twin.surface import span
from dexloop.vision.splats import Splats
from dexloop.vision.views import View

_NEIGHBOURS, _NEAR_M = 12, 0.015
"""A feature's normal is that of so many others around it, not farther away than this [m]."""
_ASIDE_M = 1e-3
"""A feature farther from its neighbours' plane is a wrong match [m]."""
_FEW = 40
"""With fewer features the hull alone is better."""
_BELOW_M = 2.5e-3
"""How deep below the hull features must be for it to be left [m]."""
_IN_MASK = 0.9
"""Share of the pictures that show where it is, in whose mask a feature of the object lies."""


def first_splats(
    seen: SeenObject,
    points: Float[np.ndarray, "p 3"],
    views: Sequence[View],
    bounds: Float[np.ndarray, "2 3"],
    voxel_m: float,
) -> Splats:
    """Returns splats to begin with.

    Args:
        seen: The object as its masks show it.
        points: Features that pictures share, in the world [m]; others than the object's are left out.
        views: With the object's masks.
        bounds: Lowest and highest corner of a box around it [m].
        voxel_m: How finely the surface through the features is made [m].
    """
    on, normals = _features(seen, points, views)
    if len(on) < _FEW:
        return Splats.from_points(seen.points, seen.colours / 255.0, seen.normals)
    try:
        mesh = span(on, normals, views, bounds, voxel_m)
    except InputError:
        return Splats.from_points(seen.points, seen.colours / 255.0, seen.normals)
    places, face = sample(mesh, len(seen.points))
    a, b, c = np.moveaxis(mesh.vertices[mesh.faces], 1, 0)
    across = np.cross(b - a, c - a)[face]
    outwards = across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-12)
    # A film rounds off what the hull shows sharply, so the hull stays wherever features do not lie well below it.
    below = KDTree(seen.points).query(places)[0] > _BELOW_M
    stays = KDTree(places).query(seen.points)[0] <= _BELOW_M
    masks = [v.mask for v in views if v.mask is not None]
    colours = surface_colours(views, masks, places[below], outwards[below])
    return Splats.from_points(
        np.concatenate([seen.points[stays], places[below]]),
        np.concatenate([seen.colours[stays], colours]) / 255.0,
        np.concatenate([seen.normals[stays], outwards[below]]),
    )


def _features(
    seen: SeenObject, points: Float[np.ndarray, "p 3"], views: Sequence[View]
) -> tuple[Float[np.ndarray, "k 3"], Float[np.ndarray, "k 3"]]:
    """Returns the features on the object and which way its surface faces there."""
    here = np.abs(se3.transform(se3.inverse(seen.T_world_box), points)) < 0.5 * seen.size_m + 2e-3
    on = points[here.all(axis=1)]
    hit, shown = np.zeros(len(on)), np.zeros(len(on))
    for view in views:
        assert view.mask is not None
        xy, inside = view.pixels(on)
        shown += inside
        hit[inside] += view.mask[xy[inside, 1], xy[inside, 0]]
    on = on[(shown > 0) & (hit >= _IN_MASK * shown)]
    hull, normals = KDTree(seen.points), np.zeros_like(on)
    for _ in range(2):  # wrong matches spoil the planes of others, so those are made twice
        if len(on) < _FEW:
            return on[:0], on[:0]
        far, near = KDTree(on).query(on, _NEIGHBOURS + 1)
        around = on[near]
        weight = (far < _NEAR_M)[..., None].astype(np.float64)
        middle = (weight * around).sum(axis=1) / weight.sum(axis=1)
        spread = np.einsum("pki,pkj->pij", weight * (around - middle[:, None]), around - middle[:, None])
        normals = np.linalg.eigh(spread)[1][..., 0]
        aside = np.abs(np.sum((on - middle) * normals, axis=1))
        outwards = np.sum(normals * seen.normals[hull.query(on)[1]], axis=1)
        good = (aside < _ASIDE_M) & (weight.sum(axis=(1, 2)) > 4)
        on, normals = on[good], (np.sign(outwards)[:, None] * normals)[good]
    return on, normals
