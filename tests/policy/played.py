"""A policy that needs no training: it plays a planned motion by phase and clock, as a trained one does."""

from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.policy.bundle import Action
from dexloop.policy.contract import Contract, Terms
from dexloop.policy.observation import Observation
from dexloop.policy.start import Start
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.pickup import Pickup, PickupCfg
from tests.policy.planted import ball, sealed

RATE_HZ = 50.0
BRISK = PickupCfg(come_s=0.5, close_s=0.4, squeeze_s=0.3, lift_s=0.8)
"""As fast as a pickup can be without harm, for tests that wait for it."""


class Player:
    """Stands in for a `Brain`. Where the object stands makes no difference to it, nor does what it is told of it.

    Args:
        pickup: What it plays.
        T_world_base: Where the robot stands.
        T_world_object: Where the object stood for which it was planned.
        thing: The object's name.
    """

    def __init__(self, pickup: Pickup, T_world_base: np.ndarray, T_world_object: np.ndarray, thing: str = "box"):
        self.contract: Contract = sealed(Terms.of(pickup.embodiment, rate_hz=RATE_HZ))
        self.points = {thing: ball(0.03)}
        self._pickup, self._kinematics = pickup, Kinematics(pickup.embodiment)
        self._T_start_base = se3.inverse(T_world_object) @ T_world_base
        self._hand = [pickup.embodiment.joints.index(j) for j in pickup.embodiment.hand_joints]

    @property
    def start(self) -> Start:
        """Where the motion begins."""
        before = self._pickup.before
        return Start(self._T_start_base @ self._kinematics.palm(before), before[self._hand])

    def act(self, observation: Observation) -> Action:
        """Goes on with the motion from where phase and clock say that it is."""
        t = self._pickup.starts[observation.phase.argmax(axis=1)] + observation.clock[:, 0] + 1.0 / RATE_HZ
        q = self._pickup.command(t)
        n, chances = len(t), np.eye(len(self.contract.phases))[self._pickup.phases(t + 1e-9)]
        palm = self._T_start_base @ self._kinematics.palm(q)
        return Action(palm, q[:, self._hand], np.zeros((n, 2)), chances.argmax(axis=1), chances)
