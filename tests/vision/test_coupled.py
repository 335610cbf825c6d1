from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.parts import Primitive, Table, Thing
from dexloop.sim.render import Renderer
from dexloop.sim.scene import Scene, compose
from dexloop.vision import rasterise
from dexloop.vision.coupled import CoupledRenderer
from dexloop.vision.splats import Splats, joined, splats_of
from tests.twin.small import SIDES_M, small_twin, surface_splats

CAMERA = Camera.from_fov("any", 96, 72, 0.6, se3.look_at(np.array([0.3, -0.3, 0.25]), np.array([0.0, 0.0, 0.05])))
HALF = tuple(0.5 * s for s in SIDES_M)
POSE = np.array([0.02, -0.03, 0.11, *se3.so3_exp(np.array([0.4, -0.9, 1.3]))])


@pytest.fixture(scope="module")
def cloud() -> Splats:
    """With colours that depend on the direction, in harmonics of every degree."""
    plain = surface_splats(degree=3)
    sh = plain.sh.copy()
    sh[:, 1:] = np.random.default_rng(1).normal(scale=0.15, size=(1, 15, 3))
    return replace(plain, sh=sh)


def _block(name: str = "block", at: tuple[float, float, float] = (0.0, 0.0, 0.04), rgba=(0.1, 0.2, 0.9, 1.0)) -> Thing:
    return Thing(name, Primitive("box", HALF, rgba), 0.1, pose=(*at, 1.0, 0.0, 0.0, 0.0))


def _state(scene: Scene, **poses: np.ndarray) -> mujoco.MjData:
    data = mujoco.MjData(scene.model)
    for name, pose in poses.items():
        data.joint(f"{name}.free").qpos = pose
    mujoco.mj_forward(scene.model, data)
    return data


def _blue(rgb: np.ndarray) -> np.ndarray:
    return (rgb[..., 2] > 60) & (rgb[..., 2] > 2 * rgb[..., 0].astype(int)) & (rgb[..., 2] > rgb[..., 1].astype(int))


def test_splats_follow_their_body_and_their_harmonics_turn_with_it(cloud: Splats) -> None:
    """Against splats that are moved to the body and drawn there, over MuJoCo's picture of an empty table."""
    scene, empty = compose(Table(), _block()), compose(Table())
    with CoupledRenderer(scene.model, {"block": cloud}, 96, 72) as renderer:
        seen = renderer.draw(_state(scene, block=POSE), CAMERA)
    with Renderer(empty.model, 96, 72) as plain:
        behind = plain.rgb(_state(empty), CAMERA)
    there = rasterise.render(cloud.moved(se3.from_pose(POSE)), CAMERA)
    expected = there.rgb + (1.0 - there.alpha[..., None]) * behind / 255.0
    assert (there.alpha > 0.9).mean() > 0.03
    np.testing.assert_allclose(seen.rgb / 255.0, np.clip(expected, 0.0, 1.0), atol=0.02)
    inside = there.alpha > 0.9
    np.testing.assert_allclose(seen.depth[inside], there.median_depth[inside], atol=1e-3)
    unturned = replace(cloud.moved(se3.from_pose(POSE)), sh=cloud.sh)
    difference = np.abs(rasterise.render(unturned, CAMERA).rgb - there.rgb)[inside]
    assert difference.max() > 0.1, "the colours depend on the direction, so that the check above can fail"


def test_what_is_nearer_hides_what_is_behind() -> None:
    """A block drawn by its geometry, before and behind one that is drawn by splats."""
    scene = compose(Table(), _block(), _block("other", (0.3, 0.0, 0.04)))
    towards = CAMERA.T_world_camera[:3, 3]
    near, far = ((*(sign * 0.25 * towards[:2]), 0.04, 1.0, 0.0, 0.0, 0.0) for sign in (1.0, -1.0))
    with CoupledRenderer(scene.model, {"block": surface_splats()}, 96, 72) as renderer:
        blues, depths = [], []
        for where in (near, far):
            picture = renderer.draw(_state(scene, other=np.array(where)), CAMERA)
            blues.append(int(_blue(picture.rgb).sum()))
            u, v = np.round(CAMERA.project_world(np.array([0.0, 0.0, 0.04]))).astype(int)
            depths.append(float(picture.depth[v, u]))
    assert blues[0] > 300
    assert blues[1] < 0.3 * blues[0], "most of the far block is behind the splats"
    middle = float(se3.transform(se3.inverse(CAMERA.T_world_camera), np.array([0.0, 0.0, 0.04]))[2])
    assert depths[0] < middle - 0.06
    assert middle - 0.05 < depths[1] < middle


def test_two_clouds_are_sorted_by_depth() -> None:
    """Against one cloud of both, in the air: what reaches into the table is hidden by it."""
    scene, empty = compose(Table(), _block(), _block("other")), compose(Table())
    poses = {
        "block": np.array([0.0, 0.0, 0.1, 1.0, 0.0, 0.0, 0.0]),
        "other": np.array([-0.06, 0.07, 0.11, *se3.so3_exp(np.array([0.0, 0.0, 0.5]))]),
    }
    clouds = {name: surface_splats() for name in poses}
    with CoupledRenderer(scene.model, clouds, 96, 72) as renderer:
        seen = renderer.draw(_state(scene, **poses), CAMERA)
    with Renderer(empty.model, 96, 72) as plain:
        behind = plain.rgb(_state(empty), CAMERA)
    both = rasterise.render(joined([clouds[name].moved(se3.from_pose(pose)) for name, pose in poses.items()]), CAMERA)
    expected = both.rgb + (1.0 - both.alpha[..., None]) * behind / 255.0
    assert (both.alpha > 0.9).mean() > 0.05
    np.testing.assert_allclose(seen.rgb / 255.0, np.clip(expected, 0.0, 1.0), atol=0.02)


def test_without_splats_all_is_drawn_by_its_mesh() -> None:
    scene = compose(Table(), _block())
    data = _state(scene)
    with CoupledRenderer(scene.model, {}, 96, 72) as renderer, Renderer(scene.model, 96, 72) as plain:
        np.testing.assert_array_equal(renderer.draw(data, CAMERA).rgb, plain.rgb(data, CAMERA))
        np.testing.assert_array_equal(renderer.draw(data, CAMERA).depth, plain.depth(data, CAMERA))
        with pytest.raises(InputError, match="T_world_camera"):
            renderer.draw(data, replace(CAMERA, T_world_camera=None))


def test_the_model_is_left_as_it_was() -> None:
    scene = compose(Table(), _block())
    before = scene.model.geom_group.copy()
    CoupledRenderer(scene.model, {"block": surface_splats()}, 32, 32).close()
    np.testing.assert_array_equal(scene.model.geom_group, before)


def test_an_unknown_body_is_told() -> None:
    with pytest.raises(UnknownName, match="there is world, block"):
        CoupledRenderer(compose(Table(), _block()).model, {"blok": surface_splats()}, 32, 32)


def test_a_twin_on_disk_is_drawn_as_its_splats_where_it_has_them(tmp_path: Path) -> None:
    twin = small_twin(tmp_path / "twin")
    scene = Scene.open(twin.path / "scene.xml", max_delay_s=0.0)
    splats = splats_of(twin)
    assert list(splats) == ["block"]
    data = _state(scene)
    with CoupledRenderer(scene.model, splats, 96, 72) as coupled, Renderer(scene.model, 96, 72) as plain:
        seen = coupled.draw(data, CAMERA)
        mask = plain.segmentation(data, CAMERA) == scene.model.body("block").id
        depth = plain.depth(data, CAMERA)
    inner = mask & np.roll(mask, 2, 0) & np.roll(mask, -2, 0) & np.roll(mask, 2, 1) & np.roll(mask, -2, 1)
    assert inner.sum() > 100
    assert np.median(np.abs(seen.depth - depth)[inner]) < 0.004
    (twin.path / "objects" / "block" / "splats.ply").unlink()
    assert splats_of(twin) == {}
