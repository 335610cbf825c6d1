"""Splats that follow their bodies: a twin drawn in any simulated state, splats and all else sorted by depth."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core import se3
from dexloop.core.artifact import load_arrays
from dexloop.core.artifacts import Twin
from dexloop.core.camera import Camera
from dexloop.core.errors import UnknownName
from dexloop.sim.render import Renderer
from dexloop.vision.rasterise import Drawing
from dexloop.vision.splat_gpu import renderer
from dexloop.vision.splats import Splats

_HIDDEN_GROUP = 5
"""Geoms of this group are not drawn by MuJoCo."""


@dataclass(frozen=True, eq=False)
class Picture:
    """What a camera sees of a simulated scene."""

    rgb: UInt8[np.ndarray, "h w 3"]
    depth: Float[np.ndarray, "h w"]
    """Along the camera's z axis [m]."""


def cameras_of(twin: Twin) -> tuple[Camera, ...]:
    """Returns the cameras of the scan that a twin was made of, in its order; none for one of a mesh."""
    file = twin.path / "cameras.npz"
    if not file.is_file():
        return ()
    saved = load_arrays(file)
    rows = zip(saved["T_world_camera"], saved["K"], saved["size_px"], strict=True)
    return tuple(
        Camera(f"{k:03d}", int(w), int(h), float(K[0, 0]), float(K[1, 1]), float(K[0, 2]), float(K[1, 2]), T)
        for k, (T, K, (w, h)) in enumerate(rows)
    )


class CoupledRenderer:
    """Draws some bodies of a model by their splats and all others by their meshes. It is a context manager.

    Splats are drawn in the frame of their body, with the camera moved instead: nothing is copied when a body moves,
    and colours that depend on the direction turn with it.

    Args:
        model: A twin's, or any scene with its objects, such as one with a robot.
        splats: By body name, in the body's frame (`splats_of`); every other body is drawn by its mesh.
        width: [px]
        height: [px]

    Raises:
        UnknownName: The model has no such body.
        MissingPart: This machine cannot draw; the message says what to install.
    """

    def __init__(self, model: mujoco.MjModel, splats: Mapping[str, Splats], width: int, height: int):
        bodies = {model.body(b).name: b for b in range(model.nbody)}
        for name in splats:
            if name not in bodies:
                raise UnknownName("body", name, [b for b in bodies if b])
        self._splats = {bodies[name]: cloud for name, cloud in splats.items() if len(cloud)}
        others = copy.copy(model)
        others.geom_group[np.isin(model.geom_bodyid, list(self._splats))] = _HIDDEN_GROUP
        self._others = Renderer(others, width, height)
        self._draw_splats = renderer()

    def draw(self, data: mujoco.MjData, camera: Camera) -> Picture:
        """Draws one state; after a change of `qpos`, `mujoco.mj_forward` tells where the bodies are."""
        behind = Picture(self._others.rgb(data, camera), self._others.depth(data, camera))
        clouds = []
        for body, cloud in self._splats.items():
            T_body_world = se3.inverse(se3.from_pose(np.concatenate([data.xpos[body], data.xquat[body]])))
            clouds.append(self._draw_splats(cloud, replace(camera, T_world_camera=T_body_world @ _place(camera))))
        return _over(behind, clouds)

    def close(self) -> None:
        """Lets go of the OpenGL context."""
        self._others.close()

    def __enter__(self) -> CoupledRenderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _place(camera: Camera) -> Float[np.ndarray, "4 4"]:
    assert camera.T_world_camera is not None  # else it would not have drawn the rest
    return camera.T_world_camera


def _over(behind: Picture, clouds: list[Drawing]) -> Picture:
    """Lays drawings of splats over and under an opaque picture, in each pixel the far ones first."""
    rgb, depth = behind.rgb.copy(), behind.depth.copy()
    seen = np.logical_or.reduce([cloud.alpha > 0 for cloud in clouds]) if clouds else np.zeros(depth.shape, bool)
    layers = [(behind.rgb[seen] / np.float32(255.0), np.ones(int(seen.sum()), np.float32), behind.depth[seen])]
    for cloud in clouds:
        # At outlines, where splats stop less than half of the light, there is a mean depth only.
        median = cloud.median_depth[seen]
        layers.append((cloud.rgb[seen], cloud.alpha[seen], np.where(median > 0, median, cloud.depth[seen])))
    colours, alphas, depths = (np.stack(each) for each in zip(*layers, strict=True))
    colour, far, pixel = np.zeros_like(colours[0]), np.zeros_like(depths[0]), np.arange(depths.shape[1])
    for k in np.argsort(-depths, axis=0):
        alpha = alphas[k, pixel]
        colour = colours[k, pixel] + (1.0 - alpha[:, None]) * colour
        far = np.where(alpha > 0.5, depths[k, pixel], far)
    rgb[seen], depth[seen] = np.round(255.0 * np.clip(colour, 0.0, 1.0)).astype(np.uint8), far
    return Picture(rgb, depth)
