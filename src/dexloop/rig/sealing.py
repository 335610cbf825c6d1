"""What was written into the journal becomes finished recordings, and these become a `Capture`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as with_changes
from pathlib import Path

from dexloop.core.artifact import write_text, writing
from dexloop.core.capture import Capture, Recording
from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status
from dexloop.rig import journal as journals
from dexloop.rig.journal import Journal, plain_json, read_rows
from dexloop.rig.layout import describe, link_or_copy, save_stream, save_times, video_file, worst_first
from dexloop.vision.video import frame_times, trim_fragments

Checks = Sequence[Status] | Callable[[Recording], Sequence[Status]]
"""What was found about a recording, or a function that looks at it once it is readable."""


def interrupted(recording: Recording, reason: str) -> Status:
    """Returns the warning that a recording ended early, with up to what time each of its streams goes."""
    ends = {n: recording.stream(n).t for n in recording.streams} | {n: recording.video(n).t for n in recording.videos}
    until = ", ".join(f"{name} to {t[-1]:.3f} s" for name, t in ends.items()) or "nothing was recorded"
    return Status(
        Level.WARN,
        "interrupted",
        f"recording {recording.name!r} was {reason}; complete: {until}",
        "use it up to there, or record it again",
    )


def seal(recording: Recording, checks: Checks, markers: Mapping[str, float]) -> Recording:
    """Turns raw files into the layout of a Capture; `finished.json` comes last and says that all is there."""
    folder, silent = recording.folder, []
    streams, videos = dict(recording.streams), dict(recording.videos)
    for name, info in recording.streams.items():
        rows = read_rows(folder / "raw" / f"{name}.f64", 1 + len(info.channels))
        if len(rows):
            save_stream(folder, name, rows[:, 0], rows[:, 1:])
        else:
            silent.append(streams.pop(name).name)
    for name in recording.videos:
        file = video_file(folder, name)
        frames = _frames_in(file)
        if frames:
            save_times(folder, name, read_rows(folder / "raw" / f"{name}.times.f64", 1)[:frames, 0])
        else:
            file.unlink(missing_ok=True)
            silent.append(videos.pop(name).name)
    recording = with_changes(recording, streams=streams, videos=videos, markers=dict(markers))
    found = list(checks(recording) if callable(checks) else checks)
    if silent:
        found.append(
            Status(
                Level.WARN,
                "silent",
                f"{', '.join(silent)} gave nothing in recording {recording.name!r} and is left out",
                "check the cable or the driver, or take it out of the rig's features",
            )
        )
    recording = with_changes(recording, checks=worst_first(found))
    write_text(folder / journals.FINISHED, plain_json(recording.to_json()))
    return recording


def _frames_in(file: Path) -> int:
    """Cuts a video behind its last whole fragment and returns how many pictures it holds."""
    if not file.is_file():
        return 0
    trim_fragments(file)
    try:
        return len(frame_times(file))
    except InputError:  # no fragment was complete
        return 0


def finalise(path: Path, journal: Journal, *, replace: bool, seed: int | None) -> Capture:
    """Writes the Capture of a journal's finished recordings and removes the journal.

    Raises:
        InputError: There is nothing in them; the journal is removed too.
    """
    found = [read_recording(folder, journals.FINISHED) for folder in journal.recordings()]
    recordings = [r for r in found if r.streams or r.videos]
    if not recordings:
        shutil.rmtree(journal.folder, ignore_errors=True)
        raise InputError(f"nothing was recorded for {path}: no stream and no camera gave anything")
    with writing(path, Capture, seed=seed, replace=replace) as draft:
        for recording in recordings:
            target = draft.folder / "recordings" / recording.name
            for name in recording.streams:
                link_or_copy(recording.folder / "streams" / f"{name}.npz", target / "streams" / f"{name}.npz")
            for name in recording.videos:
                for suffix in ("mp4", "npz"):
                    file = f"{name}.{suffix}"
                    link_or_copy(recording.folder / "videos" / file, target / "videos" / file)
        describe(draft, recordings)
        draft.meta["journal"] = journal.id
    shutil.rmtree(journal.folder, ignore_errors=True)
    return Capture.open(path)


def read_recording(folder: Path, file: str) -> Recording:
    """Reads a recording's description out of the journal."""
    return Recording.from_json(json.loads((folder / file).read_text()), folder)
