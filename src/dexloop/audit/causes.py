"""Why reality went another way: which single change of the simulation explains most of the difference.

Each suspect (mass, friction, delay, gain, where the camera is) is tried at some values, all in one batch of worlds that
get the commands that were sent. What explains is what brings the simulation closer in all channels together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.audit.predict import Channels, moved
from dexloop.sim.believed import Draws

FACTORS = (0.35, 0.5, 0.7, 0.85, 1.18, 1.4, 1.9, 2.7)
LATER_S = (-0.02, -0.01, 0.01, 0.02, 0.035, 0.055, 0.08)
ASIDE_M = (0.005, 0.01, 0.018)
ANGLES = 6
"""Directions in which the camera may be off."""
_FAR = 6.0
"""A sample that is off by more standard deviations counts as if it were off by so many: one late contact shall not
decide everything."""
LEAST = 0.05
"""What explains a smaller share of the difference explains nothing."""


@dataclass(frozen=True)
class Suspect:
    """One thing in which the simulation may be wrong."""

    name: str
    """As in the belief; "camera" for where the object is seen."""
    value: float
    """What it would have to be: a factor on what was believed, or an addition [s or m]."""
    unit: str
    """"×", "s" or "m"."""
    shift: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """For the camera: the object stands so far from where it is seen, along x and y [m]."""

    def __str__(self) -> str:
        if self.unit == "×":
            return f"{self.name} is {self.value:.2f} times what was believed"
        if self.unit == "s":
            return f"{self.name} is {1e3 * abs(self.value):.0f} ms {'longer' if self.value > 0 else 'shorter'}"
        return f"the object stands {1e3 * self.value:.0f} mm from where it is seen"


@dataclass(frozen=True)
class Cause:
    """A suspect with what speaks for it."""

    suspect: Suspect
    explains: float
    """Share of the difference that is gone with it, 0 to 1."""


def suspects(names: tuple[str, ...]) -> list[Suspect]:
    """Returns all that are tried, given which parameters the belief draws."""
    found = [Suspect(name, f, "×") for name in ("object.mass", "fingertip.friction") for f in FACTORS]
    found += [Suspect("actuator.gain", f, "×") for f in FACTORS]
    found += [Suspect("actuator.delay", s, "s") for s in LATER_S if "actuator.delay" in names]
    for far in ASIDE_M:
        for a in 2 * np.pi * np.arange(ANGLES) / ANGLES:
            found.append(Suspect("camera", far, "m", (far * float(np.cos(a)), far * float(np.sin(a)), 0.0)))
    return found


def tried(
    middle: Draws, all_of: list[Suspect], T_world_object: Float[np.ndarray, "4 4"]
) -> tuple[Draws, Float[np.ndarray, "n 4 4"]]:
    """Returns worlds with each suspect in turn, and where the object stands in each.

    Args:
        middle: One row: the middle of the belief.
        all_of: The suspects.
        T_world_object: Where it is seen.
    """
    n = len(all_of)
    draws = Draws(middle.names, middle.sizes, np.repeat(middle.values[:1], n, axis=0))
    by_name = draws.by_name()
    for name in {s.name for s in all_of} - {"camera"}:
        at = by_name[name][:, 0] if name in by_name else np.ones(n)
        values = at.copy()
        for k, s in enumerate(all_of):
            if s.name == name:
                values[k] = at[k] * s.value if s.unit == "×" else max(at[k] + s.value, 0.0)
        draws = draws.with_hand_friction(values) if name == "fingertip.friction" else draws.with_values(name, values)
    return draws, np.stack([moved(T_world_object, np.array(s.shift)) for s in all_of])


def ranked(
    real: Channels,
    middle: Channels,
    worlds: Channels,
    all_of: list[Suspect],
    spread: dict[str, Float[np.ndarray, "m c"]],
) -> list[Cause]:
    """Returns what explains the difference, best first.

    Args:
        real: The trial.
        middle: The simulation as believed, one world.
        worlds: One for each suspect.
        all_of: The suspects.
        spread: One standard deviation, see `divergence.scales`.
    """
    base = distance(real, middle, 0, spread)
    best: dict[str, Cause] = {}
    for k, suspect in enumerate(all_of):
        seen = np.array([-suspect.shift[0], -suspect.shift[1], 0.0])
        share = 1.0 - distance(real, worlds, k, spread, seen=seen) / base
        if share > best.get(suspect.name, Cause(suspect, LEAST)).explains:
            best[suspect.name] = Cause(suspect, float(share))
    return sorted(best.values(), key=lambda c: -c.explains)


def distance(
    real: Channels,
    worlds: Channels,
    k: int,
    spread: dict[str, Float[np.ndarray, "m c"]],
    *,
    seen: Float[np.ndarray, "3"] = np.zeros(3),  # noqa: B008 - not changed
) -> float:
    """Returns how far a world is from reality: root mean square over time, components and channels [sd].

    Args:
        real: The trial.
        worlds: Simulated.
        k: Which of them.
        spread: One standard deviation.
        seen: By how much the camera shifts what it sees [m].
    """
    total = []
    for name, sd in spread.items():
        simulated = worlds.values[name][k] + (seen if name == "pose" else 0.0)
        off = np.abs(real.values[name][0] - simulated) / sd
        off = off[np.isfinite(off)]
        if len(off):  # not every rig measures everything
            total.append(float(np.mean(np.square(np.minimum(off, _FAR)))))
    return float(np.sqrt(np.mean(total)))
