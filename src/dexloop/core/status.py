"""Statuses that say what to do next."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How good a result is."""

    OK = "ok"
    """Use it."""
    WARN = "warn"
    """Usable; read the message."""
    FAIL = "fail"
    """Do not use it; do what the action says."""


@dataclass(frozen=True)
class Status:
    """The verdict on a result: how good it is, why, and what to do next."""

    level: Level
    code: str
    """A stable word for machines, such as "dropped_frames"."""
    message: str
    """What was found, with numbers."""
    action: str = ""
    """What to do about it, as an imperative sentence."""

    def to_json(self) -> dict[str, str]:
        """Returns a plain dictionary."""
        return {"level": self.level.value, "code": self.code, "message": self.message, "action": self.action}

    @staticmethod
    def from_json(data: dict[str, str]) -> Status:
        """Reads what `to_json` wrote."""
        return Status(Level(data["level"]), data["code"], data["message"], data.get("action", ""))

    def __str__(self) -> str:
        return f"{self.level}: {self.message}" + (f" → {self.action}" if self.action else "")


def worst(statuses: Iterable[Status], *, otherwise: Status) -> Status:
    """Returns the first status of the worst level, or `otherwise` when there is none."""
    order = [Level.OK, Level.WARN, Level.FAIL]
    return max(statuses, key=lambda s: order.index(s.level), default=otherwise)
