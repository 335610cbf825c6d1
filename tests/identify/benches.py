"""Small benches as a user would write them in MJCF, and recordings of them with known truth.

What is recorded is made by plain MuJoCo with steps a quarter as long as those of the models that are fitted, with noise
on top: nothing of the code under test takes part in making it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import mujoco
import numpy as np

from dexloop.core.artifact import writing
from dexloop.core.capture import POSE_CHANNELS, Capture, Stream, StreamInfo
from dexloop.rig.imported import ImportedRecording, save_recording
from dexloop.rig.layout import describe

FINE_S = 0.0005
"""Time step of what stands for reality [s]."""
COMMAND_S = 0.004
"""Between two commands [s]."""
GRAVITY = 9.81
_OPTION = '<option timestep="{timestep}" integrator="implicitfast" cone="elliptic" impratio="10"/>'
_SOFT = 'solref="0.006 1" solimp="0 0.95 0.001 0.5 2"'


@dataclass(frozen=True)
class Push:
    """A box on a table, and a ball on a slide with a position servo that pushes it."""

    mass: float = 0.25
    friction: float = 0.3

    def xml(self, timestep: float = 0.002) -> str:
        return f"""
        <mujoco>
          {_OPTION.format(timestep=timestep)}
          <worldbody>
            <geom name="table" type="plane" size="1 1 0.1" friction="{self.friction} 0.005 0.0001" priority="1"
                  {_SOFT}/>
            <body name="box" pos="0 0 0.03">
              <freejoint/>
              <geom name="box" type="box" size="0.03 0.03 0.03" mass="{self.mass}" {_SOFT}/>
            </body>
            <body name="pusher" pos="-0.05 0 0.03">
              <joint name="slide" type="slide" axis="1 0 0" damping="0.5"/>
              <geom name="tip" type="sphere" size="0.012" mass="0.15" contype="2" friction="0.3 0.005 0.0001"
                    priority="2" {_SOFT}/>
            </body>
          </worldbody>
          <actuator><position name="slide" joint="slide" kp="600" kv="15"/></actuator>
        </mujoco>"""


@dataclass(frozen=True)
class Toss:
    """A cube that falls on a floor."""

    mass: float = 0.4
    inertia: float = 8e-4
    friction: float = 0.2

    def xml(self, timestep: float = 0.002) -> str:
        bounce = 'solref="-6000 -40" solimp="0.95 0.95 0.001 0.5 2"'
        i = self.inertia
        return f"""
        <mujoco>
          {_OPTION.format(timestep=timestep)}
          <worldbody>
            <geom name="table" type="plane" size="2 2 0.1" friction="{self.friction} 0.005 0.0001" priority="1"
                  {bounce}/>
            <body name="cube" pos="0 0 0.3">
              <freejoint/>
              <inertial pos="0 0 0" mass="{self.mass}" diaginertia="{i} {i} {i}"/>
              <geom name="cube" type="box" size="0.05 0.05 0.05" {bounce}/>
            </body>
          </worldbody>
        </mujoco>"""


@dataclass(frozen=True)
class Arm:
    """Two joints with position servos; nothing else. Values are factors on those of the constants."""

    KP: ClassVar[float] = 30.0
    KV: ClassVar[float] = 1.0
    ARMATURE: ClassVar[float] = 0.04
    FRICTION: ClassVar[float] = 0.08
    gain: float = 1.0
    damping: float = 1.0
    friction: float = 1.0
    armature: float = 1.0

    def xml(self, timestep: float = 0.002) -> str:
        servo = f'kp="{self.KP * self.gain}" kv="{self.KV * self.damping}"'
        loss = self.FRICTION * self.friction
        joint = f'axis="0 1 0" armature="{self.ARMATURE * self.armature}" frictionloss="{loss}"'
        return f"""
        <mujoco>
          {_OPTION.format(timestep=timestep)}
          <worldbody>
            <body name="upper" pos="0 0 0.5">
              <joint name="shoulder" {joint}/>
              <geom type="capsule" fromto="0 0 0 0.25 0 0" size="0.02" mass="0.5"/>
              <body name="fore" pos="0.25 0 0">
                <joint name="elbow" {joint}/>
                <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.015" mass="0.3"/>
              </body>
            </body>
          </worldbody>
          <actuator>
            <position name="shoulder" joint="shoulder" {servo}/>
            <position name="elbow" joint="elbow" {servo}/>
          </actuator>
        </mujoco>"""


Bench = Push | Toss | Arm


def model_file(folder: Path, bench: Bench | str) -> Path:
    """Writes a model as its user has it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "model.xml"
    file.write_text(bench if isinstance(bench, str) else bench.xml())
    return file


@functools.cache
def _compiled(xml: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(xml)


def ramp(speed: float, *, start_s: float = 0.3, distance: float = 0.06, rest_s: float = 0.5) -> np.ndarray:
    """Returns targets of a slide [n, 1]: at rest, forward at constant speed, at rest."""
    t = np.arange(0.0, start_s + distance / speed + rest_s, COMMAND_S)
    return np.clip(speed * (t - start_s), 0.0, distance)[:, None]


def strokes() -> np.ndarray:
    """Returns targets of a slide [n, 1]: a quick stroke after which the box coasts, then a slower one."""
    t = np.arange(0.0, 1.5, COMMAND_S)
    first = np.clip(0.5 * (t - 0.25), 0.0, 0.06)
    return (first + np.clip(0.25 * (t - 0.7), 0.0, 0.09))[:, None]


@dataclass(frozen=True)
class Motion:
    """What happened, without noise, every `FINE_S`."""

    t: np.ndarray
    command: np.ndarray
    """At its own times, every `COMMAND_S` [n, u]."""
    qpos: np.ndarray
    qvel: np.ndarray
    effort: np.ndarray
    names: tuple[str, ...]

    def at(self, t: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Returns what was at some moments, straight between steps."""
        return np.stack([np.interp(t, self.t, column) for column in value.T], axis=1)


def happen(
    bench: Bench,
    command: np.ndarray | None = None,
    *,
    duration_s: float = 1.0,
    delay_s: float = 0.0,
    velocity: Sequence[float] = (),
    qpos: Sequence[float] = (),
) -> Motion:
    """Steps a bench through a motion.

    Args:
        bench: The truth.
        command: Targets sent every `COMMAND_S`, [n, u]; the drives go evenly from one to the next.
        duration_s: Where there are no commands [s].
        delay_s: How late commands arrive [s].
        velocity: Of the free body at the start: linear [m/s], angular [rad/s] in its own axes.
        qpos: At the start, if not the model's.
    """
    model = _compiled(bench.xml(FINE_S))
    data = mujoco.MjData(model)
    if len(qpos):
        data.qpos[:] = qpos
    if len(velocity):
        data.qvel[:6] = velocity
    else:
        mujoco.mj_step(model, data, int(0.5 / FINE_S))  # everything comes to rest
    steps = round((duration_s if command is None else len(command) * COMMAND_S) / FINE_S)
    rows, efforts = [], []
    for k in range(steps):
        if command is not None:
            # Half of the way from one command to the next is gone when the next one arrives.
            sent = np.clip((k * FINE_S - delay_s) / COMMAND_S - 0.5, 0, len(command) - 1)
            before, part = int(sent), sent % 1.0
            data.ctrl[:] = (1 - part) * command[before] + part * command[min(before + 1, len(command) - 1)]
        rows.append(np.concatenate([data.qpos, data.qvel]))
        mujoco.mj_step(model, data)
        efforts.append(data.qfrc_actuator.copy())
    state = np.array(rows)
    return Motion(
        np.arange(steps) * FINE_S,
        np.zeros((0, 0)) if command is None else command,
        state[:, : model.nq],
        state[:, model.nq :],
        np.array(efforts),
        tuple(model.actuator(a).name for a in range(model.nu)),
    )


def pose_stream(
    motion: Motion,
    *,
    about: str = "object",
    clock: str = "camera",
    rate_hz: float = 100.0,
    late_s: float = 0.0,
    place_sd: float = 2e-4,
    turn_sd: float = 2e-3,
    seed: int = 0,
) -> Stream:
    """Returns the pose of the free body as a tracker gives it: stamped late, and with noise [m, rad]."""
    rng = np.random.default_rng(seed)
    t = np.arange(0.0, motion.t[-1], 1.0 / rate_hz)
    value = motion.at(t, motion.qpos[:, :7])
    value[:, :3] += place_sd * rng.standard_normal((len(t), 3))
    for row in value:
        turned, axis = np.zeros(4), turn_sd * rng.standard_normal(3)
        mujoco.mju_normalize4(row[3:])
        angle = np.linalg.norm(axis)
        turn = np.zeros(4)
        mujoco.mju_axisAngle2Quat(turn, axis / max(angle, 1e-12), angle)
        mujoco.mju_mulQuat(turned, turn, row[3:])
        row[3:] = turned
    info = StreamInfo("pose", "pose", POSE_CHANNELS, ("m",) * 3 + ("1",) * 4, clock, rate_hz, about=about)
    return Stream(info, t + late_s, value)


def robot_streams(
    motion: Motion, *, effort_scale: float = 1.0, effort_sd: float = 0.02, place_sd: float = 2e-5, seed: int = 1
) -> list[Stream]:
    """Returns what the robot says: targets, positions and efforts of its joints, all on its clock."""
    rng = np.random.default_rng(seed)
    t = np.arange(len(motion.command)) * COMMAND_S
    joints = range(motion.qpos.shape[1] - len(motion.names), motion.qpos.shape[1])
    first_dof = motion.qvel.shape[1] - len(motion.names)
    position = motion.at(t, motion.qpos[:, list(joints)])
    effort = motion.at(t, motion.effort[:, first_dof:]) * effort_scale
    values = {
        "joint_command": motion.command,
        "joint_position": position + place_sd * rng.standard_normal(position.shape),
        "joint_effort": effort + effort_sd * rng.standard_normal(effort.shape),
    }
    units = {"joint_command": "m", "joint_position": "m", "joint_effort": "N"}
    return [
        Stream(StreamInfo(k, k, motion.names, (units[k],) * len(motion.names), "robot", 1.0 / COMMAND_S), t, v)
        for k, v in values.items()
    ]


def write(
    folder: Path, recordings: Mapping[str, Sequence[Stream]], *, robot: Mapping[str, object] | None = None
) -> Capture:
    """Writes streams as a Capture, unchecked: some tests want what an import would refuse."""
    out = folder / "capture"
    with writing(out, Capture) as draft:
        saved = [
            save_recording(
                draft.folder / "recordings" / name,
                ImportedRecording(name, dict(robot or {}), {}, tuple(streams), (), str(folder)),
                None,
            )
            for name, streams in recordings.items()
        ]
        describe(draft, saved)
    return Capture.open(out)


def pushed(
    folder: Path, truth: Push, command: np.ndarray, *, late_s: float = 0.0, clock: str = "camera", seed: int = 0
) -> Capture:
    """Records one push."""
    motion = happen(truth, command)
    return write(
        folder,
        {"push": [*robot_streams(motion, seed=seed), pose_stream(motion, late_s=late_s, clock=clock, seed=seed)]},
    )
