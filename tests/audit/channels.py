"""Signals that are worked out, not simulated: what a trial could have measured, were the world as simple as this."""

from __future__ import annotations

import numpy as np

from dexloop.audit.predict import CHANNELS, Channels

T = 0.02 * np.arange(150)
SIZES = {"pose": 3, "slip": 1, "force": 2, "effort": 4, "joints": 4}
SIZE_OF = {"pose": 0.1, "slip": 0.0, "force": 8.0, "effort": 5.0, "joints": 0.5}


def made(n: int, rng: np.random.Generator, *, noise: float = 0.3, spread: float = 0.3, **add: np.ndarray) -> Channels:
    """Worlds that differ a little, with some noise, both in units of what a simulation is never better than.

    Args:
        n: How many.
        rng: Where chance comes from.
        noise: From moment to moment.
        spread: From world to world.
        add: By channel, added to all of them [m, c].
    """
    from dexloop.audit.divergence import FLOOR

    values = {}
    for name in CHANNELS:
        c, floor = SIZES[name], FLOOR[name] * (SIZE_OF[name] if name == "effort" else 1.0)
        curve = SIZE_OF[name] * np.sin(T[:, None] + np.arange(c))
        by_world = spread * floor * rng.normal(size=(n, 1, c))
        values[name] = curve + by_world + noise * floor * rng.normal(size=(n, len(T), c)) + add.get(name, 0.0)
    return Channels(T, values)


def step(channel: str, component: int, at_s: float, size: float) -> np.ndarray:
    """A channel that jumps at some time."""
    out = np.zeros((len(T), SIZES[channel]))
    out[at_s - 1e-9 <= T, component] = size
    return out
