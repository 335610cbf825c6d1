"""Options of the loop; its fields are also command-line flags. Readable without loading any stage."""

from __future__ import annotations

from dataclasses import dataclass

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class LoopCfg:
    """How often to go round, and when to be content."""

    rounds: int = 2
    """At most so many after the guess."""
    trials: int = 3
    """Real trials a round."""
    budget: int = 12
    """Real trials in all."""
    gap: float = 0.1
    """A difference between success in simulation and in reality that is small enough."""
    sure: float = 0.2
    """Relative standard deviation of mass and friction that is small enough; else another push comes first. A grip is
    ready for the heavy end anyway: what is not known better is held harder than it need be."""
    pushes: int = 2
    """So many further pushes at most before the first deployment."""
    guess: bool = True
    """First try the policy with a guess instead of what was identified, to see what identification is worth."""
    guess_kg: float = 0.2
    """Mass that is guessed [kg]."""
    guess_friction: float = 0.5
    """Friction that is guessed."""
    trial_seed: int = 0
    """Of where the object is put."""

    def __post_init__(self) -> None:
        ranges = {
            "rounds": (1, 100), "trials": (1, 1000), "budget": (1, 100_000), "gap": (0.0, 1.0), "sure": (1e-3, 10.0),
            "pushes": (0, 20), "guess_kg": (1e-3, 100.0), "guess_friction": (0.01, 3.0),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is from {low:g} to {high:g}, not {getattr(self, name):g}")
