"""Looks for a lost object all over a frame, by the correlation of its last look with every place."""

from __future__ import annotations

import cv2
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.vision.alignment import Region, Scene

_SHRINK = 4
_PLACES = 3
"""Most promising places that are returned."""
_TURNS_RAD = (0.0, 0.5, -0.5)
"""Turns about the vertical in which the object is looked for."""
_FEWEST = 20
"""Pixels of the reduced object below which there is nothing to compare."""


def search(scene: Scene, T_last: Float[np.ndarray, "4 4"], region: Region) -> list[Float[np.ndarray, "4 4"]]:
    """Returns poses T_world_object worth a closer look, best first: the object at its last height, somewhere else.

    Args:
        scene: The frame.
        T_last: Where the object was last.
        region: The part of the picture around that place.
    """
    frame = _small(scene.grey)
    camera = scene.camera.cropped(*region)
    found: list[tuple[float, np.ndarray]] = []
    for turn in _TURNS_RAD:
        T = T_last.copy()
        T[:3, :3] = se3.quat_to_matrix(se3.so3_exp(np.array([0.0, 0.0, turn]))) @ T[:3, :3]
        view = scene.appearance.render(camera, T)
        patch = _small(cv2.cvtColor(view.picture, cv2.COLOR_RGB2GRAY))
        mask = (_small(view.mask.astype(np.float32)) > 0.9).astype(np.float32)
        if mask.sum() < _FEWEST or patch.shape[0] > frame.shape[0] or patch.shape[1] > frame.shape[1]:
            continue
        likeness = cv2.matchTemplate(frame, patch, cv2.TM_CCOEFF_NORMED, mask=mask)
        likeness = np.where(np.isfinite(likeness), likeness, -1.0)
        for _ in range(_PLACES):
            row, column = np.unravel_index(int(np.argmax(likeness)), likeness.shape)
            shift = _SHRINK * np.array([column, row], dtype=np.float64) - np.array(region[:2])
            found.append((float(likeness[row, column]), _shifted(scene.camera, T, shift)))
            reach = max(min(patch.shape) // 4, 1)
            likeness[max(row - reach, 0) : row + reach + 1, max(column - reach, 0) : column + reach + 1] = -1.0
    found.sort(key=lambda item: -item[0])
    return [T for _, T in found[:_PLACES]]


def _small(picture: np.ndarray) -> Float[np.ndarray, "h w"]:
    size = (picture.shape[1] // _SHRINK, picture.shape[0] // _SHRINK)
    return cv2.resize(picture.astype(np.float32), size, interpolation=cv2.INTER_AREA)


def _shifted(camera: Camera, T: Float[np.ndarray, "4 4"], shift_px: Float[np.ndarray, "2"]) -> Float[np.ndarray, "4 4"]:
    """Moves the object in the picture: at its height, or at its distance where the line of sight never comes there."""
    assert camera.T_world_camera is not None
    p = T[:3, 3]
    depth = float(se3.transform(se3.inverse(camera.T_world_camera), p)[2])
    uv = camera.project_world(p) + shift_px
    there = se3.transform(camera.T_world_camera, camera.unproject(uv, np.array(depth)))
    eye = camera.T_world_camera[:3, 3]
    fall = there[2] - eye[2]
    if abs(fall) > 1e-6:
        far = (p[2] - eye[2]) / fall
        if 0.3 < far < 3.0:
            there = eye + far * (there - eye)
    out = T.copy()
    out[:3, 3] = there
    return out
