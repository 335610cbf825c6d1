"""First divergence: one thing in the lab is otherwise than believed; does the audit name it?

In each case everything is believed as it truly is, with the usual uncertainty, and one thing is planted otherwise:
friction of the hand, delay, mass, gain of the motors, or where the tracker's camera stands. A planned motion takes the
object up, and its recording is compared with simulations, as `dexloop audit` does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.grasp import SEEN_BY, rehearsed, shown_holds
from benchmarks.identify import one_core
from benchmarks.kept import kept
from benchmarks.metric import Metric
from dexloop.audit.divergence import divergences
from dexloop.audit.stage import explain
from dexloop.core import se3
from dexloop.core.errors import DexloopError, InputError
from dexloop.deploy.doers import MotionDoer
from dexloop.deploy.senses import Senses, mean_pose
from dexloop.deploy.stage import guarded
from dexloop.deploy.trial import Moments, attempt
from dexloop.lab import Lab, LabCfg
from dexloop.lab.objects import OBJECTS
from dexloop.lab.truth import Truth
from dexloop.policy.rehearsal import Stage
from dexloop.rig.protocol import Observation, Rig, Samples
from dexloop.rig.recorder import Recorder
from dexloop.robots.catalog import load as load_robot
from dexloop.robots.hold import from_arrays
from dexloop.robots.pickup import Load
from dexloop.robots.shake import Shake
from dexloop.robots.staging import scene_of
from dexloop.robots.traces import traces
from dexloop.sim.believed import Draws
from dexloop.sim.parts import Table, Thing

CASES = 50
SEED = 1000
SURE = {"object.mass": 0.03, "fingertip.friction": 0.05, "table.friction": 0.03, "actuator.gain": 0.02,
        "actuator.damping": 0.05, "joint.friction": 0.1, "joint.armature": 0.1}  # fmt: skip
"""Relative standard deviation of what is believed."""
SURE_DELAY_S = 1e-3
KINDS = ("fingertip.friction", "actuator.delay", "object.mass", "actuator.gain", "camera")
POINTS = np.zeros((128, 3))
"""No policy looks at the object here."""


def run() -> list[Metric]:
    jobs = [(KINDS[k % len(KINDS)], list(OBJECTS)[(k // len(KINDS)) % len(OBJECTS)], SEED + k) for k in range(CASES)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"), initializer=one_core) as pool:
        shown = dict(zip(OBJECTS, pool.map(shown_holds, OBJECTS), strict=True))
        work = [pool.submit(kept, case, *job, shown[job[1]]) for job in jobs]
        found = [w.result() for w in work]
    metrics = []
    right = [f["planted"] in f["named"][:2] for f in found]
    at_once = sum(f["named"][:1] == [f["planted"]] for f in found)
    note = f"{sum(right)} of {len(found)}; the first is right in {at_once}"
    metrics.append(Metric("a right cause among the first two", float(np.mean(right)), "1", "higher", 0.1, 0.8, note))
    for kind in KINDS:
        own = [r for r, f in zip(right, found, strict=True) if f["planted"] == kind]
        metrics.append(Metric(f"right: {kind}", float(np.mean(own)), "1", "higher", 0.2, None, f"of {len(own)}"))
    first = [f["first"] for f in found]
    seen = float(np.mean([bool(f) for f in first]))
    metrics.append(Metric("some channel diverges", seen, "1", "higher", 0.1, None))
    return metrics


def case(kind: str, name: str, seed: int, shown: dict[str, Any]) -> dict[str, Any]:
    """Plants one mismatch, makes one trial, and returns what the audit names."""
    rng = np.random.default_rng([seed, 3])
    lab = Lab(LabCfg(object=name, seed=seed, video=False))
    truth = lab.truth()
    other, shift, said = planted(kind, truth, rng)
    real = lab.otherwise(**other)
    try:
        named, first, signature = audited(lab, real, shift, shown)
    except DexloopError as error:
        named, first, signature = [], "", f"error: {error}"
    words = (
        f"{kind} {name} {seed} ({said}): {signature}; first {first or 'none'}; names {', '.join(named) or 'nothing'}"
    )
    print(words, file=sys.stderr, flush=True)
    return {"planted": kind, "named": named, "first": first, "signature": signature}


def planted(kind: str, truth: Truth, rng: np.random.Generator) -> tuple[dict[str, Any], np.ndarray, str]:
    """Returns what is otherwise, by how much the tracker's camera is off [m], and both in words."""
    low = bool(rng.integers(2))
    factor = float(rng.uniform(0.45, 0.65) if low else rng.uniform(1.6, 2.2))
    if kind == "fingertip.friction":
        factor = float(rng.uniform(0.4, 0.6))
        return {"finger_friction": factor * truth.finger_friction}, np.zeros(3), f"× {factor:.2f}"
    if kind == "actuator.delay":
        later = float(rng.uniform(0.015, 0.03))
        return {"delay_s": truth.delay_s + later}, np.zeros(3), f"+ {1e3 * later:.0f} ms"
    if kind == "object.mass":
        return {"mass_kg": factor * truth.mass_kg, "inertia": factor * truth.inertia}, np.zeros(3), f"× {factor:.2f}"
    if kind == "actuator.gain":
        factor = float(rng.uniform(0.65, 0.8) if low else rng.uniform(1.25, 1.5))
        return {"actuator_gain": factor * truth.actuator_gain}, np.zeros(3), f"× {factor:.2f}"
    angle, far = rng.uniform(0, 2 * np.pi), float(rng.uniform(0.008, 0.016))
    return {}, far * np.array([np.cos(angle), np.sin(angle), 0.0]), f"{1e3 * far:.0f} mm"


class Shifted:
    """A rig whose tracker sees the object beside where it is."""

    def __init__(self, rig: Rig, shift: np.ndarray):
        self._rig, self._shift = rig, np.concatenate([shift, np.zeros(4)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rig, name)

    def observe(self) -> Observation:
        """Returns what arrived."""
        seen = self._rig.observe()
        moved = {
            k: Samples(v.t, v.value + self._shift) if k == "object_pose" else v for k, v in seen.samples.items()
        }  # fmt: skip
        return replace(seen, samples=moved)


def audited(lab: Lab, real: Lab, shift: np.ndarray, shown: dict[str, Any]) -> tuple[list[str], str, str]:
    """Takes the object up in a lab that is otherwise than believed; returns the suspects, best first, the channel that
    diverged first, and how it went."""
    truth, robot = lab.truth(), load_robot(lab.cfg.robot)
    inner = real.rig()
    rig = guarded(Shifted(inner, shift))  # type: ignore[arg-type]
    senses = Senses(rig.features, robot, pose_late_s=truth.clock_offset_s)
    rig.connect()
    judge = real.judge(inner)
    rig.observe()
    rig.sleep(0.3)
    seen = rig.observe()
    senses.hear(seen)
    T = mean_pose(seen.samples["object_pose"].value)
    base = np.asarray(rig.features.robot["T_world_base"])
    thing = Thing(SEEN_BY, lab.object.shape, truth.mass_kg, pose=tuple(se3.to_pose(T)), com=tuple(truth.com),
                  inertia=truth.inertia)  # fmt: skip
    scene = scene_of([Table(), thing], robot, base)
    com = (float(truth.com[0]), float(truth.com[1]), float(truth.com[2]))
    crush = lab.object.crush_force_n or np.inf
    load = Load(truth.mass_kg, 1.06 * truth.mass_kg, 0.94 * truth.finger_friction, com, crush)
    if not shown:
        raise InputError("no way to hold it was found")  # counts as a cause that was not named
    holds = from_arrays({k: np.array(v) for k, v in shown.items()})
    chosen = rehearsed(robot, scene, holds, T, load)
    if chosen is None:
        raise InputError("the robot gets to none of the holds")
    pickup, way = chosen
    at = Moments(0.0)

    def note(now: Moments) -> None:
        nonlocal at
        if np.isfinite(now.lift) and not np.isfinite(at.lift):
            judge.gripped()
        at = now

    with tempfile.TemporaryDirectory() as folder:
        with Recorder(Path(folder) / "trial", rig.features) as recorder:
            try:
                attempt(
                    rig, MotionDoer(pickup, base), way, senses, robot, Shake(hold_s=1.0, shake_s=1.0),
                    begin=lambda: recorder.start("trial", plan={"plan": "Trial"}), note=recorder.append, moment=note,
                    ended=lambda: setattr(judge, "said", judge.verdict()),
                )  # fmt: skip
                recorder.finish_recording()
            except DexloopError as error:
                recorder.interrupt(str(error))
        assert recorder.capture is not None
        recording = recorder.capture.recording()
        found = traces(recording, robot, np.eye(4), pose_late_s=truth.clock_offset_s)
        lift = at.lift - float(recording.stream("joint_command").t[0])
    stage = Stage(scene, robot, SEEN_BY, base, POINTS)
    measured, band, causes = explain(found, stage, T, believed(truth, 10), lift, effort_gain=truth.effort_scale)
    parted = divergences(measured, band)
    return [c.suspect.name for c in causes], parted[0].channel if parted else "", getattr(judge, "said", "stopped")


def believed(truth: Truth, n: int) -> Draws:
    """Returns worlds as they truly are, to within what is usually known."""
    middle = {
        "object.mass": truth.mass_kg, "fingertip.friction": truth.finger_friction,
        "table.friction": truth.table_friction, "actuator.gain": truth.actuator_gain,
        "actuator.damping": truth.actuator_damping, "joint.friction": truth.joint_friction,
        "joint.armature": truth.joint_armature,
    }  # fmt: skip
    rng = np.random.default_rng(5)
    values = [middle[k] * np.exp(SURE[k] * rng.normal(size=n)) for k in middle]
    values.append(truth.delay_s + SURE_DELAY_S * rng.normal(size=n))
    names = (*middle, "actuator.delay")
    draws = Draws(names, (1,) * len(names), np.stack(values, axis=1))
    return draws.with_hand_friction(draws.by_name()["fingertip.friction"][:, 0])
