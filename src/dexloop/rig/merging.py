"""Several Captures of one bench as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dexloop.core.artifact import writing
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError
from dexloop.rig.layout import describe, link_or_copy


def merge(captures: Sequence[Capture], out: str | Path) -> Capture:
    """Writes a Capture with the recordings of all; names that appear again are numbered.

    Args:
        captures: In the order they were made.
        out: Where the Capture shall be.

    Raises:
        InputError: They are of different robots, or the place is taken.
    """
    robots = {str(r.robot.get("name", "")) for c in captures for r in c.recordings.values()} - {""}
    if len(robots) > 1:
        raise InputError(f"recordings of {' and '.join(sorted(robots))} do not belong into one capture")
    inputs = {f"capture_{k + 1}": capture for k, capture in enumerate(captures)}
    with writing(out, Capture, inputs=inputs) as draft:
        kept = []
        for capture in captures:
            for recording in capture.recordings.values():
                name, again = recording.name, 1
                while name in {r.name for r in kept}:
                    again += 1
                    name = f"{recording.name}_again{again}"
                kept.append(replace(recording, name=name))
                for file in sorted(p for p in recording.folder.rglob("*") if p.is_file()):
                    link_or_copy(file, draft.folder / "recordings" / name / file.relative_to(recording.folder))
        describe(draft, kept)
    return Capture.open(out)
