from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.lab.objects import make
from dexloop.sim.shape import Mesh
from dexloop.twin.mesh import check, compare, sample
from dexloop.twin.surface import fuse, span
from dexloop.vision.appearance import MeshAppearance
from dexloop.vision.views import View

Scan = tuple[Mesh, list[np.ndarray], list[View], np.ndarray]

CAMERA = Camera.from_fov("phone", 400, 300, 0.5)


def scan(name: str, *, noise_m: float = 0.0015, count: int = 24) -> Scan:
    """The true surface, and depth as splats give it: noise, partly smooth, and holes; outlines are off by a pixel."""
    rng, thing = np.random.default_rng(5), make(name)
    truth = Mesh(se3.transform(thing.T_rest, thing.shape.visual.vertices), thing.shape.visual.faces)
    box = np.stack([truth.vertices.min(axis=0), truth.vertices.max(axis=0)])
    middle, far = box.mean(axis=0), 0.25 + 2.0 * float(np.ptp(box, axis=0).max())
    views, depths = [], []
    with MeshAppearance(thing.shape, samples=0) as appearance:
        for k in range(count):
            azimuth, height = 2.4 * k, np.radians(40 + 20 * np.sin(1.7 * k))
            away = np.array([np.cos(height) * np.cos(azimuth), np.cos(height) * np.sin(azimuth), np.sin(height)])
            T = se3.look_at(middle + far * away, middle)
            seen = appearance.render(replace(CAMERA, T_world_camera=T), thing.T_rest)
            shape = seen.mask.shape
            white, slow = rng.normal(size=shape), ndimage.gaussian_filter(rng.normal(size=shape), 3.0)
            depth = seen.depth + noise_m * 0.7 * (white + slow / slow.std())
            hole = ndimage.gaussian_filter(rng.normal(size=shape), 5.0)
            depth[~seen.mask | (hole > np.quantile(hole, 0.9))] = 0.0
            wave = ndimage.gaussian_filter(rng.normal(size=shape), 8.0)
            mask = ndimage.gaussian_filter(seen.mask.astype(float), 1.0) > 0.5 + 0.15 * wave / wave.std()
            views.append(View(str(k), CAMERA, T, np.zeros((*shape, 3), np.uint8), mask))
            depths.append(depth)
    return truth, depths, views, box + np.array([[-0.01], [0.01]])


@pytest.mark.parametrize("name", ["light_bulb", "ketchup_bottle"])
def test_noisy_depth_with_holes_gives_the_true_surface(name: str):
    truth, depths, views, bounds = scan(name)
    found = fuse(depths, views, bounds, 0.0015)
    agreement = compare(found, truth, within_m=0.003, count=10_000)
    assert agreement.chamfer_m < 1.5e-3
    assert agreement.f_score > 0.95
    assert abs(agreement.volume_error) < 0.05


def test_a_few_points_draw_the_cone_off_a_lid():
    """Silhouettes from at most 60 degrees up leave a cone upon a tin; 150 points on its lid say that it is flat."""
    truth, _, views, bounds = scan("cookie_tin", noise_m=0.0, count=20)
    top = truth.vertices[:, 2].max()
    points = sample(truth, 3000, seed=2)[0]
    lid = points[points[:, 2] > top - 5e-4][:150]
    up = np.tile([0.0, 0.0, 1.0], (len(lid), 1))
    nothing = span(lid[:0], up[:0], views, bounds, 0.002)
    spanned = span(lid, up, views, bounds, 0.002)
    assert nothing.vertices[:, 2].max() > top + 5e-3
    assert spanned.vertices[:, 2].max() < top + 2e-3
    assert check(spanned).watertight
    assert compare(spanned, truth, within_m=0.003, count=10_000).f_score > 0.9


def test_underside_is_flat_on_the_table():
    _, depths, views, bounds = scan("cube", noise_m=0.0, count=16)
    bounds[0, 2] = -0.05  # what lies below the table is no part of the object
    found = fuse(depths, views, bounds, 0.002)
    fitness = check(found)
    assert fitness.watertight
    assert fitness.outward
    assert fitness.shells == 1
    assert found.vertices[:, 2].min() == pytest.approx(0.0, abs=1e-6)
    foot = found.vertices[found.vertices[:, 2] < 1e-5]
    assert np.ptp(foot[:, 0]) > 0.055


def test_silhouettes_carve_what_depth_does_not_tell():
    """Without any depth but on one side, the other side is bounded by outlines alone."""
    truth, depths, views, bounds = scan("cube", noise_m=0.0, count=20)
    for depth, view in zip(depths, views, strict=True):
        if view.T_world_camera[0, 3] > 0:
            depth[:] = 0.0
    found = fuse(depths, views, bounds, 0.002)
    assert compare(found, truth, count=5_000).chamfer_m < 2.5e-3


def test_two_wrong_masks_and_unsure_pixels_do_no_harm():
    truth, depths, views, bounds = scan("cube", count=24)
    wrong = [replace(v, mask=v.mask & (np.arange(400) > 200)) if k < 2 else v for k, v in enumerate(views)]
    alphas = [np.ones_like(d) for d in depths]
    for depth, alpha in zip(depths[10:20], alphas[10:20], strict=True):  # halves of these maps are nonsense
        depth[150:] *= 0.9
        alpha[150:] = 0.2
    found = fuse(depths, wrong, bounds, 0.002, alphas=alphas)
    assert compare(found, truth, count=5_000).chamfer_m < 1.5e-3


def test_bad_input_says_what_to_do():
    _, depths, views, bounds = scan("cube", count=4)
    with pytest.raises(InputError, match="3 depth maps, 4 views"):
        fuse(depths[:3], views, bounds, 0.002)
    with pytest.raises(InputError, match="has no mask: make masks"):
        fuse(depths, [replace(v, mask=None) for v in views], bounds, 0.002)
    with pytest.raises(InputError, match="mask of view '0' is empty"):
        fuse(depths, [replace(v, mask=np.zeros_like(v.mask)) for v in views], bounds, 0.002)
    with pytest.raises(InputError, match="too many"):
        fuse(depths, views, bounds, 1e-5)
    with pytest.raises(InputError, match="no surface lies in the box"):
        fuse(depths, views, bounds + np.array([0.5, 0, 0]), 0.002)
