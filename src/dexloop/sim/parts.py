"""The parts a scene is made of. Each is plain data and knows how to add itself to a MuJoCo specification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import mujoco
import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.sim.roles import RobotModel
from dexloop.sim.shape import Mesh, Shape

ORIGIN = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)

VISUAL_GROUP = 2
COLLISION_GROUP = 3
"""Geom groups as in MuJoCo Menagerie: 2 is drawn, 3 collides."""

TABLE_PRIORITY = 1
FINGERTIP_PRIORITY = 2
"""In a contact the geom of higher priority sets friction and softness, so that three surfaces have a
parameter each: object on table (`table.friction`), object on fingertips (`fingertip.friction`) and object on anything
else, palm and finger links as well (`object.friction`)."""


@runtime_checkable
class Part(Protocol):
    """Anything a scene can be made of."""

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Adds itself to the specification."""
        ...


@dataclass(frozen=True)
class Primitive:
    """A simple shape instead of a mesh."""

    kind: str
    """"box", "sphere", "cylinder", "capsule" or "ellipsoid"."""
    size: tuple[float, ...]
    """As MuJoCo takes it: half sizes, or radius and half length [m]."""
    rgba: tuple[float, float, float, float] = (0.8, 0.5, 0.2, 1.0)


@dataclass(frozen=True, eq=False)
class Thing:
    """A free object."""

    name: str
    shape: Shape | Primitive
    mass_kg: float
    pose: tuple[float, ...] = ORIGIN
    """Initial T_world_object as x y z [m], qw qx qy qz."""
    com: tuple[float, float, float] | None = None
    """Centre of mass in the object's frame [m]; None for that of the uniform solid."""
    inertia: Float[np.ndarray, "3 3"] | None = None
    """About the centre of mass, in the object's axes [kg·m²]; None for that of the uniform solid."""
    friction: float = 0.5
    """Sliding friction against whatever has no priority over it (see `TABLE_PRIORITY`)."""
    torsional_m: float = 0.003
    """Torsional friction [m]: about two thirds of a contact patch's radius times friction."""
    solref: tuple[float, float] = (0.006, 1.0)
    """Time constant [s] and damping ratio of its contacts."""

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Adds the body with a free joint, what it looks like and what it collides with."""
        body = spec.worldbody.add_body(name=self.name, pos=self.pose[:3], quat=self.pose[3:])
        body.simple = False  # else MuJoCo takes for granted that its centre of mass stays where it is compiled
        body.add_freejoint(name=f"{self.name}.free")
        contact: dict[str, Any] = {
            "friction": [self.friction, self.torsional_m, 1e-4],
            "solref": self.solref,
            "solimp": SOFT_ONSET,
            "condim": 4,
            "group": COLLISION_GROUP,
        }
        if isinstance(self.shape, Primitive):
            kind = getattr(mujoco.mjtGeom, f"mjGEOM_{self.shape.kind.upper()}")
            size = np.zeros(3)
            size[: len(self.shape.size)] = self.shape.size
            body.add_geom(
                name=f"{self.name}.0", type=kind, size=size, rgba=self.shape.rgba, mass=self.mass_kg,
                **{**contact, "group": VISUAL_GROUP},
            )  # fmt: skip
        else:
            self._add_meshes(spec, body, self.shape, contact)
        if self.com is not None or self.inertia is not None:
            if self.com is None or self.inertia is None:
                raise ValueError(f"{self.name}: give both the centre of mass and the inertia, or neither")
            body.explicitinertial = True
            body.mass, body.ipos = self.mass_kg, self.com
            i = self.inertia
            body.fullinertia = [i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]]

    def _add_meshes(self, spec: mujoco.MjSpec, body: Any, shape: Shape, contact: dict[str, Any]) -> None:
        material = add_material(spec, self.name, shape.texture)
        add_mesh(spec, f"{self.name}.visual", shape.visual)
        body.add_geom(
            name=f"{self.name}.visual", type=mujoco.mjtGeom.mjGEOM_MESH, meshname=f"{self.name}.visual",
            material=material, contype=0, conaffinity=0, group=VISUAL_GROUP, mass=0,
        )  # fmt: skip
        volumes = [_volume(part) for part in shape.parts]
        for k, (part, volume) in enumerate(zip(shape.parts, volumes, strict=True)):
            add_mesh(spec, f"{self.name}.part{k}", part)
            body.add_geom(
                name=f"{self.name}.{k}", type=mujoco.mjtGeom.mjGEOM_MESH, meshname=f"{self.name}.part{k}",
                rgba=[0.2, 0.6, 1.0, 0.5], mass=self.mass_kg * volume / sum(volumes), **contact,
            )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Table:
    """A table whose top is the plane z = 0 of the world."""

    size_m: tuple[float, float] = (0.9, 0.7)
    friction: float = 0.5
    """Sliding friction of any object on it."""
    torsional_m: float = 0.003
    """[m]"""
    solref: tuple[float, float] = (0.006, 1.0)
    """Time constant [s] and damping ratio."""
    grip_1_s: float = 150.0
    """How fast its friction acts on what slides [1/s], the parameter `table.grip`. More makes fast objects hop and
    their contact forces chatter; with less, friction fades below µ·9.81/grip [m/s]."""
    texture: UInt8[np.ndarray, "h w 3"] | None = None
    """What lies printed on it: row 0 at +y, column 0 at -x."""
    thickness_m: float = 0.04

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Adds the top as a box named "table"."""
        half = [self.size_m[0] / 2, self.size_m[1] / 2, self.thickness_m / 2]
        spec.worldbody.add_geom(
            name="table", type=mujoco.mjtGeom.mjGEOM_BOX, size=half, pos=[0, 0, -half[2]], rgba=[0.72, 0.6, 0.48, 1],
            friction=[self.friction, self.torsional_m, 1e-4], solref=self.solref, solimp=SOFT_ONSET, condim=4,
            priority=TABLE_PRIORITY, group=0,
        )  # fmt: skip
        if self.texture is not None:
            x, y, lift = half[0], half[1], 2e-4
            corners = np.array([[-x, -y, lift], [x, -y, lift], [x, y, lift], [-x, y, lift]])
            # A sheet has no volume, and MuJoCo wants one: a second point below makes it a flat pyramid.
            mesh = Mesh(
                np.vstack([corners, [[0, 0, -1e-3]]]),
                np.array([[0, 1, 2], [0, 2, 3], [1, 0, 4], [2, 1, 4], [3, 2, 4], [0, 3, 4]]),
                np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]], dtype=np.float64),
            )
            add_mesh(spec, "table.mat", mesh)
            spec.worldbody.add_geom(
                name="table.mat", type=mujoco.mjtGeom.mjGEOM_MESH, meshname="table.mat", contype=0, conaffinity=0,
                material=add_material(spec, "table.mat", self.texture), group=VISUAL_GROUP, mass=0,
            )  # fmt: skip


@dataclass(frozen=True)
class Light:
    """A lamp."""

    name: str
    position: tuple[float, float, float]
    """[m]"""
    target: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """[m]"""
    diffuse: tuple[float, float, float] = (0.6, 0.6, 0.6)
    ambient: tuple[float, float, float] = (0.0, 0.0, 0.0)
    specular: tuple[float, float, float] = (0.2, 0.2, 0.2)
    casts_shadow: bool = False

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Adds a directional light from `position` towards `target`."""
        spec.worldbody.add_light(
            name=self.name, pos=self.position, dir=np.subtract(self.target, self.position), diffuse=self.diffuse,
            ambient=self.ambient, specular=self.specular, castshadow=self.casts_shadow,
            type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class FixedCamera:
    """A camera that stands in the world; calibration as in `core.camera`."""

    camera: Camera

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Adds the camera, with OpenCV axes turned into MuJoCo's (x right, y up, z backward)."""
        c = self.camera
        if c.T_world_camera is None:
            raise ValueError(f"camera {c.name!r} has no place: give it T_world_camera")
        pose = se3.to_pose(np.asarray(c.T_world_camera) @ CV_TO_GL)
        camera = spec.worldbody.add_camera(name=c.name, pos=pose[:3], quat=pose[3:])
        camera.resolution = [c.width, c.height]
        camera.sensor_size = [c.width * PIXEL_M, c.height * PIXEL_M]
        camera.focal_pixel = [c.fx, c.fy]
        # MuJoCo's principal point is measured from the image centre, towards the upper left.
        camera.principal_pixel = [0.5 * (c.width - 1) - c.cx, 0.5 * (c.height - 1) - c.cy]


@dataclass(frozen=True, eq=False)
class Robot:
    """A robot standing in the scene. Its names are kept as they are in the embodiment."""

    embodiment: RobotModel
    T_world_base: Float[np.ndarray, "4 4"] = field(default_factory=lambda: np.eye(4))
    fingertip_friction: float | None = None
    """Sliding friction of the fingertips; None leaves the model's own."""
    fingertip_solref: tuple[float, float] | None = None
    """Time constant [s] and damping ratio of the fingertips' contacts; None leaves the model's own."""

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Attaches the robot's model and gives its fingertips priority in contacts; where it is bare, what it touches
        decides."""
        pose = se3.to_pose(np.asarray(self.T_world_base))
        robot = self.embodiment.make_spec()
        for key in list(robot.keys):  # a keyframe of the robot alone does not fit the whole scene
            robot.delete(key)
        pads = {name for fingertip in self.embodiment.fingertips for name in fingertip.geoms}
        for geom in robot.geoms:
            if geom.name not in pads:
                # MuJoCo takes the rougher of two surfaces: a smooth one leaves it to the other.
                geom.priority, geom.friction = 0, [0.0, 0.0, 0.0]
        spec.attach(robot, frame=spec.worldbody.add_frame(pos=pose[:3], quat=pose[3:]), prefix="")
        for fingertip in self.embodiment.fingertips:
            for name in fingertip.geoms:
                geom = spec.geom(name)
                geom.priority, geom.condim, geom.solimp = FINGERTIP_PRIORITY, max(int(geom.condim), 4), SOFT_ONSET
                if self.fingertip_friction is not None:
                    geom.friction = [self.fingertip_friction, 0.005, 1e-4]
                if self.fingertip_solref is not None:
                    geom.solref = self.fingertip_solref


SOFT_ONSET = (0.0, 0.95, 0.0003, 0.5, 2.0)
"""Impedance of contacts (MuJoCo's solimp): none at first touch, full within 0.3 mm. With MuJoCo's own 0.9 at first
touch a pushed object rocks, its few contacts chatter on and off, and forces measure the chatter instead of friction."""
PIXEL_M = 1e-6
"""Pixel pitch given to MuJoCo's sensors [m]; it cancels out."""
CV_TO_GL = np.diag([1.0, -1.0, -1.0, 1.0])
"""T_cv_gl: the same camera with y up and z backward."""


def add_mesh(spec: mujoco.MjSpec, name: str, mesh: Mesh) -> None:
    """Adds a mesh asset with its texture coordinates."""
    asset = spec.add_mesh(name=name, uservert=mesh.vertices.ravel(), userface=mesh.faces.ravel().astype(np.int32))
    if mesh.uv is not None:
        # MuJoCo's v runs downwards from the first row of the picture.
        asset.usertexcoord = np.column_stack([mesh.uv[:, 0], 1.0 - mesh.uv[:, 1]]).ravel().astype(np.float32)
        asset.userfacetexcoord = mesh.faces.ravel().astype(np.int32)


def add_material(spec: mujoco.MjSpec, name: str, texture: np.ndarray | None) -> str:
    """Adds a matt material with an optional picture on it, and returns its name."""
    material = spec.add_material(name=name, specular=0.15, shininess=0.2)
    if texture is not None:
        image = np.ascontiguousarray(texture)
        asset = spec.add_texture(name=name, type=mujoco.mjtTexture.mjTEXTURE_2D, nchannel=3)
        asset.height, asset.width, asset.data = image.shape[0], image.shape[1], image.tobytes()
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    return name


def _volume(mesh: Mesh) -> float:
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)
