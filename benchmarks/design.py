"""Designed against random motions: how many recordings it takes until the mass is known well enough."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.identify import one_core
from benchmarks.kept import kept
from benchmarks.metric import Metric
from dexloop.capture.plans import FreeMotion, Lift, Plan, Push
from dexloop.capture.record import capture
from dexloop.core.artifacts import Twin
from dexloop.core.capture import Capture
from dexloop.core.errors import HaltError
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.stage import Fit, solve
from dexloop.lab import Lab, LabCfg
from dexloop.lab.known_twin import known_twin
from dexloop.next_motion import candidates, plan_after

LABS = (("meat_can", 200), ("cube", 201), ("spread_jar", 202))
FIRST = (FreeMotion(duration_s=3.0), Push(speed_m_s=0.02, touch_m_s=0.02, distance_m=0.03, release=False))
"""A slow push, after which the mass is not known yet."""
CFG = IdentifyCfg(parameters=("object.mass", "table.friction", "fingertip.friction"))
GOAL = 0.08
"""Half of the 95 % interval of the mass, relative."""
MOST = 4
"""Motions after the first, at most."""
RANDOM = (0, 1, 2)
"""Seeds of the random choices."""


def run() -> list[Metric]:
    jobs = [(name, seed, draw) for draw in (None, *RANDOM) for name, seed in LABS]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"), initializer=one_core) as pool:
        found = [w.result() for w in [pool.submit(kept, recordings, *job) for job in jobs]]
    designed, random = found[: len(LABS)], found[len(LABS) :]
    counts = [float(np.mean([f["motions"] for f in of])) for of in (designed, random)]
    # What was expected after a motion, beside what it then was; after one that was stopped it is what it was before.
    ratios = [b / a for f in designed for a, b in zip(f["foretold"], f["widths"][1:], strict=True)]
    stopped = sum(f["stopped"] for f in found)
    seconds = [s for f in designed for s in f["seconds"]]
    note = f"{len(LABS)} labs, until the mass is within ±{100 * GOAL:.0f} %"
    draws = f"{note}; {len(RANDOM)} draws in each; {stopped} motions of all were stopped by the safety gate"
    return [
        Metric("designed: motions after the first", counts[0], "1", "lower", 0.5, note=note),
        Metric("random: motions after the first", counts[1], "1", "higher", 0.5, note=draws),
        Metric("random over designed", counts[1] / max(counts[0], 1e-9), "1", "higher", 0.5, 1.0),
        Metric("found over foretold interval", float(np.median(ratios)), "1", "lower", 1.0, note="1 is right"),
        Metric("CPU seconds a design", float(np.median(seconds)), "s", "lower", np.inf, None, "12 motions"),
    ]


def recordings(name: str, seed: int, draw: int | None) -> dict[str, Any]:
    """Records and fits until the mass is known.

    Args:
        name: Of the object.
        seed: Of the lab.
        draw: Seed of a random choice of motions; None for designed ones.

    Returns:
        How many motions it took after the first (one more than `MOST` if it is never known), half of the mass's 95 %
        interval after each, and for designed motions what had been expected of each, and the CPU time it took. A motion
        in which the robot was stopped counts, and tells nothing.
    """
    rng = np.random.default_rng([draw or 0, seed])
    plans: list[Plan] = list(FIRST)
    stopped: list[Plan] = []
    widths: list[float] = []
    foretold: list[float] = []
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for done in range(MOST + 1):
            if done:
                plan, expected, took = _next(twin, recorded, fit, stopped, None if draw is None else rng)
                foretold += expected
                seconds += took
                plans.append(plan)
            try:
                rig = Lab(LabCfg(object=name, seed=seed, video=False)).rig()
                recorded = capture(rig, plans, Path(folder) / f"capture_{done}")
            except HaltError as error:  # the motion is spent, and is not tried again
                print(f"{name} {seed}: {plans[-1]}: {error}", file=sys.stderr, flush=True)
                stopped.append(plans.pop())
                widths.append(widths[-1])
                continue
            twin = known_twin(recorded, Path(folder) / f"twin_{done}")
            fit = solve(twin, recorded, cfg=CFG)
            at = fit.problem.where("object.mass").start
            widths.append(1.96 * float(np.sqrt(fit.posterior.covariance[at, at])))
            if widths[-1] <= GOAL:
                break
    motions = done if widths[-1] <= GOAL else MOST + 1
    chosen = "designed" if draw is None else f"random {draw}"
    after = ", ".join(f"{100 * w:.0f} %" for w in widths)
    print(f"{name} {seed}, {chosen}: {motions} motions, ± {after}; {plans[2:]}", file=sys.stderr, flush=True)
    return {
        "motions": motions, "widths": widths, "foretold": foretold, "seconds": seconds, "stopped": len(stopped),
    }  # fmt: skip


def _next(
    twin: Twin, recorded: Capture, fit: Fit, stopped: list[Plan], rng: np.random.Generator | None
) -> tuple[Push | Lift, list[float], list[float]]:
    """Chooses a motion of which the robot was not stopped before.

    Returns:
        The motion; and where it was designed (no `rng` is given), the interval that it should give, and the CPU time
        that the choice took [s].
    """
    if rng is not None:
        able, _ = candidates(list(recorded.recordings.values())[-1])
        left = [plan for plan in (_plan(a.plan) for a in able) if plan not in stopped]
        return left[int(rng.integers(len(left)))], [], []
    start = time.process_time()
    ranked = plan_after(twin, recorded, fit, cfg=IdentifyCfg(parameters=("object.mass",)))
    took = time.process_time() - start
    best = next(r for r in ranked if _plan(r.candidate.plan) not in stopped)
    return _plan(best.candidate.plan), [best.expected["object.mass"].after], [took]


def _plan(described) -> Push | Lift:
    kind = {"Push": Push, "Lift": Lift}[described["plan"]]
    return kind(**{k: v for k, v in described.items() if k != "plan"})
