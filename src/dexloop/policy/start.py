"""Where a policy begins: the open hand before the object, as in the demonstrations that it learned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.artifacts import Policy
from dexloop.core.errors import InputError
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import IkCfg, solve_ik


@dataclass(frozen=True, eq=False)
class Start:
    """A posture beside an object."""

    T_object_palm: Float[np.ndarray, "4 4"]
    """Where the palm is, in the object's frame."""
    hand: Float[np.ndarray, " h"]
    """Hand joints [rad or m]."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {"T_object_palm": self.T_object_palm.tolist(), "hand": self.hand.tolist()}

    @staticmethod
    def of(policy: Policy) -> Start:
        """Reads where a policy begins.

        Raises:
            InputError: It does not say.
        """
        said = policy.header.meta.get("start")
        if not isinstance(said, dict) or not {"T_object_palm", "hand"} <= said.keys():
            raise InputError(f"{policy.path} does not say where it begins: train it again, with --replace")
        return Start(np.asarray(said["T_object_palm"], dtype=np.float64), np.asarray(said["hand"], dtype=np.float64))

    def posture(
        self, robot: Embodiment, T_world_base: Float[np.ndarray, "4 4"], T_world_object: Float[np.ndarray, "4 4"]
    ) -> Float[np.ndarray, " j"]:
        """Returns all joints of a robot that stands there before an object that stands there [rad or m].

        Raises:
            InputError: It does not reach so far.
        """
        q = np.array(robot.home, dtype=np.float64)
        q[[robot.joints.index(j) for j in robot.hand_joints]] = self.hand
        target = se3.inverse(np.asarray(T_world_base)) @ np.asarray(T_world_object) @ self.T_object_palm
        found = solve_ik(robot, {robot.palm: target}, q, joints=robot.arm_joints, cfg=IkCfg(restarts=4))
        if not found.converged:
            raise InputError(
                f"{robot.name} does not get to where the policy begins: {found.status.message}; move the object"
            )
        return found.q
