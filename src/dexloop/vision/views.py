"""A picture with the camera that took it and where it stood: what reconstruction starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8

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
