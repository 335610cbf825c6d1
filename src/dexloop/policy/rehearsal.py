"""A policy at work in many simulated worlds at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError
from dexloop.policy.acting import Acting
from dexloop.policy.bundle import Brain
from dexloop.policy.fields import PHASES
from dexloop.policy.observation import encode_loads
from dexloop.policy.start import Start
from dexloop.policy.threads import one_thread
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.handling import Handling
from dexloop.robots.outcome import DIVERGED, LATE, Outcome, outcome
from dexloop.robots.pickup import Load
from dexloop.robots.shake import Shake, shaking
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene

LIFT, HOLD = PHASES.index("lift"), PHASES.index("hold")
LIMIT_S = 8.0
"""A policy that has not lifted the object by then is late [s]."""


@dataclass(frozen=True, eq=False)
class Stage:
    """Where a policy acts: a robot before an object."""

    scene: Scene
    robot: Embodiment
    thing: str
    """The object's name."""
    T_world_base: Float[np.ndarray, "4 4"]
    points: Float[np.ndarray, "128 3"]
    """On the object's surface [m]."""


def rehearse(
    brain: Brain,
    start: Start,
    stage: Stage,
    T_world_object: Float[np.ndarray, "n 4 4"],
    loads: Sequence[Load],
    draws: Draws,
    *,
    shake: Shake = Shake(),  # noqa: B008 - frozen
    pace: float = 1.0,
    note: Callable[[Acting], None] = lambda _acting: None,
    progress: Callable[[float], None] = lambda _done: None,
) -> list[Outcome]:
    """Lets a policy take up an object in n worlds, hold and shake it.

    Args:
        brain: The policy.
        start: Where it begins.
        stage: What it acts on.
        T_world_object: Where each object stands.
        loads: What the policy is told of each.
        draws: How each world really is.
        shake: How each is tried.
        pace: How fast the policy goes, of how fast it was taught to.
        note: Told of each step, after the policy has looked and chosen.
        progress: Told which share is done.

    Raises:
        InputError: Numbers that do not agree, the contract is for another robot, or an object is out of reach.
    """
    with one_thread():
        return _rehearsed(brain, start, stage, T_world_object, loads, draws, shake, pace, note, progress)


def _rehearsed(
    brain: Brain,
    start: Start,
    stage: Stage,
    T_world_object: np.ndarray,
    loads: Sequence[Load],
    draws: Draws,
    shake: Shake,
    pace: float,
    note: Callable[[Acting], None],
    progress: Callable[[float], None],
) -> list[Outcome]:
    n = len(draws)
    if len(T_world_object) != n or len(loads) != n:
        raise InputError(f"{n} worlds need as many poses and loads, not {len(T_world_object)} and {len(loads)}")
    robot = stage.robot
    q = np.stack([start.posture(robot, stage.T_world_base, T) for T in T_world_object])
    rate = pace * brain.contract.rate_hz
    bench = Handling(stage.scene, robot, stage.thing, draws, q=q, T_world_object=T_world_object, rate_hz=rate)
    acting = Acting(
        brain, robot, T_world_base=stage.T_world_base, T_world_object=np.asarray(T_world_object),
        belief=encode_loads(loads), points=stage.points, q=q, t_s=0.0,
    )  # fmt: skip
    felt = bench.step(np.repeat(q[:, None], bench.steps, axis=1))
    aside = np.zeros((n, len(robot.joints), 3))
    limit_s = LIMIT_S / pace
    ticks = round((limit_s + shake.duration_s) / bench.dt)
    rows, phases, up = [felt], [acting.phase], np.full(n, np.inf)
    for k in range(ticks):
        t = k * bench.dt
        acting.step(pace * t, felt.position, felt.touch, felt.T_world_object)
        note(acting)
        for i in np.flatnonzero((acting.phase == HOLD) & ~np.isfinite(up)):
            up[i] = t
            aside[i] = shaking(robot, bench.kinematics, acting.command[i])
        targets = acting.path(bench.fine / bench.dt)
        offset = np.stack(
            [shake.offset(t + bench.fine - u) if np.isfinite(u) else np.zeros((bench.steps, 3)) for u in up]
        )
        felt = bench.step(targets + np.einsum("njx,nsx->nsj", aside, offset))
        rows.append(felt)
        phases.append(acting.phase)
        progress((k + 1) / ticks)
        if t > float(np.max(up)) + shake.duration_s or t > limit_s + shake.duration_s:
            break
    return _judged(rows, np.stack(phases, axis=1), up, bench, loads, shake)


def _judged(
    rows: list, phases: np.ndarray, up: np.ndarray, bench: Handling, loads: Sequence[Load], shake: Shake
) -> list[Outcome]:
    palm, thing, touch = (
        np.stack([getattr(row, name) for row in rows], axis=1) for name in ("T_world_palm", "T_world_object", "touch")
    )
    t = bench.dt * np.arange(len(rows))
    found = []
    for i, load in enumerate(loads):
        # Each is judged by its own end, not by that of the slowest.
        last = len(t) if not np.isfinite(up[i]) else min(round((up[i] + shake.duration_s) / bench.dt) + 1, len(t))
        lift = int(np.argmax(phases[i] >= LIFT)) if (phases[i] >= LIFT).any() else None
        failure = DIVERGED if i in bench.diverged else "" if np.isfinite(up[i]) else LATE
        found.append(
            outcome(t[:last], palm[i, :last], thing[i, :last], touch[i, :last], lift=lift, crush_n=load.crush_n,
                    failure=failure)
        )  # fmt: skip
    return found
