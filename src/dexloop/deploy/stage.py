"""A policy on a rig: trials by a protocol, behind the safety gate, with everything recorded."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.artifact import HEADER, require_free, storage_errors, write_text, writing
from dexloop.core.artifacts import Belief, Episodes, Policy, Twin
from dexloop.core.capture import Capture
from dexloop.core.errors import HaltError, InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.deploy.cfg import DeployCfg
from dexloop.deploy.doers import Doer, PolicyDoer
from dexloop.deploy.senses import POSE, Senses, channels_of, mean_pose, pose_clock
from dexloop.deploy.trial import Moments, attempt, road
from dexloop.policy.bundle import open_policy
from dexloop.policy.rehearsal import Stage
from dexloop.policy.start import Start
from dexloop.policy.threads import one_thread
from dexloop.policy.trials import PILOT_SHARE, Trial, finite, plain_load
from dexloop.rig.events import Reason
from dexloop.rig.gate import Gate
from dexloop.rig.guarded import Guarded, palm_of
from dexloop.rig.layout import link_or_copy
from dexloop.rig.limits import Limits
from dexloop.rig.protocol import Operator, Rig
from dexloop.rig.recorder import Recorder
from dexloop.robots.outcome import HELD, LATE, MISSED, STOPPED, Outcome, outcome
from dexloop.robots.pickup import Load
from dexloop.robots.shake import Shake
from dexloop.robots.staging import open_scene, place_of, standing
from dexloop.robots.traces import traces
from dexloop.sim.believed import mean_of

Progress = Callable[[str, float], None]
Witness = Callable[[int, str], None]
"""Told the trial's number, and "gripped" when a lift begins or "ended" before the object is put down: for scoring."""
_LOOK_S = 0.3
"""How long the object is looked at before a trial [s]."""


def deploy(
    policy: Policy,
    twin: Twin,
    belief: Belief,
    rig_of: Callable[[int], Rig],
    out: str | Path,
    *,
    cfg: DeployCfg = DeployCfg(),  # noqa: B008 - frozen
    load: Load | None = None,
    replace: bool = False,
    witness: Witness = lambda _number, _what: None,
    progress: Progress | None = None,
) -> Episodes:
    """Tries a policy on a rig.

    One that was killed goes on with the first trial that is not complete.

    Args:
        policy: To be tried.
        twin: Of the object.
        belief: What the policy is told of it.
        rig_of: Gives the rig for a trial, by its number: at a real bench always the same one. It is connected here, and
            let go after each trial whatever happens.
        out: Where the episodes shall be.
        cfg: How.
        load: What the policy is told instead, such as a guess.
        replace: Put them in the place of some that are there.
        witness: Told what happens when, for scoring.
        progress: Told what is going on.

    Raises:
        InputError: Policy, twin and rig do not fit each other, and nothing has moved; or the object does not stand.
        HaltError: The rig stopped outside of a trial.
    """
    require_free(Path(out), Episodes, replace=replace)
    tell = progress or (lambda _text, _done: None)
    features = rig_of(1).features
    robot, base, scene = open_scene(twin, features.robot)
    brain, start = open_policy(policy), Start.of(policy)
    brain.contract.check(robot)
    if features.command is None:
        raise InputError(f"rig {features.name!r} takes no commands: no policy can move it")
    brain.contract.check_command(features.command)
    channels_of(features, robot)
    thing = scene.model.body(scene.roles["object"].bodies[0]).name
    if thing not in brain.points:
        raise InputError(f"{policy.path} was trained for {', '.join(brain.points)}, not for {thing}")
    stands = features.scene.get("object", thing)
    if stands != thing:
        raise InputError(
            f"the twin is of {thing}, and before {features.name} stands {stands}: put {thing} there, or name it so in "
            "the rig's features.scene"
        )
    told = load or Load.of(belief, crush_n=float(features.scene.get("crush_force_n") or np.inf))
    stage = Stage(scene, robot, thing, base, brain.points[thing])
    late = mean_of(belief, pose_clock(features), otherwise=0.0)
    scanned = twin.header.meta.get("geometry") == "scanned"
    bench = _Bench(rig_of, stage, cfg, scanned=scanned, pose_late_s=late, load=told, witness=witness)
    work = Path(out).with_name(Path(out).name + ".trials")
    _require_same(work, {"policy": policy.hash, "twin": twin.hash, "belief": belief.hash, "load": plain_load(told),
                         "asked": asdict(cfg)})  # fmt: skip

    def doer_at(T_world_object: np.ndarray, pace: float) -> Doer:
        return PolicyDoer(brain, start, stage, T_world_object, told, pace=pace)

    ended = ""
    trials: list[Trial] = []
    for k, shift in enumerate(_shifts(cfg)):
        tell("trials", k / cfg.trials)
        found = _read(work, k + 1)
        if found is None:
            with one_thread():
                found = bench.run(k + 1, shift, doer_at, _fresh(work, k + 1))
            with storage_errors(work):
                write_text(work / f"{k + 1:02d}.json", json.dumps(asdict(found), indent=1, ensure_ascii=False))
        bench.T_track_object = np.array(found.T_track_object)
        trials.append(found)
        ended = "" if cfg.shadow else _over(trials, cfg) or bench.refuses(found)
        if ended:
            break
    tell("trials", 1.0)
    inputs: dict[str, Any] = {"policy": policy, "twin": twin, "belief": belief}
    with writing(out, Episodes, inputs=inputs, seed=cfg.trial_seed, replace=replace) as draft:
        for trial in trials:
            source = work / f"{trial.number:02d}"
            for file in sorted(p for p in source.rglob("*") if p.is_file()):
                link_or_copy(file, draft.folder / "trials" / source.name / file.relative_to(source))
        write_text(draft.folder / "trials.json", json.dumps([asdict(t) for t in trials], indent=1, ensure_ascii=False))
        held = sum(t.outcome["verdict"] == "held" for t in trials)
        draft.meta |= {
            "robot": robot.name, "object": thing, "trials": len(trials), "held": held, "load": plain_load(told),
            "asked": asdict(cfg), "pose_late_s": late,
        }  # fmt: skip
        draft.status = _status(held, trials, cfg, ended, _outside(policy, told))
    shutil.rmtree(work, ignore_errors=True)
    return Episodes.open(out)


class _Bench:
    """Guarded rigs with an object before them, one trial after another."""

    def __init__(
        self,
        rig_of: Callable[[int], Rig],
        stage: Stage,
        cfg: DeployCfg,
        *,
        scanned: bool,
        pose_late_s: float,
        load: Load,
        witness: Witness,
    ):
        self._rig_of, self._stage, self._cfg, self._load = rig_of, stage, cfg, load
        self._late, self._witness, self._scanned = pose_late_s, witness, scanned
        self.T_track_object: np.ndarray | None = None if scanned else np.eye(4)
        """From the frame that the tracker follows to the twin's, once it is known."""

    def refuses(self, last: Trial) -> str:
        """Returns why no trial may follow: the robot was stopped, and nobody has looked at it since.

        A bench that was set up anew, as the lab's is each time, is another one. What was written of the last trial
        counts, and not what this process has seen: the one that stopped it may have been killed.
        """
        n = last.number
        if not last.stopped or n >= self._cfg.trials or self._rig_of(n) is not self._rig_of(n + 1):
            return ""
        return f"the gate stopped trial {n}: look at the robot, then deploy again"

    def run(
        self,
        number: int,
        shift: tuple[float, float, float],
        doer_at: Callable[[np.ndarray, float], Doer],
        folder: Path,
    ) -> Trial:
        """Carries one trial out, and records it."""
        pilot = number <= self._cfg.pilots
        rig = guarded(self._rig_of(number), gentle=pilot, shadow=self._cfg.shadow)
        senses = Senses(rig.features, self._stage.robot, pose_late_s=self._late)
        try:
            rig.connect()
            T = self._place(rig, senses, shift)
            doer = doer_at(T, PILOT_SHARE if pilot else 1.0)
            moments, halted, capture = self._carry_out(rig, senses, number, T, doer, folder)
        except BaseException as error:  # Ctrl-C too: whoever ends a trial wants the robot to stand
            if not self._cfg.shadow:
                try:
                    rig.stop()
                except Exception as later:
                    error.add_note(f"the robot's own stop failed too: {later}")
            raise
        finally:
            rig.disconnect()
        placed = shift if isinstance(getattr(rig.rig, "operator", None), Operator) else None
        found = self._judged(capture, senses, moments, rig, halted)
        return Trial(
            number, pilot, placed, T.tolist(), senses.T_track_object.tolist(), plain_load(self._load),
            moments.to_json(), finite(asdict(found)), [finite(event.to_json()) for event in rig.events],
            () if self._cfg.shadow else tuple(map(str, rig.gate.stopped)) or (halted,) * bool(halted),
        )  # fmt: skip

    def _carry_out(
        self, rig: Guarded, senses: Senses, number: int, T_world_object: np.ndarray, doer: Doer, folder: Path
    ) -> tuple[Moments, str, Capture]:
        robot, scene = self._stage.robot, self._stage.scene
        at, there = place_of(scene, self._stage.thing), scene.model.qpos0.copy()
        there[at : at + 7] = se3.to_pose(T_world_object)
        assert rig.features.command is not None
        way = road(robot, scene.model, doer.before, rig.features.command.rate_hz, qpos=there)
        moments, halted, begun = Moments(rig.now()), "", False

        def begin() -> None:
            nonlocal begun
            recorder.start(f"trial_{number:02d}", plan={"plan": "Trial", "number": number})
            begun = True

        def seen(now: Moments) -> None:
            nonlocal moments
            moments = now
            if np.isfinite(now.lift) and not np.isfinite(now.hold):
                self._witness(number, "gripped")

        with Recorder(folder, rig.features) as recorder:
            try:
                attempt(
                    rig, doer, way, senses, robot, Shake(self._cfg.hold_s, self._cfg.shake_s),
                    begin=begin, note=recorder.append, moment=seen, ended=lambda: self._witness(number, "ended"),
                )  # fmt: skip
                recorder.finish_recording(markers=moments.to_json())
            except HaltError as error:
                halted = str(error)
                self._witness(number, "ended")
                if not begun:  # it was stopped on its way: what was measured last is worth most
                    begin()
                with contextlib.suppress(HaltError):  # a rig that failed may have nothing to tell
                    recorder.append(rig.observe())
                recorder.interrupt(halted)
        assert recorder.capture is not None
        return moments, halted, recorder.capture

    def _place(self, rig: Guarded, senses: Senses, shift: tuple[float, float, float]) -> Float[np.ndarray, "4 4"]:
        """Has the object put, and returns where it is seen."""
        operator: Any = getattr(rig.rig, "operator", None)
        if isinstance(operator, Operator):
            if self.T_track_object is None:
                # A scanned twin has axes of its own. On its mark it stands where it stood when it was scanned.
                operator.place_object()
                self.T_track_object = se3.inverse(_look(rig, senses)) @ self._rest()
            operator.place_object(shift)
        elif self.T_track_object is None:
            self.T_track_object = se3.inverse(_look(rig, senses)) @ self._rest()
        assert self.T_track_object is not None
        senses.T_track_object = self.T_track_object
        return standing(self._stage.scene, _look(rig, senses) @ self.T_track_object)

    def _rest(self) -> Float[np.ndarray, "4 4"]:
        at = place_of(self._stage.scene, self._stage.thing)
        return se3.from_pose(self._stage.scene.model.qpos0[at : at + 7])

    def _judged(self, capture: Capture, senses: Senses, moments: Moments, rig: Guarded, halted: str) -> Outcome:
        recording = capture.recording()
        try:
            found = traces(recording, self._stage.robot, senses.T_track_object, pose_late_s=self._late)
        except (InputError, UnknownName):
            # In the shadow no command is sent, and a robot that was stopped at once has hardly moved.
            if not halted and not self._cfg.shadow:
                raise
            return Outcome(STOPPED if halted else MISSED, 0.0, 0.0, 0.0, np.nan)
        begin = float(recording.stream("joint_command").t[0])
        lift = int(np.searchsorted(found.t, moments.lift - begin)) if np.isfinite(moments.lift) else None
        # A drop is a drop, whoever noticed it first.
        stopped = bool(halted) and Reason.DROPPED not in rig.gate.stopped
        failure = STOPPED if stopped else LATE if not halted and not np.isfinite(moments.hold) else ""
        return outcome(
            found.t, found.T_world_palm, found.T_world_object, found.touch, lift=lift, crush_n=self._load.crush_n,
            failure=failure,
        )  # fmt: skip


def guarded(rig: Rig, *, gentle: bool = False, shadow: bool = False) -> Guarded:
    """Returns a rig behind its gate; a gentle one has half the limits of speed, acceleration and jerk."""
    limits = Limits.of_rig(rig.features)
    if gentle:
        limits = limits.tightened(
            speed=PILOT_SHARE * limits.speed, acceleration=PILOT_SHARE * limits.acceleration,
            jerk=PILOT_SHARE * limits.jerk,
        )  # fmt: skip
    return Guarded(rig, Gate(limits, palm=palm_of(rig.features)), shadow=shadow)


def _look(rig: Guarded, senses: Senses) -> Float[np.ndarray, "4 4"]:
    """Returns where the tracker sees the object that stands still."""
    rig.observe()
    rig.sleep(_LOOK_S)
    seen = rig.observe()
    senses.hear(seen)
    if POSE not in seen.samples or not len(seen.samples[POSE].value):
        raise InputError(f"the tracker told nothing for {_LOOK_S:g} s: is it on, and is the object in view?")
    return mean_pose(senses.named(POSE, seen.samples[POSE].value))


def _shifts(cfg: DeployCfg) -> list[tuple[float, float, float]]:
    """Returns where the object is put: spread evenly over the area and the angles, in an order that is not."""
    rng = np.random.default_rng([51, cfg.trial_seed])
    spread = [(rng.permutation(cfg.trials) + rng.uniform(size=cfg.trials)) / cfg.trials * 2.0 - 1.0 for _ in range(3)]
    reach = (cfg.around_m, cfg.around_m, cfg.turn_rad)
    return [
        (float(x), float(y), float(a))
        for x, y, a in zip(*(s * r for s, r in zip(spread, reach, strict=True)), strict=True)
    ]


def _require_same(work: Path, asked: dict[str, Any]) -> None:
    """Refuses to go on with trials of another policy, or with other options; writes down which they are.

    Raises:
        InputError: They are of another deployment.
    """
    file, said = work / "asked.json", json.dumps(asked, indent=1, ensure_ascii=False)
    if file.is_file() and file.read_text() != said:
        raise InputError(
            f"{work} holds trials of a deployment that was killed, with another policy, twin, belief or options: "
            "go on with those, or delete it"
        )
    with storage_errors(work):
        work.mkdir(parents=True, exist_ok=True)
        write_text(file, said)


def _read(work: Path, number: int) -> Trial | None:
    """Returns a trial that was complete when an earlier deployment was killed."""
    file, folder = work / f"{number:02d}.json", work / f"{number:02d}"
    if not file.is_file() or not (folder / HEADER).is_file():
        return None
    return Trial.from_json(json.loads(file.read_text()))


def _fresh(work: Path, number: int) -> Path:
    """Returns the place of a trial's recording, empty."""
    folder = work / f"{number:02d}"
    for old in (folder, folder.with_name(folder.name + ".recording")):
        shutil.rmtree(old, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    return folder


def _over(trials: Sequence[Trial], cfg: DeployCfg) -> str:
    """Returns why no further trial may be made; empty if one may."""
    verdicts = [t.outcome["verdict"] for t in trials]
    if trials[-1].pilot and verdicts[-1] != HELD:
        return f"pilot {trials[-1].number} {verdicts[-1]}"
    if verdicts[-1] == STOPPED:
        return f"the gate stopped trial {trials[-1].number}"
    last = verdicts[-cfg.failures :]
    return f"{cfg.failures} trials in a row failed" if len(last) == cfg.failures and HELD not in last else ""


def _outside(policy: Policy, told: Load) -> str:
    """Says where the policy is told something that it was not trained on; empty if nowhere."""
    said = {"object.mass": told.mass_kg, "fingertip.friction": told.friction}
    ranges = policy.header.meta.get("trained_on", {})
    words = [
        f"{name} of {value:.3g}, and was trained from {ranges[name][0]:.3g} to {ranges[name][1]:.3g}"
        for name, value in said.items()
        if name in ranges and not ranges[name][0] <= value <= ranges[name][1]
    ]
    return f"; the policy was told {' and '.join(words)}" if words else ""


def _status(held: int, trials: Sequence[Trial], cfg: DeployCfg, ended: str, outside: str) -> Status:
    said = f"held {held} of {len(trials)}{outside}"
    if cfg.shadow:
        return Status(
            Level.WARN, "shadow", "nothing was sent: the policy ran in the shadow", "Look at what the gate noted."
        )
    if ended:
        return Status(
            Level.WARN, "ended_early", f"{said}, then it was ended: {ended}", "Audit it, and mend what it names."
        )
    if held == len(trials):
        return Status(Level.OK, "deployed", said)
    why = ", ".join(sorted({t.outcome["verdict"] for t in trials} - {HELD}))
    return Status(Level.WARN, "failures", f"{said}; the others: {why}", "Audit it, to see what reality did otherwise.")
