"""What is around the objects of a scan, as splats of its own: the table, and whatever stands behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import cv2
import numpy as np
from jaxtyping import Bool, Float, UInt8

from dexloop.core import se3
from dexloop.vision.metrics import psnr
from dexloop.vision.splat_gpu import renderer
from dexloop.vision.splat_training import SplatCfg, train
from dexloop.vision.splats import Splats, joined
from dexloop.vision.views import View

_PITCH_M = 0.01
"""Of the points on the table that splats begin at."""
_SHRINKS = (4, 2)
"""Surroundings are not looked at closely: the finest pictures are half as large as the scan's."""
_REACH = 1.5
"""How far from the middle of the round the table is looked for, in distances of the camera."""
_MOST = 20_000
_SOLID = 2.0
"""Logit of a splat's opacity."""
_OUTLINE_PX = 4
"""Around objects: their shine, and what masks miss."""


def surroundings(
    views: Sequence[View],
    objects: Sequence[Sequence[Bool[np.ndarray, "h w"]]],
    points: Float[np.ndarray, "p 3"],
    colours: UInt8[np.ndarray, "p 3"],
    *,
    steps: int,
    held_out: int,
    seed: int = 0,
    tell: Callable[[float], None] = lambda _: None,
) -> tuple[Splats, float]:
    """Returns splats of all but the objects, in the world's frame, and how like pictures they are that were kept back.

    Args:
        views: Located pictures, with the table at z = 0.
        objects: Masks of each object, one for each view.
        points: That several pictures share [m].
        colours: Of the points.
        steps: Of training, one picture each.
        held_out: Every so many pictures one is kept back.
        seed: Of the order of pictures.
        tell: Told how far it is, 0 to 1.
    """
    kernel = np.ones((2 * _OUTLINE_PX + 1,) * 2, np.uint8)
    outside = [
        replace(view, mask=cv2.dilate(np.logical_or.reduce(masks).astype(np.uint8), kernel) == 0)
        for view, *masks in zip(views, *objects, strict=True)
    ]
    kept = outside[held_out // 2 :: held_out]
    used = [v for v in outside if all(v is not k for k in kept)]
    table, painted = _table(used)
    own = _around(points, used)
    start = Splats.from_points(table, painted / 255.0, np.broadcast_to([0.0, 0.0, 1.0], table.shape))
    start = replace(start, logits=np.full(len(start), _SOLID))  # the table is known to be there
    if own.sum() >= 4:
        start = joined([start, Splats.from_points(points[own], colours[own] / 255.0)])
    cfg = SplatCfg(steps=steps, most=max(_MOST, len(start)), shrinks=_SHRINKS, alone=False, degree=0, seed=seed)
    splats = train(used, start, cfg, lambda p: tell(p.step / p.steps))
    return splats, _likeness(splats, kept)


def _around(points: Float[np.ndarray, "p 3"], views: Sequence[View]) -> Bool[np.ndarray, " p"]:
    """Which points most pictures show outside of all objects."""
    seen, outside = np.zeros(len(points)), np.zeros(len(points))
    for view in views:
        shown, free, _ = _looked_up(points, view)
        seen += shown
        outside += shown & free
    return outside > 0.5 * np.maximum(seen, 1.0)


def _table(views: Sequence[View]) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n 3"]]:
    """Returns points all over the table, as far as pictures show it, and their colours, 0 to 255."""
    places = np.stack([v.T_world_camera[:3, 3] for v in views])
    reach = float(np.linalg.norm(places[:, :2] - places[:, :2].mean(axis=0), axis=1).max())
    line = np.arange(-_REACH * reach, _REACH * reach, _PITCH_M)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2) + places[:, :2].mean(axis=0)
    points = np.column_stack([grid, np.zeros(len(grid))])
    total, count = np.zeros((len(points), 3)), np.zeros(len(points))
    for view in views:
        shown, free, colour = _looked_up(points, view)
        count += shown & free
        total[shown & free] += colour[shown & free]
    some = count > 0
    return points[some], total[some] / count[some, None]


def _looked_up(
    points: Float[np.ndarray, "p 3"], view: View
) -> tuple[Bool[np.ndarray, " p"], Bool[np.ndarray, " p"], Float[np.ndarray, "p 3"]]:
    """Returns which points are in a picture, which of them outside of objects, and the colours there."""
    assert view.mask is not None
    in_camera = se3.transform(se3.inverse(view.T_world_camera), points)
    uv = view.camera.project(in_camera)
    column, row = (np.round(np.nan_to_num(uv[:, k], nan=-1.0)).astype(int) for k in (0, 1))
    h, w = view.mask.shape
    shown = (in_camera[:, 2] > 0) & (column >= 0) & (column < w) & (row >= 0) & (row < h)
    row, column = np.where(shown, row, 0), np.where(shown, column, 0)
    return shown, view.mask[row, column], view.rgb[row, column].astype(np.float64)


def _likeness(splats: Splats, views: Sequence[View]) -> float:
    """Median PSNR outside of objects [dB]; NaN without pictures."""
    draw, found = renderer(), []
    for view in views:
        drawn = draw(splats, replace(view.camera, T_world_camera=view.T_world_camera)).rgb
        found.append(psnr(drawn, view.rgb.astype(np.float32) / 255.0, view.mask))
    return float(np.median(found)) if found else float("nan")
