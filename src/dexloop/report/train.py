"""The report's section about a policy: how it learned, and how well it does what it was shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dexloop.core.artifacts import Policy
from dexloop.report.figures import embedded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PARTS = {"palm": "palm", "hand": "hand joints", "force": "finger force", "phase": "phase (cross entropy)"}


def train_section(policy: Policy) -> str:
    """Returns the section as HTML that needs no other file; the status is the page's to say."""
    training: dict[str, Any] = policy.header.meta["training"]
    best = training["log"][training["best"]]["kept"]
    rows = "".join(f"<tr><td>{name}</td><td>{best[part]:.4f}</td></tr>" for part, name in _PARTS.items())
    return (
        f"<p>{training['examples']} examples of {training['episodes']} episodes; "
        f"{len(training['kept_episodes'])} episodes were kept back.</p>"
        f"<table><tr><th>part of the action</th><th>loss on episodes kept back, by which the epoch was chosen: the "
        f"part of the variance that is left</th></tr>"
        f"{rows}</table>{embedded(loss_figure(training), 'losses')}{_improvement(training.get('improvement', []))}"
    )


def _improvement(rounds: list[dict[str, Any]]) -> str:
    """Says what trials in simulation were worth."""
    if not rounds:
        return ""
    rows = "".join(
        f"<tr><td>{k}</td><td>{100 * r['held_before']:.0f} %</td><td>{100 * r['held_after']:.0f} %</td>"
        f"<td>{r['examples']}</td></tr>"
        for k, r in enumerate(rounds, 1)
    )
    return (
        f"<p>Then it was tried in {rounds[0]['worlds']} simulated worlds drawn from the belief, told at each moment "
        f"what would have been right there, and trained again; it was kept if it held no fewer, in other worlds.</p>"
        f"<table><tr><th>round</th><th>held before</th><th>held after</th><th>examples</th></tr>{rows}</table>"
    )


def loss_figure(training: dict[str, Any]) -> Figure:
    """Draws the losses of each part over the epochs, on what was trained on and on what was kept back."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.8), layout="constrained")
    axes = figure.subplots(1, len(_PARTS))
    epochs = np.arange(1, len(training["log"]) + 1)
    for ax, (part, name) in zip(axes, _PARTS.items(), strict=True):
        for which, colour in (("train", "#c77700"), ("kept", "#1f6fb4")):
            ax.semilogy(epochs, [max(entry[which][part], 1e-6) for entry in training["log"]], color=colour, label=which)
        ax.axvline(training["best"] + 1, color="0.7", linewidth=0.8)
        ax.set(title=name, xlabel="epoch")
        ax.grid(alpha=0.3)
    axes[0].legend(labels=["trained on", "kept back"])
    return figure
