from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.sim.parts import FixedCamera, Light, Table
from dexloop.sim.render import Renderer
from dexloop.sim.scene import SceneCfg, compose
from dexloop.vision.board import Board
from dexloop.vision.calibration import calibrate, moved

BOARD = Board(square_m=0.05, marker_m=0.038)
PRINTED = np.diag([1.0, 1.0, 1.0, 1.0]) + np.array([[0, 0, 0, 0]] * 2 + [[0, 0, 0, 2e-4], [0, 0, 0, 0]])
"""T_world_board: a hair above the table."""
TRUE = Camera.from_fov("fixed", 640, 480, 0.7, se3.look_at(np.array([0.35, -0.45, 0.4]), np.array([0.02, 0.01, 0.0])))
OFF = np.array([0.001, -0.0008, 0.0012, 0.002, -0.0015, 0.002, 0.004])
"""How far the nominal calibration is off."""


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    """The board on a table, with something dark that hides a quarter of it."""
    paper = np.full((900, 1200, 3), 200, dtype=np.uint8)
    tile = BOARD.image(2000.0)
    y, x = (paper.shape[0] - tile.shape[0]) // 2, (paper.shape[1] - tile.shape[1]) // 2
    paper[y : y + tile.shape[0], x : x + tile.shape[1]] = tile[..., None]
    scene = compose(
        Table(size_m=(0.60, 0.45), texture=paper),
        Light("lamp", (0.5, -0.4, 1.5), ambient=(0.1,) * 3),
        FixedCamera(TRUE),
        cfg=SceneCfg(samples=4),
    )
    data = mujoco.MjData(scene.model)
    mujoco.mj_forward(scene.model, data)
    with Renderer(scene.model, TRUE.width, TRUE.height) as renderer:
        seen = renderer.rgb(data, "fixed").copy()
    corner = TRUE.project_world(np.array([0.1, -0.05, 0.0])).astype(int)
    seen[corner[1] - 50 : corner[1] + 50, corner[0] - 60 : corner[0] + 60] = 40
    return seen


def test_finds_the_true_camera_behind_something_that_hides_the_board(picture: np.ndarray):
    nominal = moved(TRUE, -OFF)
    found = calibrate([picture], nominal, BOARD, PRINTED)
    assert found.refined
    # What counts is where things near the board are seen.
    points = np.array([[x, y, z] for x in (-0.1, 0.0, 0.1) for y in (-0.1, 0.1) for z in (0.0, 0.05)])
    before = np.linalg.norm(nominal.project_world(points) - TRUE.project_world(points), axis=1)
    after = np.linalg.norm(found.camera.project_world(points) - TRUE.project_world(points), axis=1)
    assert np.median(before) > 1.0
    assert np.max(after) < 0.4
    assert found.camera.T_world_camera is not None
    assert TRUE.T_world_camera is not None
    error = np.append(
        se3.log(se3.inverse(found.camera.T_world_camera) @ TRUE.T_world_camera), np.log(TRUE.fx / found.camera.fx)
    )
    assert error @ np.linalg.solve(found.covariance, error) < 18.5  # 99 % of chi² with 7 degrees of freedom


def test_without_the_board_the_camera_stays_as_it_was():
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
    found = calibrate([noise], TRUE, BOARD, np.eye(4))
    assert not found.refined
    assert found.camera == TRUE
    behind = se3.from_rt(np.eye(3), np.array([0.0, 0.0, 5.0]))
    found = calibrate([noise], TRUE, BOARD, behind)
    assert found.correlation == 0.0
    assert found.camera == TRUE


def test_mistakes_are_named(picture: np.ndarray):
    with pytest.raises(InputError, match="'fixed' has no place"):
        calibrate([picture], replace(TRUE, T_world_camera=None), BOARD, np.eye(4))
    with pytest.raises(InputError, match="no picture"):
        calibrate([], TRUE, BOARD, np.eye(4))
    with pytest.raises(InputError, match="640 x 480"):
        calibrate([picture[:100]], TRUE, BOARD, np.eye(4))
