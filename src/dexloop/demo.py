"""The demo: every stage that exists, end to end, in the lab."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dexloop.capture.plans import FreeMotion, Push
from dexloop.capture.record import capture
from dexloop.core.artifact import Artifact, storage_errors
from dexloop.core.artifacts import Twin
from dexloop.core.capture import Capture, Video
from dexloop.core.run import Run
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.stage import identify
from dexloop.lab.cfg import LabCfg
from dexloop.lab.known_twin import known_twin
from dexloop.lab.lab import Lab
from dexloop.lab.objects import make
from dexloop.lab.truth import Truth
from dexloop.report.figures import capture_figure, png
from dexloop.report.page import write_report
from dexloop.rig.recorder import open_capture
from dexloop.vision.video import VideoWriter, read_frames

PLANS = (
    FreeMotion(duration_s=3.0),
    Push(speed_m_s=0.5, distance_m=0.1),
    Push(speed_m_s=0.25, distance_m=0.08, direction_rad=0.6),
    Push(speed_m_s=0.7, distance_m=0.12, direction_rad=-0.6),
)


def demo(
    out: Path,
    *,
    object_name: str,
    seed: int,
    progress: Callable[[str, float], None],
    nice: bool = True,
    cfg: IdentifyCfg = IdentifyCfg(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """Runs the stages into a run's folder and returns a summary.

    Args:
        out: The run; one that is there and was started alike goes on where it was.
        object_name: One of the lab's objects.
        seed: Of the lab's hidden truth.
        progress: Told what is going on.
        nice: Draw shadows and smooth edges, which takes long.
        cfg: How carefully to identify.
    """
    make(object_name)  # an unknown name is told before anything is written
    run = Run.create(out, seed=seed, options={"object": object_name})

    def record(path: Path) -> Capture:
        lab = Lab(LabCfg(object=object_name, seed=seed, nice=nice))
        # What an earlier, killed demo left half recorded is no part of this one.
        shutil.rmtree(path.with_name(path.name + ".recording"), ignore_errors=True)
        return capture(lab.rig(), PLANS, path, progress=progress)

    run.ensure("capture", record)
    recorded = open_capture(run.stage_path("capture"))
    # Until twins are made from scans, this one's geometry is given; mass, friction and all the rest are not.
    twin = run.ensure("twin", lambda path: known_twin(recorded, path))
    assert isinstance(twin, Twin)
    belief = run.ensure("identify", lambda path: identify(twin, recorded, path, cfg=cfg, progress=progress))
    pushes = [r for r in recorded.recordings.values() if r.plan.get("plan") == "Push"]
    picture, film = out / "push.png", out / "push.mp4"
    progress("drawing", 0.0)
    with storage_errors(out):
        picture.write_bytes(png(capture_figure(recorded)))
        _join([push.video("front") for push in pushes], film)
    truth = Lab.of(recorded, seed).truth()
    report = write_report(run, truth=_labels(truth))
    progress("drawing", 1.0)
    path = pushes[-1].stream("object_pose").value[:, :3]
    return {
        "object": object_name,
        "recordings": ", ".join(recorded.recordings),
        "the last push moved it": f"{1e3 * float(np.linalg.norm(path[-1] - path[0])):.0f} mm",
        **_found(belief, truth),
        "status": str(belief.status),
        "capture": str(recorded.path),
        "picture": str(picture),
        "film": str(film),
        "report": str(report),
    }


def _found(belief: Artifact, truth: Truth) -> dict[str, str]:
    """Says what was identified, beside the lab's truth, which only this comparison sees."""
    parameters = belief.header.meta["parameters"]
    pairs = (("mass", "object.mass", truth.mass_kg), ("friction", "table.friction", truth.table_friction))
    return {
        what: f"{p['mean']:.3f} {p['unit']} ({p['interval'][0]:.3f} to {p['interval'][1]:.3f}), in truth {true:.3f}"
        for what, name, true in pairs
        if (p := parameters.get(name))
    }


def _labels(truth: Truth) -> dict[str, float]:
    """Returns the lab's truth by the names of parameters, for the report's column."""
    return {
        "object.mass": truth.mass_kg,
        "table.friction": truth.table_friction,
        "table.stiction": truth.stiction,
        "table.stribeck": truth.stribeck_m_s,
        "fingertip.friction": truth.finger_friction,
        "clock.camera": truth.clock_offset_s,
        **{f"object.com.{axis}": float(value) for axis, value in zip("xyz", truth.com, strict=True)},
    }


def _join(videos: Sequence[Video], out: Path) -> None:
    """Puts films one after another."""
    camera = videos[0].info.camera
    with VideoWriter(out, camera.width, camera.height, videos[0].info.fps) as writer:
        for video in videos:
            for frame in read_frames(video.path):
                writer.write(frame)
