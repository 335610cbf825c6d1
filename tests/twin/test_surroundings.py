"""What is around an object, without the object."""

from dataclasses import replace

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.twin.surroundings import surroundings
from dexloop.vision.splat_gpu import renderer
from dexloop.vision.views import View

CAMERA = Camera.from_fov("phone", 120, 90, 0.5)
MAGENTA = (255, 0, 255)


def view(k: int) -> View:
    """A striped table with a magenta disc on it: the object."""
    eye = np.array([0.4 * np.cos(0.35 * k), 0.4 * np.sin(0.35 * k), 0.35])
    T = se3.look_at(eye, np.zeros(3))
    u, v = np.meshgrid(np.arange(CAMERA.width), np.arange(CAMERA.height))
    rays = CAMERA.unproject(np.stack([u, v], axis=-1).astype(float), np.ones(u.shape)) @ T[:3, :3].T
    p = eye - rays * (eye[2] / rays[..., 2])[..., None]
    stripe = 0.5 + 0.5 * np.sin(60.0 * p[..., :1])
    rgb = (stripe * (200, 180, 150) + (1.0 - stripe) * (60, 80, 120)).astype(np.uint8)
    mask = np.hypot(p[..., 0], p[..., 1]) < 0.06
    rgb[mask] = MAGENTA
    return View(f"{k}", CAMERA, T, rgb, mask)


@pytest.fixture(scope="module")
def found():
    views = [view(k) for k in range(18)]
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-0.2, 0.2, (200, 2)), np.zeros(200)])
    return surroundings(
        views,
        [[v.mask for v in views]],
        points,
        np.where(np.hypot(points[:, :1], points[:, 1:2]) < 0.06, MAGENTA, (130, 130, 135)).astype(np.uint8),
        steps=120,
        held_out=9,
    )


def test_looks_like_pictures_that_were_kept_back(found):
    assert found[1] > 22.0


def test_the_object_is_not_in_it(found):
    splats, _ = found
    inside = np.hypot(splats.means[:, 0], splats.means[:, 1]) < 0.04
    solid = splats.opacities > 0.3
    assert (inside & solid).sum() < 0.01 * len(splats)
    drawn = renderer()(splats, replace(CAMERA, T_world_camera=view(0).T_world_camera))
    mask = view(0).mask
    assert mask is not None
    magenta = (drawn.rgb[..., 0] > 0.6) & (drawn.rgb[..., 1] < 0.3) & (drawn.rgb[..., 2] > 0.6)
    assert magenta[~mask].mean() < 0.01
