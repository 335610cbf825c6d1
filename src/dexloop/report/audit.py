"""The report's section about simulation and reality: rates, first divergences, and the ledger."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dexloop.core.artifact import load_arrays
from dexloop.core.artifacts import Ledger
from dexloop.report.figures import embedded
from dexloop.robots.traces import SURE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {
    "pose": ("height of the object", "m"), "slip": ("slip in the hand", "m"), "force": ("force on all fingers", "N"),
    "effort": ("motor effort, largest joint", "N·m or N"), "joints": ("joint position, least as told", "rad or m"),
}  # fmt: skip


def audit_section(ledger: Ledger) -> str:
    """Returns the section as HTML that needs no other file; the status is the page's to say."""
    meta = ledger.header.meta
    rows = [json.loads(line) for line in (ledger.path / "ledger.jsonl").read_text().split("\n") if line]
    new = rows[len(rows) - int(meta["new"]) :]
    figures = []
    for row in new:
        file = ledger.path / "traces" / f"{row['trial']:02d}.npz"
        arrays = load_arrays(file) if file.is_file() else {}
        if len(arrays) > 1:  # a trial that was stopped at once has times and nothing else
            words = f"case {row['case']}: reality (line) and the belief's simulations with the same commands (band)"
            figures.append(embedded(traces_figure(arrays, row), words))
    return f"{embedded(rates_figure(rows), 'success by round')}<div class='wide'>{_table(rows)}</div>{''.join(figures)}"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = (
        "<tr><th>case</th><th>round, trial</th><th>reality</th><th>simulations held</th><th>gap in slip</th>"
        "<th>gap in force</th><th>first divergence</th><th>suspects</th><th>verdict</th><th>next</th></tr>"
    )
    return f"<table>{head}{''.join(_row(row) for row in rows)}</table>"


def _row(row: Mapping[str, Any]) -> str:
    first = row["divergence"][0] if row["divergence"] else None
    when = f"{first['channel']} at {first['t']:.2f} s ({first['sigmas']:.0f} sd)" if first else "none"
    causes = "<br>".join(f"{html.escape(c['says'])} ({100 * c['explains']:.0f} %)" for c in row["causes"][:2]) or "none"
    level = "ok" if row["verdict"] == "agrees" else "warn" if row["verdict"] == "diverges" else "fail"
    held = "ok" if row["signature"] == "held" else "fail"
    return (
        f"<tr><td>{row['case']}</td><td>{row['round']}, {row['trial']}</td>"
        f"<td class='{held}'>{html.escape(row['signature'])}</td><td>{100 * row['sim']['held']:.0f} %</td>"
        f"<td>{_gap(row['gap']['slip_m'], 1e3, 'mm')}</td><td>{_gap(row['gap']['peak_force_n'], 1.0, 'N')}</td>"
        f"<td>{when}</td><td>{causes}</td><td class='{level}'>{row['verdict']}</td>"
        f"<td>{html.escape(row['next']['do'])}</td></tr>"
    )


def _gap(found: Mapping[str, Any] | None, factor: float, unit: str) -> str:
    if found is None:
        return "not known"
    low, high = (factor * v for v in found["interval"])
    return f"{factor * found['gap']:+.1f} {unit} ({low:+.1f} to {high:+.1f})"


def rates_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draws how often the object was held, in simulation and in reality, round by round."""
    from matplotlib.figure import Figure

    rounds = sorted({row["round"] for row in rows})
    figure = Figure(figsize=(1.8 + 1.3 * len(rounds), 3.0), layout="constrained")
    axes = figure.subplots()
    for k, number in enumerate(rounds):
        own = [row for row in rows if row["round"] == number]
        bars = (("simulation", float(np.mean([r["sim"]["held"] for r in own])), "#1f6fb4", -0.2),
                ("reality", float(np.mean([r["signature"] == "held" for r in own])), "#c77700", 0.2))  # fmt: skip
        for name, value, colour, aside in bars:
            axes.bar(k + aside, 100 * value, 0.36, color=colour, label=name if k == 0 else None)
            axes.text(k + aside, 100 * value + 2, f"{100 * value:.0f}", ha="center", fontsize=8)
    names = ["guess" if number == 0 else f"round {number}" for number in rounds]
    axes.set_xticks(range(len(rounds)), names)
    axes.set(ylabel="held [%]", ylim=(0, 118))
    axes.legend(loc="upper center", ncols=2, fontsize=8, frameon=False)
    return figure


def traces_figure(arrays: Mapping[str, np.ndarray], row: Mapping[str, Any]) -> Figure:
    """Draws one trial's channels with the bands of its simulations, and where they first part."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 2.7), layout="constrained")
    panels = figure.subplots(1, len(_TITLES))
    t, parted = arrays["t"], {d["channel"]: d for d in row["divergence"]}
    for axes, (channel, (title, unit)) in zip(panels, _TITLES.items(), strict=True):
        real, middle, sd = (_shown(channel, arrays, part) for part in ("real", "middle", "sd"))
        axes.fill_between(t, middle - SURE * sd, middle + SURE * sd, color="#1f6fb4", alpha=0.25, linewidth=0)
        axes.plot(t, middle, color="#1f6fb4", linewidth=0.8)
        axes.plot(t, real, color="#c77700", linewidth=1.0)
        if channel in parted:
            axes.axvline(parted[channel]["t"], color="#b3261e", linewidth=0.9, linestyle="--")
        axes.set_title(f"{title} [{unit}]", fontsize=9)
        axes.set_xlabel("time [s]", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.25)
    return figure


def _shown(channel: str, arrays: Mapping[str, np.ndarray], part: str) -> np.ndarray:
    """Returns the component of a channel that says most."""
    value = arrays[f"{channel}.{part}"]
    if channel == "pose":
        return value[:, 2]
    if channel == "force":
        return np.sqrt((value**2).sum(axis=1)) if part == "sd" else value.sum(axis=1)
    if value.shape[1] == 1:
        return value[:, 0]
    # What was not measured, as efforts on many a rig, says nothing.
    if channel == "effort":
        return value[:, int(np.argmax(np.nan_to_num(np.abs(arrays["effort.real"])).max(axis=0)))]
    off = np.abs(arrays[f"{channel}.real"] - arrays[f"{channel}.middle"]) / arrays[f"{channel}.sd"]
    return value[:, int(np.argmax(np.nan_to_num(off).mean(axis=0)))]
