"""A recorded trial as a few channels on one clock, so that it can be judged, and laid beside a simulated one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.capture import Recording
from dexloop.core.errors import InputError
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics

RATE_HZ = 50.0
"""Of the common clock [1/s]."""


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


def traces(
    recording: Recording,
    robot: Embodiment,
    T_track_object: Float[np.ndarray, "4 4"],
    *,
    pose_late_s: float = 0.0,
) -> Traces:
    """Brings a trial's streams onto one clock: forces are averaged over each period, as simulated ones are, and places
    interpolated, so that palm and object are those of the same moment.

    Args:
        recording: Of the trial.
        robot: Whose joints they are.
        T_track_object: From the frame that the tracker follows to the object's.
        pose_late_s: How much later the tracker's clock is than the robot's [s].

    Raises:
        UnknownName: A stream is missing.
        InputError: They do not overlap, or hold too little.
    """
    base = np.asarray(recording.robot.get("T_world_base", np.eye(4)), dtype=np.float64)
    command, position, touch, pose = (
        recording.stream(name) for name in ("joint_command", "joint_position", "touch", "object_pose")
    )
    begin, end = float(command.t[0]), float(min(command.t[-1], position.t[-1]))
    t = np.arange(begin + 1.0 / RATE_HZ, end, 1.0 / RATE_HZ)
    if len(t) < 3:
        raise InputError(f"recording {recording.name!r} holds {end - begin:.2f} s of motion: too little to compare")
    if pose.t[-1] - pose_late_s < begin or pose.t[0] - pose_late_s > end:
        raise InputError(
            f"in recording {recording.name!r} the tracker saw nothing while the robot moved, by their clocks: is the "
            f"offset between them {pose_late_s:g} s?"
        )
    joints = _between(position.t, position.value, t)
    effort = np.full_like(joints, np.nan)
    if "joint_effort" in recording.streams:
        measured = recording.stream("joint_effort")
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
    ends = np.searchsorted(t, at + 1e-9, side="right")
    begins = np.minimum(np.searchsorted(t, at - 1.0 / RATE_HZ + 1e-9, side="right"), ends - 1)
    begins, ends = np.maximum(begins, 0), np.maximum(ends, 1)
    total = np.concatenate([np.zeros((1, value.shape[1])), np.cumsum(value, axis=0)])
    return (total[ends] - total[begins]) / (ends - begins)[:, None]


def _between(t: np.ndarray, value: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(at, t, column) for column in value.T], axis=1)


def _poses(t: np.ndarray, pose: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Interpolates poses whose neighbours are close together."""
    quat = pose[:, 3:].copy()
    for k in range(1, len(quat)):
        if quat[k] @ quat[k - 1] < 0:
            quat[k] *= -1.0
    out = _between(t, np.column_stack([pose[:, :3], quat]), at)
    out[:, 3:] /= np.linalg.norm(out[:, 3:], axis=1, keepdims=True)
    return out
