from __future__ import annotations

from dataclasses import fields, replace

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.lab.objects import make
from dexloop.sim.parts import FixedCamera, Light, Table, Thing
from dexloop.sim.render import Renderer, place_camera
from dexloop.sim.scene import SceneCfg, compose
from dexloop.vision.metrics import psnr, ssim
from dexloop.vision.rasterise import render
from dexloop.vision.splat_training import SplatCfg, SplatProgress, train
from dexloop.vision.splats import Splats
from dexloop.vision.views import View

CFG = SplatCfg(steps=520, most=2500, shrinks=(2, 1))


def located(view: View) -> Camera:
    return replace(view.camera, T_world_camera=view.T_world_camera)


@pytest.fixture(scope="module")
def views() -> list[View]:
    """The lab's cube from all around, by MuJoCo, with true cameras and masks; about 60 px wide."""
    thing = make("cube")
    camera = Camera.from_fov("phone", 128, 96, 0.6)
    angles = np.linspace(0, 2 * np.pi, 19)[:-1]
    eyes = 0.4 * np.stack([0.8 * np.cos(angles), 0.8 * np.sin(angles), 0.5 + 0.25 * np.sin(3 * angles)], axis=1)
    poses = [se3.look_at(eye, np.array([0, 0, 0.03])) for eye in eyes]
    parts = (
        Table(),
        Thing("cube", thing.shape, thing.mass_kg, pose=tuple(se3.to_pose(thing.T_rest).tolist())),
        Light("lamp", (1, -1, 2)),
        FixedCamera(replace(camera, T_world_camera=poses[0])),
    )
    scene = compose(*parts, cfg=SceneCfg(max_delay_s=0.0))
    data = mujoco.MjData(scene.model)
    mujoco.mj_forward(scene.model, data)
    out = []
    with Renderer(scene.model, camera.width, camera.height) as renderer:
        for k, T in enumerate(poses):
            place_camera(scene.model, data, replace(camera, T_world_camera=T))
            mask = renderer.segmentation(data, "phone") == scene.model.body("cube").id
            out.append(View(f"{k:02}", camera, T, renderer.rgb(data, "phone"), mask))
    return out


@pytest.fixture(scope="module")
def start(views) -> Splats:
    """Points on the cube's surface, 3 mm off, coloured by the view that looks at their side most directly."""
    rng, thing = np.random.default_rng(0), make("cube")
    half = np.ptp(thing.shape.visual.vertices, axis=0) / 2
    p = rng.uniform(-1, 1, (1200, 3))
    side = rng.integers(0, 3, 1200)
    p[np.arange(1200), side] = np.sign(p[np.arange(1200), side])
    outwards = np.where(np.arange(3) == side[:, None], p, 0.0) @ thing.T_rest[:3, :3].T
    points = se3.transform(thing.T_rest, p * half + rng.normal(0, 3e-3 / np.sqrt(3), p.shape))
    best = np.argmax(outwards @ np.stack([v.T_world_camera[:3, 3] for v in views]).T, axis=1)
    uv = np.stack([np.rint(located(v).project_world(points)).astype(int) for v in views])[best, np.arange(1200)]
    return Splats.from_points(points, np.stack([v.rgb for v in views])[best, uv[:, 1], uv[:, 0]] / 255.0)


def held_out(views: list[View]) -> tuple[list[View], list[View]]:
    return [v for i, v in enumerate(views) if i % 6 != 3], views[3::6]


def score(splats: Splats, views: list[View]) -> tuple[float, float]:
    pairs = [(render(splats, located(v)).rgb, (v.rgb / 255.0 * v.mask[..., None]).astype(np.float32), v) for v in views]
    return (
        float(np.median([psnr(a, b, v.mask) for a, b, v in pairs])),
        float(np.median([ssim(a, b, v.mask) for a, b, v in pairs])),
    )


@pytest.fixture(scope="module")
def trained(views, start) -> tuple[Splats, list[SplatProgress]]:
    told: list[SplatProgress] = []
    return train(held_out(views)[0], start, CFG, told.append), told


def test_views_that_were_not_trained_on_look_right(views, start, trained) -> None:
    before, after = score(start, held_out(views)[1]), score(trained[0], held_out(views)[1])
    assert after[0] > max(24.0, before[0] + 6.0)
    assert after[1] > 0.85


def test_nothing_is_drawn_outside_the_object(views, trained) -> None:
    for view in held_out(views)[1]:
        drawing = render(trained[0], located(view))
        assert drawing.alpha[view.mask].mean() > 0.95
        assert drawing.alpha[~view.mask].mean() < 0.02


def test_splats_are_added_up_to_the_most_allowed(start, trained) -> None:
    splats, told = trained
    assert len(start) < len(splats) <= CFG.most
    assert max(p.count for p in told) <= CFG.most


def test_progress_is_told_and_gets_better(trained) -> None:
    told = trained[1]
    assert [p.step for p in told] == [*range(50, 501, 50), 520]
    assert told[-1].steps == CFG.steps
    assert told[-1].psnr > told[0].psnr + 2


def test_the_start_is_left_as_it_was(views, start) -> None:
    before = [getattr(start, f.name).copy() for f in fields(Splats)]
    train(views[:2], start, replace(CFG, steps=3))
    assert all(np.array_equal(a, getattr(start, f.name)) for a, f in zip(before, fields(Splats), strict=True))


def test_views_of_changing_exposure_are_as_good(views, start, trained) -> None:
    """Every view is up to 15 % brighter or darker than it should be; the mean is right."""
    training, held = held_out(views)
    gains = 1 + 0.15 * np.sin(np.arange(len(training)) * 2.4)
    gains /= gains.mean()
    changed = [
        replace(v, rgb=np.clip(v.rgb * g, 0, 255).astype(np.uint8)) for v, g in zip(training, gains, strict=True)
    ]
    assert score(train(changed, start, CFG), held)[0] > score(trained[0], held)[0] - 2.0


def test_depth_pulls_where_colour_cannot() -> None:
    """A grey wall half a metre away: only depth tells how far."""
    camera = Camera.from_fov("c", 40, 30, 0.6)
    view = View("wall", camera, np.eye(4), np.full((30, 40, 3), 128, np.uint8), np.ones((30, 40), bool))
    rng = np.random.default_rng(0)
    points = rng.uniform([-0.2, -0.15, 0.44], [0.2, 0.15, 0.5], (300, 3))
    cfg = SplatCfg(steps=150, most=300, shrinks=(1,))
    off = []
    for depths in (None, {"wall": np.full((30, 40), 0.5)}):
        wall = train([view], Splats.from_points(points, np.full_like(points, 0.5)), cfg, depths=depths)
        drawing = render(wall, located(view))
        off.append(np.abs(drawing.depth - 0.5)[drawing.alpha > 0.5].mean())
    assert off[1] < 0.6 * off[0]


def test_surroundings_are_learned_around_a_hole(views) -> None:
    """With `alone` off, what is outside the mask is unknown: nothing pushes splats away from there."""
    view, hole = views[0], np.zeros_like(views[0].mask)
    hole[42:54, 58:70] = True
    uv = np.random.default_rng(0).uniform([0, 0], [127, 95], (1500, 2))
    points = se3.transform(view.T_world_camera, view.camera.unproject(uv, np.full(1500, 0.4)))
    start = Splats.from_points(points, np.full_like(points, 0.5))
    drawn = {}
    for alone in (True, False):
        cfg = SplatCfg(steps=60, most=1500, shrinks=(1,), alone=alone, flat=0.0, edge_px=0)
        drawn[alone] = render(train([replace(view, mask=~hole)], start, cfg), located(view))
    assert drawn[False].alpha[hole].mean() > 2 * drawn[True].alpha[hole].mean()
    picture, before = view.rgb / 255.0, render(start, located(view))
    assert psnr(drawn[False].rgb, picture, ~hole) > psnr(before.rgb, picture, ~hole) + 3


def test_bad_input_is_told(views, start) -> None:
    with pytest.raises(InputError, match="no views"):
        train([], start)
    with pytest.raises(InputError, match="'00' is empty"):
        train([replace(views[0], mask=np.zeros_like(views[0].mask))], start)
