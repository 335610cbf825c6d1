"""The robot first: its servos, joints and effort sensors, from its own free motion with link masses known."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.capture import Recording
from dexloop.identify.problem import Problem
from dexloop.identify.segments import cut
from dexloop.identify.solver import Estimate, Solver
from dexloop.identify.streams import Matched, match
from dexloop.identify.unknowns import DELAY, Unknown, clock_unknown, gain_unknown, model_unknown, robot_names
from dexloop.sim.scene import Scene

Array = np.ndarray
EFFORT_SD = 0.05
"""By how much an effort sensor's scale may be wrong before anything is known."""
LATENCY_SD_S = 2e-3
"""By how much an effort sensor on the robot's own clock may be late [s]."""
_DELAYS_S = np.arange(0.001, 0.05, 0.004)
"""Where the delay is looked for [s]."""
_HOPS_S = (-0.004, -0.002, 0.002, 0.004)
"""Commands are held for a few milliseconds, so the delay has a minimum on either side of each period."""
_ENOUGH = 0.3
"""Share of each piece of the free motion that the delay is looked for in."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """What is known of the robot: unknowns whose priors are what its free motion told."""

    unknowns: tuple[Unknown, ...]
    mean: Float[Array, " p"]
    covariance: Float[Array, "p p"]
    problem: Problem
    estimate: Estimate

    @property
    def labels(self) -> tuple[str, ...]:
        """One for each component."""
        return self.problem.labels


def is_free_motion(recording: Recording) -> bool:
    """Whether the robot moved alone."""
    if recording.plan:
        return recording.plan.get("plan") == "FreeMotion"
    kinds = {info.kind for info in recording.streams.values()}
    return "joint_command" in kinds and not kinds & {"pose", "touch", "wrench"} and not recording.videos


def calibrate(
    scene: Scene,
    recordings: Sequence[Recording],
    *,
    finer: Scene | None = None,
    samples: int = 32,
    tell: Callable[[float], None] | None = None,
) -> Calibration:
    """Finds what is unknown of a robot from recordings in which it touches nothing.

    Args:
        scene: The model.
        recordings: Of the robot alone.
        finer: The same with smaller steps, to end with: dry friction in joints sets in late by about half a step, which
            looks like delay and damping.
        samples: Values tried over the whole prior where there is no delay to look for.
        tell: Told how far it is.
    """
    solver = Solver(_problem(scene, recordings))
    if DELAY in {u.name for u in solver.problem.unknowns}:
        best = _over_delays(solver, tell or (lambda _: None))
    else:
        best = solver.search(samples, 2, tell=tell)
    if finer is not None:
        solver = Solver(_problem(finer, recordings))
        best = solver.start(best.theta)
    problem = solver.problem
    estimate = solver.finish(solver.descend(best))
    covariance = estimate.covariance
    sd = np.sqrt(np.diag(covariance))
    told = tuple(
        replace(u, mean=estimate.theta[problem.where(u.name)], sd=sd[problem.where(u.name)]) for u in problem.unknowns
    )
    if tell is not None:
        tell(1.0)
    return Calibration(told, estimate.theta, covariance, problem, estimate)


def _problem(scene: Scene, recordings: Sequence[Recording]) -> Problem:
    matched = [_robot_only(match(scene, r)) for r in recordings]
    unknowns = [model_unknown(scene, name) for name in robot_names(scene)]
    streams = {m.stream for x in matched for m in x.measured if m.kind == "joint_effort"}
    unknowns += [gain_unknown(s, EFFORT_SD) for s in sorted(streams)]
    unknowns += [_latency(s) for s in sorted(streams)]
    # Nothing touches anything, so contacts need not be computed: twice as fast.
    model = copy.copy(scene.model)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    segments = [s for x in matched for s in cut(scene, x, window_s=1.0)]
    return Problem(Scene(scene.spec, model, scene.roles), unknowns, segments)


def _latency(stream: str) -> Unknown:
    return replace(clock_unknown(stream, same=True), sd=np.array([LATENCY_SD_S]))


def _over_delays(solver: Solver, tell: Callable[[float], None]) -> Estimate:
    """Goes down from one delay after another: a servo that lags by its damping looks much like one that is late.

    The beginning of each piece is enough to say which delay is about right.
    """
    problem, whole = solver.problem, solver
    solver = whole.on(problem.of([s.beginning(_ENOUGH) for s in problem.segments]))
    at = problem.where(DELAY).start
    start = solver.start()
    found: list[tuple[float, Estimate]] = []

    def go(estimate: Estimate, delay_s: float, iterations: int) -> None:
        theta = estimate.theta.copy()
        theta[at] = np.clip(delay_s, solver.lower[at], solver.upper[at])
        other = solver.descend(replace(estimate, theta=theta), iterations=iterations)
        found.append((solver.score(other), other))

    for k, delay_s in enumerate(_DELAYS_S):
        go(start, float(delay_s), 3)
        tell(0.6 * (k + 1) / len(_DELAYS_S))
    best = min(found, key=lambda f: f[0])[1]
    for hop in _HOPS_S:
        go(best, float(best.theta[at]) + hop, 6)
    tell(0.8)
    best = whole.descend(whole.start(min(found, key=lambda f: f[0])[1].theta), iterations=6)
    tell(0.9)
    return best


def _robot_only(matched: Matched) -> Matched:
    kinds = ("joint_position", "joint_velocity", "joint_effort")
    return replace(matched, measured=tuple(m for m in matched.measured if m.kind in kinds))
