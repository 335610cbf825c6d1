"""Options of the stage; its fields are also command-line flags."""

from __future__ import annotations

from dataclasses import dataclass

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class DemonstrateCfg:
    """What to learn from a film of a human hand, and how carefully."""

    recording: str = ""
    """The film; by default the one of a human hand."""
    landmarks: str = ""
    """A file of 21 landmarks a frame in the world [m], .npz or .csv, on the film's clock, instead of looking for a hand
    in the film."""
    hand: str = ""
    """"right" or "left"; by default the one that most frames show."""
    hand_length_m: float = 0.085
    """From the wrist's crease to the middle finger's knuckle: measure yours, depth depends on it [m]."""
    crush_n: float = 0.0
    """Grip force that breaks the object; 0 for what the recording says, or for one that bears anything [N]."""
    tries: int = 240
    """Ways to hold it that are tried around the one that was shown."""
    holds: int = 6
    """Of those found, how many are rehearsed; twice as many have a first try."""
    worlds: int = 12
    """In how many simulated worlds, drawn from the belief, each is rehearsed."""
    keep: float = 0.8
    """Share of the worlds in which a hold must hold."""
    taught: int = 1
    """Of the holds that are kept, the best so many are taught."""
    episodes: int = 64
    """New demonstrations made of them: other poses, masses and frictions."""
    frictions: tuple[float, ...] = ()
    """Frictions between hand and object that they are made at, each as often; by default any from 0.2 to 1.6."""
    seed: int = 0
    """Of the random numbers."""

    def __post_init__(self) -> None:
        ranges = {
            "hand_length_m": (0.05, 0.13), "crush_n": (0.0, 1e5), "tries": (1, 100_000), "holds": (1, 100),
            "taught": (1, 100), "worlds": (1, 10_000), "keep": (0.0, 1.0), "episodes": (2, 100_000),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is from {low:g} to {high:g}, not {getattr(self, name):g}")
        for value in self.frictions:
            if not 0.05 <= value <= 5.0:
                raise InputError(f"frictions are from 0.05 to 5, not {value:g}")
        if self.hand not in ("", "right", "left"):
            raise InputError(f"hand is right or left, not {self.hand!r}")
