"""The verb `identify`: from a twin and recorded interaction to a belief about what cannot be seen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.artifact import Draft, require_free, save_arrays, write_text, writing
from dexloop.core.artifacts import Belief, Twin
from dexloop.core.capture import Capture, Recording
from dexloop.core.errors import InputError
from dexloop.core.laps import Laps
from dexloop.core.status import Status
from dexloop.identify.calibrate import EFFORT_SD, LATENCY_SD_S, Calibration, calibrate, is_free_motion
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.checks import effects, heldout, sampled
from dexloop.identify.design import sensors_of
from dexloop.identify.excitation import with_friction_law
from dexloop.identify.fitting import Progress, doubts, fitted, humbled
from dexloop.identify.posterior import Posterior
from dexloop.identify.press import Pressed, is_press, pressed
from dexloop.identify.problem import Problem
from dexloop.identify.segments import TOUCHED_N, cut
from dexloop.identify.solver import Estimate, Solver
from dexloop.identify.streams import Matched, match
from dexloop.identify.traces import traces
from dexloop.identify.unknowns import (
    Unknown,
    bias_unknown,
    clock_unknown,
    gain_unknown,
    model_unknown,
    standard_names,
    with_priors,
)
from dexloop.identify.verdict import Verdict, judge, status_of
from dexloop.identify.watch import watch
from dexloop.robots.catalog import load
from dexloop.sim.freezing import freeze
from dexloop.sim.kinematic import guide
from dexloop.sim.parts import Robot
from dexloop.sim.saving import ModelFile
from dexloop.sim.scene import Scene, SceneCfg, compose
from dexloop.vision.appearance import SplatAppearance

Array = np.ndarray

_STILL = 1e-3
"""What a joint that stays in its place moves by [rad or m]."""
POSE_BIAS = (2e-3,) * 3 + (1e-2,) * 3
"""By how much a tracked pose may be wrong all the time [m, rad]: a camera is never calibrated exactly."""
SCAN_BIAS = (2e-3,) * 3 + (1e-2, 1e-2, 5e-2)
"""The same of a scanned twin, in each recording: its surface is turned by this where it is touched [m, rad]."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Everything that a fit knows, for whoever goes on with it in memory."""

    solver: Solver
    estimate: Estimate
    start: Estimate
    posterior: Posterior
    verdict: Verdict
    before: Verdict
    status: Status
    calibration: Calibration | None
    asked: tuple[str, ...]
    notes: tuple[str, ...]
    checks: Mapping[str, Any]
    seconds: Mapping[str, float]

    @property
    def problem(self) -> Problem:
        """What was unknown and what was recorded."""
        return self.solver.problem


def identify(
    twin: Twin | str | Path,
    capture: Capture,
    out: str | Path,
    *,
    cfg: IdentifyCfg = IdentifyCfg(),  # noqa: B008 - frozen
    replace: bool = False,
    progress: Progress | None = None,
) -> Belief:
    """Finds what the recordings tell about the parameters of a twin, and writes it down as a belief.

    Args:
        twin: A twin, or the path of any MJCF file that holds the object, what it lies on and what moves it.
        capture: One or more recordings of the object being moved; of the robot alone too, if it is to be calibrated.
        out: Where the belief shall be.
        cfg: What to find, and how carefully.
        replace: Put it in the place of one that is there.
        progress: Told what is going on.

    Raises:
        InputError: The recordings do not fit the model, or hold a number that is not finite.
        UnknownName: There is no such parameter, recording or object.
        NoEffect: A parameter that was asked for changes nothing.
    """
    require_free(Path(out), Belief, replace=replace)
    fit = solve(twin, capture, cfg=cfg, progress=progress)
    inputs: dict[str, Any] = {"capture": capture}
    if isinstance(twin, Twin):
        inputs["twin"] = twin
    with writing(out, Belief, inputs=inputs, seed=cfg.seed, replace=replace) as draft:
        _write(draft, fit)
        if not isinstance(twin, Twin):
            draft.meta["model"] = str(twin)
    return Belief.open(out)


def solve(
    twin: Twin | str | Path,
    capture: Capture,
    *,
    cfg: IdentifyCfg = IdentifyCfg(),  # noqa: B008 - frozen
    progress: Progress | None = None,
) -> Fit:
    """Does the same without writing anything."""
    tell = progress or (lambda _text, _done: None)
    clock = Laps()
    chosen = _chosen(capture, cfg)
    scene = open_scene(twin, chosen, cfg)
    guided = guide(scene, cfg.tool) if cfg.tool else None
    scene = guided.scene if guided else scene
    alone = [r for r in chosen if is_free_motion(r)]
    presses = [r for r in chosen if is_press(r)]
    moved = [r for r in chosen if not is_free_motion(r) and not is_press(r)]
    calibration = None
    if alone and scene.model.nu:
        tell("calibrating the robot", 0.0)
        small = replace(cfg, timestep_s=0.25 * cfg.timestep_s)
        finer = open_scene(twin, chosen, small) if isinstance(twin, Twin) and guided is None else None
        calibration = calibrate(scene, alone, finer=finer, tell=lambda done: tell("calibrating the robot", done))
    clock.lap("calibration")
    if not moved:
        raise InputError("no recording shows the object being moved: record a push, a lift or a toss")
    softness = _pressed(twin, scene, presses, chosen, calibration, cfg, tell) if presses else None
    if presses:
        clock.lap("press")
    for r in moved:
        match(scene, r, tools=(cfg.tool,) if cfg.tool else ())  # all of it fits, before anything is left out
    still = {} if guided else _still_joints(scene, moved)
    scene = freeze(scene, still) if still else scene
    matched = [_matched(scene, r, cfg, set(still), tell, twin) for r in moved]
    clock.lap("tracking")
    segments = [s for m in matched for s in cut(scene, m, window_s=cfg.window_s, guided=guided)]
    asked = tuple(cfg.parameters) or tuple(standard_names(scene))
    unknowns, notes = _unknowns(scene, asked, matched, calibration, softness, cfg)
    notes += [n for m in matched for n in m.notes]
    if not isinstance(twin, Twin):
        notes.append("contacts of the model were made to set in softly for the fit: else what slides hops")
    asked, unknowns = effects(scene, unknowns, segments, asked, strict=bool(cfg.parameters), notes=notes)
    unseen = [s for s in segments if s.recording in cfg.held_out]
    problem = Problem(scene, unknowns, [s for s in segments if s.recording not in cfg.held_out])
    if not problem.segments:
        raise InputError("all recordings are held out: leave at least one to fit to")
    solver = Solver(problem, prior=_prior(problem, calibration), held=_held(problem, calibration, softness))
    start = solver.start()
    before = judge(*_of(problem, asked, solver.assess(start), softness))
    finer = None
    if isinstance(twin, Twin) and guided is None:
        fine = open_scene(twin, chosen, replace(cfg, timestep_s=0.5 * cfg.timestep_s))
        fine = freeze(fine, still) if still else fine
        seen = [s for m in matched for s in cut(fine, m, window_s=cfg.window_s) if s.recording not in cfg.held_out]
        finer = Problem(fine, unknowns, seen)
    solver, estimate, left_out = fitted(solver, cfg, tell, finer=finer)
    notes += left_out
    estimate = humbled(solver, with_friction_law(solver.problem, solver.finish(estimate)))
    tell("fitting", 1.0)
    clock.lap("fit")
    tell("checking", 0.0)
    ahead = heldout(solver, estimate, start, Problem(scene, unknowns, unseen) if unseen else None)
    tell("checking", 0.5)
    draws, check = sampled(solver, estimate, seed=cfg.seed)
    tell("checking", 1.0)
    clock.lap("checks")
    problem = solver.problem
    posterior = Posterior(problem.unknowns, estimate.theta, estimate.covariance, draws)
    verdict = judge(*_of(problem, asked, estimate, softness))
    kinds = {m.kind for x in matched for m in x.measured}
    forced = bool(kinds & {"joint_effort", "touch", "wrench"})
    lifted = any(r.plan.get("plan") == "Lift" for r in moved)
    status = status_of(
        verdict,
        asked=asked,
        moved="pushed" if forced else "free",
        lifted=lifted,
        notes=doubts(solver, estimate),
    )
    return Fit(
        solver, estimate, start, posterior, verdict, before, status, calibration, asked, tuple(notes),
        {"held_out": ahead, "sampling": check}, clock.laps,
    )  # fmt: skip


def open_scene(twin: Twin | str | Path, recordings: Sequence[Recording], cfg: IdentifyCfg) -> Scene:
    """Opens the twin with the robot of the recordings in it, or any MJCF file as it is.

    Raises:
        InputError: The recordings are of different robots.
    """
    if not isinstance(twin, Twin):
        scene = Scene.open(twin, max_delay_s=0.0)
        # A contact that sets in at once makes what slides hop in simulation, and its motion a matter of chance.
        scene.model.geom_solimp[:, 0] = 0.0
        scene.model.pair_solimp[:, 0] = 0.0
        return scene
    robots = {json.dumps([r.robot.get("name"), r.robot.get("T_world_base")]): r.robot for r in recordings if r.robot}
    if len(robots) > 1:
        names = ", ".join(sorted({str(r.get("name")) for r in robots.values()}))
        raise InputError(f"the recordings are of different robots, or of one that stood elsewhere ({names}): choose")
    parts: list[Any] = [ModelFile(twin.path / "scene.xml")]
    for robot in robots.values():
        base = np.asarray(robot.get("T_world_base", np.eye(4)), dtype=np.float64)
        parts.append(Robot(load(str(robot["name"])), base))
    return compose(*parts, cfg=SceneCfg(timestep_s=cfg.timestep_s, max_delay_s=0.0, noslip_iterations=3))


def _chosen(capture: Capture, cfg: IdentifyCfg) -> list[Recording]:
    for name in (*cfg.recordings, *cfg.held_out):
        capture.recording(name)
    if cfg.recordings:
        return [capture.recording(name) for name in cfg.recordings]
    usable = [r for r in capture.recordings.values() if r.streams]
    if not usable:
        raise InputError(f"{capture.path} holds no recording with streams: record a push first")
    return usable


def _still_joints(scene: Scene, recordings: Sequence[Recording]) -> dict[str, float]:
    """Returns joints that were told to stay in one place in all recordings, and whose fingers touched nothing.

    Most of a hand does nothing in a push; held fast it need not be simulated.
    """
    model = scene.model
    places: dict[str, list[float]] = {}
    busy: set[int] = set()
    for r in recordings:
        for s in r.of_kind("touch"):
            for k, name in enumerate(s.info.channels):
                sensor = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)
                if sensor < 0 or np.percentile(s.value[:, k], 99) > TOUCHED_N:
                    body = int(model.site_bodyid[model.sensor_objid[sensor]]) if sensor >= 0 else 0
                    while body:
                        busy.add(body)
                        body = int(model.body_parentid[body])
        if not r.of_kind("touch") or not r.of_kind("joint_position"):
            return {}
        command, position = r.of_kind("joint_command"), r.of_kind("joint_position")
        for s in command:
            for k, name in enumerate(s.info.channels):
                still = float(np.ptp(s.value[:, k])) < _STILL and name in position[0].info.channels
                where = position[0].value[:, position[0].info.channels.index(name)] if still else np.array([np.nan])
                places.setdefault(name, []).append(float(np.mean(where)))
    out = {}
    for name, where in places.items():
        joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
        if joint >= 0 and int(model.jnt_bodyid[joint]) not in busy and np.ptp(where) < 10 * _STILL:
            out[name] = float(np.mean(where))
    return out


def _pressed(
    twin: Twin | str | Path,
    scene: Scene,
    presses: Sequence[Recording],
    chosen: Sequence[Recording],
    calibration: Calibration | None,
    cfg: IdentifyCfg,
    tell: Progress,
) -> Pressed:
    """Finds how soft fingertips are, with what does not move in the presses held fast."""
    if cfg.tool:
        raise InputError(f"{cfg.tool} follows its measured pose, so that presses tell nothing: leave them out")
    tell("finding how soft fingertips are", 0.0)
    still = _still_joints(scene, presses)
    scenes = [scene]
    if isinstance(twin, Twin):
        scenes.append(open_scene(twin, chosen, replace(cfg, timestep_s=0.5 * cfg.timestep_s)))
    scenes = [freeze(s, still) if still else s for s in scenes]
    return pressed(
        scenes[0],
        presses,
        calibration,
        finer=scenes[1] if len(scenes) > 1 else None,
        held=set(still),
        tell=lambda done: tell("finding how soft fingertips are", done),
    )


def _matched(
    scene: Scene,
    recording: Recording,
    cfg: IdentifyCfg,
    held: set[str],
    tell: Progress,
    twin: Twin | str | Path,
) -> Matched:
    scanned = twin if isinstance(twin, Twin) and twin.header.meta.get("geometry") == "scanned" else None
    poses = [i for i in recording.streams.values() if i.kind == "pose" and i.about != cfg.tool]
    # A pose that was recorded is that of the rig's own axes in the object, which a scan knows nothing of.
    if scanned and poses and not recording.videos:
        raise InputError(
            f"recording {recording.name!r} has a pose but no video: where its axes lie in a scanned twin is not known; "
            f"record with a camera"
        )
    if recording.videos and (cfg.from_video or not poses or scanned):
        splats, seen_at = None, None
        if scanned and "object" in scene.roles:
            splats = SplatAppearance.of(scanned, scene.model.body(scene.roles["object"].bodies[0]).name)
            said = scanned.header.meta.get("T_world_object_rough")
            seen_at = None if said is None else np.asarray(said, dtype=np.float64)
        tracked, whiten, notes = watch(scene, recording, tell, splats=splats, seen_at=seen_at)
        found = match(scene, recording, extra=[tracked], tools=(cfg.tool,) if cfg.tool else (), held=held)
        keep = [m for m in found.measured if not m.is_pose or m.stream == tracked.info.name]
        own = recording.name if scanned else ""
        keep = [replace(m, whiten=whiten, own_bias=own) if m.is_pose else m for m in keep]
        return replace(found, measured=tuple(keep), notes=(*found.notes, *notes))
    return match(scene, recording, tools=(cfg.tool,) if cfg.tool else (), held=held)


def _unknowns(
    scene: Scene,
    asked: Sequence[str],
    matched: Sequence[Matched],
    calibration: Calibration | None,
    softness: Pressed | None,
    cfg: IdentifyCfg,
) -> tuple[list[Unknown], list[str]]:
    """Lists what is to be found: what was asked for, what the robot's calibration left open, and nuisances."""
    unknowns = {name: model_unknown(scene, name) for name in asked}
    notes: list[str] = []
    told = {u.name: u for u in _told(calibration, softness)}
    notes += [] if softness is None else softness.notes
    for m in (m for x in matched for m in x.measured):
        if m.clock and m.clock not in unknowns:
            same = m.clock == f"clock.{m.stream}"
            clock = clock_unknown(m.clock.removeprefix("clock."), same=same)
            late = m.kind in ("joint_effort", "touch")
            unknowns[m.clock] = replace(clock, sd=np.array([LATENCY_SD_S])) if late else clock
        name = f"gain.{m.stream}"
        if m.stream in cfg.gains and name not in unknowns:
            unknowns[name] = gain_unknown(m.stream, EFFORT_SD)
            if name not in told and m.kind == "joint_effort":
                notes.append(
                    f"the robot was not calibrated: {m.stream} is trusted to {100 * EFFORT_SD:.0f} % only; record "
                    f"dexloop capture free-motion"
                )
        if m.is_pose and m.clock and f"bias.{m.biased}" not in unknowns:
            sd = np.array(SCAN_BIAS if m.own_bias else POSE_BIAS)
            bias = bias_unknown(m.biased, m.channels, "m, rad", sd)
            unknowns[bias.name] = bias
    unknowns |= {name: u for name, u in told.items() if name in unknowns or u.simulated}
    return with_priors(list(unknowns.values()), cfg.priors), list(dict.fromkeys(notes))


def _told(calibration: Calibration | None, softness: Pressed | None) -> tuple[Unknown, ...]:
    """Returns what is known before the object is looked at."""
    return (*(calibration.unknowns if calibration else ()), *(softness.unknowns if softness else ()))


def _prior(problem: Problem, calibration: Calibration | None) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """Returns the prior of all unknowns, what the calibration told with its correlations."""
    precision = np.diag(problem.prior_sd**-2)
    if calibration is not None:
        keep, rows = [], []
        for u in calibration.unknowns:
            if u.name in {v.name for v in problem.unknowns}:
                own, here = calibration.problem.where(u.name), problem.where(u.name)
                keep += range(own.start, own.stop)
                rows += range(here.start, here.stop)
        precision[np.ix_(rows, rows)] = np.linalg.inv(calibration.covariance[np.ix_(keep, keep)])
    return problem.prior_mean, precision


def _held(problem: Problem, calibration: Calibration | None, softness: Pressed | None) -> Array:
    """Says which unknowns calibration and presses have told, so that pushes need not look for them again."""
    held = np.zeros(problem.size, dtype=bool)
    for u in _told(calibration, softness):
        if u.simulated and u.name in {v.name for v in problem.unknowns}:
            held[problem.where(u.name)] = True
    return held


def _of(
    problem: Problem, names: Sequence[str], estimate: Estimate, softness: Pressed | None
) -> tuple[list[Unknown], Float[Array, " p"], Float[Array, "p p"]]:
    """Cuts some unknowns out of an estimate, with what was known of them before anything was recorded."""
    first = {} if softness is None else {softness.before.name: softness.before.sd}
    unknowns = [replace(u, sd=first.get(u.name, u.sd)) for u in problem.unknowns if u.name in names]
    keep = [i for u in unknowns for i in range(problem.where(u.name).start, problem.where(u.name).stop)]
    return unknowns, estimate.theta[keep], estimate.covariance[np.ix_(keep, keep)]


def _write(draft: Draft, fit: Fit) -> None:
    problem, posterior = fit.problem, fit.posterior
    values = posterior.values(posterior.sample(512, np.random.default_rng(0)))
    save_arrays(
        draft.folder / "posterior.npz",
        mean=posterior.mean,
        covariance=posterior.covariance,
        samples=values,
    )
    save_arrays(draft.folder / "traces.npz", **traces(fit.solver, fit.estimate, fit.start, posterior))
    report = summary(fit)
    sensors = [s.to_json() for s in sensors_of(problem, fit.estimate)]
    draft.meta |= {"labels": list(problem.labels), "sensors": sensors, **report}
    draft.status = fit.status
    write_text(draft.folder / "identify.json", json.dumps(report, indent=1, ensure_ascii=False))


def summary(fit: Fit) -> dict[str, Any]:
    """Returns the result as plain JSON: what `--json` prints and `meta` of the belief holds."""
    mean, sd, interval = fit.posterior.summary()
    problem = fit.problem
    rows: dict[str, dict[str, Any]] = {}
    at = 0
    for u in problem.unknowns:
        for k, label in enumerate(u.labels):
            rows[label] = {
                "mean": float(mean[at]),
                "sd": float(sd[at]),
                "interval": [float(interval[0, at]), float(interval[1, at])],
                "unit": u.unit.split(", ")[0 if k < 3 else -1],
                "prior": u.describe_prior(),
            }
            at += 1
    parameters = {
        label: {**rows[label], "identifiable": fit.verdict.identifiable[label]}
        for u in problem.unknowns
        if u.name in fit.asked
        for label in u.labels
    }
    clocks = {
        u.name.removeprefix("clock."): {
            "offset_s": rows[u.name]["mean"],
            "sd_s": rows[u.name]["sd"],
            "interval_s": rows[u.name]["interval"],
        }
        for u in problem.unknowns
        if u.name.startswith("clock.")
    }
    others = {label: row for label, row in rows.items() if label not in parameters and not label.startswith("clock.")}
    return {
        "status": fit.status.level.value,
        "code": fit.status.code,
        "text": fit.status.message,
        "action": fit.status.action,
        "parameters": parameters,
        "combinations": [
            {"name": c.words, "value": c.value, "sd": c.value * c.sd, "interval": list(c.interval), "unit": c.unit}
            for c in fit.verdict.combinations
        ],
        "clocks": clocks,
        "nuisances": others,
        "directions": [{"name": d.words, "left": d.share} for d in fit.verdict.directions],
        "before": {
            "identifiable": fit.before.identifiable,
            "directions": [{"name": d.words, "left": d.share} for d in fit.before.directions],
        },
        "checks": dict(fit.checks),
        "notes": list(fit.notes),
        "seconds": {k: round(v, 3) for k, v in fit.seconds.items()},
    }
