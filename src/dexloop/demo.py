"""The demo: every stage that exists, end to end, in the lab."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from dexloop.capture.plans import FreeMotion, HumanVideo, Push, Scan
from dexloop.capture.record import capture
from dexloop.core import se3
from dexloop.core.artifact import Artifact, storage_errors
from dexloop.core.artifacts import Belief, Demos, Twin
from dexloop.core.capture import Capture, Video
from dexloop.core.errors import InputError
from dexloop.core.run import Run
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.demonstrate.stage import demonstrate
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.stage import identify
from dexloop.lab.cfg import LabCfg
from dexloop.lab.lab import Lab
from dexloop.lab.objects import make
from dexloop.lab.truth import Truth
from dexloop.report.figures import capture_figure, png
from dexloop.report.page import write_report
from dexloop.rig.recorder import open_capture
from dexloop.train.cfg import TrainCfg
from dexloop.train.stage import train
from dexloop.twin.cfg import TwinCfg
from dexloop.twin.stage import twin
from dexloop.vision.video import VideoWriter, read_frames

PLANS = (
    Scan(),
    FreeMotion(duration_s=3.0),
    Push(speed_m_s=0.5, distance_m=0.1),
    Push(speed_m_s=0.25, distance_m=0.08, direction_rad=0.6),
    Push(speed_m_s=0.7, distance_m=0.12, direction_rad=-0.6),
    HumanVideo(),
)


def demo(
    out: Path,
    *,
    object_name: str,
    seed: int,
    progress: Callable[[str, float], None],
    nice: bool = True,
    cfg: IdentifyCfg = IdentifyCfg(),  # noqa: B008 - frozen
    twin_cfg: TwinCfg = TwinCfg(),  # noqa: B008 - frozen
    demonstrate_cfg: DemonstrateCfg = DemonstrateCfg(),  # noqa: B008 - frozen
    train_cfg: TrainCfg = TrainCfg(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """Runs the stages into a run's folder and returns a summary.

    Args:
        out: The run; one that is there and was started alike goes on where it was.
        object_name: One of the lab's objects.
        seed: Of the lab's hidden truth.
        progress: Told what is going on.
        nice: Draw shadows and smooth edges, which takes long.
        cfg: How carefully to identify.
        twin_cfg: How carefully to make the twin.
        demonstrate_cfg: How carefully to demonstrate.
        train_cfg: How long to train.
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
    made = run.ensure("twin", lambda path: twin(recorded, path, cfg=twin_cfg, progress=progress))
    assert isinstance(made, Twin)
    belief = run.ensure("identify", lambda path: identify(made, recorded, path, cfg=cfg, progress=progress))
    assert isinstance(belief, Belief)
    learned = _learned(run, made, belief, recorded, demonstrate_cfg, train_cfg, progress)
    pushes = [r for r in recorded.recordings.values() if r.plan.get("plan") == "Push"]
    picture, film = out / "push.png", out / "push.mp4"
    progress("drawing", 0.0)
    with storage_errors(out):
        picture.write_bytes(png(capture_figure(recorded)))
        _join([push.video("front") for push in pushes], film)
    truth = Lab.of(recorded, seed).truth()
    report = write_report(run, truth=_labels(truth, made))
    progress("drawing", 1.0)
    path = pushes[-1].stream("object_pose").value[:, :3]
    return {
        "object": object_name,
        "recordings": ", ".join(recorded.recordings),
        "the last push moved it": f"{1e3 * float(np.linalg.norm(path[-1] - path[0])):.0f} mm",
        **_looks(made),
        **_found(belief, truth),
        "status": str(belief.status),
        **learned,
        "capture": str(recorded.path),
        "picture": str(picture),
        "film": str(film),
        "report": str(report),
    }


def _learned(
    run: Run,
    made: Twin,
    belief: Belief,
    recorded: Capture,
    demonstrate_cfg: DemonstrateCfg,
    train_cfg: TrainCfg,
    progress: Callable[[str, float], None],
) -> dict[str, str]:
    """Demonstrates and trains, and says how that went; what was found before is not lost if it fails."""
    said = {}
    try:
        demos = run.ensure(
            "demonstrate",
            lambda path: demonstrate(made, belief, recorded, path, cfg=demonstrate_cfg, progress=progress),
        )
        assert isinstance(demos, Demos)
        said["demonstrations"] = str(demos.status)
        policy = run.ensure("train", lambda path: train(demos, path, cfg=train_cfg, progress=progress))
        said["policy"] = str(policy.status)
    except InputError as error:
        said["not done"] = str(error)
    return said


def _looks(made: Twin) -> dict[str, str]:
    """Says how the twin turned out."""
    if made.header.meta["geometry"] != "scanned":
        return {}
    about = next(iter(made.header.meta["about"].values()))
    seconds = sum(made.header.meta["seconds"].values())
    psnr = "not checked" if about["psnr_db"] is None else f"{about['psnr_db']:.1f} dB on pictures that were kept back"
    return {"twin": f"{psnr}, {1e6 * about['volume_m3']:.0f} cm³, {about['parts']} convex parts, in {seconds:.0f} s"}


def _found(belief: Artifact, truth: Truth) -> dict[str, str]:
    """Says what was identified, beside the lab's truth, which only this comparison sees."""
    parameters = belief.header.meta["parameters"]
    pairs = (("mass", "object.mass", truth.mass_kg), ("friction", "table.friction", truth.table_friction))
    return {
        what: f"{p['mean']:.3f} {p['unit']} ({p['interval'][0]:.3f} to {p['interval'][1]:.3f}), in truth {true:.3f}"
        for what, name, true in pairs
        if (p := parameters.get(name))
    }


def _labels(truth: Truth, made: Twin) -> dict[str, float]:
    """Returns the lab's truth by the names of parameters, for the report's column."""
    # The twin has axes of its own in the object; both stood in the same place when it was scanned.
    own = se3.from_pose(mujoco.MjModel.from_xml_path(str(made.path / "scene.xml")).qpos0[:7])
    com = se3.transform(se3.inverse(own) @ truth.T_world_object, truth.com)
    return {
        "object.mass": truth.mass_kg,
        "table.friction": truth.table_friction,
        "table.stiction": truth.stiction,
        "table.stribeck": truth.stribeck_m_s,
        "fingertip.friction": truth.finger_friction,
        "clock.camera": truth.clock_offset_s,
        **{f"object.com.{axis}": float(value) for axis, value in zip("xyz", com, strict=True)},
    }


def _join(videos: Sequence[Video], out: Path) -> None:
    """Puts films one after another."""
    camera = videos[0].info.camera
    with VideoWriter(out, camera.width, camera.height, videos[0].info.fps) as writer:
        for video in videos:
            for frame in read_frames(video.path):
                writer.write(frame)
