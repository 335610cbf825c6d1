"""A policy's own grasps in the lab: one is trained for each of eight objects, and is told more or less of each lab.

Each learns from one film of a human hand, with what is known of the object's kind, and is then tried in labs that it
has never seen: another place, mass, friction and delay in each. Only what it is told of the object differs between the
rows: a policy that knows the mass shall hold more than one that is told a third of it.
"""

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

from benchmarks.grasp import FILM_SEED, LIKE, RATE_HZ, WAYS, load_of, take_up
from benchmarks.identify import MOTIONS, Found, find, one_core
from benchmarks.kept import kept
from benchmarks.metric import Metric
from dexloop.capture.plans import HumanVideo
from dexloop.capture.record import capture
from dexloop.core import se3
from dexloop.core.artifacts import Policy, Twin
from dexloop.core.errors import InputError
from dexloop.core.stated import state_belief
from dexloop.demo import BRISK
from dexloop.demonstrate.stage import demonstrate
from dexloop.deploy.doers import Doer, PolicyDoer
from dexloop.deploy.trial import road
from dexloop.identify.cfg import IdentifyCfg
from dexloop.lab import Lab, LabCfg
from dexloop.lab.known_twin import known_twin
from dexloop.lab.objects import OBJECTS, make
from dexloop.policy.bundle import open_policy
from dexloop.policy.rehearsal import Stage
from dexloop.policy.start import Start
from dexloop.robots.pickup import Load
from dexloop.robots.staging import open_scene, place_of, standing
from dexloop.train.stage import train

SEEDS = range(700, 705)
"""Of labs for each object: the first of those in which planned motions are tried (`grasp`)."""
TOLD = ("identified", "mass x 0.3", "mass x 3")
"""What a policy is told; it always feels slip."""
SPREAD = 0.1
"""How surely the mass of an object's kind and a friction are known when a policy is taught, as a share."""
FRICTION = 0.6


def run() -> list[Metric]:
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"), initializer=one_core) as pool:
        found = [w.result() for w in [pool.submit(kept, taught_and_tried, name) for name in OBJECTS]]
    metrics = [Metric("objects for which a policy came about", float(np.mean([bool(f["train_s"]) for f in found])), "1",
                      "higher", 0.1, 1.0)]  # fmt: skip
    for told in TOLD:
        said = [o for f in found for o in f["outcomes"][told]]
        failures = ", ".join(f"{said.count(o)} {o}" for o in sorted(set(said)) if o != "held")
        share, target = float(np.mean([o == "held" for o in said])), 0.9 if told == "identified" else None
        metrics.append(Metric(f"success: {told}", share, "1", "higher", 0.1, target, f"of {len(said)}; {failures}"))
    slowest = {key: max(f[key] for f in found) for key in ("demonstrate_s", "train_s")}
    return [
        *metrics,
        Metric("film to demonstrations, longest", slowest["demonstrate_s"], "s", "lower", np.inf, None, "on one core"),
        Metric("training, longest", slowest["train_s"], "s", "lower", np.inf, 600.0, "on one core"),
    ]


def taught_and_tried(name: str) -> dict[str, Any]:
    """Trains a policy for one object, and tries it in some labs."""
    like = Found(**kept(find, "poses", name, LIKE, IdentifyCfg(), False, False, MOTIONS))
    outcomes: dict[str, list[str]] = {told: [] for told in TOLD}
    with tempfile.TemporaryDirectory() as folder:
        try:
            twin, policy, seconds = _taught(name, Path(folder))
        except InputError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            return {
                "outcomes": {told: ["no policy"] * len(SEEDS) for told in TOLD},
                "demonstrate_s": 0.0,
                "train_s": 0.0,
            }
        for seed in SEEDS:
            lab = Lab(LabCfg(object=name, seed=seed, video=False))
            for told in TOLD:
                outcomes[told].append(_tried(lab, twin, policy, load_of(lab, like, WAYS[told])))
            print(
                f"{name} {seed}: {', '.join(f'{t} {o[-1]}' for t, o in outcomes.items())}", file=sys.stderr, flush=True
            )
    return {"outcomes": outcomes, **seconds}


def _taught(name: str, folder: Path) -> tuple[Twin, Policy, dict[str, float]]:
    """Returns a policy that was taught by one film, and how long that took."""
    film = capture(Lab(LabCfg(object=name, seed=FILM_SEED)).rig(), [HumanVideo()], folder / "film")
    twin, rng = known_twin(film, folder / "twin"), np.random.default_rng(0)
    kind = {"object.mass": make(name).mass_kg, "fingertip.friction": FRICTION, "table.friction": FRICTION}
    belief = state_belief(
        folder / "belief", {label: value * np.exp(SPREAD * rng.normal(size=256)) for label, value in kind.items()}
    )
    laps = [time.monotonic()]
    demos = demonstrate(twin, belief, film, folder / "demos", cfg=BRISK.demonstrate)
    laps.append(time.monotonic())
    policy = train(demos, folder / "policy", cfg=BRISK.train)
    laps.append(time.monotonic())
    seconds = dict(zip(("demonstrate_s", "train_s"), np.diff(laps).tolist(), strict=True))
    return twin, policy, seconds


def _tried(lab: Lab, twin: Twin, policy: Policy, load: Load) -> str:
    """Lets a policy take up what stands in a lab."""
    brain, start, thing = open_policy(policy), Start.of(policy), lab.cfg.object
    robot, base, scene = open_scene(twin, lab.rig().features.robot)
    stage = Stage(scene, robot, thing, base, brain.points[thing])

    def doer_at(T_seen: np.ndarray, _base: np.ndarray) -> tuple[Doer, np.ndarray] | None:
        T, at, there = standing(scene, T_seen), place_of(scene, thing), scene.model.qpos0.copy()
        there[at : at + 7] = se3.to_pose(T)
        try:
            doer = PolicyDoer(brain, start, stage, T, load)
            return doer, road(robot, scene.model, doer.before, RATE_HZ, qpos=there)
        except InputError:
            return None

    return take_up(lab, robot, doer_at)
