from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.vision.appearance import MeshAppearance
from dexloop.vision.shading import TERMS, even_light, extend, fill, harmonics, normals_world, turning
from tests.vision import films


def test_normals_of_a_standing_cylinder():
    T = films.slide(0.05, 1)[0]
    camera = films.camera(640, 480)
    with MeshAppearance(films.even_cylinder()) as appearance:
        view = appearance.render(camera, T)
    n = normals_world(view.depth, view.mask, camera)
    rows, columns = np.nonzero(view.mask)
    uv = np.stack([columns, rows], axis=-1).astype(np.float64)
    assert camera.T_world_camera is not None
    p = se3.transform(camera.T_world_camera, camera.unproject(uv, view.depth[view.mask].astype(np.float64)))
    top = p[:, 2] > 0.0995
    outward = p - T[:3, 3]
    outward[:, 2] = 0.0
    expected = np.where(top[:, None], [0.0, 0.0, 1.0], outward / np.linalg.norm(outward, axis=1, keepdims=True))
    cosine = np.sum(n[view.mask] * expected, axis=1)
    assert np.mean(cosine > np.cos(np.radians(6))) > 0.95  # the mesh's own facets are 5.6 degrees apart
    assert (n[~view.mask] == 0).all()


def test_turning_is_the_derivative_of_the_light_as_the_surface_turns():
    rng = np.random.default_rng(0)
    n = rng.normal(size=(4, 5, 3))
    n /= np.linalg.norm(n, axis=-1, keepdims=True)
    light, w, h = rng.normal(size=TERMS), rng.normal(size=3), 1e-6

    def irradiance(sign: int) -> np.ndarray:
        return harmonics(se3.quat_rotate(se3.so3_exp(sign * h * w), n)) @ light

    np.testing.assert_allclose(turning(n, light) @ w, (irradiance(1) - irradiance(-1)) / (2 * h), atol=1e-8)


def test_even_light_changes_nothing():
    n = np.random.default_rng(0).normal(size=(3, 3, 3))
    np.testing.assert_array_equal(harmonics(n) @ even_light(), np.ones((3, 3)))


def test_extend_takes_the_nearest_depth_and_fill_the_mean():
    depth = np.zeros((7, 7), np.float32)
    depth[3, 2], depth[3, 3] = 2.0, 1.0
    mask = depth > 0
    grown = extend(depth, mask, 1)
    assert grown[3, 2] == 2.0, "what is there stays"
    assert grown[2, 2] == 1.0, "the nearer of two neighbours goes on"
    assert grown[3, 1] == 2.0
    assert grown[3, 5] == 0.0
    filled = fill(depth, mask)
    assert filled[3, 3] == 1.0
    np.testing.assert_allclose(filled[2, 2], 1.5)
    assert filled[6, 6] == 0.0
