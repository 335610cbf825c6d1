"""What to do next, given what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dexloop.audit.causes import Cause
from dexloop.audit.divergence import Divergence
from dexloop.robots.outcome import CRUSHED, HELD, LATE, STOPPED

MOTIONS: Mapping[str, dict[str, Any]] = {
    "object.mass": {"plan": "Push", "speed_m_s": 0.6, "distance_m": 0.12, "release": True},
    "fingertip.friction": {"plan": "Push", "speed_m_s": 0.25, "distance_m": 0.08, "offset_m": 0.015},
    "actuator.gain": {"plan": "FreeMotion", "duration_s": 4.0},
    "actuator.delay": {"plan": "FreeMotion", "duration_s": 4.0},
    "camera": {"plan": "Scan"},
}
"""A motion that tells each of the suspects, where no better one was designed."""


def verdict_of(diverged: Sequence[Divergence], held: bool, share: float) -> str:
    """Returns in a word what a trial says about the simulation.

    Args:
        diverged: Channels that left their bands.
        held: Whether the object was held.
        share: In which share of the simulated worlds it was.
    """
    if held == (share >= 0.5):
        return "diverges" if diverged else "agrees"
    return "contradicts"


def next_action(
    signature: str, causes: Sequence[Cause], diverged: Sequence[Divergence], share: float
) -> dict[str, Any]:
    """Returns the next thing to do: `do`, in a word; the `parameters` it is about; a `motion` that tells them, if any;
    and `why`, in a sentence.

    Args:
        signature: How the trial ended.
        causes: What explains the difference, best first.
        diverged: Channels that left their bands, first one first.
        share: In which share of the simulated worlds the object was held.
    """
    if signature == STOPPED:  # whatever explains it, first of all somebody looks at the robot
        return {"do": "look", "parameters": [], "motion": None, "why": "the gate stopped it: see what it noted"}
    if causes:
        names = [c.suspect.name for c in causes[:2]]
        first = causes[0].suspect
        do = {"camera": "collect a scan", "actuator.delay": "add a delay"}.get(first.name, "re-identify")
        second = f"; else {causes[1].suspect}" if len(causes) > 1 else ""
        why = f"{100 * causes[0].explains:.0f} % of the difference is gone if {first}{second}"
        return {"do": do, "parameters": names, "motion": MOTIONS[first.name], "why": why}
    if signature == HELD and share < 0.5:
        names, said = ["object.mass", "fingertip.friction"], f"only in {100 * share:.0f} % of simulations"
        return {"do": "re-identify", "parameters": names, "motion": MOTIONS[names[0]],
                "why": f"it was held, but {said}: it may be lighter, or rougher, than believed"}  # fmt: skip
    if signature == HELD:
        return {"do": "nothing", "parameters": [], "motion": None, "why": "it was held, and as predicted"}
    if signature == CRUSHED:
        return {"do": "shift", "parameters": ["fingertip.friction"], "motion": None,
                "why": "it was squeezed too hard: a higher friction that is known better asks for less"}  # fmt: skip
    if share < 0.5:
        return {"do": "widen", "parameters": ["object.mass", "fingertip.friction"], "motion": None,
                "why": f"it fails in {100 * (1 - share):.0f} % of simulations: train over wider ranges"}  # fmt: skip
    late = "it came too late" if signature == LATE else f"it {signature}"
    return {"do": "widen", "parameters": [d.channel for d in diverged[:1]], "motion": None,
            "why": f"{late}, and no single parameter explains it: train over wider ranges"}  # fmt: skip
