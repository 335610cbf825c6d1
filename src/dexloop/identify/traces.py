"""Measured against simulated, before and after, with bands: what the report draws."""

from __future__ import annotations

import numpy as np

from dexloop.identify.posterior import Posterior
from dexloop.identify.problem import Problem
from dexloop.identify.solver import Estimate, Solver

Array = np.ndarray
_CHANNELS = 8
"""At most, a segment."""


def traces(
    solver: Solver, estimate: Estimate, start: Estimate, posterior: Posterior, *, draws: int = 12
) -> dict[str, Array]:
    """Returns curves of the channels that moved most, by "SEGMENT|STREAM|CHANNEL|WHAT".

    WHAT is t [s on the robot's clock], measured, before, after, low and high (95 % of what the posterior predicts).
    """
    problem = solver.problem
    thetas = np.concatenate(
        [start.theta[None], estimate.theta[None], posterior.sample(draws, np.random.default_rng(1))]
    )
    thetas[0] = np.where(problem.simulated, start.theta, estimate.theta)  # clocks are known by now
    out: dict[str, Array] = {}
    points = [(s, thetas, np.repeat(x[None], len(thetas), axis=0)) for s, x in enumerate(estimate.local)]
    signals = problem.simulate(points[:12])
    for s in range(len(signals)):
        errors = problem.errors(s, signals[s], thetas)
        for k in _shown(problem, s):
            channel = problem.channels[k]
            own = (problem.layout[s].channel == k) & problem.layout[s].keep
            t, error = problem.layout[s].t[own], errors[:, own]
            measured = problem.measured(s, k, estimate.theta)[problem.layout[s].keep[problem.layout[s].channel == k]]
            name = f"{problem.segments[s].name}|{channel.stream}|{channel.channel}|"
            predicted = measured - error
            low, high = np.nanpercentile(predicted[2:], [2.5, 97.5], axis=0)
            curves = {
                "t": t,
                "measured": measured,
                "before": predicted[0],
                "after": predicted[1],
                "low": low,
                "high": high,
            }
            out |= {name + what: curve for what, curve in curves.items()}
    return out


def _shown(problem: Problem, s: int) -> list[int]:
    """Returns the channels that say most: the object's pose, touch, and the joints that work hardest."""
    layout = problem.layout[s]
    rank = {}
    for k in np.unique(layout.channel[layout.keep]):
        c = problem.channels[k]
        value = problem.measured(s, int(k), None)
        rank[int(k)] = {"pose": 1e6, "touch": 1e3, "joint_effort": 1.0}.get(problem.kind(s, c.stream), 1e-6) * (
            float(np.ptp(value)) / max(float(problem.noise_floor()[k]), 1e-12)
        )
    order = sorted(rank, key=lambda k: -rank[k])
    return order[:_CHANNELS]
