"""Pictures of a scene: colour, depth and which body is where, for cameras in the OpenCV convention."""

from __future__ import annotations

import mujoco
import numpy as np
from jaxtyping import Float, Int, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.sim import gl
from dexloop.sim.parts import CV_TO_GL, PIXEL_M
from dexloop.sim.quantities import to_pixels


class Renderer:
    """Draws one model at one picture size. Use it as a context manager: it holds an OpenGL context.

    Args:
        model: What is drawn. How finely, the scene says (`SceneCfg.shadows`, `samples`).
        width: [px]
        height: [px]

    Raises:
        MissingPart: This machine cannot draw; the message says what to install.
    """

    def __init__(self, model: mujoco.MjModel, width: int, height: int):
        self.model = model
        try:
            self._renderer = mujoco.Renderer(model, height, width)
        except Exception as error:  # each backend fails in its own way
            found = gl.probe()
            if found.backend is None:
                raise MissingPart(f"this machine cannot draw: {found.message}") from error
            raise MissingPart(
                f"drawing failed ({error}), but the OpenGL backend {found.backend!r} works here: import dexloop before "
                f"mujoco, or set MUJOCO_GL={found.backend}, and start again"
            ) from error

    def rgb(self, data: mujoco.MjData, camera: str | Camera) -> UInt8[np.ndarray, "h w 3"]:
        """Returns the colour picture, seen by a camera of the model or by one that stands anywhere."""
        self._look(data, camera)
        return self._renderer.render()

    def depth(self, data: mujoco.MjData, camera: str | Camera) -> Float[np.ndarray, "h w"]:
        """Returns the distance along the camera's z axis [m]."""
        self._renderer.enable_depth_rendering()
        try:
            self._look(data, camera)
            return self._renderer.render()
        finally:
            self._renderer.disable_depth_rendering()

    def segmentation(self, data: mujoco.MjData, camera: str | Camera) -> Int[np.ndarray, "h w"]:
        """Returns the number of the body seen at each pixel; 0 is the world, -1 is nothing."""
        self._renderer.enable_segmentation_rendering()
        try:
            self._look(data, camera)
            picture = self._renderer.render()
        finally:
            self._renderer.disable_segmentation_rendering()
        geom, kind = picture[..., 0], picture[..., 1]
        is_geom = kind == int(mujoco.mjtObj.mjOBJ_GEOM)
        return np.where(is_geom, self.model.geom_bodyid[np.where(is_geom, geom, 0)], -1)

    def close(self) -> None:
        """Lets go of the OpenGL context."""
        self._renderer.close()

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self, data: mujoco.MjData, camera: str | Camera) -> None:
        if isinstance(camera, str):
            self._renderer.update_scene(data, camera=self._known(camera))
            return
        size = (self._renderer.width, self._renderer.height)
        if camera.T_world_camera is None:
            raise InputError(f"camera {camera.name!r} has no place: give it T_world_camera")
        if (camera.width, camera.height) != size:
            raise InputError(
                f"camera {camera.name!r} is {camera.width} x {camera.height} px, not {size[0]} x {size[1]}"
            )
        self._renderer.update_scene(data)
        _point(self._renderer.scene, camera.T_world_camera, camera)

    def _known(self, camera: str) -> str:
        names = [self.model.camera(i).name for i in range(self.model.ncam)]
        if camera not in names:
            raise UnknownName("camera", camera, names)
        return camera


def _point(scene: mujoco.MjvScene, T_world_camera: Float[np.ndarray, "4 4"], camera: Camera) -> None:
    """Gives a scene that is ready to be drawn another camera; the lamp on the viewer's head goes with it."""
    (_, up, forward), eye = (T_world_camera[:3, :3] * [1.0, -1.0, 1.0]).T, T_world_camera[:3, 3]
    for view in scene.camera:  # a left and a right eye, which are one
        view.pos, view.up, view.forward = eye, up, forward
        near = view.frustum_near
        # Pixel centres are whole numbers, so that the picture goes from -0.5 to its size - 0.5.
        view.frustum_top = near * (camera.cy + 0.5) / camera.fy
        view.frustum_bottom = near * (camera.cy + 0.5 - camera.height) / camera.fy
        view.frustum_center = near * (0.5 * (camera.width - 1) - camera.cx) / camera.fx
        view.frustum_width = near * 0.5 * camera.width / camera.fx  # half of it, in spite of its name
    for light in scene.lights:
        if light.headlight:
            light.pos, light.dir = eye, forward


def camera_of(model: mujoco.MjModel, data: mujoco.MjData, name: str) -> Camera:
    """Returns the calibration of a camera in a compiled model, in the OpenCV convention."""
    names = [model.camera(i).name for i in range(model.ncam)]
    if name not in names:
        raise UnknownName("camera", name, names)
    i = names.index(name)
    width, height = (int(v) for v in model.cam_resolution[i])
    T = se3.from_rt(data.cam_xmat[i].reshape(3, 3), data.cam_xpos[i]) @ CV_TO_GL
    fx, fy, cx, cy = (float(v) for v in to_pixels(model, i))
    return Camera(name, width, height, fx, fy, cx, cy, T)


def place_camera(model: mujoco.MjModel, data: mujoco.MjData, camera: Camera) -> None:
    """Moves a fixed camera of the model, with its intrinsics; for cameras that are carried around."""
    if camera.T_world_camera is None:
        raise ValueError(f"camera {camera.name!r} has no place: give it T_world_camera")
    i = model.camera(camera.name).id
    pose = se3.to_pose(camera.T_world_camera @ CV_TO_GL)
    model.cam_pos[i], model.cam_quat[i] = pose[:3], pose[3:]
    centre = (0.5 * (camera.width - 1) - camera.cx, 0.5 * (camera.height - 1) - camera.cy)
    model.cam_intrinsic[i] = np.array([camera.fx, camera.fy, *centre]) * PIXEL_M
    model.cam_sensorsize[i] = np.array([camera.width, camera.height]) * PIXEL_M
    model.cam_resolution[i] = camera.width, camera.height
    mujoco.mj_camlight(model, data)
