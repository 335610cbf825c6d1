"""The page in the browser: what a twin looks like, is made of and was seen from; and how it moves, when simulated."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import Diverged, InputError, MissingPart
from dexloop.sim.shape import Shape
from dexloop.view.contents import Contents, Known, ShownObject
from dexloop.view.playing import Play, Poses
from dexloop.vision.splats import Splats

if TYPE_CHECKING:
    import viser

FRAME_S = 1.0 / 30.0
_LONGEST_S = 10.0
"""Something that fell off the table falls for ever."""
_STILL_M, _STILL_S = 2e-5, 0.3
"""At rest: what moves less than this in a frame [m, 1], for so long [s]."""
_LIFT_M = 0.3
"""How far above the table an object can be put [m]."""
_FASTEST_M_S = 1.0
"""Of what is pushed, at its best known mass [m/s]."""
_UNIT_M = 0.01
"""viser keeps covariances in half precision, in which the square of a millimetre is next to nothing in metres."""
_EYE_M = np.array([0.25, -0.32, 0.25])
"""Where one looks from at first, seen from the first object [m]."""
_PARTS_RGB = ((31, 111, 180), (199, 119, 0), (23, 128, 61), (179, 38, 30), (110, 80, 170), (0, 140, 150))
_MESH_RGB = (205, 180, 140)


class Page:
    """A page that shows a twin, served until it is closed. It is a context manager.

    Args:
        contents: What it shows.
        host: The address to listen at.
        port: The port to listen at; the next free one if it is taken, any free one if it is 0.

    Raises:
        MissingPart: viser is not installed.
        InputError: One cannot listen there.
    """

    def __init__(self, contents: Contents, *, host: str = "127.0.0.1", port: int = 8080):
        viser = _viser()
        _check_address(host, port)
        self.contents = contents
        self._play = Play(contents)
        self._lock, self._turn = threading.Lock(), 0
        with _quiet():
            self.server: viser.ViserServer = viser.ViserServer(host=host, port=port, label="dexloop", verbose=False)
        self._host = host
        self._frames = {o.name: self._add_object(o) for o in contents.objects}
        self._add_table()
        self._add_cameras()
        self._add_controls()
        self.reset()

    @property
    def url(self) -> str:
        """Where the page is."""
        anywhere = self._host in ("0.0.0.0", "::", "")
        return f"http://{'localhost' if anywhere else self._host}:{self.server.get_port()}"

    def play(self) -> None:
        """Simulates from where the sliders say, as fast as it would happen, until all is at rest or was put back."""
        with self._lock:
            self._turn += 1
            turn, now = self._turn, self._poses()
            masses = {o.name: float(self.masses[o.name].value) for o in self.contents.objects}
            values = {o.mass.name: masses[o.name] for o in self.contents.objects}
            values[self.contents.friction.name] = float(self.friction.value)
            self._play.start(now, values, {name: float(p.value) / masses[name] for name, p in self.pushes.items()})
        started, frames, still = time.monotonic(), 0, 0
        while still < _STILL_S / FRAME_S and frames < _LONGEST_S / FRAME_S:
            with self._lock:
                if turn != self._turn:  # put back, or started again
                    return
                try:
                    before, now = now, self._play.go(FRAME_S)
                except Diverged as error:
                    self.state.content = f"**unstable**: {error}"
                    return
                frames += 1
                self._place(now)
                self.state.content = f"{frames * FRAME_S:.1f} s"
            still = still + 1 if _furthest(before, now) < _STILL_M else 0
            time.sleep(max(started + frames * FRAME_S - time.monotonic(), 0.0))
        self.state.content = f"{'at rest' if still else 'stopped'} after {frames * FRAME_S:.1f} s"

    def reset(self) -> None:
        """Puts the objects where the sliders say."""
        with self._lock:
            self._turn += 1
            self._place(self._poses())
            self.state.content = "ready"

    def close(self) -> None:
        """Stops serving."""
        with self._lock:
            self._turn += 1
        with _quiet():
            self.server.stop()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _place(self, poses: Poses) -> None:
        with self.server.atomic():
            for name, pose in poses.items():
                self._frames[name].position, self._frames[name].wxyz = pose[:3], pose[3:]

    def _poses(self) -> dict[str, Float[np.ndarray, "7"]]:
        """Where the sliders say."""
        poses = {}
        for o in self.contents.objects:
            x, y, z, yaw = (float(self.poses[o.name][axis].value) for axis in ("x", "y", "z", "yaw"))
            turn = se3.so3_exp(np.array([0.0, 0.0, np.radians(yaw)]))
            poses[o.name] = np.array([x, y, z, *se3.quat_multiply(turn, o.pose[3:])])
        return poses

    def _add_object(self, shown: ShownObject) -> viser.FrameHandle:
        root = f"/objects/{shown.name}"
        frame = self.server.scene.add_frame(root, show_axes=False)
        if shown.splats is not None:
            _add_splats(self.server, f"{root}/splats", shown.splats)
        _add_mesh(self.server, f"{root}/mesh", shown.shape)
        self.server.scene.add_frame(f"{root}/parts", show_axes=False)
        for k, part in enumerate(shown.shape.parts):
            rgb = _PARTS_RGB[k % len(_PARTS_RGB)]
            self.server.scene.add_mesh_simple(
                f"{root}/parts/{k}", part.vertices, part.faces, color=rgb, opacity=0.6, flat_shading=True
            )
        return frame

    def _add_table(self) -> None:
        if self.contents.surroundings is not None:
            _add_splats(self.server, "/surroundings", self.contents.surroundings)
        self.server.scene.add_frame("/world", show_axes=False)
        model = self.contents.scene.model
        for geom in np.flatnonzero((model.geom_bodyid == 0) & (model.geom_type == mujoco.mjtGeom.mjGEOM_BOX)):
            self.server.scene.add_box(
                f"/world/{model.geom(geom).name or geom}",
                color=np.round(255 * model.geom_rgba[geom, :3]).astype(np.uint8),
                dimensions=2.0 * model.geom_size[geom],
                position=model.geom_pos[geom],
                wxyz=model.geom_quat[geom],
            )

    def _add_cameras(self) -> None:
        self.server.scene.add_frame("/cameras", show_axes=False)
        for camera in self.contents.cameras:
            assert camera.T_world_camera is not None
            pose = se3.to_pose(camera.T_world_camera)
            self.server.scene.add_camera_frustum(
                f"/cameras/{camera.name}", fov=2.0 * float(np.arctan(0.5 * camera.height / camera.fy)),
                aspect=camera.width / camera.height, scale=0.015, thickness=1.5, thickness_units="screen",
                position=pose[:3], wxyz=pose[3:],
            )  # fmt: skip

    def _add_controls(self) -> None:
        gui, objects = self.server.gui, self.contents.objects
        gui.configure_theme(show_logo=False, show_share_button=False)
        self.server.initial_camera.position = objects[0].pose[:3] + _EYE_M
        self.server.initial_camera.look_at = objects[0].pose[:3]
        gui.add_markdown(f"**{self.contents.title}**")
        self.play_button, self.reset_button = gui.add_button("Play"), gui.add_button("Put back")
        self.play_button.on_click(lambda _: self.play())
        self.reset_button.on_click(lambda _: self.reset())
        self.state = gui.add_markdown("ready")
        splats, all_splats = (any(o.splats for o in objects), all(o.splats for o in objects))
        around = self.contents.surroundings is not None
        self.checkboxes = {
            "splats": gui.add_checkbox("splats", splats, disabled=not splats),
            "mesh": gui.add_checkbox("mesh", not all_splats),
            "parts": gui.add_checkbox("convex parts", False),
            "cameras": gui.add_checkbox("cameras", bool(self.contents.cameras), disabled=not self.contents.cameras),
            "surroundings": gui.add_checkbox("surroundings", around, disabled=not around),
        }
        for kind, box in self.checkboxes.items():
            box.on_update(lambda _, kind=kind: self._show(kind))
            self._show(kind)
        self.poses: dict[str, dict[str, Any]] = {}
        self.masses: dict[str, Any] = {}
        self.pushes: dict[str, Any] = {}
        for o in objects:
            with gui.add_folder(o.name):
                self._add_object_controls(o)
        with gui.add_folder("table"):
            self.friction = self._add_slider("friction", self.contents.friction)

    def _add_object_controls(self, o: ShownObject) -> None:
        gui = self.server.gui
        half_x, half_y = self._reach()
        x, y, z = (float(v) for v in o.pose[:3])
        self.poses[o.name] = {
            "x": gui.add_slider("x [m]", min(-half_x, x), max(half_x, x), 0.001, x),
            "y": gui.add_slider("y [m]", min(-half_y, y), max(half_y, y), 0.001, y),
            "z": gui.add_slider("z [m]", z, z + _LIFT_M, 0.001, z),
            "yaw": gui.add_slider("yaw [°]", -180.0, 180.0, 1.0, 0.0),
        }
        for slider in self.poses[o.name].values():
            slider.on_update(lambda _: self.reset())
        self.masses[o.name] = self._add_slider("mass [kg]", o.mass)
        most = float(f"{_FASTEST_M_S * o.mass.best:.2g}")
        hint = "What it is struck with when it starts to play, along x: without it, mass makes no difference."
        self.pushes[o.name] = gui.add_slider("push [N·s]", 0.0, most, _step(most), 0.0, hint=hint)

    def _add_slider(self, label: str, known: Known) -> Any:
        low, high = known.range
        slider = self.server.gui.add_slider(label, low, high, _step(high - low), known.best, hint=known.words)
        self.server.gui.add_markdown(f"<small>{known.words}</small>")
        return slider

    def _reach(self) -> tuple[float, float]:
        """Half the size of the table [m]."""
        model = self.contents.scene.model
        boxes = np.flatnonzero((model.geom_bodyid == 0) & (model.geom_type == mujoco.mjtGeom.mjGEOM_BOX))
        half = model.geom_size[boxes, :2].max(axis=0) if len(boxes) else np.full(2, 0.5)
        return float(half[0]), float(half[1])

    def _show(self, kind: str) -> None:
        """Shows what its checkbox says; the table as it is simulated where its surroundings are not shown."""
        alone = kind in ("cameras", "surroundings")
        names = [f"/{kind}"] if alone else [f"/objects/{o.name}/{kind}" for o in self.contents.objects]
        value = bool(self.checkboxes[kind].value)
        shown = dict.fromkeys(names, value) | ({"/world": not value} if kind == "surroundings" else {})
        for name, visible in shown.items():
            if (node := self.server.scene.get_handle_by_name(name)) is not None:
                node.visible = visible


def _viser() -> Any:
    try:
        import viser
    except ImportError as error:
        raise MissingPart("the viewer needs viser: pip install 'dexloop[view]'") from error
    return viser


def _quiet() -> contextlib.redirect_stdout[io.StringIO]:
    """Keeps what viser prints, even when told not to, out of the place where only our answer may be."""
    return contextlib.redirect_stdout(io.StringIO())


def _check_address(host: str, port: int) -> None:
    """viser tries one port after the other for ever where nobody may listen at all."""
    if not 0 <= port < 65536:
        raise InputError(f"--port takes 0 to 65535, not {port}")
    try:
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError as error:
        raise InputError(f"one cannot listen at {host!r}: {error.strerror or error}") from error


def _add_splats(server: viser.ViserServer, name: str, splats: Splats) -> None:
    """Adds splats in their constant colour: the page does not know colours that depend on the direction."""
    quats = splats.quats.astype(np.float64)
    axes = se3.quat_to_matrix(quats / np.linalg.norm(quats, axis=1, keepdims=True))
    axes = axes * (np.exp(splats.log_scales.astype(np.float64)) / _UNIT_M)[:, None, :]
    server.scene.add_gaussian_splats(
        name,
        centers=splats.means / _UNIT_M,
        covariances=axes @ np.swapaxes(axes, 1, 2),
        rgbs=splats.colours,
        opacities=splats.opacities[:, None],
        scale=_UNIT_M,
    )


def _add_mesh(server: viser.ViserServer, name: str, shape: Shape) -> None:
    mesh = shape.visual
    if shape.texture is None or mesh.uv is None:
        server.scene.add_mesh_simple(name, mesh.vertices, mesh.faces, color=_MESH_RGB, flat_shading=True)
        return
    import PIL.Image
    import trimesh
    from trimesh.visual import TextureVisuals
    from trimesh.visual.material import PBRMaterial

    picture = PIL.Image.fromarray(np.ascontiguousarray(shape.texture))
    material = PBRMaterial(baseColorTexture=picture, metallicFactor=0.0, roughnessFactor=0.8)
    visual = TextureVisuals(uv=mesh.uv, material=material)
    server.scene.add_mesh_trimesh(name, trimesh.Trimesh(mesh.vertices, mesh.faces, visual=visual, process=False))


def _furthest(a: Poses, b: Poses) -> float:
    """The largest change of any coordinate."""
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


def _step(span: float) -> float:
    """A round step of a slider: a few hundredths to a thousandth of its span."""
    return float(10.0 ** np.floor(np.log10(max(span, 1e-9) / 100.0)))
