"""The person at the bench: walks around the object with a phone, or shows how to grasp it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.capture import VideoInfo
from dexloop.lab.bench import Bench, noise_shift, sensor_noise, surroundings
from dexloop.lab.human import HumanHand, HumanMotion, film_camera, grasp_motion
from dexloop.lab.objects import LabObject
from dexloop.lab.prints import Mat
from dexloop.lab.truth import Truth
from dexloop.rig.protocol import Frames
from dexloop.sim.parts import FixedCamera
from dexloop.sim.render import Renderer, place_camera
from dexloop.sim.scene import SceneCfg, compose

PHONE_FOV_RAD = 0.85
"""Vertical field of view [rad]."""


class LabOperator:
    """Films with a phone whose focal length is known to half a percent. The robot is out of the way.

    Args:
        bench: Where the object is put back.
        thing: The object on the table.
        truth: What is hidden.
        mat: The printed mat on the table.
        picture_px: Width and height [px].
        nice: Draw shadows and smooth edges.
        seed: Of the unsteady hand.
    """

    def __init__(
        self,
        bench: Bench,
        thing: LabObject,
        truth: Truth,
        mat: Mat,
        *,
        picture_px: tuple[int, int],
        nice: bool,
        seed: int,
    ):
        self._bench = bench
        self._thing, self._truth, self._mat, self._seed = thing, truth, mat, seed
        self._cfg = SceneCfg(shadows=nice, samples=4 if nice else 0, max_delay_s=0.0)
        self._phone = Camera.from_fov("phone", *picture_px, PHONE_FOV_RAD)

    def scan(self, *, duration_s: float, fps: float) -> tuple[VideoInfo, Iterator[Frames]]:
        """Walks once around the object, going up and down."""
        info = VideoInfo("phone", self._phone, "phone", fps)
        times = np.arange(round(duration_s * fps)) / fps
        return info, self._film_scan(times, duration_s)

    def _film_scan(self, times: Float[np.ndarray, " n"], duration_s: float) -> Iterator[Frames]:
        rng = np.random.default_rng([23, self._seed])
        path = _scan_path(times / duration_s, self._truth.T_world_object[:3, 3], self._size(), rng)
        true = self._true_phone()
        scene = compose(*self._surroundings(), FixedCamera(replace(true, T_world_camera=path[0])), cfg=self._cfg)
        data = mujoco.MjData(scene.model)
        mujoco.mj_forward(scene.model, data)
        with Renderer(scene.model, true.width, true.height) as renderer:
            for t, T in zip(times, path, strict=True):
                place_camera(scene.model, data, replace(true, T_world_camera=T))
                picture = sensor_noise(renderer.rgb(data, "phone"), noise_shift(true, rng))
                yield Frames(np.array([t]), picture[None])

    def place_object(self, shift: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> None:
        """Puts the object back onto its mark, or beside it, to within a millimetre and a degree."""
        self._bench.place_object(shift)

    def demonstrate(self, *, duration_s: float, fps: float) -> tuple[VideoInfo, Iterator[Frames]]:
        """Films a hand that reaches for the object, grasps and lifts it, with the phone on a stand."""
        motion = grasp_motion(
            self._thing.shape, self._truth.T_world_object, duration_s=duration_s, fps=fps, seed=self._seed
        )
        # The phone is set up by eye, to the nearest centimetre; where it stands was measured afterwards.
        x, y, z = (round(float(v), 2) for v in self._truth.T_world_object[:3, 3])
        camera = film_camera(
            self._phone.width, self._phone.height, target=(x, y, z + 0.06), turn_rad=round(motion.turn_rad, 1)
        )
        camera = replace(camera, name="phone")
        return VideoInfo("phone", camera, "phone", fps), self._film_demonstration(camera, motion)

    def _film_demonstration(self, camera: Camera, motion: HumanMotion) -> Iterator[Frames]:
        rng = np.random.default_rng([24, self._seed])
        parts = [*self._surroundings(), HumanHand(), FixedCamera(camera)]
        scene = compose(*parts, cfg=self._cfg)
        data = mujoco.MjData(scene.model)
        with Renderer(scene.model, camera.width, camera.height) as renderer:
            for k, t in enumerate(motion.t):
                motion.pose(scene.model, data, k, self._thing.name)
                picture = sensor_noise(renderer.rgb(data, camera.name), noise_shift(camera, rng))
                yield Frames(np.array([t]), picture[None])

    def _surroundings(self) -> list:
        return surroundings(self._thing, self._truth, self._mat)

    def _size(self) -> Float[np.ndarray, "3"]:
        return np.ptp(self._thing.shape.visual.vertices @ self._truth.T_world_object[:3, :3].T, axis=0)

    def _true_phone(self) -> Camera:
        error = self._truth.focal_error
        return replace(self._phone, fx=self._phone.fx * error, fy=self._phone.fy * error)


def _scan_path(
    s: Float[np.ndarray, " n"], centre: Float[np.ndarray, "3"], size: Float[np.ndarray, "3"], rng: np.random.Generator
) -> Float[np.ndarray, "n 4 4"]:
    """Once around and a bit more, between 20 and 60 degrees of height, with an unsteady hand."""
    distance = 0.30 + 1.1 * float(np.max(size))
    azimuth = rng.uniform(0, 2 * np.pi) + 2.3 * np.pi * s
    height = np.deg2rad(40) + np.deg2rad(20) * np.sin(2 * np.pi * 2.0 * s + rng.uniform(0, 2 * np.pi))
    frequencies, phases = rng.uniform(2.0, 9.0, (6, 4)), rng.uniform(0, 2 * np.pi, (6, 4))
    shake = np.sin(2 * np.pi * frequencies * s[:, None, None] + phases).sum(axis=-1)  # [n, 6]
    path = []
    for a, h, wobble in zip(azimuth, height, shake, strict=True):
        eye = centre + (distance + 0.01 * wobble[0]) * np.array(
            [np.cos(h) * np.cos(a), np.cos(h) * np.sin(a), np.sin(h)]
        )
        T = se3.look_at(eye, centre + 0.004 * wobble[1:4])
        path.append(T @ se3.exp(np.concatenate([0.001 * wobble[:3], 0.004 * wobble[3:]])))
    return np.stack(path)
