"""A picture with the camera that took it and where it stood: what reconstruction starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera


@dataclass(frozen=True, eq=False)
class View:
    """One picture of a scene."""

    name: str
    camera: Camera
    """Its calibration; the picture is undistorted (a pinhole camera) once it is a view."""
    T_world_camera: Float[np.ndarray, "4 4"]
    """OpenCV axes: x right, y down, z forward."""
    rgb: UInt8[np.ndarray, "h w 3"]
    mask: Bool[np.ndarray, "h w"] | None = None
    """Where the object is."""
    unknown: Bool[np.ndarray, "h w"] | None = None
    """Pixels that say nothing about it: those of another object, which may hide it."""
    behind: Float[np.ndarray, "h w 3"] | None = None
    """What would be seen without it, RGB from 0 to 1."""

    def pixels(self, points: Float[np.ndarray, "n 3"]) -> tuple[Int[np.ndarray, "n 2"], Bool[np.ndarray, " n"]]:
        """Returns the pixel x y of each point in the world, and whether it is in the picture; something may hide it."""
        uv = self.camera.project(se3.transform(se3.inverse(self.T_world_camera), points))
        xy = np.rint(np.nan_to_num(uv, nan=-1.0)).astype(int)
        inside = (xy >= 0) & (xy < [self.camera.width, self.camera.height])
        return xy, np.asarray(inside.all(axis=1))
