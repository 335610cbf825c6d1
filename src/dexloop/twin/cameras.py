"""Located pictures: in metres, with the table as the plane z = 0, and with a verdict on how well they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core.camera import Camera
from dexloop.core.status import Level, Status, worst
from dexloop.vision.views import View

FEWEST_FRAMES = 8
"""Pictures below which there is no scan."""


@dataclass(frozen=True)
class KnownLength:
    """Two marks on the table in one picture, and how far they are apart."""

    frame: str
    """The picture's name."""
    a_px: tuple[float, float]
    b_px: tuple[float, float]
    metres: float


@dataclass(frozen=True)
class CameraQuality:
    """How well the cameras are known."""

    given: int
    """Pictures that were tried."""
    located: int
    """Pictures whose place was found."""
    with_board: int
    """Pictures that show the board."""
    reprojection_px: float
    """Root mean square distance of features from where they should be, outliers left out [px]."""
    board_px: float | None
    """The same for the board's corners [px]."""
    position_sd_m: float | None
    """Of a camera, median [m]."""
    scale_sd: float
    """Relative standard deviation of all lengths [1]."""
    around: float
    """Part of the full circle around the object that was seen, in steps of 30 degrees [1]."""
    widest_gap_deg: float
    """Between neighbouring viewing directions around the vertical [degrees]."""

    def to_json(self) -> dict[str, float | int | None]:
        """Returns plain JSON values."""
        return {k: getattr(self, k) for k in self.__dataclass_fields__}


@dataclass(frozen=True, eq=False)
class Cameras:
    """Located pictures. The world's z axis points up, and the table is the plane z = 0."""

    views: tuple[View, ...]
    """Undistorted, in the order of the scan."""
    points: Float[np.ndarray, "p 3"]
    """Points that several pictures share [m]."""
    colours: UInt8[np.ndarray, "p 3"]
    target: Float[np.ndarray, "3"]
    """What the cameras look at: the point nearest to all optical axes [m]."""
    quality: CameraQuality
    statuses: tuple[Status, ...]

    @property
    def status(self) -> Status:
        """The worst of what was found."""
        q = self.quality
        text = f"{q.located} of {q.given} pictures located, {q.reprojection_px:.2f} px"
        return worst(self.statuses, otherwise=Status(Level.OK, "located", text))


def look_at_point(views: Sequence[View]) -> Float[np.ndarray, "3"]:
    """Returns the point that is nearest to all optical axes [m]."""
    T = np.stack([v.T_world_camera for v in views])
    across = np.eye(3) - T[:, :3, 2, None] * T[:, None, :3, 2]
    return np.linalg.solve(across.sum(axis=0), (across @ T[:, :3, 3:]).sum(axis=0))[:, 0]


def table_points(view: View, px: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 3"]:
    """Returns where pixels see the plane z = 0 [m]; NaN where they look above the horizon."""
    d = view.camera.unproject(px, np.ones(len(px))) @ view.T_world_camera[:3, :3].T
    eye = view.T_world_camera[:3, 3]
    s = np.where(d[:, 2] < -1e-9, -eye[2] / np.minimum(d[:, 2], -1e-9), np.nan)
    return eye + s[:, None] * d


def straighten(
    rgb: UInt8[np.ndarray, "h w 3"], camera: Camera, bend: Float[np.ndarray, " 5"]
) -> tuple[UInt8[np.ndarray, "h w 3"], Camera]:
    """Takes the lens's bend (OpenCV's k1 k2 p1 p2 k3) out of a picture; no border shows what was not seen."""
    import cv2

    corner = np.array([[0.0, 0.0], [camera.width - 1.0, camera.height - 1.0]])
    x = (corner - [camera.cx, camera.cy]) / [camera.fx, camera.fy]
    r2 = np.sum(x**2, axis=1)
    shift = np.abs(bend[0] * r2 + bend[1] * r2**2 + bend[4] * r2**3).max() * camera.fx * np.sqrt(r2.max())
    if shift + np.abs(bend[2:4]).max() * camera.fx < 0.05:
        return rgb, camera
    size = (camera.width, camera.height)
    K, _ = cv2.getOptimalNewCameraMatrix(camera.K, bend, size, 0.0, size)
    maps = cv2.initUndistortRectifyMap(camera.K, bend, np.eye(3), K, size, cv2.CV_32FC1)
    straight = cv2.remap(rgb, *maps, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return straight, replace(camera, fx=float(K[0, 0]), fy=float(K[1, 1]), cx=float(K[0, 2]), cy=float(K[1, 2]))


def assess(
    views: Sequence[View],
    points: Float[np.ndarray, "p 3"],
    colours: UInt8[np.ndarray, "p 3"],
    *,
    given: int,
    statuses: Sequence[Status] = (),
    **numbers: Any,
) -> Cameras:
    """Returns cameras with their quality, of which `numbers` are fields, and with what is to be said about them."""
    target = look_at_point(views)
    eyes = np.stack([v.T_world_camera[:3, 3] for v in views]) - target
    angle = np.degrees(np.arctan2(eyes[:, 1], eyes[:, 0])) % 360
    gap = float(np.diff(np.sort(np.concatenate([angle, [angle.min() + 360]]))).max())
    around = len(np.unique((angle // 30).astype(int))) / 12
    quality = CameraQuality(given=given, located=len(views), around=around, widest_gap_deg=gap, **numbers)
    found = list(statuses)
    if quality.located < 0.9 * given:
        found.append(
            Status(
                Level.WARN,
                "not_located",
                f"{given - quality.located} of {given} pictures could not be located and are left out",
                "film in one slow walk, without jumps, if a side of the object is missing",
            )
        )
    if gap > 75.0:
        found.append(
            Status(
                Level.WARN,
                "one_sided",
                f"nobody looked at the object over {gap:.0f} degrees around it",
                "walk all the way around it: what was not seen is guessed",
            )
        )
    if quality.reprojection_px > 1.0:
        found.append(
            Status(
                Level.WARN,
                "imprecise",
                f"features are {quality.reprojection_px:.1f} px from where they should be",
                "keep everything but the camera still, and hold it steady",
            )
        )
    return Cameras(tuple(views), points, colours, target, quality, tuple(found))
