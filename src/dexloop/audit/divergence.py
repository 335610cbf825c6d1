"""Where reality first left what was predicted: by channel, against the band of the belief's worlds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.audit.predict import Channels
from dexloop.robots.traces import SURE

LASTS_S = 0.1
"""For at least so long [s]: a single sample proves nothing."""
FLOOR = {"pose": 3e-3, "slip": 2e-3, "force": 0.5, "effort": 0.03, "joints": 4e-3}
"""What a simulation is never better than, one standard deviation, in each channel's unit. Of efforts, a part of the
largest one that a joint made."""


@dataclass(frozen=True)
class Divergence:
    """A channel that left its band."""

    channel: str
    component: int
    """Which of its components did so first."""
    t: float
    """When [s]."""
    real: float
    """Mean while outside at first."""
    low: float
    """The band then."""
    high: float
    sigmas: float
    """How far outside at most, in standard deviations."""


def scales(real: Channels, worlds: Channels) -> dict[str, Float[np.ndarray, "m c"]]:
    """Returns one standard deviation of what reality may differ by: of the worlds, of the sensor, of simulation."""
    found = {}
    for name, value in worlds.values.items():
        measured = real.values[name][0]
        floor = np.full(value.shape[2], FLOOR[name])
        if name == "effort":
            floor = floor * np.maximum(np.abs(np.nan_to_num(measured)).max(axis=0), 1e-3)
        # Differences of neighbours tell the noise of a sensor, whatever it measures.
        steps = np.diff(np.nan_to_num(measured), 2, axis=0)
        noise = 1.4826 * np.median(np.abs(steps), axis=0) / np.sqrt(6.0)
        found[name] = np.sqrt(value.var(axis=0) + noise**2 + floor**2)
    return found


def divergences(real: Channels, worlds: Channels) -> list[Divergence]:
    """Returns the channels that left their bands, first one first."""
    spread = scales(real, worlds)
    found = []
    for name, sd in spread.items():
        middle, value = np.median(worlds.values[name], axis=0), real.values[name][0]
        outside = (value - middle) / sd
        first = _first(np.abs(outside) > SURE, real.t)
        if first is None:
            continue
        k, c = first
        few = slice(k, k + max(round(LASTS_S / float(real.t[1] - real.t[0])), 1))
        found.append(
            Divergence(
                name, c, float(real.t[k]), float(np.mean(value[few, c])), float(middle[k, c] - SURE * sd[k, c]),
                float(middle[k, c] + SURE * sd[k, c]), float(np.nanmax(np.abs(outside[:, c]))),
            )
        )  # fmt: skip
    return sorted(found, key=lambda d: d.t)


def _first(outside: np.ndarray, t: np.ndarray) -> tuple[int, int] | None:
    """Returns the first moment, and the component, from which on something stays outside for long enough."""
    few = max(round(LASTS_S / float(t[1] - t[0])), 1)
    if len(t) < few:
        return None
    count = np.cumsum(np.concatenate([np.zeros((1, outside.shape[1])), outside]), axis=0)
    whole = count[few:] - count[:-few] == few
    when = np.flatnonzero(whole.any(axis=1))
    return None if not len(when) else (int(when[0]), int(np.argmax(whole[when[0]])))
