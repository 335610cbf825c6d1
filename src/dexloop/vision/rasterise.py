"""Draws Gaussian splats, and carries gradients back to them and to the camera: tiles of pixels on all cores.

Each Gaussian is projected to an ellipse (EWA: covariance J W Σ Wᵀ Jᵀ + 0.3 px² I), and pixels blend them front to
back: α = min(0.999, o exp(-d²/2)), nothing below 1/255, w = α T, T ← T - w, until T falls below 10⁻⁴. Rows of eight
pixels are computed at once. In the way back, with q = colour · g + depth g_z + g_α for what a Gaussian adds and Q for
what is behind it, dL/dα = T q - Q / (1 - α); Q is the picture's own sum minus what was passed, so one order serves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np
from jaxtyping import Bool, Float
from numba import njit

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.vision.cores import on_all_cores
from dexloop.vision.splats import SH_C0, Splats

NEAR_M = 0.01
"""What is nearer to the camera is not drawn [m]."""

_TILE, _ROWS, _STRIDE = 16, 4, 24
_PLANE = (_TILE + _ROWS) * _STRIDE
"""A tile is padded with pixels whose transmittance is zero: runs of eight pixels and four rows may reach beyond it."""
BLUR_PX2 = np.float32(0.3)
"""Added to the variance of each ellipse [px²], so that none falls between pixels."""
_CUT = np.float32(math.log(255.0))
_MOST = np.float32(0.999)
_LEAST = np.float32(1e-4)
_OBLIQUE = np.float32(2.0)
"""Beyond this slope from the optical axis an ellipse keeps its shape: the projection's derivative grows wild there."""
_EXP = tuple(
    np.float32(c)
    for c in np.polynomial.Chebyshev.interpolate(lambda y: np.exp(-y), 5, [0, math.log(255.0) / 8])
    .convert(kind=np.polynomial.Polynomial)
    .coef
)
"""exp(-y) for y below log(255) / 8; its eighth power is good to 1e-6."""
_E0, _E1, _E2, _E3, _E4, _E5 = _EXP
_HALF, _ONE, _TWO, _ZERO = np.float32(0.5), np.float32(1.0), np.float32(2.0), np.float32(0.0)
_EIGHTH = np.float32(0.125)
_C0, _C1 = np.float32(SH_C0), np.float32(0.4886025119029199)
_C2 = np.float32(1.0925484305920792)
_C20, _C22 = np.float32(0.31539156525252005), np.float32(0.5462742152960396)
_C33, _C32, _C31 = np.float32(0.5900435899266435), np.float32(2.890611442640554), np.float32(0.4570457994644658)
_C30, _C34 = np.float32(0.3731763325901154), np.float32(1.445305721320277)

# Columns of a projected Gaussian.
_U, _V, _A, _B, _C, _L, _RED, _GREEN, _BLUE, _Z, _RX, _RY, _WIDTH = range(13)
# Columns of the sums over pixels that come back for it: by colour, depth, and moments of dL/dα α over the ellipse.
_G_RGB, _G_Z, _M0, _MX, _MY, _MXX, _MXY, _MYY, _SUMS = 0, 3, 4, 5, 6, 7, 8, 9, 10


@dataclass(frozen=True, eq=False)
class Gradients:
    """Derivatives of a loss by all that a picture was drawn from."""

    means: Float[np.ndarray, "n 3"]
    log_scales: Float[np.ndarray, "n 3"]
    quats: Float[np.ndarray, "n 4"]
    logits: Float[np.ndarray, " n"]
    sh: Float[np.ndarray, "n k 3"]
    screen: Float[np.ndarray, "n 2"]
    """By where each Gaussian is in the picture [1/px]."""
    pose: Float[np.ndarray, "6"]
    """By xi = [v, w] in exp(xi) @ T_world_camera. An object whose splats are drawn in its own frame (T_object_camera)
    and which moves to T_world_object @ exp(xi) has the negative."""


@dataclass(frozen=True, eq=False)
class Drawing:
    """A picture of splats."""

    rgb: Float[np.ndarray, "h w 3"]
    """0 to 1, and beyond where splats are brighter; over the background."""
    alpha: Float[np.ndarray, "h w"]
    """Share of light that comes from splats."""
    depth: Float[np.ndarray, "h w"]
    """Mean over the splats seen, along the camera's z axis [m]; 0 where there are none."""
    median_depth: Float[np.ndarray, "h w"]
    """Where half of the light is stopped [m]: sharper than the mean at outlines; 0 where less than half is."""
    radii: Float[np.ndarray, " n"]
    """Reach of each Gaussian in the picture [px]; 0 if it is not drawn."""
    pull: Callable[[np.ndarray, np.ndarray, np.ndarray], Gradients]

    def backward(
        self,
        d_rgb: Float[np.ndarray, "h w 3"] | None = None,
        *,
        d_depth: Float[np.ndarray, "h w"] | None = None,
        d_alpha: Float[np.ndarray, "h w"] | None = None,
    ) -> Gradients:
        """Returns the gradients of a loss from its derivatives by the pictures; those left out are zero."""
        shape = self.alpha.shape
        d_rgb = np.zeros((*shape, 3), np.float32) if d_rgb is None else d_rgb.astype(np.float32)
        d_alpha = np.zeros(shape, np.float32) if d_alpha is None else d_alpha.astype(np.float32)
        d_depth = np.zeros(shape, np.float32) if d_depth is None else d_depth.astype(np.float32)
        for name, given, wanted in (
            ("d_rgb", d_rgb, (*shape, 3)),
            ("d_depth", d_depth, shape),
            ("d_alpha", d_alpha, shape),
        ):
            if given.shape != wanted:
                raise InputError(f"{name} has shape {given.shape}: it must be that of the drawing, {wanted}")
        return self.pull(np.ascontiguousarray(d_rgb), np.ascontiguousarray(d_depth), np.ascontiguousarray(d_alpha))


def render(
    splats: Splats,
    camera: Camera,
    *,
    background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    where: Bool[np.ndarray, "h w"] | None = None,
) -> Drawing:
    """Draws splats on all cores.

    Args:
        splats: In the frame that the camera stands in.
        camera: Located; for a part of the picture, one that sees only that part (`appearance.crop`).
        background: RGB behind the splats, 0 to 1.
        where: What is needed; tiles of 16 pixels without any of it stay empty.

    Raises:
        InputError: The camera has no place, or `where` is not of its size.
    """
    if camera.T_world_camera is None:
        raise InputError(f"camera {camera.name!r} has no place: give it T_world_camera")
    w, h = camera.width, camera.height
    if where is not None and where.shape != (h, w):
        raise InputError(f"where is {where.shape[1]} x {where.shape[0]} px but the camera {w} x {h} px: cut them alike")
    n = len(splats)
    T = se3.inverse(camera.T_world_camera)
    pose = np.concatenate([T[:3, :3].ravel(), T[:3, 3], camera.T_world_camera[:3, 3]]).astype(np.float32)
    lens = np.array([camera.fx, camera.fy, camera.cx, camera.cy], np.float32)
    flat, box = np.empty((n, _WIDTH), np.float32), np.empty((n, 4), np.int32)
    arrays = (splats.means, splats.log_scales, splats.quats, splats.logits, splats.sh)
    on_all_cores(_project, *arrays, pose, lens, w, h, flat, box)
    seen = np.flatnonzero(box[:, 0] < box[:, 1])
    order = seen[np.argsort(flat[seen, _Z])]
    columns, rows = -(-w // _TILE), -(-h // _TILE)
    wanted = np.ones((rows, columns), np.bool_) if where is None else _touched(where, rows, columns)
    start, ids, first, slots = _bin(order, box, wanted)
    tiles = np.argsort(-np.diff(start), kind="stable")
    behind = np.asarray(background, np.float32)
    rgb, rest = np.empty((h, w, 3), np.float32), np.empty((h, w), np.float32)
    sums, median = np.empty((h, w), np.float32), np.empty((h, w), np.float32)
    on_all_cores(_draw, flat, ids, start, tiles, columns, behind, rgb, rest, sums, median)
    alpha = 1.0 - rest
    some = np.maximum(alpha, 1e-6)
    depth = sums / some

    def pull(d_rgb: np.ndarray, d_depth: np.ndarray, d_alpha: np.ndarray) -> Gradients:
        by_sum = np.where(alpha > 1e-6, d_depth / some, np.float32(0))
        by_alpha = d_alpha - by_sum * depth
        total = np.einsum("ijk,ijk->ij", rgb, d_rgb) + sums * by_sum + alpha * by_alpha
        entries = np.empty((len(ids), _SUMS), np.float32)
        on_all_cores(_pull_tiles, flat, ids, start, tiles, columns, d_rgb, by_sum, by_alpha, total, entries)
        means, log_scales, quats, logits, sh = (np.zeros_like(a) for a in arrays)
        by = Gradients(means, log_scales, quats, logits, sh, np.zeros((n, 2), np.float32), np.zeros(6))
        parts = np.zeros((numba.get_num_threads(), 6))
        given, wanted = (flat, first, slots, entries), (means, log_scales, quats, logits, sh, by.screen)
        on_all_cores(_pull_splats, arrays, pose, lens, given, wanted, parts)
        by.pose[:] = parts.sum(axis=0)
        return by

    radii = np.where(box[:, 0] < box[:, 1], np.maximum(flat[:, _RX], flat[:, _RY]), np.float32(0))
    return Drawing(rgb, alpha, depth, median, radii, pull)


def _touched(where: Bool[np.ndarray, "h w"], rows: int, columns: int) -> Bool[np.ndarray, "r c"]:
    """Which tiles hold any of the pixels."""
    padded = np.zeros((rows * _TILE, columns * _TILE), np.bool_)
    padded[: where.shape[0], : where.shape[1]] = where
    return np.asarray(padded.reshape(rows, _TILE, columns, _TILE).any(axis=(1, 3)))


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _harmonics(x, y, z, k, b):
    """Writes the first k spherical harmonics of a unit vector."""
    b[0] = _C0
    if k > 1:
        b[1], b[2], b[3] = -_C1 * y, _C1 * z, -_C1 * x
    if k > 4:
        b[4], b[5], b[7] = _C2 * x * y, -_C2 * y * z, -_C2 * x * z
        b[6] = _C20 * (_TWO * z * z - x * x - y * y)
        b[8] = _C22 * (x * x - y * y)
    if k > 9:
        xx, yy, zz, four, three = x * x, y * y, z * z, np.float32(4), np.float32(3)
        b[9] = -_C33 * y * (three * xx - yy)
        b[10] = _C32 * x * y * z
        b[11] = -_C31 * y * (four * zz - xx - yy)
        b[12] = _C30 * z * (_TWO * zz - three * xx - three * yy)
        b[13] = -_C31 * x * (four * zz - xx - yy)
        b[14] = _C34 * z * (xx - yy)
        b[15] = -_C33 * x * (xx - three * yy)


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _harmonics_slope(x, y, z, k, d):
    """Writes the derivatives of the spherical harmonics by x, y, z, as if these were free."""
    d[:k] = _ZERO
    if k > 1:
        d[1, 1], d[2, 2], d[3, 0] = -_C1, _C1, -_C1
    if k > 4:
        d[4, 0], d[4, 1] = _C2 * y, _C2 * x
        d[5, 1], d[5, 2] = -_C2 * z, -_C2 * y
        d[6, 0], d[6, 1], d[6, 2] = -_TWO * _C20 * x, -_TWO * _C20 * y, np.float32(4) * _C20 * z
        d[7, 0], d[7, 2] = -_C2 * z, -_C2 * x
        d[8, 0], d[8, 1] = _TWO * _C22 * x, -_TWO * _C22 * y
    if k > 9:
        xx, yy, zz, xy, xz, yz = x * x, y * y, z * z, x * y, x * z, y * z
        three, four, six, eight = np.float32(3), np.float32(4), np.float32(6), np.float32(8)
        d[9, 0], d[9, 1] = -six * _C33 * xy, -three * _C33 * (xx - yy)
        d[10, 0], d[10, 1], d[10, 2] = _C32 * yz, _C32 * xz, _C32 * xy
        d[11, 0], d[11, 1], d[11, 2] = _TWO * _C31 * xy, -_C31 * (four * zz - xx - three * yy), -eight * _C31 * yz
        d[12, 0], d[12, 1], d[12, 2] = -six * _C30 * xz, -six * _C30 * yz, _C30 * (six * zz - three * xx - three * yy)
        d[13, 0], d[13, 1], d[13, 2] = -_C31 * (four * zz - three * xx - yy), _TWO * _C31 * xy, -eight * _C31 * xz
        d[14, 0], d[14, 1], d[14, 2] = _TWO * _C34 * xz, -_TWO * _C34 * yz, _C34 * (xx - yy)
        d[15, 0], d[15, 1] = -three * _C33 * (xx - yy), six * _C33 * xy


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _axes(quats, log_scales, i, R, V):
    """Writes the rotation of a Gaussian, and its axes times their deviations; returns the quaternion's length."""
    w, x, y, z = quats[i, 0], quats[i, 1], quats[i, 2], quats[i, 3]
    length = math.sqrt(w * w + x * x + y * y + z * z)
    w, x, y, z = w / length, x / length, y / length, z / length
    R[0, 0], R[0, 1], R[0, 2] = _ONE - _TWO * (y * y + z * z), _TWO * (x * y - w * z), _TWO * (x * z + w * y)
    R[1, 0], R[1, 1], R[1, 2] = _TWO * (x * y + w * z), _ONE - _TWO * (x * x + z * z), _TWO * (y * z - w * x)
    R[2, 0], R[2, 1], R[2, 2] = _TWO * (x * z - w * y), _TWO * (y * z + w * x), _ONE - _TWO * (x * x + y * y)
    for k in range(3):
        s = math.exp(log_scales[i, k])
        for j in range(3):
            V[j, k] = R[j, k] * s
    return length


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _lens_matrix(p, lens, pose, J, M):
    """Writes the projection's derivative J at camera coordinates p, and M = J W; returns the slopes it was taken at."""
    sx = min(max(p[0] / p[2], -_OBLIQUE), _OBLIQUE)
    sy = min(max(p[1] / p[2], -_OBLIQUE), _OBLIQUE)
    J[0, 0], J[0, 1], J[0, 2] = lens[0] / p[2], _ZERO, -lens[0] * sx / p[2]
    J[1, 0], J[1, 1], J[1, 2] = _ZERO, lens[1] / p[2], -lens[1] * sy / p[2]
    for r in range(2):
        for c in range(3):
            M[r, c] = J[r, 0] * pose[c] + J[r, 1] * pose[3 + c] + J[r, 2] * pose[6 + c]
    return sx, sy


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _project(means, log_scales, quats, logits, sh, pose, lens, w, h, flat, box, thread, threads):
    """Writes each Gaussian's ellipse, colour and depth, and the tiles it reaches (left, right, top, bottom)."""
    n, k = sh.shape[0], sh.shape[1]
    columns, rows = (w + _TILE - 1) // _TILE, (h + _TILE - 1) // _TILE
    R, V, J, M = (
        np.empty((3, 3), np.float32),
        np.empty((3, 3), np.float32),
        np.empty((2, 3), np.float32),
        np.empty((2, 3), np.float32),
    )
    p, basis = np.empty(3, np.float32), np.empty(16, np.float32)
    for i in range(thread * n // threads, (thread + 1) * n // threads):
        box[i, :] = 0
        for r in range(3):
            p[r] = (
                pose[3 * r] * means[i, 0] + pose[3 * r + 1] * means[i, 1] + pose[3 * r + 2] * means[i, 2] + pose[9 + r]
            )
        least = np.float32(math.log1p(math.exp(-logits[i])))  # -log(opacity)
        if p[2] < NEAR_M or least >= _CUT:
            continue
        _axes(quats, log_scales, i, R, V)
        _lens_matrix(p, lens, pose, J, M)
        a, b, c = BLUR_PX2, _ZERO, BLUR_PX2
        for j in range(3):
            n0 = M[0, 0] * V[0, j] + M[0, 1] * V[1, j] + M[0, 2] * V[2, j]
            n1 = M[1, 0] * V[0, j] + M[1, 1] * V[1, j] + M[1, 2] * V[2, j]
            a, b, c = a + n0 * n0, b + n0 * n1, c + n1 * n1
        det = a * c - b * b
        if det <= _ZERO:
            continue
        u, v = lens[0] * p[0] / p[2] + lens[2], lens[1] * p[1] / p[2] + lens[3]
        reach = _TWO * (_CUT - least)
        rx, ry = math.sqrt(reach * a), math.sqrt(reach * c)
        if u + rx < _ZERO or v + ry < _ZERO or u - rx > w - 1 or v - ry > h - 1:
            continue
        box[i, 0] = max(0, math.floor(u - rx) // _TILE)
        box[i, 1] = min(columns, math.floor(u + rx) // _TILE + 1)
        box[i, 2] = max(0, math.floor(v - ry) // _TILE)
        box[i, 3] = min(rows, math.floor(v + ry) // _TILE + 1)
        flat[i, _U], flat[i, _V], flat[i, _Z], flat[i, _L] = u, v, p[2], least
        flat[i, _A], flat[i, _B], flat[i, _C] = _HALF * c / det, -b / det, _HALF * a / det
        flat[i, _RX], flat[i, _RY] = rx, ry
        dx, dy, dz = means[i, 0] - pose[12], means[i, 1] - pose[13], means[i, 2] - pose[14]
        far = _ONE / math.sqrt(dx * dx + dy * dy + dz * dz)
        _harmonics(dx * far, dy * far, dz * far, k, basis)
        for channel in range(3):
            colour = _HALF
            for j in range(k):
                colour += basis[j] * sh[i, j, channel]
            flat[i, _RED + channel] = max(colour, _ZERO)


@njit(nogil=True, cache=True)
def _bin(order, box, wanted):
    """Lists, for each tile, the Gaussians that reach it, near to far.

    Returns:
        Where each tile's list starts; the lists; where each Gaussian's places start; its places in the lists.
    """
    rows, columns = wanted.shape
    start = np.zeros(rows * columns + 1, np.int64)
    first = np.zeros(len(box) + 1, np.int64)
    for i in order:
        for y in range(box[i, 2], box[i, 3]):
            for x in range(box[i, 0], box[i, 1]):
                if wanted[y, x]:
                    start[y * columns + x + 1] += 1
                    first[i + 1] += 1
    for t in range(rows * columns):
        start[t + 1] += start[t]
    for i in range(len(box)):
        first[i + 1] += first[i]
    place, taken = start.copy(), first.copy()
    ids, slots = np.empty(start[-1], np.int32), np.empty(start[-1], np.int64)
    for i in order:
        for y in range(box[i, 2], box[i, 3]):
            for x in range(box[i, 0], box[i, 1]):
                if wanted[y, x]:
                    t = y * columns + x
                    ids[place[t]] = i
                    slots[taken[i]] = place[t]
                    place[t] += 1
                    taken[i] += 1
    return start, ids, first, slots


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _light_left(S):
    """Whether any pixel of the tile still lets light through."""
    most = _ZERO
    for i in range(_PLANE):
        most = max(most, S[i])
    return most > _LEAST


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _draw(flat, ids, start, tiles, columns, background, rgb, rest, sums, median, thread, threads):
    h, w = rest.shape
    # Planes: transmittance, red, green, blue, depth, median depth. In one array, so that no two can overlap.
    S = np.empty(6 * _PLANE, np.float32)
    for turn in range(thread, len(tiles), threads):
        tile = tiles[turn]
        left, top = (tile % columns) * _TILE, (tile // columns) * _TILE
        wide, high = min(_TILE, w - left), min(_TILE, h - top)
        S[:] = _ZERO
        for y in range(high):
            S[y * _STRIDE : y * _STRIDE + wide] = _ONE
        for e in range(start[tile], start[tile + 1]):
            if (e - start[tile]) % 32 == 31 and not _light_left(S):
                break
            i = ids[e]
            u, v = flat[i, _U] - np.float32(left), flat[i, _V] - np.float32(top)
            a, b, c, least = flat[i, _A], flat[i, _B], flat[i, _C], flat[i, _L]
            red, green, blue, z = flat[i, _RED], flat[i, _GREEN], flat[i, _BLUE], flat[i, _Z]
            x0, x1 = max(0, math.ceil(u - flat[i, _RX])), min(wide - 1, math.floor(u + flat[i, _RX]))
            y0, y1 = max(0, math.ceil(v - flat[i, _RY])), min(high - 1, math.floor(v + flat[i, _RY]))
            for y in range(y0, y1 + 1):
                dy = np.float32(y) - v
                row, slope = c * dy * dy + least, b * dy
                for x in range(x0, x1 + 1, 8):
                    at, far = y * _STRIDE + x, np.float32(x) - u
                    for k in range(8):
                        j = numba.uintp(at + k)
                        dx = far + np.float32(k)
                        t = row + (slope + a * dx) * dx
                        s = _EIGHTH * min(t, _CUT)
                        s = _E0 + s * (_E1 + s * (_E2 + s * (_E3 + s * (_E4 + s * _E5))))
                        s = s * s
                        s = s * s
                        T = S[j]
                        weight = min(s * s, _MOST) * T
                        weight = weight if (t < _CUT) & (T > _LEAST) else _ZERO
                        after = T - weight
                        S[j] = after
                        S[j + numba.uintp(_PLANE)] += weight * red
                        S[j + numba.uintp(2 * _PLANE)] += weight * green
                        S[j + numba.uintp(3 * _PLANE)] += weight * blue
                        S[j + numba.uintp(4 * _PLANE)] += weight * z
                        middle = S[j + numba.uintp(5 * _PLANE)]
                        S[j + numba.uintp(5 * _PLANE)] = z if (T > _HALF) & (after <= _HALF) else middle
        for y in range(high):
            for x in range(wide):
                j = y * _STRIDE + x
                rest[top + y, left + x] = S[j]
                for channel in range(3):
                    rgb[top + y, left + x, channel] = S[j + (1 + channel) * _PLANE] + S[j] * background[channel]
                sums[top + y, left + x] = S[j + 4 * _PLANE]
                median[top + y, left + x] = S[j + 5 * _PLANE]


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _pull_tiles(flat, ids, start, tiles, columns, d_rgb, d_sum, d_alpha, total, entries, thread, threads):
    """Writes what each Gaussian of each tile gets back from the tile's pixels."""
    h, w = d_sum.shape
    # Planes: transmittance, what is behind, gradients by red, green, blue, depth, alpha.
    S = np.empty(7 * _PLANE, np.float32)
    for turn in range(thread, len(tiles), threads):
        tile = tiles[turn]
        left, top = (tile % columns) * _TILE, (tile // columns) * _TILE
        wide, high = min(_TILE, w - left), min(_TILE, h - top)
        S[:] = _ZERO
        for y in range(high):
            for x in range(wide):
                j = y * _STRIDE + x
                S[j] = _ONE
                S[j + _PLANE] = total[top + y, left + x]
                for channel in range(3):
                    S[j + (2 + channel) * _PLANE] = d_rgb[top + y, left + x, channel]
                S[j + 5 * _PLANE] = d_sum[top + y, left + x]
                S[j + 6 * _PLANE] = d_alpha[top + y, left + x]
        dark = False
        for e in range(start[tile], start[tile + 1]):
            if (e - start[tile]) % 32 == 31 and not dark:
                dark = not _light_left(S)
            if dark:
                entries[e, :] = _ZERO
                continue
            i = ids[e]
            u, v = flat[i, _U] - np.float32(left), flat[i, _V] - np.float32(top)
            a, b, c, least = flat[i, _A], flat[i, _B], flat[i, _C], flat[i, _L]
            red, green, blue, z = flat[i, _RED], flat[i, _GREEN], flat[i, _BLUE], flat[i, _Z]
            x0, x1 = max(0, math.ceil(u - flat[i, _RX])), min(wide - 1, math.floor(u + flat[i, _RX]))
            y0, y1 = max(0, math.ceil(v - flat[i, _RY])), min(high - 1, math.floor(v + flat[i, _RY]))
            r0, r1, r2, r3, r4 = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
            r5, r6, r7, r8, r9 = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
            # Several rows at once: adding up the eight lanes costs as much as a row does.
            for y in range(y0, y1 + 1, _ROWS):
                for x in range(x0, x1 + 1, 8):
                    at, far = y * _STRIDE + x, np.float32(x) - u
                    for k in range(8):
                        dx = far + np.float32(k)
                        f0, fy, fyy = _ZERO, _ZERO, _ZERO
                        for r in range(_ROWS):
                            j = numba.uintp(at + r * _STRIDE + k)
                            dy = np.float32(y + r) - v
                            t = least + c * dy * dy + (b * dy + a * dx) * dx
                            s = _EIGHTH * min(t, _CUT)
                            s = _E0 + s * (_E1 + s * (_E2 + s * (_E3 + s * (_E4 + s * _E5))))
                            s = s * s
                            s = s * s
                            alpha = s * s
                            T = S[j]
                            free = alpha < _MOST
                            alpha = min(alpha, _MOST) if (t < _CUT) & (T > _LEAST) else _ZERO
                            weight = alpha * T
                            g0 = S[j + numba.uintp(2 * _PLANE)]
                            g1 = S[j + numba.uintp(3 * _PLANE)]
                            g2 = S[j + numba.uintp(4 * _PLANE)]
                            gz = S[j + numba.uintp(5 * _PLANE)]
                            q = red * g0 + green * g1 + blue * g2 + z * gz + S[j + numba.uintp(6 * _PLANE)]
                            behind = S[j + numba.uintp(_PLANE)] - weight * q
                            S[j] = T - weight
                            S[j + numba.uintp(_PLANE)] = behind
                            f = alpha * (T * q - behind / (_ONE - alpha))
                            f = f if free else _ZERO
                            r0 += weight * g0
                            r1 += weight * g1
                            r2 += weight * g2
                            r3 += weight * gz
                            f0 += f
                            fy += f * dy
                            fyy += f * dy * dy
                        r4 += f0
                        r5 += f0 * dx
                        r6 += fy
                        r7 += f0 * dx * dx
                        r8 += fy * dx
                        r9 += fyy
            entries[e, 0], entries[e, 1], entries[e, 2], entries[e, 3], entries[e, 4] = r0, r1, r2, r3, r4
            entries[e, 5], entries[e, 6], entries[e, 7], entries[e, 8], entries[e, 9] = r5, r6, r7, r8, r9


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _pull_splats(splats, pose, lens, given, wanted, parts, thread, threads):
    """Carries gradients from ellipses to Gaussians and, summed by thread, to the camera."""
    means, log_scales, quats, logits, sh = splats
    flat, first, slots, entries = given
    d_means, d_log_scales, d_quats, d_logits, d_sh, screen = wanted
    n, coefficients = sh.shape[0], sh.shape[1]
    R, V, dV = np.empty((3, 3), np.float32), np.empty((3, 3), np.float32), np.empty((3, 3), np.float32)
    J, M, N, dM = (
        np.empty((2, 3), np.float32),
        np.empty((2, 3), np.float32),
        np.empty((2, 3), np.float32),
        np.empty((2, 3), np.float32),
    )
    dN, dJ, g = np.empty((2, 3), np.float32), np.empty((2, 3), np.float32), np.empty(_SUMS, np.float32)
    p, dp, dm, dd = (
        np.empty(3, np.float32),
        np.empty(3, np.float32),
        np.empty(3, np.float32),
        np.empty(3, np.float32),
    )
    basis, by_direction = np.empty(16, np.float32), np.empty((16, 3), np.float32)
    Y = np.empty((3, 3), np.float32)
    for i in range(thread * n // threads, (thread + 1) * n // threads):
        if first[i] == first[i + 1]:
            continue
        g[:] = _ZERO
        for s in range(first[i], first[i + 1]):
            for j in range(_SUMS):
                g[j] += entries[slots[s], j]
        # Where it is in the picture, and its opacity.
        a, b, c = _TWO * flat[i, _A], flat[i, _B], _TWO * flat[i, _C]
        gu, gv = a * g[_MX] + b * g[_MY], b * g[_MX] + c * g[_MY]
        screen[i, 0], screen[i, 1] = gu, gv
        d_logits[i] = g[_M0] / (_ONE + math.exp(logits[i]))
        # Its covariance there: dL/dΣ = -K (dL/dK) K with K = Σ⁻¹.
        k0, k1, k2 = -_HALF * g[_MXX], -_HALF * g[_MXY], -_HALF * g[_MYY]
        e00, e01, e10, e11 = k0 * a + k1 * b, k0 * b + k1 * c, k1 * a + k2 * b, k1 * b + k2 * c
        c00, c01, c11 = -(a * e00 + b * e10), -(a * e01 + b * e11), -(b * e01 + c * e11)
        for r in range(3):
            p[r] = (
                pose[3 * r] * means[i, 0] + pose[3 * r + 1] * means[i, 1] + pose[3 * r + 2] * means[i, 2] + pose[9 + r]
            )
        length = _axes(quats, log_scales, i, R, V)
        sx, sy = _lens_matrix(p, lens, pose, J, M)
        for j in range(3):
            N[0, j] = M[0, 0] * V[0, j] + M[0, 1] * V[1, j] + M[0, 2] * V[2, j]
            N[1, j] = M[1, 0] * V[0, j] + M[1, 1] * V[1, j] + M[1, 2] * V[2, j]
            dN[0, j] = _TWO * (c00 * N[0, j] + c01 * N[1, j])
            dN[1, j] = _TWO * (c01 * N[0, j] + c11 * N[1, j])
        for r in range(2):
            for j in range(3):
                dM[r, j] = dN[r, 0] * V[j, 0] + dN[r, 1] * V[j, 1] + dN[r, 2] * V[j, 2]
        for r in range(3):
            for j in range(3):
                dV[r, j] = M[0, r] * dN[0, j] + M[1, r] * dN[1, j]
        for j in range(3):
            d_log_scales[i, j] = dV[0, j] * V[0, j] + dV[1, j] * V[1, j] + dV[2, j] * V[2, j]
            scale = math.exp(log_scales[i, j])
            for r in range(3):
                dV[r, j] *= scale  # now by the rotation
        _quat_gradient(quats, i, length, dV, d_quats)
        # The lens: by camera coordinates.
        for r in range(2):
            for j in range(3):
                dJ[r, j] = dM[r, 0] * pose[3 * j] + dM[r, 1] * pose[3 * j + 1] + dM[r, 2] * pose[3 * j + 2]
        iz = _ONE / p[2]
        dp[0] = gu * lens[0] * iz
        dp[1] = gv * lens[1] * iz
        dp[2] = g[_G_Z] - (gu * lens[0] * p[0] + gv * lens[1] * p[1]) * iz * iz
        dp[2] -= (dJ[0, 0] * lens[0] + dJ[1, 1] * lens[1]) * iz * iz
        dp[2] += (dJ[0, 2] * lens[0] * sx + dJ[1, 2] * lens[1] * sy) * iz * iz
        if abs(sx) < _OBLIQUE:
            dp[0] -= dJ[0, 2] * lens[0] * iz * iz
            dp[2] += dJ[0, 2] * lens[0] * sx * iz * iz
        if abs(sy) < _OBLIQUE:
            dp[1] -= dJ[1, 2] * lens[1] * iz * iz
            dp[2] += dJ[1, 2] * lens[1] * sy * iz * iz
        for r in range(3):
            dm[r] = pose[r] * dp[0] + pose[3 + r] * dp[1] + pose[6 + r] * dp[2]
        # Colour: by coefficients, and by the direction it is seen from.
        dx, dy, dz = means[i, 0] - pose[12], means[i, 1] - pose[13], means[i, 2] - pose[14]
        far = _ONE / math.sqrt(dx * dx + dy * dy + dz * dz)
        dx, dy, dz = dx * far, dy * far, dz * far
        _harmonics(dx, dy, dz, coefficients, basis)
        _harmonics_slope(dx, dy, dz, coefficients, by_direction)
        dd[:] = _ZERO
        for channel in range(3):
            if flat[i, _RED + channel] <= _ZERO:
                continue
            for j in range(coefficients):
                d_sh[i, j, channel] = basis[j] * g[channel]
                for r in range(3):
                    dd[r] += by_direction[j, r] * sh[i, j, channel] * g[channel]
        along = dd[0] * dx + dd[1] * dy + dd[2] * dz
        dd[0], dd[1], dd[2] = (dd[0] - along * dx) * far, (dd[1] - along * dy) * far, (dd[2] - along * dz) * far
        # The camera moves by exp(xi): p falls by W (v + w x m), W turns to W (I - [w]), its place c by v + w x c.
        for r in range(3):
            for j in range(3):
                Y[r, j] = _ZERO
                for s in range(3):
                    Y[r, j] += pose[3 * s + r] * (J[0, s] * dM[0, j] + J[1, s] * dM[1, j])
        mx, my, mz = means[i, 0], means[i, 1], means[i, 2]
        parts[thread, 3] -= my * dm[2] - mz * dm[1] + pose[13] * dd[2] - pose[14] * dd[1] + Y[2, 1] - Y[1, 2]
        parts[thread, 4] -= mz * dm[0] - mx * dm[2] + pose[14] * dd[0] - pose[12] * dd[2] + Y[0, 2] - Y[2, 0]
        parts[thread, 5] -= mx * dm[1] - my * dm[0] + pose[12] * dd[1] - pose[13] * dd[0] + Y[1, 0] - Y[0, 1]
        for r in range(3):
            d_means[i, r] = dm[r] + dd[r]
            parts[thread, r] -= dm[r] + dd[r]


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _quat_gradient(quats, i, length, G, d_quats):
    """Writes the gradient by a quaternion of any length from that by its rotation matrix."""
    w, x, y, z = quats[i, 0] / length, quats[i, 1] / length, quats[i, 2] / length, quats[i, 3] / length
    dw = x * (G[2, 1] - G[1, 2]) + y * (G[0, 2] - G[2, 0]) + z * (G[1, 0] - G[0, 1])
    dx = y * (G[0, 1] + G[1, 0]) + z * (G[0, 2] + G[2, 0]) + w * (G[2, 1] - G[1, 2]) - _TWO * x * (G[1, 1] + G[2, 2])
    dy = x * (G[0, 1] + G[1, 0]) + z * (G[1, 2] + G[2, 1]) + w * (G[0, 2] - G[2, 0]) - _TWO * y * (G[0, 0] + G[2, 2])
    dz = x * (G[0, 2] + G[2, 0]) + y * (G[1, 2] + G[2, 1]) + w * (G[1, 0] - G[0, 1]) - _TWO * z * (G[0, 0] + G[1, 1])
    along = w * dw + x * dx + y * dy + z * dz
    d_quats[i, 0], d_quats[i, 1] = _TWO * (dw - along * w) / length, _TWO * (dx - along * x) / length
    d_quats[i, 2], d_quats[i, 3] = _TWO * (dy - along * y) / length, _TWO * (dz - along * z) / length
