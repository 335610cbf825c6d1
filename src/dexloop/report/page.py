"""One self-contained HTML file about a run: open it anywhere, offline."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path

from dexloop.core.artifact import storage_errors, write_text
from dexloop.core.artifacts import STAGES, Belief, Demos, Policy, Twin
from dexloop.core.capture import Capture
from dexloop.core.run import Run
from dexloop.core.status import Status, worst
from dexloop.report.demonstrate import demonstrate_section
from dexloop.report.figures import capture_figure, embedded
from dexloop.report.identify import identify_section
from dexloop.report.train import train_section
from dexloop.report.twin import twin_section

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: #222; }
img, video { max-width: 100%; border: 1px solid #ddd; } h1 { font-size: 1.5rem; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
h3 { margin: 1.8rem 0 .4rem; font-size: 1.1rem; } details { margin: 1rem 0; } summary { cursor: pointer; }
.short { white-space: nowrap; }
.ok { color: #17803d; } .warn { color: #a15c00; } .fail { color: #b3261e; } .next { color: #777; }
"""


def write_report(run: Run, *, truth: Mapping[str, float] | None = None) -> Path:
    """Writes `report.html` of a run, with one section for each stage that has been done, and returns its path.

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
    done = [stage for stage in STAGES if run.has(stage)]
    ahead = [stage for stage in STAGES if not run.has(stage)]
    verdict = worst((run.load(stage).status for stage in done), otherwise=Status.from_json(_NOTHING))
    page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>dexloop: {html.escape(run.path.name)}</title>
<style>{_STYLE}</style></head><body>
<h1>dexloop run {html.escape(run.path.name)}</h1>
<p>{_status(verdict)}</p>
<p>Done: {", ".join(done) or "nothing"}. <span class="next">Not yet: {", ".join(ahead)}.</span></p>
<p>Options: <code>{html.escape(json.dumps(dict(run.options)))}</code>, seed {run.seed}.</p>
{"".join(sections)}
</body></html>
"""
    file = run.path / "report.html"
    with storage_errors(file):
        write_text(file, page)
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
    found = []
    for recording in capture.recordings.values():
        for name in recording.videos:
            data = base64.b64encode(recording.video(name).path.read_bytes()).decode()
            found.append(
                f"<figure><video controls muted loop playsinline src='data:video/mp4;base64,{data}'></video>"
                f"<figcaption>{html.escape(recording.name)}, camera {html.escape(name)}</figcaption></figure>"
            )
    return found


def _status(status: Status) -> str:
    action = f" → {html.escape(status.action)}" if status.action else ""
    return f'<span class="{status.level}">{status.level}</span>: {html.escape(status.message)}{action}'
