from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import trimesh

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.lab.objects import make
from dexloop.sim.shape import Mesh, Shape
from dexloop.twin.texture import bake, depth_buffer, unwrap
from dexloop.vision.appearance import MeshAppearance
from dexloop.vision.views import View

CAMERA = Camera.from_fov("phone", 320, 240, 0.45)


def photos(shape: Shape, gains: np.ndarray) -> list[View]:
    """Pictures from around and above, each with an exposure of its own."""
    views = []
    with MeshAppearance(shape) as appearance:
        for k, gain in enumerate(gains):
            azimuth, height = 2.4 * k, np.radians(35 + 25 * np.sin(1.7 * k))
            away = np.array([np.cos(height) * np.cos(azimuth), np.cos(height) * np.sin(azimuth), np.sin(height)])
            T = se3.look_at(0.3 * away, np.zeros(3))
            seen = appearance.render(replace(CAMERA, T_world_camera=T), np.eye(4))
            rgb = np.clip(seen.picture * gain, 0, 255).astype(np.uint8)
            views.append(View(str(k), CAMERA, T, rgb, seen.mask))
    return views


def test_depth_buffer_agrees_with_opengl():
    shape = make("cube").shape
    view = photos(shape, np.ones(1))[0]
    with MeshAppearance(shape, samples=0) as appearance:
        truth = appearance.render(replace(CAMERA, T_world_camera=view.T_world_camera), np.eye(4))
    found = depth_buffer(shape.visual, view)
    assert np.mean(np.isfinite(found) != truth.mask) < 1e-3
    both = np.isfinite(found) & truth.mask
    assert np.median(np.abs(found - truth.depth)[both]) < 1e-4


def test_charts_do_not_overlap_and_keep_every_face():
    ball = trimesh.creation.icosphere(subdivisions=3, radius=0.04)
    mesh = Mesh(np.array(ball.vertices), np.array(ball.faces))
    flat = unwrap(mesh)
    assert flat.uv is not None
    assert len(flat.faces) == len(mesh.faces)
    assert flat.uv.min() >= 0.0
    assert flat.uv.max() <= 1.0
    np.testing.assert_allclose(flat.vertices[flat.faces], mesh.vertices[mesh.faces], atol=1e-7)
    a, b, c = np.moveaxis(flat.uv[flat.faces], 1, 0)
    area = 0.5 * np.abs(_cross(b - a, c - a))
    assert 0.3 < area.sum() <= 1.0
    points = np.random.default_rng(0).random((2000, 2))
    assert _cover(flat.uv[flat.faces], points).max() == 1


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _cover(tri: np.ndarray, points: np.ndarray) -> np.ndarray:
    """In how many triangles each point lies."""
    p = points[:, None]
    sides = [_cross(tri[:, (k + 1) % 3] - tri[:, k], p - tri[:, k]) for k in range(3)]
    return (np.all(np.stack(sides) > 1e-9, axis=0) | np.all(np.stack(sides) < -1e-9, axis=0)).sum(axis=1)


def test_a_baked_twin_looks_like_pictures_it_has_not_seen():
    shape = make("cube").shape
    gains = np.random.default_rng(3).uniform(0.75, 0.95, 24)
    gains[1::6] = 1.0  # held out
    views = photos(shape, gains)
    bare = Mesh(shape.visual.vertices, shape.visual.faces)
    kept = [k for k in range(24) if k % 6 != 1]
    baked = bake(bare, [views[k] for k in kept])
    assert baked.seen > 0.75  # all but the underside
    relative = gains[kept] / np.exp(np.log(gains[kept]).mean())
    np.testing.assert_allclose(baked.gains.mean(axis=1), relative, rtol=0.03)
    level = np.exp(np.log(gains[kept]).mean())
    errors = []
    with MeshAppearance(Shape(baked.mesh, baked.texture, ())) as appearance:
        for k in range(1, 24, 6):
            drawn = appearance.render(replace(CAMERA, T_world_camera=views[k].T_world_camera), np.eye(4))
            inside = drawn.mask & np.asarray(views[k].mask)
            errors.append((drawn.picture / level - views[k].rgb)[inside].ravel())
    assert 10 * np.log10(255**2 / np.mean(np.concatenate(errors) ** 2)) > 24.0


def test_what_hides_behind_something_is_not_painted_with_it():
    """A green plate in front of a red one, in all views but those from the other side."""
    plates = [trimesh.creation.box((0.004, 0.08, 0.08)), trimesh.creation.box((0.004, 0.08, 0.08))]
    plates[1].apply_translation((0.03, 0, 0))
    both = trimesh.util.concatenate(plates)
    mesh = Mesh(np.array(both.vertices), np.array(both.faces))
    views = []
    for k, side in enumerate((1, -1, 1, -1)):
        T = se3.look_at(np.array([0.3 * side, 0.02 * k, 0.03]), np.zeros(3))
        rgb = np.zeros((240, 320, 3), np.uint8)
        rgb[..., 1 if side > 0 else 0] = 200
        views.append(View(str(k), CAMERA, T, rgb))
    baked = bake(mesh, views, size_px=256)
    assert baked.mesh.uv is not None
    middle = baked.mesh.vertices[baked.mesh.faces].mean(axis=1)
    uv = baked.mesh.uv[baked.mesh.faces].mean(axis=1)
    colour = baked.texture[(256 * (1 - uv[:, 1])).astype(int), (256 * uv[:, 0]).astype(int)]
    assert (colour[middle[:, 0] > 0.0319] == [0, 200, 0]).all()
    assert (colour[middle[:, 0] < -0.0019] == [200, 0, 0]).all()


def test_no_view_of_the_mesh_is_an_error():
    shape = make("cube").shape
    views = photos(shape, np.ones(1))
    away = Mesh(
        shape.visual.vertices + np.array([0.0, 0.0, 5.0]) @ views[0].T_world_camera[:3, :3].T, shape.visual.faces
    )
    blind = replace(views[0], mask=np.zeros((240, 320), bool))
    with pytest.raises(InputError, match="no view sees the mesh"):
        bake(away, [blind], size_px=128)
