"""The surface of one object out of depth maps: signed distances fused on a grid of voxels, bounded by silhouettes.

Every voxel averages its distance to the surface over the views that see it,

    d = (depth at its pixel - its own depth) cos a,      weight  alpha cos² a / depth²,

with the angle a between ray and normal (Curless and Levoy 1996); silhouettes carve. A voxel that no view tells about,
deep inside or below an overhang, continues its neighbours smoothly: the field f minimises

    Σ w (f - d)² + Σ (f - f_neighbour)²,

so that what was never seen is spanned like a soap film. The table bounds the object from below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numba
import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.sim.shape import Mesh
from dexloop.vision.cores import on_all_cores
from dexloop.vision.views import View

_TRUNCATION = 3.0
"""Distances are cut off at this many voxels: beyond it a view says "free", or nothing at all behind the surface."""
_BEHIND = 3.0
"""A view says that a voxel is inside as far behind the surface as this many times the truncation."""
_LEAST_COSINE = 0.15
"""Surfaces seen at a flatter angle than this tell nothing: their depth jumps from pixel to pixel."""
_LEAST_ALPHA = 0.5
_DISSENT = 3
"""A voxel is carved by the third-worst silhouette: two wrong masks do no harm."""
_MASK_PX = 1.0
"""How far the outline of a mask may be off [px]: where depth is known, silhouettes cut only beyond it."""
_DATA = 10.0
"""Weight of one good look at a voxel against its likeness to a neighbour."""
_INSIDE, _INSIDE_POINTS = 1e-4, 0.1
"""Weight of being inside for what lies within all silhouettes: beside depth maps, and beside single points, from which
a soap film reaches some three voxels against it."""
_FACING = 0.2
"""Cosine of the flattest angle at which a point is seen."""
_RAY = 60.0
"""How far above a point voxels are taken to be free, where cameras look through them [voxels]."""
_ITERATIONS, _TOLERANCE = 200, 1e-4
"""Of the conjugate gradients: at most so many, and until residuals have fallen to this share."""
_MARGIN_PX = 24
"""How far around a mask pictures are looked at [px]."""
_TUNNEL = 2
"""Half of the width of tunnels that are closed [voxels]."""
_MOST_VOXELS = 40_000_000


def fuse(
    depths: Sequence[Float[np.ndarray, "h w"]],
    views: Sequence[View],
    bounds: Float[np.ndarray, "2 3"],
    voxel_m: float,
    *,
    alphas: Sequence[Float[np.ndarray, "h w"]] | None = None,
) -> Mesh:
    """Fuses depth maps into one closed surface.

    Args:
        depths: Along each camera's z axis [m]; 0 or NaN where it is not known.
        views: The cameras and the object's masks, one for each depth map.
        bounds: Lowest and highest corner of a box around the object in the world [m]; the table is z = 0.
        voxel_m: Edge of a voxel [m]; 1 to 1.5 mm for an object that fits a hand.
        alphas: How opaque the object was drawn at each pixel, 0 to 1; None for fully.

    Returns:
        The surface in the world frame, flat at z = 0 where the object stands.

    Raises:
        InputError: The views do not fit the depth maps, or there is nothing in the box.
    """
    alphas = [np.ones_like(d) for d in depths] if alphas is None else alphas
    _validate(depths, views, alphas, bounds, voxel_m)
    told = _told(depths, views, alphas, bounds, voxel_m)
    return _contour(told, _solve(*_evidence(told, _INSIDE)))


def span(
    points: Float[np.ndarray, "p 3"],
    normals: Float[np.ndarray, "p 3"],
    views: Sequence[View],
    bounds: Float[np.ndarray, "2 3"],
    voxel_m: float,
) -> Mesh:
    """Spans a closed surface over single points of an object, within its silhouettes.

    Between points, and between them and the silhouettes' hull, it is a soap film. What lies between a camera and a
    point that it sees is free: so a lid is flat although no silhouette shows that.

    Args:
        points: On the surface, in the world [m].
        normals: Outwards.
        views: The cameras and the object's masks.
        bounds: As for `fuse`.
        voxel_m: As for `fuse`.

    Raises:
        InputError: The views have no masks, or there is nothing in the box.
    """
    nothing = [np.zeros(v.rgb.shape[:2], np.float32) for v in views]
    _validate(nothing, views, nothing, bounds, voxel_m)
    told = _told(nothing, views, nothing, bounds, voxel_m)
    shape = told.total.shape

    def add(to: Float[np.ndarray, "x y z"], at: Float[np.ndarray, "n 3"], amount: Float[np.ndarray, " n"]) -> None:
        index = np.rint((at - told.low) / voxel_m).astype(np.int64)
        inside = ((index >= 0) & (index < shape)).all(axis=1)
        flat = np.ravel_multi_index(tuple(index[inside].T), shape)
        to += np.bincount(flat, amount[inside], minlength=to.size).reshape(shape).astype(np.float32)

    reach = np.arange(-2.0, 3.0)
    around = voxel_m * np.stack(np.meshgrid(reach, reach, reach, indexing="ij"), axis=-1).reshape(-1, 3)
    corner = told.low + voxel_m * np.rint((points - told.low) / voxel_m)
    places = corner[:, None] + around
    height = np.einsum("pni,pi->pn", places - points[:, None], normals)
    aside = np.sum((places - points[:, None]) ** 2, axis=-1) - height**2
    sure = np.exp(-aside / voxel_m**2)
    add(told.total, places.reshape(-1, 3), (sure * height).ravel())
    add(told.weight, places.reshape(-1, 3), sure.ravel())
    for view in views:
        assert view.mask is not None
        ray = view.T_world_camera[:3, 3] - points
        ray /= np.linalg.norm(ray, axis=1, keepdims=True)
        facing = np.sum(ray * normals, axis=1)
        xy, shown = view.pixels(points)
        shown &= facing > _FACING
        shown[shown] = view.mask[xy[shown, 1], xy[shown, 0]]
        along = voxel_m * np.arange(_TRUNCATION, _RAY) / np.maximum(facing, _FACING)[:, None]
        free = points[:, None] + along[..., None] * ray[:, None]
        add(told.free, free[shown].reshape(-1, 3), np.ones(free[shown].size // 3))
    return _contour(told, _solve(*_evidence(told, _INSIDE_POINTS)))


@dataclass(frozen=True, eq=False)
class _Told:
    """What views tell about the voxels of a grid."""

    total: Float[np.ndarray, "x y z"]
    """Sum of weighted distances to the surface [m]."""
    weight: Float[np.ndarray, "x y z"]
    free: Float[np.ndarray, "x y z"]
    """Weight of views that see it free, less of those that see it inside."""
    inside: Float[np.ndarray, "x y z"]
    """How far it is within all silhouettes but a few [m]."""
    low: Float[np.ndarray, "3"]
    """Centre of the first voxel [m]."""
    voxel_m: float
    slack_m: float
    """How far silhouettes may be off."""

    @property
    def truncation_m(self) -> float:
        return _TRUNCATION * self.voxel_m


def _told(
    depths: Sequence[Float[np.ndarray, "h w"]],
    views: Sequence[View],
    alphas: Sequence[Float[np.ndarray, "h w"]],
    bounds: Float[np.ndarray, "2 3"],
    voxel_m: float,
) -> _Told:
    low, shape = _grid(bounds, voxel_m)
    truncation = _TRUNCATION * voxel_m
    total, weight, free = (np.zeros(shape, np.float32) for _ in range(3))
    worst = np.full((_DISSENT, *shape), np.inf, np.float32)
    nearest = min(float(np.linalg.norm(v.T_world_camera[:3, 3] - bounds.mean(axis=0))) for v in views)
    for depth, view, alpha in zip(depths, views, alphas, strict=True):
        c = view.camera
        box = _around(view)
        trust, cosine = _trust(depth, view, alpha, box)
        on_all_cores(
            _add_view,
            total, weight, free, worst, low, voxel_m, truncation, se3.inverse(view.T_world_camera),
            np.array([c.fx, c.fy, c.cx, c.cy]), np.array([box[1].start, box[0].start]), (c.width, c.height),
            np.nan_to_num(depth[box]).astype(np.float32), trust, cosine, _outline(view, box), nearest,
        )  # fmt: skip
    return _Told(total, weight, free, worst[-1], low, voxel_m, _MASK_PX * nearest / views[0].camera.fx)


def _validate(
    depths: Sequence[np.ndarray],
    views: Sequence[View],
    alphas: Sequence[np.ndarray],
    bounds: np.ndarray,
    voxel_m: float,
) -> None:
    if not (len(depths) == len(views) == len(alphas)) or len(views) < _DISSENT:
        raise InputError(
            f"{len(depths)} depth maps, {len(views)} views and {len(alphas)} opacities: give one of each for every "
            f"view, and at least {_DISSENT} views"
        )
    for depth, view in zip(depths, views, strict=True):
        if depth.shape != view.rgb.shape[:2]:
            raise InputError(f"the depth map of view {view.name!r} is {depth.shape}, its picture {view.rgb.shape[:2]}")
        if view.mask is None:
            raise InputError(f"view {view.name!r} has no mask: make masks first, they bound the object's shape")
    if voxel_m <= 0 or not np.all(bounds[1] > bounds[0]):
        raise InputError(f"the box {bounds.tolist()} or the voxel of {voxel_m} m has no size")
    if (count := float(np.prod((bounds[1] - bounds[0]) / voxel_m))) > _MOST_VOXELS:
        raise InputError(f"{count:.2g} voxels are too many: use a tighter box, or larger voxels")


def _grid(bounds: Float[np.ndarray, "2 3"], voxel_m: float) -> tuple[Float[np.ndarray, "3"], tuple[int, int, int]]:
    """Returns the centre of the first voxel and how many there are; the lowest ones stand on the table."""
    margin = 2.5 * voxel_m
    low = bounds[0] - margin
    low[2] = (max(np.floor(low[2] / voxel_m), 0.0) + 0.5) * voxel_m
    nx, ny, nz = (int(n) for n in np.ceil((bounds[1] + margin - low) / voxel_m) + 1)
    return low, (nx, ny, nz)


def _around(view: View) -> tuple[slice, slice]:
    """Returns the rows and columns of the mask and of some pixels around it; nothing else matters."""
    assert view.mask is not None
    if not view.mask.any():
        raise InputError(f"the mask of view {view.name!r} is empty: leave the view out, or mend its mask")
    may_be = _may_be(view)
    rows, columns = np.flatnonzero(may_be.any(axis=1)), np.flatnonzero(may_be.any(axis=0))
    low = (max(int(rows[0]) - _MARGIN_PX, 0), max(int(columns[0]) - _MARGIN_PX, 0))
    return slice(low[0], int(rows[-1]) + _MARGIN_PX), slice(low[1], int(columns[-1]) + _MARGIN_PX)


def _may_be(view: View) -> Bool[np.ndarray, "h w"]:
    """Returns where the object may be: where it is seen, and where something else may hide it."""
    assert view.mask is not None
    return view.mask if view.unknown is None else view.mask | view.unknown


def _trust(
    depth: Float[np.ndarray, "h w"], view: View, alpha: Float[np.ndarray, "h w"], box: tuple[slice, slice]
) -> tuple[Float[np.ndarray, "r c"], Float[np.ndarray, "r c"]]:
    """Returns the weight of each pixel in a box but for distance, and the cosine between its ray and the normal."""
    assert view.mask is not None
    depth, alpha = depth[box], alpha[box]
    known = np.isfinite(depth) & (depth > 0) & (alpha > _LEAST_ALPHA) & view.mask[box]
    # Normals of a noisy depth map: smooth it first, over known pixels only.
    blurred = ndimage.gaussian_filter(np.where(known, depth, 0.0), 2.0)
    share = ndimage.gaussian_filter(known.astype(np.float64), 2.0)
    smooth = blurred / np.maximum(share, 1e-6)
    v, u = np.mgrid[: depth.shape[0], : depth.shape[1]].astype(np.float64)
    uv = np.stack([u + box[1].start, v + box[0].start], axis=-1)
    points = view.camera.unproject(uv, smooth)
    normal = np.cross(np.gradient(points, axis=1), np.gradient(points, axis=0))
    lengths = np.linalg.norm(normal, axis=-1) * np.linalg.norm(points, axis=-1)
    cosine = np.abs(np.sum(normal * points, axis=-1)) / np.maximum(lengths, 1e-12)
    trust = np.where(known & (cosine > _LEAST_COSINE), alpha * cosine**2, 0.0)
    return trust.astype(np.float32), cosine.astype(np.float32)


def _outline(view: View, box: tuple[slice, slice]) -> Float[np.ndarray, "r c"]:
    """Returns how far each pixel in a box is inside of where the object may be [px]; negative outside."""
    mask = _may_be(view)[box]
    inside, outside = (np.asarray(ndimage.distance_transform_edt(m)) for m in (mask, ~mask))
    return np.where(mask, inside - 0.5, 0.5 - outside).astype(np.float32)


@numba.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _add_view(
    total, weight, free, worst, low, voxel_m, truncation, T_camera_world, intrinsics, corner, size, depth, trust,
    cosine, outline, nearest, thread, threads,
):  # fmt: skip
    """Adds one view to every voxel: weighted distances near the surface, the weight of views that see it free less of
    those that see it inside, and the least insides of its outlines [m].

    Pictures are cut out at `corner` of a frame of some `size` [px].
    """
    nx, ny, nz = total.shape
    h, w = depth.shape
    fx, fy, cx, cy = intrinsics
    R, t = T_camera_world[:3, :3], T_camera_world[:3, 3]
    for i in range(thread, nx, threads):
        x = low[0] + i * voxel_m
        for j in range(ny):
            y = low[1] + j * voxel_m
            for k in range(nz):
                z = low[2] + k * voxel_m
                pz = R[2, 0] * x + R[2, 1] * y + R[2, 2] * z + t[2]
                if pz <= 0.01:
                    continue
                u = fx * (R[0, 0] * x + R[0, 1] * y + R[0, 2] * z + t[0]) / pz + cx
                v = fy * (R[1, 0] * x + R[1, 1] * y + R[1, 2] * z + t[1]) / pz + cy
                if u < 0 or v < 0 or u >= size[0] - 1 or v >= size[1] - 1:
                    continue
                u, v = u - corner[0], v - corner[1]
                seen = u >= 0 and v >= 0 and u < w - 1 and v < h - 1
                inside = -truncation
                if seen:
                    iu, iv = int(u), int(v)
                    a, b = u - iu, v - iv
                    inside = (
                        (1 - b) * ((1 - a) * outline[iv, iu] + a * outline[iv, iu + 1])
                        + b * ((1 - a) * outline[iv + 1, iu] + a * outline[iv + 1, iu + 1])
                    ) * pz / fx  # fmt: skip
                for n in range(worst.shape[0]):
                    if inside < worst[n, i, j, k]:
                        worst[n, i, j, k], inside = inside, worst[n, i, j, k]
                if not seen:
                    continue
                ru, rv = int(u + 0.5), int(v + 0.5)
                sure = trust[rv, ru]
                if sure == 0.0:
                    continue
                d = (depth[rv, ru] - pz) * cosine[rv, ru]
                if d < -_BEHIND * truncation:
                    continue
                # Behind the surface a view knows less the deeper it goes: the other side may be near.
                share = sure * (nearest / pz) ** 2
                if d > truncation:
                    free[i, j, k] += share
                elif d < -truncation:
                    free[i, j, k] -= share
                else:
                    share *= min(1.0, (d + truncation) / truncation)
                    total[i, j, k] += share * d
                    weight[i, j, k] += share


def _evidence(told: _Told, trusted: float) -> tuple[Float[np.ndarray, "x y z"], Float[np.ndarray, "x y z"]]:
    """Returns what is known of each voxel's signed distance, negative inside [m], and its weight.

    Args:
        told: By views.
        trusted: Weight of being inside for what lies within all silhouettes.
    """
    truncation = told.truncation_m
    # What fewer than three pictures show is taken to be outside.
    hull = np.where(np.isinf(told.inside), truncation, np.clip(-told.inside, -truncation, truncation))
    # Free is what most views see to be: some look through gaps between splats.
    seen_through = np.where(told.free > told.weight, told.free - told.weight, 0.0)
    sure = _DATA * (told.weight + seen_through) + trusted
    distance = (_DATA * (told.total + truncation * seen_through) + trusted * hull) / sure
    carved = hull - told.slack_m
    distance = np.maximum(distance, carved).astype(np.float32)
    return distance, np.where(carved > 0, np.maximum(sure, _DATA), sure).astype(np.float32)


def _solve(distance: Float[np.ndarray, "x y z"], weight: Float[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
    """Minimises Σ w (f - d)² + Σ (f - f_neighbour)² by conjugate gradients, preconditioned by the diagonal."""
    diagonal = weight + 6.0
    field, moved = distance.copy(), np.empty_like(distance)
    on_all_cores(_apply, weight, field, moved)
    residual = weight * distance - moved
    z = residual / diagonal
    step, rho = z.copy(), float(np.vdot(residual, z))
    enough = rho * _TOLERANCE**2
    for _ in range(_ITERATIONS):
        if rho <= enough:
            break
        on_all_cores(_apply, weight, step, moved)
        length = np.float32(rho / float(np.vdot(step, moved)))
        field += length * step
        residual -= length * moved
        z = residual / diagonal
        rho, before = float(np.vdot(residual, z)), rho
        step = z + np.float32(rho / before) * step
    return field


@numba.njit(nogil=True, cache=True)
def _apply(weight, field, out, thread, threads):
    """Writes w f + Σ (f - f_neighbour); nothing flows through the border."""
    nx, ny, nz = field.shape
    for i in range(thread, nx, threads):
        for j in range(ny):
            for k in range(nz):
                f = field[i, j, k]
                value = weight[i, j, k] * f
                if i > 0:
                    value += f - field[i - 1, j, k]
                if i < nx - 1:
                    value += f - field[i + 1, j, k]
                if j > 0:
                    value += f - field[i, j - 1, k]
                if j < ny - 1:
                    value += f - field[i, j + 1, k]
                if k > 0:
                    value += f - field[i, j, k - 1]
                if k < nz - 1:
                    value += f - field[i, j, k + 1]
                out[i, j, k] = value


def _one_solid(field: Float[np.ndarray, "x y z"], truncation: float) -> Float[np.ndarray, "x y z"]:
    """Keeps the largest piece and fills what is hollow inside it."""
    field = np.pad(field, 1, constant_values=truncation)
    labels, count = cast(tuple[np.ndarray, int], ndimage.label(field < 0))
    if count == 0:
        raise InputError("no surface lies in the box: check the box, the masks and that depth is in metres")
    sizes = np.bincount(labels.ravel())
    solid = labels == 1 + int(np.argmax(sizes[1:]))
    # Tunnels of a voxel or two are noise: no view looked through them.
    solid = ndimage.binary_closing(np.pad(solid, _TUNNEL), iterations=_TUNNEL)[(slice(_TUNNEL, -_TUNNEL),) * 3]
    filled = np.asarray(ndimage.binary_fill_holes(solid), dtype=bool)
    # A voxel that changes sides is put just beyond the surface, so that the contour of its neighbours hardly moves.
    field = np.where(filled & (field >= 0), -0.5 * truncation, field)
    return np.where(~filled & (field < 0), 0.5 * truncation, field)


def _contour(told: _Told, field: Float[np.ndarray, "x y z"]) -> Mesh:
    """Returns the surface at distance 0, closed by the table."""
    from skimage.measure import marching_cubes

    below = 3  # layers under the table, to close the object with
    field = np.pad(field, ((0, 0), (0, 0), (below, 0)), mode="edge")
    low = told.low - np.array([0.0, 0.0, below * told.voxel_m])
    heights = low[2] + told.voxel_m * np.arange(field.shape[2])
    field = np.maximum(field, -heights[None, None, :].astype(np.float32))
    vertices, faces, _, _ = marching_cubes(_one_solid(field, told.truncation_m), 0.0, spacing=(told.voxel_m,) * 3)
    return Mesh(vertices.astype(np.float64) + low - told.voxel_m, faces.astype(np.int64))
