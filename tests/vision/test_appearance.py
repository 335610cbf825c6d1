from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.sim.shape import Mesh, Shape
from dexloop.vision.appearance import Appearance, MeshAppearance, SplatAppearance, box_corners
from dexloop.vision.rasterise import render
from tests.vision import films

T = films.slide(0.0305, 3)[2]


def test_a_crop_is_the_same_picture():
    camera = films.camera()
    with MeshAppearance(films.cube()) as appearance:
        assert isinstance(appearance, Appearance)
        whole = appearance.render(camera, T)
        part = appearance.render(camera.cropped(90, 60, 130, 110), T)
    assert part.mask.sum() > 500
    np.testing.assert_array_equal(part.mask, whole.mask[60:170, 90:220])
    np.testing.assert_allclose(part.depth, whole.depth[60:170, 90:220], atol=1e-5)
    np.testing.assert_allclose(part.picture, whole.picture[60:170, 90:220], atol=2)


def test_splats_are_as_large_in_pixels_of_any_size():
    """A rasteriser adds part of a pixel to each, which must count as much as when they were trained, near and far."""
    cloud, camera = films.splats_of(films.cube()), films.camera()
    at_training = se3.transform(se3.inverse(camera.T_world_camera), T[:3, 3])[2] / camera.fx
    for pixel_m in (0.3 * at_training, at_training):
        splats = SplatAppearance(cloud, pixel_m)
        assert isinstance(splats, Appearance)
        sizes = [
            splats.render(camera.resized(k * camera.width, k * camera.height), T).alpha.sum() / k**2 for k in (1, 2, 4)
        ]
        assert np.ptp(sizes) < 0.01 * sizes[0]
    here = replace(camera, T_world_camera=se3.inverse(T) @ camera.T_world_camera)
    raw = [render(cloud, here.resized(k * here.width, k * here.height)).alpha.sum() / k**2 for k in (1, 4)]
    assert raw[0] > 1.03 * raw[1]


def test_depth_lies_on_the_object():
    camera = films.camera()
    with MeshAppearance(films.cube()) as appearance:
        view = appearance.render(camera, T)
        box = appearance.box
    rows, columns = np.nonzero(view.mask)
    uv = np.stack([columns, rows], axis=-1).astype(np.float64)
    assert camera.T_world_camera is not None
    p_world = se3.transform(camera.T_world_camera, camera.unproject(uv, view.depth[view.mask].astype(np.float64)))
    p = se3.transform(se3.inverse(T), p_world)
    # Every point lies in the box, and nearly all on one of its faces: a cube's edges are only a little round.
    assert (p > box[0] - 1e-3).all()
    assert (p < box[1] + 1e-3).all()
    assert np.mean(np.min(np.abs(np.concatenate([p - box[0], box[1] - p], axis=1)), axis=1) < 1e-3) > 0.9
    assert (view.picture[~view.mask] == 0).all()


def test_light_is_even():
    """All of a plain object looks alike, whichever way it faces."""
    with MeshAppearance(films.even_cylinder(), samples=0) as appearance:
        view = appearance.render(films.camera(), films.slide(0.05, 1)[0])
    assert np.ptp(view.picture[view.mask], axis=0).max() <= 2
    np.testing.assert_allclose(view.picture[view.mask].mean(axis=0), (40, 90, 160), atol=3)


def test_box_corners():
    corners = box_corners(np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))
    assert len({tuple(c) for c in corners}) == 8
    np.testing.assert_array_equal(corners.min(axis=0), [0, 1, 2])
    np.testing.assert_array_equal(corners.max(axis=0), [3, 4, 5])


def test_mistakes_are_named():
    with pytest.raises(InputError, match="no visual mesh"):
        MeshAppearance(Shape(Mesh(np.zeros((0, 3)), np.zeros((0, 3), np.int64)), None, ()))
    with MeshAppearance(films.cube()) as appearance, pytest.raises(InputError, match="no place"):
        appearance.render(replace(films.camera(), T_world_camera=None), T)
