"""One self-contained HTML file about a run: open it anywhere, offline."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dexloop.core.artifact import HEADER, storage_errors, write_text
from dexloop.core.artifacts import STAGES, Belief, Demos, Episodes, Ledger, Policy, Twin
from dexloop.core.capture import Capture
from dexloop.core.run import Run
from dexloop.core.status import Status, worst
from dexloop.report.audit import audit_section
from dexloop.report.demonstrate import demonstrate_section
from dexloop.report.deploy import deploy_section
from dexloop.report.figures import capture_figure, embedded, film
from dexloop.report.identify import identify_section
from dexloop.report.train import train_section
from dexloop.report.twin import twin_section

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: #222; }
img, video { max-width: 100%; border: 1px solid #ddd; } h1 { font-size: 1.5rem; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
h3 { margin: 1.8rem 0 .4rem; font-size: 1.1rem; } details { margin: 1rem 0; } summary { cursor: pointer; }
.short { white-space: nowrap; } .wide { overflow-x: auto; } figure { margin: 1rem 0; }
.films { display: flex; flex-wrap: wrap; gap: 1rem; } .films figure { margin: 0; max-width: 320px; }
.ok { color: #17803d; } .warn { color: #a15c00; } .fail { color: #b3261e; } .next { color: #777; }
"""


def write_report(run: Run, *, truth: Mapping[str, float] | None = None) -> Path:
    """Writes `report.html` of a run, with one section for each stage that has been done, and returns its path; what it
    says is also in `data.json`, for machines.

    Args:
        run: What to tell about.
        truth: The lab's true values by label ("object.mass"), in SI units, where somebody knows them.
    """
    capture = run.load("capture") if run.has("capture") else None
    sections = [_capture(capture)] if capture else []
    if run.has("twin"):
        twin = run.load("twin")
        assert isinstance(twin, Twin)
        sections.append(f"<h2>twin</h2><p>{_status(twin.status)}</p>{twin_section(twin)}")
    if run.has("identify"):
        sections.append(_identify(run.load("identify"), capture, truth))
    if run.has("demonstrate"):
        demos = run.load("demonstrate")
        assert isinstance(demos, Demos)
        sections.append(f"<h2>demonstrate</h2><p>{_status(demos.status)}</p>{demonstrate_section(demos)}")
    if run.has("train"):
        policy = run.load("train")
        assert isinstance(policy, Policy)
        sections.append(f"<h2>train</h2><p>{_status(policy.status)}</p>{train_section(policy)}")
    sections += _trials(run)
    done = [stage for stage in STAGES if run.has(stage)]
    ahead = [stage for stage in STAGES if not run.has(stage)]
    verdict = worst((run.load(stage).status for stage in done), otherwise=Status.from_json(_NOTHING))
    page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>dexloop: {html.escape(run.path.name)}</title>
<style>{_STYLE}</style></head><body>
<h1>dexloop run {html.escape(run.path.name)}</h1>
<p>{_status(verdict)}</p>
{_summary(run, truth)}
<p>Done: {", ".join(done) or "nothing"}. <span class="next">Not yet: {", ".join(ahead)}.</span></p>
<p>Options: <code>{html.escape(json.dumps(dict(run.options)))}</code>, seed {run.seed}.</p>
{"".join(sections)}
</body></html>
"""
    file = run.path / "report.html"
    with storage_errors(file):
        write_text(file, page)
        write_text(run.path / "data.json", json.dumps(_data(run), indent=1, ensure_ascii=False))
    return file


_NOTHING = {"level": "warn", "code": "empty", "message": "nothing has been done yet", "action": "Run a stage."}


def _capture(capture: object) -> str:
    assert isinstance(capture, Capture)
    rows = "".join(
        f"<tr><td>{html.escape(r.name)}</td><td>{'<br>'.join(_status(c) for c in r.checks) or 'not checked'}</td></tr>"
        for r in capture.recordings.values()
    )
    return f"""<h2>capture</h2><table><tr><th>recording</th><th>checks</th></tr>{rows}</table>
{embedded(capture_figure(capture), "what was recorded")}{"".join(_films(capture))}"""


def _identify(belief: object, capture: object, truth: Mapping[str, float] | None) -> str:
    assert isinstance(belief, Belief)
    assert capture is None or isinstance(capture, Capture)
    section = identify_section(belief, capture=capture, truth=truth)
    return f"<h2>identify</h2><p>{_status(belief.status)}</p>{section}"


def _films(capture: Capture) -> list[str]:
    return [
        film(recording.video(name), f"{recording.name}, camera {name}")
        for recording in capture.recordings.values()
        for name in recording.videos
    ]


def _rounds(run: Run) -> list[tuple[str, Path]]:
    """Returns the rounds of a loop with where they lie, the guess first."""
    others = ((p.name.removeprefix("round_"), p) for p in run.path.glob("round_*"))
    found = sorted([(1, run.path), *((int(number), p) for number, p in others if number.isdecimal())])
    return [("with a guess" if k == 0 else f"round {k}", p) for k, p in found if (p / "7_deploy" / HEADER).is_file()]


def _trials(run: Run) -> list[str]:
    """Returns the sections about trials and what came of them, and the whole ledger once, in the end."""
    sections = []
    for name, folder in _rounds(run):
        episodes = Episodes.open(folder / "7_deploy")
        sections.append(f"<h2>deploy, {name}</h2><p>{_status(episodes.status)}</p>{deploy_section(episodes)}")
        if (folder / "8_audit" / HEADER).is_file():
            ledger = Ledger.open(folder / "8_audit")
            sections.append(f"<h2>audit, {name}</h2><p>{_status(ledger.status)}</p>{audit_section(ledger)}")
    decisions = run.path / "decisions.jsonl"
    if decisions.is_file():
        whole = decisions.read_bytes().rpartition(b"\n")[0]  # the last line may be torn, or still being written
        rows = [json.loads(line) for line in whole.decode().split("\n") if line]
        listed = "".join(
            f"<tr><td class='short'>{html.escape(r['what'])}</td><td>{html.escape(r['why'])}</td></tr>" for r in rows
        )
        sections.append(f"<h2>decisions</h2><table><tr><th>when</th><th>why</th></tr>{listed}</table>")
    return sections


def _summary(run: Run, truth: Mapping[str, float] | None) -> str:
    """Returns what came out, in a few lines: what was found, and how the rounds went."""
    rows = []
    if run.has("identify"):
        for name, p in Belief.open(run.beliefs()[-1]).header.meta["parameters"].items():
            if name in ("object.mass", "table.friction", "fingertip.friction"):
                true = f", in truth {truth[name]:.3g}" if truth and name in truth else ""
                low, high = p["interval"]
                rows.append((name, f"{p['mean']:.3g}{_unit(p)} ({low:.3g} to {high:.3g}){true}"))
    for name, folder in _rounds(run):
        meta = Episodes.open(folder / "7_deploy").header.meta
        words = f"held {meta['held']} of {meta['trials']}"
        if (folder / "8_audit" / HEADER).is_file():
            success = Ledger.open(folder / "8_audit").header.meta["success"]
            low, high = success["interval"]
            words += (
                f"; in simulation {100 * success['sim']:.0f} %; gap {100 * success['gap']:+.0f} points "
                f"({100 * low:+.0f} to {100 * high:+.0f})"
            )
        rows.append((name, words))
    return "<table>" + "".join(f"<tr><th>{a}</th><td>{html.escape(b)}</td></tr>" for a, b in rows) + "</table>"


def _data(run: Run) -> dict[str, Any]:
    """Returns everything a machine may want to know of a run."""
    found: dict[str, Any] = {"run": run.path.name, "seed": run.seed, "options": dict(run.options), "stages": {}}
    for stage in STAGES:
        if run.has(stage):
            artefact = run.load(stage)
            found["stages"][stage] = {
                "status": artefact.status.to_json(), "hash": artefact.hash, "meta": dict(artefact.header.meta)
            }  # fmt: skip
    ledgers = [folder / "8_audit" / "ledger.jsonl" for _, folder in _rounds(run)]
    lines = next((file.read_text().split("\n") for file in reversed(ledgers) if file.is_file()), [])
    return found | {"ledger": [json.loads(line) for line in lines if line]}


def _status(status: Status) -> str:
    action = f" → {html.escape(status.action)}" if status.action else ""
    return f'<span class="{status.level}">{status.level}</span>: {html.escape(status.message)}{action}'


def _unit(parameter: Mapping[str, Any]) -> str:
    """Returns what stands behind a number: nothing where it has no unit."""
    unit = str(parameter.get("unit", ""))
    return f" {unit}" if unit not in ("", "1") else ""
