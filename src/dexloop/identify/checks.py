"""Checks of a fit: does each parameter matter, is the Gaussian a fair summary, is the unseen predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import NoEffect
from dexloop.identify.problem import Problem
from dexloop.identify.segments import Segment
from dexloop.identify.solver import Estimate, Solver
from dexloop.identify.unknowns import Unknown
from dexloop.sim.scene import Scene

Array = np.ndarray

_NOTHING = 1e-9
"""A change below this, relative to what a field varies by, is none."""
FAIR = 0.3
"""Below this share of effective draws the Gaussian is a bad summary."""
_PHYSICAL = ("qpos", "qvel", "qfrc_actuator", "qfrc_constraint", "sensordata")


def effects(
    scene: Scene,
    unknowns: Sequence[Unknown],
    segments: Sequence[Segment],
    asked: Sequence[str],
    *,
    strict: bool,
    notes: list[str],
) -> tuple[tuple[str, ...], list[Unknown]]:
    """Tries whether each parameter that was asked for changes anything at all in the simulated recordings.

    One that changes forces but nothing that was measured stays, and will be found not identifiable; one that changes
    nothing whatever is an error, or left out with a note where it was not asked for by name.

    Raises:
        NoEffect: A parameter that was asked for by name changes nothing.
    """
    trial = Problem(scene, unknowns, segments)
    trial.record = tuple(f for f in _PHYSICAL if f != "sensordata" or scene.model.nsensor)
    base = trial.start_theta()
    rows, owner = [base], []
    for u in unknowns:
        if u.name in asked and u.simulated:
            for k in range(u.size):
                theta = base.copy()
                at = trial.where(u.name).start + k
                theta[at] += (
                    4.0 * trial.first_step[at] * (-1.0 if base[at] > 0.5 * sum(b[at] for b in trial.bounds) else 1.0)
                )
                rows.append(theta)
                owner.append(u.name)
    thetas = np.stack(rows)
    moved = dict.fromkeys(owner, False)
    points = [(k, thetas, np.zeros((len(thetas), len(s.local_sd)))) for k, s in enumerate(segments[:3])]
    for signals in trial.simulate(points):
        for name in trial.record:
            value = signals[name].reshape(len(thetas), -1)
            scale = np.nanmax(np.abs(value[0]), initial=1e-12)
            change = np.nanmax(np.abs(value[1:] - value[0]), axis=1, initial=0.0) / scale
            for who, c in zip(owner, change, strict=True):
                moved[who] |= bool(c > _NOTHING)
    silent = [name for name, yes in moved.items() if not yes]
    if silent and (strict or len(silent) == len(moved)):
        raise NoEffect(
            f"{', '.join(silent)} changes nothing in these recordings: leave it out, or record a motion in which it "
            f"matters; a contact takes friction and softness from the geom of higher priority"
        )
    for name in silent:
        notes.append(f"{name} changes nothing in these recordings: left out")
    return tuple(a for a in asked if a not in silent), [u for u in unknowns if u.name not in silent]


def heldout(solver: Solver, estimate: Estimate, start: Estimate, unseen: Problem | None) -> dict[str, Any]:
    """Compares how well recordings are predicted that were not fitted to, with the start values and with the fit.

    Args:
        solver: Of the fit.
        estimate: The fit.
        start: The values before fitting.
        unseen: Recordings that were kept aside. If there are none, the last of several is left out of the fit again, by
            one step of it.

    Returns:
        Root mean square errors of each stream, before and after; nothing if there is but one recording.
    """
    problem = solver.problem
    fitted, ahead = estimate.theta, unseen
    if ahead is None:
        recordings = list(dict.fromkeys(s.recording for s in problem.segments))
        if len(recordings) < 2:
            return {}
        last = recordings[-1]
        fitted = solver.without(estimate, {last})
        ahead = problem.of([s for s in problem.segments if s.recording == last])
    left_out = list(dict.fromkeys(s.recording for s in ahead.segments))
    out: dict[str, Any] = {"recordings": left_out}
    for name, theta in (("before", start.theta), ("after", fitted)):
        # Clocks are no property of the twin: both get the fitted ones.
        shared = np.array([not s for s in ahead.simulated])
        theta = np.where(shared, fitted, theta)
        ahead.refresh(theta)
        pinned = Solver(ahead, prior=(theta, np.diag(np.full(len(theta), 1e12))), held=np.ones(len(theta), dtype=bool))
        settled = pinned.descend(pinned.start(theta), iterations=4)
        out[name] = _by_stream(ahead, pinned.errors(settled))
    better = [k for k in out["after"] if out["after"][k] < out["before"][k]]
    pose = [k for k in out["after"] if k.endswith(("[m]", "[rad]"))]
    out["better"] = bool(pose) and all(k in better for k in pose if out["before"][k] > 2e-4)
    return out


def _by_stream(problem: Problem, errors: Sequence[Float[Array, " r"]]) -> dict[str, float]:
    total: dict[str, list[Array]] = {}
    for layout, error in zip(problem.layout, errors, strict=True):
        for k in np.unique(layout.channel):
            c = problem.channels[k]
            kind = (
                ""
                if c.channel not in ("x", "y", "z", "rx", "ry", "rz")
                else " [rad]"
                if c.channel[0] == "r"
                else " [m]"
            )
            total.setdefault(c.stream + kind, []).append(error[(layout.channel == k) & layout.keep])
    return {k: float(np.sqrt(np.mean(np.concatenate(v) ** 2))) for k, v in total.items() if sum(map(len, v))}


def sampled(
    solver: Solver, estimate: Estimate, *, seed: int, n: int = 24
) -> tuple[Float[Array, "s p"] | None, dict[str, Any]]:
    """Draws from the Gaussian, simulates each draw, and sees how its real cost differs from the Gaussian's.

    Returns:
        Draws weighted by that (resampled) if the Gaussian is a bad summary, otherwise None; and the figures.
    """
    rng = np.random.default_rng(seed)
    covariance = estimate.covariance
    root = np.linalg.cholesky(covariance + 1e-15 * np.eye(len(covariance)))
    delta = rng.standard_normal((n, len(root))) @ root.T
    thetas = np.clip(estimate.theta + delta, solver.lower, solver.upper)
    delta = thetas - estimate.theta
    costs, expected = solver.compare(estimate, thetas)
    # The data are worth as much as the covariance says: errors are correlated, so costs count by so much less.
    quadratic = np.einsum("ni,ij,nj->n", delta, estimate.information, delta)
    worth = float(np.mean(quadratic) / max(2.0 * np.mean(expected), 1e-12))
    log = -worth * (costs - expected)
    log = np.where(np.isfinite(log), log - np.nanmax(np.where(np.isfinite(log), log, -np.inf)), -np.inf)
    share = _effective(log)
    fair = share >= FAIR
    figures = {"draws": n, "effective_share": share, "gaussian_is_fair": fair}
    if fair:
        return None, figures
    # As far towards the real cost as the draws can carry it: weights of one draw alone would say nothing.
    temper = next((b for b in np.geomspace(1.0, 1e-3, 40) if _effective(b * log) >= FAIR), 1e-3)
    weight = np.exp(temper * log)
    index = rng.choice(n, size=512, p=weight / weight.sum())
    # Few draws are smoothed with a kernel of the Gaussian's own shape (Silverman's width), or intervals would be steps.
    smooth = rng.standard_normal((512, len(root))) @ root.T * n ** (-1.0 / (len(root) + 4))
    return np.clip(thetas[index] + smooth, solver.lower, solver.upper), figures


def _effective(log: Float[Array, " n"]) -> float:
    """Returns the share of draws that count, given the logarithms of their weights."""
    weight = np.exp(log)
    return float(weight.sum() ** 2 / (weight**2).sum() / len(weight))
