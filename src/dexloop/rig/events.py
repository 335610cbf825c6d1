"""What a safety gate did and why, written down."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

MOST = 10_000
"""Events that are kept."""


class Action(enum.StrEnum):
    """What became of a command, from good to bad."""

    PASS = "pass"
    """It is sent as it is."""
    CLIP = "clip"
    """Some joint goes to its limit instead."""
    SLOW = "slow"
    """Some joint follows more slowly than was asked."""
    HOLD = "hold"
    """Nothing is sent."""
    STOP = "stop"
    """The robot brakes and stays stopped until a person resets it."""
    RESET = "reset"
    """A person has reset it."""


class Reason(enum.StrEnum):
    """Why."""

    POSITION = "joint position"
    SPEED = "joint speed"
    ACCELERATION = "joint acceleration"
    JERK = "joint jerk"
    BRAKING = "it could not stop before its limit"
    TOO_SOON = "command too soon after the last"
    WORKSPACE = "palm leaves the workspace"
    COMMAND = "command not finite"
    LATE = "command too late"
    FAILURES = "too many failed trials in a row"
    CLOCK = "clock not finite or running backwards"
    BLIND = "no observation yet"
    STALE = "observation too old"
    NOT_FINITE = "observation not finite"
    FROZEN = "encoder frozen"
    FORCE = "fingertip force"
    EFFORT = "joint effort"
    DROPPED = "object dropped"
    RIG = "the rig failed"
    EMERGENCY = "emergency stop"


LET_GO = frozenset({Reason.FORCE, Reason.EFFORT, Reason.RIG, Reason.EMERGENCY})
"""After these the robot's own stop is called at once, which holds it where it is and so presses no longer; a rig
that fails is not relied upon to brake. After all others it brakes and holds its last target: what is in the hand stays
there, and no encoder has to be believed."""
STAY = LET_GO | {Reason.BLIND, Reason.STALE, Reason.NOT_FINITE, Reason.FROZEN, Reason.CLOCK}
"""After these there is no retreat."""


@dataclass(frozen=True)
class Event:
    """One thing that the gate did; what is the same from command to command is one event."""

    t: float
    """When it began [s]."""
    until: float
    """When it happened last [s]."""
    count: int
    action: Action
    reasons: tuple[Reason, ...]
    joint: str = ""
    """The first joint or finger that it was about, if any."""
    asked: float | None = None
    """What was asked of that joint, or measured there, at first [SI]."""
    sent: float | None = None
    """What was sent instead [rad or m]."""
    person: str = ""
    """Who reset it."""

    def __str__(self) -> str:
        where = f" ({self.joint}: {self.asked:g} → {self.sent:g})" if self.sent is not None else ""
        where = where or (f" ({self.joint}: {self.asked:g})" if self.asked is not None else "")
        often = f", {self.count} times" if self.count > 1 else ""
        by = f" by {self.person}" if self.person else ""
        return f"{self.t:.3f} s: {self.action}{by}: {', '.join(self.reasons)}{where}{often}"

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {**self.__dict__, "action": str(self.action), "reasons": [str(r) for r in self.reasons]}


class EventLog:
    """Events in order. The first ones are kept, and stops and resets always; of others it is counted how many came."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self.left_out = 0
        """Events beyond what is kept."""

    def add(self, event: Event) -> None:
        """Writes an event down, together with the last one if it is more of the same."""
        last = self._events[-1] if self._events else None
        if last is not None and (last.action, last.reasons, last.joint, last.person) == (
            event.action,
            event.reasons,
            event.joint,
            event.person,
        ):
            self._events[-1] = replace(last, until=event.t, count=last.count + 1)
        elif len(self._events) < MOST or event.action in (Action.STOP, Action.RESET):
            self._events.append(event)
        else:
            self.left_out += 1

    @property
    def events(self) -> tuple[Event, ...]:
        """All that are kept."""
        return tuple(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self._events)

    def __str__(self) -> str:
        more = [f"and {self.left_out} more"] if self.left_out else []
        return "\n".join([*map(str, self._events), *more])
