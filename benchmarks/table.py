"""The table that a person reads."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from benchmarks.baseline import Line, Verdict

_STYLES = {
    Verdict.SAME: "green",
    Verdict.BETTER: "bold green",
    Verdict.STEP_BACK: "bold red",
    Verdict.NEW: "cyan",
    Verdict.VANISHED: "bold red",
}
_BETTER = {"higher": "↑", "lower": "↓"}


def table(lines: Iterable[Line]) -> Table:
    """Returns one row a metric: the figure, its baseline and target, and what to make of it."""
    out = Table("metric", "value", "unit", "", "baseline", "change", "target", "verdict", "note")
    for k in (1, 4, 5, 6):
        out.columns[k].justify = "right"
    for line in lines:
        metric, entry = line.metric, line.baseline
        verdict = Text(line.verdict.value, _STYLES[line.verdict])
        if line.misses_target:
            verdict.append(", target missed", "bold red")
        out.add_row(
            line.name,
            _number(metric.value) if metric else "",
            metric.unit if metric else entry.unit if entry else "",
            _BETTER[metric.direction] if metric else "",
            _number(entry.value) if entry else "",
            _change(line),
            _number(metric.target) if metric and metric.target is not None else "",
            verdict,
            metric.note if metric else "",
        )
    return out


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"


def _change(line: Line) -> str:
    if line.metric is None or line.baseline is None or not line.baseline.value:
        return ""
    if line.metric.unit != line.baseline.unit:
        return f"was {line.baseline.unit}"
    return f"{line.metric.value / line.baseline.value - 1:+.1%}"
