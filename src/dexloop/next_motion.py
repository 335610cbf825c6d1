"""Which motion to record next: the capture planner's motions, ranked by what they are expected to tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.capture.bench import Bench, picture
from dexloop.capture.motions import plan_motion
from dexloop.capture.plans import Lift, Push, describe
from dexloop.core import se3
from dexloop.core.artifact import load_arrays
from dexloop.core.artifacts import Belief, Twin
from dexloop.core.capture import Capture, Recording
from dexloop.core.errors import InputError
from dexloop.core.run import Run
from dexloop.identify.calibrate import is_free_motion
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.design import Candidate, Design, Sensor, design, joined, sensors_before, sensors_of
from dexloop.identify.posterior import Posterior
from dexloop.identify.press import is_press
from dexloop.identify.segments import LEAD_S, LONGEST_S
from dexloop.identify.stage import POSE_BIAS, Fit, open_scene
from dexloop.identify.streams import POSE_AXES, match
from dexloop.identify.unknowns import Unknown, bias_unknown, clock_unknown, gain_unknown, model_unknown
from dexloop.rig.protocol import CommandInfo, Features
from dexloop.rig.recorder import open_capture
from dexloop.robots.catalog import load
from dexloop.sim.scene import Scene

Array = np.ndarray
Progress = Callable[[str, float], None]

SPEEDS_M_S = (0.1, 0.3, 0.6)
TURN_RAD = 0.6
"""Between directions of pushes."""
COAST_S = 0.3
"""How long after the finger has let go the object is still watched: it has come to rest by then [s]."""
_CLOSING_S = 0.15
"""A hand that closes around an object has not moved by a millimetre before [s]."""
_VIDEO_NOISE = (5e-4,) * 3 + (5e-3,) * 3
"""Of a pose that was tracked in a video, where no fit has told better [m, rad]."""


def plan_next(
    run: Run | str | Path,
    *,
    cfg: IdentifyCfg = IdentifyCfg(),  # noqa: B008 - frozen
    samples: int = 4,
    plans: Sequence[Push | Lift] | None = None,
    progress: Progress | None = None,
) -> Design:
    """Says which motion to record next for a run that has been identified.

    Args:
        run: With a capture, a twin and a belief in it.
        cfg: Its `parameters` are those that are wanted; by default all that were identified.
        samples: Draws of the belief.
        plans: Motions to choose from; by default `standard_plans`.
        progress: Told what is going on.

    Returns:
        The motions, the best first, and why others cannot be done.

    Raises:
        InputError: The run lacks a stage, or its robot can do none of the motions.
        UnknownName: A parameter that is asked for was not identified.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    for stage in ("capture", "twin", "identify"):
        if not run.has(stage):
            raise InputError(f"{run.path} has no {stage} yet: run dexloop {stage} first")
    twin, belief = Twin.open(run.stage_path("twin")), Belief.open(run.stage_path("identify"))
    recorded = open_capture(run.stage_path("capture"))
    return plan_after(twin, recorded, belief, cfg=cfg, samples=samples, plans=plans, progress=progress)


def plan_after(
    twin: Twin,
    capture: Capture,
    found: Belief | Fit,
    *,
    cfg: IdentifyCfg = IdentifyCfg(),  # noqa: B008 - frozen
    samples: int = 4,
    plans: Sequence[Push | Lift] | None = None,
    progress: Progress | None = None,
) -> Design:
    """Does the same for artefacts anywhere, or for a fit that is still in memory."""
    moved = [r for r in capture.recordings.values() if r.streams and not is_free_motion(r) and not is_press(r)]
    if not moved:
        raise InputError(f"{capture.path} has no recording of the object being moved: record a push first")
    scene = open_scene(twin, moved, cfg)
    before = sensors_before(scene, [match(scene, r) for r in moved])
    if isinstance(found, Fit):
        posterior, known = found.posterior, found.asked
        sensors = joined(before, sensors_of(found.problem, found.estimate))
    else:
        posterior, meta = _posterior(scene, found), found.header.meta
        known = tuple(u.name for u in posterior.unknowns if u.labels[0] in meta["parameters"])
        told = tuple(Sensor.from_json(s) for s in meta.get("sensors", ()))
        sensors = joined(before, told or _tracked(scene, moved, posterior.unknowns))
    if progress is not None:
        progress("planning motions", 0.0)
    able, unable = candidates(moved[-1], plans)
    if progress is not None:
        progress("planning motions", 1.0)
    if not able:
        raise InputError(f"the robot can do none of the motions here: {next(iter(unable.values()), 'none was given')}")
    asked = cfg.parameters or known
    chosen = design(scene, posterior, able, sensors, asked=asked, samples=samples, seed=cfg.seed, progress=progress)
    return Design(chosen.ranked, {**unable, **chosen.left_out})


def to_json(found: Design) -> dict[str, Any]:
    """Returns plain JSON values: the ranking, each motion with the command that records it."""
    out = found.to_json()
    for row in out["ranked"]:
        row["command"] = command_line(row["plan"])
    return out


def command_line(plan: dict[str, Any]) -> str:
    """Returns the command that records a plan, given as `capture.plans.describe` does."""
    kind = {"Push": Push, "Lift": Lift}[plan["plan"]]
    words = [f"dexloop capture {kind.__name__.lower()}"]
    for f in fields(kind):
        value = plan[f.name]
        if value == f.default:
            continue
        flag = f.name.replace("_", "-")
        words.append((f"--{flag}" if value else f"--no-{flag}") if isinstance(value, bool) else f"--{flag} {value:g}")
    return " ".join(words)


def standard_plans(height_m: float, width_m: float) -> tuple[Push | Lift, ...]:
    """Returns pushes at several speeds, heights, directions and beside the middle, and a lift.

    Args:
        height_m: Of the object [m].
        width_m: Of its narrow side [m].
    """
    low = min(0.03, 0.5 * height_m)
    slow, middling, fast = (Push(speed_m_s=v, height_m=low, distance_m=0.07) for v in SPEEDS_M_S)
    slow = replace(slow, distance_m=0.05)
    high = 0.85 * height_m
    beside = 0.3 * width_m
    return (
        slow,
        middling,
        fast,
        replace(fast, direction_rad=TURN_RAD),
        replace(fast, direction_rad=-TURN_RAD),
        replace(middling, direction_rad=2 * TURN_RAD),
        replace(middling, offset_m=beside),
        replace(fast, offset_m=-beside),
        replace(fast, release=False),
        replace(slow, height_m=high, distance_m=0.04),
        replace(middling, height_m=high, distance_m=0.04),
        Lift(),
    )


def candidates(
    recording: Recording, plans: Sequence[Push | Lift] | None = None
) -> tuple[list[Candidate], dict[str, str]]:
    """Plans motions for the robot and the place of a recording.

    Args:
        recording: Tells the robot, where it stands, how often it is commanded and where the object rests.
        plans: What to plan; by default `standard_plans`.

    Returns:
        Those that the robot can do, and why it cannot do the others.

    Raises:
        InputError: The recording does not say where the object is, or has no robot that can be planned for.
    """
    bench, rate_hz = _bench(recording)
    box = bench.object_at()
    wanted = standard_plans(box.height_m, box.narrow_axis()[1]) if plans is None else plans
    T_world_object = _resting(recording, bench)
    found: list[Candidate] = []
    left_out: dict[str, str] = {}
    for k, plan in enumerate(wanted):
        words = say(plan)
        try:
            motion = plan_motion(plan, bench, rate_hz)
        except InputError as error:
            left_out[words] = str(error)
            continue
        if isinstance(plan, Push):
            start, end = motion.markers["contact_expected"] - LEAD_S, motion.markers["release"] + COAST_S
        else:
            start, end = _CLOSING_S, motion.markers["hold"] + LEAD_S
        end = min(end, start + LONGEST_S)
        name = f"{type(plan).__name__.lower()}_{k + 1}"
        found.append(
            Candidate(
                name, words, bench.robot.joints, motion.action, rate_hz, start, end, T_world_object, describe(plan)
            )
        )
    return found, left_out


def say(plan: Push | Lift) -> str:
    """Says a plan in words."""
    if isinstance(plan, Lift):
        return f"lift by {1e3 * plan.height_m:.0f} mm and hold for {plan.hold_s:g} s"
    words = [f"push at {plan.speed_m_s:g} m/s", f"{1e3 * plan.height_m:.0f} mm high"]
    if plan.direction_rad:
        side = "left" if plan.direction_rad > 0 else "right"
        words.append(f"{abs(np.rad2deg(plan.direction_rad)):.0f}° to the {side}")
    if plan.offset_m:
        side = "left" if plan.offset_m > 0 else "right"
        words.append(f"{1e3 * abs(plan.offset_m):.0f} mm {side} of its middle")
    if not plan.release:
        words.append("without letting it coast")
    return ", ".join(words)


def _bench(recording: Recording) -> tuple[Bench, float]:
    """Returns the planner's bench as the recording's rig described it, and how often it is commanded [Hz]."""
    commands = [s for s in recording.streams.values() if s.kind == "joint_command"]
    if not recording.robot or not commands:
        raise InputError(
            f"recording {recording.name!r} has no robot that was commanded: motions can be planned for a robot only"
        )
    robot = load(str(recording.robot["name"]))
    rate_hz = commands[0].rate_hz or 1.0 / float(np.median(np.diff(recording.stream(commands[0].name).t)))
    limits = tuple((float(a), float(b)) for a, b in robot.position_limits)
    command = CommandInfo(
        tuple(commands[0].channels), tuple(robot.units), limits, tuple(robot.speed_limits.tolist()),
        tuple(robot.effort_limits.tolist()), tuple(robot.home.tolist()), rate_hz,
    )  # fmt: skip
    return picture(Features(robot.name, recording.robot, (), (), command, recording.scene)), rate_hz


def _resting(recording: Recording, bench: Bench) -> Float[Array, "4 4"]:
    """Returns where the object rested when the recording began, or where the rig roughly says that it is."""
    poses = [s for s in recording.of_kind("pose") if s.info.about in ("", "object") and len(s.t)]
    if poses:
        return se3.from_pose(poses[0].value[0])
    assert bench.T_world_object is not None
    return bench.T_world_object


def _tracked(scene: Scene, recordings: Sequence[Recording], unknowns: Sequence[Unknown]) -> tuple[Sensor, ...]:
    """Returns the pose that is tracked in videos, if the belief comes from one, with a rough noise level."""
    videos = [v for r in recordings for v in r.videos.values()]
    streams = {s for r in recordings for s in r.streams}
    names = [u.name.removeprefix("bias.") for u in unknowns if u.name.startswith("bias.")]
    return tuple(
        Sensor(
            name, "pose", f"clock.{videos[0].clock}", "qpos", (scene.model.body(scene.roles["object"].bodies[0]).name,),
            POSE_AXES, videos[0].fps, 1, np.array(_VIDEO_NOISE), np.full(len(POSE_AXES), 5.0),
        )
        for name in names
        if name not in streams and videos
    )  # fmt: skip


def _posterior(scene: Scene, belief: Belief) -> Posterior:
    data = load_arrays(belief.path / "posterior.npz")
    return Posterior(_unknowns(scene, belief.header.meta["labels"]), data["mean"], data["covariance"])


def _unknowns(scene: Scene, labels: Sequence[str]) -> tuple[Unknown, ...]:
    """Makes the unknowns of a belief again from the labels of their components."""
    found: list[Unknown] = []
    at = 0
    while at < len(labels):
        label = labels[at]
        kind, _, rest = label.partition(".")
        if kind == "clock":
            unknown = clock_unknown(rest, same=False)
        elif kind == "gain":
            unknown = gain_unknown(rest, 1.0)
        elif kind == "bias":
            stream = rest.rpartition(".")[0]
            unknown = bias_unknown(stream, POSE_AXES, "m, rad", np.array(POSE_BIAS))
        else:
            whole = label.rpartition(".")[0]
            unknown = model_unknown(scene, whole if whole.endswith((".com", ".inertia")) else label)
        if tuple(labels[at : at + unknown.size]) != unknown.labels:
            raise InputError(f"the belief does not fit the model: {label} is not where it should be; identify again")
        found.append(unknown)
        at += unknown.size
    return tuple(found)
