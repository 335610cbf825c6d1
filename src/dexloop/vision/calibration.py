"""Where a fixed camera really stands, from a printed board that it sees: pose and focal length, with covariance.

Corners seen at a flat angle are good to a fifth of a pixel, and worse where something covers them. So the whole print
is compared: it is drawn as the camera should see it, and the camera is moved until both agree (robust Gauss-Newton).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from jaxtyping import Bool, Float, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.vision.board import Board
from dexloop.vision.robust import tukey, weighted_correlation

PRIOR_SD = np.array([0.002] * 3 + [0.004] * 3 + [0.005])
"""How far a nominal calibration may be off: position [m], rotation [rad], focal length [1]."""
_PRINT_SD = np.array([0.001, 0.001, 3e-4])
"""How far the print may be off: its width and height [1], and how high it lies [m]."""
_WARP_PX, _WARPS = 0.1, 6.0
"""How far the print seems to lie from where it should, and in how many places independently: paper, lens, sampling."""
_STEP = 2e-4
"""Of the finite differences [m, rad, 1]."""
_SQUARE_PX = 100
"""Of the print that is drawn from."""
_FINE = 4
"""Samples across a pixel."""
_BLURS_PX = (3.0, 3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0)
_MIN_CORRELATION = 0.8
"""Below this it is not the board that is seen."""
_MIN_PIXELS = 500


@dataclass(frozen=True, eq=False)
class Calibration:
    """A camera and how well it is known."""

    camera: Camera
    covariance: Float[np.ndarray, "7 7"]
    """Of [v, w, log f]: T_true = T_world_camera @ exp([v, w]) in the camera's axes, and the focal length's ratio."""
    correlation: float
    """Of the board as drawn and as seen, -1 to 1; 0 if too little of it is in the picture."""

    @property
    def refined(self) -> bool:
        """Whether the board was seen; else the camera is as it was given."""
        return self.correlation >= _MIN_CORRELATION


def calibrate(
    frames: Sequence[UInt8[np.ndarray, "h w 3"]],
    camera: Camera,
    board: Board,
    T_world_board: Float[np.ndarray, "4 4"],
    *,
    prior_sd: Float[np.ndarray, " 7"] = PRIOR_SD,
) -> Calibration:
    """Refines a fixed camera's pose and focal length from a board that lies at a known place.

    Args:
        frames: Some pictures of the camera; what moves is taken out by their median.
        camera: Nominal calibration, within a few pixels.
        board: What was printed.
        T_world_board: Where it lies.
        prior_sd: How far the nominal calibration may be off, see `PRIOR_SD`.

    Returns:
        The refined camera, or the nominal one with its prior covariance where the board is not to be seen.
    """
    if camera.T_world_camera is None:
        raise InputError(f"camera {camera.name!r} has no place: give it a rough T_world_camera to start from")
    if not len(frames):
        raise InputError("there is no picture to calibrate the camera with")
    if any(f.shape[:2] != (camera.height, camera.width) for f in frames):
        raise InputError(
            f"pictures must have the {camera.width} x {camera.height} px of camera {camera.name!r}: use the camera "
            f"that they were taken with"
        )
    grey = np.median([cv2.cvtColor(f, cv2.COLOR_RGB2GRAY) for f in frames], axis=0).astype(np.float32)
    printed = _Print(board, T_world_board)
    x = np.zeros(7)
    prior = np.diag(prior_sd**2)
    correlation, inside = 0.0, np.zeros(grey.shape, bool)
    for sigma in _BLURS_PX:
        drawn, inside = printed.draw(moved(camera, x), sigma)
        if inside.sum() < _MIN_PIXELS:
            return Calibration(camera, prior, 0.0)
        p, image = drawn[inside], cv2.GaussianBlur(grey, (0, 0), sigma)[inside]
        gain, offset = _gain(p, image)
        J = np.stack([*(gain * s for s in _slopes(printed, camera, x, sigma, inside)), p, np.ones_like(p)], axis=1)
        residual = image - gain * p - offset
        weight, scale = tukey(residual)
        H = (J * weight[:, None]).T @ J
        H[:7, :7] += scale**2 * np.diag(prior_sd**-2.0)
        g = (J * weight[:, None]).T @ residual
        g[:7] -= scale**2 * x / prior_sd**2
        x += np.linalg.solve(H, g)[:7]
        correlation = weighted_correlation(image, p, weight)
    if correlation < _MIN_CORRELATION:
        return Calibration(camera, prior, correlation)
    x, covariance = _trust(printed, camera, x, prior_sd, inside)
    return Calibration(moved(camera, x), covariance, correlation)


def _slopes(
    printed: _Print, camera: Camera, x: np.ndarray, sigma: float, inside: np.ndarray
) -> list[Float[np.ndarray, " m"]]:
    """Derivatives of the drawing by the camera's parameters, by central differences."""
    pairs = [[printed.draw(moved(camera, x + s * d), sigma)[0] for s in (1, -1)] for d in _STEP * np.eye(7)]
    return [(after - before)[inside] / (2 * _STEP) for after, before in pairs]


def _trust(
    printed: _Print, camera: Camera, x: np.ndarray, prior_sd: np.ndarray, inside: np.ndarray
) -> tuple[Float[np.ndarray, " 7"], Float[np.ndarray, "7 7"]]:
    """Weighs what the print says against the nominal calibration.

    Thousands of pixels leave next to no noise; what remains is that print and lens are not quite as they should be. So
    the fit is taken for the places of some points of the board, each good to `_WARP_PX`, of a print of unsure size.
    """
    p = printed.points()
    uv = moved(camera, x).project_world(printed.world(p, np.zeros(3)))
    at = np.round(np.nan_to_num(uv, nan=-1.0)).astype(int)
    seen = np.all((at >= 0) & (at < [camera.width, camera.height]), axis=1)
    seen = np.array([ok and bool(inside[v, u]) for ok, (u, v) in zip(seen, at, strict=True)])

    def pixels(z: np.ndarray) -> np.ndarray:
        return moved(camera, z[:7]).project_world(printed.world(p[seen], z[7:])).ravel()

    z = np.concatenate([x, np.zeros(3)])
    J = np.stack([(pixels(z + d) - pixels(z - d)) / (2 * _STEP) for d in _STEP * np.eye(10)], axis=1)
    information = J.T @ J / (_WARP_PX**2 * max(seen.sum() / _WARPS, 1.0))
    total = np.linalg.inv(information + np.diag(np.concatenate([prior_sd, _PRINT_SD]) ** -2.0))
    return (total @ information @ z)[:7], total[:7, :7]


def moved(camera: Camera, x: Float[np.ndarray, " 7"]) -> Camera:
    """Returns the camera displaced by [v, w] in its own axes and with its focal length times exp(x[6])."""
    assert camera.T_world_camera is not None
    f = float(np.exp(x[6]))
    return replace(camera, fx=camera.fx * f, fy=camera.fy * f, T_world_camera=camera.T_world_camera @ se3.exp(x[:6]))


class _Print:
    """The board, drawn as a camera sees it."""

    def __init__(self, board: Board, T_world_board: np.ndarray):
        per_m = _SQUARE_PX / board.square_m
        self._tile = board.image(per_m)
        w, h = board.size_m
        self._T, self._size = T_world_board, (w, h)
        # Pixels of the print to metres on the board, whose y is up.
        self._S = np.array([[1 / per_m, 0, 0.5 / per_m - w / 2], [0, -1 / per_m, h / 2 - 0.5 / per_m], [0, 0, 1]])

    def points(self) -> Float[np.ndarray, "n 2"]:
        """Returns places all over the print [m]."""
        w, h = self._size
        return np.stack(np.meshgrid(np.linspace(-0.45, 0.45, 9) * w, np.linspace(-0.45, 0.45, 7) * h), -1).reshape(
            -1, 2
        )

    def world(self, p: Float[np.ndarray, "n 2"], off: Float[np.ndarray, "3"]) -> Float[np.ndarray, "n 3"]:
        """Returns where places on the print are, if it is wider, higher and further out than it should be."""
        return se3.transform(self._T, np.column_stack([p * (1.0 + off[:2]), np.full(len(p), off[2])]))

    def draw(self, camera: Camera, sigma: float) -> tuple[Float[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]:
        """Returns the blurred drawing, 0 to 255, and where it is not touched by what lies around the board."""
        assert camera.T_world_camera is not None
        T = se3.inverse(camera.T_world_camera) @ self._T
        fine = np.array([[_FINE, 0, 0.5 * _FINE - 0.5], [0, _FINE, 0.5 * _FINE - 0.5], [0, 0, 1]])
        H = fine @ camera.K @ np.column_stack([T[:3, 0], T[:3, 1], T[:3, 3]]) @ self._S
        h, w = self._tile.shape
        ends = np.array([[0, 0, 1], [w, 0, 1], [w, h, 1], [0, h, 1]], dtype=np.float64) @ H.T
        out = np.full((camera.height, camera.width), 128.0, np.float32)
        inside = np.zeros((camera.height, camera.width), bool)
        if (ends[:, 2] <= 0).any():
            return out, inside
        uv = ends[:, :2] / ends[:, 2:] / _FINE
        margin = 4
        low = np.clip(np.floor(uv.min(axis=0)).astype(int) - margin, 0, [camera.width, camera.height])
        high = np.clip(np.ceil(uv.max(axis=0)).astype(int) + margin, 0, [camera.width, camera.height])
        width, height = high - low
        if min(width, height) < 8:
            return out, inside
        shift = np.array([[1, 0, -_FINE * low[0]], [0, 1, -_FINE * low[1]], [0, 0, 1]], dtype=np.float64)
        size = (int(_FINE * width), int(_FINE * height))
        drawn = cv2.warpPerspective(self._tile, shift @ H, size, flags=cv2.INTER_LINEAR, borderValue=(128.0,))
        cover = cv2.warpPerspective(np.full_like(self._tile, 255), shift @ H, size, flags=cv2.INTER_NEAREST)
        box = np.s_[low[1] : high[1], low[0] : high[0]]
        small = cv2.resize(drawn, (int(width), int(height)), interpolation=cv2.INTER_AREA).astype(np.float32)
        out[box] = cv2.GaussianBlur(small, (0, 0), sigma)
        whole = cv2.resize(cover, (int(width), int(height)), interpolation=cv2.INTER_AREA) == 255
        reach = 2 * int(np.ceil(2 * sigma)) + 1
        inside[box] = cv2.erode(whole.astype(np.uint8), np.ones((reach, reach), np.uint8), borderValue=(0,)) > 0
        return out, inside


def _gain(p: np.ndarray, image: np.ndarray) -> tuple[float, float]:
    """Brightness and contrast by robust regression: what covers the board does not count."""
    gain, offset = 1.0, 0.0
    weight = np.ones_like(p)
    for _ in range(5):
        A = np.column_stack([p, np.ones_like(p)])
        gain, offset = np.linalg.solve((A * weight[:, None]).T @ A + 1e-6 * np.eye(2), (A * weight[:, None]).T @ image)
        weight, _ = tukey(image - gain * p - offset)
    return float(gain), float(offset)
