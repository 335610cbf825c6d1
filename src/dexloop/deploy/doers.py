"""Who takes an object up: a policy, or a motion that was planned. Both begin before the object, and go by phases."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.policy.acting import Acting
from dexloop.policy.bundle import Brain
from dexloop.policy.fields import PHASES
from dexloop.policy.observation import encode_loads
from dexloop.policy.rehearsal import Stage
from dexloop.policy.start import Start
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.outcome import SEEN_S
from dexloop.robots.pickup import Load, Pickup

LIFT, HOLD = PHASES.index("lift"), PHASES.index("hold")


class Doer(Protocol):
    """Takes one object up once."""

    rate_hz: float
    """How often it looks [1/s]."""
    pace: float
    """How fast it goes, of how fast it was taught to."""
    before: Float[np.ndarray, " j"]
    """Where it begins [rad or m]."""

    @property
    def phase(self) -> int:
        """Which of `PHASES` it is in."""
        ...

    def step(
        self,
        t: float,
        position: Float[np.ndarray, " j"],
        touch: Float[np.ndarray, " f"],
        T_world_object: Float[np.ndarray, "4 4"],
        fine: Float[np.ndarray, " s"],
    ) -> Float[np.ndarray, "s j"]:
        """Looks, and returns the targets of the times `fine` after now [s]."""
        ...


class PolicyDoer:
    """A policy.

    Args:
        brain: The policy.
        start: Where it begins.
        stage: What it acts on.
        T_world_object: Where the object stands.
        load: What it is told.
        pace: How fast it goes, of how fast it was taught to: its own time runs so much slower than the rig's.

    Raises:
        InputError: The contract is for another robot, or the object is out of reach.
    """

    def __init__(
        self, brain: Brain, start: Start, stage: Stage, T_world_object: np.ndarray, load: Load, *, pace: float = 1.0
    ):
        self.pace, self.rate_hz = pace, pace * brain.contract.rate_hz
        self.before = start.posture(stage.robot, stage.T_world_base, T_world_object)
        self._acting = Acting(
            brain, stage.robot, T_world_base=stage.T_world_base, T_world_object=np.asarray(T_world_object)[None],
            belief=encode_loads([load]), points=stage.points, q=self.before[None], t_s=0.0,
        )  # fmt: skip

    @property
    def phase(self) -> int:
        """Which of `PHASES` it is in."""
        return int(self._acting.phase[0])

    def step(
        self, t: float, position: np.ndarray, touch: np.ndarray, T_world_object: np.ndarray, fine: np.ndarray
    ) -> np.ndarray:
        """Asks the policy, and goes evenly to what it answers."""
        self._acting.step(self.pace * t, position[None], touch[None], T_world_object[None])
        return self._acting.path(np.minimum(fine * self.rate_hz, 1.0))[0]


class MotionDoer:
    """A planned motion that squeezes harder what it feels too little of, and what slips.

    Args:
        pickup: The motion.
        feedback: Whether it minds touch and slip.
        T_world_base: Where the robot stands.
    """

    rate_hz = 50.0
    pace = 1.0

    def __init__(self, pickup: Pickup, T_world_base: np.ndarray, *, feedback: bool = True):
        self.before, self._phase = pickup.before, 0
        self._pickup, self._feedback, self._base = pickup, feedback, np.asarray(T_world_base)
        self._kinematics = Kinematics(pickup.embodiment)
        self._firm, self._few = 1.0, max(round(SEEN_S * self.rate_hz), 1)
        self._seen: list[np.ndarray] = []
        self._lifted: np.ndarray | None = None

    @property
    def phase(self) -> int:
        """Which of `PHASES` it is in."""
        return self._phase

    def step(
        self, t: float, position: np.ndarray, touch: np.ndarray, T_world_object: np.ndarray, fine: np.ndarray
    ) -> np.ndarray:
        """Goes on as planned, as firmly as touch and slip so far ask for."""
        self._phase = int(self._pickup.phases(np.array([t]))[0])
        T_palm = self._base @ self._kinematics.palm(position)
        self._seen.append(se3.transform(se3.inverse(T_palm), T_world_object[:3, 3]))
        if self._phase >= LIFT and self._lifted is None:
            self._lifted = np.mean(self._seen[-self._few :], axis=0)
        if self._feedback:
            self._firm = self._pickup.pressed(t, touch, self._firm, dt=1.0 / self.rate_hz)
        if self._feedback and self._lifted is not None:
            slip = float(np.linalg.norm(np.mean(self._seen[-self._few :], axis=0) - self._lifted))
            self._firm = float(self._pickup.firmness(np.array(slip), self._firm))
        return self._pickup.command(t + fine, self._firm)
