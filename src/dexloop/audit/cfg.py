"""Options of the stage; its fields are also command-line flags."""

from __future__ import annotations

from dataclasses import dataclass

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class AuditCfg:
    """How carefully real trials are compared with simulated ones."""

    worlds: int = 12
    """In how many worlds, drawn from the belief, the policy is let do each trial again."""
    bands: int = 10
    """In how many the commands that were sent are sent again, for the bands."""
    target: float = 0.1
    """A gap between success rates that is smaller is good enough."""
    round: int = 1
    """Which round of a loop it is."""
    seed: int = 0
    """Of the worlds."""

    def __post_init__(self) -> None:
        ranges = {"worlds": (1, 10_000), "bands": (3, 10_000), "target": (0.0, 1.0), "round": (0, 10_000)}
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is from {low:g} to {high:g}, not {getattr(self, name):g}")
