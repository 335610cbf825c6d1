"""One picture, one pose: draw the object, compare, correct (Gauss-Newton), with the light as a further unknown.

The residual of a pixel is r = I - P, with I the picture and P the drawing: albedo times light where the object is, the
background elsewhere, both blurred alike. A pose step xi = [v, w] moves the surface point of a pixel by F xi [px] and
turns its normal n, so that dP = -∇P·F xi + albedo w·(n x dS/dn): light does not move with the object, and so the shade
on an even cylinder does not tell how far it turned. Pixels just outside the outline move with the point nearest to
them, which is how the outline counts. Splats are differentiated by their rasteriser, so that at full size Jᵀ r of the
pose is exact; the above then only says how long a step is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Bool, Float, Int

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.vision.appearance import Appearance, View, box_corners
from dexloop.vision.background import Background, cut
from dexloop.vision.robust import block_of, block_sums, tukey, weighted_correlation
from dexloop.vision.shading import TERMS, extend, fill, harmonics, normals_world, turning

Region = tuple[int, int, int, int]
"""Left, top, width and height of a part of the picture [px]."""

_NOISE = 2.0
"""Of a pixel's grey level: sensor and compression."""
_EDGE_PX = 0.3
"""How far each edge in the twin's appearance is from where it should be [px]: adds noise where it is steep."""
_WARP_PX = 0.15
"""How far whole patches of the twin's appearance are from where they should be [px]: more pixels do not help."""
_GUESS = 25.0
"""Error of a background that was never seen, in grey levels."""
_FARTHEST = 4.0
"""Residuals beyond this many standard deviations are as bad as any."""
_PIECE_PX = 9
"""Size of the pieces in which something covers an object [px]."""
_BRIGHTEST = 250.0
"""Grey level at which a camera is taken to saturate."""
_BLUR_PX = 0.7
"""Standard deviation of the blur of frame and drawing: outlines become smooth enough to have a gradient."""
_REACH_PX = 2
"""How far outside the outline pixels still count."""
_TOLERANCE_PX, _MOST_STEPS = 0.02, 8
"""A step by less than this needs no other."""
_STAIRS_PX = 2.0
"""Blur at which an outline has a direction."""
_GREY = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True, eq=False)
class PoseBelief:
    """A pose, known to some degree: T_true = T @ exp(xi) with xi ~ N(0, covariance), in the object's axes."""

    T: Float[np.ndarray, "4 4"]
    covariance: Float[np.ndarray, "6 6"]


@dataclass(frozen=True, eq=False)
class LightBelief:
    """Irradiance coefficients (`shading.harmonics`), known to some degree."""

    mean: Float[np.ndarray, " 9"]
    information: Float[np.ndarray, "9 9"]


@dataclass(frozen=True, eq=False)
class Scene:
    """A frame, and all that is known about it but for the pose."""

    grey: Float[np.ndarray, "h w"]
    ignore: Bool[np.ndarray, "h w"] | None
    """Pixels to leave out, such as the robot's."""
    camera: Camera
    background: Background
    appearance: Appearance
    light: LightBelief
    scale: float
    """What residuals of this appearance are over what is expected of any, from earlier frames."""


@dataclass(frozen=True, eq=False)
class Fit:
    """What came of a frame."""

    pose: PoseBelief
    light: LightBelief
    """Information is what this frame alone says."""
    visible: float
    """Share of the object's pixels that look as predicted, 0 to 1."""
    correlation: float
    """Of frame and drawing over what is visible, -1 to 1."""
    scale: float
    """Of the residuals of what is visible, over what is expected of any appearance."""
    misfit: float
    """Mean squared residual of the object's pixels, in units in which something else altogether is 1."""
    mask: Bool[np.ndarray, "h w"]
    """The object at the pose found, in the region looked at."""
    region: Region


def align(
    scene: Scene,
    start: Float[np.ndarray, "4 4"],
    prior: PoseBelief,
    region: Region,
    shrinks: tuple[int, ...] = (4, 2, 1),
) -> Fit:
    """Finds the pose at which the drawing equals the frame.

    Args:
        scene: The frame and what is known about it.
        start: T_world_object to begin with.
        prior: What is known of the pose beforehand.
        region: The part of the frame to look at; width and height are multiples of the first of `shrinks`.
        shrinks: By how much pictures are reduced, coarse to fine: coarse ones pull from farther, the last one decides.
    """
    T, light = start, scene.light.mean.copy()
    information = np.zeros((6 + TERMS, 6 + TERMS))
    information[:6, :6] = np.linalg.inv(prior.covariance)
    information[6:, 6:] = scene.light.information
    layers, corners = _layers(scene, region), box_corners(scene.appearance.box)
    last: _Step | None = None
    for shrink in shrinks:
        level = _Level(layers, scene.camera.cropped(*region), shrink)
        last = None
        for _ in range(_MOST_STEPS):
            past = np.concatenate([se3.log(se3.inverse(T) @ prior.T), scene.light.mean - light])
            last = _step(scene, level, T, light, information, past, last)
            before, T, light = T, T @ se3.exp(last.x[:6]), light + last.x[6:]
            seen = [level.camera.project_world(se3.transform(X, corners)) for X in (before, T)]
            if np.median(np.linalg.norm(seen[1] - seen[0], axis=1)) < _TOLERANCE_PX:
                break
    assert last is not None
    return _judge(last, PoseBelief(T, _covariance(last, information)), light, region)


def _judge(last: _Step, pose: PoseBelief, light: Float[np.ndarray, " 9"], region: Region) -> Fit:
    s = last.system
    share, residual = last.share[s.inside], (s.residual / s.sd)[s.inside]
    seen = bool(share.any())
    return Fit(
        pose=pose,
        light=LightBelief(light, last.H[6:, 6:]),
        visible=float(np.mean(share > 0.25)) if seen else 0.0,
        correlation=weighted_correlation(s.image[s.inside], s.drawn[s.inside], share) if seen else 0.0,
        scale=last.scale,
        misfit=float(np.mean(np.minimum(np.abs(residual) / _FARTHEST, 1.0) ** 2)) if seen else 1.0,
        mask=last.mask,
        region=region,
    )


@dataclass(frozen=True, eq=False)
class _Step:
    """One step of Gauss-Newton."""

    x: Float[np.ndarray, " 15"]
    """Change of pose and light."""
    system: _System
    share: Float[np.ndarray, " m"]
    """How far each pixel counts, 0 to 1."""
    scale: float
    H: Float[np.ndarray, "15 15"]
    """Information of the pixels alone."""
    slope: Float[np.ndarray, " 15"]
    """Of minus the cost, prior included."""
    mask: Bool[np.ndarray, "h w"]


def _step(
    scene: Scene,
    level: _Level,
    T: np.ndarray,
    light: np.ndarray,
    information: np.ndarray,
    past: np.ndarray,
    before: _Step | None,
) -> _Step:
    view = scene.appearance.render(level.camera, T)
    s = _linearise(view, level, T, light)
    share, scale = _weigh(s, view.mask.shape, most=scene.scale if level.shrink == 1 else _FARTHEST)
    JW = s.J * (share / (s.sd * scale) ** 2)[:, None]
    H = (JW.T @ s.J).astype(np.float64)
    g = (JW.T @ s.residual).astype(np.float64)
    if s.pull is not None and level.shrink == 1:
        d_drawn = np.zeros(view.mask.shape, np.float32)
        d_drawn[s.at] = s.residual * share / (s.sd * scale) ** 2
        g[:6] = s.pull(d_drawn)
    slope, curvature = g + information @ past, H + information
    if s.pull is not None and before is not None:
        curvature = _corrected(curvature, before.x, before.slope - slope)
    return _Step(np.linalg.solve(curvature, slope), s, share, scale, H, slope, view.mask)


def _corrected(
    curvature: Float[np.ndarray, "p p"], x: Float[np.ndarray, " p"], change: Float[np.ndarray, " p"]
) -> Float[np.ndarray, "p p"]:
    """Returns a curvature that agrees with how the slope changed over the last step (BFGS).

    Where J is not exact but the slope is, steps would be too long or too short by a factor, for ever.
    """
    expected, found = curvature @ x, float(change @ x)
    if not 0.2 < found / max(float(x @ expected), 1e-12) < 10.0:
        return curvature
    return curvature + np.outer(change, change) / found - np.outer(expected, expected) / float(x @ expected)


class _Level:
    """A region of the frame and of the background, reduced and blurred."""

    def __init__(self, layers: list[Float[np.ndarray, "h w"]], camera: Camera, shrink: int):
        self.shrink, self.camera = shrink, _reduced(camera, shrink)
        size = (self.camera.width, self.camera.height)
        grey, self.background, known, ignore = (cv2.resize(x, size, interpolation=cv2.INTER_AREA) for x in layers)
        self.image, self.known = _blur(grey), _blur(known)
        self.ignore = _blur(ignore) > 0.05


def _layers(scene: Scene, region: Region) -> list[Float[np.ndarray, "h w"]]:
    """The region's frame, background, how far that is known, and what to leave out."""
    outside = cut(np.ones(scene.grey.shape, bool), *region) == 0
    ignore = outside if scene.ignore is None else outside | cut(scene.ignore, *region)
    return [cut(scene.grey, *region), *scene.background.region(*region), ignore.astype(np.float32)]


def _reduced(camera: Camera, shrink: int) -> Camera:
    """Returns the camera whose pixels are `shrink` times larger."""
    width, height = camera.width // shrink, camera.height // shrink
    return camera.cropped(0, 0, width * shrink, height * shrink).resized(width, height)


@dataclass(frozen=True, eq=False)
class _System:
    """Residuals of the chosen pixels and their derivatives."""

    residual: Float[np.ndarray, " m"]
    J: Float[np.ndarray, "m 15"]
    """Of the drawing, by pose and by light."""
    doubt: Float[np.ndarray, "m 3"]
    """How far J may be off by a turn."""
    gradient: Float[np.ndarray, "m 2"]
    """Of the drawing [1/px]."""
    sd: Float[np.ndarray, " m"]
    """What a residual is expected to be, in grey levels."""
    inside: Bool[np.ndarray, " m"]
    block: Int[np.ndarray, " m"]
    image: Float[np.ndarray, " m"]
    drawn: Float[np.ndarray, " m"]
    at: tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]]
    """Row and column of each."""
    pull: Callable[[Float[np.ndarray, "h w"]], Float[np.ndarray, "6"]] | None
    """From derivatives by the drawing to those by the pose, where the appearance knows them."""


def _linearise(view: View, level: _Level, T: np.ndarray, light: np.ndarray) -> _System:
    mask, camera = view.mask, level.camera
    normals, albedo = normals_world(view.depth, mask, camera), (view.picture @ _GREY)[..., None]
    basis = harmonics(normals)
    irradiance = fill(basis @ light.astype(np.float32), mask)
    basis *= albedo
    lit = irradiance * albedo[..., 0]
    bright = lit > _BRIGHTEST
    basis[bright | ~mask] = 0.0
    by_turn = np.where(bright[..., None], 0.0, turning(normals, light) * albedo)
    surface = np.minimum(lit, _BRIGHTEST)
    surface = np.where(view.alpha > 0, surface, fill(surface, mask))
    drawn = _blur(view.alpha * surface + (1.0 - view.alpha) * level.background)
    by_light = _blur(basis)
    moving, doubt = _moving(view, camera, T, surface, by_turn, level.background)
    by_pose, doubt = _blur(moving), _blur(doubt)
    slope = _slopes(drawn)
    near = cv2.dilate(mask.astype(np.uint8), np.ones((2 * _REACH_PX + 1,) * 2, np.uint8)) > 0
    rows, columns = np.nonzero(near & ~level.ignore)
    at = (rows, columns)
    gradient = np.stack([g[at] for g in slope], axis=-1)

    def pull(d_drawn: np.ndarray) -> np.ndarray:
        assert view.pull is not None
        d = _blur(d_drawn)  # a symmetric filter is its own transpose
        by_picture = np.where(bright, 0.0, d * irradiance)[..., None] * _GREY
        by_alpha = np.where(bright, d * _BRIGHTEST, 0.0) - d * level.background
        turn = np.einsum("hw,hwk->k", d * view.alpha * mask, by_turn) @ T[:3, :3]
        return view.pull(by_picture, by_alpha) + np.concatenate([np.zeros(3), turn])

    unseen = np.clip(1.0 - level.known[at] - _blur(mask)[at], 0.0, 1.0)
    steep = np.sum(gradient**2, axis=1)
    return _System(
        residual=level.image[at] - drawn[at],
        J=np.concatenate([by_pose[at], by_light[at]], axis=1),
        doubt=doubt[at],
        gradient=gradient,
        sd=np.sqrt(_NOISE**2 + _EDGE_PX**2 * steep + (_GUESS * unseen) ** 2),
        inside=mask[at],
        block=block_of(rows, columns, mask.shape[1]),
        image=level.image[at],
        drawn=drawn[at],
        at=at,
        pull=None if view.pull is None else pull,
    )


def _moving(
    view: View, camera: Camera, T: np.ndarray, surface: np.ndarray, by_turn: np.ndarray, background: np.ndarray
) -> tuple[Float[np.ndarray, "h w 6"], Float[np.ndarray, "h w 3"]]:
    """Derivative of the drawing before its blur by a pose step, and how far that by a turn may be off.

    Print and outline move, and the shade turns. How the outline moves as the object turns depends on how deep it lies.
    """
    mask = view.mask
    out = np.zeros((*mask.shape, 6), np.float32)
    at = rows, columns = np.nonzero(mask)
    flow = _flow(camera, T, columns, rows, view.depth[at])
    gx, gy = (g[at][:, None] for g in _slopes(surface))
    out[at] = -(gx * flow[:, 0] + gy * flow[:, 1])
    out[rows, columns, 3:] += by_turn[at] @ T[:3, :3].astype(np.float32)

    # A mask is made of pixels and so of stairs. How much of the outline there is, each step says; which way it faces,
    # only several of them together do.
    solid = mask.astype(np.float32)
    (sx, sy), (ex, ey) = _slopes(solid), _slopes(cv2.GaussianBlur(solid, (0, 0), _STAIRS_PX))
    along = np.hypot(sx, sy) / np.maximum(np.hypot(ex, ey), 1e-6)
    edge = rows, columns = np.nonzero(along)
    ex, ey = ex * along, ey * along
    depth, unsure = (values[edge] for values in _rim_depth(view))
    flow = _flow(camera, T, columns, rows, depth)
    contrast = (surface - background)[edge][:, None]
    moved = ex[edge][:, None] * flow[:, 0] + ey[edge][:, None] * flow[:, 1]
    out[edge] -= contrast * moved
    assert camera.T_world_camera is not None
    R = (T[:3, :3].T @ camera.T_world_camera[:3, :3]).astype(np.float32)
    sight = np.column_stack([(columns - camera.cx) / camera.fx, (rows - camera.cy) / camera.fy, np.ones(len(rows))])
    doubt = np.zeros((*mask.shape, 3), np.float32)
    doubt[edge] = contrast * unsure[:, None] * np.cross(sight.astype(np.float32) @ R.T, moved[:, :3])
    return out, doubt


def _rim_depth(view: View) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
    """Depth of the outline itself, at and around it, and how unsure it is [m].

    On a round surface depth falls by c √d at a distance d from the outline: half a pixel inside it is far from the
    outline's own, as would be the motion of that point when the surface turns. So the depths at 0.5 and 1.5 pixels are
    continued to 0, by (√0.5 / (√1.5 - √0.5)) of their difference.
    """
    inner = cv2.erode(view.mask.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    first = extend(view.depth, view.mask, 1)
    second = extend(view.depth, inner, 2)
    fall = np.where((first > 0) & (second > 0), first - second, 0.0)
    return first + 1.366 * fall, np.abs(fall)


def _flow(
    camera: Camera, T: Float[np.ndarray, "4 4"], u: np.ndarray, v: np.ndarray, z: np.ndarray
) -> Float[np.ndarray, "m 2 6"]:
    """How far the surface point of each pixel moves with a pose step in the object's axes [px].

    A point p of the object is seen at camera.project(R p + t), and a step moves it by R (v + w x p).
    """
    assert camera.T_world_camera is not None
    T_camera_object = (se3.inverse(camera.T_world_camera) @ T).astype(np.float32)
    R, t = T_camera_object[:3, :3], T_camera_object[:3, 3]
    x, y = ((u - camera.cx) / camera.fx).astype(np.float32), ((v - camera.cy) / camera.fy).astype(np.float32)
    p = (np.stack([x * z, y * z, z], axis=-1) - t) @ R
    flow = np.empty((len(z), 2, 6), np.float32)
    for k, (f, direction) in enumerate(((camera.fx, x), (camera.fy, y))):
        along = np.float32(f) / z
        a = along[:, None] * (R[k] - direction[:, None] * R[2])
        flow[:, k, :3] = a
        flow[:, k, 3] = p[:, 1] * a[:, 2] - p[:, 2] * a[:, 1]
        flow[:, k, 4] = p[:, 2] * a[:, 0] - p[:, 0] * a[:, 2]
        flow[:, k, 5] = p[:, 0] * a[:, 1] - p[:, 1] * a[:, 0]
    return flow


def _weigh(s: _System, shape: tuple[int, int], most: float) -> tuple[Float[np.ndarray, " m"], float]:
    """Returns how far each pixel is what it should be, 0 to 1, and the scale of what is left.

    What covers the object is one piece: a pixel that looks right among others that do not does so by chance.
    """
    normalised = s.residual / s.sd
    _, scale = tukey(normalised[s.inside], most=most)
    share, _ = tukey(normalised, least=scale, most=scale)
    around = np.zeros((2, *shape), np.float32)
    around[0][s.at], around[1][s.at] = share, 1.0
    inliers, all_of_them = (cv2.blur(x, (_PIECE_PX, _PIECE_PX)) for x in around)
    company = inliers[s.at] / np.maximum(all_of_them[s.at], 1e-6)
    return share * np.clip(2.5 * company - 0.75, 0.0, 1.0), scale


def _covariance(last: _Step, prior: Float[np.ndarray, "15 15"]) -> Float[np.ndarray, "6 6"]:
    """Returns H⁻¹ (Σ_b s_b s_bᵀ + warp² Σ_b g_b g_bᵀ + D + prior) H⁻¹, H = Jᵀ W J - D + prior, over blocks b of pixels.

    The usual (Jᵀ W J)⁻¹ takes the pixels' errors as independent. Those of compression and appearance are not: a
    block's residuals are summed before they are squared (s_b; a cluster-robust covariance, Liang and Zeger 1986), and
    a block's print may be displaced as a whole (g_b). And it takes J as exact: from the small errors that many pixels'
    derivatives have by a turn, it would conclude that the turn of an even cylinder is known. What they add up to (D) is
    taken away, as for any regression on uncertain variables.
    """
    s = last.system
    JW = s.J * (last.share / (s.sd * last.scale) ** 2)[:, None]
    score = block_sums(JW * s.residual[:, None], s.block)
    meat = score.T @ score + prior
    for k in range(2):
        shifted = block_sums(JW * s.gradient[:, k, None], s.block)
        meat += _WARP_PX**2 * shifted.T @ shifted
    doubt = np.zeros_like(last.H)
    doubt[3:6, 3:6] = (s.doubt * (last.share / (s.sd * last.scale) ** 2)[:, None]).T @ s.doubt
    bread = np.linalg.inv(_less(last.H, doubt) + prior)
    return (bread @ (meat + doubt) @ bread)[:6, :6]


def _less(H: Float[np.ndarray, "p p"], taken: Float[np.ndarray, "p p"]) -> Float[np.ndarray, "p p"]:
    """Returns H - taken without what would become negative; both are symmetric and not negative."""
    values, vectors = np.linalg.eigh(H)
    root = vectors * np.sqrt(np.maximum(values, 1e-9 * max(values[-1], 1e-12)))
    white = np.linalg.pinv(root) @ taken @ np.linalg.pinv(root).T
    shares, axes = np.linalg.eigh(0.5 * (white + white.T))
    left = root @ axes * np.sqrt(np.clip(1.0 - shares, 1e-6, 1.0))
    return left @ left.T


def _slopes(picture: Float[np.ndarray, "h w"]) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
    """Derivatives to the right and downwards [1/px]."""
    return cv2.Scharr(picture, cv2.CV_32F, 1, 0, scale=1 / 32), cv2.Scharr(picture, cv2.CV_32F, 0, 1, scale=1 / 32)


def _blur(values: np.ndarray) -> np.ndarray:
    return cv2.GaussianBlur(values.astype(np.float32), (0, 0), _BLUR_PX)
