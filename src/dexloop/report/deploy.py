"""The report's section about trials on a rig: how each went, and what the safety gate did."""

from __future__ import annotations

import html
from collections import Counter
from typing import Any

from dexloop.core.artifacts import Episodes
from dexloop.policy.trials import Trial, outcome_of, trials_of
from dexloop.report.figures import film

_NOTED = 4
"""Kinds of events of the gate that are named."""


def deploy_section(episodes: Episodes) -> str:
    """Returns the section as HTML that needs no other file; the status is the page's to say."""
    found = trials_of(episodes)
    rows = "".join(_row(trial) for trial, _ in found)
    head = (
        "<tr><th>trial</th><th>object put at</th><th>outcome</th><th>slip</th><th>highest force</th>"
        "<th>off the table after</th><th>the gate</th></tr>"
    )
    films = []
    for trial, capture in found:
        for recording in capture.recordings.values():
            films += [film(recording.video(name), f"trial {trial.number}: {trial.outcome['verdict']}")
                      for name in recording.videos]  # fmt: skip
    load = episodes.header.meta["load"]
    told = f"{load['mass_kg']:.3f} kg, at most {load['mass_high_kg']:.3f} kg; friction {load['friction']:.2f}"
    return (
        f"<p>The policy was told: {told}.</p><div class='wide'><table>{head}{rows}</table></div>"
        f"<div class='films'>{''.join(films)}</div>"
    )


def _row(trial: Trial) -> str:
    out = outcome_of(trial.outcome)
    x, y, turn = trial.shift or (0.0, 0.0, 0.0)
    place = f"{1e3 * x:+.0f}, {1e3 * y:+.0f} mm, {57.3 * turn:+.0f}°" if trial.shift else "where it stood"
    off = f"{out.off_s:.2f} s" if out.off_s == out.off_s else "never"
    level = "ok" if out.held else "fail"
    return (
        f"<tr><td>{trial.number}{' (pilot)' if trial.pilot else ''}</td><td class='short'>{place}</td>"
        f"<td class='{level}'>{html.escape(out.verdict)}</td><td>{1e3 * out.slip_m:.1f} mm</td>"
        f"<td>{out.peak_force_n:.1f} N</td><td>{off}</td><td>{gate_words(trial.gate)}</td></tr>"
    )


def gate_words(events: list[dict[str, Any]]) -> str:
    """Says what the gate did in one trial."""
    count: Counter[str] = Counter()
    for event in events:
        count[f"{event['action']}: {', '.join(event['reasons'])}"] += int(event["count"])
    stops = [name for name in count if name.startswith("stop")]
    named = stops + [name for name, _ in count.most_common(_NOTED) if name not in stops]
    words = [html.escape(f"{name} ({count[name]})") for name in named]
    return "<br>".join(words) or "let everything pass"
