from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.vision import alignment
from dexloop.vision.alignment import LightBelief, PoseBelief, Scene, align
from dexloop.vision.appearance import Appearance, MeshAppearance, SplatAppearance
from dexloop.vision.background import Background
from dexloop.vision.shading import TERMS, even_light
from dexloop.vision.tracking import TrackCfg
from tests.vision import films

T = films.slide(0.0305, 3)[2]
REGION = (80, 32, 160, 160)
LIGHT = np.array([0.7, 0.1, -0.1, 0.25, 0.0, 0.05, 0.0, 0.0, 0.1])


@pytest.fixture(scope="module")
def cube():
    with MeshAppearance(films.cube()) as appearance:
        yield appearance


def scene_of(appearance: Appearance, grey: np.ndarray, information: float = 10.0) -> Scene:
    background = Background(grey.shape)
    background.learn(np.full(grey.shape, 128.0, np.float32), np.ones(grey.shape, bool))
    light = LightBelief(even_light(), information * np.eye(TERMS))
    return Scene(grey, None, films.camera(), background, appearance, light, 4.0)


def drawn(appearance: MeshAppearance, pose: np.ndarray, camera: Camera | None = None) -> np.ndarray:
    """The cube at a pose in some light, on a grey table: what a frame would be without noise."""
    camera = camera or films.camera()
    view = appearance.render(camera, pose)
    basis = alignment.harmonics(alignment.normals_world(view.depth, view.mask, camera))
    grey = view.picture @ np.array([0.299, 0.587, 0.114], np.float32)
    return np.where(view.mask, (basis @ LIGHT) * grey, 128.0).astype(np.float32)


def test_derivatives_by_pose_are_those_of_the_drawing(cube: MeshAppearance):
    """Against fine drawings a step to either side, on a scale of some pixels: the outline of a coarse one jumps."""
    scene = scene_of(cube, np.full((240, 320), 128.0, np.float32))
    camera = scene.camera.cropped(*REGION)
    level = alignment._Level(alignment._layers(scene, REGION), camera, 1)
    s = alignment._linearise(cube.render(level.camera, T), level, T, LIGHT)
    fine = replace(
        camera,
        width=640,
        height=640,
        fx=4 * camera.fx,
        fy=4 * camera.fy,
        cx=4 * camera.cx + 1.5,
        cy=4 * camera.cy + 1.5,
    )

    def reduced(pose: np.ndarray) -> np.ndarray:
        small = cv2.resize(drawn(cube, pose, fine), (160, 160), interpolation=cv2.INTER_AREA)
        return cv2.GaussianBlur(cv2.GaussianBlur(small, (0, 0), 0.7), (0, 0), 2.0)

    for k, h in enumerate([0.001] * 3 + [0.02] * 3):
        d = np.zeros(6)
        d[k] = h
        expected = (reduced(T @ se3.exp(d)) - reduced(T @ se3.exp(-d))).ravel() / (2 * h)
        mine = np.zeros((160, 160), np.float32)
        mine[s.at] = s.J[:, k]
        mine = cv2.GaussianBlur(mine, (0, 0), 2.0).ravel()
        assert np.corrcoef(expected, mine)[0, 1] > 0.9
        assert 0.8 < (mine @ expected) / (expected @ expected) < 1.25


@pytest.fixture(scope="module")
def splats() -> SplatAppearance:
    return SplatAppearance(films.splats_of(films.cube()), 1.5e-3)


def test_splats_are_differentiated_by_their_rasteriser():
    """Against drawings a step to either side, in even light and of soft splats: solid ones hide each other by jumps."""
    cloud = films.splats_of(films.cube(), 1500)
    soft = replace(cloud, logits=np.full(len(cloud), 0.01), log_scales=cloud.log_scales + np.log(2.0))
    splats = SplatAppearance(soft, 1.5e-3)
    scene = scene_of(splats, np.full((240, 320), 128.0, np.float32))
    level = alignment._Level(alignment._layers(scene, REGION), scene.camera.cropped(*REGION), 1)

    def system(pose: np.ndarray) -> alignment._System:
        return alignment._linearise(splats.render(level.camera, pose), level, pose, even_light())

    s = system(T)
    assert s.pull is not None
    # What counts may be anything smooth; which pixels are looked at changes by a few as the outline moves.
    weight = cv2.GaussianBlur(np.random.default_rng(0).normal(0, 1, (160, 160)).astype(np.float32), (0, 0), 2.0)
    near = np.zeros((160, 160), np.uint8)
    near[s.at] = 1
    weight *= cv2.erode(near, np.ones((5, 5), np.uint8))
    mine = s.pull(weight)

    def loss(pose: np.ndarray) -> float:
        picture, found = np.zeros((160, 160)), system(pose)
        picture[found.at] = found.drawn
        return float(np.sum(weight * picture))

    # A splat that becomes fainter than can be seen is left out, with a jump: many steps see less of that.
    far = np.linspace(1e-4, 5e-4, 5)
    expected = np.zeros(6)
    for k, unit in enumerate(np.diag([1.0] * 3 + [20.0] * 3)):
        rise = np.array([loss(T @ se3.exp(h * unit)) - loss(T @ se3.exp(-h * unit)) for h in far])
        expected[k] = far @ rise / (2 * far @ far * unit.max())
    for part in (slice(0, 3), slice(3, 6)):
        assert np.linalg.norm(mine[part] - expected[part]) < 0.1 * np.linalg.norm(expected[part])


@pytest.mark.parametrize("seed", [0, 1])
def test_finds_the_pose_of_splats(splats: SplatAppearance, seed: int):
    rng = np.random.default_rng(seed)
    view = splats.render(films.camera(), T)
    frame = view.alpha * (view.picture @ np.array([0.299, 0.587, 0.114])) + (1.0 - view.alpha) * 128.0
    frame = (frame + rng.normal(0, 1.5, frame.shape)).astype(np.float32)
    start = T @ se3.exp(np.concatenate([rng.normal(0, 0.002, 3), rng.normal(0, 0.03, 3)]))
    prior = PoseBelief(start, np.diag([25e-6] * 3 + [2.5e-3] * 3))
    fit = align(scene_of(splats, frame), start, prior, REGION, (4, 2, 1))
    xi = se3.log(se3.inverse(fit.pose.T) @ T)
    assert np.linalg.norm(xi[:3]) < 5e-4
    assert np.linalg.norm(xi[3:]) < np.radians(0.3)
    assert fit.visible > 0.9


def test_flow_is_how_far_points_move_in_the_picture():
    camera = films.camera()
    uv = np.array([[150.0, 110.0], [170.0, 130.0], [140.0, 125.0]])
    depth = np.array([0.52, 0.55, 0.6])
    flow = alignment._flow(camera, T, uv[:, 0], uv[:, 1], depth)
    assert camera.T_world_camera is not None
    p = se3.transform(se3.inverse(T) @ camera.T_world_camera, camera.unproject(uv, depth))
    for k, d in enumerate(1e-6 * np.eye(6)):
        after, before = (camera.project_world(se3.transform(T @ se3.exp(s * d), p)) for s in (1, -1))
        np.testing.assert_allclose(flow[:, :, k], (after - before) / 2e-6, rtol=2e-3, atol=0.5)


@pytest.mark.parametrize("seed", [0, 1])
def test_finds_pose_and_light_of_a_drawing(cube: MeshAppearance, seed: int):
    rng = np.random.default_rng(seed)
    frame = drawn(cube, T) + rng.normal(0, 1.5, (240, 320)).astype(np.float32)
    scene = scene_of(cube, frame, information=1.0)
    start = T @ se3.exp(np.concatenate([rng.normal(0, 0.002, 3), rng.normal(0, 0.03, 3)]))
    fit = align(scene, start, PoseBelief(start, np.diag([25e-6] * 3 + [2.5e-3] * 3)), REGION, (4, 2, 1))
    xi = se3.log(se3.inverse(fit.pose.T) @ T)
    assert np.linalg.norm(xi[:3]) < 5e-4
    assert np.linalg.norm(xi[3:]) < np.radians(0.3)
    assert xi @ np.linalg.solve(fit.pose.covariance, xi) < 22.5  # 99.9 % of chi² with 6 degrees of freedom
    assert fit.visible > 0.9
    assert fit.correlation > 0.98


def test_another_picture_does_not_fit(cube: MeshAppearance):
    rng = np.random.default_rng(0)
    frame = cv2.resize(rng.uniform(0, 255, (40, 60)).astype(np.float32), (320, 240))
    fit = align(scene_of(cube, frame), T, PoseBelief(T, np.diag([1e-5] * 3 + [1e-3] * 3)), REGION, (2, 1))
    cfg = TrackCfg()
    assert fit.correlation < cfg.min_correlation or fit.visible < cfg.min_visible
    assert fit.misfit > 0.3


def test_less_takes_away_but_not_below_zero():
    H = np.diag([4.0, 9.0, 1.0])
    left = alignment._less(H, np.diag([1.0, 0.0, 5.0]))
    np.testing.assert_allclose(left, np.diag([3.0, 9.0, 0.0]), atol=1e-5)
    assert np.linalg.eigvalsh(left).min() >= 0
