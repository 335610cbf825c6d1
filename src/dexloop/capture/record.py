"""The verb `capture`: carry out plans on a rig and keep what it observed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.capture.bench import Bench, picture
from dexloop.capture.checks import check
from dexloop.capture.motions import Motion, plan_motion
from dexloop.capture.plans import FreeMotion, HumanVideo, Lift, Plan, Press, Push, Scan, describe
from dexloop.core.artifact import require_free
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError
from dexloop.rig.guarded import Guarded
from dexloop.rig.protocol import Observation, Operator, Rig
from dexloop.rig.recorder import Recorder

Progress = Callable[[str, float], None]
"""Is told what is going on and how much of it is done, from 0 to 1."""

_OBSERVE_S = 0.1
"""How often what arrived is written down."""
_FEEL_S = 0.02
"""How often while something is put down."""
_MET, _MET_N = 1.5, 2.0
"""It has met the table where a fingertip feels so many times what it felt before, and so much more [N]."""
_NOTHING_N = 0.5
"""Where all fingertips feel less there is nothing in the hand [N]."""
_NAMES = {
    Scan: "scan", FreeMotion: "free_motion", Press: "press", Push: "push", Lift: "lift", HumanVideo: "human",
}  # fmt: skip


def capture(
    rig: Rig,
    plans: Plan | Sequence[Plan],
    out: str | Path,
    *,
    replace: bool = False,
    progress: Progress | None = None,
) -> Capture:
    """Carries out plans one after another and records each.

    Before every plan that goes near the object the operator puts it back into its place, where the rig has one.

    Args:
        rig: Where it happens; connected here, and let go at the end whatever happens. What moves it goes through the
            safety gate.
        plans: One or several, see `dexloop.capture.plans`.
        out: Where the Capture shall be.
        replace: Put it in the place of one that is there.
        progress: Told what is going on.

    Returns:
        The Capture; its status is the worst of what the checks found.

    Raises:
        InputError: A plan cannot be carried out here; nothing has moved, for all are planned before the first one.
        HaltError: The rig stopped; what was recorded until then is kept.
    """
    plans = [plans] if isinstance(plans, Plan) else list(plans)
    if not plans:
        raise InputError("there is nothing to record: give at least one plan")
    require_free(Path(out), Capture, replace=replace)
    tell = progress or (lambda _text, _done: None)
    names = _names(plans)
    motions = _plan_all(rig, plans, names, tell)
    if any(motion is not None for motion in motions):
        rig = Guarded(rig)
    with Recorder(out, rig.features, replace=replace) as recorder:
        try:
            rig.connect()
            for plan, name, motion in zip(plans, names, motions, strict=True):
                if motion is None:
                    _film(rig, plan, name, recorder, tell)
                else:
                    _move(rig, plan, name, motion, recorder, tell)
        except BaseException:
            rig.stop()
            raise
        finally:
            rig.disconnect()
    assert recorder.capture is not None
    return recorder.capture


def _plan_all(rig: Rig, plans: Sequence[Plan], names: Sequence[str], tell: Progress) -> list[Motion | None]:
    bench: Bench | None = None
    motions: list[Motion | None] = []
    for plan, name in zip(plans, names, strict=True):
        if isinstance(plan, Scan | HumanVideo):
            _operator(rig, plan)
            motions.append(None)
            continue
        tell(f"planning {name}", 0.0)
        bench = bench or picture(rig.features)
        assert rig.features.command is not None
        motions.append(plan_motion(plan, bench, rig.features.command.rate_hz))
        tell(f"planning {name}", 1.0)
    return motions


def _move(rig: Rig, plan: Plan, name: str, motion: Motion, recorder: Recorder, tell: Progress) -> None:
    operator = getattr(rig, "operator", None)
    if isinstance(plan, Press | Push | Lift) and isinstance(operator, Operator):
        operator.place_object()
    _drive(rig, motion.approach, None, lambda done: tell(f"{name}: approach", done))
    rig.observe()  # what came before is not part of the recording
    # Of a robot that moves alone its joints tell everything: pictures would only take time and room.
    alone = isinstance(plan, FreeMotion | Press)
    recorder.start(name, plan=describe(plan), videos=() if alone else None)
    begin = rig.now()
    home = _act(
        rig, motion, lambda seen: recorder.append(changed(seen, frames={}) if alone else seen),
        lambda done: tell(name, done),
    )  # fmt: skip
    recorder.finish_recording(check, {k: begin + t for k, t in motion.markers.items()})
    _drive(rig, home, None, lambda done: tell(f"{name}: retreat", done))


def _act(
    rig: Rig, motion: Motion, note: Callable[[Observation], None], tell: Callable[[float], None]
) -> Float[np.ndarray, "c n"]:
    """Does what is recorded, and returns the way home from there.

    What has slipped in the hand meets the table before it should: where fingertips feel that, it is let go of there,
    and not pressed onto the table. If nothing is left in the hand, it does not go down.
    """
    touch, down = next((s.name for s in rig.features.streams if s.kind == "touch"), None), motion.put_down
    if down is None or touch is None:
        _drive(rig, motion.action, note, tell)
        return motion.retreat
    before, lowering, after = np.split(motion.action, [down.lowering.start, down.lowering.stop])
    held, met = 0.0, False

    def feel(seen: Observation) -> float:
        samples = seen.samples.get(touch)
        return float(samples.value.max()) if samples is not None and len(samples.t) else held

    def holds(seen: Observation) -> bool:
        nonlocal held
        held = feel(seen)
        return False

    def meets(seen: Observation) -> bool:
        nonlocal met
        met = held < _NOTHING_N or feel(seen) > _MET * held + _MET_N
        return met

    ends = np.cumsum([len(before), len(lowering)]) / len(motion.action)
    _drive(rig, before, note, lambda done: tell(done * ends[0]), until=holds)
    sent = _drive(
        rig, lowering, note, lambda done: tell(ends[0] + done * (ends[1] - ends[0])), until=meets, every_s=_FEEL_S
    )  # fmt: skip
    rest = down.let_go(motion.action, down.lowering[sent - 1]) if met else after
    _drive(rig, rest, note, lambda done: tell(ends[1] + done * (1.0 - ends[1])))
    return down.retreat if met else motion.retreat


def _drive(
    rig: Rig,
    targets: Float[np.ndarray, "m n"],
    note: Callable[[Observation], None] | None,
    tell: Callable[[float], None],
    *,
    until: Callable[[Observation], bool] = lambda _seen: False,
    every_s: float = _OBSERVE_S,
) -> int:
    """Sends a target every control period, on the rig's own time, until something is observed or all are sent; returns
    how many were."""
    command = rig.features.command
    assert command is not None
    begin, every = rig.now(), max(round(every_s * command.rate_hz), 1)
    for k, target in enumerate(targets):
        rig.send(target)
        rig.sleep(max(begin + (k + 1) / command.rate_hz - rig.now(), 0.0))
        if (k + 1) % every == 0 or k == len(targets) - 1:
            observation = rig.observe()
            if note is not None:
                note(observation)
            tell((k + 1) / len(targets))
            if until(observation):
                return k + 1
    return len(targets)


def _film(rig: Rig, plan: Plan, name: str, recorder: Recorder, tell: Progress) -> None:
    operator = _operator(rig, plan)
    assert isinstance(plan, Scan | HumanVideo)
    shoot = operator.scan if isinstance(plan, Scan) else operator.demonstrate
    info, frames = shoot(duration_s=plan.duration_s, fps=plan.fps)
    recorder.start(name, plan=describe(plan), streams=(), videos=(info,))
    expected = max(round(plan.duration_s * plan.fps), 1)
    for k, frame in enumerate(frames):
        recorder.append_frames(info.name, frame)
        tell(name, min((k + 1) / expected, 1.0))
    recorder.finish_recording(check)


def _operator(rig: Rig, plan: Plan) -> Operator:
    operator: Any = getattr(rig, "operator", None)
    if not isinstance(operator, Operator):
        raise InputError(
            f"rig {rig.features.name!r} has nobody to film a {type(plan).__name__}: film it yourself and bring it with "
            f"`dexloop capture import VIDEO.mp4`"
        )
    return operator


def _names(plans: Sequence[Plan]) -> list[str]:
    """Gives each plan a name, numbered where a kind appears more than once."""
    kinds = [_NAMES[type(plan)] for plan in plans]
    return [kind if kinds.count(kind) == 1 else f"{kind}_{kinds[:k].count(kind) + 1}" for k, kind in enumerate(kinds)]
