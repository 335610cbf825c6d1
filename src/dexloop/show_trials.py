"""What commands about trials print: deploy, audit, loop, replay, report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dexloop import console
from dexloop.commands import Audit, Deploy, Loop, ReplayCase, Report, make_rig
from dexloop.core.artifact import storage_errors
from dexloop.core.errors import HaltError, InputError
from dexloop.core.run import Run


def deployed(command: Deploy) -> int:
    """Carries out `dexloop deploy` and prints how each trial went."""
    from dexloop.core.artifacts import Belief, Policy, Twin
    from dexloop.deploy.stage import deploy
    from dexloop.policy.trials import outcome_of, trials_of
    from dexloop.report.page import write_report

    run = Run.open(command.run_folder)
    _require(run, "twin", "identify", "train")
    rig = make_rig(command.rig, command.lab)
    with console.progress(quiet=command.json) as tell:
        made = deploy(
            Policy.open(run.stage_path("train")), Twin.open(run.stage_path("twin")),
            Belief.open(run.beliefs()[-1]), lambda _number: rig, run.stage_path("deploy"), cfg=command.cfg,
            replace=command.replace, progress=tell,
        )  # fmt: skip
    write_report(run)
    trials = trials_of(made)
    if command.json:
        console.say_json({"trials": [vars(t) for t, _ in trials], "status": made.status.to_json(),
                          "episodes": str(made.path)})  # fmt: skip
        return 0
    rows = []
    for trial, _ in trials:
        out = outcome_of(trial.outcome)
        rows.append((
            f"{trial.number}{' (pilot)' if trial.pilot else ''}", out.verdict, f"{1e3 * out.slip_m:.1f} mm",
            f"{out.peak_force_n:.1f} N", str(sum(int(e["count"]) for e in trial.gate)),
        ))  # fmt: skip
    console.show(rows, ("trial", "outcome", "slip", "highest force", "commands the gate changed"))
    console.say(str(made.status))
    console.say(f"episodes: {made.path}")
    return 0


def audited(command: Audit) -> int:
    """Carries out `dexloop audit` and prints the new cases."""
    from dexloop.audit.ledger import read
    from dexloop.audit.stage import audit
    from dexloop.core.artifacts import Belief, Episodes, Policy, Twin
    from dexloop.report.page import write_report

    run = Run.open(command.run_folder)
    _require(run, "twin", "identify", "train", "deploy")
    episodes, beliefs = Episodes.open(run.stage_path("deploy")), [Belief.open(path) for path in run.beliefs()]
    believed = next((b for b in beliefs if b.hash == episodes.header.inputs.get("belief")), None)
    if believed is None:
        believed = beliefs[-1]
        console.warn(
            f"what was believed when {episodes.path} was deployed is not there: {believed.path} is taken instead"
        )
    with console.progress(quiet=command.json) as tell:
        made = audit(
            episodes, Policy.open(run.stage_path("train")), Twin.open(run.stage_path("twin")), believed,
            run.stage_path("audit"), cfg=command.cfg, replace=command.replace, progress=tell,
        )  # fmt: skip
    write_report(run)
    rows = read(made.path)
    if command.json:
        console.say_json({**made.header.meta, "status": made.status.to_json(), "rows": rows, "ledger": str(made.path)})
        return 0
    _show_cases(rows)
    console.say(str(made.status))
    console.say(f"ledger: {made.path}")
    return 0


def looped(command: Loop) -> int:
    """Carries out `dexloop loop` and prints how the rounds went."""
    from dexloop.loop import loop
    from dexloop.report.page import write_report

    # Two labs in one run would be told as one: whoever goes on must name the same.
    options = {"rig": command.rig, **({"lab": asdict(command.lab)} if command.rig == "lab" else {})}
    run = Run.create(command.run_folder, seed=command.cfg.trial_seed, options=options)
    with console.progress(quiet=command.json) as tell:
        try:
            rounds = loop(run, _Bench(command), cfg=command.cfg, progress=tell)
        except HaltError:
            write_report(run)  # whoever looks at the robot wants to know what happened
            raise
    report = write_report(run)
    if command.json:
        console.say_json({"rounds": [r.to_json() for r in rounds], "report": str(report)})
        return 0
    rows = [
        ("guess" if r["round"] == 0 else str(r["round"]), f"{r['held']} of {r['trials']}", f"{100 * r['sim']:.0f} %",
         f"{100 * r['gap']:+.0f} points", r["next"]["do"])
        for r in (found.to_json() for found in rounds)
    ]  # fmt: skip
    console.show(rows, ("round", "held", "held in simulation", "gap", "next"))
    console.say(f"report: {report}")
    return 0


class _Bench:
    """The one rig that the user named, for recordings and trials alike; the lab's is anew each time."""

    def __init__(self, command: Loop):
        self._command = command
        self._rig = None if command.rig == "lab" else make_rig(command.rig, command.lab)

    def recording(self, number: int) -> Any:
        """Returns it for a capture."""
        return self._rig or self._lab(number)

    def trial(self, round_: int, number: int) -> Any:
        """Returns it for a trial."""
        return self._rig or self._lab(1000 * (round_ + 1) + number)

    def _lab(self, session: int) -> Any:
        from dexloop.lab.lab import Lab

        return Lab(self._command.lab).rig(session)


def replayed(command: ReplayCase) -> int:
    """Carries out `dexloop replay` and prints what was found again."""
    from dexloop.audit.replaying import replay_case
    from dexloop.audit.stage import arrays_of
    from dexloop.report.audit import traces_figure

    found = replay_case(command.ledger, command.case, command.film)
    row = {**found.row, "divergence": [vars(d) for d in found.diverged]}
    if command.picture is not None:
        with storage_errors(command.picture):
            traces_figure(arrays_of(found.real, found.band), row).savefig(command.picture, dpi=110)
    if command.json:
        causes = [{"parameter": c.suspect.name, "says": str(c.suspect), "explains": c.explains} for c in found.causes]
        console.say_json({"case": found.row["case"], "signature": found.row["signature"],
                          "divergence": row["divergence"], "causes": causes})  # fmt: skip
        return 0
    console.say(f"case {found.row['case']}: in reality it {found.row['signature']}")
    rows = [(d.channel, f"{d.t:.2f} s", f"{d.real:.3g}", f"{d.low:.3g} to {d.high:.3g}") for d in found.diverged]
    console.show(rows, ("channel that left its band", "at", "reality", "band"))
    for cause in found.causes[:3]:
        console.say(f"{100 * cause.explains:.0f} % of the difference is gone if {cause.suspect}")
    for file in (command.film, command.picture):
        if file is not None:
            console.say(str(file))
    return 0


def reported(command: Report) -> int:
    """Carries out `dexloop report`."""
    from dexloop.report.page import write_report

    file = write_report(Run.open(command.run_folder))
    console.say_json({"report": str(file)}) if command.json else console.say(f"report: {file}")
    return 0


def _show_cases(rows: list[dict[str, Any]]) -> None:
    shown = [
        (str(r["case"]), r["signature"], f"{100 * r['sim']['held']:.0f} %", r["first"] or "none",
         r["causes"][0]["says"] if r["causes"] else "none", r["verdict"], r["next"]["do"])
        for r in rows
    ]  # fmt: skip
    console.show(shown, ("case", "reality", "simulations held", "first divergence", "suspect", "verdict", "next"))


def _require(run: Run, *stages: str) -> None:
    for stage in stages:
        if not run.has(stage):
            raise InputError(f"{run.path} has no {stage} yet: run dexloop {stage} {Path(run.path)} first")
