"""A rig that does at once what it is told, and a doer that goes up: for tests of what stands between the two."""

from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.core.capture import POSE_CHANNELS, StreamInfo
from dexloop.rig.protocol import CommandInfo, Features, Observation, Samples
from tests.robots.pinched import ROBOT, T_WORLD_BASE, T_WORLD_OBJECT

RATE_HZ = 250.0
STREAMS = (
    StreamInfo("joint_position", "joint_position", ROBOT.joints, ROBOT.units, "robot"),
    StreamInfo("joint_command", "joint_command", ROBOT.joints, ROBOT.units, "robot"),
    StreamInfo("touch", "touch", ("left", "right"), ("N", "N"), "robot"),  # the robot's own order is another
    StreamInfo("object_pose", "pose", POSE_CHANNELS, ("m",) * 3 + ("1",) * 4, "camera", about="object"),
)


def features(streams: tuple[StreamInfo, ...] = STREAMS) -> Features:
    command = CommandInfo(
        ROBOT.joints, ROBOT.units, tuple((float(a), float(b)) for a, b in ROBOT.position_limits),
        tuple(ROBOT.speed_limits.tolist()), tuple(ROBOT.effort_limits.tolist()), tuple(ROBOT.home.tolist()), RATE_HZ,
    )  # fmt: skip
    return Features("ideal", {"name": ROBOT.name, "T_world_base": T_WORLD_BASE.tolist()}, streams, (), command, {})


def heard(t: float, q: np.ndarray, T: np.ndarray = T_WORLD_OBJECT, *, pose_t: float | None = None) -> Observation:
    """One sample of everything."""
    at = np.array([t])
    return Observation(
        {
            "joint_position": Samples(at, np.asarray(q)[None]), "touch": Samples(at, np.array([[1.0, 2.0]])),
            "object_pose": Samples(at if pose_t is None else np.array([pose_t]), se3.to_pose(T)[None]),
        },
        {},
    )  # fmt: skip


class IdealRig:
    """Its joints are where they were told to be."""

    def __init__(self) -> None:
        self.features, self.sent, self._ticks = features(), [], 0

    def now(self) -> float:
        return self._ticks / RATE_HZ

    def sleep(self, duration_s: float) -> None:
        self._ticks += round(duration_s * RATE_HZ)

    def send(self, target: np.ndarray) -> None:
        self.sent.append((self.now(), np.array(target)))

    def observe(self) -> Observation:
        return heard(self.now(), self.sent[-1][1])


class Riser:
    """Goes through all phases, one each tenth of a second, and lifts the wrist evenly all the while."""

    rate_hz = 50.0
    pace = 1.0

    def __init__(self, before: np.ndarray, phases: int = 5):
        self.before, self.phase, self._phases = before, 0, phases

    def step(self, t: float, position: object, touch: object, T: object, fine: np.ndarray) -> np.ndarray:
        self.phase = min(int(t * 10 + 1e-6), self._phases - 1)
        targets = np.tile(self.before, (len(fine), 1))
        targets[:, ROBOT.joints.index("wrist_z")] += 0.1 * np.minimum(t + fine, 0.5)
        return targets
