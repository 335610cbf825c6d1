"""The `Rig` protocol: the only way the engine touches a robot, real or embedded.

A rig owns time. On hardware `sleep` waits; in the lab it advances the simulated bench. Streams arrive in batches, each
stamped on its own clock, and nothing here pretends that two clocks agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core.capture import StreamInfo, VideoInfo


@dataclass(frozen=True)
class CommandInfo:
    """What `send` takes: position targets, one a joint, inside these limits."""

    joints: tuple[str, ...]
    units: tuple[str, ...]
    """"rad" or "m", one a joint."""
    position_limits: tuple[tuple[float, float], ...]
    """[rad or m]"""
    speed_limits: tuple[float, ...]
    """[rad/s or m/s]"""
    effort_limits: tuple[float, ...]
    """[N·m or N]"""
    home: tuple[float, ...]
    """A pose that is safe to start from [rad or m]."""
    rate_hz: float
    """How often a command is expected [1/s]."""


@dataclass(frozen=True)
class Features:
    """What a rig has. Readable while it is disconnected."""

    name: str
    robot: Mapping[str, Any]
    """`name` (as `dexloop.robots.load` takes it) and `joints`; `T_world_base` [4x4] if known; empty without a robot."""
    streams: tuple[StreamInfo, ...]
    videos: tuple[VideoInfo, ...]
    command: CommandInfo | None
    """None for a rig that only watches."""
    scene: Mapping[str, Any] = field(default_factory=dict)
    """What is publicly known of the place: table height, marker board, the object's name and where it roughly is."""


@dataclass(frozen=True)
class Samples:
    """New samples of one stream."""

    t: Float[np.ndarray, " n"]
    """[s] on the stream's own clock."""
    value: Float[np.ndarray, "n c"]


@dataclass(frozen=True)
class Frames:
    """New pictures of one camera."""

    t: Float[np.ndarray, " n"]
    """[s] on the camera's own clock."""
    pictures: UInt8[np.ndarray, "n h w 3"] | Callable[[], UInt8[np.ndarray, "n h w 3"]]
    """RGB, or what makes them when somebody looks: a simulated camera need not draw what nobody does."""

    @cached_property
    def image(self) -> UInt8[np.ndarray, "n h w 3"]:
        """The pictures, RGB."""
        return self.pictures() if callable(self.pictures) else self.pictures


@dataclass(frozen=True)
class Observation:
    """Everything that arrived since the last call, by stream and by camera; what is silent is absent."""

    samples: Mapping[str, Samples]
    frames: Mapping[str, Frames]


@runtime_checkable
class Rig(Protocol):
    """A bench: a robot, cameras and other sensors."""

    @property
    def features(self) -> Features:
        """What it has; works while disconnected."""
        ...

    def connect(self) -> None:
        """Opens the hardware. The robot does not move."""
        ...

    def disconnect(self) -> None:
        """Lets go of the hardware; safe to call twice and after a failure."""
        ...

    def now(self) -> float:
        """Returns the host's clock [s]."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Lets time pass."""
        ...

    def observe(self) -> Observation:
        """Returns what arrived since the last call."""
        ...

    def send(self, target: Float[np.ndarray, " joints"]) -> None:
        """Sends position targets in the order of `features.command.joints` [rad or m]."""
        ...

    def stop(self) -> None:
        """Stops the robot at once and holds it; commands are refused until it is connected again."""
        ...


@runtime_checkable
class Operator(Protocol):
    """The person at the bench with a camera in hand, where a rig has one (the lab does).

    At a real bench a person films with a phone instead, and the video is imported.
    """

    def scan(self, *, duration_s: float, fps: float) -> tuple[VideoInfo, Iterator[Frames]]:
        """Walks once around the object with a hand-held camera."""
        ...

    def place_object(self, shift: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> None:
        """Puts the object back onto its mark, or shifted from it along x and y [m] and turned about the vertical [rad];
        the robot is out of the way."""
        ...

    def demonstrate(self, *, duration_s: float, fps: float) -> tuple[VideoInfo, Iterator[Frames]]:
        """Films a human hand that reaches for the object, grasps and lifts it."""
        ...
