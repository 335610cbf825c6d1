"""Grips at the same contacts as cone programs: scaled to numbers around 1, solved, and scaled back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from numba import get_num_threads

from dexloop.robots.cones import least_effort

EVEN = 0.1
"""How much a normal force's difference from the mean counts, against the force itself."""
BALANCED = 1e-5
"""A wrench that misses by less than this part of itself is met."""
BORNE = 0.995
"""A share of the disturbances that counts as all of them."""
LIMITS = ("", "friction", "motor", "crush")
"""What can keep forces from being enough."""
_WORTH = 3e5
"""Of bearing a disturbance as large as the wrench, where effort counts as 1."""
_ENDLESS = 1e4
"""No limit is higher than this many times the wrench."""
_PIECE = 128
"""Grips that one thread solves at a time."""


@dataclass(frozen=True, eq=False)
class Found:
    """Forces of many grips."""

    v: Float[np.ndarray, "b m"]
    """At each contact along normal and tangents, and torque over radius of soft fingers [N]."""
    missed: Float[np.ndarray, "b 6"]
    """What is missing of the wrenches [N, N·m]."""
    held: Float[np.ndarray, " b"]
    """Share of the disturbances that is borne."""
    feasible: Bool[np.ndarray, " b"]


@dataclass(frozen=True, eq=False)
class Problem:
    """What grips at the same contacts have in common."""

    G: Float[np.ndarray, "6 m"]
    """Makes a wrench of forces v."""
    width: int
    """How many numbers a contact has, 3 or 4."""
    size_m: float
    """Length that compares torques with forces."""
    f_min: Float[np.ndarray, " n"]
    """[N]"""
    f_max: Float[np.ndarray, " n"]
    """[N]"""
    turn: Float[np.ndarray, "j m"]
    """Makes joint torques of forces v."""
    low: Float[np.ndarray, " j"]
    """[N·m or N]"""
    high: Float[np.ndarray, " j"]
    """[N·m or N]"""

    def solve(
        self, mu: Float[np.ndarray, "b n"], present: Float[np.ndarray, "b 6"], wrenches: Float[np.ndarray, "b k 6"]
    ) -> Found:
        """Finds the least forces that make each present wrench and are ready for the others."""
        if len(mu) <= _PIECE:
            return self._solve(mu, present, wrenches)
        pieces = [slice(k, k + _PIECE) for k in range(0, len(mu), _PIECE)]
        with ThreadPoolExecutor(get_num_threads()) as pool:
            found = list(pool.map(lambda at: self._solve(mu[at], present[at], wrenches[at]), pieces))
        return Found(*(np.concatenate([getattr(f, name) for f in found]) for name in Found.__annotations__))

    def limits(
        self,
        mu: Float[np.ndarray, "b n"],
        present: Float[np.ndarray, "b 6"],
        wrenches: Float[np.ndarray, "b k 6"],
        feasible: Bool[np.ndarray, " b"],
    ) -> Int[np.ndarray, " b"]:
        """Finds what limits forces that are not enough: the limit without which they would be. Index into `LIMITS`."""
        friction = LIMITS.index("friction")
        limit = np.where(feasible, 0, friction)
        if feasible.all():
            return limit
        strong = replace(self, turn=self.turn[:0], low=self.low[:0], high=self.high[:0])
        tough = np.full_like(self.f_max, np.inf)
        eased = [("crush", replace(self, f_max=tough))]
        if len(self.low):
            eased = [("motor", strong), *eased, ("motor", replace(strong, f_max=tough))]
        for name, problem in eased:
            at = np.flatnonzero(limit == friction)
            if len(at):
                enough = problem.solve(mu[at], present[at], wrenches[at]).feasible
                limit[at[enough]] = LIMITS.index(name)
        return limit

    def _solve(self, mu: np.ndarray, present: np.ndarray, wrenches: np.ndarray) -> Found:
        b, k, m, width = len(mu), wrenches.shape[1], self.G.shape[1], self.width
        alike = np.array([1.0, 1.0, 1.0, *[1.0 / self.size_m] * 3])
        G = alike[:, None] * self.G
        target, change = alike * present, alike * (wrenches - present[:, None])
        # Equal springs at the contacts share a change of wrench as Gᵀ (G Gᵀ)⁻¹ change, as far as they can.
        response = change @ np.linalg.solve(G @ G.T + 1e-9 * np.eye(6), G)
        largest = np.sqrt((change**2).sum(axis=2)).max(axis=1, initial=0.0)
        unit = np.maximum(np.sqrt((target**2).sum(axis=1)), np.maximum(largest, max(self.f_min.max(), 1e-9)))
        unborne = abs(change - response @ G.T).max(axis=(1, 2), initial=0.0) > BALANCED * unit

        # The unknowns are (normal, tangents / mu) in these units.
        scale = np.repeat(mu, width, axis=1)
        scale[:, ::width] = 1.0
        P = np.zeros((b, m, m))
        P[:, ::width, ::width] = EVEN * (np.eye(m // width) - width / m)
        P[:, range(m), range(m)] += np.maximum(scale**2, 1e-6)
        offsets = np.zeros((b, k + 1, m))
        offsets[:, 1:] = response / (np.maximum(scale, 1e-6) * unit[:, None])[:, None]
        bounds, limits, always = self._bounds()
        rows = np.zeros((b, len(bounds) + 1, m + 1))
        rows[:, :-1, :m] = bounds * scale[:, None]
        # A limit must hold in the worst disturbance too; the least touch is for the present only.
        rows[:, :-1, m] = always * (bounds @ response.transpose(0, 2, 1)).max(axis=2, initial=0.0) / unit[:, None]
        rows[:, -1, m] = -1.0
        limits = np.concatenate([np.minimum(limits / unit[:, None], _ENDLESS), np.zeros((b, 1))], axis=1)
        worth = _WORTH * np.maximum((largest / unit) ** 2, 1e-3)

        u, share, steps = np.zeros((b, m)), np.zeros(b), np.zeros(b, dtype=np.int64)
        A = G * scale[:, None]
        least_effort(P, A, target / unit[:, None], offsets, rows, limits, worth, width, u, share, steps)
        v = u * scale * unit[:, None]
        missed = present - v @ self.G.T
        held = np.where(unborne, 0.0, np.clip(share, 0.0, 1.0))
        met = np.sqrt(((alike * missed) ** 2).sum(axis=1)) < BALANCED * unit
        return Found(v, missed, held, met & (held > BORNE))

    def _bounds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns rows · v ≤ limits for crush limits, least touch and motors, and which must hold in disturbances."""
        n, m = len(self.f_max), self.G.shape[1]
        normal = np.eye(m)[:: self.width]
        used = abs(self.turn).max(axis=1, initial=0.0) > 1e-9
        turn, high, low = self.turn[used], self.high[used], self.low[used]
        # A motor that cannot even carry its finger leaves next to nothing for the object.
        high, low = np.maximum(high, 1e-6), np.minimum(low, -1e-6)
        # Nor can the least touch be more than motors can do.
        needed = turn[:, :: self.width] @ self.f_min
        able = np.where(needed > 0, high, -low) / np.maximum(abs(needed), 1e-12)
        f_min = np.minimum(self.f_min * min(0.5 * able.min(initial=2.0), 1.0), 0.9999 * self.f_max)
        length = abs(turn).max(axis=1, initial=0.0)
        turn = turn / length[:, None]
        rows = np.concatenate([normal, -normal, turn, -turn])
        always = np.ones(len(rows))
        always[n : 2 * n] = 0.0
        return rows, np.concatenate([self.f_max, -f_min, high / length, -low / length]), always
