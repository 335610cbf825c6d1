"""How light falls on a surface: irradiance as a smooth function of the normal, nine numbers for any far light."""

from __future__ import annotations

import cv2
import numpy as np
from jaxtyping import Bool, Float

from dexloop.core.camera import Camera

TERMS = 9
"""Spherical harmonics up to order two: a matt surface shows 99 % of what far lamps do (Ramamoorthi, Hanrahan 2001)."""


def even_light() -> Float[np.ndarray, " 9"]:
    """Returns the light that changes nothing."""
    return np.array([1.0] + [0.0] * (TERMS - 1))


def normals_world(
    depth: Float[np.ndarray, "h w"], mask: Bool[np.ndarray, "h w"], camera: Camera
) -> Float[np.ndarray, "h w 3"]:
    """Returns surface normals in world axes, pointing at the camera, from a depth picture [m]; 0 outside the mask."""
    assert camera.T_world_camera is not None
    h, w = depth.shape
    u, v = np.meshgrid(np.arange(w, dtype=np.float32), np.arange(h, dtype=np.float32))
    p = np.stack([(u - camera.cx) / camera.fx * depth, (v - camera.cy) / camera.fy * depth, depth], axis=-1)
    dx, dy = (_difference(p.astype(np.float32), mask, axis) for axis in (1, 0))
    n = np.cross(dy, dx)
    length = np.linalg.norm(n, axis=-1, keepdims=True)
    n = np.where(mask[..., None] & (length > 0), n / np.maximum(length, 1e-12), 0.0)
    return n @ camera.T_world_camera[:3, :3].T.astype(np.float32)


def _difference(p: Float[np.ndarray, "h w 3"], mask: Bool[np.ndarray, "h w"], axis: int) -> Float[np.ndarray, "h w 3"]:
    """Differences along an axis that stay on one surface: of the two sides, the one on which depth changes less."""
    ahead = np.diff(p, axis=axis, append=p[-1:] if axis == 0 else p[:, -1:])
    behind = np.roll(ahead, 1, axis)
    on = mask & np.roll(mask, -1, axis)
    jump = np.where(on, np.abs(ahead[..., 2]), np.inf)
    nearer = jump <= np.where(np.roll(on, 1, axis), np.abs(behind[..., 2]), np.inf)
    return np.where(nearer[..., None], ahead, behind)


def harmonics(normals: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w 9"]:
    """Returns the nine real spherical harmonics of unit normals, scaled so that each is of order one."""
    x, y, z = np.moveaxis(normals, -1, 0)
    one = np.ones_like(x)
    return np.stack([one, x, y, z, x * y, y * z, x * z, x * x - y * y, 1.5 * z * z - 0.5], axis=-1)


def turning(normals: Float[np.ndarray, "h w 3"], light: Float[np.ndarray, " 9"]) -> Float[np.ndarray, "h w 3"]:
    """Returns n x dS/dn of the irradiance S = light · harmonics(n): how it changes as the surface turns.

    A surface that turns by a small w (world axes) has its normals moved by w x n, and S by w · (n x dS/dn).
    """
    x, y, z = np.moveaxis(normals, -1, 0)
    slope = np.stack(
        [
            light[1] + light[4] * y + light[6] * z + 2.0 * light[7] * x,
            light[2] + light[4] * x + light[5] * z - 2.0 * light[7] * y,
            light[3] + light[5] * y + light[6] * x + 3.0 * light[8] * z,
        ],
        axis=-1,
    )
    return np.cross(normals, slope.astype(normals.dtype))


def extend(values: Float[np.ndarray, "h w"], mask: Bool[np.ndarray, "h w"], reach: int) -> Float[np.ndarray, "h w"]:
    """Continues positive values outside the mask with the nearest (smallest) one within `reach` pixels; 0 beyond."""
    inverse = np.where(mask, 1.0 / np.where(mask, values, 1.0), 0.0).astype(np.float32)
    grown = cv2.dilate(inverse, np.ones((2 * reach + 1, 2 * reach + 1), np.uint8))
    filled = np.where(mask, inverse, grown)
    return np.where(filled > 0, 1.0 / np.where(filled > 0, filled, 1.0), 0.0).astype(np.float32)


def fill(values: Float[np.ndarray, "h w"], mask: Bool[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Continues values outside the mask, by two pixels, with the mean of what is near; 0 beyond."""
    inside = mask.astype(np.float32)
    weight = cv2.blur(inside, (5, 5))
    mean = cv2.blur(np.where(mask, values, 0.0).astype(np.float32), (5, 5)) / np.maximum(weight, 1e-6)
    return np.where(mask, values, np.where(weight > 1e-3, mean, 0.0)).astype(np.float32)
