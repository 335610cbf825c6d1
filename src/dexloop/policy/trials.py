"""Trials of a policy on a rig, as they lie in an `Episodes` artefact.

trials.json     what was tried, and what came of it, one entry a trial
trials/01/      its recording, a `Capture`
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from dexloop.core.artifacts import Episodes
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError
from dexloop.robots.outcome import Outcome
from dexloop.robots.pickup import Load

_ANYTHING_N = 1e9
PILOT_SHARE = 0.5
"""How fast pilots go, of how fast the policy was taught to; and of the limits of speed, acceleration and jerk."""


@dataclass(frozen=True)
class Trial:
    """One trial, as it is written down beside its recording."""

    number: int
    """From 1."""
    pilot: bool
    shift: tuple[float, float, float] | None
    """Where the object was put: from its mark along x and y [m], and turned [rad]; None where nobody put it."""
    T_world_object: list[list[float]]
    """Where the twin's frame was seen at the start."""
    T_track_object: list[list[float]]
    """From the frame that the tracker follows to the twin's."""
    load: dict[str, Any]
    """What the policy was told."""
    moments: dict[str, float]
    """When it began, lifted, held and ended, on the robot's clock [s]."""
    outcome: dict[str, Any]
    gate: list[dict[str, Any]]
    """What the safety gate did and why."""
    stopped: tuple[str, ...] = ()
    """Why the gate stopped the robot for good, until a person has looked at it; empty if it did not."""

    @property
    def pace(self) -> float:
        """How fast it went, of how fast the policy was taught to."""
        return PILOT_SHARE if self.pilot else 1.0

    @staticmethod
    def from_json(data: dict[str, Any]) -> Trial:
        """Reads what was written."""
        shift = None if data["shift"] is None else tuple(data["shift"])
        return Trial(**{**data, "shift": shift, "stopped": tuple(data.get("stopped", ()))})


def trials_of(episodes: Episodes) -> list[tuple[Trial, Capture]]:
    """Reads what was deployed: each trial with its recording.

    Raises:
        InputError: A file is damaged.
    """
    file = episodes.path / "trials.json"
    try:
        trials = [Trial.from_json(row) for row in json.loads(file.read_text())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file} is damaged ({error}): deploy again") from error
    return [(trial, Capture.open(episodes.path / "trials" / f"{trial.number:02d}")) for trial in trials]


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """Returns values of which numbers that are none are None, which JSON can say."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def outcome_of(said: dict[str, Any]) -> Outcome:
    """Reads an outcome whose numbers may be None."""
    numbers = {k: math.nan if v is None else float(v) for k, v in said.items() if k != "verdict"}
    return Outcome(str(said["verdict"]), **numbers)


def load_of(said: dict[str, Any]) -> Load:
    """Reads what `plain_load` wrote."""
    return Load(**{**said, "com": tuple(said["com"])})


def plain_load(load: Load) -> dict[str, Any]:
    """Returns a load in plain JSON; one that bears anything has a crush limit of a giganewton."""
    return asdict(replace(load, crush_n=min(load.crush_n, _ANYTHING_N)))
