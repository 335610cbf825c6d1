from __future__ import annotations

import cv2
import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.lab.prints import SIZE_M, Mat, mat_texture
from dexloop.sim.parts import FixedCamera, Table
from dexloop.sim.render import Renderer
from dexloop.sim.scene import compose
from dexloop.vision.board import Board


@pytest.fixture(scope="module")
def mat() -> Mat:
    return mat_texture(Board())


def test_board_lies_where_the_mat_says(mat: Mat):
    T_world_camera = se3.look_at(np.array([-0.1, -0.35, 0.45]), np.array([-0.2, 0.15, 0.0]))
    camera = Camera.from_fov("fixed", 640, 480, np.radians(50), T_world_camera)
    scene = compose(Table(size_m=mat.size_m, texture=mat.texture), FixedCamera(camera))
    data = mujoco.MjData(scene.model)
    mujoco.mj_forward(scene.model, data)
    with Renderer(scene.model, 640, 480) as renderer:
        view = Board().detect(renderer.rgb(data, "fixed"), camera)
    assert view is not None
    error = se3.inverse(mat.T_mat_board) @ T_world_camera @ view.T_camera_board
    assert np.linalg.norm(error[:3, 3]) < 1e-3
    assert np.degrees(np.linalg.norm(se3.log(error)[3:])) < 0.3


def test_every_hand_breadth_has_something_to_hold_on_to(mat: Mat):
    """Structure from motion needs corners everywhere, not only where the pattern is busy."""
    grey = cv2.cvtColor(mat.texture, cv2.COLOR_RGB2GRAY)
    small = cv2.resize(grey, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    cell = round(0.08 / SIZE_M[0] * small.shape[1])
    for y in range(0, small.shape[0] - cell, cell):
        for x in range(0, small.shape[1] - cell, cell):
            corners = cv2.goodFeaturesToTrack(small[y : y + cell, x : x + cell], 100, 0.1, 4)
            assert corners is not None
            assert len(corners) >= 10, (x, y)


def test_no_place_looks_like_another(mat: Mat):
    grey = cv2.cvtColor(mat.texture, cv2.COLOR_RGB2GRAY)
    small = cv2.resize(grey, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    size = round(0.07 / SIZE_M[0] * small.shape[1])
    for x_m, y_m in ((0.0, 0.0), (0.1, 0.05), (-0.3, -0.1), (0.3, 0.15), (0.05, 0.3), (-0.1, -0.3), (0.25, -0.1)):
        x = round((x_m / SIZE_M[0] + 0.5) * small.shape[1]) - size // 2
        y = round((0.5 - y_m / SIZE_M[1]) * small.shape[0]) - size // 2
        likeness = cv2.matchTemplate(small, small[y : y + size, x : x + size], cv2.TM_CCOEFF_NORMED)
        assert likeness[y, x] > 0.99
        likeness[max(0, y - 5) : y + 6, max(0, x - 5) : x + 6] = -1.0
        assert likeness.max() < 0.75


def test_another_seed_is_another_town(mat: Mat):
    other = mat_texture(Board(), px_per_m=1000.0, seed=3)
    same = mat_texture(Board(), px_per_m=1000.0)
    assert other.texture.shape == (700, 900, 3)
    assert np.abs(other.texture.astype(int) - same.texture).mean() > 10


def test_a_board_beside_the_mat_is_refused():
    with pytest.raises(ValueError, match="does not lie on the mat"):
        mat_texture(Board(), board_at=(0.4, 0.0), px_per_m=500.0)
