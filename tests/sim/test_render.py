from dataclasses import replace

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.parts import FixedCamera, Light, Primitive, Thing
from dexloop.sim.render import Renderer, camera_of, place_camera
from dexloop.sim.scene import compose
from dexloop.sim.world import World
from tests.sim.scenes import CAMERA, push_scene

OFF_CENTRE = Camera("off", 320, 240, 300.0, 280.0, 170.0, 100.0, CAMERA.T_world_camera)


def small_ball(camera: Camera):
    ball = Thing("ball", Primitive("sphere", (0.008,)), 0.01, pose=(0.05, 0.03, 0.07, 1, 0, 0, 0))
    scene = compose(ball, Light("lamp", (0, 0, 2)), FixedCamera(camera))
    return World(scene).snapshot()


@pytest.mark.parametrize("camera", [CAMERA, OFF_CENTRE])
def test_a_ball_is_seen_where_it_projects_and_as_far_as_it_is(camera):
    model, data = small_ball(camera)
    with Renderer(model, camera.width, camera.height) as renderer:
        seen = renderer.segmentation(data, camera.name) == model.body("ball").id
        depth = renderer.depth(data, camera.name)
    rows, columns = np.nonzero(seen)
    expected = camera.project_world(data.body("ball").xpos)
    np.testing.assert_allclose([columns.mean(), rows.mean()], expected, atol=0.5)
    centre = se3.transform(se3.inverse(camera.T_world_camera), data.body("ball").xpos)[2]
    assert depth[seen].min() == pytest.approx(centre - 0.008, abs=1e-3)


def test_the_compiled_camera_is_the_one_that_was_asked_for():
    read = camera_of(*small_ball(OFF_CENTRE), "off")
    np.testing.assert_allclose(read.K, OFF_CENTRE.K, rtol=1e-5)
    np.testing.assert_allclose(read.T_world_camera, OFF_CENTRE.T_world_camera, atol=1e-9)


def test_a_carried_camera_sees_from_its_new_place():
    model, data = small_ball(CAMERA)
    T = se3.look_at(np.array([-0.3, 0.5, 0.6]), np.array([0.02, 0.02, 0.05]))
    moved = Camera("cam", 320, 240, 350.0, 350.0, 150.0, 130.0, T)
    place_camera(model, data, moved)
    with Renderer(model, 320, 240) as renderer:
        rows, columns = np.nonzero(renderer.segmentation(data, "cam") == model.body("ball").id)
    np.testing.assert_allclose([columns.mean(), rows.mean()], moved.project_world(data.body("ball").xpos), atol=0.5)


def test_a_camera_that_is_not_in_the_model_sees_the_same_as_one_that_is():
    scene = push_scene()
    model, data = World(scene).snapshot()
    model.vis.headlight.diffuse[:] = 0.5  # a lamp that goes with the camera
    place_camera(model, data, replace(OFF_CENTRE, name="cam"))
    with Renderer(model, 320, 240) as renderer:
        near = np.abs(renderer.rgb(data, OFF_CENTRE).astype(int) - renderer.rgb(data, "cam")) <= 2
        assert near.all(axis=-1).mean() > 0.999
        np.testing.assert_allclose(renderer.depth(data, OFF_CENTRE), renderer.depth(data, "cam"), rtol=2e-3)
        same = renderer.segmentation(data, OFF_CENTRE) == renderer.segmentation(data, "cam")
        assert same.mean() > 0.999
        with pytest.raises(InputError, match="160 x 240 px, not 320 x 240"):
            renderer.rgb(data, replace(OFF_CENTRE, width=160))
        with pytest.raises(InputError, match="T_world_camera"):
            renderer.rgb(data, replace(OFF_CENTRE, T_world_camera=None))


def test_a_texture_is_neither_mirrored_nor_upside_down():
    """The mat's first row lies at +y and its first column at -x, as a person at -y reads it."""
    from dexloop.sim.parts import Table

    picture = np.full((64, 64, 3), 30, dtype=np.uint8)
    picture[:32, :32] = [250, 0, 0]
    camera = Camera.from_fov("top", 160, 160, 0.8, se3.look_at(np.array([0, -1e-6, 1.0]), np.zeros(3), (0, 1, 0)))
    scene = compose(Table(size_m=(0.6, 0.6), texture=picture), Light("lamp", (0, 0, 2)), FixedCamera(camera))
    model, data = World(scene).snapshot()
    with Renderer(model, 160, 160) as renderer:
        image = renderer.rgb(data, "top").astype(int)
    red = image[..., 0] - image[..., 1]
    u, v = camera.project_world(np.array([-0.15, 0.15, 0.0])).astype(int)
    assert red[v, u] > 60
    for point in ([0.15, 0.15, 0], [-0.15, -0.15, 0], [0.15, -0.15, 0]):
        u, v = camera.project_world(np.array(point)).astype(int)
        assert red[v, u] < 20


def test_an_unknown_camera_lists_the_cameras():
    model, data = World(push_scene()).snapshot()
    with Renderer(model, 32, 32) as renderer, pytest.raises(UnknownName, match="there is cam"):
        renderer.rgb(data, "webcam")
