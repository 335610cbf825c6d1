"""What a policy needs of what a rig says: at any moment, the latest."""

from __future__ import annotations

from collections import deque

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.capture import POSE_CHANNELS
from dexloop.core.errors import InputError
from dexloop.rig.protocol import Features, Observation
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.traces import finger_channels

COMMAND, POSITION, TOUCH, POSE = "joint_command", "joint_position", "touch", "object_pose"
_PAST = 200
"""Joint positions that are kept."""


class Senses:
    """Joints, touch and the object's place, as they were last heard of.

    Args:
        features: Of the rig.
        robot: Its robot, to know where the palm was when the tracker looked.
        pose_late_s: How much later the tracker's clock is than the robot's [s].

    Raises:
        InputError: The rig does not measure joints, touch, or where the object is, or in other units.
    """

    def __init__(self, features: Features, robot: Embodiment, *, pose_late_s: float = 0.0):
        self._order = channels_of(features, robot)
        self.position: Float[np.ndarray, " j"] | None = None
        self.touch: Float[np.ndarray, " f"] | None = None
        self.T_track_object = np.eye(4)
        """From the frame that the tracker follows to that of the twin."""
        self._tracked: np.ndarray | None = None
        self._tracked_s, self._late = 0.0, pose_late_s
        self._past: deque[tuple[float, np.ndarray]] = deque(maxlen=_PAST)
        self._kinematics = Kinematics(robot)
        self._T_world_base = np.asarray(features.robot.get("T_world_base", np.eye(4)), dtype=np.float64)

    def hear(self, observation: Observation) -> None:
        """Takes in what arrived."""
        for name, samples in observation.samples.items():
            if name not in self._order:
                continue
            value = self.named(name, samples.value)
            # A tracker that lost the object for a moment says so by numbers that are none.
            good = np.isfinite(value).all(axis=1)
            if not good.any():
                continue
            t, value = samples.t[good], value[good]
            if name == POSITION:
                self.position = value[-1]
                self._past.extend(zip(t.tolist(), value, strict=True))
            elif name == TOUCH:
                self.touch = value[-1]
            elif name == POSE:
                self._tracked, self._tracked_s = se3.from_pose(value[-1]), float(t[-1]) - self._late

    def named(self, stream: str, value: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n k"]:
        """Returns a stream's samples in the order of the robot's joints or fingers, whatever the rig's order is."""
        return value[:, self._order[stream]]

    def T_world_object(self, *, carried: bool) -> Float[np.ndarray, "4 4"]:
        """Returns where the twin's frame is in the world.

        Args:
            carried: The object is in the hand, and has moved with it since the tracker saw it. Else a hand that is
                shaken would seem to lose what it holds.

        Raises:
            InputError: Nothing was heard of it yet.
        """
        if self._tracked is None:
            raise InputError("nothing was heard of where the object is: is the tracker on, and is the object in view?")
        T = self._tracked @ self.T_track_object
        if not carried or self.position is None:
            return T
        times = np.array([t for t, _ in self._past])
        then = self._past[int(np.argmin(np.abs(times - self._tracked_s)))][1]
        now, before = (self._T_world_base @ self._kinematics.palm(q) for q in (self.position, then))
        return now @ se3.inverse(before) @ T


def channels_of(features: Features, robot: Embodiment) -> dict[str, list[int]]:
    """Returns, for each stream that a trial needs, where in it the robot's joints, its fingers or the pose are.

    Raises:
        InputError: A stream is missing, lacks a channel, or has one in another unit.
    """
    streams = {stream.name: stream for stream in features.streams}
    missing = [name for name in (COMMAND, POSITION, TOUCH, POSE) if name not in streams]
    if missing:
        raise InputError(
            f"rig {features.name!r} has no {' and no '.join(missing)}: a trial needs what joints are told and where "
            f"they are, touch and the object's pose; there is {', '.join(sorted(streams)) or 'nothing'}"
        )
    tips = finger_channels(robot, streams[TOUCH].channels)
    needed = {
        COMMAND: (robot.joints, robot.units), POSITION: (robot.joints, robot.units), TOUCH: (tips, ("N",) * len(tips)),
        POSE: (POSE_CHANNELS, ("m",) * 3 + ("1",) * 4),
    }  # fmt: skip
    found = {}
    for name, (channels, units) in needed.items():
        there = dict(zip(streams[name].channels, streams[name].units, strict=True))
        wrong = [f"no {c}" if c not in there else f"{c} in {there[c]} instead of {unit}"
                 for c, unit in zip(channels, units, strict=True) if there.get(c) != unit]  # fmt: skip
        if wrong:
            raise InputError(
                f"stream {name!r} of rig {features.name!r} has {' and '.join(wrong)}; there is {', '.join(there)}"
            )
        found[name] = [streams[name].channels.index(c) for c in channels]
    return found


def pose_clock(features: Features) -> str:
    """Returns the name by which a belief knows how much later the tracker's clock is than the robot's."""
    clocks = {stream.name: stream.clock for stream in features.streams}
    # Also on one clock a tracker may stamp late; that is then the stream's own affair.
    return f"clock.{clocks[POSE] if clocks[POSE] != clocks[COMMAND] else POSE}"


def mean_pose(poses: Float[np.ndarray, "n 7"]) -> Float[np.ndarray, "4 4"]:
    """Returns the mean of poses that are close together; what is not finite is left out.

    Raises:
        InputError: None is finite.
    """
    poses = poses[np.isfinite(poses).all(axis=1)]
    if not len(poses):
        raise InputError("the tracker does not see the object: all its poses are no numbers")
    quat = (poses[:, 3:] * np.sign(poses[:, 3:] @ poses[0, 3:])[:, None]).mean(axis=0)
    return se3.from_pose(np.concatenate([poses[:, :3].mean(axis=0), quat / np.linalg.norm(quat)]))
