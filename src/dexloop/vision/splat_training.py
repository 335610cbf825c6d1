"""Makes splats look like pictures: gradient descent on all cores, with splats added where detail is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from jaxtyping import Bool, Float
from numba import njit

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.vision.cores import on_all_cores
from dexloop.vision.metrics import ssim_with_gradient
from dexloop.vision.rasterise import Drawing, Gradients
from dexloop.vision.splat_gpu import renderer
from dexloop.vision.splats import FLAT, Splats, joined
from dexloop.vision.views import View

_MARGIN_PX = 12
"""Around the object's mask: where splats learn that nothing is there."""
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-15
_FIRST_GROWTH, _LAST_GROWTH = 0.08, 0.6
"""Parts of the training between which splats are added."""
_FAINT, _FAINT_AT_END = 0.02, 0.05
"""Opacity below which a splat is taken away."""
_APART, _NARROWER = 0.7, 0.71
"""A split Gaussian becomes two, this many standard deviations from the middle, this much narrower: same variance."""
_MOST_EXPOSURE = 0.3
"""How far a view may be brighter or darker than the others, as a part."""


@dataclass(frozen=True)
class SplatCfg:
    """How splats are trained."""

    steps: int = 2000
    """One view each."""
    most: int = 25_000
    """Number of splats beyond which none is added."""
    degree: int = 1
    """Of the spherical harmonics: how finely colour may change with the direction, 0 to 3."""
    shrinks: tuple[int, ...] = (4, 2, 1)
    """By how much pictures are reduced, coarse to fine; the last is trained for 70 % of the steps."""
    ssim: float = 0.2
    """Weight of 1 - SSIM; the mean absolute difference has the rest."""
    mask: float = 0.3
    """Weight of the squared difference of opacity and mask."""
    flat: float = 0.1
    """How hard splats are pressed flat and opaque, over what pictures pull at them: fog is seen behind where it begins,
    and a surface is none."""
    edge_px: int = 2
    """Width of the outline in which masks are not believed [px]."""
    rim_px: int = 6
    """Width of the outline whose inner half is compared with the object before what is behind it, where that is known
    [px]. Outside, errors of what is behind would be made up for by splats that stick out."""
    depth: float = 0.3
    """Weight of the difference in depth over the object's size, where depths are given."""
    alone: bool = True
    """Whether nothing is outside the masks (an object by itself); else it is unknown (surroundings with holes)."""
    seed: int = 0
    """Of the order of views and of the colours behind the object."""


@dataclass(frozen=True)
class SplatProgress:
    """How far training is."""

    step: int
    steps: int
    psnr: float
    """Of the last views trained on, inside their masks [dB]."""
    count: int
    """Of splats."""


def train(
    views: Sequence[View],
    start: Splats,
    cfg: SplatCfg | None = None,
    progress: Callable[[SplatProgress], None] | None = None,
    *,
    depths: Mapping[str, Float[np.ndarray, "h w"]] | None = None,
) -> Splats:
    """Returns splats that look like the views.

    Args:
        views: Pictures with cameras, and masks of the object; without masks all of each picture is trained.
        start: Where splats are at first, such as `Splats.from_points`.
        cfg: How.
        progress: Called every 50 steps.
        depths: Depth pictures by name of view [m], 0 where unknown.

    Raises:
        InputError: There is no view, or a mask is empty.
    """
    cfg = cfg or SplatCfg()
    if not views:
        raise InputError("no views to train splats on: give at least one picture with its camera")
    rng, render = np.random.default_rng(cfg.seed), renderer()
    pyramid = [[_target(view, shrink, cfg, (depths or {}).get(view.name)) for view in views] for shrink in cfg.shrinks]
    model = _Model(start.with_degree(cfg.degree), _extent(views), cfg)
    bright = np.ones((len(views), 3), np.float32)
    queue: list[int] = []
    recent: list[float] = []
    every = max(cfg.steps // 20, len(views))  # each view was seen since the last time
    for step in range(cfg.steps):
        done = step / cfg.steps
        queue = queue or [int(i) for i in rng.permutation(len(views))]
        i = queue.pop()
        target = pyramid[_level(done, len(cfg.shrinks))][i]
        model.degree = min(cfg.degree, int(4 * cfg.degree * done))
        behind = rng.random(3).astype(np.float32) if cfg.alone else np.zeros(3, np.float32)
        drawing = render(model.drawn(), target.camera, background=tuple(behind.tolist()), where=target.where)
        error, gradients = _compare(drawing, target, behind, bright, i, cfg, tell_exposure=done > 0.3)
        model.step(gradients, drawing, done)
        recent.append(error)
        if step % every == every - 1:
            if _FIRST_GROWTH <= done <= _LAST_GROWTH:
                model.grow(done)
            model.prune(_FAINT)
        if progress and (step % 50 == 49 or step == cfg.steps - 1):
            loss = float(np.mean(recent[-len(views) :]))
            progress(SplatProgress(step + 1, cfg.steps, -10.0 * np.log10(max(loss, 1e-12)), len(model.splats)))
    model.prune(_FAINT_AT_END)
    return model.splats


def _level(done: float, levels: int) -> int:
    """Which of the reduced pictures: the last one from 30 % on, the others for equal parts before."""
    return min(levels - 1, int(done / 0.3 * (levels - 1))) if levels > 1 else 0


def _extent(views: Sequence[View]) -> float:
    """Returns how far apart the cameras are, from their middle [m]: what steps in space are in proportion to."""
    places = np.stack([view.T_world_camera[:3, 3] for view in views])
    far = float(np.linalg.norm(places - places.mean(axis=0), axis=1).max())
    return 1.1 * far if far > 0 else 1.0


@dataclass(frozen=True, eq=False)
class _Target:
    """What a view should look like around the object, at some size."""

    camera: Camera
    rgb: Float[np.ndarray, "h w 3"]
    mask: Float[np.ndarray, "h w"]
    edge: Bool[np.ndarray, "h w"]
    """Where masks are not believed."""
    rim: Bool[np.ndarray, "h w"]
    """Where pictures are compared with object and background together."""
    unknown: Bool[np.ndarray, "h w"]
    """What tells nothing."""
    behind: Float[np.ndarray, "h w 3"] | None
    where: Bool[np.ndarray, "h w"]
    depth: Float[np.ndarray, "h w"] | None


def _target(view: View, shrink: int, cfg: SplatCfg, depth: Float[np.ndarray, "h w"] | None) -> _Target:
    h, w = view.rgb.shape[:2]
    mask = np.ones((h, w), np.bool_) if view.mask is None else view.mask
    if not mask.any():
        raise InputError(f"the object's mask in view {view.name!r} is empty: leave this view out")
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    left, right = max(0, int(columns[0]) - _MARGIN_PX), min(w, int(columns[-1]) + 1 + _MARGIN_PX)
    top, bottom = max(0, int(rows[0]) - _MARGIN_PX), min(h, int(rows[-1]) + 1 + _MARGIN_PX)
    # Whole pixels at the reduced size; the picture's last few rows and columns may be lost.
    wide, high = max(1, (right - left) // shrink), max(1, (bottom - top) // shrink)
    part = (slice(top, top + high * shrink), slice(left, left + wide * shrink))

    def reduced(picture: np.ndarray) -> np.ndarray:
        return cv2.resize(picture[part].astype(np.float32), (wide, high), interpolation=cv2.INTER_AREA)

    camera = view.camera.cropped(left, top, wide * shrink, high * shrink).resized(wide, high)
    camera = replace(camera, T_world_camera=view.T_world_camera)
    share = reduced(mask)
    edge, rim = (
        reduced(
            cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_GRADIENT, np.ones((2 * (px // 2) + 1,) * 2, np.uint8))
        )
        > 0
        for px in (cfg.edge_px, cfg.rim_px)
    )
    unknown = np.zeros(share.shape, np.bool_) if view.unknown is None else reduced(view.unknown) > 0
    behind = None if view.behind is None else reduced(view.behind)
    if behind is None:
        rim, unknown = np.zeros_like(rim), unknown | edge
    else:
        rim &= share > 0.5
        unknown = unknown | (edge & ~rim)
    near = cv2.dilate((share > 0).astype(np.uint8), np.ones((9, 9), np.uint8)) > 0
    far = None if depth is None else depth[part][shrink // 2 :: shrink, shrink // 2 :: shrink][:high, :wide]
    return _Target(camera, reduced(view.rgb) / 255.0, share, edge, rim, unknown, behind, near, far)


def _compare(
    drawing: Drawing,
    target: _Target,
    behind: Float[np.ndarray, "3"],
    bright: Float[np.ndarray, "v 3"],
    i: int,
    cfg: SplatCfg,
    *,
    tell_exposure: bool,
) -> tuple[float, Gradients]:
    """Returns the mean squared error inside the mask and the gradients of the loss; updates the view's exposure."""
    inside = target.mask
    mask = inside[..., None]
    area = max(float(inside.sum()), 1.0)
    # What the background adds is known, and is no matter of exposure.
    own = drawing.rgb - (1.0 - drawing.alpha)[..., None] * behind
    if tell_exposure:
        found = (own * target.rgb * mask).sum(axis=(0, 1)) / np.maximum((own * own * mask).sum(axis=(0, 1)), 1e-6)
        bright[i] += 0.1 * (np.clip(found, 1 - _MOST_EXPOSURE, 1 + _MOST_EXPOSURE) - bright[i])
        bright /= bright.mean(axis=0)  # how bright all views are together is the splats' matter
    around = behind if target.behind is None else np.where(target.rim[..., None], target.behind, behind)
    shown = own * bright[i] + (1.0 - drawing.alpha)[..., None] * around
    wanted = target.rgb * mask + behind * (1.0 - mask) if cfg.alone else np.where(mask > 0.5, target.rgb, shown)
    wanted = np.where(target.rim[..., None], target.rgb, wanted)
    wanted = np.where(target.unknown[..., None], shown, wanted)
    difference = shown - wanted
    error = float((difference**2 * mask).sum() / (3.0 * area))
    weight = np.float32(1.0 / (3.0 * area))
    d_shown = (1.0 - cfg.ssim) * weight * np.sign(difference)
    if cfg.ssim > 0:
        d_shown -= cfg.ssim * weight * ssim_with_gradient(shown, wanted)[1]
    # shown = bright * (rgb - (1 - alpha) behind) + (1 - alpha) around
    d_alpha = (d_shown * (bright[i] * behind - around)).sum(axis=2)
    if cfg.alone:
        d_alpha += (2.0 * cfg.mask / area) * np.where(target.edge | target.unknown, 0.0, drawing.alpha - inside)
    d_depth = None
    if target.depth is not None and cfg.depth > 0:
        known = (target.depth > 0) & (drawing.alpha > 0.5) & (inside > 0.5)
        size = max(float(np.ptp(target.depth[target.depth > 0])), 1e-3) if known.any() else 1.0
        d_depth = np.where(known, np.sign(drawing.depth - target.depth), 0.0) * (cfg.depth / (area * size))
    return error, drawing.backward(d_shown * bright[i], d_depth=d_depth, d_alpha=d_alpha)


class _Model:
    """Splats in training: their optimiser (Adam), and how many there are.

    Args:
        start: At first.
        extent: Of the scene [m].
        cfg: How splats are trained.
    """

    def __init__(self, start: Splats, extent: float, cfg: SplatCfg):
        self.splats, self.degree = start.taken(np.arange(len(start))), 0  # a copy: it is changed in place
        self._extent, self._cfg, self._begun = extent, cfg, len(start)
        self._moments = [[np.zeros_like(a), np.zeros_like(a)] for a in self._arrays()]
        self._count = 0
        self._forget()

    def drawn(self) -> Splats:
        """The splats, with as many spherical harmonics as are learned by now."""
        return self.splats if self.degree == self.splats.degree else self.splats.with_degree(self.degree)

    def step(self, gradients: Gradients, drawing: Drawing, done: float) -> None:
        """Goes one step downhill.

        Args:
            gradients: Of the loss.
            drawing: What they are of.
            done: Part of the training that is done, 0 to 1.
        """
        seen = drawing.radii > 0
        self._slope[seen] += np.linalg.norm(gradients.screen[seen], axis=1)
        self._seen[seen] += np.any(gradients.screen[seen] != 0, axis=1)
        self._count += 1
        means = 1.6e-4 * self._extent * 0.01**done
        rates = (means, 5e-3, 1e-3, 5e-2, 2.5e-3)
        scales, logits = self._pressed(gradients, seen)
        pulls = (gradients.means, scales, gradients.quats, logits, gradients.sh)
        c1, c2 = 1 - _BETA1**self._count, 1 - _BETA2**self._count
        for array, pull, (m, v), rate in zip(self._arrays(), pulls, self._moments, rates, strict=True):
            later = 3 if array.ndim == 3 else array.size  # harmonics beyond the constant learn more slowly
            x, g, m, v = (a.reshape(len(a), -1) for a in (array, pull, m, v))
            on_all_cores(_adam, x, g, m, v, np.float32(rate), later, np.float32(c1), np.float32(c2))

    def _pressed(self, gradients: Gradients, seen: Bool[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the gradients of scales and opacities, with a pull towards flat and opaque."""
        scales, logits = gradients.log_scales, gradients.logits
        if not self._cfg.flat or not seen.any():
            return scales, logits
        scales, logits = scales.copy(), logits.copy()
        order = np.sort(self.splats.log_scales, axis=1)
        thick = np.flatnonzero(seen & (order[:, 0] - order[:, 1] > np.log(FLAT)))
        thinnest = self.splats.log_scales[thick].argmin(axis=1)
        scales[thick, thinnest] += self._cfg.flat * np.sqrt(np.mean(scales[seen] ** 2))
        logits[seen] -= self._cfg.flat * np.sqrt(np.mean(logits[seen] ** 2))
        return scales, logits

    def grow(self, done: float) -> None:
        """Splits the splats that pictures pull at most, so that their number grows evenly up to the most allowed."""
        part = min(1.0, (done - _FIRST_GROWTH + 0.02) / (_LAST_GROWTH - 0.1 - _FIRST_GROWTH))
        wanted = int(self._begun + (self._cfg.most - self._begun) * part)
        n = len(self.splats)
        more = min(wanted - n, n // 2)
        if more <= 0:
            return
        pull = self._slope / np.maximum(self._seen, 1)
        chosen = np.argpartition(-pull, more - 1)[:more]
        stays = np.ones(n, np.bool_)
        stays[chosen] = False
        self._become(joined([self.splats.taken(stays), *_split(self.splats.taken(chosen))]), np.flatnonzero(stays))

    def prune(self, faint: float) -> None:
        """Takes away splats that are faint, never seen, or far too large, and starts counting anew."""
        largest = self.splats.log_scales.max(axis=1)
        keep = (self.splats.opacities > faint) & (largest < np.log(0.2 * self._extent))
        if self._seen.any():
            keep &= (self._seen > 0) | self._new
        if not keep.all():
            which = np.flatnonzero(keep)
            self._become(self.splats.taken(which), which)
        self._forget()

    def _become(self, splats: Splats, kept: np.ndarray) -> None:
        """Takes other splats; the first of them are those kept, in order, and keep their momentum."""
        more = len(splats) - len(kept)
        self.splats = splats
        self._moments = [
            [np.concatenate([a[kept], np.zeros((more, *a.shape[1:]), np.float32)]) for a in pair]
            for pair in self._moments
        ]
        self._slope = np.concatenate([self._slope[kept], np.zeros(more)])
        self._seen = np.concatenate([self._seen[kept], np.zeros(more)])
        self._new = np.concatenate([self._new[kept], np.ones(more, np.bool_)])

    def _forget(self) -> None:
        n = len(self.splats)
        self._slope, self._seen, self._new = np.zeros(n), np.zeros(n), np.zeros(n, np.bool_)

    def _arrays(self) -> tuple[np.ndarray, ...]:
        s = self.splats
        return s.means, s.log_scales, s.quats, s.logits, s.sh


def _split(splats: Splats) -> tuple[Splats, Splats]:
    """Returns two for each, side by side along its longest axis."""
    n, longest = len(splats), splats.log_scales.argmax(axis=1)
    q = splats.quats / np.linalg.norm(splats.quats, axis=1, keepdims=True)
    axis = se3.quat_to_matrix(q)[np.arange(n), :, longest]
    away = _APART * np.exp(splats.log_scales[np.arange(n), longest])[:, None] * axis
    scales = splats.log_scales.copy()
    scales[np.arange(n), longest] += np.log(_NARROWER)
    halves = (Splats(splats.means + s * away, scales, q, splats.logits, splats.sh) for s in (-1.0, 1.0))
    return next(halves), next(halves)


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _adam(x, g, m, v, rate, later, c1, c2, thread, threads):
    """One step of Adam in place, row by row; columns from `later` on at a twentieth of the rate."""
    b1, b2 = np.float32(_BETA1), np.float32(_BETA2)
    for i in range(len(x) * thread // threads, len(x) * (thread + 1) // threads):
        for j in range(g.shape[1]):
            m[i, j] = b1 * m[i, j] + (np.float32(1) - b1) * g[i, j]
            v[i, j] = b2 * v[i, j] + (np.float32(1) - b2) * g[i, j] * g[i, j]
            slow = rate if j < later else rate * np.float32(0.05)
            x[i, j] -= slow * (m[i, j] / c1) / (np.sqrt(v[i, j] / c2) + np.float32(_EPSILON))
