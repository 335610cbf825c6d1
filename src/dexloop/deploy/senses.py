"""What a policy needs of what a rig says: at any moment, the latest."""

from __future__ import annotations

from collections import deque

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.rig.protocol import Features, Observation
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics

POSITION, TOUCH, POSE = "joint_position", "touch", "object_pose"
_PAST = 200
"""Joint positions that are kept."""


class Senses:
    """Joints, touch and the object's place, as they were last heard of.

    Args:
        features: Of the rig.
        robot: Its robot, to know where the palm was when the tracker looked.
        pose_late_s: How much later the tracker's clock is than the robot's [s].

    Raises:
        InputError: The rig does not measure joints, touch, or where the object is.
    """

    def __init__(self, features: Features, robot: Embodiment, *, pose_late_s: float = 0.0):
        there = {stream.name for stream in features.streams}
        missing = [name for name in (POSITION, TOUCH, POSE) if name not in there]
        if missing:
            raise InputError(
                f"rig {features.name!r} has no {' and no '.join(missing)}: a policy needs joints, touch and the "
                f"object's pose; there is {', '.join(sorted(there)) or 'nothing'}"
            )
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
            if len(samples.value) == 0:
                continue
            if name == POSITION:
                self.position = samples.value[-1]
                self._past.extend(zip(samples.t.tolist(), samples.value, strict=True))
            elif name == TOUCH:
                self.touch = samples.value[-1]
            elif name == POSE:
                self._tracked = se3.from_pose(samples.value[-1])
                self._tracked_s = float(samples.t[-1]) - self._late

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

    def stands(self, T_track: Float[np.ndarray, "4 4"], T_world_object: Float[np.ndarray, "4 4"]) -> None:
        """Learns how twin and tracker mean the same object: seen so by the tracker, it stands there."""
        self.T_track_object = se3.inverse(T_track) @ T_world_object

    def ready(self) -> bool:
        """Whether everything was heard at least once."""
        return self.position is not None and self.touch is not None and self._tracked is not None


def mean_pose(poses: Float[np.ndarray, "n 7"]) -> Float[np.ndarray, "4 4"]:
    """Returns the mean of poses that are close together."""
    quat = (poses[:, 3:] * np.sign(poses[:, 3:] @ poses[0, 3:])[:, None]).mean(axis=0)
    return se3.from_pose(np.concatenate([poses[:, :3].mean(axis=0), quat / np.linalg.norm(quat)]))
