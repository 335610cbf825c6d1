"""One case of a ledger, done again in the twin: beside what really happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from dexloop.audit import ledger as ledgers
from dexloop.audit.causes import Cause
from dexloop.audit.divergence import Divergence, divergences
from dexloop.audit.predict import Channels, predicted_felt
from dexloop.audit.stage import explain
from dexloop.core import se3
from dexloop.core.artifact import Artifact
from dexloop.core.artifacts import Belief, Episodes, Policy, Twin
from dexloop.core.capture import Recording
from dexloop.core.errors import InputError
from dexloop.policy.bundle import open_policy
from dexloop.policy.rehearsal import Stage
from dexloop.policy.trials import trials_of
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.handling import Felt
from dexloop.robots.staging import open_scene, place_of, robot_of
from dexloop.robots.traces import RATE_HZ, traces
from dexloop.sim.believed import draw, mean_of, middle
from dexloop.sim.render import Renderer
from dexloop.vision.video import VideoWriter, read_frames

_FPS = 25.0


@dataclass(frozen=True, eq=False)
class Replayed:
    """What was found when a case was done again."""

    row: dict[str, Any]
    """Of the ledger."""
    real: Channels
    band: Channels
    diverged: list[Divergence]
    causes: list[Cause]
    film: Path | None
    """Reality on the left, where it was filmed, and the twin on the right."""


def replay_case(ledger: Path, number: int, film: Path | None = None, *, worlds: int = 10) -> Replayed:
    """Does one case of a ledger again in the twin.

    Args:
        ledger: The artefact's folder.
        number: Of the case.
        film: Where a film shall be written; None for no film.
        worlds: Of the belief's, for the bands.

    Raises:
        InputError: The ledger is not whole, or what it speaks of is not where it was or was changed.
        UnknownName: There is no such case.
    """
    row = ledgers.case(ledger, number)
    folder = ledger if ledger.is_dir() else ledger.parent
    kinds = {"episodes": Episodes, "policy": Policy, "twin": Twin, "belief": Belief}
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        found[name] = _find(folder, kind, row["inputs"][name], f"the {name} of case {number}")
    trial, capture = next((t, c) for t, c in trials_of(found["episodes"]) if t.number == row["trial"])
    recording = capture.recording()
    robot, base, scene = open_scene(found["twin"], robot_of(capture))
    thing = scene.model.body(scene.roles["object"].bodies[0]).name
    stage = Stage(scene, robot, thing, base, open_policy(found["policy"]).points[thing])
    late = float(found["episodes"].header.meta["pose_late_s"])
    seen = traces(recording, robot, np.array(trial.T_track_object), pose_late_s=late)
    lift = trial.moments.get("lift", np.nan) - float(recording.stream("joint_command").t[0])
    T, draws = np.array(trial.T_world_object), draw(found["belief"], scene, worlds)
    gain = mean_of(found["belief"], "gain.joint_effort", otherwise=1.0)
    real, band, causes = explain(seen, stage, T, draws, lift, effort_gain=gain)
    if film is not None:
        if not recording.videos:
            raise InputError(f"case {number} was not filmed, so that nobody knows from where to look: leave out --film")
        rows, _ = predicted_felt(seen, stage, T[None], middle(draws))
        _film(film, recording, stage, rows)
    return Replayed(row, real, band, divergences(real, band), causes, film)


def _find(folder: Path, kind: type[Artifact], said: dict[str, str], what: str) -> Artifact:
    """Opens what a case speaks of. Its place is told from the ledger in which the case was new: that may be this one,
    or one of another round of the same run."""
    folder = folder.resolve()
    rounds = [p for run in (folder.parent, folder.parent.parent) for p in (run, *sorted(run.glob("round_*")))]
    bases = [folder, *(p / folder.name for p in rounds)]
    there = [path for base in bases if (path := (base / said["path"]).resolve()).is_dir()]
    for path in there:
        found = kind.open(path)
        if found.hash == said["hash"]:
            return found
    if there:
        raise InputError(f"{there[0]} is not {what}: it was made anew")
    raise InputError(f"{folder / said['path']}, {what}, is not there: keep a run's folders together")


def _film(out: Path, recording: Recording, stage: Stage, rows: Sequence[Felt]) -> None:
    """Draws the simulated trial from the camera of the real one, beside it."""
    video, model = recording.video(next(iter(recording.videos))), stage.scene.model
    frames = list(read_frames(video.path))
    data, camera = mujoco.MjData(model), video.info.camera
    joints, at = qpos_addresses(model, stage.robot.joints), place_of(stage.scene, stage.thing)
    # Both begin together; the camera's clock is another.
    times = video.t[: len(frames)] - video.t[0]
    with (
        Renderer(model, camera.width, camera.height) as renderer,
        VideoWriter(out, 2 * camera.width, camera.height, _FPS) as writer,
    ):
        for k in range(0, len(rows), max(round(RATE_HZ / _FPS), 1)):
            data.qpos[joints] = rows[k].position[0]
            data.qpos[at : at + 7] = se3.to_pose(rows[k].T_world_object[0])
            mujoco.mj_forward(model, data)
            left = frames[int(np.argmin(np.abs(times - k / RATE_HZ)))]
            writer.write(np.concatenate([left, renderer.rgb(data, camera)], axis=1))
