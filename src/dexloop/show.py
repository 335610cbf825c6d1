"""What the commands print: robots, the lab, captures, beliefs; and the page that one of them serves."""

from __future__ import annotations

import contextlib
import json as json_module
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dexloop import console
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError
from dexloop.core.status import Level

if TYPE_CHECKING:
    from dexloop.cli import Demonstrate, Identify, Import, Train, TwinCommand, View
    from dexloop.core.artifacts import Belief
    from dexloop.lab.cfg import LabCfg
    from dexloop.robots.embodiment import Embodiment


def robots(name: str | None, *, picture: Path | None, json: bool) -> int:
    """Lists the robots, or describes one and says what is wrong with it."""
    from dexloop.robots.catalog import load, names

    if name is None:
        if picture is not None:
            raise InputError("--picture needs the name of a robot")
        if json:
            console.say_json({"robots": list(names())})
        else:
            console.show([(n, _sentence(n)) for n in names()], ("robot", ""))
            console.say("Any hand @ any arm works, as do Menagerie names and paths of .xml and .urdf files.")
        return 0
    from dexloop.robots.conformance import check

    robot = load(name)
    findings = check(robot)
    if picture is not None:
        _save(_portrait(robot), picture)
    if json:
        console.say_json(_robot_json(robot) | {"findings": [f.to_json() for f in findings]})
    else:
        rows = zip(
            robot.joints, robot.units, robot.position_limits, robot.speed_limits, robot.effort_limits, strict=True
        )
        arm = set(robot.arm_joints)
        console.show(
            [
                (j, "arm" if j in arm else "hand", u, f"{a:.2f} … {b:.2f}", f"{v:.2f}", f"{e:.2f}")
                for j, u, (a, b), v, e in rows
            ],
            ("joint", "part", "unit", "range", "speed limit", "effort limit"),
            title=f"{robot.name} ({robot.source}); fingertips: {', '.join(f.name for f in robot.fingertips) or 'none'}",
        )
        for finding in findings:
            console.say(str(finding))
        if picture is not None:
            console.say(f"picture: {picture}")
    return 1 if any(f.level is Level.FAIL for f in findings) else 0


def lab(cfg: LabCfg, *, picture: Path | None, truth: bool, json: bool) -> int:
    """Describes the lab; the truth only where it is asked for."""
    from dexloop.lab.lab import Lab
    from dexloop.lab.objects import OBJECTS, make

    bench = Lab(cfg)
    rig = bench.rig()
    features = rig.features
    if picture is not None:
        rig.connect()
        try:
            rig.sleep(0.05)
            frames = rig.observe().frames
        finally:
            rig.disconnect()
        if not frames:
            raise InputError("the lab's camera is off: leave out --no-video")
        _save(frames["front"].image[-1], picture)
    hidden = {"truth": bench.truth().to_json()} if truth else {}
    if json:
        streams = [s.to_json() for s in features.streams]
        videos = [v.to_json() for v in features.videos]
        console.say_json({"objects": list(OBJECTS), "rig": features.name, "robot": dict(features.robot),
                          "streams": streams, "videos": videos, "scene": dict(features.scene), **hidden})  # fmt: skip
        return 0
    here = {name: make(name) for name in OBJECTS}
    console.show(
        [(n, o.title, f"{1e3 * o.mass_kg:.0f} g") for n, o in here.items()],
        ("object", "", "nominal mass"),
        title="objects (a seed draws the true values around the nominal ones, and keeps them)",
    )
    console.show(
        [(s.name, s.kind, len(s.channels), s.rate_hz, s.clock) for s in features.streams]
        + [(v.name, "video", f"{v.camera.width}x{v.camera.height}", v.fps, v.clock) for v in features.videos],
        ("stream", "kind", "channels", "rate [1/s]", "clock"),
        title=f"\n{features.name} with {cfg.robot}",
    )
    for name, value in hidden.get("truth", {}).items():
        console.say(f"truth: {name} = {value}")
    if picture is not None:
        console.say(f"picture: {picture}")
    return 0


def captured(capture: Capture, *, json: bool, picture: Path | None = None) -> int:
    """Says what a Capture holds and how good it is; 3 if it cannot be used."""
    if picture is not None:
        from dexloop.report.figures import capture_figure

        _save(capture_figure(capture), picture)
    if json:
        recordings = [r.to_json() for r in capture.recordings.values()]
        console.say_json({"path": str(capture.path), "hash": capture.hash, "status": capture.status.to_json(),
                          "recordings": recordings})  # fmt: skip
    else:
        rows = []
        for r in capture.recordings.values():
            frames = sum(len(r.video(v).t) for v in r.videos)
            rows.append((r.name, f"{r.duration_s:.1f} s", len(r.streams), frames or "", "\n".join(map(str, r.checks))))
        console.show(rows, ("recording", "length", "streams", "frames", "checks"))
        console.say(f"{capture.status}\ncapture: {capture.path}")
        if picture is not None:
            console.say(f"picture: {picture}")
    return 3 if capture.status.level is Level.FAIL else 0


def imported(command: Import) -> Capture:
    """Imports what the command names."""
    from dexloop.capture.checks import check
    from dexloop.capture.importing import ImportCfg, import_capture

    units: dict[str, str] = {}
    for pair in command.units:
        name, equals, unit = pair.partition("=")
        if not equals:
            raise InputError(f"--units takes NAME=UNIT, such as observation.state=deg, not {pair!r}")
        units[name] = unit
    if not command.sources:
        raise InputError("there is nothing to import: name folders, bags, datasets or videos")
    cfg = ImportCfg(units, command.episodes or None, command.fps, command.fov_y_deg, command.intrinsics)
    return import_capture(command.sources, command.out, cfg=cfg, check=check, replace=command.replace)


def twinned(command: TwinCommand) -> int:
    """Carries out `dexloop twin` and prints what came of it."""
    from dexloop.core.run import Run
    from dexloop.report.page import write_report
    from dexloop.rig.recorder import open_capture
    from dexloop.twin.stage import twin, twin_of_mesh

    run = Run.open(command.run_folder) if command.run_folder else None
    if command.mesh is not None and command.capture is not None:
        raise InputError("a twin is made of a scan or of a mesh: give --capture or --mesh, not both")
    source = command.mesh or command.capture or (_of_run(run, "capture") if run else None)
    if source is None:
        raise InputError("name a run, or give --capture FOLDER with a scan, or --mesh FILE")
    out = command.out or (_of_run(run, "twin") if run else source.with_name(source.stem + "_twin"))
    if command.mesh is not None:
        made = twin_of_mesh(command.mesh, out, unit=command.unit, cfg=command.cfg, replace=command.replace)
    else:
        with console.progress(quiet=command.json) as tell:
            made = twin(open_capture(source), out, cfg=command.cfg, replace=command.replace, progress=tell)
    if run is not None:
        write_report(run)
    meta = made.header.meta
    if command.json:
        console.say_json({**meta, "status": made.status.to_json(), "twin": str(made.path)})
        return 0
    rows = [
        (name, f"{1e6 * o['volume_m3']:.0f} cm³", str(o["parts"]), str(o["splats"]) if o["splats"] else "none",
         f"{o['psnr_db']:.1f} dB" if o["psnr_db"] else "", f"{100 * o['seen']:.0f} %")
        for name, o in meta["about"].items()
    ]  # fmt: skip
    console.show(rows, ("object", "volume", "convex parts", "splats", "kept-back views", "surface seen"))
    for name, about in meta["about"].items():
        for note in about["notes"]:
            console.warn(f"{name}: {note}")
    console.say(", ".join(f"{part} {seconds:.0f} s" for part, seconds in meta["seconds"].items()))
    console.say(str(made.status))
    console.say(f"twin: {made.path}")
    return 0


def demonstrated(command: Demonstrate) -> int:
    """Carries out `dexloop demonstrate` and prints what came of it."""
    from dexloop.core.artifacts import Belief, Twin
    from dexloop.core.run import Run
    from dexloop.demonstrate.stage import demonstrate
    from dexloop.report.page import write_report
    from dexloop.rig.recorder import open_capture

    run = Run.open(command.run_folder)
    for stage, verb in (("twin", "dexloop twin"), ("identify", "dexloop identify")):
        if not run.has(stage):
            raise InputError(f"{run.path} has no {stage} yet: run {verb} {run.path} first")
    capture = open_capture(command.capture or _of_run(run, "capture"))
    twin, belief = Twin.open(_of_run(run, "twin")), Belief.open(_of_run(run, "identify"))
    with console.progress(quiet=command.json) as tell:
        made = demonstrate(
            twin, belief, capture, _of_run(run, "demonstrate"), cfg=command.cfg, replace=command.replace, progress=tell
        )
    write_report(run)
    meta = made.header.meta
    if command.json:
        console.say_json({**meta, "status": made.status.to_json(), "demos": str(made.path)})
        return 0
    rows = [
        (h["kind"], f"{h['friction_needed']:.2f}", f"{100 * h['held']:.0f} %", f"{1e3 * h['slip_m']:.1f} mm")
        for h in meta["holds"]
    ]
    console.show(rows, ("hold", "friction it needs", "held in simulation", "slip"))
    console.say(str(made.status))
    console.say(f"demonstrations: {made.path}")
    return 0


def trained(command: Train) -> int:
    """Carries out `dexloop train` and prints what came of it."""
    from dexloop.core.artifacts import Belief, Demos, Twin
    from dexloop.core.run import Run
    from dexloop.report.page import write_report
    from dexloop.train.stage import train

    run = Run.open(command.run_folder)
    if not run.has("demonstrate"):
        raise InputError(f"{run.path} has no demonstrations yet: run dexloop demonstrate {run.path} first")
    twin = Twin.open(_of_run(run, "twin")) if run.has("twin") else None
    belief = Belief.open(_of_run(run, "identify")) if run.has("identify") else None
    with console.progress(quiet=command.json) as tell:
        made = train(
            Demos.open(_of_run(run, "demonstrate")), _of_run(run, "train"), twin=twin, belief=belief, cfg=command.cfg,
            replace=command.replace, progress=tell,
        )  # fmt: skip
    write_report(run)
    training = made.header.meta["training"]
    if command.json:
        console.say_json({"training": training, "status": made.status.to_json(), "policy": str(made.path)})
        return 0
    best = training["log"][training["best"]]["kept"]
    console.show([(part, f"{loss:.4f}") for part, loss in best.items()], ("part of the action", "loss, kept back"))
    console.say(str(made.status))
    console.say(f"policy: {made.path}")
    return 0


def identified(command: Identify) -> int:
    """Carries out `dexloop identify` and prints what was found."""
    from dexloop.core.artifacts import Twin
    from dexloop.core.run import Run
    from dexloop.identify.stage import identify
    from dexloop.report.page import write_report
    from dexloop.rig.recorder import open_capture

    run = Run.open(command.run_folder[0]) if command.run_folder else None
    if run is None and (command.model is None or command.capture is None):
        raise InputError("name a run, or give both --model FILE.xml and --capture FOLDER")
    if run is not None and command.model is None and not run.has("twin"):
        raise InputError(f"{run.path} has no twin yet: make one first, or give --model FILE.xml")
    capture = open_capture(command.capture or _of_run(run, "capture"))
    twin = command.model if command.model is not None else Twin.open(_of_run(run, "twin"))
    out = command.out or (_of_run(run, "identify") if run else capture.path.with_name(capture.path.name + "_belief"))
    # Found again with other parameters, a belief of one's own is no loss; a run's is kept unless it is to be replaced.
    replace = command.replace or (run is None and command.out is None)
    with console.progress(quiet=command.json == "-") as tell:
        belief = identify(twin, capture, out, cfg=command.cfg, replace=replace, progress=tell)
    if run is not None:
        write_report(run)
    found = belief_json(belief)
    if command.json not in (None, "-"):
        from dexloop.core.artifact import storage_errors, write_text

        file = Path(str(command.json))
        with storage_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json_module.dumps(found, indent=1, ensure_ascii=False))
    if command.json == "-":
        console.say_json(found)
        return 0
    rows = [
        (label, f"{p['mean']:.4g}", f"{p['interval'][0]:.4g} to {p['interval'][1]:.4g}", p["unit"],
         "yes" if p["identifiable"] else "no")
        for label, p in found["parameters"].items()
    ]  # fmt: skip
    console.show(rows, ("parameter", "mean", "95 % interval", "unit", "identifiable"))
    for c in found["combinations"]:
        console.say(f"{c['name']}: {c['value']:.4g} {c['unit']} ({c['interval'][0]:.4g} to {c['interval'][1]:.4g})")
    for name, c in found["clocks"].items():
        console.say(f"clock {name}: {1e3 * c['offset_s']:+.1f} ms ± {1.96e3 * c['sd_s']:.1f} ms against the robot's")
    for note in found["notes"]:
        console.warn(note)
    console.say(str(belief.status))
    console.say(f"belief: {belief.path}")
    return 0


def belief_json(belief: Belief) -> dict[str, Any]:
    """Returns a belief as plain JSON."""
    return {k: v for k, v in belief.header.meta.items() if k not in ("labels", "sensors")} | {
        "belief": str(belief.path)
    }


def planned(command: Identify) -> int:
    """Carries out `dexloop identify plan` and prints which motion would tell most."""
    from dexloop.core.run import Run
    from dexloop.next_motion import plan_next, to_json

    if len(command.run_folder) != 2:
        raise InputError("name the run: dexloop identify plan RUN")
    with console.progress(quiet=command.json == "-") as tell:
        ranked = plan_next(Run.open(command.run_folder[1]), cfg=command.cfg, progress=tell)
    found = to_json(ranked)
    if command.json not in (None, "-"):
        Path(str(command.json)).write_text(json_module.dumps(found, indent=1, ensure_ascii=False))
    elif command.json == "-":
        console.say_json(found)
        return 0
    console.show([(k + 1, r.words) for k, r in enumerate(ranked)], ("", "next motion, the best first"))
    return 0


def viewed(command: View) -> int:
    """Carries out `dexloop view`: says where the page is, and serves it until Ctrl-C."""
    from dexloop.core.run import Run
    from dexloop.view.contents import contents
    from dexloop.view.page import Page

    with Page(contents(Run.open(command.run_folder)), host=command.host, port=command.port) as page:
        if command.json:
            console.say_json({"url": page.url})
        else:
            console.say(f"{page.contents.title} is at {page.url}; Ctrl-C ends it")
        sys.stdout.flush()
        if command.open:
            webbrowser.open(page.url)
        with contextlib.suppress(KeyboardInterrupt):
            wait_for_ever()
    return 0


def wait_for_ever() -> None:
    """Waits for Ctrl-C."""
    threading.Event().wait()


def _of_run(run: Any, stage: str) -> Path:
    assert run is not None
    return run.stage_path(stage)


def _portrait(robot: Embodiment) -> np.ndarray:
    """Draws a robot at its home, from the front left."""
    import mujoco

    from dexloop.core import se3
    from dexloop.core.camera import Camera
    from dexloop.sim.parts import FixedCamera, Light, Robot
    from dexloop.sim.render import Renderer
    from dexloop.sim.scene import SceneCfg, compose

    def scene(*cameras: FixedCamera) -> tuple[Any, Any]:
        made = compose(Robot(robot), Light("lamp", (1.0, -1.0, 2.0)), *cameras, cfg=SceneCfg(samples=4))
        data = mujoco.MjData(made.model)
        for joint, value in zip(robot.joints, robot.home, strict=True):
            data.joint(joint).qpos = value
        mujoco.mj_forward(made.model, data)
        return made.model, data

    model, data = scene()
    drawn = np.flatnonzero(model.geom_rbound > 0)
    low = (data.geom_xpos[drawn] - model.geom_rbound[drawn, None]).min(axis=0)
    high = (data.geom_xpos[drawn] + model.geom_rbound[drawn, None]).max(axis=0)
    middle, size = 0.5 * (low + high), float(np.linalg.norm(high - low))
    eye = middle + 1.25 * size * np.array([0.62, -0.62, 0.48])
    camera = Camera.from_fov("portrait", 800, 600, 0.7, se3.look_at(eye, middle))
    model, data = scene(FixedCamera(camera))
    with Renderer(model, 800, 600) as renderer:
        picture = renderer.rgb(data, "portrait").copy()
        picture[renderer.segmentation(data, "portrait") < 0] = 245
    return picture


def _robot_json(robot: Embodiment) -> dict[str, Any]:
    return {
        "name": robot.name,
        "source": robot.source,
        "joints": list(robot.joints),
        "arm_joints": list(robot.arm_joints),
        "hand_joints": list(robot.hand_joints),
        "units": list(robot.units),
        "position_limits": robot.position_limits.tolist(),
        "speed_limits": robot.speed_limits.tolist(),
        "effort_limits": robot.effort_limits.tolist(),
        "home": robot.home.tolist(),
        "fingertips": [f.name for f in robot.fingertips],
    }


def _sentence(name: str) -> str:
    from dexloop.robots.catalog import ARMS, HANDS

    if name in HANDS or name in ARMS:
        import inspect

        module = inspect.getmodule((HANDS | ARMS)[name])
        return (module.__doc__ or "").split(": ", 1)[-1].splitlines()[0] if module else ""
    hand, at, arm = name.partition("@")
    return f"{hand} on {arm}" if at else "from MuJoCo Menagerie"


def _save(picture: np.ndarray, file: Path) -> None:
    from dexloop.core.artifact import storage_errors
    from dexloop.report.figures import png

    with storage_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(picture))
