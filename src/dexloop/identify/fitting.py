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
_GROWTH = (0.35, 0.5, 0.7, 1.0)
"""How much of each push is fitted to, one after the other."""
_WORSE = 1.5
"""By what factor a misfit grows where the model loses the motion."""
_STEPS = 10
"""Of a descent, while recordings grow."""
_SEARCHED = 3
"""Recordings that the search looks at."""


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
        finer: The same problem with smaller steps, to end with: with steps of 2 ms what slides over a rough table is
            found up to a twentieth too heavy.

    Returns:
        The solver with the recordings as long as they were used, what was found, and notes on what was left out.
    """
    growing = {s.recording for s in solver.problem.segments if not s.begins_in_motion}
    growth = _GROWTH if growing else (1.0,)
    length = dict.fromkeys((s.recording for s in solver.problem.segments), growth[0])
    starts = []
    for k in range(cfg.descents):
        tell("looking over the prior", k / cfg.descents)
        short = _of_length(solver, length)
        starts.append(_settled(short, short.start(_searched(short, cfg, k))))
    best = min(starts, key=lambda found: found.score)
    tell("looking over the prior", 1.0)
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
        best = _settled(_of_length(solver.on(finer), length), best.estimate)
    notes = [
        f"of {name} only the first {100 * share:.0f} % are used: what comes later is not explained by the model"
        for name, share in length.items()
        if share < 1.0
    ]
    return best.solver, best.solver.descend(best.estimate), notes


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
    return quick.search(max(cfg.samples // cfg.descents, 1), 1, seed=cfg.seed + turn).theta


@dataclass(frozen=True, eq=False)
class _Settled:
    """What was found with recordings of some length."""

    solver: Solver
    estimate: Estimate
    score: float
    """Less is better, of recordings of the same length."""
    misfits: Mapping[str, float]


def _settled(solver: Solver, near: Estimate, *, look: bool = True) -> _Settled:
    """Goes down from a place; looks about there, and goes down again if that showed something better."""
    solver.problem.refresh(near.theta)
    solver.pooled = True
    found = [solver.descend(replace(solver.start(near.theta), local=near.local), iterations=_STEPS)]
    other = solver.look_about(found[0]) if look else found[0]
    if other is not found[0]:
        found.append(solver.descend(other, iterations=_STEPS))
    score, best = min(((solver.score(e), e) for e in found), key=lambda f: f[0])
    solver.pooled = False
    return _Settled(solver, best, score, solver.misfits(best))
