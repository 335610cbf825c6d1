"""Splats that follow their bodies: a twin drawn in any simulated state, splats and all else sorted by depth."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core import se3
from dexloop.core.artifacts import Twin
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.render import Renderer
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


def splats_of(twin: Twin) -> dict[str, Splats]:
    """Returns the splats of a twin's objects by name, each in its object's frame; objects without any are left out."""
    files = {name: twin.path / "objects" / name / "splats.ply" for name in twin.header.meta["objects"]}
    return {name: Splats.load(file) for name, file in files.items() if file.is_file()}


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
        rgb, depth = self._others.rgb(data, camera) / np.float32(255.0), self._others.depth(data, camera)
        if camera.T_world_camera is None:
            raise InputError(f"camera {camera.name!r} has no place: give it T_world_camera")
        layers = [(rgb, np.ones_like(depth), depth)]
        for body, cloud in self._splats.items():
            T_world_body = se3.from_pose(np.concatenate([data.xpos[body], data.xquat[body]]))
            own = replace(camera, T_world_camera=se3.inverse(T_world_body) @ camera.T_world_camera)
            drawn = self._draw_splats(cloud, own)
            # At outlines, where splats stop less than half of the light, there is a mean depth only.
            layers.append((drawn.rgb, drawn.alpha, np.where(drawn.median_depth > 0, drawn.median_depth, drawn.depth)))
        return _over(layers)

    def close(self) -> None:
        """Lets go of the OpenGL context."""
        self._others.close()

    def __enter__(self) -> CoupledRenderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _over(layers: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Picture:
    """Lays pictures (colour times alpha, alpha, depth) over one another, in each pixel the far ones first."""
    colours, alphas, depths = (np.stack(each) for each in zip(*layers, strict=True))
    order = np.argsort(-depths, axis=0, kind="stable")
    rgb, depth = np.zeros_like(colours[0]), np.zeros_like(depths[0])
    for k in order:
        here = k[None]
        alpha = np.take_along_axis(alphas, here, axis=0)[0]
        rgb = np.take_along_axis(colours, here[..., None], axis=0)[0] + (1.0 - alpha[..., None]) * rgb
        depth = np.where(alpha > 0.5, np.take_along_axis(depths, here, axis=0)[0], depth)
    return Picture(np.round(255.0 * np.clip(rgb, 0.0, 1.0)).astype(np.uint8), depth)
