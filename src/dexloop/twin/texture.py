"""A texture out of photos: the mesh is unwrapped, and each texel takes its colour from the views that see it best.

A view counts by how straight and how near it looks at a texel, weight (cos a)⁴ / distance², if nothing is in between
(a depth buffer of the mesh decides) and the texel is well inside the object's mask. Views differ in exposure: each has
a gain per channel, so that views agree on what both see. Of the best views the colours near their median are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.sim.shape import Mesh
from dexloop.vision.cores import on_all_cores
from dexloop.vision.views import View

_BEST = 4
"""Views that a texel's colour is taken from: more blur it where they disagree by a fraction of a pixel."""
_LEAST_COSINE = 0.2
_EDGE_PX = 3.0
"""Pixels nearer than this to the mask's outline may show the background."""
_BEHIND_M = 0.002
"""How far behind the depth buffer a texel is still taken for visible [m]."""
_PADDING_PX = 4
"""Between charts, and how far each is continued beyond its border: mip-mapping mixes in no foreign colour."""
_SAME = 25.0
"""Grey levels within which colours are taken to be of the same thing."""


@dataclass(frozen=True, eq=False)
class Baked:
    """A textured mesh."""

    mesh: Mesh
    """With texture coordinates; vertices on seams appear twice."""
    texture: UInt8[np.ndarray, "h w 3"]
    """RGB, row 0 at v = 1."""
    seen: float
    """Share of the surface that some view sees; the rest takes the colour of its surroundings."""
    gains: Float[np.ndarray, "n 3"]
    """Exposure of each view over the mean of all, per channel."""


def unwrap(mesh: Mesh, *, size_px: int = 1024) -> Mesh:
    """Cuts the surface into charts and lays them out flat in the unit square.

    Args:
        mesh: Any; its own texture coordinates are dropped.
        size_px: Of the texture it is for, which sets the gaps between charts.
    """
    import xatlas

    atlas = xatlas.Atlas()
    atlas.add_mesh(mesh.vertices.astype(np.float32), mesh.faces.astype(np.uint32))
    options = xatlas.PackOptions()
    options.resolution, options.padding, options.bilinear = size_px, _PADDING_PX, True
    charts = xatlas.ChartOptions()
    charts.max_cost = 8.0  # few large charts: the fewer seams, the better
    atlas.generate(charts, options)
    index, faces, uv = atlas[0]
    if atlas.atlas_count != 1:
        # It could not fit one picture at the size that it chose: let it choose the size, and scale.
        options.resolution = 0
        atlas.generate(charts, options)
        index, faces, uv = atlas[0]
    return Mesh(mesh.vertices[index.astype(np.int64)], faces.astype(np.int64), uv.astype(np.float64))


def bake(mesh: Mesh, views: Sequence[View], *, size_px: int = 1024) -> Baked:
    """Paints a mesh from photos.

    Args:
        mesh: In the world frame of the views; it is unwrapped if it has no texture coordinates.
        views: Photos, with masks where there are any.
        size_px: Width and height of the texture.

    Raises:
        InputError: No view sees the mesh.
    """
    if mesh.uv is None:
        mesh = unwrap(mesh, size_px=size_px)
    assert mesh.uv is not None
    face, weights = _rasterise_charts(mesh.uv[mesh.faces] * size_px, size_px)
    rows, columns = np.nonzero(face >= 0)
    owner = face[rows, columns]
    tri = mesh.vertices[mesh.faces]
    points = np.einsum("nk,nki->ni", weights[rows, columns].astype(np.float64), tri[owner])
    normal = np.cross(tri[:, 1] - tri[:, 0], tri[:, 2] - tri[:, 0])
    normals = _smooth_normals(mesh, normal, owner, weights[rows, columns])
    score = np.zeros((len(points), _BEST), np.float32)
    colour = np.zeros((len(points), _BEST, 3), np.float32)
    source = np.full((len(points), _BEST), -1, np.int32)
    for k, view in enumerate(views):
        c = view.camera
        T = se3.inverse(view.T_world_camera)
        intrinsics = np.array([c.fx, c.fy, c.cx, c.cy])
        buffer = depth_buffer(mesh, view)
        on_all_cores(
            _look,
            points, normals, T, view.T_world_camera[:3, 3].copy(), intrinsics, np.ascontiguousarray(view.rgb), buffer,
            _inside(view), k, score, colour, source,
        )  # fmt: skip
    seen = score[:, 0] > 0
    if not seen.any():
        raise InputError("no view sees the mesh: are cameras and mesh in one frame, and in metres?")
    gains = _gains(colour, source, len(views))
    colour /= np.where(source[..., None] >= 0, gains[source], 1.0)
    painted = _blend(colour, score)
    painted[~seen] = _from_nearest(points[seen], painted[seen], points[~seen])
    texture = np.zeros((size_px, size_px, 3), np.float32)
    texture[rows, columns] = painted
    texture = _bleed(texture, face >= 0)
    area = np.linalg.norm(normal, axis=1)[owner]
    share = float(np.average(seen, weights=area / np.bincount(owner, minlength=len(tri))[owner]))
    return Baked(mesh, np.clip(np.round(texture[::-1]), 0, 255).astype(np.uint8), share, gains)


def depth_buffer(mesh: Mesh, view: View) -> Float[np.ndarray, "h w"]:
    """Returns the depth of the mesh along the view's z axis at each pixel [m]; infinity where it is not."""
    c = view.camera
    p = se3.transform(se3.inverse(view.T_world_camera), mesh.vertices)
    if (p[:, 2] <= 0.01).any():
        raise InputError(f"view {view.name!r} has part of the object behind its camera: check its pose")
    uvz = np.concatenate([c.project(p), p[:, 2:]], axis=1)
    return _rasterise_depth(uvz[mesh.faces], c.height, c.width)


@numba.njit(cache=True)
def _rasterise_depth(tri, height, width):
    """Of all triangles the nearest depth at each pixel's centre; 1/z is linear in the picture."""
    buffer = np.full((height, width), np.inf)
    for f in range(len(tri)):
        x0, y0, x1, y1, x2, y2 = tri[f, 0, 0], tri[f, 0, 1], tri[f, 1, 0], tri[f, 1, 1], tri[f, 2, 0], tri[f, 2, 1]
        area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
        if area == 0.0:
            continue
        left, right = max(0, int(np.ceil(min(x0, x1, x2)))), min(width - 1, int(np.floor(max(x0, x1, x2))))
        top, bottom = max(0, int(np.ceil(min(y0, y1, y2)))), min(height - 1, int(np.floor(max(y0, y1, y2))))
        for v in range(top, bottom + 1):
            for u in range(left, right + 1):
                a = ((x1 - u) * (y2 - v) - (x2 - u) * (y1 - v)) / area
                b = ((x2 - u) * (y0 - v) - (x0 - u) * (y2 - v)) / area
                c = 1.0 - a - b
                if a >= 0.0 and b >= 0.0 and c >= 0.0:
                    z = 1.0 / (a / tri[f, 0, 2] + b / tri[f, 1, 2] + c / tri[f, 2, 2])
                    if z < buffer[v, u]:
                        buffer[v, u] = z
    return buffer


@numba.njit(cache=True)
def _rasterise_charts(tri, size):
    """Which face each texel belongs to, or -1, and where in it. Row 0 is v = 0, texel centres are at halves.

    Texels whose centre is just outside of a face belong to it if they belong to no other.
    """
    face = np.full((size, size), -1, np.int64)
    weights = np.zeros((size, size, 3), np.float32)
    for slack in (0.0, 1.0):
        for f in range(len(tri)):
            x0, y0, x1, y1, x2, y2 = tri[f, 0, 0], tri[f, 0, 1], tri[f, 1, 0], tri[f, 1, 1], tri[f, 2, 0], tri[f, 2, 1]
            area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
            if area == 0.0:
                continue
            left, right = max(0, int(min(x0, x1, x2) - slack)), min(size - 1, int(max(x0, x1, x2) + slack))
            low, high = max(0, int(min(y0, y1, y2) - slack)), min(size - 1, int(max(y0, y1, y2) + slack))
            for v in range(low, high + 1):
                for u in range(left, right + 1):
                    if face[v, u] >= 0:
                        continue
                    x, y = u + 0.5, v + 0.5
                    a = ((x1 - x) * (y2 - y) - (x2 - x) * (y1 - y)) / area
                    b = ((x2 - x) * (y0 - y) - (x0 - x) * (y2 - y)) / area
                    c = 1.0 - a - b
                    if slack > 0.0:
                        a, b, c = max(a, 0.0), max(b, 0.0), max(c, 0.0)
                        total = a + b + c
                        a, b, c = a / total, b / total, c / total
                        x, y = x - a * x0 - b * x1 - c * x2, y - a * y0 - b * y1 - c * y2
                        if x * x + y * y > slack * slack:
                            continue
                    if a >= 0.0 and b >= 0.0 and c >= 0.0:
                        face[v, u] = f
                        weights[v, u, 0], weights[v, u, 1], weights[v, u, 2] = a, b, c
    return face, weights


def _smooth_normals(
    mesh: Mesh, normal: Float[np.ndarray, "f 3"], owner: Int[np.ndarray, " n"], weights: Float[np.ndarray, "n 3"]
) -> Float[np.ndarray, "n 3"]:
    """Returns normals at texels, between those of the corners: no steps in what a view counts from face to face."""
    _, same = np.unique(np.round(mesh.vertices, 7), axis=0, return_inverse=True)  # seams have vertices twice
    corner = same.ravel()[mesh.faces]
    at = np.zeros((int(corner.max()) + 1, 3))
    for k in range(3):
        np.add.at(at, corner[:, k], normal)
    mixed = np.einsum("nk,nki->ni", weights.astype(np.float64), at[corner[owner]])
    return mixed / (np.linalg.norm(mixed, axis=1, keepdims=True) + 1e-30)


def _inside(view: View) -> Float[np.ndarray, "h w"]:
    """Returns how far each pixel is from the mask's outline and the picture's border, as a weight 0 to 1."""
    from scipy import ndimage

    mask = np.ones(view.rgb.shape[:2], bool) if view.mask is None else view.mask
    far = np.asarray(ndimage.distance_transform_edt(np.pad(mask, 1)))[1:-1, 1:-1]
    return np.clip(far / _EDGE_PX - 0.34, 0.0, 1.0).astype(np.float32)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _look(
    points, normals, T, eye, intrinsics, rgb, buffer, inside, number, score, colour, source, thread, threads
):  # fmt: skip
    """Puts the view's colour among each texel's best, if it sees it."""
    h, w = inside.shape
    fx, fy, cx, cy = intrinsics
    for i in range(len(points) * thread // threads, len(points) * (thread + 1) // threads):
        x, y, z = points[i]
        pz = T[2, 0] * x + T[2, 1] * y + T[2, 2] * z + T[2, 3]
        u = fx * (T[0, 0] * x + T[0, 1] * y + T[0, 2] * z + T[0, 3]) / pz + cx
        v = fy * (T[1, 0] * x + T[1, 1] * y + T[1, 2] * z + T[1, 3]) / pz + cy
        if pz <= 0 or u < 1 or v < 1 or u >= w - 2 or v >= h - 2:
            continue
        dx, dy, dz = eye[0] - x, eye[1] - y, eye[2] - z
        far = np.sqrt(dx * dx + dy * dy + dz * dz)
        cosine = (dx * normals[i, 0] + dy * normals[i, 1] + dz * normals[i, 2]) / far
        if cosine < _LEAST_COSINE:
            continue
        iu, iv = int(u), int(v)
        a, b = u - iu, v - iv
        nearest = min(buffer[iv, iu], buffer[iv, iu + 1], buffer[iv + 1, iu], buffer[iv + 1, iu + 1])
        if pz > nearest + _BEHIND_M / cosine:
            continue
        value = cosine**4 / (far * far) * inside[int(v + 0.5), int(u + 0.5)]
        place = score.shape[1]
        while place > 0 and value > score[i, place - 1]:
            place -= 1
        if value <= 0 or place == score.shape[1]:
            continue
        for n in range(score.shape[1] - 1, place, -1):
            score[i, n], source[i, n] = score[i, n - 1], source[i, n - 1]
            for c in range(3):
                colour[i, n, c] = colour[i, n - 1, c]
        score[i, place], source[i, place] = value, number
        for c in range(3):
            colour[i, place, c] = (
                (1 - b) * ((1 - a) * rgb[iv, iu, c] + a * rgb[iv, iu + 1, c])
                + b * ((1 - a) * rgb[iv + 1, iu, c] + a * rgb[iv + 1, iu + 1, c])
            )  # fmt: skip


def _gains(
    colour: Float[np.ndarray, "n k 3"], source: Int[np.ndarray, "n k"], count: int
) -> Float[np.ndarray, "count 3"]:
    """Solves log c_i - log c_j = g_i - g_j over texels that views i and j both see, with mean gain 1, per channel."""
    gains = np.ones((count, 3))
    some = np.random.default_rng(0).permutation(len(colour))[:40_000]
    for channel in range(3):
        A, b = np.eye(count) * 1e-3 * len(some), np.zeros(count)  # a gain that is not needed is 1
        for k in range(1, _BEST):
            i, j = source[some, 0], source[some, k]
            x, y = colour[some, 0, channel], colour[some, k, channel]
            # Dark and saturated colours say nothing about exposure; very different ones are not of the same point.
            use = (i >= 0) & (j >= 0) & (np.minimum(x, y) > 20) & (np.maximum(x, y) < 245)
            use &= np.abs(x - y) < 0.3 * (x + y)
            i, j, step = i[use], j[use], np.log(x[use] / y[use])
            np.add.at(A, (i, i), 1.0)
            np.add.at(A, (j, j), 1.0)
            np.add.at(A, (i, j), -1.0)
            np.add.at(A, (j, i), -1.0)
            np.add.at(b, i, step)
            np.add.at(b, j, -step)
        gains[:, channel] = np.exp(np.linalg.solve(A, b))
    return gains


def _blend(colour: Float[np.ndarray, "n k 3"], score: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n 3"]:
    """Averages each texel's colours; those far from their weighted median, such as reflections, count little."""
    order = np.argsort(colour.sum(axis=-1), axis=1)
    ordered = np.take_along_axis(score, order, axis=1)
    half = np.cumsum(ordered, axis=1) >= 0.5 * ordered.sum(axis=1, keepdims=True)
    pick = np.take_along_axis(order, np.argmax(half, axis=1)[:, None], axis=1)
    median = np.take_along_axis(colour, pick[..., None], axis=1)
    gap = np.abs(colour - median).mean(axis=-1)
    weight = score / (1.0 + (gap / _SAME) ** 4)
    return (weight[..., None] * colour).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-12)[:, None]


def _from_nearest(
    known: Float[np.ndarray, "k 3"], colour: Float[np.ndarray, "k 3"], points: Float[np.ndarray, "n 3"]
) -> Float[np.ndarray, "n 3"]:
    """Returns the mean colour of the surface points around, for what no view sees."""
    from scipy.spatial import KDTree

    if not len(points):
        return np.zeros((0, 3), np.float32)
    some = np.random.default_rng(0).permutation(len(known))[:50_000]
    distance, nearest = KDTree(known[some]).query(points, k=8)
    weight = 1.0 / (distance + 1e-4)
    return (weight[..., None] * colour[some][nearest]).sum(axis=1) / weight.sum(axis=1, keepdims=True)


def _bleed(texture: Float[np.ndarray, "h w 3"], painted: Bool[np.ndarray, "h w"]) -> Float[np.ndarray, "h w 3"]:
    """Continues charts beyond their borders."""
    from scipy import ndimage

    nearest = ndimage.distance_transform_edt(~painted, return_distances=False, return_indices=True)
    row, column = np.asarray(nearest)
    return texture[row, column]
