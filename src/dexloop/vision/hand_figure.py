"""A picture of a hand's path: the skeleton on some frames, how the wrist moves, and how the hand opens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core.camera import Camera
from dexloop.vision.hand_path import HandPath
from dexloop.vision.hand_skeleton import FINGERS, PARENT, TIPS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 6
"""Frames, side by side."""
_SIDE_PX = 420
"""Of a close-up [px]."""
_COLOURS = ((255, 159, 28), (46, 204, 64), (0, 174, 239), (150, 96, 255), (255, 72, 150))
"""Of thumb to little finger, RGB."""
_BRIDGED, _UNDER = (235, 235, 235), (25, 25, 25)
"""Of a skeleton that was not measured, and of what lies under every bone so that it shows on any ground."""
_BITS = 4
"""Of fractions of a pixel, in OpenCV's drawing."""
_MARK = "#d62728"
"""Of the frame around a picture in which the hand was not measured."""


def hand_figure(
    frames: Sequence[UInt8[np.ndarray, "h w 3"]], t: Float[np.ndarray, " m"], camera: Camera, path: HandPath
) -> Figure:
    """Draws the fitted skeleton on some frames (pale and framed in red where bridged), and the path below.

    Args:
        frames: Of the video.
        t: When each was taken [s], on the path's clock.
        camera: That took them, located in the world.
        path: What was found in them.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(14, 5.6), layout="constrained")
    grid = figure.add_gridspec(2, 1, height_ratios=[1.15, 1.0])
    chosen = np.unique(np.linspace(0, len(path.t) - 1, _SHOWN).round().astype(int))
    uv = camera.project_world(path.landmarks[chosen])
    spans = np.nanmax(uv, axis=1) - np.nanmin(uv, axis=1)
    half = float(np.clip(0.62 * spans.max(), 40.0, 0.5 * min(camera.width, camera.height)))
    strip = grid[0].subgridspec(1, len(chosen), wspace=0.02)
    for place, k in enumerate(chosen):
        frame, seen = frames[int(np.argmin(np.abs(t - path.t[k])))], bool(path.seen[k])
        axes = figure.add_subplot(strip[place])
        axes.imshow(_close_up(frame, uv[place], half, seen=seen))
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{path.t[k]:.2f} s" + ("" if seen else ", bridged"), fontsize=9, color="k" if seen else _MARK)
        axes.spines[:].set(visible=not seen, color=_MARK, linewidth=3.0)
    colours = [(r / 255, g / 255, b / 255) for r, g, b in _COLOURS]
    dots = [Line2D([], [], color=c, lw=3, label=f) for f, c in zip(FINGERS, colours, strict=True)]
    below = grid[1].subgridspec(1, 2)
    moved = figure.add_subplot(below[0])
    wrist = 1e3 * (path.landmarks[:, 0] - path.landmarks[0, 0])
    for c, name in enumerate("xyz"):
        moved.plot(path.t, wrist[:, c], lw=1.2, label=name)
    moved.legend(fontsize=7, frameon=False, ncols=3)
    _finish(moved, path, "wrist moved, in the world's axes [mm]")
    opening = figure.add_subplot(below[1])
    tips = path.landmarks[:, TIPS]
    for f in range(1, 5):
        gap = 1e3 * np.linalg.norm(tips[:, f] - tips[:, 0], axis=1)
        opening.plot(path.t, gap, lw=1.2, color=colours[f])
    opening.set_ylim(0.0, 1.2 * opening.get_ylim()[1])
    opening.legend(handles=dots, fontsize=7, frameon=False, ncols=5)
    _finish(opening, path, "from the thumb's tip to the others [mm]")
    return figure


def _close_up(
    frame: UInt8[np.ndarray, "h w 3"], uv: Float[np.ndarray, "21 2"], half: float, *, seen: bool
) -> UInt8[np.ndarray, "s s 3"]:
    """The surroundings of the hand, enlarged before the skeleton is drawn, so that its lines stay fine."""
    middle = np.nan_to_num(0.5 * (np.nanmax(uv, axis=0) + np.nanmin(uv, axis=0)))
    size = np.array(frame.shape[1::-1], dtype=np.float64)
    corner = np.clip(middle - half, -0.5, size - 0.5 - 2 * half)
    scale = _SIDE_PX / (2 * half)
    shift = -scale * corner - 0.5  # the corner of the picture's part becomes that of the close-up, at -0.5
    matrix = np.array([[scale, 0.0, shift[0]], [0.0, scale, shift[1]]])
    picture = cv2.warpAffine(np.ascontiguousarray(frame), matrix, (_SIDE_PX, _SIDE_PX), flags=cv2.INTER_CUBIC)
    points = scale * uv + shift
    for colour, width in ((_UNDER, 7), (None, 4)):
        for bone, parent in enumerate(PARENT):
            own = colour or (_COLOURS[bone // 4] if seen else _BRIDGED)
            _line(picture, points[parent], points[bone + 1], own, width)
    for k, p in enumerate(points):
        if np.isfinite(p).all():
            own = _BRIDGED if k == 0 or not seen else _COLOURS[(k - 1) // 4]
            cv2.circle(picture, _fine(p), 6 << _BITS, _UNDER, -1, cv2.LINE_AA, _BITS)
            cv2.circle(picture, _fine(p), 4 << _BITS, own, -1, cv2.LINE_AA, _BITS)
    return picture


def _fine(p: Float[np.ndarray, "2"]) -> tuple[int, int]:
    x, y = np.round(p * (1 << _BITS)).astype(int)
    return int(x), int(y)


def _line(
    picture: UInt8[np.ndarray, "s s 3"],
    a: Float[np.ndarray, "2"],
    b: Float[np.ndarray, "2"],
    colour: tuple[int, int, int],
    width: int,
) -> None:
    if np.isfinite(a).all() and np.isfinite(b).all():
        cv2.line(picture, _fine(a), _fine(b), colour, width, cv2.LINE_AA, _BITS)


def _finish(axes: Any, path: HandPath, title: str) -> None:
    edges = np.concatenate([path.t[:1], 0.5 * (path.t[1:] + path.t[:-1]), path.t[-1:]])
    for k in np.flatnonzero(~path.seen):
        axes.axvspan(edges[k], edges[k + 1], color="0.88", lw=0, zorder=0)
    axes.set_xlim(path.t[0], path.t[-1])
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("time [s], shaded where bridged" if not path.seen.all() else "time [s]", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
