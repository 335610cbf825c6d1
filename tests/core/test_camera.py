"""The pinhole camera against OpenCV."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexloop.core import se3
from dexloop.core.camera import Camera

seeds = st.integers(0, 2**32 - 1)


def random_camera(rng: np.random.Generator) -> Camera:
    T = se3.exp(rng.normal(size=6))
    f = rng.uniform(200, 900, 2)
    return Camera("front", 640, 480, f[0], f[1], rng.uniform(250, 400), rng.uniform(180, 300), T)


@given(seeds)
def test_project_world_is_opencvs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    camera = random_camera(rng)
    assert camera.T_world_camera is not None
    p_camera = np.column_stack([rng.uniform(-1, 1, (10, 2)), rng.uniform(0.2, 3, 10)])
    p_world = se3.transform(camera.T_world_camera, p_camera)
    T_camera_world = se3.inverse(camera.T_world_camera)
    rvec, _ = cv2.Rodrigues(T_camera_world[:3, :3])
    expected, _ = cv2.projectPoints(p_world, rvec, T_camera_world[:3, 3], camera.K, None)
    np.testing.assert_allclose(camera.project_world(p_world), expected[:, 0], atol=1e-6)
    np.testing.assert_allclose(camera.project(p_camera), expected[:, 0], atol=1e-6)


@given(seeds)
def test_unproject_undoes_project(seed: int) -> None:
    rng = np.random.default_rng(seed)
    camera = random_camera(rng)
    p = np.concatenate([rng.uniform(-1, 1, (2, 5, 2)), rng.uniform(0.2, 3, (2, 5, 1))], axis=-1)
    np.testing.assert_allclose(camera.unproject(camera.project(p), p[..., 2]), p, atol=1e-12)


@given(seeds)
def test_project_undoes_unproject(seed: int) -> None:
    rng = np.random.default_rng(seed)
    camera = random_camera(rng)
    uv, depth = rng.uniform(0, 480, (7, 2)), rng.uniform(0.1, 5.0, 7)
    np.testing.assert_allclose(camera.project(camera.unproject(uv, depth)), uv, atol=1e-9)


def test_axes_are_right_and_down() -> None:
    camera = Camera.from_fov("c", 640, 480, 0.8)
    centre, right, down = camera.project(np.array([[0.0, 0.0, 1.0], [0.1, 0.0, 1.0], [0.0, 0.1, 1.0]]))
    np.testing.assert_allclose(centre, [319.5, 239.5])
    assert right[0] > centre[0]
    assert right[1] == pytest.approx(centre[1])
    assert down[1] > centre[1]


def test_behind_the_camera_is_nan() -> None:
    camera = Camera.from_fov("c", 640, 480, 0.8)
    uv = camera.project(np.array([[0.1, 0.1, -1.0], [0.1, 0.1, 0.0], [0.1, 0.1, 1.0]]))
    assert np.isnan(uv[:2]).all()
    assert np.isfinite(uv[2]).all()


@given(st.floats(0.2, 2.5), st.integers(16, 2000), st.integers(16, 2000))
def test_field_of_view_reaches_the_outer_edges_of_the_picture(fov: float, width: int, height: int) -> None:
    """Pixel centres are whole numbers, so the picture's upper edge is at v = -0.5 and its lower at height - 0.5."""
    camera = Camera.from_fov("c", width, height, fov)
    edge = np.tan(fov / 2)
    upper, lower = camera.project(np.array([[0.0, -edge, 1.0], [0.0, edge, 1.0]]))
    np.testing.assert_allclose([upper[1], lower[1]], [-0.5, height - 0.5], atol=1e-6)
    assert camera.fx == camera.fy


def test_an_unlocated_camera_says_so() -> None:
    with pytest.raises(ValueError, match="'phone' has no T_world_camera"):
        Camera.from_fov("phone", 640, 480, 0.8).project_world(np.zeros(3))


@pytest.mark.parametrize("located", [True, False])
def test_json_round_trip(located: bool) -> None:
    T = se3.look_at(np.array([0.3, -0.7, 0.5]), np.zeros(3)) if located else None
    camera = Camera.from_fov("front", 640, 480, 0.7, T)
    again = Camera.from_json(json.loads(json.dumps(camera.to_json())))
    assert again.to_json() == camera.to_json()
    assert (again.T_world_camera is None) == (not located)
    if T is not None:
        np.testing.assert_array_equal(again.T_world_camera, T)


def test_cameras_compare_by_value() -> None:
    def located(x: float) -> Camera:
        return Camera.from_fov("front", 640, 480, 0.7, se3.look_at(np.array([x, -0.7, 0.5]), np.zeros(3)))

    assert located(0.3) == located(0.3)
    assert hash(located(0.3)) == hash(located(0.3))
    assert located(0.3) != located(0.4)
    assert located(0.3) != Camera.from_fov("front", 640, 480, 0.7)
    assert located(0.3) != "front"


def test_a_camera_at_another_size_sees_the_same_rays() -> None:
    full = Camera("c", 400, 300, 350, 360, 190.0, 140.0)
    p = np.array([[0.1, -0.2, 1.0], [0.0, 0.1, 0.7]])
    np.testing.assert_allclose(full.resized(200, 150).project(p), (full.project(p) + 0.5) / 2 - 0.5, atol=1e-9)
    np.testing.assert_allclose(full.cropped(20, -10, 100, 90).project(p), full.project(p) - [20, -10], atol=1e-9)
