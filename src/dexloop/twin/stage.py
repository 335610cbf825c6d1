"""The verb `twin`: from a scan to models that look right and collide right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core import se3
from dexloop.core.artifact import Draft, require_free, save_arrays, writing
from dexloop.core.artifacts import Twin
from dexloop.core.capture import Capture, Recording
from dexloop.core.errors import InputError
from dexloop.core.laps import Laps
from dexloop.core.status import Level, Status, worst
from dexloop.sim.parts import Table, Thing
from dexloop.sim.shape import Mesh, Shape
from dexloop.twin.cameras import Cameras
from dexloop.twin.cfg import TwinCfg
from dexloop.twin.export import Settled, export, settle, write_mjcf, write_obj
from dexloop.twin.frames import choose_frames
from dexloop.twin.locate import locate
from dexloop.twin.masks import Objects, SeenObject, find_objects, object_from_masks, read_masks, with_masks
from dexloop.twin.mesh import Fitness, check, mend, read, simplify, smooth, solid
from dexloop.twin.parts import Decomposition, convex_parts
from dexloop.twin.start import first_splats
from dexloop.twin.surface import fuse
from dexloop.twin.surroundings import surroundings
from dexloop.twin.texture import bake
from dexloop.vision.board import Board
from dexloop.vision.metrics import psnr, ssim
from dexloop.vision.rasterise import Drawing
from dexloop.vision.splat_gpu import renderer
from dexloop.vision.splat_training import SplatCfg, train
from dexloop.vision.splats import Splats
from dexloop.vision.views import View

Progress = Callable[[str, float], None]
_VOXELS = 110
"""Along the longest side of an object."""
_FINEST_M = 8e-4
"""Smallest voxel: finer is noise [m]."""
_CHECKS = 4
"""Pictures kept back that the twin shows beside their drawings."""
_COARSER = (1.0, 1.7, 3.0)
"""How coarse voxels become where the finest give no surface."""
_UNLIKE_DB = 24.0
"""Below this splats do not look like their pictures [dB]."""
_OUTLINE_PX = 3
"""How far around an object a picture may still show it [px]."""
_MARGIN = 0.12
"""Around the box in which an object was seen, over its size."""


@dataclass(frozen=True, eq=False)
class Check:
    """A picture that was kept back beside what the splats make of it, both black outside the object's outline."""

    name: str
    photo: UInt8[np.ndarray, "h w 3"]
    drawn: UInt8[np.ndarray, "h w 3"]
    psnr_db: float
    ssim: float


@dataclass(frozen=True, eq=False)
class TwinObject:
    """One object of a scan, ready for simulation."""

    thing: Thing
    """In a pose in which it rests."""
    splats: Splats
    """In the object's own frame; empty for a mesh that was brought."""
    settled: Settled
    volume_m3: float
    fitness: Fitness
    parts: Decomposition
    psnr_db: float
    """Of pictures that were kept back, inside the mask [dB]; NaN if there are none."""
    ssim: float
    seen: float
    """Part of the surface that some picture shows [1]."""
    pixel_m: float | None = None
    """How large a pixel of the scan is on the object [m]."""
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Built:
    """Everything that was found out on the way from a scan to a twin."""

    scan: Recording | None
    objects: tuple[TwinObject, ...]
    cameras: Cameras | None
    table: Table
    statuses: tuple[Status, ...]
    seconds: Mapping[str, float]
    surroundings: Splats | None = None
    """Of all but the objects, in the world's frame."""
    surroundings_db: float = np.nan
    """How like pictures they are that were kept back [dB]."""

    @property
    def status(self) -> Status:
        """The worst of what was found."""
        return worst(self.statuses, otherwise=Status(Level.OK, "ready", "the twin is ready for simulation"))


def twin(
    capture: Capture,
    out: str | Path,
    *,
    cfg: TwinCfg = TwinCfg(),  # noqa: B008 - frozen
    replace: bool = False,
    progress: Progress | None = None,
) -> Twin:
    """Makes a digital twin of what stands on the table in a scan.

    Args:
        capture: With a scan: a video around the objects.
        out: Where the twin shall be.
        cfg: How carefully.
        replace: Put it in the place of one that is there.
        progress: Told what is going on.

    Raises:
        InputError: The scan cannot be solved; the message says why and what to film again.
    """
    require_free(Path(out), Twin, replace=replace)
    built = build(capture, cfg=cfg, progress=progress)
    with writing(out, Twin, inputs={"capture": capture}, seed=cfg.seed, replace=replace) as draft:
        _write(draft, built, cfg)
    return Twin.open(out)


def twin_of_mesh(
    mesh: str | Path,
    out: str | Path,
    *,
    unit: str | None = None,
    cfg: TwinCfg = TwinCfg(),  # noqa: B008 - frozen
    replace: bool = False,
) -> Twin:
    """Makes a twin of a mesh that somebody brings, whatever its state.

    Args:
        mesh: An OBJ, STL, PLY or GLB file.
        out: Where the twin shall be.
        unit: m, cm, mm or in; guessed from the size if nobody says.
        cfg: Number of parts, density and formats.
        replace: Put it in the place of one that is there.
    """
    require_free(Path(out), Twin, replace=replace)
    clock = Laps()
    made = _brought(Path(mesh), unit, cfg)
    clock.lap("mesh")
    built = _settled([made], None, None, Table(), [], clock)
    with writing(out, Twin, inputs={}, seed=cfg.seed, replace=replace) as draft:
        _write(draft, built, cfg)
        draft.meta["mesh"] = Path(mesh).name
    return Twin.open(out)


def build(
    capture: Capture,
    *,
    cfg: TwinCfg = TwinCfg(),  # noqa: B008 - frozen
    progress: Progress | None = None,
) -> Built:
    """Does the same as `twin` without writing anything."""
    tell = progress or (lambda _text, _done: None)
    clock = Laps()
    scan = _scan(capture, cfg)
    tell("choosing pictures", 0.0)
    chosen = choose_frames(scan, count=cfg.frames)
    clock.lap("frames")
    tell("locating the camera", 0.0)
    board = Board.from_json(scan.scene["board"]) if "board" in scan.scene else None
    where = np.asarray(scan.scene["T_world_board"], dtype=np.float64) if "T_world_board" in scan.scene else None
    cameras = locate(chosen.frames, camera_known=chosen.camera_known, board=board, T_world_board=where)
    clock.lap("cameras")
    tell("finding objects", 0.0)
    objects, views = _objects(cameras.views, cfg)
    clock.lap("masks")
    around, around_db = None, np.nan
    if cfg.surroundings:
        say = "splats of the surroundings"
        masks = [thing.masks for thing in objects.objects]
        around, around_db = surroundings(
            views, masks, cameras.points, cameras.colours, steps=cfg.surroundings, held_out=cfg.held_out, seed=cfg.seed,
            tell=lambda done: tell(say, done),
        )  # fmt: skip
        views = _with_behind(views, around)
        clock.lap("surroundings")
    names = _names(scan, len(objects.objects))
    made = []
    for name, thing in zip(names, objects.objects, strict=True):
        say = f"splats of {name}"
        tell(say, 0.0)
        others = [o.masks for o in objects.objects if o is not thing]
        own = with_masks(views, thing.masks, others)
        made.append(_object(name, thing, own, cameras.points, cfg, clock, lambda done, say=say: tell(say, done)))
        tell(say, 1.0)
    size = scan.scene.get("table_size_m", (0.9, 0.7))
    table = Table(size_m=(float(size[0]), float(size[1])))
    tell("settling", 0.0)
    statuses = [*chosen.statuses, *cameras.statuses, *objects.statuses]
    built = _settled(made, scan, cameras, table, statuses, clock)
    return replace(built, surroundings=around, surroundings_db=around_db)


def _scan(capture: Capture, cfg: TwinCfg) -> Recording:
    if cfg.recording:
        return capture.recording(cfg.recording)
    scans = [r for r in capture.recordings.values() if r.plan.get("plan") == "Scan"]
    scans = scans or [r for r in capture.recordings.values() if r.videos and not r.streams]
    if len(scans) != 1:
        what = "no scan" if not scans else f"{len(scans)} scans"
        raise InputError(f"{capture.path} holds {what}: record one with dexloop capture scan, or say --recording")
    return scans[0]


def _names(scan: Recording, count: int) -> list[str]:
    name = str(scan.scene.get("object", "object"))
    return [name] + [f"object{k}" for k in range(1, count)]


def _objects(views: Sequence[View], cfg: TwinCfg) -> tuple[Objects, Sequence[View]]:
    if not cfg.masks:
        return find_objects(views), views
    given = read_masks(cfg.masks, views)
    return Objects((object_from_masks(given),), ()), given


def _object(
    name: str,
    seen: SeenObject,
    views: Sequence[View],
    features: Float[np.ndarray, "p 3"],
    cfg: TwinCfg,
    clock: Laps,
    tell: Callable[[float], None],
) -> TwinObject:
    """Makes splats, mesh, texture and convex parts of one object."""
    shown = [v for v in views if v.mask is not None and v.mask.any()]
    kept = shown[cfg.held_out // 2 :: cfg.held_out]
    used = [v for v in shown if all(v is not k for k in kept)]
    reach = 0.5 * seen.size_m * (1.0 + _MARGIN) + 0.004
    corners = se3.transform(seen.T_world_box, reach * np.array(list(np.ndindex(2, 2, 2))) * 2.0 - reach)
    bounds = np.stack([corners.min(axis=0), corners.max(axis=0)])
    bounds[0, 2] = 0.0
    voxel_m = max(float(np.ptp(bounds, axis=0).max()) / _VOXELS, _FINEST_M)
    training = SplatCfg(steps=cfg.steps, most=cfg.splats, seed=cfg.seed)
    start = first_splats(seen, features, shown, bounds, voxel_m)
    splats = train(used, start, training, lambda p: tell(p.step / p.steps))
    render = renderer()
    drawings = [render(splats, replace(v.camera, T_world_camera=v.T_world_camera)) for v in shown]
    held = [(d, v) for d, v in zip(drawings, shown, strict=True) if any(v is k for k in kept)]
    checks = [_check(d, v) for d, v in held]
    clock.lap("splats")
    closed, rough = _surface(drawings, shown, bounds, voxel_m, cfg.faces)
    clock.lap("mesh")
    baked = bake(closed, shown, size_px=cfg.texture_px)
    clock.lap("texture")
    T_object = se3.inverse(seen.T_world_box)
    closed, looks = (replace(m, vertices=se3.transform(T_object, m.vertices)) for m in (closed, baked.mesh))
    pose = tuple(float(v) for v in se3.to_pose(seen.T_world_box))
    made = _solid_object(name, closed, looks, baked.texture, pose, splats.moved(T_object), cfg)
    clock.lap("parts")
    return replace(
        made,
        psnr_db=float(np.median([c.psnr_db for c in checks])) if checks else np.nan,
        ssim=float(np.median([c.ssim for c in checks])) if checks else np.nan,
        seen=float(baked.seen),
        pixel_m=_pixel_m(used, seen.T_world_box[:3, 3]),
        checks=tuple(checks),
        notes=rough,
    )


def _with_behind(views: Sequence[View], around: Splats) -> tuple[View, ...]:
    """Returns the views with what would be seen in them without any object."""
    draw = renderer()
    return tuple(
        replace(v, behind=draw(around, replace(v.camera, T_world_camera=v.T_world_camera)).rgb.clip(0.0, 1.0))
        for v in views
    )


def _pixel_m(views: Sequence[View], middle: np.ndarray) -> float:
    far = [np.linalg.norm(v.T_world_camera[:3, 3] - middle) / v.camera.fx for v in views]
    return float(np.median(far))


def _surface(
    drawings: Sequence[Drawing], views: Sequence[View], bounds: np.ndarray, voxel_m: float, faces: int
) -> tuple[Mesh, tuple[str, ...]]:
    """Fuses a closed surface of few faces, with voxels as fine as the splats allow, and says if they are coarse.

    Raises:
        InputError: Splats are no surface at all.
    """
    depths, alphas = [d.depth for d in drawings], [d.alpha for d in drawings]
    for coarser in _COARSER:
        mended = mend(fuse(depths, views, bounds, coarser * voxel_m, alphas=alphas))
        fine = smooth(mended.mesh, flat=mended.mesh.vertices[:, 2] < 1e-5)
        try:
            found = simplify(fine, faces)
        except InputError:
            continue
        size = 1e3 * coarser * voxel_m
        rough = f"splats are rough: the surface is made of voxels of {size:.1f} mm; train longer (--steps)"
        return found, (*mended.notes, *((rough,) if coarser > 1.0 else ()))
    raise InputError("the splats make no closed surface: train longer (--steps), or film again with more pictures")


def _brought(file: Path, unit: str | None, cfg: TwinCfg) -> TwinObject:
    """Makes an object of somebody's mesh; its texture stays if nothing had to be mended."""
    brought = read(file, unit=unit)
    mended = mend(brought.mesh)
    whole = not mended.notes and brought.mesh.uv is not None
    looks = brought.mesh if whole else mended.mesh
    middle = 0.5 * (looks.vertices.min(axis=0) + looks.vertices.max(axis=0))
    closed, looks = (replace(m, vertices=m.vertices - middle) for m in (mended.mesh, looks))
    pose = (0.0, 0.0, float(-looks.vertices[:, 2].min()), 1.0, 0.0, 0.0, 0.0)
    nothing = Splats(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 4)), np.zeros(0), np.zeros((0, 1, 3)))
    made = _solid_object(file.stem, closed, looks, brought.texture if whole else None, pose, nothing, cfg)
    guessed = (f"its unit was taken to be {brought.unit}: say --unit if that is wrong",) if brought.guessed else ()
    return replace(made, notes=(*mended.notes, *guessed))


def _check(drawing: Drawing, view: View) -> Check:
    """Compares a picture with its drawing, inside the object's outline.

    The drawing is laid over what is around the object in the picture, since pixels on the outline show both.
    """
    import cv2

    assert view.mask is not None
    hidden = cv2.dilate(view.mask.astype(np.uint8), np.ones((2 * _OUTLINE_PX + 1,) * 2, np.uint8))
    around = cv2.inpaint(view.rgb, hidden, _OUTLINE_PX, cv2.INPAINT_TELEA).astype(np.float32) / 255.0
    rgb = drawing.rgb + (1.0 - drawing.alpha)[..., None] * around
    photo = view.rgb.astype(np.float32) / 255.0
    rows, columns = np.flatnonzero(view.mask.any(axis=1)), np.flatnonzero(view.mask.any(axis=0))
    box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    pictures = (view.rgb, (255.0 * np.clip(rgb, 0.0, 1.0) + 0.5).astype(np.uint8))
    own, drawn = (np.where(view.mask[..., None], x, 0)[box] for x in pictures)
    return Check(view.name, own, drawn, psnr(rgb, photo, view.mask), ssim(rgb, photo, view.mask))


def _solid_object(
    name: str,
    closed: Mesh,
    looks: Mesh,
    texture: np.ndarray | None,
    pose: tuple[float, ...],
    splats: Splats,
    cfg: TwinCfg,
) -> TwinObject:
    """Joins what an object is (a closed surface) with what it looks like (the same, cut open along its texture)."""
    parts = convex_parts(Mesh(closed.vertices, closed.faces), most_parts=cfg.parts, seed=cfg.seed)
    inside = solid(closed)
    mass = cfg.density_kg_m3 * inside.volume_m3
    thing = Thing(
        name,
        Shape(looks, texture, parts.parts),
        mass,
        pose=pose,
        com=tuple(inside.com),
        inertia=mass / inside.volume_m3 * inside.inertia,
    )
    nowhere = Settled(thing, 0.0, 0.0, 0.0, "")
    return TwinObject(thing, splats, nowhere, inside.volume_m3, check(closed), parts, np.nan, np.nan, 1.0)


def _settled(
    made: Sequence[TwinObject],
    scan: Recording | None,
    cameras: Cameras | None,
    table: Table,
    statuses: Sequence[Status],
    clock: Laps,
) -> Built:
    rested = settle([m.thing for m in made], table)
    objects = tuple(replace(m, thing=r.thing, settled=r) for m, r in zip(made, rested, strict=True))
    more = [
        Status(Level.WARN, "unfit_mesh", f"{m.thing.name}: {problem}")
        for m in objects
        for problem in m.fitness.problems
    ]
    more += [
        Status(
            Level.WARN,
            "unlike",
            f"{m.thing.name}: splats look unlike pictures that were kept back ({m.psnr_db:.0f} dB)",
            "Train longer (--steps), or film again: sharper, in even light, nothing moving.",
        )
        for m in objects
        if m.psnr_db < _UNLIKE_DB
    ]
    more += [Status(Level.WARN, "moved", f"{m.thing.name}: {m.settled.note}") for m in objects if m.settled.note]
    clock.lap("scene")
    return Built(scan, objects, cameras, table, (*statuses, *more), clock.laps)


def _write(draft: Draft, built: Built, cfg: TwinCfg) -> None:
    from PIL import Image

    folder = draft.folder
    write_mjcf([m.thing for m in built.objects], folder, table=built.table)
    about: dict[str, Any] = {}
    for m in built.objects:
        own = folder / "objects" / m.thing.name
        own.mkdir(parents=True)
        write_obj(m.thing, own)
        if len(m.splats.means):
            m.splats.save(own / "splats.ply")
        export(m.thing, own, cfg.formats)
        for shown in m.checks[:_CHECKS]:
            (own / "checks").mkdir(exist_ok=True)
            for kind, picture in (("photo", shown.photo), ("drawn", shown.drawn)):
                Image.fromarray(picture).save(own / "checks" / f"{shown.name}.{kind}.png")
        about[m.thing.name] = {
            "psnr_db": m.psnr_db if m.checks else None, "ssim": m.ssim if m.checks else None,
            "seen": m.seen, "volume_m3": m.volume_m3,
            "parts": len(m.parts.parts), "volume_over_mesh": m.parts.volume_over_mesh,
            "concavity_m": m.parts.concavity_m, "fit": m.fitness.fit, "problems": list(m.fitness.problems),
            "pixel_m": m.pixel_m,
            "moved_m": m.settled.moved_m, "drift_m": m.settled.drift_m, "splats": len(m.splats.means),
            "checks": {c.name: c.psnr_db for c in m.checks[:_CHECKS]},
            "notes": list(m.notes),
        }  # fmt: skip
    if built.cameras is not None:
        views = built.cameras.views
        save_arrays(
            folder / "cameras.npz",
            T_world_camera=np.stack([v.T_world_camera for v in views]),
            K=np.stack([v.camera.K for v in views]),
            size_px=np.array([[v.camera.width, v.camera.height] for v in views]),
        )
        draft.meta["cameras"] = built.cameras.quality.to_json()
    if built.surroundings is not None:
        built.surroundings.save(folder / "surroundings.ply")
        draft.meta["surroundings"] = {"psnr_db": built.surroundings_db, "splats": len(built.surroundings)}
    if built.scan is not None and "T_world_object_rough" in built.scan.scene:
        draft.meta["T_world_object_rough"] = built.scan.scene["T_world_object_rough"]
    draft.meta |= {
        "objects": [m.thing.name for m in built.objects],
        "geometry": "scanned" if built.cameras is not None else "brought",
        "about": about,
        "seconds": dict(built.seconds),
        "statuses": [s.to_json() for s in built.statuses],
    }
