"""The fields of observations and actions: their order, sizes, units, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass

from dexloop.robots.pickup import PHASES as PHASES

POINTS = 128
"""On the object's surface: what the network sees of its shape."""
LONG_S = 1.9
"""A phase that has lasted longer has lasted as long as this: nobody showed what comes later [s]."""
POSE = 9
"""Numbers of a pose: position, and the first two columns of the rotation, which have no jump as angles have."""


@dataclass(frozen=True)
class Field:
    """A part of an observation or an action."""

    name: str
    size: int
    unit: str
    """"1" where it has none; several, where its numbers differ, with commas."""
    meaning: str


def observation_fields(hand_joints: int, fingertips: int) -> tuple[Field, ...]:
    """Returns what a policy sees, in order. The object's points come beside it, once for all."""
    return (
        Field("palm", POSE, "m, 1", "palm, from where the object stood at the start"),
        Field("object", POSE, "m, 1", "object, from the palm"),
        Field("slip", 3, "m", "how far the object moved, seen from the palm, since the lift began; zero before"),
        Field("q", hand_joints, "rad or m", "positions of the hand's joints"),
        Field("push", hand_joints, "rad or m", "command minus position of the hand's joints, which makes servos push"),
        Field("touch", fingertips, "N", "normal force that each fingertip feels"),
        Field("belief", 4, "1", "log of the mean mass in kg, sd of log mass, least friction that is likely, 0"),
        Field("phase", len(PHASES), "1", "1 for the present phase, 0 for the others"),
        Field("clock", 1, "s", f"time since the phase began, at most {LONG_S:g}"),
    )


def action_fields(hand_joints: int, fingertips: int) -> tuple[Field, ...]:
    """Returns what a policy answers, in order."""
    return (
        Field("palm", POSE, "m, 1", "where the palm shall be next, from where the object stood at the start"),
        Field("hand", hand_joints, "rad or m", "position targets of the hand's joints"),
        Field("force", fingertips, "N", "normal force with which each finger shall push; zero or more"),
        Field("phase", len(PHASES), "1", "logits of the phase to be in next"),
    )
