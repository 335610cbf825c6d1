"""A policy at work, in one world or in many: from what is measured to targets of all joints."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.policy.bundle import Action, Brain
from dexloop.policy.observation import Observation, Past, observe
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics

_TURNS, _CLOSE, _DAMPING = 6, 1e-6, 1e-8
"""How often joints are corrected at most, when that is enough [m, rad], and what keeps steps small where an arm is
stretched."""
_HASTE = 1.5
"""How much faster a step may be in between than on the whole: a cubic from rest to rest is."""


class Acting:
    """A policy that takes up one object in each of n worlds.

    Args:
        brain: The policy.
        embodiment: The robot, which the policy's contract must be for.
        T_world_base: Where it stands.
        T_world_object: Where each object stands at the start.
        belief: What is believed of each, by `encode_belief`.
        points: On the object's surface, in its own frame [m].
        q: All joints at the start [rad or m].
        t_s: When it starts [s].

    Raises:
        InputError: The contract is for another robot.
    """

    def __init__(
        self,
        brain: Brain,
        embodiment: Embodiment,
        *,
        T_world_base: Float[np.ndarray, "4 4"],
        T_world_object: Float[np.ndarray, "n 4 4"],
        belief: Float[np.ndarray, "n 4"],
        points: Float[np.ndarray, "128 3"],
        q: Float[np.ndarray, "n j"],
        t_s: float,
    ):
        brain.contract.check(embodiment)
        self.brain, self.embodiment = brain, embodiment
        self.command = np.array(q, dtype=np.float64)
        """What all joints were last told [rad or m]."""
        self._before = self.command
        self._speed, self._speed_before = np.zeros_like(self.command), np.zeros_like(self.command)
        self.past = Past.start(T_world_object, t_s)
        self.seen: Observation | None = None
        """What it last saw."""
        self._belief, self._points = belief, points
        self._T_world_base = np.asarray(T_world_base)
        self._kinematics = Kinematics(embodiment)
        self._arm = [embodiment.joints.index(j) for j in embodiment.arm_joints]
        self._hand = [embodiment.joints.index(j) for j in embodiment.hand_joints]
        self._most = embodiment.speed_limits / (_HASTE * brain.contract.rate_hz)

    @property
    def phase(self) -> Int[np.ndarray, " n"]:
        """Which of the contract's phases each is in."""
        return self.past.phase

    def step(
        self,
        t_s: float,
        q: Float[np.ndarray, "n j"],
        touch: Float[np.ndarray, "n f"],
        T_world_object: Float[np.ndarray, "n 4 4"],
    ) -> Action:
        """Looks, and sets `command` to what the joints shall do until the next step.

        A phase is followed by itself or by the next one. No joint is told to go faster than it may.

        Raises:
            InputError: What is measured does not fit the robot, or is not finite.
        """
        if not np.isfinite(q).all():
            raise InputError("joint positions are not finite: stop the robot")
        T_world_palm = self._T_world_base @ self._kinematics.palm(q)
        seen = observe(
            self.brain.contract, self.past, t_s=t_s, q=q, command=self.command, touch=touch, T_world_palm=T_world_palm,
            T_world_object=T_world_object, belief=self._belief, points=self._points,
        )  # fmt: skip
        self.seen, action = seen, self.brain.act(seen)
        phase = np.clip(action.phase, self.past.phase, self.past.phase + 1)
        self.past = self.past.then(phase, t_s, T_world_palm, T_world_object)
        goal = se3.inverse(self._T_world_base) @ self.past.T_world_start @ action.palm
        told = self.command.copy()
        for k, T in enumerate(goal):
            told[k] = self._reach(T, self.command[k])
        told[:, self._hand] = action.hand
        step = np.clip(told - self.command, -self._most, self._most)
        self._before, self._speed_before = self.command, self._speed
        self.command = np.clip(self.command + step, *self.embodiment.position_limits.T)
        self._speed = self.command - self._before
        return action

    def _reach(self, T_base_palm: Float[np.ndarray, "4 4"], q: Float[np.ndarray, " j"]) -> Float[np.ndarray, " j"]:
        """Returns arm joints that bring the palm there, or as near as they get, from where they are told to be now.

        Plain damped least squares: the palm goes a few millimetres a step, and restarts would jump.
        """
        q, robot = q.copy(), self.embodiment
        low, high = robot.position_limits[self._arm].T
        for _ in range(_TURNS):
            T = self._kinematics.palm(q)
            turn = T_base_palm[:3, :3] @ T[:3, :3].T
            # Half of what is not symmetric in a rotation is its axis times the sine of its angle.
            sine = 0.5 * np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
            off = np.concatenate([T_base_palm[:3, 3] - T[:3, 3], sine])
            if np.abs(off).max() < _CLOSE:
                break
            J = self._kinematics.jacobians(q, robot.palm)[:, self._arm]
            q[self._arm] += J.T @ np.linalg.solve(J @ J.T + _DAMPING * np.eye(6), off)
            q[self._arm] = np.clip(q[self._arm], low, high)
        return q

    def path(self, share: Float[np.ndarray, " s"]) -> Float[np.ndarray, "n s j"]:
        """Returns targets on the way from the last command to this one, at shares of the period from 0 to 1.

        It begins with the speed with which the last one ended: a cubic (Hermite) in between, so that motors are not
        jerked at every step.
        """
        x = np.asarray(share)[None, :, None]
        a, b = self._before[:, None], self.command[:, None]
        u, v = self._speed_before[:, None], self._speed[:, None]
        way = (2 * x**3 - 3 * x**2 + 1) * a + (x**3 - 2 * x**2 + x) * u + (3 * x**2 - 2 * x**3) * b + (x**3 - x**2) * v
        return np.clip(way, *self.embodiment.position_limits.T)
