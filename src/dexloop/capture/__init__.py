"""capture: a rig, or files that somebody recorded elsewhere, become a `Capture`."""

from dexloop.capture.plans import FreeMotion, HumanVideo, Lift, Plan, Push, Scan
from dexloop.capture.record import capture

__all__ = ["FreeMotion", "HumanVideo", "Lift", "Plan", "Push", "Scan", "capture"]
