"""What identify finds in real data: tosses of a cube, where the data are at hand."""

from __future__ import annotations

from benchmarks import cube_tosses
from benchmarks.metric import Metric


def run() -> list[Metric]:
    """Real tosses of a cube, where the data are at hand: nothing pushes it, so its mass cannot be told."""
    found = cube_tosses.fitted()
    low, high = cube_tosses.FRICTION
    note = f"interval {found.friction_interval[0]:.3f} to {found.friction_interval[1]:.3f}, asked for {low} to {high}"
    outside = max(low - found.friction, found.friction - high, 0.0)
    off = abs(found.inertia_per_mass / (cube_tosses.INERTIA / cube_tosses.MASS) - 1.0)
    ratios = [after / found.held_out["before"][stream] for stream, after in found.held_out["after"].items()]
    return [
        Metric("tosses: friction outside what was published", outside, "1", "lower", 0.5, 0.0, note),
        Metric("tosses: error of inertia over mass", off, "1", "lower", 0.5, 0.1),
        Metric("tosses: error on tosses kept back, after over before", max(ratios), "1", "lower", 0.2, 1.0),
        Metric(
            "tosses: mass is said not to be identifiable", float(not found.mass_identifiable), "1", "higher", 0.0, 1.0
        ),
    ]
