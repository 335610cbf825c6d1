"""Options of the stage; its fields are also command-line flags."""

from __future__ import annotations

from dataclasses import dataclass

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class IdentifyCfg:
    """What to find, and how carefully."""

    parameters: tuple[str, ...] = ()
    """What to find, with commas: object.mass,table.friction. By default mass, centre of mass, and friction and softness
    of what touches the object."""
    priors: tuple[str, ...] = ()
    """What is known before, as NAME=MEAN:SD; otherwise within a factor of 7 of the model's own mass, and of 4 of its
    friction."""
    recordings: tuple[str, ...] = ()
    """Which recordings to use; all that show motion if none is named."""
    held_out: tuple[str, ...] = ()
    """Recordings that are only predicted; by default the last one of several is, once, before it is used too."""
    tool: str = ""
    """A body of the model that follows its measured pose, instead of being driven by joint commands."""
    from_video: bool = False
    """Track the object in the video even if its pose was recorded otherwise."""
    gains: tuple[str, ...] = ("joint_effort",)
    """Streams whose scale may be wrong by a few percent; it is estimated."""
    window_s: float = 0.25
    """Length of the pieces into which a recording that begins in motion is cut [s]."""
    timestep_s: float = 0.002
    """Of the simulation, which ends with steps half as long; a model given by the user keeps its own [s]."""
    samples: int = 96
    """Values tried over the whole prior before going down."""
    descents: int = 2
    """From how many places it goes down; each is the best of an equal share of the values that were tried."""
    seed: int = 0
    """Of the random numbers."""

    def __post_init__(self) -> None:
        for name in ("parameters", "priors", "recordings", "held_out", "gains"):
            parts = [part.strip() for text in getattr(self, name) for part in text.split(",")]
            object.__setattr__(self, name, tuple(part for part in parts if part))
        ranges = {
            "window_s": (0.02, 60.0), "timestep_s": (1e-4, 0.02), "samples": (1, 100_000), "descents": (1, 1000),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is from {low:g} to {high:g}, not {getattr(self, name):g}")
