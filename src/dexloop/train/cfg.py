"""Options of the stage; its fields are also command-line flags."""

from __future__ import annotations

from dataclasses import dataclass

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class TrainCfg:
    """How a policy is trained."""

    epochs: int = 80
    """How often each example is seen."""
    batch: int = 256
    """Examples a step."""
    learning_rate: float = 1e-3
    """Of the first steps; it sinks to nothing in half a cosine."""
    hidden: int = 256
    """Width of the network's layers."""
    noise: float = 1.0
    """On what is seen of hand and object while training, as a part of each number's spread: what makes a policy forgive
    sensors, and come back to the path of the demonstrations."""
    kept_back: float = 0.15
    """Part of the episodes that is not trained on, but tells how good the policy is where it was not trained."""
    rounds: int = 1
    """How often the policy is tried in simulation, told at each moment what would have been right there, and trained
    again with that too; 0 to imitate only."""
    worlds: int = 24
    """Drawn from the belief, in which it is tried each time."""
    seed: int = 0
    """Of the random numbers: which episodes are kept back, first weights, order of examples, noise."""

    def __post_init__(self) -> None:
        ranges = {
            "epochs": (1, 100_000), "batch": (1, 1_000_000), "learning_rate": (1e-7, 1.0), "hidden": (8, 4096),
            "noise": (0.0, 10.0), "kept_back": (0.01, 0.9), "rounds": (0, 100), "worlds": (1, 10_000),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is from {low:g} to {high:g}, not {getattr(self, name):g}")
