"""How far a robot may go: limits that come from the robot itself and can only be tightened."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError, UnknownName
from dexloop.rig.protocol import CommandInfo, Features
from dexloop.robots.embodiment import Embodiment

RISE_S = 0.015
"""Without limits of its own a joint may reach full speed in this time. That is much, but pushes need it: their finger
brakes at 12 m/s², for an elbow of an arm up to 52 times its top speed a second. Tighten it where nothing is pushed [s].
"""
SWELL_S = 0.006
"""And full acceleration in this one [s]."""
STALE_S, PAUSE_S, LATE_PERIODS = 0.1, 0.05, 5
"""Observations may be so old, and commands so late while the robot moves; neither is less than a few periods [s]."""

_PER_JOINT = ("speed", "acceleration", "jerk", "effort")
_SCALARS = ("effort_s", "drop_m", "stale_s", "policy_period_s", "failures")


@dataclass(frozen=True, eq=False)
class Limits:
    """What no command and no observation may leave. Arrays are in the order of `joints`.

    Raises:
        InputError: A limit is not positive, not finite where it must be, or of the wrong length.
    """

    joints: tuple[str, ...]
    position: Float[np.ndarray, "n 2"]
    """[rad or m]"""
    speed: Float[np.ndarray, " n"]
    """[rad/s or m/s]"""
    acceleration: Float[np.ndarray, " n"]
    """[rad/s² or m/s²]"""
    jerk: Float[np.ndarray, " n"]
    """[rad/s³ or m/s³]"""
    effort: Float[np.ndarray, " n"]
    """What is measured may be beyond it for `effort_s` [N·m or N]."""
    period_s: float
    """Between two commands, as the robot expects them [s]."""
    fingers: tuple[str, ...] = ()
    """Channels of the touch sensor."""
    fingertip_force_n: Float[np.ndarray, " f"] = dataclasses.field(default_factory=lambda: np.zeros(0))
    """Where a finger's force stops the robot, one a finger [N]."""
    workspace_m: Float[np.ndarray, "2 3"] | None = None
    """Lowest and highest corner of the box in the world that the palm stays in [m]."""
    effort_s: float = 0.1
    drop_m: float = 0.05
    """A lifted object may fall so far, seen from the palm, where both are seen [m]."""
    stale_s: float = STALE_S
    """Age of the oldest observation to act on [s]."""
    policy_period_s: float = PAUSE_S
    """Longest time between two commands while the robot moves [s]."""
    failures: int = 3
    """So many failed trials in a row stop it."""

    def __post_init__(self) -> None:
        n = len(self.joints)
        for name, shape in (("position", (n, 2)), *((k, (n,)) for k in _PER_JOINT)):
            value = np.array(getattr(self, name), dtype=np.float64)
            if value.shape != shape:
                raise InputError(f"limits of {name} are {list(shape)} numbers for {n} joints, not {list(value.shape)}")
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        forces = np.array(self.fingertip_force_n, dtype=np.float64)
        if forces.shape != (len(self.fingers),):
            raise InputError(f"fingertip forces are one for each of {len(self.fingers)} fingers, not {forces.shape}")
        forces.setflags(write=False)
        object.__setattr__(self, "fingertip_force_n", forces)
        low, high = self.position.T
        for k, joint in enumerate(self.joints):
            if not (math.isfinite(low[k]) and math.isfinite(high[k]) and low[k] < high[k]):
                raise InputError(f"joint {joint!r} may go from {low[k]} to {high[k]}: give two finite, rising numbers")
            for name in ("speed", "acceleration", "jerk"):
                value = getattr(self, name)[k]
                if not 0.0 < value < math.inf:
                    raise InputError(f"joint {joint!r} has a limit of {name} of {value}: it is finite and above 0")
        positive = (*self.effort, *forces, *(getattr(self, k) for k in _SCALARS), self.period_s)
        if not all(value > 0.0 for value in positive):
            raise InputError("a limit of effort, force, time, fall or failures is not above 0")
        if self.workspace_m is not None:
            box = np.array(self.workspace_m, dtype=np.float64)
            if box.shape != (2, 3) or not (box[0] < box[1]).all():
                raise InputError("a workspace is its lowest and its highest corner [2, 3], in metres")
            box.setflags(write=False)
            object.__setattr__(self, "workspace_m", box)

    @staticmethod
    def of(embodiment: Embodiment, *, rate_hz: float, **settings: Any) -> Limits:
        """Returns the limits of a robot.

        Args:
            embodiment: The robot.
            rate_hz: How often it expects commands [1/s].
            settings: Fields of `Limits` that the robot does not say, such as `acceleration` or `workspace_m`.
        """
        e = embodiment
        return _of(e.joints, e.position_limits, e.speed_limits, e.effort_limits, rate_hz, settings)

    @staticmethod
    def of_rig(features: Features, **settings: Any) -> Limits:
        """Returns the limits that a rig tells of itself. Touch sensors give fingertip forces: where one saturates, the
        force is not known any more, so no limit is above that.

        Args:
            features: Of the rig.
            settings: As in `of`.

        Raises:
            InputError: The rig takes no commands.
        """
        command: CommandInfo | None = features.command
        if command is None:
            raise InputError(f"rig {features.name!r} takes no commands: there is nothing to limit")
        touch = next((s for s in features.streams if s.kind == "touch"), None)
        if touch is not None:
            settings["fingers"] = tuple(touch.channels)
            most = [high for _, high in touch.limits] if touch.limits else [math.inf] * len(touch.channels)
            settings["fingertip_force_n"] = np.minimum(most, settings.get("fingertip_force_n", math.inf))
        c = command
        return _of(c.joints, c.position_limits, c.speed_limits, c.effort_limits, c.rate_hz, settings)

    def tightened(self, **changes: Any) -> Limits:
        """Returns limits with some of them tightened.

        Args:
            changes: Fields by name. One for each joint (or finger), one for all, or some by name:
                `speed={"wrist_x": 0.3}`. `position` is a pair for all, [n, 2], or pairs by name.

        Raises:
            InputError: A change would loosen a limit.
            UnknownName: There is no such limit or joint.
        """
        choices = ("position", *_PER_JOINT, "fingertip_force_n", "workspace_m", *_SCALARS)
        new: dict[str, Any] = {}
        for name, change in changes.items():
            if name not in choices:
                raise UnknownName("limit", name, choices)
            old = getattr(self, name)
            if name == "workspace_m":
                value = np.asarray(change, dtype=np.float64)
                looser = value.shape != (2, 3) or (
                    old is not None and not ((value[0] >= old[0]).all() and (value[1] <= old[1]).all())
                )
            elif name in _SCALARS:
                value, looser = change, not change <= old
            else:
                names = self.fingers if name == "fingertip_force_n" else self.joints
                value = _filled(name, old, change, names)
                inside = (value[:, 0] >= old[:, 0]) & (value[:, 1] <= old[:, 1]) if value.ndim == 2 else value <= old
                looser = not inside.all()
                if looser:
                    name = f"{name} of {names[int(np.argmin(inside))]!r}"
            if looser:
                raise InputError(f"the limit of {name} can only be tightened: it is {old}, {change} was asked for")
            new[name] = value
        return dataclasses.replace(self, **new)


def _of(joints: Any, position: Any, speed: Any, effort: Any, rate_hz: float, settings: dict[str, Any]) -> Limits:
    if not 0.0 < rate_hz < math.inf:
        raise InputError(f"a robot expects commands at {rate_hz} a second: no limits follow from that")
    speed = np.asarray(speed, dtype=np.float64)
    settings.setdefault("acceleration", speed / RISE_S)
    settings.setdefault("jerk", np.asarray(settings["acceleration"]) / SWELL_S)
    settings.setdefault("stale_s", max(STALE_S, LATE_PERIODS / rate_hz))
    settings.setdefault("policy_period_s", max(PAUSE_S, LATE_PERIODS / rate_hz))
    return Limits(
        tuple(joints), np.asarray(position), speed, effort=np.asarray(effort), period_s=1.0 / rate_hz, **settings
    )


def _filled(name: str, old: np.ndarray, change: Any, names: tuple[str, ...]) -> np.ndarray:
    """Returns the whole array of a change that was given for all, for each, or for some by name."""
    if isinstance(change, Mapping):
        value = old.copy()
        for key, entry in change.items():
            if key not in names:
                raise UnknownName("joint" if name != "fingertip_force_n" else "finger", key, names)
            value[names.index(key)] = entry
        return value
    try:
        return np.broadcast_to(np.asarray(change, dtype=np.float64), old.shape).copy()
    except ValueError as error:
        raise InputError(f"the limit of {name} is {list(old.shape)} numbers, not {np.shape(change)}") from error
