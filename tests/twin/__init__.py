"""A small scan whose truth is known exactly: boxes on a printed table, drawn by homographies alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.lab.prints import mat_texture
from dexloop.twin.frames import Frame
from dexloop.vision.board import Board
from dexloop.vision.views import View

CAMERA = Camera.from_fov("phone", 400, 300, 0.85)
BOARD = Board(square_m=0.05, marker_m=0.038)
BOARD_AT = (0.16, 0.16)
_PX_PER_M = 1100.0
_FINE = 2


@dataclass(frozen=True)
class Box:
    """An upright box on the table."""

    at: tuple[float, float]
    size: tuple[float, float, float]
    turn: float
    hue: int

    def corners(self) -> np.ndarray:
        """Its eight corners in the world [m]: bit 0 is x, bit 1 is y, bit 2 is z."""
        unit = np.array([[k & 1, k >> 1 & 1, k >> 2 & 1] for k in range(8)]) - [0.5, 0.5, 0.0]
        R = se3.quat_to_matrix(se3.so3_exp(np.array([0.0, 0.0, self.turn])))
        return unit * self.size @ R.T + [*self.at, 0.0]


BOXES = (Box((0.0, 0.0), (0.08, 0.06, 0.09), 0.4, 0), Box((-0.13, -0.02), (0.05, 0.05, 0.05), 1.0, 110))
_FACES = ((4, 5, 7, 6), (0, 1, 5, 4), (1, 3, 7, 5), (3, 2, 6, 7), (2, 0, 4, 6))


@cache
def table() -> tuple[np.ndarray, np.ndarray]:
    """The print, and T_world_board."""
    mat = mat_texture(BOARD, board_at=BOARD_AT, px_per_m=_PX_PER_M)
    return mat.texture, mat.T_mat_board


def path(n: int, *, distance: float = 0.42) -> np.ndarray:
    """T_world_camera of a walk around the table's middle."""
    s = np.arange(n) / n
    eyes = [
        distance * np.array([np.cos(h) * np.cos(a), np.cos(h) * np.sin(a), np.sin(h)])
        for a, h in zip(2 * np.pi * s + 0.3, np.radians(45 + 12 * np.sin(4 * np.pi * s)), strict=True)
    ]
    return np.stack([se3.look_at(e, np.array([-0.02, 0.0, 0.03])) for e in eyes])


def shoot(T: np.ndarray, camera: Camera, boxes: tuple[Box, ...] = BOXES, *, seed: int = 0) -> tuple[View, np.ndarray]:
    """Takes a picture; also returns which box each pixel shows, from 1, and 0 for none."""
    texture, _ = table()
    h, w = texture.shape[:2]
    big = (camera.width * _FINE, camera.height * _FINE)
    # Pixel centres are at whole numbers, at both sizes.
    finer = np.array([[_FINE, 0, (_FINE - 1) / 2], [0, _FINE, (_FINE - 1) / 2], [0, 0, 1.0]])
    P = finer @ camera.K @ se3.inverse(T)[:3]
    print_to_world = np.array(
        [[1 / _PX_PER_M, 0, -(w - 1) / 2 / _PX_PER_M], [0, -1 / _PX_PER_M, (h - 1) / 2 / _PX_PER_M], [0, 0, 1.0]]
    )
    drawn = cv2.warpPerspective(texture, P[:, [0, 1, 3]] @ print_to_world, big, borderValue=(120, 118, 112))
    label = np.zeros(big[::-1], np.uint8)
    eye = T[:3, 3]
    for k, box in sorted(enumerate(boxes, start=1), key=lambda b: -np.linalg.norm(eye[:2] - b[1].at)):
        corners = box.corners()
        for f, face in enumerate(_FACES):
            p = corners[list(face)]
            if np.cross(p[1] - p[0], p[2] - p[0]) @ (eye - p[0]) <= 0:
                continue
            q = p @ P[:, :3].T + P[:, 3]
            uv = (q[:, :2] / q[:, 2:]).astype(np.float32)
            paint = _paint(box.hue, f)
            n = len(paint)
            H = cv2.getPerspectiveTransform(np.float32([[0, 0], [n - 1, 0], [n - 1, n - 1], [0, n - 1]]), uv)
            inside = (
                cv2.fillConvexPoly(np.zeros(big[::-1], np.uint8), np.rint(uv * 16).astype(np.int32), 1, shift=4) > 0
            )
            drawn[inside] = cv2.warpPerspective(paint, H, big, borderMode=cv2.BORDER_REPLICATE)[inside]
            label[inside] = k
    rgb = cv2.resize(drawn, (camera.width, camera.height), interpolation=cv2.INTER_AREA)
    noise = np.random.default_rng(seed).normal(0, 1.5, rgb.shape)
    small = label[_FINE // 2 :: _FINE, _FINE // 2 :: _FINE]
    return View(f"v{seed:03d}", camera, T, np.clip(rgb + noise, 0, 255).astype(np.uint8)), small


@cache
def scan(n: int = 14) -> tuple[list[Frame], np.ndarray]:
    """A scan, and T_world_camera of its pictures."""
    T = path(n)
    views = [shoot(pose, CAMERA, seed=k)[0] for k, pose in enumerate(T)]
    return [Frame(v.name, k, v.rgb, CAMERA, 1.0) for k, v in enumerate(views)], T


def errors_m(views: tuple[View, ...], T: np.ndarray) -> np.ndarray:
    return np.array([np.linalg.norm(v.T_world_camera[:3, 3] - T[int(v.name[1:])][:3, 3]) for v in views])


@cache
def _paint(hue: int, face: int) -> np.ndarray:
    """A checked pattern of one hue."""
    rng = np.random.default_rng([hue, face])
    hsv = np.zeros((8, 8, 3), np.uint8)
    hsv[..., 0] = (hue + rng.integers(0, 12, (8, 8))) % 180
    hsv[..., 1] = rng.integers(160, 255, (8, 8))
    hsv[..., 2] = rng.integers(90, 220, (8, 8))
    return cv2.resize(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), (96, 96), interpolation=cv2.INTER_NEAREST)
