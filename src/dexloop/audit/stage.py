"""Real trials beside simulated ones: gaps, first divergences, suspects, and what to do next, in a ledger."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dexloop.audit import ledger as ledgers
from dexloop.audit.advice import next_action, verdict_of
from dexloop.audit.causes import Cause, ranked, suspects, tried
from dexloop.audit.cfg import AuditCfg
from dexloop.audit.divergence import Divergence, divergences, scales
from dexloop.audit.gaps import measure_gaps, rate_gap
from dexloop.audit.predict import CHANNELS, Channels, measured, predicted
from dexloop.core.artifact import require_free, save_arrays, write_text, writing
from dexloop.core.artifacts import Belief, Episodes, Ledger, Policy, Twin
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.policy.bundle import open_policy
from dexloop.policy.rehearsal import Stage, rehearse
from dexloop.policy.start import Start
from dexloop.policy.trials import Trial, finite, load_of, outcome_of, trials_of
from dexloop.robots.outcome import STOPPED, Outcome
from dexloop.robots.shake import Shake
from dexloop.robots.staging import open_scene, robot_of
from dexloop.robots.traces import Traces, traces
from dexloop.sim.believed import Draws, draw, mean_of, middle

Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Compared:
    """One trial beside its simulations."""

    trial: Trial
    real: Channels
    band: Channels
    """Of the belief's worlds, with the commands that were sent."""
    diverged: list[Divergence]
    causes: list[Cause]
    rehearsed: list[Outcome]
    """What came of the policy in the belief's worlds."""


def audit(
    episodes: Episodes,
    policy: Policy,
    twin: Twin,
    belief: Belief,
    out: str | Path,
    *,
    cfg: AuditCfg = AuditCfg(),  # noqa: B008 - frozen
    before: Ledger | None = None,
    changed: Mapping[str, Any] | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> Ledger:
    """Compares what happened with what was predicted.

    Args:
        episodes: What happened.
        policy: That was deployed.
        twin: Of the object.
        belief: From which worlds are drawn.
        out: Where the ledger shall be.
        cfg: How carefully.
        before: The ledger so far; its lines come first, unchanged.
        changed: What is different from the last round, in plain JSON.
        replace: Put it in the place of one that is there.
        progress: Told what is going on.

    Raises:
        InputError: The artefacts do not belong together.
    """
    require_free(Path(out), Ledger, replace=replace)
    for role, given in (("policy", policy), ("twin", twin)):
        if episodes.header.inputs.get(role, given.hash) != given.hash:
            raise InputError(f"{episodes.path} was not deployed with {given.path}: give the {role} of that time")
    if before is not None:
        ledgers.read(before.path)  # what was changed is not gone on with
    done = compare(episodes, policy, twin, belief, cfg=cfg, progress=progress)
    said = {"episodes": episodes, "policy": policy, "twin": twin, "belief": belief}
    inputs: dict[str, Any] = said | ({"before": before} if before else {})
    lines = ledgers.lines_of(before.path) if before else []
    about = {
        "round": cfg.round, "object": episodes.header.meta["object"], "robot": episodes.header.meta["robot"],
        "inputs": {k: {"hash": v.hash, "path": _relative(v.path, Path(out))} for k, v in said.items()},
        "trained_on": policy.header.meta.get("trained_on", {}), "changed": dict(changed or {}),
    }  # fmt: skip
    rows = [row(c, about) for c in done]
    gap = rate_gap([o.held for c in done for o in c.rehearsed], [c.trial.outcome["verdict"] == "held" for c in done])
    with writing(out, Ledger, inputs=inputs, seed=cfg.seed, replace=replace) as draft:
        write_text(draft.folder / "ledger.jsonl", "\n".join(ledgers.appended(lines, rows)) + "\n")
        (draft.folder / "traces").mkdir()
        for c in done:
            save_arrays(draft.folder / "traces" / f"{c.trial.number:02d}.npz", **arrays_of(c.real, c.band))
        draft.meta |= {
            "round": cfg.round, "success": gap, "cases": len(lines) + len(rows), "new": len(rows),
            "channels": CHANNELS, "next": _decide(rows, gap, cfg), "target": cfg.target,
        }  # fmt: skip
        draft.status = _status(gap, draft.meta["next"], cfg)
    return Ledger.open(out)


def compare(
    episodes: Episodes,
    policy: Policy,
    twin: Twin,
    belief: Belief,
    *,
    cfg: AuditCfg = AuditCfg(),  # noqa: B008 - frozen
    progress: Progress | None = None,
) -> list[Compared]:
    """Does the comparison, and writes nothing."""
    tell = progress or (lambda _text, _done: None)
    all_of = trials_of(episodes)
    if not all_of:
        raise InputError(f"{episodes.path} holds no trial: deploy first")
    asked = episodes.header.meta["asked"]
    if asked["shadow"]:
        raise InputError(f"{episodes.path} ran in the shadow: nothing was sent, and there is nothing to compare")
    robot, base, scene = open_scene(twin, robot_of(all_of[0][1]))
    thing = scene.model.body(scene.roles["object"].bodies[0]).name
    brain, start = open_policy(policy), Start.of(policy)
    if thing not in brain.points:
        raise InputError(f"{policy.path} was trained for {', '.join(brain.points)}, not for {thing}")
    stage = Stage(scene, robot, thing, base, brain.points[thing])
    # The policy does each trial again, in worlds that are all as likely.
    n = cfg.worlds
    worlds = draw(belief, scene, n * len(all_of), seed=cfg.seed)
    pilots = sum(t.pilot for t, _ in all_of)  # which come first, and go slower
    rehearsed: list[Outcome] = []
    for first, some in ((0, all_of[:pilots]), (pilots, all_of[pilots:])):
        if some:
            rehearsed += rehearse(
                brain, start, stage, np.repeat([t.T_world_object for t, _ in some], n, axis=0),
                [load_of(t.load) for t, _ in some for _ in range(n)], worlds[n * first : n * (first + len(some))],
                shake=Shake(asked["hold_s"], asked["shake_s"]), pace=some[0][0].pace,
                progress=lambda done: tell("doing the trials in simulation", done),
            )  # fmt: skip
    gain = mean_of(belief, "gain.joint_effort", otherwise=1.0)
    found = []
    for k, (trial, capture) in enumerate(all_of):
        recording, same = capture.recording(), rehearsed[k * n : (k + 1) * n]
        late = float(episodes.header.meta["pose_late_s"])
        try:
            seen = traces(recording, robot, np.array(trial.T_track_object), pose_late_s=late)
        except (InputError, UnknownName):
            if trial.outcome["verdict"] != STOPPED:
                raise
            # It was stopped before it did anything that could be compared.
            found.append(Compared(trial, Channels(np.zeros(0), {}), Channels(np.zeros(0), {}), [], [], same))
            continue
        begin = float(recording.stream("joint_command").t[0])
        lift = trial.moments.get("lift", np.nan) - begin
        tell("comparing", k / len(all_of))
        real, band, causes = explain(
            seen, stage, np.array(trial.T_world_object), draw(belief, scene, cfg.bands, seed=cfg.seed + 1), lift,
            effort_gain=gain,
        )  # fmt: skip
        found.append(Compared(trial, real, band, divergences(real, band), causes, same))
    tell("comparing", 1.0)
    return found


def explain(
    seen: Traces, stage: Stage, T_world_object: np.ndarray, draws: Draws, lift_s: float, *, effort_gain: float = 1.0
) -> tuple[Channels, Channels, list[Cause]]:
    """Sends a trial's commands to worlds, as believed and with each suspect.

    Args:
        seen: The trial's traces.
        stage: Robot and object.
        T_world_object: Where the object stood, as it was seen.
        draws: Worlds as likely as each other.
        lift_s: When the lift began [s]; NaN if it never did.
        effort_gain: What the effort sensors show, over what is there.

    Returns:
        What was measured, what the worlds say, and what explains the difference, best first; nothing where no channel
        leaves its band, or where the world as believed became unstable, so that there is nothing to compare with.
    """
    real = measured(seen, lift_s)
    real = Channels(real.t, {**real.values, "effort": real.values["effort"] / effort_gain})
    doubted = suspects(draws.names)
    believed = middle(draws)
    others, poses = tried(believed, doubted, T_world_object)
    # Names may have been added to the suspects' worlds: give the others the same, at what the model says.
    both = Draws.together(draws, believed, others)
    n = len(draws)
    here = np.repeat(T_world_object[None], n + 1, axis=0)
    out, lost = predicted(seen, stage, here, both[: n + 1], lift_s)
    good = [k for k in range(n) if k not in lost]
    if len(good) < 2:
        raise InputError("the simulation became unstable in nearly all worlds: check the twin")
    band = Channels(out.t, {name: value[good] for name, value in out.values.items()})
    if not divergences(real, band) or n in lost:
        return real, band, []
    single = Channels(out.t, {name: value[n:] for name, value in out.values.items()})
    out, lost = predicted(seen, stage, poses, both[n + 1 :], lift_s)
    # A world that became unstable stands where it did at the start, which explains nothing, however close it is.
    able = [k for k in range(len(doubted)) if k not in lost]
    rest = Channels(out.t, {name: value[able] for name, value in out.values.items()})
    return real, band, ranked(real, single, rest, [doubted[k] for k in able], scales(real, band))


def row(c: Compared, about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the ledger says of one trial."""
    real = outcome_of(c.trial.outcome)
    share = float(np.mean([o.held for o in c.rehearsed]))
    signatures = [o.verdict for o in c.rehearsed]
    return {
        **about,
        "trial": c.trial.number,
        "told": c.trial.load,
        "real": finite(asdict(real)),
        "sim": {"held": share, "worlds": len(c.rehearsed),
                "verdicts": {v: signatures.count(v) for v in sorted(set(signatures))}},
        "gap": measure_gaps(c.rehearsed, real),
        "divergence": [asdict(d) for d in c.diverged],
        "first": c.diverged[0].channel if c.diverged else "",
        "signature": real.verdict,
        "gate": c.trial.gate,
        "causes": [
            {"parameter": x.suspect.name, "value": x.suspect.value, "unit": x.suspect.unit, "says": str(x.suspect),
             "explains": round(x.explains, 3)} for x in c.causes
        ],
        "verdict": verdict_of(c.diverged, real.held, share),
        "next": next_action(real.verdict, c.causes, c.diverged, share),
    }  # fmt: skip


def arrays_of(real: Channels, band: Channels) -> dict[str, np.ndarray]:
    """Returns what is drawn of a trial: by channel what was measured, the middle of the band, and one sd."""
    out, spread = {"t": real.t}, scales(real, band)
    for name, value in band.values.items():
        out |= {f"{name}.real": real.values[name][0], f"{name}.middle": np.median(value, axis=0)}
        out[f"{name}.sd"] = spread[name]
    return out


def _decide(rows: Sequence[Mapping[str, Any]], gap: Mapping[str, Any], cfg: AuditCfg) -> dict[str, Any]:
    """Returns what to do next about all trials together: what most of those that were not as predicted ask for."""
    # A stop breaks a motion off: what differs then says little.
    stopped = [r for r in rows if r["next"]["do"] == "look"]
    bad = [r for r in rows if r not in stopped and r["verdict"] != "agrees" and r["next"]["do"] != "nothing"]
    if not bad and not stopped:
        return {"do": "nothing", "parameters": [], "motion": None, "why": "all trials went as predicted"}
    weight: dict[str, float] = {}
    for r in bad:
        for x in r["causes"][:2]:
            weight[x["parameter"]] = weight.get(x["parameter"], 0.0) + x["explains"]
    if not weight:
        return dict((stopped or bad)[0]["next"])
    best = max(weight, key=lambda name: weight[name])
    named = next(r for r in bad if any(x["parameter"] == best for x in r["causes"]))
    says = next(x["says"] for x in named["causes"] if x["parameter"] == best)
    chosen = next((r["next"] for r in bad if r["next"]["parameters"][:1] == [best]), named["next"])
    return {**chosen, "parameters": sorted(weight, key=lambda name: -weight[name]),
            "why": f"{len(bad)} of {len(rows)} trials were not as predicted; most is explained if {says}"}  # fmt: skip


def _status(gap: Mapping[str, Any], todo: Mapping[str, Any], cfg: AuditCfg) -> Status:
    said = f"held {100 * gap['real']:.0f} % in reality and {100 * gap['sim']:.0f} % in simulation"
    if abs(gap["gap"]) <= cfg.target and todo["do"] == "nothing":
        return Status(Level.OK, "agrees", said)
    if todo["do"] == "nothing":
        return Status(Level.WARN, "gap", f"{said}: the gap is above {100 * cfg.target:.0f} points", "Make more trials.")
    what = f" {' and '.join(todo['parameters'][:2])}" if todo["parameters"] else ""
    return Status(Level.WARN, "diverges", f"{said}; {todo['why']}", f"Next: {todo['do']}{what}.")


def _relative(path: Path, out: Path) -> str:
    """Returns where an artefact lies as seen from the ledger's folder, so that a run can be moved."""
    return Path(os.path.relpath(path.resolve(), out.resolve())).as_posix()
