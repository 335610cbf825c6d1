"""The report's section about demonstrations: the hand in the film, the robot's hand, and what holds."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from dexloop.core.artifact import load_arrays
from dexloop.core.artifacts import Demos
from dexloop.report.figures import embedded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = {
    "hand.png": "the hand in the film: the skeleton that was fitted, and its path",
    "retarget.png": "the human's gesture, and the robot's",
    "holds.png": "ways to hold it that hold in simulation",
}
"""By file in the artefact, with what they show."""


def demonstrate_section(demos: Demos) -> str:
    """Returns the section as HTML that needs no other file; the status is the page's to say."""
    meta = demos.header.meta
    parts = [
        f"<p>{meta['frames']} frames show a {'right' if meta['right'] else 'left'} hand "
        f"({100 * meta['frames_seen']:.0f} % of them measured, the rest bridged). Of {meta['tried']} postures around "
        f"the one shown, the best {len(meta['holds'])} were rehearsed in worlds drawn from the belief, and "
        f"{meta['kept']} were kept.</p>",
        _holds(meta["holds"]),
        _reasons(meta["reasons"]),
    ]
    for name, about in PICTURES.items():
        file = demos.path / name
        if file.is_file():
            parts.append(embedded(file.read_bytes(), about))
    figure = force_figure(load_arrays(demos.path / "demos.npz"))
    varied = ", ".join(f"{n} {what}" for what, n in sorted(meta["varied"].items(), key=lambda item: -item[1]))
    parts.append(
        f"<h3>New demonstrations</h3><p>Other places, masses and frictions: {html.escape(varied)}; what was held is "
        f"kept.</p>{embedded(figure, 'grip force against mass')}"
    )
    return "\n".join(parts)


def force_figure(arrays: dict[str, np.ndarray]) -> Figure:
    """Draws how hard all fingers together press, against the mass that is believed, coloured by friction."""
    from matplotlib.figure import Figure

    episode, lifting = arrays["episode"].astype(int), arrays["phase"] >= 3
    first = [int(np.flatnonzero((episode == k) & lifting)[0]) for k in range(len(arrays["start"]))]
    force = arrays["force"][first].sum(axis=1) / arrays["firmness"][first]
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axes = figure.subplots()
    dots = axes.scatter(arrays["mass_kg"], force, c=arrays["friction"], cmap="viridis_r", s=22)
    axes.set(xlabel="believed mass [kg]", ylabel="force of the fingers [N]", xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    figure.colorbar(dots, label="believed friction")
    return figure


def _holds(holds: list[dict]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(h['kind'])}</td><td>{h['friction_needed']:.2f}</td><td>{100 * h['held']:.0f} %</td>"
        f"<td>{1e3 * h['slip_m']:.1f}</td>"
        f"<td>{html.escape(', '.join(f'{n} {what}' for what, n in h['outcomes'].items()))}</td></tr>"
        for h in holds
    )
    head = "<tr><th>hold</th><th>friction it needs</th><th>held</th><th>slip [mm]</th><th>outcomes</th></tr>"
    return f"<table>{head}{rows}</table>"


def _reasons(reasons: dict[str, int]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(why)}</td><td>{n}</td></tr>"
        for why, n in sorted(reasons.items(), key=lambda item: -item[1])
    )
    return f"<details><summary>Why other postures were not kept</summary><table>{rows}</table></details>"
