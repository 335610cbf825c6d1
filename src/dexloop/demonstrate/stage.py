"""From a film of a human hand to robot demonstrations that hold in physics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.artifact import Draft, require_free, save_arrays, storage_errors, writing
from dexloop.core.artifacts import Belief, Demos, Twin
from dexloop.core.capture import Capture, Recording
from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.demonstrate.episodes import variations
from dexloop.demonstrate.holds import Found, find_holds
from dexloop.demonstrate.holds_figure import holds_figure
from dexloop.demonstrate.rehearse import Rehearsed, best_of
from dexloop.demonstrate.replay import RATE_HZ
from dexloop.demonstrate.retarget import Retargeted, Retargeter
from dexloop.demonstrate.retarget_figure import retarget_figure
from dexloop.demonstrate.touching import Touching
from dexloop.demonstrate.watching import Watched, watch
from dexloop.policy.fields import POINTS
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.hold import Hold, to_arrays
from dexloop.robots.pickup import Load
from dexloop.robots.pointcloud import collides, surface
from dexloop.robots.staging import open_scene, robot_of, standing
from dexloop.sim.believed import draw
from dexloop.sim.scene import Scene
from dexloop.sim.shape import shape_of
from dexloop.vision.appearance import SplatAppearance
from dexloop.vision.hand_figure import hand_figure
from dexloop.vision.video import read_frames

Progress = Callable[[str, float], None]

_LOOKED_AT, _LOOK = 2, 2
"""How many times as many holds as are rehearsed in all worlds are looked at first, and in how many worlds."""


@dataclass(frozen=True, eq=False)
class Shown:
    """What was made of a film."""

    robot: Embodiment
    T_world_base: Float[np.ndarray, "4 4"]
    scene: Scene
    thing: str
    watched: Watched
    retargeted: Retargeted
    found: Found
    load: Load
    rehearsed: tuple[tuple[Hold, Rehearsed], ...]
    """The holds that did best at a first look, and how they did in all worlds; the best first."""
    kept: tuple[Hold, ...]
    episodes: dict[str, np.ndarray]
    varied: dict[str, int]
    """How the new demonstrations ended."""
    frictions: tuple[float, ...]
    """Of the worlds they were made in; empty for any."""


def demonstrate(
    twin: Twin,
    belief: Belief,
    capture: Capture,
    out: str | Path,
    *,
    cfg: DemonstrateCfg = DemonstrateCfg(),  # noqa: B008 - frozen
    replace: bool = False,
    progress: Progress | None = None,
) -> Demos:
    """Turns a film of a human hand that takes an object into demonstrations of a robot that does.

    Args:
        twin: Of the object.
        belief: What it weighs and how slippery it is.
        capture: Holds the film, and recordings of the robot, which say where it stands.
        out: Where the demonstrations shall be.
        cfg: How carefully.
        replace: Put them in the place of some that are there.
        progress: Told what is going on.

    Raises:
        InputError: There is no film, no hand in it, no robot, or nothing held.
    """
    require_free(Path(out), Demos, replace=replace)
    shown = learn(twin, belief, capture, cfg=cfg, progress=progress)
    inputs: dict[str, Any] = {"twin": twin, "belief": belief, "capture": capture}
    with writing(out, Demos, inputs=inputs, seed=cfg.seed, replace=replace) as draft:
        _write(draft, shown)
        _draw(draft.folder, shown, _film(capture, cfg))
    return Demos.open(out)


def learn(
    twin: Twin,
    belief: Belief,
    capture: Capture,
    *,
    cfg: DemonstrateCfg = DemonstrateCfg(),  # noqa: B008 - frozen
    progress: Progress | None = None,
) -> Shown:
    """Does the same without writing anything."""
    tell = progress or (lambda _text, _done: None)
    film = _film(capture, cfg)
    robot, base, scene = open_scene(twin, robot_of(capture))
    thing = scene.model.body(scene.roles["object"].bodies[0]).name
    watched = watch(film, *_looks(twin, scene, thing, film), cfg, tell)
    retargeter = Retargeter(robot)
    retargeted = retargeter.retarget(watched.path.landmarks, right=watched.path.right)
    load = Load.of(belief, crush_n=_crush(film, cfg))
    touching = Touching(scene, robot, thing, standing(scene, watched.T_world_object))
    found = find_holds(
        touching, retargeter, retargeted.T_world_palm[watched.grasp], retargeted.q[watched.grasp],
        mass_kg=load.mass_high_kg, com=np.array(load.com), tries=cfg.tries, most=_LOOKED_AT * cfg.holds, seed=cfg.seed,
        progress=lambda done: tell("looking for holds", done),
    )  # fmt: skip
    if not found.holds:
        reasons = ", ".join(f"{why} ({n})" for why, n in Counter(found.reasons).most_common(3))
        raise InputError(f"no way to hold {thing} was found near the one that was shown: {reasons}; film another grasp")
    rehearsed = best_of(
        robot, scene, thing, found.holds, touching.T_world_object, load, draw(belief, scene, cfg.worlds, seed=cfg.seed),
        look=_LOOK, most=cfg.holds, progress=lambda done: tell("rehearsing holds", done),
    )  # fmt: skip
    kept = tuple(hold for hold, went in rehearsed if went.share >= cfg.keep)
    if not kept:
        ends = sum((Counter(went.outcomes) for _, went in rehearsed), Counter())
        said = ", ".join(f"{n} {why}" for why, n in ends.most_common())
        raise InputError(
            f"no hold of {thing} holds in simulation ({said} of {ends.total()}): film another grasp, look farther with "
            f"--tries, or be content with less with --keep"
        )
    draws = draw(belief, scene, cfg.episodes, seed=cfg.seed + 1)
    episodes, ended = variations(
        robot, scene, thing, kept[: cfg.taught], touching.T_world_object, load, draws, seed=cfg.seed,
        frictions=cfg.frictions, progress=lambda done: tell("making demonstrations", done),
    )  # fmt: skip
    return Shown(
        robot, base, scene, thing, watched, retargeted, found, load, tuple(rehearsed), kept, episodes,
        dict(Counter(ended)), cfg.frictions,
    )  # fmt: skip


def surface_points(scene: Scene, thing: str) -> Float[np.ndarray, "128 3"]:
    """Returns points on the object's colliding surface, in its own frame, spread evenly [m]."""
    model, data = scene.model, mujoco.MjData(scene.model)
    mujoco.mj_kinematics(model, data)
    body = model.body(thing).id
    geoms = [g for g in range(model.ngeom) if model.geom_bodyid[g] == body and collides(model, g)]
    T = se3.from_rt(data.xmat[body].reshape(3, 3), data.xpos[body])
    cloud = se3.transform(se3.inverse(T), surface(model, data, geoms))
    chosen, far = [0], np.full(len(cloud), np.inf)
    for _ in range(POINTS - 1):  # each is the one farthest from those before it
        far = np.minimum(far, np.linalg.norm(cloud - cloud[chosen[-1]], axis=1))
        chosen.append(int(np.argmax(far)))
    return cloud[chosen]


def _film(capture: Capture, cfg: DemonstrateCfg) -> Recording:
    if cfg.recording:
        return capture.recording(cfg.recording)
    films = [r for r in capture.recordings.values() if r.plan.get("plan") == "HumanVideo"]
    if not films:
        raise InputError(
            f"{capture.path} holds no film of a human hand: record one (dexloop capture human), or say which with "
            f"--recording"
        )
    return films[-1]


def _looks(twin: Twin, scene: Scene, thing: str, film: Recording) -> tuple[Any, np.ndarray | None]:
    """Returns what the object looks like, and where it stands in the film."""
    if twin.header.meta.get("geometry") != "scanned":
        return shape_of(scene.model, scene.roles["object"].bodies[0]), None
    adr = int(scene.model.joint(f"{thing}.free").qposadr[0])
    T = se3.from_pose(scene.model.qpos0[adr : adr + 7])
    said = twin.header.meta.get("T_world_object_rough")
    if said is not None and "T_world_object_rough" in film.scene:
        T = np.asarray(film.scene["T_world_object_rough"]) @ se3.inverse(np.asarray(said, dtype=np.float64)) @ T
    return SplatAppearance.of(twin, thing), T


def _crush(film: Recording, cfg: DemonstrateCfg) -> float:
    said = cfg.crush_n or float(film.scene.get("crush_force_n") or 0.0)
    return said or np.inf


def _write(draft: Draft, shown: Shown) -> None:
    with storage_errors(draft.folder):
        save_arrays(draft.folder / "demos.npz", **shown.episodes)
        save_arrays(draft.folder / "holds.npz", **to_arrays(shown.kept))
        save_arrays(draft.folder / "points.npz", points=surface_points(shown.scene, shown.thing))
        shown.watched.path.save(draft.folder / "hand.npz")
        save_arrays(
            draft.folder / "retargeted.npz", q=shown.retargeted.q, T_world_palm=shown.retargeted.T_world_palm,
            residual_m=shown.retargeted.residual_m, T_world_object=shown.watched.T_world_object,
            grasp=np.array(shown.watched.grasp),
        )  # fmt: skip
    count = len(shown.episodes["start"])
    draft.meta |= {
        "object": shown.thing,
        "robot": shown.robot.name,
        "joints": list(shown.robot.joints),
        "T_world_base": shown.T_world_base.tolist(),
        "rate_hz": RATE_HZ,
        "load": asdict(changed(shown.load, crush_n=min(shown.load.crush_n, 1e9))),
        "frames": len(shown.watched.path.t),
        "frames_seen": float(shown.watched.path.seen.mean()),
        "right": shown.watched.path.right,
        "moved": shown.watched.moved,
        "tried": shown.found.tried,
        "reasons": shown.found.reasons,
        "holds": [
            {
                "kind": h.kind,
                "friction_needed": h.friction_needed,
                "held": went.share,
                "outcomes": went.outcomes,
                "slip_m": min(went.rank[1], 1.0),
            }
            for h, went in shown.rehearsed
        ],
        "kept": len(shown.kept),
        "episodes": count,
        "varied": shown.varied,
        "frictions": list(shown.frictions),
    }
    said = (
        f"{len(shown.kept)} of {len(shown.rehearsed)} ways to hold {shown.thing} hold in simulation; "
        f"{count} demonstrations"
    )
    draft.status = Status(Level.OK, "demonstrated", said)
    if not shown.watched.moved:
        draft.status = Status(
            Level.WARN,
            "not_seen_moving",
            f"{said}; the object was not seen to move, so that it is a guess when it was grasped",
            "Film so that the object is seen while it is lifted.",
        )


def _draw(folder: Path, shown: Shown, film: Recording) -> None:
    """Puts pictures beside the numbers: the hand in the film, the robot's beside it, and the holds."""
    path, kept = shown.watched.path, shown.kept
    pictures: list[np.ndarray] = []
    if film.videos and len(path.t):
        video = film.video(next(iter(film.videos)))
        frames = list(read_frames(video.path))
        hand_figure(frames, video.t[: len(frames)], video.info.camera, path).savefig(folder / "hand.png", dpi=100)
        pictures = [frames[int(np.argmin(np.abs(video.t[: len(frames)] - t)))] for t in path.t]
        view = video.info.camera.T_world_camera
    else:
        view = None
    retarget_figure(
        path.landmarks, shown.retargeted, shown.robot, pictures=pictures,
        R_world_view=None if view is None else view[:3, :3],
    ).savefig(folder / "retarget.png", dpi=100)  # fmt: skip
    titles = [f"{h.kind}: needs friction {h.friction_needed:.2f}" for h in kept]
    T = standing(shown.scene, shown.watched.T_world_object)
    figure = holds_figure(shown.robot, shown.scene, shown.thing, kept, titles, T, shown.load)
    figure.savefig(folder / "holds.png", dpi=100)
