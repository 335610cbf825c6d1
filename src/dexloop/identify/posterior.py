"""The posterior: what is believed of the unknowns, from which values are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.identify.unknowns import Unknown

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Posterior:
    """A normal distribution in free coordinates; or, where that is a bad summary, weighted draws."""

    unknowns: tuple[Unknown, ...]
    mean: Float[Array, " p"]
    covariance: Float[Array, "p p"]
    draws: Float[Array, "s p"] | None = None
    """Draws in free coordinates that stand for it instead."""

    @property
    def labels(self) -> tuple[str, ...]:
        """One for each component."""
        return tuple(label for u in self.unknowns for label in u.labels)

    def sample(self, n: int, rng: np.random.Generator) -> Float[Array, "n p"]:
        """Draws free coordinates, within the bounds."""
        if self.draws is not None:
            return self.draws[rng.integers(0, len(self.draws), n)]
        root = np.linalg.cholesky(self.covariance + 1e-15 * np.eye(len(self.mean)))
        free = self.mean + rng.standard_normal((n, len(self.mean))) @ root.T
        lower = np.concatenate([u.lower for u in self.unknowns])
        upper = np.concatenate([u.upper for u in self.unknowns])
        return np.clip(free, lower, upper)

    def values(self, free: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Returns physical values of free coordinates."""
        out, at = [], 0
        for u in self.unknowns:
            out.append(u.value(free[:, at : at + u.size]))
            at += u.size
        return np.concatenate(out, axis=1)

    def summary(self, n: int = 4000) -> tuple[Float[Array, " p"], Float[Array, " p"], Float[Array, "2 p"]]:
        """Returns mean, standard deviation and 95 % interval of each component, in its unit."""
        if self.draws is not None:
            values = self.values(self.draws)
            return values.mean(axis=0), values.std(axis=0), np.percentile(values, [2.5, 97.5], axis=0)
        values = self.values(self.sample(n, np.random.default_rng(0)))
        middle = self.values(self.mean[None])[0]
        sd = np.sqrt(np.diag(self.covariance))
        ends = self.values(np.stack([self.mean - 1.96 * sd, self.mean + 1.96 * sd]))
        plain = np.concatenate([np.full(u.size, u.size == 1 or not u.name.endswith("inertia")) for u in self.unknowns])
        drawn = np.percentile(values, [2.5, 97.5], axis=0)
        interval = np.where(plain, np.sort(ends, axis=0), drawn)
        return middle, values.std(axis=0), interval
