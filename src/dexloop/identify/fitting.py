"""How a fit goes: over the whole prior with the beginning of each push, then onwards with more and more of it.

A push that is simulated whole has many minima: a mass that is wrong by a tenth, with a friction to match, lets the
object come to rest in the right place by another way. Its first few centimetres have no such choice. So only they are
fitted at first, and what was found there leads into the right one of the minima of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.problem import Problem
from dexloop.identify.solver import Estimate, Solver

Array = np.ndarray
Progress = Callable[[str, float], None]

EXPLAINED = 2.0
"""What misfit of the object's motion is none: errors of twice what its pose is measured to."""
_GROWTH = (0.35, 0.6, 1.0)
"""How much of each push is fitted to, one after the other."""
_WORSE = 1.5
"""By what factor a misfit grows where the model loses the motion."""
_STEPS = 10
"""Of a descent, while recordings grow."""
_LOOKS, _WORTH = 4, 1.0
"""How often to look about for something better at most, and by how much the last must have helped: a log likelihood."""
_SEARCHED = 3
"""Recordings that the search looks at."""
_ATTEMPTS, _THOROUGH = 2, 3
"""How often to begin again where the motion is not explained, and over how many times as many values."""
_ASTRAY, UNEXPLAINED = 10.0, 25.0
"""Errors of so many times what the object's pose is measured to may be those of a fit that has lost its way: it begins
again; and where they are that of so many, it tells hardly anything."""


def fitted(
    solver: Solver, cfg: IdentifyCfg, tell: Progress, *, finer: Problem | None = None
) -> tuple[Solver, Estimate, list[str]]:
    """Finds the most probable values of all unknowns.

    What comes late in a recording may depend on its beginning beyond reason (a bottle that rolls), or on what no model
    has. Where a longer piece of a recording cannot be explained, though a shorter one was, the shorter one is kept.

    Args:
        solver: With the whole of all recordings.
        cfg: How carefully.
        tell: Told how far it is.
        finer: The same problem with smaller steps, for all but the search: with steps of 2 ms what slides over a rough
            table is found up to a twentieth too heavy, and what is pushed by a rough finger, too, up to a third.

    Returns:
        The solver with the recordings as long as they were used, what was found, and notes on what was left out.
    """
    attempts: list[_Grown] = []
    while len(attempts) < _ATTEMPTS:
        attempts.append(_grown(solver, cfg, len(attempts), tell, finer))
        if not attempts[-1].lost:
            break
    best = min(attempts, key=lambda a: (a.lost, -sum(a.length.values()), a.found.score))
    notes = [
        f"of {name} only the first {100 * share:.0f} % are used: what comes later is not explained by the model"
        for name, share in best.length.items()
        if share < 1.0
    ]
    solver = best.found.solver
    return solver, solver.descend(best.found.estimate), notes


@dataclass(frozen=True, eq=False)
class _Grown:
    """What was found from some starts, with as much of the recordings as it explains."""

    found: _Settled
    length: Mapping[str, float]
    """Share of each recording that was used."""
    mostly_lost: bool
    """Whether most recordings were lost on the way: then it was the wrong way, more likely than the model."""

    @property
    def lost(self) -> bool:
        """Whether to begin again."""
        return self.mostly_lost or max(self.found.misfits.values(), default=0.0) > _ASTRAY


def _grown(solver: Solver, cfg: IdentifyCfg, attempt: int, tell: Progress, finer: Problem | None) -> _Grown:
    growing = {s.recording for s in solver.problem.segments if not s.begins_in_motion}
    growth = _GROWTH if growing else (1.0,)
    length = dict.fromkeys((s.recording for s in solver.problem.segments), growth[0])
    starts = []
    for k in range(cfg.descents):
        tell("looking over the prior", k / cfg.descents)
        short = _of_length(solver, length)
        starts.append(_settled(short, short.start(_searched(short, cfg, attempt * cfg.descents + k))))
    best = min(starts, key=lambda found: found.score)
    tell("looking over the prior", 1.0)
    if finer is not None:
        solver = solver.on(finer)
        best = _settled(_of_length(solver, length), best.estimate)
    every = len(growing)
    for k, share in enumerate(growth[1:]):
        tell("fitting", k / len(growth))
        longer = length | dict.fromkeys(growing, share)
        found = _settled(_of_length(solver, longer), best.estimate, look=False)
        before = best.misfits
        lost = {name for name in growing & before.keys() if found.misfits[name] > max(EXPLAINED, _WORSE * before[name])}
        if lost:
            growing -= lost
            longer |= {name: length[name] for name in lost}
            found = _settled(_of_length(solver, longer), best.estimate, look=False)
        length, best = longer, found
    tell("fitting", 1.0 - 1.0 / len(growth))
    if finer is not None:
        best = _settled(best.solver, best.estimate)
    return _Grown(best, length, 2 * len(growing) < every)


def humbled(solver: Solver, estimate: Estimate) -> Estimate:
    """Returns an estimate that claims little beyond the prior if the object's motion is not explained by it."""
    worst = max(solver.misfits(estimate).values(), default=0.0)
    if worst <= UNEXPLAINED:
        return estimate
    told = estimate.information - solver.prior_precision
    return replace(estimate, information=solver.prior_precision + told * (UNEXPLAINED / worst) ** 2)


def doubts(solver: Solver, estimate: Estimate) -> list[str]:
    """Says why a fit should not be believed as it stands."""
    out = [] if estimate.converged else ["the fit did not settle"]
    worst = max(solver.misfits(estimate).values(), default=0.0)
    if worst > EXPLAINED:
        out.append(f"the object's motion is explained only to {worst:.0f} times what it was measured to")
    return out


def _of_length(solver: Solver, length: Mapping[str, float]) -> Solver:
    problem = solver.problem
    return solver.on(problem.of([s.beginning(length[s.recording]) for s in problem.segments]))


def _searched(solver: Solver, cfg: IdentifyCfg, turn: int) -> Float[Array, " p"]:
    """Looks over the prior with the shortest recordings, which is enough to come near."""
    problem = solver.problem
    steps: dict[str, int] = {}
    for s in problem.segments:
        steps[s.recording] = steps.get(s.recording, 0) + s.steps
    chosen = sorted(steps, key=lambda name: steps[name])[:_SEARCHED]
    quick = solver.on(problem.of([s for s in problem.segments if s.recording in chosen]))
    quick.pooled = True
    again = turn >= cfg.descents
    samples = max(cfg.samples // cfg.descents, 1) * (_THOROUGH if again else 1)
    return quick.search(samples, 1, seed=cfg.seed + turn, everything=again).theta


@dataclass(frozen=True, eq=False)
class _Settled:
    """What was found with recordings of some length."""

    solver: Solver
    estimate: Estimate
    score: float
    """Less is better, of recordings of the same length."""
    misfits: Mapping[str, float]


def _settled(solver: Solver, near: Estimate, *, look: bool = True) -> _Settled:
    """Goes down from a place; looks about there, and goes down again as long as that shows something better."""
    solver.problem.refresh(near.theta)
    solver.pooled = True
    best = solver.descend(replace(solver.start(near.theta), local=near.local), iterations=_STEPS)
    score = solver.score(best)
    for _ in range(_LOOKS if look else 0):
        other = solver.look_about(best)
        if other is best:
            break
        other = solver.descend(other, iterations=_STEPS)
        after = solver.score(other)
        gain = score - after
        if gain > 0:
            best, score = other, after
        if gain < _WORTH:
            break
    solver.pooled = False
    return _Settled(solver, best, score, solver.misfits(best))
