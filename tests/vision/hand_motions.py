"""A made hand that moves before a camera, and what a perfect MediaPipe would say of it."""

from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.vision.hand_skeleton import ANGLES_MEAN, LENGTHS, Posture
from dexloop.vision.hands import HandTrack

HAND_M = 0.085
FPS = 20.0


def camera() -> Camera:
    eye, target = np.array([-0.45, -0.4, 0.35]), np.array([0.0, 0.0, 0.08])
    return Camera.from_fov("phone", 640, 480, 0.8, se3.look_at(eye, target))


def posture(n: int = 40, *, stretch: float = 0.0, seed: int = 3) -> Posture:
    """A right hand that comes from 0.7 m to 0.55 m, turns a little and closes; in the camera's frame."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 1.0, n)[:, None]
    s = x**3 * (10 + x * (6 * x - 15))
    turn = se3.so3_exp(np.array([0.3, -2.0, 0.4]) + s * [0.2, 0.3, -0.2])
    lengths = HAND_M * LENGTHS * np.exp(stretch * rng.normal(size=(5, 4)))
    lengths[2, 0] = HAND_M
    closing = np.array([[0.1, 0.2, 0.1, 0.1], *[[0.0, 0.4, 0.3, 0.2]] * 4])
    angles = ANGLES_MEAN + (s[:, :, None] - 0.5) * closing
    wrist = np.array([-0.1, -0.08, 0.7]) + s * [0.12, 0.1, -0.15]
    return Posture(wrist, se3.quat_to_matrix(turn), angles, lengths)


def track(hand: Posture, of: Camera, *, right: bool = True, noise_px: float = 0.0, seed: int = 0) -> HandTrack:
    """What would be seen; a left hand is the mirror image."""
    points, n = hand.landmarks(), len(hand.wrist)
    pixels = of.project(points) + noise_px * np.random.default_rng(seed).normal(size=(n, 21, 2))
    shape = points - points.mean(axis=1, keepdims=True)
    if not right:
        pixels = np.stack([2 * of.cx - pixels[..., 0], pixels[..., 1]], axis=-1)
        shape = shape * [-1.0, 1.0, 1.0]
    return HandTrack(np.ones(n, bool), pixels, shape, np.full(n, right), np.full(n, 0.95))


def times(n: int = 40) -> np.ndarray:
    return np.arange(n) / FPS
