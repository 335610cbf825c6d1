"""Real to sim to real, round after round: until simulation and reality agree, or the budget of real trials is spent.

A loop is a run with rounds in it. Round 1 lies in the run itself; round 0 (the policy told only a guess) and rounds
from 2 on lie in `round_0`, `round_2`, … with the stages that were done anew. Every decision goes into `decisions.jsonl`
with its reason. A loop that was killed goes on at the first artefact that is missing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dexloop.audit.cfg import AuditCfg
from dexloop.audit.stage import audit
from dexloop.capture.plans import FreeMotion, HumanVideo, Lift, Plan, Press, Push, Scan, describe
from dexloop.capture.record import capture
from dexloop.core.artifact import HEADER, load_arrays, storage_errors, write_text
from dexloop.core.artifacts import Belief, Demos, Episodes, Ledger, Policy, Twin
from dexloop.core.capture import Capture
from dexloop.core.errors import HaltError, InputError
from dexloop.core.run import Run
from dexloop.core.stated import OF_SENSORS, state_belief
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.demonstrate.stage import demonstrate
from dexloop.deploy.cfg import DeployCfg
from dexloop.deploy.stage import Witness, deploy
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.design import Design
from dexloop.identify.stage import identify
from dexloop.loop_cfg import LoopCfg
from dexloop.next_motion import plan_after
from dexloop.policy.trials import trials_of
from dexloop.rig.journal import journal_path
from dexloop.rig.merging import merge
from dexloop.rig.protocol import Rig
from dexloop.robots.pickup import Load
from dexloop.train.cfg import TrainCfg
from dexloop.train.stage import train
from dexloop.twin.cfg import TwinCfg
from dexloop.twin.stage import twin

Progress = Callable[[str, float], None]
PLANS: tuple[Plan, ...] = (
    Scan(),
    FreeMotion(duration_s=3.0),
    Press(),
    Push(speed_m_s=0.5, distance_m=0.1),
    Push(speed_m_s=0.25, distance_m=0.08, direction_rad=0.6),
    Push(speed_m_s=0.7, distance_m=0.12, direction_rad=-0.6),
    HumanVideo(),
)
"""What is recorded first: the object from all sides, the robot alone (which tells its delay), a fingertip on the bare
table (how soft it is), three pushes, and a hand that shows how."""
TOLD = ("object.mass", "fingertip.friction")
"""What a policy is told, and so what must be known well enough."""


@dataclass(frozen=True)
class Cfgs:
    """How carefully each stage works."""

    twin: TwinCfg = field(default_factory=TwinCfg)
    identify: IdentifyCfg = field(default_factory=IdentifyCfg)
    demonstrate: DemonstrateCfg = field(default_factory=DemonstrateCfg)
    train: TrainCfg = field(default_factory=TrainCfg)
    deploy: DeployCfg = field(default_factory=DeployCfg)
    audit: AuditCfg = field(default_factory=AuditCfg)


class Place(Protocol):
    """Where real things happen."""

    def recording(self, number: int) -> Rig:
        """Returns the rig for a capture, by its number from 0."""
        ...

    def trial(self, round_: int, number: int) -> Rig:
        """Returns the rig for a trial, by round and number: at a real bench always the same one."""
        ...


@dataclass(frozen=True)
class Round:
    """What came of one round."""

    number: int
    belief: Belief
    policy: Policy
    episodes: Episodes
    ledger: Ledger

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        success = self.ledger.header.meta["success"]
        return {
            "round": self.number, "held": self.episodes.header.meta["held"],
            "trials": self.episodes.header.meta["trials"], "real": success["real"], "sim": success["sim"],
            "gap": success["gap"], "interval": success["interval"], "next": self.ledger.header.meta["next"],
            "told": self.episodes.header.meta["load"],
        }  # fmt: skip


def loop(
    run: Run,
    place: Place,
    *,
    cfg: LoopCfg = LoopCfg(),  # noqa: B008 - frozen
    cfgs: Cfgs = Cfgs(),  # noqa: B008 - frozen
    plans: Sequence[Plan] = PLANS,
    witness: Callable[[int], Witness] = lambda _round: lambda _number, _what: None,
    progress: Progress | None = None,
) -> list[Round]:
    """Goes round.

    Args:
        run: Where everything goes; what is there already is not done again.
        place: Where real things happen.
        cfg: How often, and when to be content.
        cfgs: How carefully each stage works.
        plans: What is recorded first.
        witness: Gives, by round, whom a trial tells what happens when: for scoring.
        progress: Told what is going on.

    Raises:
        InputError: A stage cannot go on; what was done before is kept.
        HaltError: The gate stopped the robot that would be used next. A person looks at it, and starts again.
    """
    tell = progress or (lambda _text, _done: None)
    log = Decisions(run.path / "decisions.jsonl")
    made, recorded, belief = _known(run, place, plans, cfg, cfgs, log, tell)
    demos = run.ensure(
        "demonstrate", lambda path: demonstrate(made, belief, recorded, path, cfg=cfgs.demonstrate, progress=tell)
    )
    assert isinstance(demos, Demos)
    policy = run.ensure(
        "train", lambda path: train(demos, path, twin=made, belief=belief, cfg=cfgs.train, progress=tell)
    )
    assert isinstance(policy, Policy)
    rounds: list[Round] = []
    spent = 0

    def go(number: int, believed: Belief, load: Load | None, what: Mapping[str, Any]) -> Round:
        nonlocal spent
        found = _round(run, number, place, made, believed, policy, load, what, rounds, cfg, cfgs, witness(number), tell)
        spent += found.episodes.header.meta["trials"]
        rounds.append(found)
        log.note(f"round {number}", str(found.ledger.status), found.to_json())
        return found

    if cfg.guess:
        guess = _guess(run, belief, cfg)
        load = Load(cfg.guess_kg, 1.1 * cfg.guess_kg, cfg.guess_friction, crush_n=_crush(place.trial(0, 1)))
        go(0, guess, load, {"told": "a guess"})
        if not _there(run.stage_path("deploy")):
            if spent >= cfg.budget:
                log.note("after round 0", f"the budget of {cfg.budget} real trials is spent", {"spent": spent})
                return rounds
            _require_looked_at(place, rounds[-1], log)
    go(1, belief, None, {"told": "what was identified"})
    while len([r for r in rounds if r.number]) < cfg.rounds:
        last, number = rounds[-1], rounds[-1].number + 1
        todo, gap = last.ledger.header.meta["next"], last.ledger.header.meta["success"]["gap"]
        reason = _enough(todo, gap, last, spent, cfg)
        log.note(f"after round {last.number}", reason or f"{todo['do']}: {todo['why']}", {"next": todo, "spent": spent})
        if reason:
            break
        _require_looked_at(place, last, log)
        recorded, belief = _again(run, number, place, made, recorded, belief, todo, cfgs, log, tell)
        go(number, belief, None, _difference(last.belief, belief))
    return rounds


class Decisions:
    """What was decided and why, one JSON object a line; what a killed loop had decided is not written twice."""

    def __init__(self, file: Path):
        self._file = file
        # A loop that was killed while it wrote leaves a part of a line: what it had to say is decided again.
        whole, _, torn = file.read_bytes().rpartition(b"\n") if file.is_file() else (b"", b"", b"")
        self._said = {json.loads(line)["what"] for line in whole.decode().split("\n") if line}
        if torn:
            with storage_errors(file):
                write_text(file, whole.decode() + "\n" * bool(whole))

    def __contains__(self, what: str) -> bool:
        return what in self._said

    def note(self, what: str, why: str, details: Mapping[str, Any] | None = None) -> bool:
        """Writes a decision down; returns whether it is a new one."""
        if what in self._said:
            return False
        self._said.add(what)
        line = json.dumps(
            {"what": what, "why": why, **({"details": dict(details)} if details else {})}, ensure_ascii=False
        )
        with storage_errors(self._file), self._file.open("a") as stream:
            stream.write(line + "\n")
        return True


def _require_looked_at(place: Place, last: Round, log: Decisions) -> None:
    """Ends the loop if the robot that it would use next was stopped in the last round and nobody has looked since.

    That it ended so is written down: whoever starts it again after that has looked. A bench that is set up anew for
    each trial, as the lab's is, has no robot that could still stand where it was stopped.

    Raises:
        HaltError: Somebody has to look.
    """
    stopped = [trial for trial, _ in trials_of(last.episodes) if trial.stopped]
    if not stopped or place.trial(last.number, stopped[-1].number) is not place.trial(last.number + 1, 1):
        return
    why = f"the gate stopped the robot ({', '.join(stopped[-1].stopped)}): a person must look at it, then start again"
    if log.note(f"stopped in round {last.number}", why):
        raise HaltError(f"in round {last.number} {why}")


def _known(
    run: Run, place: Place, plans: Sequence[Plan], cfg: LoopCfg, cfgs: Cfgs, log: Decisions, tell: Progress
) -> tuple[Twin, Capture, Belief]:
    """Records, makes the twin, and identifies until what the policy is told is known well enough."""
    first = run.ensure("capture", lambda path: _record_first(place.recording(0), plans, path, tell))
    assert isinstance(first, Capture)
    made = run.ensure("twin", lambda path: twin(first, path, cfg=cfgs.twin, progress=tell))
    assert isinstance(made, Twin)
    belief = run.ensure("identify", lambda path: identify(made, first, path, cfg=cfgs.identify, progress=tell))
    assert isinstance(belief, Belief)
    recorded = first
    for k in range(1, cfg.pushes + 1):
        unsure = _unsure(belief, cfg.sure)
        if not unsure:
            log.note("identified", f"{' and '.join(TOLD)} are known to {100 * cfg.sure:.0f} %")
            break
        recorded, belief = _more(
            run.path / f"push_{k}", place, k, made, recorded, belief, tuple(unsure), cfgs, log, tell
        )  # fmt: skip
    return made, recorded, belief


def _record_first(rig: Rig, plans: Sequence[Plan], path: Path, tell: Progress) -> Capture:
    """Records; a robot that feels nothing does not press, which would tell nothing."""
    feels = any(stream.kind == "touch" for stream in rig.features.streams)
    return _record(rig, [plan for plan in plans if feels or not isinstance(plan, Press)], path, tell)


def _record(rig: Rig, plans: Sequence[Plan], path: Path, tell: Progress) -> Capture:
    """Records. A recorder keeps what it has when it is interrupted, but a capture that lacks motions is none that a
    loop can go on with: until it is complete it lies aside, and the next try throws it away."""
    part = path.with_name(f"{path.name}.part")
    for old in (part, journal_path(part)):
        shutil.rmtree(old, ignore_errors=True)
    capture(rig, plans, part, progress=tell)
    with storage_errors(path):
        part.rename(path)
    return Capture.open(path)


def _unsure(belief: Belief, sure: float) -> list[str]:
    """Returns what the policy is told and is not known well enough."""
    labels = [str(label) for label in belief.header.meta["labels"]]
    samples = load_arrays(belief.path / "posterior.npz")["samples"]
    found = []
    for name in TOLD:
        if name not in labels:
            raise InputError(f"{belief.path} does not say {name}: push with a fingertip, and identify it too")
        values = samples[:, labels.index(name)]
        if values.std() > sure * abs(values.mean()):
            found.append(name)
    return found


def _more(
    folder: Path,
    place: Place,
    number: int,
    made: Twin,
    recorded: Capture,
    belief: Belief,
    wanted: tuple[str, ...],
    cfgs: Cfgs,
    log: Decisions,
    tell: Progress,
    motions: Sequence[Plan] = (),
) -> tuple[Capture, Belief]:
    """Records the motion that should tell most about some parameters, and identifies again from all there is."""
    new, both, found = (folder / name for name in ("motion", "1_capture", "3_identify"))
    if not _there(new) and motions:
        log.note(f"motion for {folder.name}", "they were suggested", {"plans": [describe(p) for p in motions]})
        _record(place.recording(number), motions, new, tell)
    elif not _there(new):
        design = plan_after(made, recorded, belief, cfg=changed(cfgs.identify, parameters=wanted), progress=tell)
        _record_best(design, place, number, new, wanted, log, tell)
    if not _there(both):
        merge([recorded, Capture.open(new)], both)
    if not _there(found):
        identify(made, Capture.open(both), found, cfg=cfgs.identify, progress=tell)
    return Capture.open(both), Belief.open(found)


def _record_best(
    design: Design, place: Place, number: int, path: Path, wanted: tuple[str, ...], log: Decisions, tell: Progress
) -> None:
    """Records the best motion of those in which the robot was not stopped: one that it cannot do is not tried again.

    Raises:
        HaltError: The robot was stopped and has to be looked at, or no motion is left.
    """
    for ranked in design:
        plan, stopped = ranked.candidate.plan, f"stopped in {path.parent.name}: {ranked.candidate.words}"
        if stopped in log:
            continue
        why = f"{ranked.words} is expected to tell most about {' and '.join(wanted)}"
        log.note(f"motion for {path.parent.name}: {ranked.candidate.words}", why, {"plans": [dict(plan)]})
        rig = place.recording(number)
        try:
            _record(rig, [_plan(plan)], path, tell)
            return
        except HaltError as error:
            log.note(stopped, f"{error}; another motion is chosen")
            if rig is place.recording(number):
                raise HaltError(f"{error}; start again after that, and another motion is chosen") from error
    raise HaltError(f"the robot was stopped in each motion that could be recorded for {path.parent.name}")


def _again(
    run: Run,
    number: int,
    place: Place,
    made: Twin,
    recorded: Capture,
    belief: Belief,
    todo: Mapping[str, Any],
    cfgs: Cfgs,
    log: Decisions,
    tell: Progress,
) -> tuple[Capture, Belief]:
    """Does what the ledger asks for before the next round."""
    names = [str(label) for label in belief.header.meta["labels"]]
    wanted = tuple(name for name in todo["parameters"] if name in belief.header.meta["parameters"])
    robot = [name for name in todo["parameters"] if name.startswith(("actuator.", "joint.")) and name in names]
    motions = (FreeMotion(duration_s=4.0, variation=number),) if robot and not wanted else ()
    return _more(
        run.path / f"round_{number}", place, 100 + number, made, recorded, belief, wanted or TOLD, cfgs, log, tell,
        motions,
    )  # fmt: skip


def _round(
    run: Run,
    number: int,
    place: Place,
    made: Twin,
    belief: Belief,
    policy: Policy,
    load: Load | None,
    what: Mapping[str, Any],
    rounds: Sequence[Round],
    cfg: LoopCfg,
    cfgs: Cfgs,
    witness: Witness,
    tell: Progress,
) -> Round:
    folder = run.path if number == 1 else run.path / f"round_{number}"
    folder.mkdir(exist_ok=True)
    tried, told = folder / "7_deploy", folder / "8_audit"
    if not _there(tried):
        left = cfg.budget - sum(r.episodes.header.meta["trials"] for r in rounds)
        asked = changed(cfgs.deploy, trials=min(cfg.trials, left), trial_seed=cfg.trial_seed + number)
        deploy(
            policy, made, belief, lambda k: place.trial(number, k), tried, cfg=asked, load=load, witness=witness,
            progress=lambda text, done: tell(f"round {number}: {text}", done),
        )  # fmt: skip
    if not _there(told):
        audit(
            Episodes.open(tried), policy, made, belief, told, cfg=changed(cfgs.audit, round=number, target=cfg.gap),
            before=rounds[-1].ledger if rounds else None, changed=what,
            progress=lambda text, done: tell(f"round {number}: {text}", done),
        )  # fmt: skip
    return Round(number, belief, policy, Episodes.open(tried), Ledger.open(told))


def _guess(run: Run, belief: Belief, cfg: LoopCfg) -> Belief:
    """Writes what one would believe who has not measured the object: a guess, and that a robot is as its data sheet
    says. Clocks and gains of sensors stay what was found: they change how a trial is judged, not how it goes."""
    path = run.path / "round_0" / "3_identify"
    if _there(path):
        return Belief.open(path)
    known, measured = belief.header.meta["labels"], load_arrays(belief.path / "posterior.npz")["samples"]
    kept = [k for k, label in enumerate(known) if str(label).startswith(OF_SENSORS)]
    labels = [*TOLD, "table.friction"]
    rng = np.random.default_rng(0)
    middle = np.array([cfg.guess_kg, cfg.guess_friction, cfg.guess_friction])
    guessed = middle * np.exp(0.05 * rng.normal(size=(len(measured), len(labels))))
    samples = np.concatenate([guessed, measured[:, kept]], axis=1)
    path.parent.mkdir(exist_ok=True)
    values = dict(zip([*labels, *(known[k] for k in kept)], samples.T, strict=True))
    return state_belief(path, values, why="nothing was measured of the object: this is a guess")


def _enough(todo: Mapping[str, Any], gap: float, last: Round, spent: int, cfg: LoopCfg) -> str:
    """Returns why no further round is made; empty if one is."""
    held, trials = last.episodes.header.meta["held"], last.episodes.header.meta["trials"]
    if spent >= cfg.budget:
        return f"the budget of {cfg.budget} real trials is spent"
    if abs(gap) <= cfg.gap and held == trials:
        return f"all {trials} trials held, and simulation says so too"
    if todo["do"] not in ("re-identify", "add a delay"):
        return f"no further recording would help: {todo['do']}, for {todo['why']}"
    return ""


def _difference(before: Belief, after: Belief) -> dict[str, Any]:
    """Returns what is believed otherwise than before."""
    old, new = before.header.meta["parameters"], after.header.meta["parameters"]
    return {
        name: {"before": old[name]["mean"], "after": new[name]["mean"]} for name in new if name in old
    }  # fmt: skip


def _plan(said: Mapping[str, Any]) -> Plan:
    kinds: dict[str, type[Any]] = {"Push": Push, "Lift": Lift, "FreeMotion": FreeMotion, "Scan": Scan}
    return kinds[str(said["plan"])](**{k: v for k, v in said.items() if k != "plan"})


def _crush(rig: Rig) -> float:
    return float(rig.features.scene.get("crush_force_n") or np.inf)


def _there(path: Path) -> bool:
    return (path / HEADER).is_file()
