"""The demo: every stage that exists, end to end, in the lab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco

from dexloop.audit.cfg import AuditCfg
from dexloop.capture.plans import Plan
from dexloop.core import se3
from dexloop.core.artifact import Artifact, storage_errors
from dexloop.core.artifacts import Belief, Twin
from dexloop.core.capture import Video
from dexloop.core.errors import InputError
from dexloop.core.run import Run
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.lab.cfg import LabCfg
from dexloop.lab.lab import Lab
from dexloop.lab.objects import make
from dexloop.lab.rig import LabRig
from dexloop.lab.truth import Truth
from dexloop.loop import PLANS, Cfgs, Round, loop
from dexloop.loop_cfg import LoopCfg
from dexloop.report.figures import capture_figure, png
from dexloop.report.page import write_report
from dexloop.rig.recorder import open_capture
from dexloop.train.cfg import TrainCfg
from dexloop.vision.video import VideoWriter, read_frames

BRISK = Cfgs(
    demonstrate=DemonstrateCfg(tries=160, worlds=8, episodes=48),
    train=TrainCfg(epochs=60, rounds=0),
    audit=AuditCfg(worlds=6, bands=6),
)
"""How carefully the demo works: so that it is over in minutes."""
TRIAL_PX = (320, 240)
"""Size of the films of trials."""


def demo(
    out: Path,
    *,
    object_name: str,
    seed: int,
    progress: Callable[[str, float], None],
    nice: bool = True,
    cfg: LoopCfg = LoopCfg(),  # noqa: B008 - frozen
    cfgs: Cfgs = BRISK,
    plans: Sequence[Plan] = PLANS,
) -> dict[str, Any]:
    """Runs the loop in the lab and returns a summary.

    Args:
        out: The run; one that is there and was started alike goes on where it was.
        object_name: One of the lab's objects.
        seed: Of the lab's hidden truth.
        progress: Told what is going on.
        nice: Draw shadows and smooth edges, which takes long.
        cfg: How often to go round.
        cfgs: How carefully each stage works.
        plans: What is recorded first.
    """
    make(object_name)  # an unknown name is told before anything is written
    run = Run.create(out, seed=seed, options={"object": object_name})
    place = LabPlace(object_name, seed, nice=nice)
    rounds: list[Round] = []
    said: dict[str, str] = {}
    try:
        rounds = loop(run, place, cfg=cfg, cfgs=cfgs, plans=plans, progress=progress)
    except InputError as error:
        if not run.has("identify"):
            raise
        said["not done"] = str(error)  # what was found before is not lost
    recorded = open_capture(run.stage_path("capture"))
    made, belief = Twin.open(run.stage_path("twin")), Belief.open(run.beliefs()[-1])
    truth = Lab.of(recorded, seed).truth()
    progress("drawing", 0.0)
    pushes = [r for r in recorded.recordings.values() if r.plan.get("plan") == "Push"]
    picture, film = out / "push.png", out / "push.mp4"
    with storage_errors(out):
        picture.write_bytes(png(capture_figure(recorded)))
        _join([push.video("front") for push in pushes], film)
    report = write_report(run, truth=_labels(truth, made))
    progress("drawing", 1.0)
    return {
        "object": object_name,
        "recordings": ", ".join(recorded.recordings),
        **_looks(made),
        **_found(belief, truth),
        "identified": str(belief.status),
        **_stages(run),
        **_went(rounds),
        **said,
        "picture": str(picture),
        "film": str(film),
        "report": str(report),
    }


class LabPlace:
    """The lab as the place where real things happen.

    Args:
        object_name: What lies on the table.
        seed: Of the hidden truth.
        nice: Draw shadows and smooth edges in recordings; trials are never filmed so, which would take minutes.
    """

    def __init__(self, object_name: str, seed: int, *, nice: bool):
        self._cfg = LabCfg(object=object_name, seed=seed, nice=nice)
        self.last: LabRig | None = None
        """The rig of the last trial, for whoever scores it."""

    def recording(self, number: int) -> LabRig:
        """Returns the rig for a capture, anew."""
        return Lab(self._cfg).rig(number)

    def trial(self, round_: int, number: int) -> LabRig:
        """Returns the rig for a trial, anew: the object lies in its place."""
        self.last = Lab(replace(self._cfg, nice=False, picture_px=TRIAL_PX)).rig(1000 * (round_ + 1) + number)
        return self.last


def _stages(run: Run) -> dict[str, str]:
    names = {"demonstrate": "demonstrations", "train": "policy"}
    return {name: str(run.load(stage).status) for stage, name in names.items() if run.has(stage)}


def _went(rounds: Sequence[Round]) -> dict[str, str]:
    """Says how each round went."""
    said = {}
    for found in rounds:
        row = found.to_json()
        name = "with a guess" if found.number == 0 else f"round {found.number}"
        said[name] = (
            f"held {row['held']} of {row['trials']}; in simulation {100 * row['sim']:.0f} %, "
            f"gap {100 * row['gap']:+.0f} points ({100 * row['interval'][0]:+.0f} to {100 * row['interval'][1]:+.0f})"
        )
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
    pairs = (("mass", "object.mass", " kg", truth.mass_kg), ("friction", "table.friction", "", truth.table_friction))
    return {
        what: f"{p['mean']:.3f}{unit} ({p['interval'][0]:.3f} to {p['interval'][1]:.3f}), in truth {true:.3f}"
        for what, name, unit, true in pairs
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
