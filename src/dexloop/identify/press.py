"""How soft a fingertip is, from presses onto the bare table: before any push is looked at."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from dexloop.core.capture import Recording
from dexloop.core.errors import InputError
from dexloop.identify.calibrate import EFFORT_SD, LATENCY_SD_S, Calibration
from dexloop.identify.problem import Problem
from dexloop.identify.segments import TOUCHED_N, Segment, cut
from dexloop.identify.solver import Estimate, Solver
from dexloop.identify.streams import match
from dexloop.identify.unknowns import Unknown, clock_unknown, gain_unknown, height_unknown, model_unknown, robot_names
from dexloop.identify.verdict import LEARNT
from dexloop.sim.parameters import available
from dexloop.sim.roles import is_free
from dexloop.sim.scene import Scene

SOFTNESS = "fingertip.stiffness"
_OTHERS = ("fingertip.friction", "fingertip.damping")
"""What else of a fingertip shows while it is pressed. On the table it is no guide to what it is on the object."""
_STARTS = np.linspace(-2.0, 2.0, 9)
"""Where softness is looked for, about the model's own [logarithm]."""
_STEPS = 8
"""Of a descent to the table's height alone."""
_AWAY_M = 1000.0
"""So far up an object does not come down while the table is pressed: it need not be simulated lying there [m]."""
EXPLAINED = 2.0
"""What misfit of the touch is none: errors of twice what it is measured to."""


SET_IN = 0.5
"""A press must be as hard as this part of the force at which its contact has set in fully. Contacts set in softly
within their first tenths of a millimetre; until then another softness looks like another height of the table."""


@dataclass(frozen=True, eq=False)
class Pressed:
    """What presses told."""

    unknowns: tuple[Unknown, ...]
    """The fingertips' stiffness, its prior what the presses told; nothing if they told little."""
    before: Unknown
    """The same as it was before them."""
    notes: tuple[str, ...]
    solver: Solver
    estimate: Estimate


def is_press(recording: Recording) -> bool:
    """Whether a fingertip was pressed onto the table."""
    return recording.plan.get("plan") == "Press"


def pressed(
    scene: Scene,
    recordings: Sequence[Recording],
    calibration: Calibration | None,
    *,
    finer: Scene | None = None,
    held: Set[str] = frozenset(),
    tell: Callable[[float], None] | None = None,
) -> Pressed:
    """Finds how soft fingertips are.

    Where the table is counts as unknown too. A soft contact gives way by tenths of a millimetre, and no robot knows a
    height so well: softness is how force grows with depth, not where it begins.

    Args:
        scene: The model.
        recordings: Of presses.
        calibration: What is known of the robot; without, it is found from the presses too, as far as they tell it.
        finer: The same with smaller steps, to end with.
        held: Joints that the model holds fast.
        tell: Told how far it is.

    Raises:
        InputError: A recording has no touch, or nothing was touched in it; or the model has no fingertips.
    """
    if SOFTNESS not in available(scene.model, scene.roles):
        raise InputError(f"the model has no fingertips that {_list(recordings)} could tell of: leave it out")
    tell = tell or (lambda _: None)
    solver = _solver(scene, recordings, calibration, held)
    best = _over_softness(solver)
    tell(0.2)
    best = solver.descend(best, tell=lambda done: tell(0.2 + 0.3 * done))
    if finer is not None:
        solver = _solver(finer, recordings, calibration, held)
        best = solver.descend(solver.start(best.theta), tell=lambda done: tell(0.5 + 0.4 * done))
    estimate = solver.finish(best)
    misfit, notes = _misfit(solver, estimate), []
    before = solver.problem.unknowns[0]
    # Of what is not explained nobody knows how it would have changed the result: by as much as it is too large.
    wider = max(misfit / EXPLAINED, 1.0)
    if not best.converged:
        notes.append("the fit to the press did not settle")
    if wider > 1.0:
        notes.append(f"what touch felt in the press is explained only to {misfit:.0f} times what it was measured to")
    told = replace(before, mean=estimate.theta[:1], sd=wider * np.sqrt(estimate.covariance[:1, 0]))
    felt, needed = _felt_n(solver.problem), SET_IN * _full_n(scene, float(told.value(told.mean)[0]))
    learnt = felt >= needed and bool(told.sd[0] < LEARNT * before.sd[0])
    if learnt:
        notes.append(f"{SOFTNESS} was told by {_list(recordings)}: {told.describe_prior()}")
    else:
        hint = f": it felt {felt:.1f} N, press with {needed:.0f} N or more" if felt < needed else ""
        notes.append(f"{_list(recordings)} told little of {SOFTNESS} and is not used{hint}")
    tell(1.0)
    return Pressed((told,) if learnt else (), before, tuple(notes), solver, estimate)


def _solver(scene: Scene, recordings: Sequence[Recording], calibration: Calibration | None, held: Set[str]) -> Solver:
    # The table's height is unknown, and MuJoCo's midphase would look for contacts where it was compiled.
    model = copy.copy(scene.model)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    scene = Scene(scene.spec, model, scene.roles)
    unknowns = {name: model_unknown(scene, name) for name in (SOFTNESS, *_OTHERS)}
    unknowns["table.height"] = height_unknown(scene)
    if calibration is None:
        # Servos give way by more than fingertips do: softness is no better known than they are.
        unknowns |= {name: model_unknown(scene, name) for name in robot_names(scene)}
    segments: list[Segment] = []
    for r in recordings:
        matched = match(scene, r, held=held)
        touch = [m for m in matched.measured if m.kind == "touch"]
        if not touch:
            raise InputError(f"recording {r.name!r} has no touch: a press tells nothing without; leave it out")
        if max(float(np.percentile(m.value, 99, axis=0).max()) for m in touch) < TOUCHED_N:
            raise InputError(
                f"no fingertip touches the table in recording {r.name!r}: press harder, check how high the table is, "
                f"or leave the recording out"
            )
        measured = tuple(m for m in matched.measured if not m.is_pose)
        for m in measured:
            if m.clock:
                same = m.clock == f"clock.{m.stream}"
                clock = clock_unknown(m.clock.removeprefix("clock."), same=same)
                unknowns[m.clock] = replace(clock, sd=np.array([LATENCY_SD_S])) if same else clock
            if m.kind == "joint_effort":
                unknowns[f"gain.{m.stream}"] = gain_unknown(m.stream, EFFORT_SD)
        segments += [_without_objects(scene, s) for s in cut(scene, replace(matched, measured=measured), window_s=1.0)]
    known = () if calibration is None else calibration.unknowns
    for u in known:
        unknowns.pop(u.name, None)
    problem = Problem(scene, [*unknowns.values(), *known], segments)
    precision, fast = np.diag(problem.prior_sd**-2), np.zeros(problem.size, dtype=bool)
    if calibration is not None:
        n = len(calibration.mean)  # they come last
        precision[-n:, -n:] = np.linalg.inv(calibration.covariance)
        fast[-n:] = problem.simulated[-n:]
    return Solver(problem, prior=(problem.prior_mean, precision), held=fast)


def _without_objects(scene: Scene, segment: Segment) -> Segment:
    model, qpos = scene.model, segment.qpos.copy()
    for body in range(1, model.nbody):
        if is_free(model, body):
            qpos[int(model.jnt_qposadr[model.body_jntadr[body]]) + 2] += _AWAY_M
    return replace(segment, qpos=qpos)


def _over_softness(solver: Solver) -> Estimate:
    """Tries softnesses over the prior, once it is known where the table is: from one that is far off, friction and
    height would make up for it."""
    whole, at = solver.held, solver.problem.where("table.height")
    solver.held = np.ones(len(whole), dtype=bool)
    solver.held[at] = False
    start = solver.start(solver.descend(solver.start(), iterations=_STEPS).theta)
    solver.held = whole
    thetas = np.tile(start.theta, (len(_STARTS), 1))
    thetas[:, 0] = np.clip(thetas[:, 0] + _STARTS, solver.lower[0], solver.upper[0])
    return replace(start, theta=thetas[int(np.argmin(solver.costs(thetas, start)))])


def _felt_n(problem: Problem) -> float:
    """Returns the highest force that a fingertip felt in the gentlest of the recordings [N]."""
    return min(max(float(m.value.max()) for m in s.measured if m.kind == "touch") for s in problem.segments)


def _full_n(scene: Scene, stiffness: float) -> float:
    """Returns the force at which a fingertip's contact has set in fully [N].

    In MuJoCo a contact of stiffness k at rest pushes with k d² x / ((1 - d) A dmax²) at a depth x, where A is by what a
    unit of force accelerates it, and the impedance d grows from its first value to dmax over the width of its onset.
    """
    model, geoms = scene.model, list(scene.roles["fingertip"].geoms)
    top, width = model.geom_solimp[geoms, 1], model.geom_solimp[geoms, 2]
    light = model.body_invweight0[model.geom_bodyid[geoms], 0]
    # Fingers that are held fast weigh as much as all that they are held to; the one that presses is the lightest.
    return float(np.min(stiffness * width / ((1.0 - top) * light)))


def _misfit(solver: Solver, estimate: Estimate) -> float:
    """Returns how large errors of the touch are over the least that they can be, of the finger that felt most."""
    problem, floor = solver.problem, solver.problem.noise_floor()
    touch = {m.stream for s in problem.segments for m in s.measured if m.kind == "touch"}
    found = []
    for k, (layout, errors) in enumerate(zip(problem.layout, solver.errors(estimate), strict=True)):
        own = [int(c) for c in np.unique(layout.channel) if problem.channels[c].stream in touch]
        most = max(own, key=lambda c, k=k: float(np.max(problem.measured(k, c, None))))
        error = errors[(layout.channel == most) & layout.keep]
        found.append(float(np.sqrt(np.mean(error**2)) / floor[most]))
    return max(found)


def _list(recordings: Sequence[Recording]) -> str:
    return ", ".join(r.name for r in recordings)
