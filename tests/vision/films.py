"""Films of a known object on a printed table, with every pose known exactly: what the tracker's tests look at."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import mujoco
import numpy as np

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.lab.objects import make
from dexloop.sim.parts import FixedCamera, Light, Primitive, Table, Thing
from dexloop.sim.render import Renderer
from dexloop.sim.scene import SceneCfg, compose
from dexloop.sim.shape import Mesh, Shape
from dexloop.vision.appearance import MeshAppearance
from dexloop.vision.board import Board
from dexloop.vision.shading import normals_world
from dexloop.vision.splats import Splats

T_WORLD_BOARD = se3.from_rt(np.eye(3), np.array([-0.02, 0.14, 2e-4]))
"""Where `mat` has its board: the print lies a hair above the table."""
AWAY = (0.0, 0.0, -5.0, 1.0, 0.0, 0.0, 0.0)


def camera(width: int = 320, height: int = 240) -> Camera:
    """About 0.55 m from the middle of the table."""
    return Camera.from_fov("front", width, height, 0.6, se3.look_at(np.array([0.3, -0.38, 0.3]), np.zeros(3)))


def cube() -> Shape:
    return make("cube").shape


def splats_of(shape: Shape, n: int = 20_000) -> Splats:
    """Flat, solid splats where the surface of an object is seen from around it."""
    found = []
    with MeshAppearance(shape) as looks:
        for k in range(9):
            eye = 0.4 * np.array([np.cos(0.7 * k), np.sin(0.7 * k), 0.6])
            view_from = Camera.from_fov("around", 320, 320, 0.25, se3.look_at(eye, np.zeros(3)))
            view = looks.render(view_from, np.eye(4))
            normals = normals_world(view.depth, view.mask, view_from)
            rows, columns = np.nonzero(cv2.erode(view.mask.astype(np.uint8), np.ones((3, 3), np.uint8)))
            p = view_from.unproject(np.column_stack([columns, rows]).astype(float), view.depth[rows, columns])
            assert view_from.T_world_camera is not None
            p = se3.transform(view_from.T_world_camera, p)
            found.append(np.column_stack([p, view.picture[rows, columns] / 255.0, normals[rows, columns]]))
    some = np.random.default_rng(0).permutation(np.vstack(found))[:n]
    cloud = Splats.from_points(some[:, :3], some[:, 3:6], some[:, 6:])
    return replace(cloud, logits=np.full(len(some), 3.0), log_scales=cloud.log_scales + np.log([0.7, 0.7, 0.25]))


def even_cylinder() -> Shape:
    """Of one colour all over: nothing tells how far it has turned about its axis."""
    n, r, half = 64, 0.035, 0.05
    angle = 2 * np.pi * np.arange(n) / n
    ring = np.column_stack([r * np.cos(angle), r * np.sin(angle)])
    vertices = np.vstack(
        [np.column_stack([ring, np.full(n, z)]) for z in (-half, half)] + [[[0, 0, -half], [0, 0, half]]]
    )
    i, j = np.arange(n), (np.arange(n) + 1) % n
    low, high = np.full(n, 2 * n), np.full(n, 2 * n + 1)
    faces = np.vstack(
        [np.column_stack(f) for f in ((i, j, n + j), (i, n + j, n + i), (low, j, i), (high, n + i, n + j))]
    )
    mesh = Mesh(vertices, faces, np.full((len(vertices), 2), 0.5))
    return Shape(mesh, np.full((4, 4, 3), (40, 90, 160), np.uint8), (Mesh(vertices, faces),))


def slide(height: float, n: int, step_m: float = 0.006, turn_rad: float = 0.04) -> np.ndarray:
    """T_world_object: at rest for two frames, then along x while turning about the vertical."""
    k = np.maximum(np.arange(n) - 1, 0)
    pose = np.zeros((n, 7))
    pose[:, 0], pose[:, 1], pose[:, 2] = -0.02 + step_m * k, 0.01, height
    pose[:, 3:] = se3.so3_exp(np.column_stack([0 * k, 0 * k, 0.4 + turn_rad * k]))
    return se3.from_pose(pose)


@dataclass
class Film:
    frames: list[np.ndarray]
    camera: Camera
    truth: np.ndarray


def mat(board: Board | None = None) -> np.ndarray:
    """A print of many colours for the table, with a marker board at `T_WORLD_BOARD` if asked; 2000 px to the metre."""
    tiles = np.random.default_rng(1).integers(60, 220, (30, 40, 3))
    out = np.kron(tiles, np.ones((40, 40, 1))).astype(np.uint8)
    if board is not None:
        tile = board.image(2000.0)
        y = 600 - round(2000 * T_WORLD_BOARD[1, 3]) - tile.shape[0] // 2
        x = 800 + round(2000 * T_WORLD_BOARD[0, 3]) - tile.shape[1] // 2
        out[y : y + tile.shape[0], x : x + tile.shape[1]] = tile[..., None]
    return out


def film(
    shape: Shape,
    poses: np.ndarray,
    *,
    finger: bool = False,
    view: Camera | None = None,
    board: Board | None = None,
) -> Film:
    """Films it under two lamps of different strength, with noise, and with a finger that covers some of it if asked."""
    view = view or camera()
    rng = np.random.default_rng(1)
    scene = compose(
        Table(size_m=(0.8, 0.6), texture=mat(board)),
        Thing("thing", shape, 0.2),
        Thing("finger", Primitive("capsule", (0.009, 0.06), (0.2, 0.2, 0.22, 1.0)), 0.1),
        Light("strong", (0.6, 0.3, 1.0), diffuse=(0.4,) * 3, specular=(0.1,) * 3),
        Light("weak", (-0.5, -0.4, 0.8), diffuse=(0.2,) * 3),
        FixedCamera(view),
        cfg=SceneCfg(samples=4),
    )
    data = mujoco.MjData(scene.model)
    frames = []
    with Renderer(scene.model, view.width, view.height) as renderer:
        for k, T in enumerate(poses):
            data.joint("thing.free").qpos = se3.to_pose(T)
            at = (*(T[:3, 3] + [0.035, -0.045, 0.05]), 0.9, 0.3, 0.3, 0.0) if finger and k >= 3 else AWAY
            data.joint("finger.free").qpos = np.array(at)
            mujoco.mj_forward(scene.model, data)
            frames.append(
                np.clip(renderer.rgb(data, view.name) + rng.normal(0, 1.5, (view.height, view.width, 3)), 0, 255)
            )
    return Film([np.round(f).astype(np.uint8) for f in frames], view, poses)


def rough(T: np.ndarray) -> np.ndarray:
    """A start that is 2 mm and 0.03 rad off."""
    return T @ se3.exp(np.array([0.0015, -0.001, 0.001, 0.02, -0.015, 0.02]))
