"""What a known object looks like from a camera: the interface the tracker draws through, and textured meshes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.sim.parts import VISUAL_GROUP, FixedCamera, add_material, add_mesh
from dexloop.sim.render import Renderer, place_camera
from dexloop.sim.scene import SceneCfg, compose
from dexloop.sim.shape import Shape

_SIZE_STEP = 32
"""Pictures are drawn at multiples of this [px], so that a growing crop seldom needs another OpenGL context."""


@dataclass(frozen=True, eq=False)
class View:
    """An object alone, as a camera would see it in even light."""

    picture: Float[np.ndarray, "h w 3"]
    """RGB, 0 to 255, float32; black where the object is not."""
    depth: Float[np.ndarray, "h w"]
    """Along the camera's z axis [m]; 0 where the object is not."""
    mask: Bool[np.ndarray, "h w"]
    """Where the object is."""


@runtime_checkable
class Appearance(Protocol):
    """Anything that can draw an object: a textured mesh here, a cloud of Gaussians elsewhere."""

    @property
    def box(self) -> Float[np.ndarray, "2 3"]:
        """Lowest and highest corner of the object in its own frame [m]."""
        ...

    def render(self, camera: Camera, T_world_object: Float[np.ndarray, "4 4"]) -> View:
        """Draws the object in the camera's picture; a cropped picture is a camera of its own (`crop`)."""
        ...


def crop(camera: Camera, left: int, top: int, width: int, height: int) -> Camera:
    """Returns the camera that sees only a region of the picture [px]; the region may reach beyond it."""
    return replace(camera, width=width, height=height, cx=camera.cx - left, cy=camera.cy - top)


def box_corners(box: Float[np.ndarray, "2 3"]) -> Float[np.ndarray, "8 3"]:
    """Returns the corners of a box given by its lowest and highest one."""
    return np.array([[x, y, z] for x in box[:, 0] for y in box[:, 1] for z in box[:, 2]])


class MeshAppearance:
    """A textured mesh, drawn by MuJoCo in even white light. Use it as a context manager: it holds an OpenGL context.

    Args:
        shape: The object; only what is seen of it matters.
        samples: Multisampling of edges.

    Raises:
        MissingPart: This machine cannot draw; raised at the first picture.
    """

    def __init__(self, shape: Shape, *, samples: int = 4):
        vertices = shape.visual.vertices
        if not len(vertices):
            raise InputError("the shape has no visual mesh: a tracker needs to know what the object looks like")
        self._box = np.stack([vertices.min(axis=0), vertices.max(axis=0)])
        origin = Camera.from_fov("tracker", _SIZE_STEP, _SIZE_STEP, 1.0, np.eye(4))
        scene = compose(_Exhibit(shape), FixedCamera(origin), cfg=SceneCfg(samples=samples, max_delay_s=0.0))
        self._model, self._data = scene.model, mujoco.MjData(scene.model)
        light = self._model.vis.headlight
        light.ambient[:], light.diffuse[:], light.specular[:] = 1.0, 0.0, 0.0
        mujoco.mj_forward(self._model, self._data)
        self._renderers: dict[int, tuple[Renderer, tuple[int, int]]] = {}

    @property
    def box(self) -> Float[np.ndarray, "2 3"]:
        """Lowest and highest corner of the mesh [m]."""
        return self._box

    def render(self, camera: Camera, T_world_object: Float[np.ndarray, "4 4"]) -> View:
        """Draws the object. The object stays where it is and the camera moves around it, which is the same."""
        if camera.T_world_camera is None:
            raise InputError(f"camera {camera.name!r} has no place: give it T_world_camera")
        renderer, (width, height) = self._renderer_of(camera.width, camera.height)
        T_object_camera = se3.inverse(T_world_object) @ camera.T_world_camera
        placed = replace(camera, name="tracker", width=width, height=height, T_world_camera=T_object_camera)
        place_camera(self._model, self._data, placed)
        picture = renderer.rgb(self._data, "tracker")[: camera.height, : camera.width]
        depth = renderer.depth(self._data, "tracker")[: camera.height, : camera.width]
        mask = depth < 0.9 * self._far
        return View(np.where(mask[..., None], picture, 0).astype(np.float32), np.where(mask, depth, 0.0), mask)

    @property
    def _far(self) -> float:
        return float(self._model.vis.map.zfar * self._model.stat.extent)

    def _renderer_of(self, width: int, height: int) -> tuple[Renderer, tuple[int, int]]:
        """Returns one that draws at least this size, and its size. Each octave has one, which grows when it must."""
        octave = max(width, height, _SIZE_STEP).bit_length()
        renderer, (w, h) = self._renderers.get(octave, (None, (0, 0)))
        if renderer is None or width > w or height > h:
            if renderer is not None:
                renderer.close()
            w, h = (-(-max(size) // _SIZE_STEP) * _SIZE_STEP for size in ((width, w), (height, h)))
            renderer = Renderer(self._model, w, h)
            self._renderers[octave] = renderer, (w, h)
        return renderer, (w, h)

    def close(self) -> None:
        """Lets go of the OpenGL contexts."""
        for renderer, _ in self._renderers.values():
            renderer.close()
        self._renderers.clear()

    def __enter__(self) -> MeshAppearance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class _Exhibit:
    """The visual mesh alone, fixed at the origin."""

    shape: Shape

    def add_to(self, spec: mujoco.MjSpec) -> None:
        add_mesh(spec, "exhibit", self.shape.visual)
        spec.worldbody.add_geom(
            name="exhibit", type=mujoco.mjtGeom.mjGEOM_MESH, meshname="exhibit", contype=0, conaffinity=0,
            material=add_material(spec, "exhibit", self.shape.texture), group=VISUAL_GROUP,
        )  # fmt: skip
