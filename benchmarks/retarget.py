"""How fast and how well a human hand is followed: on a real video and on the lab's true landmarks.

The peer is dex-retargeting's vector optimiser, on the same vectors, limits and objective, in the same run. It is no
part of dexloop: if it is not installed, `DEXLOOP_DEX_RETARGETING` says in which folder it is (`INSTALL` tells how to
fill one without touching anything else). Nor is the video: `DEXLOOP_HAND_VIDEO`, else `../shared/data/hand_video`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import os
import site
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float

from benchmarks.metric import Metric
from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.demonstrate import skeleton
from dexloop.demonstrate.descent import Pull, Wishes, follow, place
from dexloop.demonstrate.retarget import Retargeter
from dexloop.lab.human import grasp_motion, landmarks
from dexloop.lab.objects import OBJECTS, make
from dexloop.robots import Embodiment, Kinematics, import_robot, load
from dexloop.vision.hands import detect_hands
from dexloop.vision.video import read_frames

Array = np.ndarray
HANDS = ("dex16", "leap_hand", "wonik_allegro")
PEERED = HANDS[1:]
FPS = 30.0
ROUNDS = 5
NEAR_M = 0.02
"""Pads of a human nearer than this pinch."""
HUBER_M, NORM = 0.02, 4e-3
"""The peer's own defaults: where its loss turns linear [m], and its pull to the frame before."""
INSTALL = (
    "pip install --target FOLDER --no-deps dex-retargeting nlopt anytree pytransform3d pin libpinocchio cmeel "
    "cmeel-boost cmeel-urdfdom coal libcoal cmeel-assimp cmeel-octomap cmeel-qhull eigenpy cmeel-tinyxml2 "
    "cmeel-console-bridge cmeel-zlib; it also needs torch and lxml. Then set DEXLOOP_DEX_RETARGETING=FOLDER"
)


def run() -> list[Metric]:
    video = video_landmarks()
    lab = lab_landmarks()
    metrics: list[Metric] = []
    for name in HANDS:
        retargeter = Retargeter(_hand(name))
        print(f"{name}: {len(video)} frames of video, {len(lab)} of the lab", file=sys.stderr)
        for where, points in (("video", video), ("lab", lab)):
            seconds = _best(lambda r=retargeter, p=points: r.retarget(p))
            found = retargeter.retarget(points)
            off = 1e3 * found.residual_m
            note = f"fingertips {off.mean():.1f} mm off (median {np.median(off):.1f}), scale {found.scale:.2f}"
            rate = len(points) / seconds
            metrics.append(Metric(f"{where}, {name}: frames a second", rate, "1/s", "higher", math.inf, 400.0, note))
            metrics.append(Metric(f"{where}, {name}: fingertips off", 1e-3 * float(off.mean()), "m", "lower", 0.1))
        error, count = pinches(retargeter, video)
        note = f"median of {count} pairs nearer than {1e3 * NEAR_M:.0f} mm"
        metrics.append(Metric(f"video, {name}: pinch off", error, "m", "lower", 0.3, 0.003, note))
    return metrics + peer_metrics(video)


def peer_metrics(video: Float[Array, "n 21 3"]) -> list[Metric]:
    """Compares with dex-retargeting, where it is at hand."""
    if not find_peer():
        print(f"skipped: dex-retargeting is not here, so nothing is compared with it: {INSTALL}", file=sys.stderr)
        return []
    metrics = []
    for name in PEERED:
        print(f"{name}: dex-retargeting on the same vectors", file=sys.stderr)
        ours, theirs = compare(_hand(name), video)
        note = f"ours {len(video) / ours.seconds:.0f}, dex-retargeting {len(video) / theirs.seconds:.0f} frames/s"
        ratio = theirs.seconds / ours.seconds
        metrics.append(Metric(f"{name}: dex-retargeting / ours, time", ratio, "1", "higher", 0.4, 5.0, note))
        for what, a, b in (("residual", ours.residual_m, theirs.residual_m), ("objective", ours.loss, theirs.loss)):
            note = f"ours {a:.3g}, dex-retargeting {b:.3g}" + (" m" if what == "residual" else "")
            metrics.append(Metric(f"{name}: ours / dex-retargeting, {what}", a / b, "1", "lower", 0.02, 1.0, note))
    return metrics


def video_landmarks() -> Float[Array, "n 21 3"]:
    """Finds the hand in the video: its shape, in metres, in the camera's axes."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data" / "hand_video"
    file = Path(os.environ.get("DEXLOOP_HAND_VIDEO", beside)) / "human_hand_video.mp4"
    if not file.is_file():
        raise InputError(f"there is no {file}: set DEXLOOP_HAND_VIDEO to the folder with human_hand_video.mp4")
    track = detect_hands(read_frames(file), FPS)
    return track.world[track.found]


def lab_landmarks() -> Float[Array, "n 21 3"]:
    """Returns the true landmarks of one demonstration for each object, one after the other."""
    things = [make(name) for name in OBJECTS]
    motions = [grasp_motion(t.shape, t.T_rest, duration_s=3.0, fps=FPS, seed=k) for k, t in enumerate(things)]
    return np.concatenate([landmarks(motion) for motion in motions])


def pinches(retargeter: Retargeter, points: Float[Array, "n 21 3"]) -> tuple[float, int]:
    """Returns by how much the distance of two pads is off where the human's are close [m], and in how many cases."""
    found = retargeter.retarget(points)
    pads = Kinematics(retargeter.embodiment).fingertips(found.q)[..., :3, 3]
    tips = np.stack([skeleton.tip(points, finger) for finger in found.fingers.values()], axis=1)
    robot, human = (np.linalg.norm(p[:, :-1] - p[:, -1:], axis=-1) for p in (pads, tips))
    gap = np.maximum(human - 2.0 * retargeter.cfg.flesh_m, 0.0)
    close = gap < NEAR_M
    return float(np.median(np.abs(robot - gap)[close])), int(close.sum())


@dataclass(frozen=True)
class Result:
    """What one of the two came to."""

    seconds: float
    residual_m: float
    """Mean distance of a fingertip from the end of its vector."""
    loss: float
    """Mean of the peer's own objective."""


def compare(hand: Embodiment, points: Float[Array, "n 21 3"]) -> tuple[Result, Result]:
    """Solves the same vectors, from the palm to the fingertips, by both."""
    retargeter = Retargeter(hand)
    local = se3.transform(se3.inverse(skeleton.palm(points, right=True))[:, None], points)
    _, wishes = retargeter.wishes(local)
    count = len(hand.fingertips)
    target = np.ascontiguousarray(wishes.target[:, :count])
    c, f = retargeter.chains, retargeter.fingers
    middle = 0.5 * (c.lower + c.upper)
    # Its loss is the mean of d² / 2h and its pull NORM per squared radian: the same, multiplied by h times the count.
    pull = Pull(
        c.lower,
        c.upper,
        np.tile(middle, (len(target), 1)),
        np.full(len(middle), 1e-9),
        np.full(len(middle), 2.0 * NORM * HUBER_M * count),
    )
    vectors = Wishes(np.full(count, -1), f.ends, target, np.ones((len(target), count)))

    def ours() -> Float[Array, "n m"]:
        return follow(c.links, f.points, vectors, pull, middle[None], huber_m=HUBER_M).x

    with tempfile.TemporaryDirectory() as folder:
        urdf = Path(folder) / "hand.urdf"
        urdf.write_text(to_urdf(retargeter))
        peer, reorder = _peer(urdf, retargeter)

        def theirs() -> Float[Array, "n m"]:
            peer.reset()
            return np.stack([peer.retarget(vector) for vector in target])[:, reorder]

        _same_hand(peer, reorder, retargeter)
        results = []
        for solve in (ours, theirs):
            q = solve()
            seconds = _best(solve, rounds=ROUNDS if solve is ours else 2)
            d = np.linalg.norm(place(c.links, f.points, q)[:, f.ends] - target, axis=-1)
            loss = np.where(d < HUBER_M, 0.5 * d**2 / HUBER_M, d - 0.5 * HUBER_M)
            results.append(Result(seconds, float(d.mean()), float(loss.mean())))
    return results[0], results[1]


def find_peer() -> bool:
    """Makes dex-retargeting importable, if it is anywhere."""
    if folder := os.environ.get("DEXLOOP_DEX_RETARGETING"):
        site.addsitedir(folder)  # unlike sys.path, it also reads the .pth file through which pinocchio is found
    try:
        importlib.import_module("dex_retargeting.optimizer")
    except ImportError as error:
        print(f"dex-retargeting cannot be imported: {error}", file=sys.stderr)
        return False
    return True


def _peer(urdf: Path, retargeter: Retargeter) -> tuple[Any, list[int]]:
    """Sets dex-retargeting up; returns it with where our unknowns stand among its joints."""
    optimizer = importlib.import_module("dex_retargeting.optimizer")
    wrapper = importlib.import_module("dex_retargeting.robot_wrapper")
    sequence = importlib.import_module("dex_retargeting.seq_retarget")
    robot = wrapper.RobotWrapper(str(urdf))
    count = len(retargeter.fingers.names)
    vectors = optimizer.VectorOptimizer(
        robot,
        list(robot.dof_joint_names),
        ["palm"] * count,
        [f"end{f}" for f in range(count)],
        np.zeros((2, count), dtype=int),
        huber_delta=HUBER_M,
        norm_delta=NORM,
        scaling=1.0,
    )
    return sequence.SeqRetargeting(vectors), [robot.dof_joint_names.index(j) for j in retargeter.chains.free]


def _same_hand(peer: Any, reorder: list[int], retargeter: Retargeter) -> None:
    """Makes sure that the hand written as URDF is the one that MuJoCo has."""
    hand, c = retargeter.embodiment, retargeter.chains
    robot, kinematics = peer.optimizer.robot, Kinematics(hand)
    q = np.random.default_rng(0).uniform(c.lower, c.upper)
    theirs = np.zeros(len(q))
    theirs[reorder] = q
    robot.compute_forward_kinematics(theirs)
    for f, tip in enumerate(hand.fingertips):
        T = se3.inverse(kinematics.palm(q)) @ kinematics.poses(q, tip.site)
        point = se3.transform(T, retargeter.fingers.points.offset[retargeter.fingers.ends[f]])
        found = robot.get_link_pose(robot.get_link_index(f"end{f}"))[:3, 3]
        if np.abs(found - point).max() > 1e-6:
            raise AssertionError(f"{hand.name} as URDF has finger {tip.name!r} at {found}, not at {point}")


def to_urdf(retargeter: Retargeter) -> str:
    """Writes the kinematics of a hand without coupled joints, palm to fingertips, as URDF."""
    c, f = retargeter.chains, retargeter.fingers
    links = c.links
    if len(c.free) < len(c.joints) or links.slide.any() or links.zero.any():
        raise InputError(f"{retargeter.embodiment.name} has joints that this writer does not know")
    root = ElementTree.Element("robot", name="hand")
    ElementTree.SubElement(root, "link", name="palm")

    def joint(kind: str, name: str, parent: str, child: str, R: Array, p: Array) -> ElementTree.Element:
        ElementTree.SubElement(root, "link", name=child)
        made = ElementTree.SubElement(root, "joint", name=name, type=kind)
        ElementTree.SubElement(made, "parent", link=parent)
        ElementTree.SubElement(made, "child", link=child)
        ElementTree.SubElement(made, "origin", xyz=_text(p), rpy=_text(_roll_pitch_yaw(R)))
        return made

    for finger in range(len(f.names)):
        parent = "palm"
        for e in range(links.start[finger], links.start[finger + 1]):
            k = int(links.unknown[links.joint[e]])
            made = joint("revolute", c.free[k], parent, f"link_{c.free[k]}", links.R_fixed[e], links.p_fixed[e])
            ElementTree.SubElement(made, "axis", xyz=_text(links.axis[e]))
            lower, upper = repr(float(c.lower[k])), repr(float(c.upper[k]))
            ElementTree.SubElement(made, "limit", lower=lower, upper=upper, effort="1", velocity="1")
            parent = f"link_{c.free[k]}"
        end = links.p_tip[finger] + links.R_tip[finger] @ f.points.offset[f.ends[finger]]
        joint("fixed", f"fixed{finger}", parent, f"end{finger}", links.R_tip[finger], end)
    return ElementTree.tostring(root, encoding="unicode")


def _roll_pitch_yaw(R: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """URDF's angles: R = Rz(yaw) Ry(pitch) Rx(roll). Where x points straight up or down, yaw is taken as zero."""
    if abs(R[2, 0]) > 1 - 1e-12:
        return np.array([np.arctan2(-R[1, 2], R[1, 1]), -np.sign(R[2, 0]) * 0.5 * np.pi, 0.0])
    pitch = np.arctan2(-R[2, 0], np.hypot(R[0, 0], R[1, 0]))
    return np.array([np.arctan2(R[2, 1], R[2, 2]), pitch, np.arctan2(R[1, 0], R[0, 0])])


def _text(values: Array) -> str:
    return " ".join(repr(float(v)) for v in values)


def _hand(name: str) -> Embodiment:
    """Loads a hand; those of Menagerie from a checkout beside this one, if no other is named."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "menagerie" / name / "right_hand.xml"
    return import_robot(beside, name=name) if beside.is_file() and "MENAGERIE_ROOT" not in os.environ else load(name)


def _best(action: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    """Returns the least time of some rounds, after one to warm up [s]."""
    times = []
    with contextlib.redirect_stdout(io.StringIO()):  # the peer prints when its optimiser gives up
        action()
        for _ in range(rounds):
            start = time.perf_counter()
            action()
            times.append(time.perf_counter() - start)
    return min(times)
