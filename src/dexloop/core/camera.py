"""Pinhole cameras in the OpenCV convention: x right, y down, z forward; pixel centres at whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core import se3


@dataclass(frozen=True, eq=False)
class Camera:
    """A calibrated camera: intrinsics in pixels and, if known, where it stands."""

    name: str
    width: int
    """[px]"""
    height: int
    """[px]"""
    fx: float
    """Focal length [px]."""
    fy: float
    """Focal length [px]."""
    cx: float
    """Principal point [px]; the image centre is (width - 1) / 2."""
    cy: float
    """Principal point [px]."""
    T_world_camera: Float[np.ndarray, "4 4"] | None = None
    """Maps camera coordinates (OpenCV axes) to the world; None if the camera moves or was never located."""

    def __eq__(self, other: object) -> bool:
        # Written out because comparing the pose, an array, gives an array.
        return self.to_json() == other.to_json() if isinstance(other, Camera) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.width, self.height, self.fx, self.fy, self.cx, self.cy))

    @property
    def K(self) -> Float[np.ndarray, "3 3"]:
        """The intrinsic matrix [px]."""
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])

    def project(self, p_camera: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 2"]:
        """Returns the pixels of points in camera coordinates; NaN behind the camera."""
        z = np.where(p_camera[..., 2] > 0, p_camera[..., 2], np.nan)
        return np.stack([self.fx * p_camera[..., 0] / z + self.cx, self.fy * p_camera[..., 1] / z + self.cy], axis=-1)

    def unproject(self, uv: Float[np.ndarray, "*n 2"], depth: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n 3"]:
        """Returns points in camera coordinates of pixels and their depth along z [m]."""
        return np.stack(
            [(uv[..., 0] - self.cx) / self.fx * depth, (uv[..., 1] - self.cy) / self.fy * depth, depth], axis=-1
        )

    def project_world(self, p_world: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 2"]:
        """Returns the pixels of world points; the camera must be located."""
        if self.T_world_camera is None:
            raise ValueError(f"camera {self.name!r} has no T_world_camera")
        return self.project(se3.transform(se3.inverse(self.T_world_camera), p_world))

    @staticmethod
    def from_fov(
        name: str,
        width: int,
        height: int,
        fov_y_rad: float,
        T_world_camera: Float[np.ndarray, "4 4"] | None = None,
    ) -> Camera:
        """Makes a camera with square pixels and a centred principal point from its vertical field of view [rad]."""
        f = 0.5 * height / float(np.tan(0.5 * fov_y_rad))
        return Camera(name, width, height, f, f, 0.5 * (width - 1), 0.5 * (height - 1), T_world_camera)

    def resized(self, width: int, height: int) -> Camera:
        """Returns the camera of the same pictures at another size [px]."""
        sx, sy = width / self.width, height / self.height
        return replace(
            self, width=width, height=height, fx=self.fx * sx, fy=self.fy * sy, cx=(self.cx + 0.5) * sx - 0.5,
            cy=(self.cy + 0.5) * sy - 0.5,
        )  # fmt: skip

    def cropped(self, left: int, top: int, width: int, height: int) -> Camera:
        """Returns the camera that sees only a region of the picture [px]; the region may reach beyond it."""
        return replace(self, width=width, height=height, cx=self.cx - left, cy=self.cy - top)

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        pose = None if self.T_world_camera is None else np.asarray(self.T_world_camera).tolist()
        numbers = {k: getattr(self, k) for k in ("name", "width", "height", "fx", "fy", "cx", "cy")}
        return {**numbers, "T_world_camera": pose}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Camera:
        """Reads what `to_json` wrote."""
        pose = data.get("T_world_camera")
        return Camera(**{**data, "T_world_camera": None if pose is None else np.asarray(pose, dtype=np.float64)})
