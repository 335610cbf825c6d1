"""Options of the stage; its fields are also command-line flags."""

from __future__ import annotations

from dataclasses import dataclass

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class DeployCfg:
    """How a policy is tried on a rig."""

    trials: int = 4
    """How many; the first are pilots."""
    pilots: int = 1
    """So many first trials run with half the speed and acceleration limits; one that fails ends the deployment."""
    around_m: float = 0.02
    """How far from its mark the object is put, where someone is there to put it [m]."""
    turn_rad: float = 0.3
    """And how far it is turned [rad]."""
    hold_s: float = 3.0
    """How long it is held up [s]."""
    shake_s: float = 2.0
    """And shaken [s]."""
    failures: int = 3
    """So many failed trials in a row end the deployment."""
    shadow: bool = False
    """Compute and compare, but send nothing."""
    trial_seed: int = 0
    """Of where the object is put, and in which order."""

    def __post_init__(self) -> None:
        ranges = {
            "trials": (1, 10_000), "pilots": (0, 10_000), "around_m": (0.0, 0.2), "turn_rad": (0.0, 3.15),
            "hold_s": (0.0, 600.0), "shake_s": (0.0, 600.0), "failures": (1, 10_000),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is from {low:g} to {high:g}, not {getattr(self, name):g}")
