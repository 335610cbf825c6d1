"""The report's section about a belief: what was found, how sure it is, and how well the twin now foretells."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dexloop.core.artifact import load_arrays
from dexloop.core.artifacts import Belief
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError
from dexloop.report.figures import embedded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray
Curves = Mapping[str, Array]
"""Of one channel: t [s], measured, before, after, low, high."""

_PAIRED = 6
"""Parameters in the pair plot, at most: more cannot be read."""
_OPEN = 4
"""Stretches whose traces are shown; more are folded away."""
_COLUMNS = 4
_POSE = ("x", "y", "z", "rx", "ry", "rz")
_MEASURED, _BEFORE, _AFTER, _TRUTH = "0.15", "#c77700", "#1f6fb4", "#b3261e"


def identify_section(
    belief: Belief, *, capture: Capture | None = None, truth: Mapping[str, float] | None = None
) -> str:
    """Returns the section as HTML that needs no other file; the status is the page's to say.

    Args:
        belief: As `identify` wrote it.
        capture: What it was found from, which knows the units of its streams.
        truth: The lab's true values by label ("object.mass", "clock.camera"), in the units of the belief.

    Raises:
        InputError: The belief holds no result of `identify`.
    """
    meta, truth = belief.header.meta, truth or {}
    if "parameters" not in meta:
        raise InputError(f"{belief.path} says nothing of parameters: run dexloop identify again, with --replace")
    if "before" not in meta:  # somebody stated it
        rows = [_found(label, {"unit": "", **row})[:3] for label, row in meta["parameters"].items()]
        return "<h3>Parameters</h3>" + _rows(["parameter", "mean", "95 % interval"], rows)
    units = _units(capture)
    parts = [
        _parameters(meta, truth),
        _combinations(meta["combinations"]),
        _clocks(meta["clocks"], truth),
        _posterior(belief, truth),
        _directions(meta),
        _traces(belief, units),
        _held_out(meta["checks"].get("held_out", {}), units),
        _sampling(meta["checks"]["sampling"]),
        _nuisances(meta["nuisances"], truth),
        _notes(meta, truth),
    ]
    return "\n".join(part for part in parts if part)


def traces_figure(
    name: str, channels: Mapping[tuple[str, str], Curves], units: Mapping[tuple[str, str], str]
) -> Figure:
    """Draws measured against simulated, with the start values and with the fitted ones, one panel a channel.

    Args:
        name: Of the stretch of a recording.
        channels: Its curves by stream and channel.
        units: By stream and channel, as far as known; metres are drawn as millimetres.
    """
    from matplotlib.figure import Figure

    rows = -(-len(channels) // _COLUMNS)
    figure = Figure(figsize=(11, 2.0 * rows + 0.75), layout="constrained")
    grid = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    spans = {key: _span(curves) for key, curves in channels.items()}
    for axes, (key, curves) in zip(grid, channels.items(), strict=False):
        unit, factor = _shown(units.get(key) or _pose_unit(key[1]))
        alike = [spans[k] for k in channels if k[0] == key[0] and _pose_unit(k[1]) == _pose_unit(key[1])]
        t, drawn = curves["t"], {what: factor * curve for what, curve in curves.items() if what != "t"}
        axes.fill_between(t, drawn["low"], drawn["high"], color=_AFTER, alpha=0.3, lw=0, label="after, 95 %")
        axes.plot(t, drawn["measured"], ".", ms=2.5, color=_MEASURED, label="measured")
        axes.plot(t, drawn["before"], "--", lw=1.0, color=_BEFORE, label="before (start values)")
        axes.plot(t, drawn["after"], lw=1.2, color=_AFTER, label="after (fitted)")
        # What hardly moves is drawn no larger than a fifth of what moves most, so that noise does not look like motion.
        _limit(axes, drawn, 0.2 * factor * max(alike))
        axes.set_title(f"{key[0]}: {key[1]}" + (f" [{unit}]" if unit else ""), fontsize=8, parse_math=False)
        axes.tick_params(labelsize=7)
    for axes in grid[max(len(channels) - _COLUMNS, 0) : len(channels)]:
        axes.set_xlabel("time [s]", fontsize=7)
    for axes in grid[len(channels) :]:
        axes.axis("off")
    lines, labels = grid[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper right", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(name, fontsize=10, x=0.01, ha="left", parse_math=False)
    return figure


def posterior_figure(belief: Belief, labels: Sequence[str], truth: Mapping[str, float] | None = None) -> Figure:
    """Draws how often each value of some parameters is drawn from the posterior, alone and in pairs.

    Args:
        belief: As `identify` wrote it.
        labels: Of the parameters.
        truth: The lab's true values by label; red, where there is one.
    """
    from matplotlib.figure import Figure

    meta, truth = belief.header.meta, truth or {}
    samples = load_arrays(belief.path / "posterior.npz")["samples"]
    values = {label: samples[:, meta["labels"].index(label)] for label in labels}
    n, width = len(labels), 1.75
    figure = Figure(figsize=(max(width * n, 4.0) + 0.4, max(width * n, 2.2) + 0.4), layout="constrained")
    grid = figure.subplots(n, n, squeeze=False)
    for i, row in enumerate(labels):
        for j, column in enumerate(labels):
            axes = grid[i, j]
            if j > i:
                axes.axis("off")
                continue
            if i == j:
                _alone(axes, values[row], meta["parameters"][row]["interval"])
                axes.set_title(_named(row, meta["parameters"][row]["unit"]), fontsize=8)
            else:
                axes.plot(values[column], values[row], ".", ms=1.5, alpha=0.5, color=_AFTER)
                _scale(axes, "y", values[row], truth.get(row))
                if row in truth:
                    axes.axhline(truth[row], color=_TRUTH, lw=0.8)
            _scale(axes, "x", values[column], truth.get(column))
            if column in truth:
                axes.axvline(truth[column], color=_TRUTH, lw=0.8)
            axes.tick_params(labelsize=6, labelleft=j == 0 and i > 0, labelbottom=i == n - 1)
            for tick in axes.get_xticklabels():
                tick.set_rotation(40)
            if j == 0 and i > 0:
                axes.set_ylabel(_named(row, meta["parameters"][row]["unit"]), fontsize=7)
    return figure


def directions_figure(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Figure:
    """Draws how much of the prior's uncertainty is left along each direction, at the start and at the fitted values.

    Args:
        before: Directions as {"name": words, "left": share of the prior's standard deviation}, at the start values.
        after: The same at the fitted values.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 0.3 * max(len(before), len(after)) + 1.0), layout="constrained")
    least = min((d["left"] for d in (*before, *after)), default=1.0)
    panels = ((before, "foreseen, at the start values", _BEFORE), (after, "at the fitted values", _AFTER))
    for axes, (directions, title, colour) in zip(figure.subplots(1, 2), panels, strict=True):
        left = np.array([100.0 * d["left"] for d in directions])
        at = np.arange(len(left))
        axes.barh(at, left, color=colour, height=0.7)
        for y, share in zip(at, left, strict=True):
            axes.text(1.1 * share, y, f"{share:.2g} %", fontsize=7, va="center")
        axes.set_yticks(at, [_wrapped(d["name"]) for d in directions], fontsize=7, parse_math=False)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(30.0 * float(np.clip(least, 1e-6, 0.1)), 400.0)
        axes.axvline(100.0, color="0.4", lw=0.8, ls="--")
        axes.set_xlabel("left of the prior's standard deviation [%]; 100 % is nothing learnt", fontsize=8)
        axes.xaxis.set_major_formatter(lambda x, _position: f"{x:g}")
        axes.tick_params(axis="x", labelsize=7)
        axes.set_title(title, fontsize=9)
    return figure


def _parameters(meta: Mapping[str, Any], truth: Mapping[str, float]) -> str:
    foreseen = meta["before"]["identifiable"]
    rows = [
        [*_found(label, row), _yes(row["identifiable"]), _yes(foreseen[label]), *_true(label, row, truth)]
        for label, row in meta["parameters"].items()
    ]
    head = ["parameter", "mean", "95 % interval", "unit", "identifiable", "foreseen"]
    words = (
        "“Foreseen” says whether these recordings were expected to tell it, judged at the start values before the fit."
    )
    return "<h3>Parameters</h3>" + _table(head, rows, list(meta["parameters"].values()), truth) + f"<p>{words}</p>"


def _nuisances(rows: Mapping[str, Any], truth: Mapping[str, float]) -> str:
    if not rows:
        return ""
    body = [[*_found(label, row), *_true(label, row, truth)] for label, row in rows.items()]
    table = _table(["what", "mean", "95 % interval", "unit"], body, list(rows.values()), truth)
    return f"<details><summary>What else was estimated on the way: sensors and robot</summary>{table}</details>"


def _combinations(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return ""
    items = "".join(
        f"<li>only {html.escape(c['name'])} = {_number(c['value'], c['interval'])} {_unit(c['unit'])} "
        f"(95 %: {_interval(c['interval'])})</li>"
        for c in found
    )
    return f"<p>Known together, but not each alone:</p><ul>{items}</ul>"


def _clocks(clocks: Mapping[str, Any], truth: Mapping[str, float]) -> str:
    if not clocks:
        return ""
    true_ms = {label: 1e3 * value for label, value in truth.items()}
    rows = []
    for name, clock in clocks.items():
        ms = {"mean": 1e3 * clock["offset_s"], "interval": [1e3 * v for v in clock["interval_s"]], "unit": "ms"}
        rows.append([*_found(name, ms), *_true(f"clock.{name}", ms, true_ms)])
    head = ["clock or stream", "offset", "95 % interval", "unit", *(["lab truth", ""] if truth else [])]
    return "<h3>Clocks</h3><p>Its time minus the robot's, estimated with the rest:</p>" + _rows(head, rows)


def _posterior(belief: Belief, truth: Mapping[str, float]) -> str:
    labels = _main(belief.header.meta)
    if not labels:
        return "<h3>Posterior</h3><p>No parameter was determined, alone or with another: there is nothing to draw.</p>"
    left_out = len(belief.header.meta["parameters"]) - len(labels)
    words = (
        "Draws from the posterior; shaded on the diagonal: the 95 % interval. A slanted cloud means that two are known "
        "better together than each alone."
    )
    words += " Red: the lab's truth." if truth else ""
    words += f" {left_out} more in the table above." if left_out else ""
    return f"<h3>Posterior</h3><p>{words}</p>" + embedded(posterior_figure(belief, labels, truth), "posterior")


def _directions(meta: Mapping[str, Any]) -> str:
    figure = directions_figure(meta["before"]["directions"], meta["directions"])
    words = (
        "Each bar is a mixture of parameters, such as a product (×) or a ratio (÷), from the best to the least "
        "determined: how much of what was unsure before is left."
    )
    return f"<h3>What the recordings tell</h3><p>{words}</p>" + embedded(figure, "identifiability")


def _traces(belief: Belief, units: Mapping[tuple[str, str], str]) -> str:
    stretches: dict[str, dict[tuple[str, str], dict[str, Array]]] = {}
    for key, curve in load_arrays(belief.path / "traces.npz").items():
        stretch, stream, channel, what = key.rsplit("|", 3)
        stretches.setdefault(stretch, {}).setdefault((stream, channel), {})[what] = curve
    head = "<h3>Measured against simulated</h3>"
    if not stretches:
        return head + "<p>Nothing that was measured was simulated.</p>"
    words = (
        "The band is 95 % of what the posterior predicts, without the noise of the sensors. Clocks and the state at "
        "the beginning are the fitted ones in both simulations."
    )
    drawn = []
    for name, channels in stretches.items():
        ordered = {key: channels[key] for key in sorted(channels, key=_order)}
        drawn.append(embedded(traces_figure(name, ordered, units), f"traces of {name}"))
    more = "".join(drawn[_OPEN:])
    more = f"<details><summary>{len(drawn) - _OPEN} more</summary>{more}</details>" if more else ""
    return f"{head}<p>{words}</p>" + "".join(drawn[:_OPEN]) + more


def _held_out(check: Mapping[str, Any], units: Mapping[tuple[str, str], str]) -> str:
    head = "<h3>Does it foretell what it was not fitted to?</h3>"
    if not check:
        return head + "<p>Not checked: there is one recording only. Record another to see.</p>"
    rows = []
    for name, before in check["before"].items():
        stream, _, own = name.partition(" [")
        common = {unit for (s, _channel), unit in units.items() if s == stream}
        unit, factor = _shown(own.rstrip("]") or (common.pop() if len(common) == 1 else ""))
        after = check["after"].get(name, math.nan)
        rows.append(
            [html.escape(stream), f"{factor * before:.3g}", f"{factor * after:.3g}", unit, _change(before, after)]
        )
    left_out = html.escape(", ".join(check["recordings"]))
    verdict = "better" if check["better"] else "no better"
    words = f"Fitted without {left_out}, the twin foretells the object's motion there "
    words += f'<span class="{"ok" if check["better"] else "warn"}">{verdict}</span> than with the start values.'
    columns = ["stream", "error before", "error after", "unit", ""]
    return f"{head}<p>{words} Errors are root mean squares.</p>" + _rows(columns, rows)


def _sampling(check: Mapping[str, Any]) -> str:
    share = f"{check['draws']} draws were simulated, and {100 * check['effective_share']:.0f} % of them count."
    if check["gaussian_is_fair"]:
        verdict = '<span class="ok">A normal distribution describes the posterior well</span>: intervals come from it.'
    else:
        verdict = '<span class="warn">A normal distribution describes the posterior badly</span>: intervals come from '
        verdict += "draws, weighted by how well they explain the recordings."
    return f"<h3>Sampling check</h3><p>{verdict} {share}</p>"


def _notes(meta: Mapping[str, Any], truth: Mapping[str, float]) -> str:
    notes = list(meta["notes"])
    strange = [label for label in truth if label not in meta["labels"]]
    if strange:
        notes.append(f"the lab's truth of {', '.join(strange)} has no place here: this belief does not speak of it")
    took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in meta["seconds"].items())
    notes.append(f"it took {sum(meta['seconds'].values()):.1f} s: {took}")
    return "<h3>Notes</h3><ul>" + "".join(f"<li>{html.escape(note)}</li>" for note in notes) + "</ul>"


def _table(
    head: list[str], rows: Sequence[list[str]], found: Sequence[Mapping[str, Any]], truth: Mapping[str, float]
) -> str:
    """Writes a table with the prior as its last column, once for the components of a vector, which share its words."""
    head = [*head, *(["lab truth", ""] if truth else []), "prior"]
    priors = [row["prior"] for row in found]
    for k, prior in enumerate(priors):
        if k == 0 or priors[k - 1] != prior:
            same = next((j for j in range(k, len(priors)) if priors[j] != prior), len(priors)) - k
            rows[k].append(f'<td rowspan="{same}" class="next">{html.escape(prior)}</td>')
    return _rows(head, rows)


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = ["".join(c if c.startswith("<td") else f'<td class="short">{c}</td>' for c in row) for row in rows]
    titles = "".join(f"<th>{h}</th>" for h in head)
    return f"<table><tr>{titles}</tr>" + "".join(f"<tr>{c}</tr>" for c in cells) + "</table>"


def _found(label: str, row: Mapping[str, Any]) -> list[str]:
    low, high = row["interval"]
    relative = ""
    if low > 0 and label.count(".") == 1:  # a part of a vector may be small by chance
        relative = f" (± {50 * (high - low) / row['mean']:.2g} %)"
        if high > 2 * low:
            relative = f" (within a factor {math.sqrt(high / low):.2g})"
    interval = _interval(row["interval"]) + relative
    return [html.escape(label), _number(row["mean"], row["interval"]), interval, _unit(row["unit"])]


def _true(label: str, row: Mapping[str, Any], truth: Mapping[str, float]) -> list[str]:
    """Returns the cells of the lab's truth: none if nobody knows any, empty ones if only this is not known."""
    if label not in truth:
        return ["", ""] if truth else []
    low, high = row["interval"]
    inside = low <= truth[label] <= high
    where = '<span class="ok">inside</span>' if inside else '<span class="warn">outside</span>'
    return [_number(truth[label], row["interval"]), where]


def _main(meta: Mapping[str, Any]) -> list[str]:
    """Chooses what to draw: what was determined, alone or with another; single numbers before parts of vectors."""
    together = {name for c in meta["combinations"] for name in c["name"].split(" ")[::2]}
    told = [k for k, row in meta["parameters"].items() if row["identifiable"] or k in together]
    chosen = sorted(told, key=lambda label: label.count("."))[:_PAIRED]
    return [label for label in meta["parameters"] if label in chosen]


def _units(capture: Capture | None) -> dict[tuple[str, str], str]:
    """Returns the units of a capture's channels, by stream and channel."""
    infos = [i for r in capture.recordings.values() for i in r.streams.values()] if capture else []
    return {(i.name, c): u for i in infos for c, u in zip(i.channels, i.units, strict=True) if i.kind != "pose"}


def _pose_unit(channel: str) -> str:
    """Returns the unit of a pose's error, whose channels are always called the same; nothing for any other channel."""
    return "m" if channel in _POSE[:3] else "rad" if channel in _POSE else ""


def _order(key: tuple[str, str]) -> tuple[bool, str, int]:
    """Sorts channels so that panels stand alike in all stretches: a pose comes first, and in the usual order."""
    stream, channel = key
    return not _pose_unit(channel), stream, _POSE.index(channel) if channel in _POSE else 0


def _shown(unit: str) -> tuple[str, float]:
    """Returns the unit to show and the factor to it: lengths of a hand's size read best in millimetres."""
    return ("mm", 1e3) if unit == "m" else ("" if unit == "1" else unit, 1.0)


def _span(curves: Curves) -> float:
    """Returns how far a channel moved, or was simulated to after the fit."""
    both = np.concatenate([curves["measured"], curves["after"]])
    both = both[np.isfinite(both)]
    return float(np.ptp(both)) if both.size else 0.0


def _limit(axes: Any, drawn: Curves, least: float) -> None:
    """Shows all that was measured and fitted; of the start values, which may be far off, as much again."""
    near = np.concatenate([drawn[what] for what in ("measured", "after", "low", "high")])
    near = near[np.isfinite(near)]
    if not near.size:
        return
    low, high = float(near.min()), float(near.max())
    span = max(high - low, least, 1e-9)
    far = drawn["before"][np.isfinite(drawn["before"])]
    low = min(low, max(float(far.min(initial=low)), low - span))
    high = max(high, min(float(far.max(initial=high)), high + span))
    margin = 0.5 * max(span - (high - low), 0.0) + 0.05 * span
    axes.set_ylim(low - margin, high + margin)


def _alone(axes: Any, values: Array, interval: Sequence[float]) -> None:
    bins = 24
    if values.min() > 0 and values.max() > 5 * values.min():
        bins = np.geomspace(values.min(), values.max(), 25)
    axes.hist(values, bins=bins, color=_AFTER)
    axes.axvspan(*interval, color=_AFTER, alpha=0.15, lw=0)
    axes.set_yticks([])


def _scale(axes: Any, side: str, values: Array, true: float | None) -> None:
    """Sets side x or y so that nearly all draws and the truth are seen; in decades if they differ by a factor of 5."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = (float(v) for v in np.percentile(values, [0.2, 99.8]))
    if true is not None:
        low, high = min(low, true), max(high, true)
    if low > 0 and high > 5 * low:
        margin = (high / low) ** 0.06
        axes.set(**{f"{side}scale": "log", f"{side}lim": (low / margin, high * margin)})
        axis = getattr(axes, f"{side}axis")
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda x, _position: f"{x:g}")
    else:
        margin = 0.06 * (high - low) or 1e-9
        axes.set(**{f"{side}lim": (low - margin, high + margin)})


def _named(label: str, unit: str) -> str:
    first, _, rest = label.partition(".")
    return f"{first}\n{rest}" + (f" [{unit}]" if unit not in ("", "1") else "")


def _wrapped(words: str) -> str:
    """Breaks a direction of three before its last."""
    parts = words.split(" ")
    return words if len(parts) < 5 else " ".join(parts[:3]) + "\n" + " ".join(parts[3:])


def _change(before: float, after: float) -> str:
    if not (before > 0 and after > 0):
        return ""
    if after <= before:
        return f'<span class="ok">{before / after:.1f} times smaller</span>'
    return f'<span class="warn">{after / before:.1f} times larger</span>'


def _number(value: float, interval: Sequence[float]) -> str:
    """Writes a value with as many digits as its interval deserves: two of its width, and two of a small end."""
    low, high = sorted(interval)
    least = min(high - low, abs(low), abs(high)) if low * high > 0 else high - low
    decimals = 1 - math.floor(math.log10(least)) if least > 0 else 3
    return f"{value:.3g}" if decimals > 6 else f"{value:.{max(decimals, 0)}f}"


def _interval(interval: Sequence[float]) -> str:
    return f"{_number(interval[0], interval)} to {_number(interval[1], interval)}"


def _unit(unit: str) -> str:
    return "" if unit == "1" else html.escape(unit)


def _yes(yes: bool) -> str:
    return '<span class="ok">yes</span>' if yes else '<span class="warn">no</span>'
