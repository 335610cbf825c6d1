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
from dexloop.core.capture import Capture
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.stage import solve
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
    # What was expected after a motion, beside what it then was.
    ratios = [b / a for f in designed for a, b in zip(f["foretold"], f["widths"][1:], strict=True)]
    seconds = [s for f in designed for s in f["seconds"]]
    note = f"{len(LABS)} labs, until the mass is within ±{100 * GOAL:.0f} %"
    draws = f"{note}; {len(RANDOM)} draws in each"
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
        interval after each, and for designed motions what had been expected of each, and the CPU time it took.
    """
    rng = np.random.default_rng([draw or 0, seed])
    plans: list[Plan] = list(FIRST)
    widths: list[float] = []
    foretold: list[float] = []
    seconds: list[float] = []
    while True:
        with tempfile.TemporaryDirectory() as folder:
            rig = Lab(LabCfg(object=name, seed=seed, video=False)).rig()
            recorded = capture(rig, plans, Path(folder) / "capture")
            twin = known_twin(recorded, Path(folder) / "twin")
            fit = solve(twin, recorded, cfg=CFG)
            at = fit.problem.where("object.mass").start
            widths.append(1.96 * float(np.sqrt(fit.posterior.covariance[at, at])))
            done = len(plans) - len(FIRST)
            if widths[-1] <= GOAL or done == MOST:
                break
            if draw is not None:
                plans.append(_any(recorded, rng))
                continue
            start = time.process_time()
            best = plan_after(twin, recorded, fit, cfg=IdentifyCfg(parameters=("object.mass",))).best
            seconds.append(time.process_time() - start)
            foretold.append(best.expected["object.mass"].after)
            plans.append(_plan(best.candidate.plan))
    motions = done if widths[-1] <= GOAL else MOST + 1
    chosen = "designed" if draw is None else f"random {draw}"
    after = ", ".join(f"{100 * w:.0f} %" for w in widths)
    print(f"{name} {seed}, {chosen}: {motions} motions, ± {after}; {plans[2:]}", file=sys.stderr, flush=True)
    return {"motions": motions, "widths": widths, "foretold": foretold, "seconds": seconds}


def _any(recorded: Capture, rng: np.random.Generator) -> Push | Lift:
    able, _ = candidates(list(recorded.recordings.values())[-1])
    return _plan(able[int(rng.integers(len(able)))].plan)


def _plan(described) -> Push | Lift:
    kind = {"Push": Push, "Lift": Lift}[described["plan"]]
    return kind(**{k: v for k, v in described.items() if k != "plan"})
