"""What identify finds in the lab from poses and joint signals: mass and friction against the hidden truth.

`identify_video`, `identify_scan`, `identify_tosses` and `identify_speed` have the rest.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import current_process, get_context
from pathlib import Path

import numpy as np

from benchmarks.kept import kept
from benchmarks.metric import Metric
from dexloop.capture.plans import FreeMotion, Plan, Push, Scan
from dexloop.capture.record import capture
from dexloop.core.errors import DexloopError
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.stage import Fit, solve, summary
from dexloop.lab import Lab, LabCfg
from dexloop.lab.known_twin import known_twin
from dexloop.lab.objects import OBJECTS
from dexloop.lab.truth import Truth
from dexloop.twin.stage import twin

SEEDS = range(610, 615)
"""Of 5 labs for each of the 8 objects."""
MOTIONS: tuple[Plan, ...] = (
    FreeMotion(duration_s=3.0),
    Push(speed_m_s=0.5, distance_m=0.1),
    Push(speed_m_s=0.25, distance_m=0.08, direction_rad=0.6),
    Push(speed_m_s=0.7, distance_m=0.12, direction_rad=-0.6),
)
"""Three pushes that differ in speed and direction, with release: every object can be pushed, not every one lifted."""
SLOW = (FreeMotion(duration_s=3.0), Push(speed_m_s=0.02, touch_m_s=0.02, distance_m=0.03, release=False))


def run() -> list[Metric]:
    return _from_poses(SEEDS) + _slow_push() + _clock()


def trial(
    name: str, seed: int, plans: Sequence[Plan], cfg: IdentifyCfg, *, video: bool = False, scanned: bool = False
) -> tuple[Fit, Lab]:
    """Records in a lab drawn from a seed, and fits a twin of known shape, or one that is made of a scan."""
    lab = Lab(LabCfg(object=name, seed=seed, video=video, tracker=not video))
    with tempfile.TemporaryDirectory() as folder:
        recorded = capture(lab.rig(), [Scan(), *plans] if scanned else plans, Path(folder) / "capture")
        make = twin if scanned else known_twin
        return solve(make(recorded, Path(folder) / "twin"), recorded, cfg=cfg), lab


def _from_poses(seeds: Sequence[int]) -> list[Metric]:
    return score("poses", [(name, seed) for seed in seeds for name in OBJECTS], IdentifyCfg(), (0.025, 0.07))


@dataclass(frozen=True)
class Found:
    """What was found in one lab, against its truth."""

    mass: float
    """Relative error."""
    friction: float
    mass_inside: bool
    """Whether the 95 % interval holds the truth."""
    friction_inside: bool
    mass_high: float = np.nan
    """What the mass exceeds once in forty, over the mean."""
    finger: float = np.nan
    """Relative error of what the fingertips' friction falls short of once in ten."""
    com_m: tuple[float, ...] = (np.nan,) * 3
    """Error of the centre of mass, along the object's axes [m]."""


MISSED = Found(1.0, 1.0, False, False)
"""A motion that the robot cannot do in a lab counts as a miss."""


def score(
    what: str,
    cases: Sequence[tuple[str, int]],
    cfg: IdentifyCfg,
    limits: tuple[float, float],
    *,
    video: bool = False,
    scanned: bool = False,
) -> list[Metric]:
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"), initializer=one_core) as pool:
        work = [pool.submit(kept, find, what, name, seed, cfg, video, scanned, MOTIONS) for name, seed in cases]
        found = [Found(**w.result()) for w in work]
    mass, friction = ([abs(getattr(f, key)) for f in found] for key in ("mass", "friction"))
    inside = {key: float(np.mean([getattr(f, f"{key}_inside") for f in found])) for key in ("mass", "friction")}
    note = f"{len(cases)} labs"
    return [
        Metric(f"{what}: median error of mass", float(np.median(mass)), "1", "lower", 0.5, limits[0], note),
        Metric(f"{what}: 90th percentile", float(np.percentile(mass, 90)), "1", "lower", 0.5, limits[1], note),
        Metric(f"{what}: median error of friction", float(np.median(friction)), "1", "lower", 0.5, 0.08, note),
        Metric(f"{what}: intervals that hold the mass", inside["mass"], "1", "higher", 0.1, 0.85, note),
        Metric(f"{what}: that hold the friction", inside["friction"], "1", "higher", 0.1, 0.85, note),
    ]


def one_core() -> None:
    """Gives each worker a core of its own, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        cores, number = sorted(os.sched_getaffinity(0)), int(current_process().name.rpartition("-")[2])
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def find(
    what: str, name: str, seed: int, cfg: IdentifyCfg, video: bool, scanned: bool, motions: Sequence[Plan]
) -> dict[str, float | bool]:
    try:
        fit, lab = trial(name, seed, motions, cfg, video=video, scanned=scanned)
    except DexloopError as error:
        print(f"{what} {name} {seed}: {error}", file=sys.stderr, flush=True)
        return asdict(MISSED)
    parameters, truth = summary(fit)["parameters"], lab.truth()
    errors, inside, words = [], [], []
    for key, true in (("object.mass", truth.mass_kg), ("table.friction", truth.table_friction)):
        p = parameters[key]
        errors.append(p["mean"] / true - 1.0)
        inside.append(bool(p["interval"][0] <= true <= p["interval"][1]))
        words.append(
            f"{key} {p['mean']:.4f} of {true:.4f} ({100 * errors[-1]:+.1f} %, sd {100 * p['sd'] / p['mean']:.1f} %"
            f"{'' if inside[-1] else ', OUTSIDE'})"
        )
    seconds = sum(fit.seconds.values())
    print(f"{what} {name} {seed}: {', '.join(words)}, {fit.status.code}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return asdict(Found(errors[0], errors[1], inside[0], inside[1], *_beside(fit, truth)))


def _beside(fit: Fit, truth: Truth) -> tuple[float, float, tuple[float, ...]]:
    """Returns what a grasp needs beside mass and friction of the table; NaN where it was not looked for."""
    labels = list(fit.posterior.labels)
    values = fit.posterior.values(fit.posterior.sample(2000, np.random.default_rng(0)))

    def of(label: str) -> np.ndarray:
        return values[:, labels.index(label)] if label in labels else np.full(len(values), np.nan)

    mass, finger = of("object.mass"), of("fingertip.friction")
    com = tuple(float(of(f"object.com.{axis}").mean() - truth.com[k]) for k, axis in enumerate("xyz"))
    return (
        float(np.quantile(mass, 0.975) / mass.mean()), float(np.quantile(finger, 0.1) / truth.finger_friction - 1), com
    )  # fmt: skip


def _slow_push() -> list[Metric]:
    """A slow push alone tells only mass times friction, whatever it is asked for."""
    undetermined, errors = [], []
    asked = IdentifyCfg(parameters=("object.mass", "table.friction", "fingertip.friction"))
    for name, seed in (("meat_can", 100), ("cube", 101), ("spread_jar", 102)):
        fit, lab = trial(name, seed, SLOW, IdentifyCfg())
        undetermined.append(not summary(fit)["parameters"]["object.mass"]["identifiable"])
        fit, lab = trial(name, seed, SLOW, asked)
        found, truth = summary(fit), lab.truth()
        undetermined.append(not found["parameters"]["object.mass"]["identifiable"])
        # A product that is not given counts as one that is wholly wrong.
        product = next((c["value"] for c in found["combinations"] if c["name"] == "object.mass × table.friction"), 0.0)
        errors.append(abs(product / (truth.mass_kg * truth.friction_at(0.02)) - 1.0))
        print(f"slow push {name} {seed}: {found['text']}", file=sys.stderr, flush=True)
    return [
        Metric("slow push: mass is said not to be identifiable", float(np.mean(undetermined)), "1", "higher", 0.0, 1.0),
        Metric("slow push: error of mass × friction", float(max(errors)), "1", "lower", 0.5, 0.05),
    ]


def _clock() -> list[Metric]:
    """The lab's clocks are up to 50 ms apart: how well the offset is found."""
    errors = []
    for name, seed in (("meat_can", 103), ("cube", 104), ("cookie_tin", 103)):
        fit, lab = trial(name, seed, MOTIONS[:2], IdentifyCfg())
        found = summary(fit)["clocks"]["camera"]["offset_s"]
        errors.append(abs(found - lab.truth().clock_offset_s))
    return [Metric("clock: largest error of the offset", float(max(errors)), "s", "lower", 0.5, 0.003)]
