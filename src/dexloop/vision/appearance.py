"""What a known object looks like from a camera: the interface the tracker draws through, textured meshes and splats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from dexloop.core import se3
from dexloop.core.artifacts import Twin
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.parts import VISUAL_GROUP, FixedCamera, add_material, add_mesh
from dexloop.sim.render import Renderer, place_camera
from dexloop.sim.scene import SceneCfg, compose
from dexloop.sim.shape import Shape
from dexloop.vision import splat_gpu
from dexloop.vision.rasterise import BLUR_PX2
from dexloop.vision.splats import Splats, splats_of

_FINEST = 8
"""By how much pixels are divided at most to draw splats."""
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
    alpha: Float[np.ndarray, "h w"]
    """Share of a pixel that the object takes, float32."""
    pull: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """Where a drawing can be differentiated: takes derivatives of a loss by `picture * alpha` and by `alpha` to those
    by xi in T_world_object @ exp(xi)."""


@runtime_checkable
class Appearance(Protocol):
    """Anything that can draw an object."""

    @property
    def box(self) -> Float[np.ndarray, "2 3"]:
        """Lowest and highest corner of the object in its own frame [m]."""
        ...

    def render(self, camera: Camera, T_world_object: Float[np.ndarray, "4 4"]) -> View:
        """Draws the object in the camera's picture; a cropped picture is a camera of its own (`crop`)."""
        ...


def _from_object(camera: Camera, T_world_object: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "4 4"]:
    """Returns T_object_camera: the object stays where it is and the camera moves around it, which is the same."""
    if camera.T_world_camera is None:
        raise InputError(f"camera {camera.name!r} has no place: give it T_world_camera")
    return se3.inverse(T_world_object) @ camera.T_world_camera


def _reduced(values: np.ndarray, k: int) -> np.ndarray:
    """Returns means over k x k pixels."""
    h, w = values.shape[:2]
    return values.reshape(h // k, k, w // k, k, *values.shape[2:]).mean(axis=(1, 3))


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
        """Draws the object."""
        renderer, (width, height) = self._renderer_of(camera.width, camera.height)
        T_object_camera = _from_object(camera, T_world_object)
        placed = replace(camera, name="tracker", width=width, height=height, T_world_camera=T_object_camera)
        place_camera(self._model, self._data, placed)
        picture = renderer.rgb(self._data, "tracker")[: camera.height, : camera.width]
        depth = renderer.depth(self._data, "tracker")[: camera.height, : camera.width]
        mask = depth < 0.9 * self._far
        drawn = np.where(mask[..., None], picture, 0).astype(np.float32)
        return View(drawn, np.where(mask, depth, 0.0), mask, mask.astype(np.float32))

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


class SplatAppearance:
    """Gaussian splats, as a scan has left them: with the light of the scan, and with derivatives by the pose.

    A rasteriser widens splats by part of a pixel, and their training allows for that. Where pixels are larger than they
    were then, from farther away or in a reduced picture, the object would become larger, and so it is drawn with finer
    ones, and reduced. Where they are smaller, it would become smaller, and so splats are widened by what is missing.

    Args:
        splats: In the object's frame.
        pixel_m: How large a pixel was on the object in the pictures that they were trained with [m].
    """

    def __init__(self, splats: Splats, pixel_m: float):
        solid = splats.means[splats.opacities > 0.5]
        if not len(solid):
            raise InputError("there are no solid splats: a tracker needs to know what the object looks like")
        self._splats, self._draw = splats, splat_gpu.renderer()
        self._box = np.stack([solid.min(axis=0), solid.max(axis=0)]).astype(np.float64)
        self._pixel_m = pixel_m

    @staticmethod
    def of(twin: Twin, name: str) -> SplatAppearance:
        """Returns that of an object of a scanned twin.

        Raises:
            UnknownName: No such object has splats.
        """
        clouds = splats_of(twin)
        if name not in clouds:
            raise UnknownName("object with splats", name, list(clouds))
        return SplatAppearance(clouds[name], float(twin.header.meta["about"][name]["pixel_m"]))

    @property
    def box(self) -> Float[np.ndarray, "2 3"]:
        """Lowest and highest corner of what is solid [m]."""
        return self._box

    def render(self, camera: Camera, T_world_object: Float[np.ndarray, "4 4"]) -> View:
        """Draws the object."""
        T_object_camera = _from_object(camera, T_world_object)
        T_camera_object, middle = se3.inverse(T_object_camera), self._box.mean(axis=0)
        far = max(float(se3.transform(T_camera_object, middle)[2]), 1e-6)
        pixel_m = far / camera.fx
        k = int(np.clip(np.ceil(pixel_m / self._pixel_m), 1, _FINEST))
        missing = BLUR_PX2 * max(self._pixel_m**2 - (pixel_m / k) ** 2, 0.0)
        wide = 0.5 * np.log(np.exp(2.0 * self._splats.log_scales) + missing)
        splats = replace(self._splats, log_scales=wide)
        drawing = self._draw(
            splats, replace(camera.resized(k * camera.width, k * camera.height), T_world_camera=T_object_camera)
        )
        rgb, alpha = _reduced(drawing.rgb, k), _reduced(drawing.alpha, k)
        solid = _reduced((drawing.median_depth > 0).astype(np.float32), k)
        mask = solid >= 0.5
        depth = np.where(mask, _reduced(drawing.median_depth, k) / np.maximum(solid, 1e-6), 0.0)
        picture = np.clip(255.0 * rgb / np.maximum(alpha, 1e-6)[..., None], 0.0, 255.0)

        def pull(d_picture: np.ndarray, d_alpha: np.ndarray) -> np.ndarray:
            by_rgb, by_alpha = (d.repeat(k, axis=0).repeat(k, axis=1) / k**2 for d in (d_picture, d_alpha))
            by = drawing.backward(255.0 * by_rgb, d_alpha=by_alpha)
            if not missing:
                return -by.pose
            # The farther away, the less splats are widened.
            by_missing = 0.5 * float(np.sum(by.log_scales * np.exp(-2.0 * wide), dtype=np.float64))
            by_far = by_missing * -2.0 * float(BLUR_PX2) * (pixel_m / k) ** 2 / far
            ahead = T_camera_object[2, :3]
            return by_far * np.concatenate([ahead, np.cross(middle, ahead)]) - by.pose

        return View(picture, depth, mask, alpha, pull)


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
