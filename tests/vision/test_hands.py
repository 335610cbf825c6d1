from __future__ import annotations

from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError, MissingPart
from dexloop.lab.human import HumanHand, HumanMotion, film_camera, grasp_motion, landmarks
from dexloop.lab.objects import make
from dexloop.lab.prints import mat_texture
from dexloop.sim.parts import FixedCamera, Light, Table, Thing
from dexloop.sim.render import Renderer
from dexloop.sim.scene import compose
from dexloop.vision import hand_bundle
from dexloop.vision.board import Board
from dexloop.vision.hands import detect_hands
from dexloop.vision.video import read_frames

FPS = 14.0


@pytest.fixture(scope="module")
def bundle() -> Path:
    try:
        return hand_bundle.bundle_path()
    except MissingPart as error:
        pytest.skip(f"no hand model: {error}")


@cache
def _film(name: str) -> tuple[list[np.ndarray], HumanMotion]:
    thing, camera = make(name), film_camera(640, 480)
    motion = grasp_motion(thing.shape, thing.T_rest, duration_s=2.8, fps=FPS)
    scene = compose(
        Table(texture=mat_texture(Board()).texture),
        Thing("it", thing.shape, thing.mass_kg, tuple(se3.to_pose(thing.T_rest))),
        Light("lamp", (0.3, -0.4, 1.2), ambient=(0.2,) * 3),
        HumanHand(),
        FixedCamera(camera),
    )
    data = mujoco.MjData(scene.model)
    frames = []
    with Renderer(scene.model, camera.width, camera.height) as renderer:
        for i in range(len(motion.t)):
            motion.pose(scene.model, data, i, "it")
            frames.append(renderer.rgb(data, camera.name).copy())
    return frames, motion


@pytest.mark.parametrize("name", ["cube", "cookie_tin", "ketchup_bottle"])
def test_demonstrator_is_found_in_nine_frames_of_ten(name: str, bundle: Path):
    frames, motion = _film(name)
    track = detect_hands(iter(frames), FPS, bundle=bundle)
    assert len(track.found) == len(frames)
    assert track.share_found >= 0.9
    truth = film_camera(640, 480).project_world(landmarks(motion))
    error = np.linalg.norm(track.landmarks_px - truth, axis=-1)[track.found]
    assert np.median(error) < 15.0  # a finger is about as wide
    assert np.isnan(track.landmarks_px[~track.found]).all()
    # World landmarks are metric: the palm of an adult.
    palm = np.linalg.norm(track.world[track.found, 9] - track.world[track.found, 0], axis=1)
    assert 0.06 < np.median(palm) < 0.12


def test_real_video_of_a_right_hand(bundle: Path, repository: Path):
    video = repository.parent / "shared/data/hand_video/human_hand_video.mp4"
    if not video.is_file():
        pytest.skip("the sample video is not here")
    frames = list(read_frames(video, range(30)))
    track = detect_hands(frames, 30.0, bundle=bundle)
    assert track.found.all()
    assert track.handedness == "right"
    assert detect_hands([f[:, ::-1] for f in frames[:8]], 30.0, bundle=bundle, mirrored=True).handedness == "right"
    bone = np.linalg.norm(track.world[:, 9] - track.world[:, 0], axis=1)
    assert bone.std() / bone.mean() < 0.1


def test_nothing_is_found_where_nothing_is(bundle: Path):
    track = detect_hands([np.full((120, 160, 3), 90, np.uint8)] * 3, 30.0, bundle=bundle)
    assert not track.found.any()
    assert track.share_found == 0.0
    with pytest.raises(InputError, match="no hand"):
        _ = track.handedness


def test_bad_input_is_named(bundle: Path):
    with pytest.raises(InputError, match="no frames"):
        detect_hands([], 30.0, bundle=bundle)
    with pytest.raises(InputError, match="must be positive"):
        detect_hands([], 0.0, bundle=bundle)
