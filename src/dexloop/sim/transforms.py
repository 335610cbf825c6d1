"""Maps between physical values and unconstrained coordinates in which every number is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

Array = np.ndarray


@runtime_checkable
class Transform(Protocol):
    """A smooth one-to-one map."""

    def to_free(self, value: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
        """Returns unconstrained coordinates of physical values."""
        ...

    def to_value(self, free: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
        """Returns physical values of unconstrained coordinates."""
        ...


@dataclass(frozen=True)
class Identity:
    """For what may have any sign."""

    def to_free(self, value: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
        """Returns the value."""
        return value

    def to_value(self, free: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
        """Returns the coordinate."""
        return free


@dataclass(frozen=True)
class Log:
    """For what is positive and known by its ratio."""

    def to_free(self, value: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
        """Returns log(value)."""
        return np.log(value)

    def to_value(self, free: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
        """Returns exp(free)."""
        return np.exp(free)


@dataclass(frozen=True)
class LogCholesky:
    """For an inertia [Ixx, Iyy, Izz, Ixy, Ixz, Iyz] about the centre of mass [kg·m²].

    The pseudo-inertia of a body is J = [[S + m c cᵀ, m c], [m cᵀ, m]] with S = tr(I)/2 - I the second moment of its
    density about the centre of mass. The body is physically possible exactly if J is positive definite, that is if
    m > 0 and S = L Lᵀ for some L with a positive diagonal. Mass and centre of mass are parameters of their own; these
    coordinates are the rest of the Cholesky factor of J: [log L00, log L11, log L22, L10/√tr, L20/√tr, L21/√tr] with
    √tr = √(L00² + L11² + L22²), which makes the last three free of units.
    """

    def to_free(self, value: Float[Array, "*n 6"]) -> Float[Array, "*n 6"]:
        """Returns the log-Cholesky coordinates.

        Raises:
            numpy.linalg.LinAlgError: No body has this inertia.
        """
        inertia = inertia_matrix(value)
        trace = np.trace(inertia, axis1=-2, axis2=-1)[..., None, None]
        L = np.linalg.cholesky(0.5 * trace * np.eye(3) - inertia)
        diagonal = np.stack([L[..., k, k] for k in range(3)], axis=-1)
        scale = np.linalg.norm(diagonal, axis=-1)
        lower = np.stack([L[..., 1, 0], L[..., 2, 0], L[..., 2, 1]], axis=-1) / scale[..., None]
        return np.concatenate([np.log(diagonal), lower], axis=-1)

    def to_value(self, free: Float[Array, "*n 6"]) -> Float[Array, "*n 6"]:
        """Returns the inertia of log-Cholesky coordinates; it is always physically possible."""
        diagonal = np.exp(free[..., :3])
        lower = free[..., 3:] * np.linalg.norm(diagonal, axis=-1)[..., None]
        L = np.zeros((*free.shape[:-1], 3, 3))
        for k in range(3):
            L[..., k, k] = diagonal[..., k]
        L[..., 1, 0], L[..., 2, 0], L[..., 2, 1] = lower[..., 0], lower[..., 1], lower[..., 2]
        S = L @ np.swapaxes(L, -1, -2)
        inertia = np.trace(S, axis1=-2, axis2=-1)[..., None, None] * np.eye(3) - S
        return inertia_vector(inertia)


def inertia_matrix(value: Float[Array, "*n 6"]) -> Float[Array, "*n 3 3"]:
    """Returns the symmetric matrix of [Ixx, Iyy, Izz, Ixy, Ixz, Iyz]."""
    xx, yy, zz, xy, xz, yz = np.moveaxis(value, -1, 0)
    return np.stack([np.stack(r, axis=-1) for r in ([xx, xy, xz], [xy, yy, yz], [xz, yz, zz])], axis=-2)


def inertia_vector(inertia: Float[Array, "*n 3 3"]) -> Float[Array, "*n 6"]:
    """Returns [Ixx, Iyy, Izz, Ixy, Ixz, Iyz] of a symmetric matrix."""
    return np.stack([inertia[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))], axis=-1)
