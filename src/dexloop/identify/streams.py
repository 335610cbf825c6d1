"""Finds in a model what each stream of a recording measures, and what drives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from dexloop.core.capture import Recording, Stream
from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.roles import is_free
from dexloop.sim.scene import Scene
from dexloop.sim.signals import signal

Array = np.ndarray

STATE_FIELDS = {"qpos": 1.0, "qvel": 0.5}
"""Fields of MjData that a step leaves behind, and to which part of the step they belong; others are those that led to
it, and belong to its beginning. Positions go on with the new velocity, which is thus that of the step's middle."""
POSE_AXES = ("x", "y", "z", "rx", "ry", "rz")


@dataclass(frozen=True, eq=False)
class Measured:
    """One stream of one recording, and where the model keeps the same thing."""

    stream: str
    kind: str
    """As in `core.capture.KINDS`."""
    clock: str
    """The unknown that shifts it against the drive, such as "clock.camera"; empty if there is none."""
    field: str
    """Of MjData."""
    columns: Float[Array, " c"]
    """Entries of the field; for a pose the seven of a free joint."""
    channels: tuple[str, ...]
    """Of the residual: the stream's own, or x y z [m], rx ry rz [rad] for a pose."""
    t: Float[Array, " m"]
    """On the stream's own clock [s]."""
    value: Float[Array, "m c"]
    keep: Bool[Array, "m r"]
    """Which numbers count: not those of a channel that is motionless, nor those at its limit."""
    noise: Float[Array, " r"]
    """Standard deviation of fast noise in each channel of the residual, read off the samples themselves."""
    block: int = 1
    """How many successive samples are averaged before they are compared. Contacts chatter, in reality and in any
    simulation, each in its own way: only what is slower than that can be predicted."""
    whiten: Float[Array, "m 6 6"] | None = None
    """For a pose with a covariance per sample: turns its error into one of unit covariance."""
    own_bias: str = ""
    """The recording, if what is always wrong with it is so in this recording only."""

    @property
    def is_pose(self) -> bool:
        """Whether its residual lives on SE(3)."""
        return self.kind == "pose"

    @property
    def biased(self) -> str:
        """What its bias is called, without "bias."."""
        return f"{self.stream}.{self.own_bias}" if self.own_bias else self.stream


@dataclass(frozen=True, eq=False)
class Drive:
    """What moves the model: position targets for actuators, and paths of bodies that are moved by hand."""

    clock: str
    """The clock that all others are related to."""
    t: Float[Array, " m"]
    command: Float[Array, "m a"]
    """What was sent, held from its time on."""
    actuators: Sequence[int]
    """Of the model, one for each column."""
    tools: Mapping[str, Stream] = field(default_factory=dict)
    """Measured poses of bodies that are moved by hand, by body."""


@dataclass(frozen=True, eq=False)
class Matched:
    """A recording as the model sees it."""

    recording: Recording
    drive: Drive
    measured: tuple[Measured, ...]
    notes: tuple[str, ...]
    """What is not used, and why."""


BLOCK_S = 0.04
"""How long samples of joints and forces are averaged [s]."""


def match(
    scene: Scene,
    recording: Recording,
    *,
    extra: Sequence[Stream] = (),
    tools: Sequence[str] = (),
    held: Set[str] = frozenset(),
) -> Matched:
    """Matches a recording's streams to a model by the names of joints, sensors and bodies.

    Args:
        scene: The model.
        recording: What was recorded.
        extra: Streams that were made from it, such as the object's pose from the video.
        tools: Bodies that are moved along their measured poses.
        held: Joints that the model holds fast, so that their channels say nothing.

    Raises:
        InputError: The recording is of another robot, or a sample is not finite.
        UnknownName: A pose is about a body that the model does not have.
    """
    streams = [_without(recording.stream(name), held) for name in recording.streams] + list(extra)
    for s in streams:
        _require_finite(recording, s)
    drive = _drive(scene, recording, streams, tools)
    measured: list[Measured] = []
    notes: list[str] = []
    for s in streams:
        drives = s.info.kind == "joint_command" or (s.info.kind == "pose" and s.info.about in tools)
        if drives or not len(s.t):
            continue
        _require_overlap(recording, s, drive)
        found = _measured(scene, recording, s, drive, notes)
        if found is not None:
            measured.append(found)
    if not measured:
        raise InputError(f"recording {recording.name!r} has no stream that the model could be compared with")
    return Matched(recording, drive, tuple(measured), tuple(notes))


def _require_overlap(recording: Recording, s: Stream, drive: Drive) -> None:
    if not len(drive.t):
        return
    apart = max(float(drive.t[0] - s.t[-1]), float(s.t[0] - drive.t[-1]))
    if apart > 0.0:
        raise InputError(
            f"stream {s.info.name!r} of recording {recording.name!r} lies from {s.t[0]:.2f} to {s.t[-1]:.2f} s, "
            f"commands from {drive.t[0]:.2f} to {drive.t[-1]:.2f} s: their clocks are {apart:.2f} s apart or more; "
            f"shift one to the other's clock, to a tenth of a second"
        )


def _without(s: Stream, held: Set[str]) -> Stream:
    """Returns a stream without the channels of joints that are held fast."""
    if not held or not s.info.kind.startswith("joint_"):
        return s
    keep = [k for k, c in enumerate(s.info.channels) if c not in held]
    info = replace(
        s.info,
        channels=tuple(s.info.channels[k] for k in keep),
        units=tuple(s.info.units[k] for k in keep),
        limits=None if s.info.limits is None else tuple(s.info.limits[k] for k in keep),
    )
    return Stream(info, s.t, s.value[:, keep])


def _measured(scene: Scene, recording: Recording, s: Stream, drive: Drive, notes: list[str]) -> Measured | None:
    model, info = scene.model, s.info
    where = f"{recording.name}: {info.name}"
    columns: list[int]
    if info.kind in ("joint_position", "joint_velocity", "joint_effort"):
        joints = [_joint(model, recording, name) for name in info.channels]
        name, address = {
            "joint_position": ("qpos", model.jnt_qposadr),
            "joint_velocity": ("qvel", model.jnt_dofadr),
            "joint_effort": ("qfrc_actuator", model.jnt_dofadr),
        }[info.kind]
        columns = [int(address[j]) for j in joints]
    elif info.kind == "touch":
        name, columns = "sensordata", _sensors(model, info.channels)
        if not columns:
            notes.append(f"{where} is not used: the model has no touch sensors called {', '.join(info.channels)}")
            return None
    elif info.kind == "pose":
        name, columns = "qpos", _free_body(scene, recording, s)
    elif info.kind == "wrench":
        name, columns = f"{info.about}.wrench", list(range(6))
        try:
            signal(model, scene.roles, name)
        except UnknownName:
            notes.append(f"{where} is not used: it is about {info.about or 'nothing'}, which is no tool moved by hand")
            return None
    else:
        notes.append(f"{where} is not used: nothing in the model corresponds to a {info.kind}")
        return None
    keep, noise = _usable(s, where, notes)
    channels = POSE_AXES if info.kind == "pose" else info.channels
    block = 1 if info.kind == "pose" else max(round(BLOCK_S / float(np.median(np.diff(s.t)))), 1)
    return Measured(
        stream=info.name,
        kind=info.kind,
        clock=_clock(s, drive),
        field=name,
        columns=np.array(columns),
        channels=channels,
        t=s.t,
        value=s.value,
        keep=keep,
        noise=noise / np.sqrt(block),
        block=block,
    )


def _clock(s: Stream, drive: Drive) -> str:
    if not drive.clock:
        return ""  # nothing to be late against
    if s.info.clock != drive.clock:
        return f"clock.{s.info.clock}"
    return f"clock.{s.info.name}" if s.info.kind in ("pose", "wrench", "joint_effort", "touch") else ""


def _joint(model: mujoco.MjModel, recording: Recording, channel: str) -> int:
    """Finds a joint by its own name, or by that of an actuator on it."""
    joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, channel)
    if joint < 0:
        actuator = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_ACTUATOR, channel)
        if actuator >= 0 and model.actuator_trntype[actuator] == mujoco.mjtTrn.mjTRN_JOINT:
            joint = int(model.actuator_trnid[actuator, 0])
    if joint < 0:
        robot = recording.robot.get("name")
        there = [model.joint(j).name for j in range(model.njnt)]
        raise InputError(
            f"recording {recording.name!r} is of a different robot{f' ({robot})' if robot else ''}: the model has no "
            f"joint {channel!r}, it has {', '.join(n for n in there if n)}"
        )
    return joint


def _sensors(model: mujoco.MjModel, channels: Sequence[str]) -> list[int]:
    ids = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, c) for c in channels]
    if min(ids, default=-1) < 0 or any(model.sensor_dim[i] != 1 for i in ids):
        return []
    return [int(model.sensor_adr[i]) for i in ids]


def _free_body(scene: Scene, recording: Recording, s: Stream) -> list[int]:
    model, about = scene.model, s.info.about or "object"
    free = [model.body(b).name for b in range(1, model.nbody) if is_free(model, b)]
    body = -1
    if about in scene.roles and len(scene.roles[about].bodies) == 1:
        body = scene.roles[about].bodies[0]
    if body < 0 or not is_free(model, body):
        raise UnknownName(
            "object",
            about,
            free,
            f"Stream {s.info.name!r} of recording {recording.name!r} is about it; the model's free bodies are listed.",
        )
    start = int(model.jnt_qposadr[model.body_jntadr[body]])
    return list(range(start, start + 7))


def _drive(scene: Scene, recording: Recording, streams: Sequence[Stream], tools: Sequence[str]) -> Drive:
    model = scene.model
    commands = [s for s in streams if s.info.kind == "joint_command"]
    moved = {s.info.about: s for s in streams if s.info.kind == "pose" and s.info.about in tools}
    if len(commands) > 1:
        names = ", ".join(s.info.name for s in commands)
        raise InputError(f"recording {recording.name!r} has several streams of commands ({names}): keep one")
    if commands:
        s = commands[0]
        actuators = [_actuator(model, _joint(model, recording, c), c) for c in s.info.channels]
        return Drive(s.info.clock, s.t, s.value, actuators, moved)
    if model.nu and not moved:
        raise InputError(
            f"recording {recording.name!r} has no joint_command, but the model has {model.nu} actuators: record what "
            f"was sent, or give a model whose tool follows its measured pose"
        )
    clock = next(iter(moved.values())).info.clock if moved else ""
    return Drive(clock, np.zeros(0), np.zeros((0, 0)), (), moved)


def _actuator(model: mujoco.MjModel, joint: int, channel: str) -> int:
    by_joint = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
    found = np.flatnonzero(by_joint & (model.actuator_trnid[:, 0] == joint))
    if len(found) != 1:
        raise InputError(f"joint {channel!r} was commanded, but the model has {len(found)} actuators on it")
    return int(found[0])


def _require_finite(recording: Recording, s: Stream) -> None:
    bad = np.flatnonzero(~np.isfinite(s.value).all(axis=1) | ~np.isfinite(s.t))
    if len(bad):
        raise InputError(
            f"stream {s.info.name!r} of recording {recording.name!r} holds {len(bad)} samples that are not finite "
            f"numbers, the first at sample {int(bad[0])}: leave these samples out when importing"
        )
    if (np.diff(s.t) <= 0).any():
        raise InputError(f"times of stream {s.info.name!r} of recording {recording.name!r} do not increase")


def _usable(s: Stream, where: str, notes: list[str]) -> tuple[Bool[Array, "m r"], Float[Array, " r"]]:
    """Returns which numbers can be compared, and the level of fast noise of each channel."""
    if s.info.kind == "pose":
        error = pose_error(s.value[:-1], s.value[1:])  # from one sample to the next
        noise = _noise_of_steps(error)
        # A plain resolution where a simulated or rounded stream has no noise at all.
        return np.ones((len(s.t), 6), dtype=bool), np.maximum(noise, [1e-5] * 3 + [1e-4] * 3)
    keep = np.ones(s.value.shape, dtype=bool)
    still = np.ptp(s.value, axis=0) <= 1e-12 * np.maximum(np.abs(s.value).max(axis=0), 1.0)
    if still.any():
        names = [c for c, k in zip(s.info.channels, still, strict=True) if k]
        notes.append(f"{where} is motionless in {_some(names)}: not used there")
        keep[:, still] = False
    if s.info.limits is not None:
        # Only an upper end saturates a touch sensor: at zero it says rightly that nothing touches.
        low, high = np.array(s.info.limits).T
        tight = 1e-6 * (high - low)
        full = s.value >= high - tight
        if s.info.kind != "touch":
            full |= s.value <= low + tight
        full &= ~still
        if full.any():
            names = [c for c, k in zip(s.info.channels, full.any(axis=0), strict=True) if k]
            notes.append(f"{where} is saturated in {_some(names)}: {int(full.sum())} numbers are not used")
            keep &= ~full
    noise = _noise_of_steps(np.diff(s.value, axis=0))
    spread = np.ptp(s.value, axis=0)
    return keep, np.maximum(noise, np.where(spread > 0, 1e-4 * spread, 1.0))


def _noise_of_steps(step: Float[Array, "m c"]) -> Float[Array, " c"]:
    """Returns the standard deviation of white noise, from differences of successive steps (robustly)."""
    if len(step) < 4:
        return np.zeros(step.shape[1])
    bend = np.diff(step, axis=0)  # noise of variance 6; a smooth motion hardly bends within a sample
    return 1.4826 * np.median(np.abs(bend), axis=0) / np.sqrt(6.0)


def pose_error(a: Float[Array, "*n 7"], b: Float[Array, "*n 7"]) -> Float[Array, "*n 6"]:
    """Returns what leads from pose a to pose b: displacement [m] and rotation vector [rad], both in world axes."""
    qa, qb = a[..., 3:], b[..., 3:]
    w = qb[..., 0] * qa[..., 0] + (qb[..., 1:] * qa[..., 1:]).sum(axis=-1)
    v = (
        qa[..., :1] * qb[..., 1:]
        - qb[..., :1] * qa[..., 1:]
        - np.cross(qb[..., 1:], qa[..., 1:])
    )  # fmt: skip
    v = np.where(w[..., None] < 0, -v, v)
    norm = np.linalg.norm(v, axis=-1)
    angle = 2.0 * np.arctan2(norm, np.abs(w))
    factor = np.where(norm > 1e-9, angle / np.maximum(norm, 1e-12), 2.0)
    return np.concatenate([b[..., :3] - a[..., :3], factor[..., None] * v], axis=-1)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
