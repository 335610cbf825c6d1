"""capture: a rig, or files that somebody recorded elsewhere, become a `Capture`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dexloop.capture.plans import FreeMotion, HumanVideo, Lift, Plan, Press, Push, Scan

if TYPE_CHECKING:
    from dexloop.capture.record import capture

__all__ = ["FreeMotion", "HumanVideo", "Lift", "Plan", "Press", "Push", "Scan", "capture"]


def __getattr__(name: str) -> Any:
    """Loads the verb when it is first asked for, so that a command line can know the plans without the physics."""
    if name == "capture":
        from dexloop.capture.record import capture

        return capture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
