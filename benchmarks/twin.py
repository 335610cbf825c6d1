"""From a scan of each of the lab's objects to its twin: its looks, its surface against the true one, how it falls."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import mujoco
import numpy as np

from benchmarks import track
from benchmarks.kept import kept
from benchmarks.metric import Metric
from dexloop.capture.plans import Scan
from dexloop.capture.record import capture
from dexloop.core import se3
from dexloop.core.errors import DexloopError
from dexloop.lab import Lab, LabCfg
from dexloop.lab.objects import OBJECTS, make
from dexloop.sim.parts import Table, Thing
from dexloop.sim.scene import SceneCfg, compose
from dexloop.sim.shape import Mesh, Shape
from dexloop.twin.cfg import TwinCfg
from dexloop.twin.mesh import compare, mend, sample
from dexloop.twin.stage import Built, TwinObject, build
from dexloop.vision.appearance import SplatAppearance
from dexloop.vision.tracking import track_recording

SEEDS = (500, 501)
DROPS = 4
"""How often each twin and its true shape are dropped, each time turned otherwise."""
FALL_M, FALL_S = 0.05, 3.0
"""Above the table [m], and how long it has to come to rest [s]."""
ALIKE_RAD = np.radians(12.0)
"""By how much the direction that points up at rest may differ; about an axis on which the true shape rolls, by any."""
ROUND = 0.01
"""A shape is round about an axis if turning about it moves its surface by less than this share of its size."""
STILL_M_S = 5e-3
"""What is at rest moves less than this [m/s]."""


@dataclass(frozen=True)
class Score:
    """Of one scan against the truth; NaN where there is no twin."""

    psnr_db: float
    ssim: float
    chamfer_m: float
    f_score: float
    volume: float
    """Relative error."""
    scale: float
    """Relative error of the size that aligns it best."""
    place_m: float
    """How far the object is from where it stands."""
    falls: float
    """Share of drops that end as those of the true shape do, without jitter."""
    tracked_m: float
    """Median error of the position in the film of a push, followed by its splats [m]."""
    tracked_rad: float
    seconds: float


FAILED = Score(*(np.nan,) * 7, 0.0, *(np.nan,) * 3)


def run() -> list[Metric]:
    return metrics([Score(**kept(_scored, name, seed, TwinCfg())) for seed in SEEDS for name in OBJECTS])


def _scored(name: str, seed: int, cfg: TwinCfg) -> dict[str, float]:
    return asdict(score(name, seed, cfg))


def metrics(scores: Sequence[Score]) -> list[Metric]:
    """Sums up; a scan without a twin counts as missing every target."""

    def of(name: str, worst: float) -> np.ndarray:
        values = np.array([abs(getattr(s, name)) for s in scores])
        return np.where(np.isnan(values), worst, values)

    note = f"{len(scores)} scans"
    return [
        Metric("kept-back views: PSNR on the object", float(np.median(of("psnr_db", 0.0))), "dB", "higher", 0.03, 30.0,
               note),
        Metric("kept-back views: SSIM", float(np.median(of("ssim", 0.0))), "1", "higher", 0.02, 0.93, note),
        Metric("Chamfer distance, mean", float(np.mean(of("chamfer_m", 0.01))), "m", "lower", 0.2, 1.5e-3, note),
        Metric("F-score at 3 mm, worst", float(np.min(of("f_score", 0.0))), "1", "higher", 0.03, 0.95, note),
        Metric("volume error, worst", float(np.max(of("volume", 1.0))), "1", "lower", 0.3, 0.05, note),
        Metric("scale error, worst", float(np.max(of("scale", 1.0))), "1", "lower", 0.5, 0.005, note),
        Metric("place error, median", float(np.median(of("place_m", 0.1))), "m", "lower", 0.5, note=note),
        Metric("falls like the true shape", float(np.mean(of("falls", 0.0))), "1", "higher", 0.1, 1.0,
               f"{note}, {DROPS} drops each"),
        Metric("followed by splats: position error, median", float(np.median(of("tracked_m", 0.1))), "m", "lower", 0.5,
               1.5e-3, note),
        Metric("followed by splats: rotation error, median", float(np.median(of("tracked_rad", 1.0))), "rad", "lower",
               0.5, float(np.radians(1.5)), note),
        Metric("scan to twin, longest", float(np.max(of("seconds", 1e4))), "s", "lower", 0.5, 360.0, note),
    ]  # fmt: skip


def score(name: str, seed: int, cfg: TwinCfg) -> Score:
    """Scans an object in a lab, makes its twin, and compares."""
    lab = Lab(LabCfg(object=name, seed=seed))
    with tempfile.TemporaryDirectory() as folder:
        recorded = capture(lab.rig(), [Scan()], Path(folder) / "capture")
        try:
            built = build(recorded, cfg=cfg)
        except DexloopError as error:
            print(f"{name} {seed}: {error}", file=sys.stderr, flush=True)
            return FAILED
        found = _compared(built, lab, Path(folder) / "push")
    parts = ", ".join(f"{part} {s:.0f}" for part, s in built.seconds.items())
    print(
        f"{name} {seed}: {found.psnr_db:.1f} dB, SSIM {found.ssim:.3f}, Chamfer {1e3 * found.chamfer_m:.2f} mm, F "
        f"{found.f_score:.3f}, volume {100 * found.volume:+.1f} %, scale {100 * found.scale:+.2f} %, place "
        f"{1e3 * found.place_m:.1f} mm, falls {found.falls:.2f}, followed to {1e3 * found.tracked_m:.2f} mm and "
        f"{np.degrees(found.tracked_rad):.2f}°, {found.seconds:.0f} s ({parts})",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    return found


def _compared(built: Built, lab: Lab, folder: Path) -> Score:
    made, truth = built.objects[0], lab.truth()
    thing = made.thing
    assert isinstance(thing.shape, Shape)
    own = mend(thing.shape.visual).mesh
    there = replace(own, vertices=se3.transform(se3.from_pose(np.asarray(thing.pose)), own.vertices))
    shape = make(lab.cfg.object).shape
    outline = mend(shape.visual).mesh
    true = replace(outline, vertices=se3.transform(truth.T_world_object, outline.vertices))
    T, scale = _aligned(there, true)
    agreement = compare(replace(there, vertices=se3.transform(T, there.vertices)), true)
    T_own = se3.from_pose(np.asarray(thing.pose))
    T_true_own = se3.inverse(truth.T_world_object) @ T @ T_own
    tracked = _tracked(made, T_own, T_true_own, lab, folder)
    middle = 0.5 * (there.vertices.min(axis=0) + there.vertices.max(axis=0))
    return Score(
        psnr_db=made.psnr_db,
        ssim=made.ssim,
        chamfer_m=agreement.chamfer_m,
        f_score=agreement.f_score,
        volume=agreement.volume_error,
        scale=scale,
        place_m=float(np.linalg.norm(se3.transform(T, middle[None])[0] - middle)),
        falls=_falls(thing, T_true_own, shape),
        tracked_m=float(np.median(tracked.position)),
        tracked_rad=float(np.median(tracked.rotation)),
        seconds=sum(built.seconds.values()),
    )


def _tracked(made: TwinObject, T_own: np.ndarray, T_true_own: np.ndarray, lab: Lab, folder: Path) -> track.Score:
    """Follows a twin by its splats through the film of a push, from where it was scanned."""
    _, recording, truth = track.film(lab.cfg.object, lab.cfg.seed, folder)
    assert made.pixel_m is not None
    found = track_recording(recording, SplatAppearance(made.splats, made.pixel_m), T_start=T_own)
    camera = recording.videos["front"].camera
    assert camera.T_world_camera is not None
    return track.compare(found, se3.to_pose(se3.from_pose(truth) @ T_true_own), camera.T_world_camera[:3, 2], np.nan)


def _aligned(mesh: Mesh, true: Mesh) -> tuple[np.ndarray, float]:
    """Returns the rigid motion that lays a surface on the true one, and by how much it is too large.

    Nearest points, as in ICP (Besl and McKay 1992); the size is that of the last round, and is not applied.
    """
    from scipy.spatial import KDTree

    points, targets = sample(mesh, 20_000)[0], sample(true, 200_000, seed=1)[0]
    tree, T, scale = KDTree(targets), np.eye(4), 1.0
    for _ in range(60):
        moved = se3.transform(T, points)
        pairs = targets[tree.query(moved)[1]]
        a, b = moved - moved.mean(axis=0), pairs - pairs.mean(axis=0)
        U, S, Vt = np.linalg.svd(a.T @ b)
        sign = np.diag([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))])
        R = (U @ sign @ Vt).T
        scale = float((S * np.diag(sign)).sum() / (a**2).sum())
        T = se3.from_rt(R, pairs.mean(axis=0) - R @ moved.mean(axis=0)) @ T
    return T, 1.0 / scale - 1.0


def _falls(thing: Thing, T_true_own: np.ndarray, shape: Shape) -> float:
    """Drops a twin and its true shape from the same poses, and returns how often they end up alike and at rest."""
    rng = np.random.default_rng(0)
    axis = _axis(shape)
    good = 0
    for k in range(DROPS):
        quat = rng.standard_normal(4)
        start = se3.from_pose(np.r_[0, 0, 0, quat / np.linalg.norm(quat)]) if k else np.eye(4)
        up, speed = _drop(replace(thing, pose=tuple(se3.to_pose(start @ T_true_own))))
        true_up, _ = _drop(Thing(thing.name, shape, thing.mass_kg, pose=tuple(se3.to_pose(start))))
        up = T_true_own[:3, :3] @ up
        angle = _angle(up, true_up) if axis is None else abs(_angle(up, axis) - _angle(true_up, axis))
        good += bool(angle < ALIKE_RAD and speed < STILL_M_S)
    return good / DROPS


def _angle(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.arccos(np.clip(a @ b, -1.0, 1.0)))


def _axis(shape: Shape) -> np.ndarray | None:
    """Returns the axis about which a shape is round, if there is one."""
    from scipy.spatial import KDTree

    points = sample(mend(shape.visual).mesh, 20_000)[0]
    points -= points.mean(axis=0)
    tree, size = KDTree(points), float(np.ptp(points, axis=0).max())
    for axis in np.linalg.eigh(points.T @ points)[1].T:
        turned = se3.quat_rotate(se3.so3_exp(1.0 * axis), points[:2000])
        if tree.query(turned)[0].mean() < ROUND * size:
            return axis
    return None


def _drop(thing: Thing) -> tuple[np.ndarray, float]:
    """Returns which of the object's directions points up in the end, and how fast it still moves."""
    assert isinstance(thing.shape, Shape)
    T = se3.from_pose(np.asarray(thing.pose))
    lowest = float(se3.transform(T, thing.shape.visual.vertices)[:, 2].min())
    pose = np.asarray(thing.pose) + np.array([0, 0, FALL_M - lowest, 0, 0, 0, 0])
    scene = compose(Table(), replace(thing, pose=tuple(pose)), cfg=SceneCfg(max_delay_s=0.0))
    data = mujoco.MjData(scene.model)
    mujoco.mj_step(scene.model, data, int(FALL_S / scene.model.opt.timestep))
    R = se3.from_pose(data.qpos[:7])[:3, :3]
    return R.T @ np.array([0.0, 0.0, 1.0]), float(np.linalg.norm(data.qvel[:3]))
