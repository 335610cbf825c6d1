"""The whole loop in the lab: what identification is worth, and what a second round adds.

In each lab the policy is first told a guess of mass and friction, then what was identified, then what was identified
after the ledger's advice. Shapes are given and poses come from the tracker: twins and tracking have benchmarks of their
own.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.identify import one_core
from benchmarks.kept import kept
from benchmarks.metric import Metric
from dexloop import loop as loops
from dexloop.audit.cfg import AuditCfg
from dexloop.capture.plans import FreeMotion, HumanVideo, Push
from dexloop.core.errors import DexloopError
from dexloop.core.run import Run
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.deploy.cfg import DeployCfg
from dexloop.deploy.stage import Witness
from dexloop.lab import Lab, LabCfg
from dexloop.lab.judge import Judge
from dexloop.lab.known_twin import known_twin
from dexloop.lab.objects import OBJECTS
from dexloop.lab.rig import LabRig
from dexloop.loop_cfg import LoopCfg

LABS = 10
SEED = 1100
CFG = LoopCfg(rounds=2, trials=4, budget=12)
CFGS = loops.Cfgs(
    demonstrate=DemonstrateCfg(tries=160, worlds=8, episodes=48),
    deploy=DeployCfg(pilots=0),
    audit=AuditCfg(worlds=8, bands=8),
)
PLANS = (
    FreeMotion(duration_s=3.0),
    Push(speed_m_s=0.5, distance_m=0.1),
    Push(speed_m_s=0.25, distance_m=0.08, direction_rad=0.6),
    Push(speed_m_s=0.7, distance_m=0.12, direction_rad=-0.6),
    HumanVideo(),
)


def run() -> list[Metric]:
    jobs = [(list(OBJECTS)[k % len(OBJECTS)], SEED + k) for k in range(LABS)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"), initializer=one_core) as pool:
        found = [w.result() for w in [pool.submit(kept, looped, name, seed) for name, seed in jobs]]
    done = [f for f in found if f["rounds"]]
    metrics = [Metric("labs in which the loop ran through", len(done) / len(found), "1", "higher", 0.1, 1.0)]
    if not done:
        return metrics
    first, second, last = (np.array([f["rounds"][k] for f in done], dtype=object) for k in (0, 1, -1))

    def mean(rows: Any, key: str) -> float:
        return float(np.mean([abs(r[key]) if key == "gap" else r[key] for r in rows]))

    before, after = mean(first, "gap"), mean(last, "gap")
    trials = float(np.mean([sum(r["trials"] for r in f["rounds"]) for f in done]))
    mass = [abs(f["mass"] - 1.0) for f in done]
    return [
        *metrics,
        Metric("success in the lab, told a guess", mean(first, "true"), "1", "higher", 0.1),
        Metric("success in the lab, identified", mean(second, "true"), "1", "higher", 0.1),
        Metric("success in the lab, last round", mean(last, "true"), "1", "higher", 0.1),
        Metric("gap told a guess", before, "1", "lower", 0.2, None, "mean of |simulation - reality|"),
        Metric("gap in the last round", after, "1", "lower", 0.2),
        Metric("gap after over before", after / max(before, 1e-9), "1", "lower", 0.3, 0.5),
        Metric("real trials used", trials, "1", "lower", 0.2, None, f"and {len(PLANS) - 2} pushes at least"),
        Metric("error of mass, median", float(np.median(mass)), "1", "lower", 0.5),
    ]


class _Place:
    """The lab, with its judge beside it."""

    def __init__(self, name: str, seed: int):
        self.lab, self._seed = Lab(LabCfg(object=name, seed=seed, video=False)), seed
        self.verdicts: dict[int, list[str]] = {}
        self._rig: LabRig | None = None
        self._judge: Judge | None = None

    def recording(self, number: int) -> LabRig:
        """Returns the rig for a capture."""
        return self.lab.rig(number)

    def trial(self, round_: int, number: int) -> LabRig:
        """Returns the rig for a trial."""
        self._rig = self.lab.rig(1000 * (round_ + 1) + number)
        self._judge = self.lab.judge(self._rig)
        return self._rig

    def witness(self, round_: int) -> Witness:
        """Returns who asks the judge, in a round."""

        def ask(_number: int, what: str) -> None:
            assert self._judge is not None
            if what == "gripped":
                self._judge.gripped()
            else:
                self.verdicts.setdefault(round_, []).append(self._judge.verdict())

        return ask


def looped(name: str, seed: int) -> dict[str, Any]:
    """Goes round in one lab; returns what came of each round, by the loop's own measure and by the lab's judge."""
    place = _Place(name, seed)
    loops.twin = lambda recorded, path, **_: known_twin(recorded, path)  # type: ignore[assignment]
    folder = Path(tempfile.mkdtemp())
    try:
        run = Run.create(folder / "run", seed=seed)
        rounds = loops.loop(run, place, cfg=CFG, cfgs=CFGS, plans=PLANS, witness=place.witness)
        belief = rounds[-1].belief.header.meta["parameters"]["object.mass"]["mean"]
        out = [
            {**{k: r.to_json()[k] for k in ("round", "held", "trials", "real", "sim", "gap")},
             "true": float(np.mean([v == "held" for v in place.verdicts[r.number]]))}
            for r in rounds
        ]  # fmt: skip
        found = {"rounds": out, "mass": belief / place.lab.truth().mass_kg}
        said = "; ".join(
            f"{r['round']}: {r['held']}/{r['trials']}, sim {r['sim']:.2f}, judge {r['true']:.2f}" for r in out
        )
    except DexloopError as error:
        found, said = {"rounds": [], "mass": 1.0}, str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"loop {name} {seed}: {said}", file=sys.stderr, flush=True)
    return found
