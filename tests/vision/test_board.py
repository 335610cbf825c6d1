from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.parts import FixedCamera, Light, Table
from dexloop.sim.render import Renderer
from dexloop.sim.scene import compose
from dexloop.vision.board import Board

MAT_M = (0.60, 0.45)
PX_PER_M = 2500.0


def _picture(board: Board, camera: Camera) -> np.ndarray:
    """The board in the middle of a white table."""
    paper = np.full((round(MAT_M[1] * PX_PER_M), round(MAT_M[0] * PX_PER_M), 3), 235, dtype=np.uint8)
    tile = board.image(PX_PER_M)
    y, x = (paper.shape[0] - tile.shape[0]) // 2, (paper.shape[1] - tile.shape[1]) // 2
    paper[y : y + tile.shape[0], x : x + tile.shape[1]] = tile[..., None]
    scene = compose(
        Table(size_m=MAT_M, texture=paper), Light("lamp", (0.5, -0.4, 1.5), ambient=(0.3,) * 3), FixedCamera(camera)
    )
    data = mujoco.MjData(scene.model)
    mujoco.mj_forward(scene.model, data)
    with Renderer(scene.model, camera.width, camera.height) as renderer:
        return renderer.rgb(data, camera.name)


@pytest.mark.parametrize(
    ("eye", "board"),
    [
        ((0.30, -0.45, 0.50), Board()),
        ((-0.35, 0.30, 0.45), Board()),
        ((0.02, -0.20, 0.60), Board(7, 5, 0.03, 0.022, "DICT_5X5_100")),
    ],
)
def test_pose_of_a_board_on_a_table(eye: tuple[float, float, float], board: Board):
    T_world_camera = se3.look_at(np.array(eye), np.array([0.02, 0.01, 0.0]))
    camera = Camera.from_fov("fixed", 640, 480, np.radians(45), T_world_camera)
    view = board.detect(_picture(board, camera), camera)
    assert view is not None
    lift = se3.from_rt(np.eye(3), np.array([0.0, 0.0, 2e-4]))  # the print lies a hair above the table
    error = se3.inverse(se3.inverse(T_world_camera) @ lift) @ view.T_camera_board
    assert np.linalg.norm(error[:3, 3]) < 1e-3
    assert np.degrees(np.linalg.norm(se3.log(error)[3:])) < 0.3
    assert view.rms_px < 0.3
    seen = camera.project(se3.transform(view.T_camera_board, view.corners_board))
    np.testing.assert_allclose(seen, view.corners_px, atol=1.0)


def test_no_board_no_pose():
    camera = Camera.from_fov("fixed", 320, 240, 0.8)
    noise = np.random.default_rng(0).integers(0, 255, (240, 320, 3), dtype=np.uint8)
    assert Board().detect(noise, camera) is None


def test_image_has_the_printed_size_and_both_colours():
    board = Board()
    picture = board.image(1000.0)
    assert picture.shape == (160, 240)
    assert set(np.unique(picture)) == {0, 255}


def test_json_round_trip():
    board = Board(5, 7, 0.035, 0.026, "DICT_5X5_100")
    assert Board.from_json(board.to_json()) == board


def test_mistakes_are_named():
    with pytest.raises(InputError, match="markers must be smaller"):
        Board(marker_m=0.05)
    with pytest.raises(InputError, match="3 x 3"):
        Board(squares_x=2)
    with pytest.raises(UnknownName, match="DICT_4X4_50"):
        Board(dictionary="DICT_4X4_51").image(1000.0)
    with pytest.raises(InputError, match="320 x 240 px but camera 'c' has 640 x 480"):
        Board().detect(np.zeros((240, 320, 3), np.uint8), Camera.from_fov("c", 640, 480, 0.8))
