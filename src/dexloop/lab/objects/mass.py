"""How mass is spread: solids, thin shells and their mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from dexloop.core import se3


@dataclass(frozen=True, eq=False)
class Spread:
    """Centre of mass [m] and inertia about it per kilogram [m²]."""

    com: Float[np.ndarray, "3"]
    inertia: Float[np.ndarray, "3 3"]


def _from_moments(first: Float[np.ndarray, "3"], second: Float[np.ndarray, "3 3"]) -> Spread:
    """From the mean of x and the mean of x xᵀ: I = tr(S) 1 - S with S the covariance."""
    covariance = second - np.outer(first, first)
    return Spread(first, np.trace(covariance) * np.eye(3) - covariance)


def shell(vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"]) -> Spread:
    """Mass spread evenly over a surface."""
    tri = vertices[faces]
    area = 0.5 * np.linalg.norm(np.cross(tri[:, 1] - tri[:, 0], tri[:, 2] - tri[:, 0]), axis=1)
    w = area / area.sum()
    total = tri.sum(axis=1)
    second = (np.einsum("f,fki,fkj->ij", w, tri, tri) + np.einsum("f,fi,fj->ij", w, total, total)) / 12
    return _from_moments(w @ total / 3, second)


def solid(vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"]) -> Spread:
    """Mass spread evenly over the volume inside a closed surface."""
    tri = vertices[faces]
    volume = np.einsum("fi,fi->f", tri[:, 0], np.cross(tri[:, 1], tri[:, 2])) / 6
    w = volume / volume.sum()
    total = tri.sum(axis=1)
    second = (np.einsum("f,fki,fkj->ij", w, tri, tri) + np.einsum("f,fi,fj->ij", w, total, total)) / 20
    return _from_moments(w @ total / 4, second)


def mixture(shares: Sequence[tuple[float, Spread]]) -> Spread:
    """Rigidly joins spreads, each with its share of the mass (shares add up to 1)."""
    com = np.sum([w * s.com for w, s in shares], axis=0)
    inertia = np.zeros((3, 3))
    for w, s in shares:
        offset = se3.hat(s.com - com)
        inertia += w * (s.inertia + offset.T @ offset)
    return Spread(com, inertia)
