"""How well the tracker finds the lab's objects in films of pushes: all eight, against the poses that were filmed."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.metric import Metric
from dexloop.capture.plans import Push
from dexloop.capture.record import capture
from dexloop.core import se3
from dexloop.core.capture import Recording
from dexloop.lab import Lab, LabCfg
from dexloop.lab.objects import OBJECTS
from dexloop.vision.tracking import Track, track_recording

SEEDS = (11, 12)
PUSH = Push(speed_m_s=0.25)
MOVING_M = 1e-3
"""From frame to frame [m]."""
IN_95 = 12.59
"""The 95 % point of chi² with 6 degrees of freedom."""


@dataclass(frozen=True)
class Score:
    """Of one film; errors of frames in which the object was not lost."""

    position: np.ndarray
    """Distance from the true position [m]."""
    rotation: np.ndarray
    """Angle to the true rotation [rad]."""
    position_relative: np.ndarray
    """As `position`, after the film's median offset was taken out [m]."""
    rotation_relative: np.ndarray
    jitter: np.ndarray
    """Change of the error from frame to frame [m]."""
    jitter_moving: np.ndarray
    """The same between frames in which the object moved by more than `MOVING_M`: a still picture hardly jitters [m]."""
    jitter_across: np.ndarray
    """The part of that across the line of sight [m]."""
    covered: np.ndarray
    """Whether the error lies in the 95 % region of all that was said to be unsure."""
    covered_relative: np.ndarray
    """Whether it does so without the offset, in the region of what differs from frame to frame."""
    lost: float
    fps: float


def run() -> list[Metric]:
    metrics, scores = [], []
    for name in OBJECTS:
        print(f"tracking {name}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            mine = [score(*film(name, seed, Path(folder) / str(seed))) for seed in SEEDS]
        scores += mine
        median = float(np.median(np.concatenate([s.position for s in mine])))
        turned = float(np.median(np.concatenate([s.rotation for s in mine])))
        shaken = float(np.median(np.concatenate([s.jitter_moving for s in mine])))
        lost = 100 * float(np.mean([s.lost for s in mine]))
        note = f"{len(SEEDS)} films, jitter while moving {1e3 * shaken:.2f} mm, lost {lost:.0f} %"
        metrics.append(Metric(f"{name}: position error", median, "m", "lower", 0.5, target=1.5e-3, note=note))
        metrics.append(Metric(f"{name}: rotation error", turned, "rad", "lower", 0.5, target=math.radians(1.5)))

    def all_of(field: str) -> np.ndarray:
        return np.concatenate([np.atleast_1d(getattr(s, field)) for s in scores])

    def median(name: str, field: str, unit: str, target: float | None = None) -> Metric:
        values = all_of(field)
        worst = float(np.percentile(values, 95))
        return Metric(name, float(np.median(values)), unit, "lower", 0.5, target, note=f"95 % below {worst:.2g} {unit}")

    metrics += [
        median("all: position error", "position", "m", 1.5e-3),
        median("all: rotation error", "rotation", "rad", math.radians(1.5)),
        median("all: position error without the film's offset", "position_relative", "m"),
        median("all: rotation error without the film's offset", "rotation_relative", "rad"),
        median("all: jitter from frame to frame", "jitter", "m", 3e-4),
        median("all: jitter while it moves", "jitter_moving", "m", 3e-4),
        median("all: jitter while it moves, across the line of sight", "jitter_across", "m", 3e-4),
        Metric("all: frames in the 95 % region", float(all_of("covered").mean()), "1", "higher", 0.1, target=0.85),
        Metric(
            "all: frames in it without the film's offset", float(all_of("covered_relative").mean()), "1", "higher", 0.1
        ),
        Metric("all: frames lost", float(all_of("lost").mean()), "1", "lower", 0.5),
        Metric("all: speed", float(np.median(all_of("fps"))), "1/s", "higher", math.inf, target=5.0, note="640 x 480"),
    ]
    return metrics


def film(name: str, seed: int, out: Path) -> tuple[Lab, Recording, np.ndarray]:
    """Films a push, and writes down where the object was in each picture: what no rig tells."""
    lab = Lab(LabCfg(object=name, seed=seed))
    rig = lab.rig()
    bench = rig._bench
    body = bench.model.body(name).id
    taken, stamped = bench.picture, bench.camera_stamp
    stamps: list[float] = []
    poses: dict[float, np.ndarray] = {}

    def stamp(t: float) -> float:
        stamps.append(stamped(t))
        return stamps[-1]

    def picture() -> np.ndarray:
        poses[stamps[-1]] = np.concatenate([bench.data.xpos[body], bench.data.xquat[body]])
        return taken()

    bench.picture, bench.camera_stamp = picture, stamp  # type: ignore[method-assign]
    recording = capture(rig, PUSH, out).recording("push")
    return lab, recording, np.stack([poses[float(t)] for t in recording.video("front").t])


def score(lab: Lab, recording: Recording, truth: np.ndarray) -> Score:
    begin = time.process_time()
    found = track_recording(recording, lab.object.shape)
    seconds = time.process_time() - begin
    camera = recording.videos["front"].camera
    assert camera.T_world_camera is not None
    return compare(found, truth, camera.T_world_camera[:3, 2], len(truth) / seconds)


def compare(found: Track, truth: np.ndarray, sight: np.ndarray, fps: float) -> Score:
    """Compares a track with the poses x y z qw qx qy qz that were filmed; `sight` is the camera's z axis."""
    seen = ~found.lost
    T, T_true = se3.from_pose(found.pose[seen]), se3.from_pose(truth[seen])
    off = T[:, :3, 3] - T_true[:, :3, 3]
    # Of tangents in the object's axes, which is what covariances are of; offsets are taken out in the world's.
    error = se3.log(se3.inverse(T) @ T_true)
    turned = np.einsum("nij,nj->ni", T[:, :3, :3], error[:, 3:])
    moved, spun = np.median(off, axis=0), np.median(turned, axis=0)
    rest = error - np.concatenate([-moved @ T[:, :3, :3], spun @ T[:, :3, :3]], axis=1)
    neighbours = np.diff(np.flatnonzero(seen)) == 1
    step = np.diff(off, axis=0)[neighbours]
    way = np.linalg.norm(np.diff(T_true[:, :3, 3], axis=0)[neighbours], axis=1)
    across = step - (step @ sight)[:, None] * sight
    every = found.covariance[seen]
    return Score(
        position=np.linalg.norm(off, axis=1),
        rotation=np.linalg.norm(turned, axis=1),
        position_relative=np.linalg.norm(off - moved, axis=1),
        rotation_relative=np.linalg.norm(turned - spun, axis=1),
        jitter=np.linalg.norm(step, axis=1),
        jitter_moving=np.linalg.norm(step, axis=1)[way > MOVING_M],
        jitter_across=np.linalg.norm(across, axis=1)[way > MOVING_M],
        covered=_squared(error, every + found.shared[seen]) < IN_95,
        covered_relative=_squared(rest, every) < IN_95,
        lost=float(found.lost.mean()),
        fps=fps,
    )


def _squared(error: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Squared normalised errors: chi² if the covariance is right."""
    return np.einsum("ni,ni->n", error, np.linalg.solve(covariance, error[..., None])[..., 0])
