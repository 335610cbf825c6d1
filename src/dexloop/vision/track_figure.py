"""A picture of a track: the object's outline on the frames, and its path with what is unsure about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from jaxtyping import Bool, Float, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.vision.appearance import Appearance, box_corners
from dexloop.vision.tracking import Track

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 6
"""Frames, side by side."""
_FOUND, _LOST = (0, 255, 80), (255, 60, 60)
"""Colours of the outline, RGB."""


def track_figure(
    frames: Sequence[UInt8[np.ndarray, "h w 3"]], camera: Camera, appearance: Appearance, track: Track
) -> Figure:
    """Draws outlines on some of the frames (red where lost), and position and rotation from the first frame on.

    Bands are two standard deviations of what differs from frame to frame; lost frames are shaded.

    Args:
        frames: Those that were tracked.
        camera: As it was tracked with.
        appearance: Of the object.
        track: What was found.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 6), layout="constrained")
    grid = figure.add_gridspec(2, 1, height_ratios=[1.1, 1.0])
    strip = figure.add_subplot(grid[0])
    chosen = np.unique(np.linspace(0, len(frames) - 1, _SHOWN).astype(int))
    strip.imshow(np.concatenate(_close_ups(frames, camera, appearance, track, chosen), axis=1))
    strip.set_title("frames " + ", ".join(map(str, chosen)), fontsize=9)
    strip.axis("off")
    below = grid[1].subgridspec(1, 2)
    R = se3.from_pose(track.pose)[:, :3, :3]
    position = track.covariance[:, :3, :3]
    shift = 1e3 * (track.pose[:, :3] - track.pose[0, :3])
    shift_sd = 1e3 * np.sqrt(np.maximum(np.diagonal(R @ position @ np.swapaxes(R, 1, 2), axis1=1, axis2=2), 0.0))
    # Summed from frame to frame, for the angle of the whole would jump after half a turn.
    steps = se3.so3_log(se3.quat_multiply(track.pose[1:, 3:], se3.quat_inverse(track.pose[:-1, 3:])))
    turn = np.degrees(np.concatenate([np.zeros((1, 3)), np.cumsum(steps, axis=0)]))
    rotation = R @ track.covariance[:, 3:, 3:] @ np.swapaxes(R, 1, 2)
    turn_sd = np.degrees(np.sqrt(np.maximum(np.diagonal(rotation, axis1=1, axis2=2), 0.0)))
    _bands(figure.add_subplot(below[0]), shift, shift_sd, "x y z", "moved, in the world's axes [mm]", track.lost)
    _bands(figure.add_subplot(below[1]), turn, turn_sd, "x y z", "turned, about the world's axes [deg]", track.lost)
    return figure


def _close_ups(
    frames: Sequence[np.ndarray], camera: Camera, appearance: Appearance, track: Track, chosen: np.ndarray
) -> list[UInt8[np.ndarray, "h w 3"]]:
    """The surroundings of the object in some frames, all of one size, with its outline."""
    poses = se3.from_pose(track.pose)
    corners = box_corners(appearance.box)
    boxes = [camera.project_world(se3.transform(poses[k], corners)) for k in chosen]
    spans = [np.nanmax(uv, axis=0) - np.nanmin(uv, axis=0) for uv in boxes]
    half = int(np.clip(0.75 * np.nanmax(spans), 40, min(camera.width, camera.height) // 2))
    pictures = []
    for k, uv in zip(chosen, boxes, strict=True):
        frame = np.ascontiguousarray(frames[int(k)]).copy()
        outline = outlines(appearance.render(camera, poses[k]).mask)
        cv2.drawContours(frame, outline, -1, _LOST if track.lost[k] else _FOUND, 1, cv2.LINE_AA)
        middle = np.nan_to_num(0.5 * (np.nanmax(uv, axis=0) + np.nanmin(uv, axis=0)))
        x, y = np.clip(np.round(middle).astype(int), half, [camera.width - half, camera.height - half])
        close = frame[y - half : y + half, x - half : x + half]
        pictures.append(cv2.resize(close, (320, 320), interpolation=cv2.INTER_CUBIC))
    return pictures


def outlines(mask: Bool[np.ndarray, "h w"]) -> list[Any]:
    """Returns the outlines of a mask, as OpenCV draws them."""
    found, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    return list(found)


def _bands(
    axes: Any,
    value: Float[np.ndarray, "n 3"],
    sd: Float[np.ndarray, "n 3"],
    names: str,
    title: str,
    lost: Bool[np.ndarray, " n"],
) -> None:
    k = np.arange(len(value))
    for c, name in enumerate(names.split()):
        line = axes.plot(k, value[:, c], lw=1.0, label=name)[0]
        axes.fill_between(k, value[:, c] - 2 * sd[:, c], value[:, c] + 2 * sd[:, c], color=line.get_color(), alpha=0.25)
    for i in np.flatnonzero(lost):
        axes.axvspan(i - 0.5, i + 0.5, color="0.88", lw=0, zorder=0)
    low, high = value[~lost].min(initial=0.0), value[~lost].max(initial=0.0)
    margin = 0.1 * (high - low) + 1.0
    axes.set_ylim(low - margin, high + margin)
    axes.legend(fontsize=7, frameon=False)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("frame", fontsize=8)
    axes.tick_params(labelsize=7)
