"""Any object with LeRobot's `Robot` interface behind the `Rig` protocol."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from dexloop.core.camera import Camera
from dexloop.core.capture import StreamInfo, VideoInfo
from dexloop.core.errors import HaltError, InputError, SetupError, UnknownName
from dexloop.rig.protocol import CommandInfo, Features, Frames, Observation, Samples
from dexloop.rig.units import UNITS, unit

RANGES = {"-100..100": (-100.0, 100.0), "0..100": (0.0, 100.0)}
"""LeRobot's normalised modes: fractions of a joint's range."""

_KINDS = {".pos": "joint_position", ".vel": "joint_velocity", ".effort": "joint_effort", ".torque": "joint_effort"}
_CLOCK = "host"


class LeRobotRobot(Protocol):
    """The part of LeRobot's `Robot` that is used here."""

    name: str

    @property
    def observation_features(self) -> dict[str, Any]:
        """`float` for a number, `(height, width, channels)` for a picture, by key."""
        ...

    @property
    def action_features(self) -> dict[str, Any]:
        """`float` for a number, by key."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether it is connected."""
        ...

    @property
    def is_calibrated(self) -> bool:
        """Whether its calibration is known."""
        ...

    def connect(self, calibrate: bool = True) -> None:
        """Opens the hardware."""
        ...

    def disconnect(self) -> None:
        """Lets go of the hardware."""
        ...

    def get_observation(self) -> dict[str, Any]:
        """Returns numbers and pictures by key."""
        ...

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """Sends targets and returns those that were sent after the robot's own limits."""
        ...


_NEEDED = (
    "observation_features",
    "action_features",
    "is_connected",
    "connect",
    "disconnect",
    "get_observation",
    "send_action",
)


@dataclass(frozen=True)
class LeRobotJoint:
    """What LeRobot does not say about a joint."""

    unit: str
    """What the robot's numbers are: "rad", "deg", "m", "mm", or a fraction of the range: "-100..100", "0..100"."""
    limits: tuple[float, float]
    """Where the joint may go [rad or m]; for a fraction, the ends of its range."""
    speed_limit: float
    """[rad/s or m/s]"""
    effort_limit: float
    """[N·m or N]"""
    home: float
    """A position that is safe to start from [rad or m]."""
    slides: bool = False
    """For a fraction of the range: whether the limits are metres."""

    @property
    def si(self) -> str:
        """The joint's SI unit."""
        return ("m" if self.slides else "rad") if self.unit in RANGES else unit(self.unit).si

    def to_si(self, value: float) -> float:
        """Returns a position [rad or m] of the robot's number."""
        if self.unit in RANGES:
            (a, b), (low, high) = RANGES[self.unit], self.limits
            return low + (value - a) / (b - a) * (high - low)
        return unit(self.unit).factor * value

    def from_si(self, value: float) -> float:
        """Returns the robot's number of a position [rad or m]."""
        if self.unit in RANGES:
            (a, b), (low, high) = RANGES[self.unit], self.limits
            return a + (value - low) / (high - low) * (b - a)
        return value / unit(self.unit).factor

    def rate_to_si(self, value: float) -> float:
        """Returns a velocity [rad/s or m/s] of the robot's number."""
        return self.to_si(value) - self.to_si(0.0)


class LeRobotRig:
    """A LeRobot robot as a rig.

    Each `observe` asks the robot once and stamps everything with the middle of that call on the host's clock, for the
    robot gives no times of its own. A picture equal to the one before is the same picture delivered twice and is left
    out. Targets that the robot sent, after its own limits, come back as the stream `joint_command`.

    Args:
        robot: Has LeRobot's `Robot` interface.
        joints: What each joint's numbers mean, by its name without ".pos"; one for every joint of the robot's actions.
        cameras: Calibrations by camera; one that is missing gets the field of view of a usual webcam.
        rate_hz: How often a command is expected [1/s].
        model: The robot's name as `dexloop.robots.load` takes it, if there is one.

    Raises:
        InputError: The object lacks a part of the interface, or a joint's unit was not said.
        UnknownName: A joint or camera that the robot does not have.
    """

    def __init__(
        self,
        robot: LeRobotRobot,
        *,
        joints: Mapping[str, LeRobotJoint],
        cameras: Mapping[str, Camera] | None = None,
        rate_hz: float = 30.0,
        model: str = "",
    ):
        # Looked up without calling: a property may refuse to answer while the robot is disconnected.
        missing = [name for name in _NEEDED if inspect.getattr_static(robot, name, None) is None]
        if missing:
            raise InputError(f"{type(robot).__name__} is no LeRobot robot: it has no {', '.join(missing)}")
        self._robot = robot
        self._names = _joint_names(robot)
        unseen = [n for n in self._names if f"{n}.pos" not in robot.observation_features]
        if unseen:
            raise InputError(
                f"{type(robot).__name__} does not report the position of {', '.join(unseen)}: no safe stop"
            )
        self._joints = {n: _checked(n, joints, self._names) for n in self._names}
        for name in joints:
            if name not in self._names:
                raise UnknownName(
                    "joint", name, self._names, "A unit was given for it, but the robot has none so called."
                )
        self._groups = _groups(robot.observation_features, self._names)
        self._images = {k: tuple(s) for k, s in robot.observation_features.items() if isinstance(s, tuple)}
        self._features = self._describe(model, dict(cameras or {}), rate_hz)
        self._stopped = False
        self._last_picture: dict[str, np.ndarray] = {}
        self._last_position: dict[str, float] = {}
        self._commands: list[tuple[float, list[float]]] = []

    @property
    def features(self) -> Features:
        """What the robot has; works while disconnected."""
        return self._features

    def connect(self) -> None:
        """Opens the hardware without calibrating it, which would move it.

        Raises:
            SetupError: The robot was never calibrated.
        """
        if not self._robot.is_connected:
            self._robot.connect(calibrate=False)
        if not getattr(self._robot, "is_calibrated", True):
            self._robot.disconnect()
            raise SetupError(f"{self._features.name} is not calibrated: run lerobot-calibrate first")
        self._stopped = False
        self._last_picture.clear()
        self._last_position.clear()
        self._commands.clear()

    def disconnect(self) -> None:
        """Lets go of the hardware; safe to call twice."""
        if self._robot.is_connected:
            self._robot.disconnect()

    def now(self) -> float:
        """Returns the host's monotonic clock [s]."""
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        """Waits."""
        time.sleep(max(0.0, duration_s))

    def observe(self) -> Observation:
        """Asks the robot once."""
        before = self.now()
        seen = self._robot.get_observation()
        t = np.array([0.5 * (before + self.now())])
        samples: dict[str, Samples] = {}
        for stream, keys in self._groups.items():
            values = [self._value(stream, joint, seen[key]) for joint, key in keys.items()]
            if not np.isfinite(values).all():
                raise HaltError(f"{self._features.name} reports {stream} {values}: its state is not known")
            samples[stream] = Samples(t, np.array([values]))
            if stream == "joint_position":
                self._last_position = dict(zip(keys, values, strict=True))
        if self._commands:
            times, targets = zip(*self._commands, strict=True)
            samples["joint_command"] = Samples(np.array(times), np.array(targets))
            self._commands.clear()
        frames: dict[str, Frames] = {}
        for camera in self._images:
            picture = np.asarray(seen[camera])
            last = self._last_picture.get(camera)
            if last is None or not np.array_equal(picture, last):
                self._last_picture[camera] = picture.copy()
                frames[camera] = Frames(t, picture[None].copy())
        return Observation(samples, frames)

    def send(self, target: Float[np.ndarray, " joints"]) -> None:
        """Sends position targets [rad or m].

        Raises:
            HaltError: The rig was stopped.
            InputError: The target has the wrong length or is not finite.
        """
        if self._stopped:
            raise HaltError(f"{self._features.name} was stopped: connect again before sending commands")
        self._send(np.asarray(target, np.float64))

    def stop(self) -> None:
        """Holds the robot where it was last seen; commands are refused until it is connected again."""
        self._stopped = True
        if self._robot.is_connected:
            if not self._last_position:
                self.observe()
            self._send(np.array([self._last_position.get(n, np.nan) for n in self._names]))

    def _send(self, target: np.ndarray) -> None:
        if target.shape != (len(self._names),) or not np.isfinite(target).all():
            raise InputError(f"a target is {len(self._names)} finite numbers, not {target}")
        action = {f"{n}.pos": self._joints[n].from_si(float(v)) for n, v in zip(self._names, target, strict=True)}
        # Older robots return nothing: then what was asked for is what is known.
        sent = self._robot.send_action(action) or action
        targets = [self._joints[n].to_si(float(sent.get(f"{n}.pos", action[f"{n}.pos"]))) for n in self._names]
        self._commands.append((self.now(), targets))

    def _value(self, stream: str, joint: str, value: Any) -> float:
        if stream == "joint_position":
            return self._joints[joint].to_si(float(value))
        if stream == "joint_velocity":
            return self._joints[joint].rate_to_si(float(value))
        return float(value)

    def _describe(self, model: str, cameras: dict[str, Camera], rate_hz: float) -> Features:
        si = {n: self._joints[n].si for n in self._names}
        units = {
            "joint_position": si,
            "joint_velocity": {n: f"{u}/s" for n, u in si.items()},
            "joint_effort": {n: "N·m" if u == "rad" else "N" for n, u in si.items()},
        }
        limits = {n: self._joints[n].limits for n in self._names}
        streams = []
        for stream, keys in self._groups.items():
            kind = stream if stream in units else "scalar"
            streams.append(
                StreamInfo(
                    name=stream,
                    kind=kind,
                    channels=tuple(keys),
                    units=tuple(units[kind][j] if kind in units else "1" for j in keys),
                    clock=_CLOCK,
                    rate_hz=rate_hz,
                    limits=tuple(limits[j] for j in keys) if kind == "joint_position" else None,
                )
            )
        units_si = tuple(si.values())
        streams.append(StreamInfo("joint_command", "joint_command", tuple(self._names), units_si, _CLOCK, rate_hz))
        for name in cameras:
            if name not in self._images:
                raise UnknownName("camera", name, self._images, "A calibration was given for it.")
        joints = self._joints.values()
        name = str(getattr(self._robot, "name", type(self._robot).__name__))
        return Features(
            name=name,
            robot={"name": model or name, "joints": list(self._names)},
            streams=tuple(streams),
            videos=tuple(_video(k, shape, cameras.get(k), rate_hz) for k, shape in self._images.items()),
            command=CommandInfo(
                joints=tuple(self._names),
                units=units_si,
                position_limits=tuple(j.limits for j in joints),
                speed_limits=tuple(j.speed_limit for j in joints),
                effort_limits=tuple(j.effort_limit for j in joints),
                home=tuple(j.home for j in joints),
                rate_hz=rate_hz,
            ),
        )


def _joint_names(robot: LeRobotRobot) -> list[str]:
    odd = [key for key in robot.action_features if not key.endswith(".pos")]
    if odd:
        raise InputError(
            f"{type(robot).__name__} takes {', '.join(odd)}: only position targets (keys that end in .pos) can be "
            f"sent; use a mode of the robot with position control"
        )
    return [key.removesuffix(".pos") for key in robot.action_features]


def _checked(name: str, joints: Mapping[str, LeRobotJoint], names: list[str]) -> LeRobotJoint:
    choices = [n for n, u in UNITS.items() if u.si in ("rad", "m")] + list(RANGES)
    if name not in joints:
        missing = [n for n in names if n not in joints]
        raise InputError(
            f"LeRobot does not say in what unit {', '.join(missing)} is reported: give a LeRobotJoint for each, with "
            f"unit one of {', '.join(choices)}"
        )
    joint = joints[name]
    if joint.unit not in choices:
        raise UnknownName("unit", joint.unit, choices, f"It was given for joint {name!r}.")
    low, high = joint.limits
    if not (math.isfinite(low) and math.isfinite(high) and low < high and low <= joint.home <= high):
        raise InputError(f"joint {name!r}: home {joint.home} must lie between the limits {low} and {high} [rad or m]")
    return joint


def _groups(features: Mapping[str, Any], names: list[str]) -> dict[str, dict[str, str]]:
    """Returns for each stream the robot's keys by channel: joints by what is measured, all else as `state`."""
    groups: dict[str, dict[str, str]] = {}
    for key, shape in features.items():
        if isinstance(shape, tuple):
            continue
        joint, dot, _ = key.rpartition(".")
        kind = _KINDS.get(dot + key.rpartition(".")[2]) if joint in names else None
        groups.setdefault(kind or "state", {})[joint if kind else key] = key
    return groups


def _video(key: str, shape: tuple[int, ...], camera: Camera | None, fps: float) -> VideoInfo:
    if len(shape) != 3 or shape[2] != 3:
        raise InputError(f"camera {key!r} gives pictures of shape {shape}: only (height, width, 3) can be recorded")
    if camera is None:
        camera = Camera.from_fov(key, shape[1], shape[0], math.radians(45.0))
    if (camera.width, camera.height) != (shape[1], shape[0]):
        raise InputError(
            f"camera {key!r} gives {shape[1]} x {shape[0]} pixels, its calibration is for {camera.width} x "
            f"{camera.height}: calibrate it at that size"
        )
    return VideoInfo(key, camera, _CLOCK, fps)
