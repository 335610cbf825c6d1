"""Tells the parts of an unknown robot apart: arm, palm, fingers and their tips.

Everything is read off the tree of bodies and the geometry at the open pose (every joint at zero, or as near as its
limits let it). The chain before the first branching is the arm; where it branches is the palm; each branch is a finger.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.pointcloud import collides, surface

FINGER_NAMES = {
    "if": "index", "ff": "index", "index": "index", "mf": "middle", "middle": "middle", "rf": "ring", "ring": "ring",
    "lf": "little", "little": "little", "pinky": "little", "th": "thumb", "thumb": "thumb", "left": "left",
    "right": "right",
}  # fmt: skip
"""What the first word of a body's name says about its finger."""
PAD_LENGTH_M = 0.025
"""The pad is the last part of a fingertip, at most this long."""


@dataclass(frozen=True)
class Tip:
    """Where a finger ends."""

    name: str
    joints: tuple[str, ...]
    body: str
    """Carries the pad."""
    geoms: tuple[str, ...]
    T_world_site: Float[np.ndarray, "4 4"]
    """In the middle of the pad at the open pose: z out of it, x along the finger."""
    radius_m: float
    """Of a sphere around the site that takes in the whole pad."""
    root: Float[np.ndarray, "3"]
    """Where the finger's first joint is [m]."""
    end: Float[np.ndarray, "3"]
    """Inside the fingertip, behind the pad [m]."""


@dataclass(frozen=True)
class Anatomy:
    """The parts of a robot."""

    arm_joints: tuple[str, ...]
    tips: tuple[Tip, ...]
    """Thumb last; empty for a bare arm."""
    end_body: str
    """The palm, or the last link of a bare arm."""
    T_world_palm: Float[np.ndarray, "4 4"] | None
    T_world_mount: Float[np.ndarray, "4 4"]
    """The hand's mounting face (z towards the fingers), or the bare arm's (z outwards)."""
    open_q: dict[str, float]
    """The pose at which all of this was measured, by joint."""

    @property
    def hand_joints(self) -> tuple[str, ...]:
        """Joints of the fingers, in the order of the fingers."""
        return tuple(joint for tip in self.tips for joint in tip.joints)


def dissect(model: mujoco.MjModel, joints: Sequence[str]) -> Anatomy:
    """Finds the parts.

    Args:
        model: A compiled robot.
        joints: Its driven joints.
    """
    tree = _Tree(model, joints)
    trunk = tree.trunk()
    end = trunk[-1]
    data = mujoco.MjData(model)
    ids = [model.joint(j).id for j in joints]
    low, high = model.jnt_range[ids].T
    open_q = np.where(model.jnt_limited[ids].astype(bool), np.clip(0.0, low, high), 0.0)
    data.qpos[qpos_addresses(model, joints)] = open_q
    mujoco.mj_kinematics(model, data)
    arm = tuple(j for group in trunk for j in tree.joints[group])
    measured = {joint: float(q) for joint, q in zip(joints, open_q, strict=True)}
    fingers = [chain for branch in tree.driven_children(end) if (chain := tree.longest(branch))]
    if len(fingers) < 2:
        T = _arm_end(model, data, tree, end, arm)
        return Anatomy(arm, (), model.body(end).name, None, T, measured)
    tips = _tips(model, data, tree, end, fingers)
    T_palm, T_mount = _palm(model, data, tree, end, tips)
    # Of the bodies welded together as the palm, the one that most fingers stand on.
    palm = Counter(int(model.body_parentid[chain[0]]) for chain in fingers).most_common(1)[0][0]
    return Anatomy(arm, tips, model.body(palm).name, T_palm, T_mount, measured)


class _Tree:
    """The tree of rigid groups: bodies welded together count as one, named by the group's first body."""

    def __init__(self, model: mujoco.MjModel, joints: Sequence[str]):
        self.model = model
        driven = {model.joint(j).id for j in joints}
        self.joints: dict[int, tuple[str, ...]] = {}
        self.children: dict[int, list[int]] = {}
        for group in sorted({int(w) for w in model.body_weldid}):
            first, count = int(model.body_jntadr[group]), int(model.body_jntnum[group])
            mine = [j for j in range(first, first + count) if j in driven]
            self.joints[group] = tuple(model.joint(j).name for j in mine)
            self.children[group] = []
        for group in self.joints:
            if group:
                self.children[int(model.body_weldid[model.body_parentid[group]])].append(group)

    def driven(self, group: int) -> int:
        """Returns how many driven joints there are from this group on outwards."""
        return len(self.joints[group]) + sum(self.driven(child) for child in self.children[group])

    def driven_children(self, group: int) -> list[int]:
        return [child for child in self.children[group] if self.driven(child)]

    def trunk(self) -> list[int]:
        """Returns the groups from the base to the first branching, or to the end."""
        groups = [0]
        while len(children := self.driven_children(groups[-1])) == 1:
            groups.append(children[0])
        return groups

    def longest(self, group: int) -> list[int]:
        """Returns the chain of groups from here outwards with the most driven joints."""
        chains = [self.longest(child) for child in self.children[group]]
        best = max(chains, key=lambda c: (sum(len(self.joints[g]) for g in c), len(c)), default=[])
        return [group, *best]

    def geoms(self, group: int) -> list[int]:
        """Returns the geoms of a group that collide, or all of them when none does."""
        mine = [g for g in range(self.model.ngeom) if self.model.body_weldid[self.model.geom_bodyid[g]] == group]
        return [g for g in mine if collides(self.model, g)] or mine


def _tips(
    model: mujoco.MjModel, data: mujoco.MjData, tree: _Tree, palm: int, fingers: list[list[int]]
) -> tuple[Tip, ...]:
    # A driven finger may end in an undriven group (a coupled joint): its geometry still is the tip.
    clouds = [surface(model, data, tree.geoms(chain[-1])) for chain in fingers]
    ends = np.array([c.mean(axis=0) if len(c) else data.xpos[f[-1]] for c, f in zip(clouds, fingers, strict=True)])
    palm_cloud = surface(model, data, tree.geoms(palm))
    heart = palm_cloud.mean(axis=0) if len(palm_cloud) else data.xpos[palm].copy()
    found = []
    names = _finger_names(model, fingers)
    for k, (chain, cloud) in enumerate(zip(fingers, clouds, strict=True)):
        joints = tuple(j for group in chain for j in tree.joints[group])
        last, first = model.joint(joints[-1]).id, model.joint(joints[0]).id
        axis, anchor = data.xaxis[last], data.xanchor[last]
        slide = model.jnt_type[last] == mujoco.mjtJoint.mjJNT_SLIDE
        along = ends[k] - (heart if slide else anchor)
        along = _unit(along - axis * (axis @ along), fallback=ends[k] - heart)
        motion = axis if slide else np.cross(axis, along)
        normal = motion * _closing(model, last, motion, ends[k], np.delete(ends, k, axis=0).mean(axis=0))
        side = np.cross(normal, along)
        frame = np.stack([along, side, normal], axis=-1)
        local = (cloud if len(cloud) else ends[k][None]) @ frame
        reach = local[:, 0].max()
        length = min(PAD_LENGTH_M, 0.4 * max(reach - local[:, 0].min(), 1e-3))
        # Vertices are sparse on long flat faces; keep at least the farthest tenth.
        cut = min(reach - length, np.quantile(local[:, 0], 0.9))
        pad = local[local[:, 0] >= cut]
        low, high = pad.min(axis=0), pad.max(axis=0)
        inside = 0.5 * (low + high)
        middle = np.array([inside[0], inside[1], high[2]])
        radius = float(np.linalg.norm(np.maximum(high - middle, middle - low))) + 0.002
        geoms = [g for g in tree.geoms(chain[-1]) if _reaches(model, data, g, frame, cut)]
        body = int(model.geom_bodyid[geoms[0]]) if geoms else chain[-1]
        T = se3.from_rt(frame, frame @ middle)
        found.append(
            Tip(
                names[k],
                joints,
                model.body(body).name,
                tuple(model.geom(g).name for g in geoms if model.geom_bodyid[g] == body),
                T,
                radius,
                data.xanchor[first].copy(),
                frame @ inside,
            )
        )
    return tuple(sorted(found, key=lambda tip: tip is _thumb(found)))


def _reaches(model: mujoco.MjModel, data: mujoco.MjData, geom: int, frame: np.ndarray, cut: float) -> bool:
    return bool(((surface(model, data, [geom]) @ frame)[:, 0] >= cut).any())


def _closing(model: mujoco.MjModel, joint: int, motion: np.ndarray, tip: np.ndarray, others: np.ndarray) -> float:
    """Returns +1 where the joint's positive direction closes the hand, otherwise -1."""
    low, high = model.jnt_range[joint]
    hinge = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE
    if hinge and model.jnt_limited[joint] and abs(low + high) > 0.1 * (high - low):
        return float(np.sign(low + high))  # a finger bends further inwards than outwards
    return 1.0 if motion @ (others - tip) >= 0 else -1.0


def _finger_names(model: mujoco.MjModel, fingers: list[list[int]]) -> list[str]:
    names: list[str] = []
    for k, chain in enumerate(fingers):
        words = [w for g in chain for w in re.split(r"[^a-z]+", model.body(g).name.lower()) if w]
        known = next((FINGER_NAMES[w] for w in words if w in FINGER_NAMES), None)
        names.append(known if known and known not in names else f"finger{k + 1}")
    return names


def _thumb(tips: Sequence[Tip]) -> Tip:
    """Returns the finger called thumb; otherwise the one that faces the others most."""
    named = [tip for tip in tips if tip.name == "thumb"]
    if named or len(tips) < 3:
        return (named or list(tips[:1]))[0]
    normals = np.array([tip.T_world_site[:3, 2] for tip in tips])
    return tips[int(np.argmin(normals @ normals.sum(axis=0)))]


def _palm(
    model: mujoco.MjModel, data: mujoco.MjData, tree: _Tree, palm: int, tips: Sequence[Tip]
) -> tuple[Float[np.ndarray, "4 4"], Float[np.ndarray, "4 4"]]:
    normals = np.array([tip.T_world_site[:3, 2] for tip in tips])
    ends = np.array([tip.T_world_site[:3, 3] for tip in tips])
    gripper = len(tips) == 2 and np.linalg.norm(normals.mean(axis=0)) < 0.5
    if gripper:
        z = _unit(np.sum([tip.T_world_site[:3, 0] for tip in tips], axis=0))
        x = ends[-1] - ends[0]
        x = _unit(x - z * (z @ x), fallback=normals[0])
    else:
        fingers = tips[:-1] if len(tips) > 2 else tips
        x = _unit(np.sum([tip.end - tip.root for tip in fingers], axis=0))
        z = normals[: len(fingers)].mean(axis=0)
        z = _unit(z - x * (x @ z))
    R = np.stack([x, np.cross(z, x), z], axis=-1)
    cloud = surface(model, data, tree.geoms(palm))
    roots = np.array([tip.root for tip in (tips if gripper else tips[:-1])])
    local = (cloud if len(cloud) else roots) @ R
    low, high = local.min(axis=0), local.max(axis=0)
    centre = 0.5 * (low + high)
    centre[1] = (roots @ R)[:, 1].mean()
    if gripper:
        centre[0] = (ends @ R)[:, 0].mean()
    place = centre.copy()
    place[2] = _top(model, data, palm, R, centre, high[2])
    forward = 2 if gripper else 0
    rear = centre.copy()
    rear[forward] = low[forward]
    R_mount = R if gripper else np.stack([z, np.cross(x, z), x], axis=-1)
    return se3.from_rt(R, R @ place), se3.from_rt(R_mount, R @ rear)


def _top(
    model: mujoco.MjModel, data: mujoco.MjData, palm: int, R: np.ndarray, centre: np.ndarray, highest: float
) -> float:
    """Returns the height of the palm's surface above its centre, by looking down on it."""
    height = 0.05 + highest - centre[2]
    start = R @ np.array([centre[0], centre[1], centre[2] + height])
    hit = np.full(1, -1, dtype=np.int32)
    distance = mujoco.mj_ray(model, data, start, -R[:, 2], None, 1, -1, hit, None)
    if hit[0] >= 0 and model.body_weldid[model.geom_bodyid[hit[0]]] == model.body_weldid[palm]:
        return float(centre[2] + height - distance)
    return float(highest)


def _arm_end(
    model: mujoco.MjModel, data: mujoco.MjData, tree: _Tree, end: int, arm: Sequence[str]
) -> Float[np.ndarray, "4 4"]:
    """Returns the face at the far end of the last link: z along the last joint's axis, pointing outwards."""
    axis = data.xaxis[model.joint(arm[-1]).id] if arm else np.array([0.0, 0.0, 1.0])
    anchor = data.xanchor[model.joint(arm[-1]).id] if arm else np.zeros(3)
    cloud = surface(model, data, tree.geoms(end))
    ahead = (cloud - anchor) @ axis if len(cloud) else np.zeros(1)
    lean = ahead.min() + ahead.max()
    if abs(lean) < 1e-6 and len(arm) > 1:  # as long ahead as behind: away from the joint before
        lean = axis @ (anchor - data.xanchor[model.joint(arm[-2]).id])
    if lean < 0:
        axis, ahead = -axis, -ahead
    x = data.xmat[end].reshape(3, 3)[:, 0]
    x = _unit(x - axis * (axis @ x), fallback=data.xmat[end].reshape(3, 3)[:, 1])
    return se3.from_rt(np.stack([x, np.cross(axis, x), axis], axis=-1), anchor + axis * ahead.max())


def _unit(v: np.ndarray, fallback: np.ndarray | None = None) -> np.ndarray:
    norm = np.linalg.norm(v)
    if norm < 1e-9:
        return _unit(fallback) if fallback is not None else np.array([0.0, 0.0, 1.0])
    return v / norm
