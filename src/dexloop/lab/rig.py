"""The lab behind the `Rig` protocol: what the engine sees of it, and nothing more."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core.camera import Camera
from dexloop.core.capture import POSE_CHANNELS, StreamInfo, VideoInfo
from dexloop.core.errors import HaltError, InputError
from dexloop.lab.bench import TOUCH_LIMIT_N, Bench, Develop
from dexloop.lab.operator import LabOperator
from dexloop.rig.protocol import CommandInfo, Features, Frames, Observation, Samples

RATE_HZ = 250.0
TRACKER_HZ = 60.0


@dataclass
class _FreeRunning:
    """A sensor that nobody triggers."""

    rate_hz: float
    next_s: float
    """When it looks next, on the robot's clock [s]."""


class LabRig:
    """A bench that looks like a real one: it moves only while someone sleeps, and tells only what sensors tell.

    Args:
        bench: The physics.
        operator: The person with the hand-held camera.
        name: Of the rig.
        robot: As `dexloop.robots.load` takes it.
        camera: Nominal calibration of the fixed camera; None if it shall not film.
        camera_fps: [1/s]
        tracker: Whether the optical tracker is switched on.
        scene: What is publicly known.
    """

    def __init__(
        self,
        bench: Bench,
        operator: LabOperator,
        *,
        name: str,
        robot: str,
        camera: Camera | None,
        camera_fps: float,
        tracker: bool,
        scene: Mapping[str, Any],
    ):
        self._bench, self.operator = bench, operator
        self._features = _features(bench, name, robot, camera, camera_fps, tracker, scene)
        self._sensors: dict[str, _FreeRunning] = {}
        if tracker:
            self._sensors["object_pose"] = _FreeRunning(TRACKER_HZ, bench.phase() / TRACKER_HZ)
        if camera is not None:
            self._sensors[camera.name] = _FreeRunning(camera_fps, bench.phase() / camera_fps)
        self._connected = self._stopped = False
        self._start = bench.time
        self._ticks = 0
        self._clear()

    @property
    def features(self) -> Features:
        """What it has."""
        return self._features

    def connect(self) -> None:
        """Opens the bench. The robot stands at its home at first, and later where it was left."""
        self._connected, self._stopped = True, False

    def disconnect(self) -> None:
        """Lets go; what nobody has looked at is gone."""
        self._connected = False
        self._clear()
        self._bench.close()

    def now(self) -> float:
        """Returns the host's clock, which is the robot's [s]."""
        return self._ticks / RATE_HZ

    def sleep(self, duration_s: float) -> None:
        """Advances the bench by whole control periods, at least as long as was asked for."""
        for _ in range(max(math.ceil(duration_s * RATE_HZ - 1e-6), 0)):
            self._tick()

    def observe(self) -> Observation:
        """Returns what arrived since the last call."""
        self._require_connection()
        samples = {
            k: Samples(np.array([t for t, _ in v]), np.stack([x for _, x in v])) for k, v in self._samples.items()
        }
        frames = {k: _film(v) for k, v in self._frames.items()}
        self._clear()
        return Observation(samples, frames)

    def send(self, target: Float[np.ndarray, " joints"]) -> None:
        """Sends position targets; the servos take them a little later."""
        self._require_connection()
        if self._stopped:
            raise HaltError("the robot was stopped: look at it, then connect again")
        target = np.asarray(target, dtype=np.float64)
        n = len(self._bench.embodiment.joints)
        if target.shape != (n,):
            raise InputError(f"a command needs {n} joint positions, not {list(target.shape)}")
        if not np.isfinite(target).all():
            self.stop()
            raise HaltError("a command was not finite: the robot was stopped")
        limits = self._bench.embodiment.position_limits
        taken = np.clip(target, limits[:, 0], limits[:, 1])
        self._bench.command(taken)
        self._samples["joint_command"].append((self.now(), taken))

    def stop(self) -> None:
        """Holds the robot where it is."""
        self._stopped = True
        self._bench.command(self._bench.measured_position())

    def _tick(self) -> None:
        """Lets one control period pass. Camera and tracker run on their own, somewhere between the robot's ticks."""
        self._ticks += 1
        robot_t = self._ticks / RATE_HZ
        for name, sensor in sorted(self._sensors.items(), key=lambda item: item[1].next_s):
            if sensor.next_s <= robot_t:
                self._advance_to(sensor.next_s)
                if self._connected:
                    self._look(name)
                sensor.next_s += 1.0 / sensor.rate_hz
        self._advance_to(robot_t)
        if self._connected:
            for name, value in self._bench.sense().items():
                self._samples[name].append((robot_t, value))

    def _look(self, name: str) -> None:
        stamp = self._bench.camera_stamp(self._bench.time - self._start)
        if name == "object_pose":
            self._samples[name].append((stamp, self._bench.track()))
        else:
            self._frames[name].append((stamp, self._bench.exposed()))

    def _advance_to(self, t: float) -> None:
        self._bench.advance(self._start + t - self._bench.time)

    def _clear(self) -> None:
        self._samples: dict[str, list[tuple[float, np.ndarray]]] = defaultdict(list)
        self._frames: dict[str, list[tuple[float, Develop]]] = defaultdict(list)

    def _require_connection(self) -> None:
        if not self._connected:
            raise InputError("the rig is not connected: call connect() first")


def _film(taken: Sequence[tuple[float, Develop]]) -> Frames:
    """Returns pictures that are drawn when somebody looks at them, which takes far longer than anything else here."""
    return Frames(np.array([t for t, _ in taken]), lambda: np.stack([develop() for _, develop in taken]))


def _features(
    bench: Bench, name: str, robot: str, camera: Camera | None, fps: float, tracker: bool, scene: Mapping[str, Any]
) -> Features:
    body = bench.embodiment
    joints = body.joints
    rates = tuple("rad/s" if u == "rad" else "m/s" for u in body.units)
    efforts = tuple("N·m" if u == "rad" else "N" for u in body.units)
    bound = tuple((-float(e), float(e)) for e in body.effort_limits)
    positions = tuple((float(a), float(b)) for a, b in body.position_limits)
    streams = [
        StreamInfo("joint_position", "joint_position", joints, body.units, "robot", RATE_HZ),
        StreamInfo("joint_velocity", "joint_velocity", joints, rates, "robot", RATE_HZ),
        StreamInfo("joint_effort", "joint_effort", joints, efforts, "robot", RATE_HZ, limits=bound),
        StreamInfo("joint_command", "joint_command", joints, body.units, "robot", RATE_HZ),
        StreamInfo(
            "touch", "touch", bench.touch_names, ("N",) * len(bench.touch_names), "robot", RATE_HZ,
            limits=((0.0, TOUCH_LIMIT_N),) * len(bench.touch_names),
        ),
    ]  # fmt: skip
    if tracker:
        units = ("m",) * 3 + ("1",) * 4
        streams.append(StreamInfo("object_pose", "pose", POSE_CHANNELS, units, "camera", TRACKER_HZ, about="object"))
    command = CommandInfo(
        joints,
        body.units,
        positions,
        tuple(float(v) for v in body.speed_limits),
        tuple(float(v) for v in body.effort_limits),
        tuple(float(v) for v in body.home),
        RATE_HZ,
    )
    about = {"name": robot, "joints": list(joints), "T_world_base": bench.T_world_base.tolist()}
    videos = () if camera is None else (VideoInfo(camera.name, camera, "camera", fps),)
    return Features(name, about, tuple(streams), videos, command, scene)
