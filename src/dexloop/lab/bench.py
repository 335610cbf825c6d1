"""The bench's physics: finer than any twin's, and of another make, so that no twin can ever be exactly right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.lab.objects import LabObject
from dexloop.lab.prints import Mat
from dexloop.lab.truth import Truth
from dexloop.robots.embodiment import Embodiment
from dexloop.sim.parameters import write_model
from dexloop.sim.parts import FixedCamera, Light, Part, Robot, Table, Thing
from dexloop.sim.render import Renderer
from dexloop.sim.scene import Scene, SceneCfg, compose

STEP_S = 0.0005
STAMP_JITTER_S = 3e-4
"""Of the camera's time stamps [s]."""
TOUCH_LIMIT_N = 50.0
"""Where fingertip sensors saturate [N]."""
MIN_GRIP_1_S, MAX_GRIP_1_S = 10.0, 400.0
"""How fast the table's friction may act [1/s]."""
FRICTION_EVERY = 2
"""Steps between two updates of the speed-dependent friction."""
RAMP_S = 0.004
"""Within this time a drive goes evenly to a new target, as drives that interpolate do: one that jumped would shake
the hand at every command [s]."""
RAMP_LATE_S = 0.5 * (RAMP_S - STEP_S)
"""By how much that is late on average: part of the delay [s]."""
BASE_WRIST, BASE_ARM = (-0.26, 0.0, 0.0), (-0.8, 0.0, 0.0)
"""Where a free wrist's origin and an arm's base stand [m]: at home the hand is clear of the object."""

_DRAWN = ("geom_xpos", "geom_xmat")
"""What of the physics a picture shows."""
Develop = Callable[[], UInt8[np.ndarray, "h w 3"]]
"""Draws a picture that was taken."""


class Bench:
    """One simulated table, stepped as real time passes.

    Args:
        thing: The object on it.
        truth: What is hidden.
        embodiment: The robot.
        mat: The printed mat on the table.
        camera: Nominal calibration of the fixed camera.
        nice: Draw shadows and smooth edges.
        seed: Of the sensors' noise.
        session: Which time the bench is used; the noise is another each time.
    """

    def __init__(
        self,
        thing: LabObject,
        truth: Truth,
        embodiment: Embodiment,
        mat: Mat,
        camera: Camera,
        *,
        nice: bool,
        seed: int,
        session: int = 0,
    ):
        self.embodiment, self.camera = embodiment, camera
        base = BASE_WRIST if embodiment.name.endswith("@wrist") else BASE_ARM
        self.T_world_base = se3.from_rt(np.eye(3), np.array(base))
        self._truth = truth
        self._rng = np.random.default_rng([22, seed, session] if session else [22, seed])
        robot = Robot(
            embodiment,
            self.T_world_base,
            fingertip_friction=truth.finger_friction,
            fingertip_solref=(truth.fingertip_softness_s, 1.0),
        )
        scene = compose(
            *surroundings(thing, truth, mat),
            robot,
            FixedCamera(_true_camera(camera, truth)),
            cfg=SceneCfg(
                timestep_s=STEP_S,
                impratio=20.0,
                noslip_iterations=5,
                shadows=nice,
                samples=4 if nice else 0,
                max_delay_s=0.08,
            ),
        )
        write_model(scene, {
            "actuator.gain": truth.actuator_gain,
            "actuator.damping": truth.actuator_damping,
            "actuator.delay": max(truth.delay_s - RAMP_LATE_S, 0.0),
            "joint.friction": truth.joint_friction,
            "joint.armature": truth.joint_armature,
        })  # fmt: skip
        self.model, self.data = scene.model, mujoco.MjData(scene.model)
        self._find(scene, thing.name)
        self._renderer: Renderer | None = None
        self._shown = mujoco.MjData(scene.model)
        mujoco.mj_forward(scene.model, self._shown)  # cameras and lamps, which stand still
        self.watch: Callable[[], None] | None = None
        """Called whenever some time has passed: for whoever scores."""
        self._unseen = 0.0
        self._felt, self._effort, self._pressed = 0, np.zeros(len(self._dofs)), np.zeros(len(self._touch))
        self._target, self._ramp = np.asarray(self.embodiment.home, dtype=np.float64), 0
        self._settle()

    def _find(self, scene: Scene, thing: str) -> None:
        model, robot = self.model, self.embodiment
        self._qpos = np.array([int(model.joint(j).qposadr[0]) for j in robot.joints])
        self._dofs = np.array([int(model.joint(j).dofadr[0]) for j in robot.joints])
        self._actuators = np.array([model.actuator(a).id for a in robot.actuators])
        sensors = scene.roles["fingertip"].sensors
        self.touch_names = tuple(model.sensor(s).name for s in sensors)
        self._touch = np.array([int(model.sensor_adr[s]) for s in sensors])
        table = model.geom("table").id
        on_table = np.flatnonzero((model.pair_geom1 == table) | (model.pair_geom2 == table))
        assert (np.diff(on_table) == 1).all()
        free = model.joint(f"{thing}.free")
        self._pose, self._twist = int(free.qposadr[0]), int(free.dofadr[0])
        # Looked up once: to ask MuJoCo for an array takes as long as some of its arithmetic, at 2000 steps a second.
        self._ctrl, self._slide = self.data.ctrl, self.data.qvel[self._twist : self._twist + 2]
        pairs = slice(int(on_table[0]), int(on_table[-1]) + 1)
        self._friction, self._grip = model.pair_friction[pairs, :2], model.pair_solreffriction[pairs, 1]

    def _settle(self) -> None:
        """Lets the hand sag into its servos and the object into the table before anyone looks."""
        model, data = self.model, self.data
        data.qpos[self._qpos] = self.embodiment.home
        data.ctrl[self._actuators] = self.embodiment.home
        for a in range(model.nu):
            samples = int(model.actuator_history[a, 0])
            mujoco.mj_initCtrlHistory(model, data, a, None, np.full(samples, data.ctrl[a]))
        mujoco.mj_forward(model, data)
        self._settled_by(0.5)
        data.qvel[:] = 0.0
        mujoco.mj_forward(model, data)

    def place_object(self, shift: tuple[float, float, float]) -> None:
        """Puts the object back where it stood, or beside it, to within a millimetre and a degree, and lets it come to
        rest.

        Args:
            shift: Along x and y [m], and about the vertical [rad].
        """
        noise = np.concatenate([self._rng.normal(0, 5e-4, 2), np.zeros(3), self._rng.normal(0, 0.01, 1)])
        error = se3.exp(np.array([0.0, 0.0, 0.0, 0.0, 0.0, shift[2]]) + noise)
        error[:2, 3] += shift[:2]
        centre = se3.from_rt(np.eye(3), self._truth.T_world_object[:3, 3])
        T = centre @ error @ se3.inverse(centre) @ self._truth.T_world_object
        self.data.qpos[self._pose : self._pose + 7] = se3.to_pose(T)
        self.data.qvel[self._twist : self._twist + 6] = 0.0
        self._settled_by(0.25)

    def _settled_by(self, duration_s: float) -> None:
        """Lets things come to rest without letting the clock run."""
        before = self.time
        self.advance(duration_s)
        self._unseen += self.time - before
        self._forget()

    @property
    def time(self) -> float:
        """True time that has passed at the bench [s]."""
        return float(self.data.time) - self._unseen

    def camera_stamp(self, t: float) -> float:
        """Returns what the camera's computer writes on a picture taken at t on the robot's clock [s]."""
        return t + self._truth.clock_offset_s + float(self._rng.normal(0.0, STAMP_JITTER_S))

    def phase(self) -> float:
        """Returns where in its period a sensor happens to be when the rig is switched on, from 0 to 1."""
        return float(self._rng.uniform())

    def command(self, target: Float[np.ndarray, " n"]) -> None:
        """Hands position targets to the servos."""
        self._target, self._ramp = np.asarray(target, dtype=np.float64), round(RAMP_S / STEP_S)

    def advance(self, duration_s: float) -> None:
        """Lets time pass, in whole steps."""
        model, data, ctrl, actuators = self.model, self.data, self._ctrl, self._actuators
        force, touch = data.qfrc_actuator, data.sensordata
        for k in range(FRICTION_EVERY * max(round(duration_s / (STEP_S * FRICTION_EVERY)), 0)):
            if self._ramp:
                now = ctrl[actuators]
                ctrl[actuators] = now + (self._target - now) / self._ramp
                self._ramp -= 1
            if k % FRICTION_EVERY == 0:
                self._update_friction()
            mujoco.mj_step(model, data)
            self._felt += 1
            self._effort += force[self._dofs]
            self._pressed += touch[self._touch]
        if self.watch is not None:
            self.watch()

    def _update_friction(self) -> None:
        # Stribeck: friction is higher at rest, and falls to its sliding value within a few centimetres a second.
        speed = math.sqrt(self._slide.dot(self._slide))
        friction = self._truth.friction_at(speed)
        self._friction[:] = friction
        # MuJoCo's soft friction also lifts what slides, the more the faster it slides and the faster friction acts,
        # until the object hops. Twice the braking that friction can give is enough, and lifts nothing.
        grip = min(max(2.0 * friction * 9.81 / max(speed, 1e-3), MIN_GRIP_1_S), MAX_GRIP_1_S)
        self._grip[:] = -grip

    def _forget(self) -> None:
        """Begins a new mean of efforts and touch."""
        self._felt = 0
        self._effort[:] = self._pressed[:] = 0.0

    def sense(self) -> dict[str, Float[np.ndarray, " c"]]:
        """Reads the robot's sensors, with their noise and scale.

        Efforts and touch are means since they were last read, as of any sensor whose signal is filtered before it is
        sampled.
        """
        t, rng, robot = self._truth, self._rng, self.embodiment
        n = len(robot.joints)
        limits = robot.effort_limits
        force, pressed = self.data.qfrc_actuator[self._dofs], self.data.sensordata[self._touch]
        if self._felt:
            force, pressed = self._effort / self._felt, self._pressed / self._felt
        self._forget()
        effort = force * t.effort_scale + rng.normal(0, 1, n) * t.effort_noise * limits
        touch = pressed + rng.normal(0, t.touch_noise_n, len(self._touch))
        return {
            "joint_position": self.data.qpos[self._qpos] + rng.normal(0, t.encoder_noise, n),
            "joint_velocity": self.data.qvel[self._dofs] + rng.normal(0, 20 * t.encoder_noise, n),
            "joint_effort": np.clip(effort, -limits, limits),
            "touch": np.clip(touch, 0.0, TOUCH_LIMIT_N),
        }

    def track(self) -> Float[np.ndarray, " 7"]:
        """Reads the optical tracker: the object's pose, with noise."""
        position, angle = self._truth.tracker_noise
        pose = self.data.qpos[self._pose : self._pose + 7].copy()
        pose[:3] += self._rng.normal(0, position, 3)
        pose[3:] = se3.quat_multiply(pose[3:], se3.so3_exp(self._rng.normal(0, angle, 3)))
        return pose if pose[3] >= 0 else np.concatenate([pose[:3], -pose[3:]])

    def measured_position(self) -> Float[np.ndarray, " n"]:
        """Where the joints are [rad or m], for a stop that holds them there."""
        return self.data.qpos[self._qpos].copy()

    def exposed(self) -> Develop:
        """Takes a picture with the fixed camera, with a little sensor noise; it is drawn when it is developed."""
        places = [getattr(self.data, name).copy() for name in _DRAWN]
        shift = noise_shift(self.camera, self._rng)

        def develop() -> UInt8[np.ndarray, "h w 3"]:
            if self._renderer is None:
                self._renderer = Renderer(self.model, self.camera.width, self.camera.height)
            for name, value in zip(_DRAWN, places, strict=True):
                getattr(self._shown, name)[:] = value
            return sensor_noise(self._renderer.rgb(self._shown, self.camera.name), shift)

        return develop

    def close(self) -> None:
        """Lets go of the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def surroundings(thing: LabObject, truth: Truth, mat: Mat) -> list[Part]:
    """Returns the table with its mat, the object, the room and its lamps, as they truly are."""
    pose = tuple(float(v) for v in se3.to_pose(truth.T_world_object))
    com = (float(truth.com[0]), float(truth.com[1]), float(truth.com[2]))
    lamps = [
        Light(
            f"lamp{k}",
            (float(x), float(y), float(z)),
            diffuse=(float(b), float(b), float(b)),
            specular=(0.1, 0.1, 0.1),
            casts_shadow=k == 0,
        )
        for k, (x, y, z, b) in enumerate(truth.lamps)
    ]
    return [
        Room(),
        Table(size_m=mat.size_m, texture=mat.texture, friction=truth.table_friction, solref=(0.005, 1.0)),
        Thing(
            thing.name, thing.shape, truth.mass_kg, pose=pose, com=com, inertia=truth.inertia,
            friction=truth.finger_friction, solref=(0.005, 1.0),
        ),
        *lamps,
    ]  # fmt: skip


@dataclass(frozen=True)
class Room:
    """A floor and a wall-coloured sky, so that the camera sees no void."""

    floor_m: float = -0.75

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Adds both."""
        spec.add_texture(
            name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
            rgb1=[0.78, 0.80, 0.82], rgb2=[0.55, 0.56, 0.58], width=256, height=256,
        )  # fmt: skip
        spec.worldbody.add_geom(
            name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[3, 3, 0.1], pos=[0, 0, self.floor_m],
            rgba=[0.45, 0.44, 0.42, 1],
        )  # fmt: skip


def noise_shift(camera: Camera, rng: np.random.Generator) -> tuple[int, int]:
    """Draws which noise a picture has."""
    return int(rng.integers(0, camera.height)), int(rng.integers(0, camera.width))


def sensor_noise(picture: UInt8[np.ndarray, "h w 3"], shift: tuple[int, int]) -> UInt8[np.ndarray, "h w 3"]:
    """Adds what a camera's sensor adds: noise of about 1.5 grey levels."""
    # One table of noise, shifted at random, is as good as fresh noise and ten times faster.
    if _NOISE["table"].shape[0] < 2 * picture.shape[0] or _NOISE["table"].shape[1] < 2 * picture.shape[1]:
        shape = (2 * picture.shape[0], 2 * picture.shape[1], 3)
        _NOISE["table"] = np.random.default_rng(0).normal(0.0, 1.5, shape).round().astype(np.int16)
    row, column = shift
    noise = _NOISE["table"][row : row + picture.shape[0], column : column + picture.shape[1]]
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


_NOISE = {"table": np.zeros((0, 0, 3), dtype=np.int16)}


def _true_camera(nominal: Camera, truth: Truth) -> Camera:
    assert nominal.T_world_camera is not None
    return replace(
        nominal,
        fx=nominal.fx * truth.focal_error,
        fy=nominal.fy * truth.focal_error,
        T_world_camera=nominal.T_world_camera @ se3.exp(truth.camera_error),
    )
