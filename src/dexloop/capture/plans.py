"""What can be recorded: small plans that a rig carries out. Their fields are also command-line flags."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class Scan:
    """Walk once around the object with a hand-held camera."""

    duration_s: float = 8.0
    """[s]"""
    fps: float = 10.0
    """Frames a second."""

    def __post_init__(self) -> None:
        _require(self, duration_s=(1.0, 600.0), fps=(1.0, 120.0))


@dataclass(frozen=True)
class FreeMotion:
    """Move the robot alone, every joint at its own frequencies, so that the robot itself can be calibrated."""

    duration_s: float = 6.0
    """[s]"""
    amplitude: float = 0.5
    """Fraction of what limits, speed and free space allow, from 0 to 1."""
    variation: int = 0
    """Another number is another motion."""

    def __post_init__(self) -> None:
        _require(self, duration_s=(0.5, 600.0), amplitude=(0.01, 1.0), variation=(0, 2**31))


@dataclass(frozen=True)
class Press:
    """Press the pushing fingertip onto the bare table beside the object, harder each time, to tell how soft it is."""

    force_n: float = 8.0
    """About how hard the last press is [N]; the first ones are gentler. A rough fingertip, which does not slide, may
    press half as hard again. Of a hard fingertip a gentle press tells only where the table is."""
    presses: int = 3
    """How often it presses."""
    press_s: float = 0.3
    """How long it takes to go down, and as long to come up [s]. A slow press tells softness; a fast one, inertia."""
    settle_s: float = 0.15
    """How long it stays at the bottom, and above the table between two presses [s]."""
    direction_rad: float = 0.0
    """On which side of the object: where a push in this direction comes from [rad]; 0 is the robot's own side."""

    def __post_init__(self) -> None:
        _require(self, force_n=(0.5, 20.0), presses=(1, 20), press_s=(0.2, 10.0), settle_s=(0.0, 10.0))
        _require(self, direction_rad=(-7.0, 7.0))


@dataclass(frozen=True)
class Push:
    """Push the object with one fingertip in a straight line."""

    speed_m_s: float = 0.12
    """Of the fingertip at the end [m/s]. Slow pushes tell only mass times friction; fast ones tell them apart."""
    touch_m_s: float = 0.05
    """Of the fingertip when it meets the object, at most [m/s]: it speeds up behind it, for a blow makes it bounce."""
    height_m: float = 0.03
    """Of the fingertip above the table [m]. Low slides, high topples."""
    direction_rad: float = 0.0
    """Of the push about the vertical [rad]; 0 is away from the robot's base."""
    distance_m: float = 0.10
    """How far the fingertip goes after it should have met the object [m]."""
    offset_m: float = 0.0
    """How far beside the object's middle, to the left of the direction [m]: an offset push turns it."""
    release: bool = True
    """Stop at once and pull back at the end, so that the object coasts; otherwise slow down and stay."""
    settle_s: float = 0.6
    """How long to keep looking afterwards [s]."""

    def __post_init__(self) -> None:
        _require(self, speed_m_s=(0.005, 0.8), touch_m_s=(0.005, 0.8), height_m=(0.005, 1.0), direction_rad=(-7.0, 7.0))
        _require(self, distance_m=(0.005, 0.5), offset_m=(-0.2, 0.2), settle_s=(0.0, 30.0))


@dataclass(frozen=True)
class Lift:
    """Pinch the object between thumb and a finger (or two jaws), lift it, hold it and put it down."""

    height_m: float = 0.06
    """How high [m]."""
    squeeze_m: float = 0.02
    """How far inside the surface the fingertips aim; the servos' softness turns it into force [m]."""
    hold_s: float = 0.8
    """How long to hold it up [s]."""
    grip_height_m: float | None = None
    """Where to pinch it, above the table [m]; by default 40 mm below its top, and never below 60 % of its height."""
    grip_width_m: float | None = None
    """How wide it is there [m]; by default as wide as the narrow side of its box. A bottle's neck is narrower."""

    def __post_init__(self) -> None:
        _require(self, height_m=(0.005, 0.5), squeeze_m=(0.001, 0.1), hold_s=(0.0, 60.0))
        _require(self, grip_height_m=(0.005, 1.0), grip_width_m=(0.002, 0.3))


@dataclass(frozen=True)
class HumanVideo:
    """Film a human hand that grasps and lifts the object."""

    duration_s: float = 3.0
    """[s]"""
    fps: float = 30.0
    """Frames a second."""

    def __post_init__(self) -> None:
        _require(self, duration_s=(1.0, 600.0), fps=(8.0, 120.0))


def _require(plan: object, **ranges: tuple[float, float]) -> None:
    for name, (low, high) in ranges.items():
        value = getattr(plan, name)
        if value is not None and not low <= value <= high:  # also so for NaN
            raise InputError(f"{type(plan).__name__}.{name} is from {low:g} to {high:g}, not {value:g}")


Plan = Scan | FreeMotion | Press | Push | Lift | HumanVideo


def describe(plan: Plan) -> dict[str, Any]:
    """Returns the plan as plain JSON, with its class's name under `plan`."""
    return {"plan": type(plan).__name__, **dataclasses.asdict(plan)}
