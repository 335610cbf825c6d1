"""Watches a grasp in the lab and says how it went. It sees the truth: for scoring only."""

from __future__ import annotations

from dataclasses import dataclass, field

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.lab.bench import Bench
from dexloop.lab.objects import LabObject

SLIP_M = 0.01
"""What moves farther in the hand has slipped [m]."""
LIFTED = 0.5
"""It was lifted if it rose by this share of what the palm did."""
LEAST_M = 0.05
"""A palm that rose by less has lifted nothing [m]."""
FILTER_S = 0.02
"""A blow shorter than this crushes nothing [s]."""


@dataclass
class Judge:
    """One trial's witness."""

    bench: Bench
    thing: LabObject
    grip_n: float = 0.0
    """Highest grip force so far: half of all normal forces between hand and object, filtered [N]."""
    slip_m: float = 0.0
    """Farthest that the object has moved in the palm's frame since `gripped` [m]."""
    turn_rad: float = 0.0
    """And turned there [rad]."""
    highest_m: float = -np.inf
    """Of the object so far [m]."""
    _filtered: float = 0.0
    _held: np.ndarray | None = None
    _heights: tuple[float, float] = (0.0, 0.0)
    _hand: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        model = self.bench.model
        palm = int(model.site_bodyid[model.site(self.bench.embodiment.palm).id])
        self._palm = model.site(self.bench.embodiment.palm).id
        self._hand = np.zeros(model.nbody, dtype=bool)
        for b in range(model.nbody):
            self._hand[b] = b == palm or self._hand[model.body_parentid[b]]
        self._object = model.body(self.thing.name).id
        self._time = self.bench.time
        self.bench.watch = self._see

    def gripped(self) -> None:
        """Notes how the object lies in the hand: from now on it should stay so."""
        self._held = self._seen_from_palm()
        data = self.bench.data
        self._heights = (float(data.xpos[self._object, 2]), float(data.site_xpos[self._palm, 2]))
        self.slip_m = self.turn_rad = 0.0

    def push(self, force_n: Float[np.ndarray, "3"]) -> None:
        """Pulls at the object's centre of mass from now on, in world axes [N]."""
        self.bench.data.xfrc_applied[self._object, :3] = force_n

    def verdict(self) -> str:
        """Returns "held", or why it was not: "crushed", "missed" (never lifted), "dropped" or "slipped"."""
        if self.thing.crush_force_n is not None and self.grip_n > self.thing.crush_force_n:
            return "crushed"
        if self._held is None:
            return "missed"
        rose, palm = (now - then for now, then in zip(self._now(), self._heights, strict=True))
        if palm < LEAST_M or rose < LIFTED * palm:
            return "dropped" if self.highest_m - self._heights[0] > LIFTED * palm else "missed"
        return "slipped" if self.slip_m > SLIP_M else "held"

    def _now(self) -> tuple[float, float]:
        data = self.bench.data
        return float(data.xpos[self._object, 2]), float(data.site_xpos[self._palm, 2])

    def _see(self) -> None:
        passed, self._time = self.bench.time - self._time, self.bench.time
        share = min(max(passed, 0.0) / FILTER_S, 1.0)
        self._filtered += share * (self._force() - self._filtered)
        self.grip_n = max(self.grip_n, self._filtered)
        self.highest_m = max(self.highest_m, self._now()[0])
        if self._held is not None:
            seen = self._seen_from_palm()
            self.slip_m = max(self.slip_m, float(np.linalg.norm(seen[:3, 3] - self._held[:3, 3])))
            turned = 0.5 * (float(np.sum(seen[:3, :3] * self._held[:3, :3])) - 1.0)
            self.turn_rad = max(self.turn_rad, float(np.arccos(np.clip(turned, -1.0, 1.0))))

    def _seen_from_palm(self) -> Float[np.ndarray, "4 4"]:
        data = self.bench.data
        T_palm = se3.from_rt(data.site_xmat[self._palm].reshape(3, 3), data.site_xpos[self._palm])
        return se3.inverse(T_palm) @ se3.from_rt(data.xmat[self._object].reshape(3, 3), data.xpos[self._object])

    def _force(self) -> float:
        """Returns half of the normal forces between hand and object [N]."""
        model, data = self.bench.model, self.bench.data
        if not data.ncon:
            return 0.0
        bodies = model.geom_bodyid[data.contact.geom]
        between = (bodies == self._object).any(axis=1) & self._hand[bodies].any(axis=1)
        total, wrench = 0.0, np.zeros(6)
        for c in np.flatnonzero(between):
            mujoco.mj_contactForce(model, data, int(c), wrench)
            total += wrench[0]
        return 0.5 * total
