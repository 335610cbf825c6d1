"""Designed against random motions: how many recordings it takes until the mass is known well enough."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.metric import Metric
from dexloop.capture.plans import FreeMotion, Lift, Plan, Push
from dexloop.capture.record import capture
from dexloop.core.artifacts import Twin
from dexloop.core.capture import Capture
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

Choose = Callable[[Twin, Capture, Fit], Push | Lift]


def run() -> list[Metric]:
    designed, random, foretold, seconds = [], [], [], []
    for name, seed in LABS:

        def best(twin: Twin, recorded: Capture, fit: Fit) -> Push | Lift:
            start = time.perf_counter()
            found = plan_after(twin, recorded, fit, cfg=IdentifyCfg(parameters=("object.mass",)))
            seconds.append(time.perf_counter() - start)
            print(found.best.words, file=sys.stderr, flush=True)
            foretold.append(found.best.expected["object.mass"].after)
            return _plan(found.best.candidate.plan)

        count, widths = recordings(name, seed, best)
        designed.append(count)
        if len(widths) > 1:
            foretold[-len(widths) + 1 :] = [
                b / a for a, b in zip(foretold[-len(widths) + 1 :], widths[1:], strict=True)
            ]
        print(f"{name} {seed}: designed {count}, {widths}", file=sys.stderr, flush=True)
        for draw in RANDOM:
            rng = np.random.default_rng([draw, seed])
            count, widths = recordings(name, seed, lambda _twin, recorded, _fit, rng=rng: _any(recorded, rng))
            random.append(count)
            print(f"{name} {seed}: random {count}, {widths}", file=sys.stderr, flush=True)
    note = f"{len(LABS)} labs, until the mass is within ±{100 * GOAL:.0f} %"
    return [
        Metric("designed: motions after the first", float(np.mean(designed)), "1", "lower", 0.5, note=note),
        Metric("random: motions after the first", float(np.mean(random)), "1", "higher", 0.5, note=note),
        Metric("random over designed", float(np.mean(random) / max(np.mean(designed), 1e-9)), "1", "higher", 0.5, 1.0),
        Metric("found over foretold interval", float(np.median(foretold)), "1", "lower", 1.0, note="1 is right"),
        Metric("seconds a design", float(np.median(seconds)), "s", "lower", np.inf, 20.0, "12 motions, 4 draws"),
    ]


def recordings(name: str, seed: int, choose: Choose) -> tuple[int, list[float]]:
    """Records and fits until the mass is known.

    Returns:
        How many motions it took after the first (one more than `MOST` if it is never known), and half of the mass's
        95 % interval after each.
    """
    plans: list[Plan] = list(FIRST)
    widths: list[float] = []
    for count in range(MOST + 1):
        with tempfile.TemporaryDirectory() as folder:
            rig = Lab(LabCfg(object=name, seed=seed, video=False)).rig()
            recorded = capture(rig, plans, Path(folder) / "capture")
            twin = known_twin(recorded, Path(folder) / "twin")
            fit = solve(twin, recorded, cfg=CFG)
            at = fit.problem.where("object.mass").start
            widths.append(1.96 * float(np.sqrt(fit.posterior.covariance[at, at])))
            if widths[-1] <= GOAL:
                return count, widths
            if count < MOST:
                plans.append(choose(twin, recorded, fit))
    return MOST + 1, widths


def _any(recorded: Capture, rng: np.random.Generator) -> Push | Lift:
    able, _ = candidates(list(recorded.recordings.values())[-1])
    return _plan(able[int(rng.integers(len(able)))].plan)


def _plan(described) -> Push | Lift:
    kind = {"Push": Push, "Lift": Lift}[described["plan"]]
    return kind(**{k: v for k, v in described.items() if k != "plan"})
