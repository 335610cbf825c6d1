"""Holding still and shaking: what a grasp is tried with once the object is up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics


@dataclass(frozen=True)
class Shake:
    """How long an object is held, and how it is shaken then."""

    hold_s: float = 3.0
    """Held still [s]."""
    shake_s: float = 2.0
    """Shaken [s]."""
    far_m: float = 0.02
    """How far to either side [m]."""
    often_hz: tuple[float, float, float] = (1.5, 2.0, 2.5)
    """Along x, y and z [1/s]."""

    def __post_init__(self) -> None:
        if not (0.0 <= self.hold_s <= 600.0 and 0.0 <= self.shake_s <= 600.0 and 0.0 <= self.far_m <= 0.2):
            raise InputError(f"an object is held for {self.hold_s:g} s and shaken for {self.shake_s:g} s by "
                             f"{self.far_m:g} m: times are up to 600 s, ways up to 0.2 m")  # fmt: skip

    @property
    def duration_s(self) -> float:
        """Of both [s]."""
        return self.hold_s + self.shake_s

    def offset(self, t: Float[np.ndarray, "*m"]) -> Float[np.ndarray, "*m 3"]:
        """Returns where the palm shall be, beside where it was lifted to, in the world's axes [m].

        Args:
            t: Since the object is up [s]; before that, and after the end, it is not shaken.
        """
        late = np.clip(np.asarray(t, dtype=np.float64) - self.hold_s, 0.0, self.shake_s)[..., None]
        return self.far_m * np.sin(2 * np.pi * np.array(self.often_hz) * late)


def shaking(robot: Embodiment, kinematics: Kinematics, q: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 3"]:
    """Returns by how much each joint goes for a metre of the palm along x, y and z: only those of the arm do."""
    arm = [robot.joints.index(j) for j in robot.arm_joints]
    out = np.zeros((len(robot.joints), 3))
    # Least squares over position and turn: the palm goes straight and does not tilt.
    out[arm] = np.linalg.pinv(kinematics.jacobians(np.asarray(q), robot.palm)[:, arm])[:, :3]
    return out
