"""How much a motion tells of mass beside friction: nothing, if it is slow.

Pushing an object over a table takes F = m a + µ m g. Friction is no constant: it is known to a few percent at best,
from place to place and from one speed to the next. So what inertia tells of the mass is a small difference of two
forces where accelerations are small beside µ g, however well a model with one constant friction may seem to explain it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.identify.problem import Problem
from dexloop.identify.solver import MODEL_SD, Estimate

Array = np.ndarray

MASS, FRICTION = "object.mass", "table.friction"
GRAVITY_M_S2 = 9.81
_LASTING_S = 0.05
"""How long an acceleration lasts that counts [s]: contacts knock for less."""
_LIFTED_M, _TILTED = 5e-3, 0.1
"""What leaves the table by so much [m], or tilts by so much [rad], tells of its weight itself."""


def with_friction_law(problem: Problem, estimate: Estimate) -> Estimate:
    """Returns an estimate as unsure of mass against friction as a friction that is not constant makes it.

    Their product stays as well known as it was. Where nothing slides, or one of them was known before, nothing changes.
    """
    names = {u.name for u in problem.unknowns}
    if not {MASS, FRICTION} <= names:
        return estimate
    a = _largest_acceleration(problem, estimate)
    mass, friction = problem.where(MASS).start, problem.where(FRICTION).start
    mu = float(problem.value(FRICTION, estimate.theta)[0])
    way = np.zeros(problem.size)
    way[mass], way[friction] = 1.0, -1.0
    prior = problem.prior_sd[[mass, friction]]
    sd = min(MODEL_SD * mu * GRAVITY_M_S2 / max(a, 1e-9), float(prior.min()))
    information = np.linalg.inv(estimate.covariance + sd**2 * np.outer(way, way))
    return replace(estimate, information=0.5 * (information + information.T))


def _largest_acceleration(problem: Problem, estimate: Estimate) -> float:
    """Returns the largest horizontal acceleration of an object that lasts [m/s²]; infinite if one was lifted."""
    points = [(s, estimate.theta[None], x[None]) for s, x in enumerate(estimate.local)]
    largest = 0.0
    for segment, signals in zip(problem.segments, problem.simulate(points), strict=True):
        span = max(round(_LASTING_S / segment.timestep_s), 1)
        for start in segment.starts:
            pose: Float[Array, "t 7"] = signals["qpos"][0][:, start.pose : start.pose + 7]
            up = se3.quat_rotate(se3.quat_inverse(pose[:, 3:]), np.broadcast_to([0.0, 0.0, 1.0], pose[:, :3].shape))
            tilt = float(np.linalg.norm(up - up[0], axis=1).max())
            if start.moving or np.ptp(pose[:, 2]) > _LIFTED_M or tilt > _TILTED:
                return np.inf
            moved = (pose[span:, :2] - pose[:-span, :2]) / _LASTING_S
            change = np.linalg.norm(moved[span:] - moved[:-span], axis=1) / _LASTING_S
            largest = max(largest, float(change.max(initial=0.0)))
    return largest
