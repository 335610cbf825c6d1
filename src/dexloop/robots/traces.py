"""A recorded trial as a few channels on one clock, so that it can be judged, and laid beside a simulated one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.capture import POSE_CHANNELS, Recording, Stream
from dexloop.core.errors import InputError, UnknownName
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics

RATE_HZ = 50.0
"""Of the common clock [1/s]."""
SURE = 3.0
"""A channel is outside the band of its simulations beyond so many standard deviations."""


@dataclass(frozen=True, eq=False)
class Traces:
    """What was done and measured, moment by moment."""

    t: Float[np.ndarray, " m"]
    """Since the trial began, on the robot's clock [s]."""
    command: Float[np.ndarray, "m j"]
    """What the joints were told [rad or m]."""
    position: Float[np.ndarray, "m j"]
    effort: Float[np.ndarray, "m j"]
    """[N·m or N]; NaN where it is not measured."""
    touch: Float[np.ndarray, "m f"]
    """[N]"""
    T_world_object: Float[np.ndarray, "m 4 4"]
    T_world_palm: Float[np.ndarray, "m 4 4"]


def finger_channels(robot: Embodiment, channels: Sequence[str]) -> tuple[str, ...]:
    """Returns what a rig with these channels calls each finger: by its site, as a simulation does, or by its name."""
    return tuple(tip.site if tip.site in channels else tip.name for tip in robot.fingertips)


def traces(
    recording: Recording,
    robot: Embodiment,
    T_track_object: Float[np.ndarray, "4 4"],
    *,
    pose_late_s: float = 0.0,
) -> Traces:
    """Brings a trial's streams onto one clock: forces are averaged over each period, as simulated ones are, and places
    interpolated, so that palm and object are those of the same moment. Samples that are not finite are left out.

    Args:
        recording: Of the trial.
        robot: Whose joints they are.
        T_track_object: From the frame that the tracker follows to the object's.
        pose_late_s: How much later the tracker's clock is than the robot's [s].

    Raises:
        UnknownName: A stream is missing, or does not tell of one of the robot's joints or fingers.
        InputError: They do not overlap, or hold too little.
    """
    base = np.asarray(recording.robot.get("T_world_base", np.eye(4)), dtype=np.float64)
    command, position = (
        _whole(_named(recording.stream(name), robot.joints)) for name in ("joint_command", "joint_position")
    )
    touch = recording.stream("touch")
    touch = _named(touch, finger_channels(robot, touch.info.channels))
    pose = _whole(_named(recording.stream("object_pose"), POSE_CHANNELS))
    if not len(command.t) or not len(position.t):
        raise InputError(f"recording {recording.name!r} holds no motion")
    begin, end = float(command.t[0]), float(min(command.t[-1], position.t[-1]))
    t = np.arange(begin + 1.0 / RATE_HZ, end, 1.0 / RATE_HZ)
    if len(t) < 3:
        raise InputError(f"recording {recording.name!r} holds {end - begin:.2f} s of motion: too little to compare")
    if not len(pose.t) or pose.t[-1] - pose_late_s < begin or pose.t[0] - pose_late_s > end:
        raise InputError(
            f"in recording {recording.name!r} the tracker saw nothing while the robot moved, by their clocks: is the "
            f"offset between them {pose_late_s:g} s?"
        )
    joints = _between(position.t, position.value, t)
    effort = np.full_like(joints, np.nan)
    if "joint_effort" in recording.streams:
        measured = _named(recording.stream("joint_effort"), robot.joints)
        effort = _mean(measured.t, measured.value, t)
    seen = se3.from_pose(_poses(pose.t - pose_late_s, pose.value, t)) @ T_track_object
    return Traces(
        t - begin, _latest(command.t, command.value, t), joints, effort, _mean(touch.t, touch.value, t), seen,
        base @ Kinematics(robot).palm(joints),
    )  # fmt: skip


def _latest(t: np.ndarray, value: np.ndarray, at: np.ndarray) -> np.ndarray:
    return value[np.clip(np.searchsorted(t, at + 1e-9, side="right") - 1, 0, len(t) - 1)]


def _mean(t: np.ndarray, value: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Returns means over the periods that end at each moment; where nothing was measured, the sample before."""
    out = np.full((len(at), value.shape[1]), np.nan)
    for k, column in enumerate(value.T):
        good = np.isfinite(column)
        if not good.any():
            continue
        ends = np.searchsorted(t[good], at + 1e-9, side="right")
        begins = np.minimum(np.searchsorted(t[good], at - 1.0 / RATE_HZ + 1e-9, side="right"), ends - 1)
        begins, ends = np.maximum(begins, 0), np.maximum(ends, 1)
        total = np.concatenate([[0.0], np.cumsum(column[good])])
        out[:, k] = (total[ends] - total[begins]) / (ends - begins)
    return out


def _between(t: np.ndarray, value: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(at, t, column) for column in value.T], axis=1)


def _named(stream: Stream, channels: Sequence[str]) -> Stream:
    """Returns a stream with these channels, in this order."""
    for name in channels:
        if name not in stream.info.channels:
            raise UnknownName("channel", name, stream.info.channels, f"Stream {stream.info.name!r} was asked for it.")
    return Stream(stream.info, stream.t, stream.value[:, [stream.info.channels.index(name) for name in channels]])


def _whole(stream: Stream) -> Stream:
    """Returns a stream without the samples that are not finite."""
    good = np.isfinite(stream.value).all(axis=1)
    return Stream(stream.info, stream.t[good], stream.value[good])


def _poses(t: np.ndarray, pose: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Interpolates poses whose neighbours are close together."""
    quat = pose[:, 3:].copy()
    for k in range(1, len(quat)):
        if quat[k] @ quat[k - 1] < 0:
            quat[k] *= -1.0
    out = _between(t, np.column_stack([pose[:, :3], quat]), at)
    out[:, 3:] /= np.linalg.norm(out[:, 3:], axis=1, keepdims=True)
    return out
