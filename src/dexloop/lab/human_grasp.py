"""Where a person's hand goes to grasp an object, and how far each finger closes on it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.lab.human_hand import FINGERS, hand_spec
from dexloop.sim.shape import Shape

TALL_M, WIDE_M = 0.090, 0.045
"""An object at least this high and this wide is taken from the side."""
_TOUCH_M = 0.0004
"""A finger touches when it is this near [m]."""
_SWEEP_M = 0.2
"""A finger's fastest point moves at most so far for each radian of closing [m]."""
_STEPS = (0.004, 0.08)
"""Least and greatest step of closing [rad]."""
_TABLE_GAP_M = 0.003

_FAR_M = 0.22
"""From how far before the object the palm comes straight to it [m]."""
_SIDE_YAW, _TOP_YAW = np.radians(-50.0), np.radians(180.0)
"""Where the fingers of a hand that comes from the side, or from above, like to point in the world."""

_POSTURES: dict[str, dict[str, float]] = {
    # Before the object: fingers nearly straight, thumb across from them, elbow raised.
    "side": {
        "thumb_oppose": 1.10, "thumb_roll": -0.7, "thumb_1": -0.35, "thumb_2": 0.1, "thumb_3": 0.1,
        "bend": 0.10, "curl": 0.16, "wrist_bend": 0.10, "wrist_swing": -0.25,
    },
    "top": {
        "thumb_oppose": 1.15, "thumb_roll": -0.7, "thumb_1": -0.45, "thumb_2": 0.05, "thumb_3": 0.1,
        "bend": 0.30, "curl": 0.35, "wrist_bend": 0.35,
    },
    # On the way: relaxed.
    "side rest": {
        "thumb_oppose": 0.45, "thumb_roll": -0.3, "thumb_1": 0.05, "thumb_2": 0.25, "thumb_3": 0.25,
        "bend": 0.30, "curl": 0.40, "wrist_bend": 0.10, "wrist_swing": -0.25,
    },
    "top rest": {
        "thumb_oppose": 0.45, "thumb_roll": -0.3, "thumb_1": 0.05, "thumb_2": 0.25, "thumb_3": 0.25,
        "bend": 0.20, "curl": 0.40, "wrist_bend": 0.35,
    },
}  # fmt: skip
"""Joint angles [rad]; `bend` is every finger's first joint, `curl` its second."""
_TRIES = {
    "side": ((-0.10, 0.15), (0.15,), (-0.80, -0.50), (-0.02, 0.0, 0.02)),
    "top": ((0.0, 0.3, 0.6, 0.9), (0.1, 0.4), (-0.85, -0.45), (-0.02, 0.0, 0.02, 0.04)),
}
"""What is tried: `bend`, `curl`, the thumb's first joint [rad], and a shift of the palm along the fingers [m]."""
_WORST = 0.1
"""Score below which it is no grasp: the fingers do not get around the object."""
_CLOSED = {"finger": (1.30, 1.45, 0.95), "thumb": (0.80, 1.00, 1.10)}
"""How far each joint closes when nothing stops it [rad]."""
_RATES = (1.0, 1.1, 0.7)
"""How fast the three joints of a finger close, one to another."""


@dataclass(frozen=True, eq=False)
class Grasp:
    """A grasp and how to come to it."""

    T_world_palm: Float[np.ndarray, "4 4"]
    approach: Float[np.ndarray, "3"]
    """Unit vector along which the palm comes to the object."""
    turn_rad: float
    """How far the hand is turned about the vertical from where it comes most comfortably [rad]."""
    q_rest: Float[np.ndarray, " q"]
    q_open: Float[np.ndarray, " q"]
    q_closed: Float[np.ndarray, " q"]
    """Joint angles after the palm's pose [rad]: on the way, open before the object, closed on it."""


def find_grasp(shape: Shape, T_world_object: Float[np.ndarray, "4 4"]) -> Grasp:
    """Chooses from where to grasp, moves the palm up to the object, and closes the fingers on it."""
    points = se3.transform(T_world_object, np.concatenate([p.vertices for p in shape.parts]))
    low, high = points.min(axis=0), points.max(axis=0)
    centre = 0.5 * (low + high)
    side = bool(high[2] - low[2] >= TALL_M and min(_gap(points, a) for a in np.linspace(0.0, np.pi, 19)) >= WIDE_M)
    touch = _Touch(shape, T_world_object, float(low[2]))
    wish = _SIDE_YAW if side else _TOP_YAW
    yaw = _finger_yaw(points, wish)
    along, up = np.array([np.cos(yaw), np.sin(yaw), 0.0]), np.array([0.0, 0.0, 1.0])
    if side:
        back = np.cross(along, up)
        R = np.stack([along, up, back], axis=1)
        # The palm's middle comes to the object's middle, but never so low that the little finger scrapes the table.
        aim, offset, keep = np.array([*centre[:2], max(centre[2], low[2] + 0.050)]), (0.072, -0.004, 0.0), 0.002
    else:
        back = up
        R = np.stack([along, np.cross(up, along), up], axis=1)
        aim, offset, keep = np.array([*centre[:2], high[2]]), (0.084, 0.006, 0.0), 0.012
    name = "side" if side else "top"
    reach = float(np.max((points - aim) @ back)) + _FAR_M
    best: tuple[float, Grasp] | None = None
    for bend, curl, thumb, shift in itertools.product(*_TRIES[name]):
        q_open = touch.posture(name, bend=bend, curl=curl, thumb_1=thumb)
        far = se3.from_rt(R, aim - R @ (np.array(offset) + np.array([shift, 0.0, 0.0])) + reach * back)
        T_world_palm = touch.come(far, q_open, keep, reach + _FAR_M)
        q_closed = touch.close(T_world_palm, q_open)
        score = touch.score(T_world_palm, q_closed, centre, high[2] - low[2])
        if best is None or score > best[0]:
            best = score, Grasp(T_world_palm, -back, yaw - wish, touch.posture(f"{name} rest"), q_open, q_closed)
    if best is None or best[0] < _WORST:
        raise InputError(
            "no grasp of this object was found: it is too large for a hand, or stands where none can reach"
        )
    return best[1]


def _gap(points: Float[np.ndarray, "n 3"], yaw: float) -> float:
    """Width of the object between thumb and fingers [m] when the fingers point along yaw [rad]."""
    return float(np.ptp(points[:, :2] @ np.array([np.cos(yaw), np.sin(yaw)])))


def _finger_yaw(points: Float[np.ndarray, "n 3"], wish: float) -> float:
    """Turns from the comfortable direction towards the one in which the object is narrow [rad]."""
    turns = np.radians(np.arange(-40.0, 41.0, 5.0))
    cost = [_gap(points, wish + turn) + 0.02 * abs(turn) for turn in turns]
    return wish + float(turns[int(np.argmin(cost))])


class _Touch:
    """The hand beside the object and the table, to ask how near they are."""

    def __init__(self, shape: Shape, T_world_object: Float[np.ndarray, "4 4"], table_z: float):
        spec = hand_spec()
        pose = se3.to_pose(T_world_object)
        body = spec.worldbody.add_body(name="object", pos=pose[:3], quat=pose[3:])
        for k, part in enumerate(shape.parts):
            name = f"object.{k}"
            spec.add_mesh(name=name, uservert=part.vertices.ravel(), userface=part.faces.ravel().astype(np.int32))
            body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name)
        spec.worldbody.add_geom(
            name="table", type=mujoco.mjtGeom.mjGEOM_BOX, size=[2.0, 2.0, 0.05], pos=[0.0, 0.0, table_z - 0.05]
        )
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        self._object = [self.model.geom(f"object.{k}").id for k in range(len(shape.parts))]
        self._table = self.model.geom("table").id
        self._bones = {f: [self.model.geom(f"{f}_{k}").id for k in (1, 2, 3)] for f in FINGERS}
        self._palm = [self.model.geom(name).id for name in ("palm", "palm_ball")]

    def posture(self, name: str, **changes: float) -> Float[np.ndarray, " q"]:
        """Returns the joint angles of a named posture [rad], with some of its entries changed."""
        wanted = _POSTURES[name] | changes
        bend, curl = wanted.pop("bend"), wanted.pop("curl")
        for finger in FINGERS[1:]:
            wanted |= {f"{finger}_1": bend, f"{finger}_2": curl, f"{finger}_3": 0.6 * curl}
        q = np.zeros(self.model.nq)
        for joint, angle in wanted.items():
            q[self.model.joint(joint).qposadr[0]] = angle
        return q[7:]

    def come(
        self, far: Float[np.ndarray, "4 4"], q: Float[np.ndarray, " q"], keep_m: float, most_m: float
    ) -> Float[np.ndarray, "4 4"]:
        """Moves the open hand along the palm's normal until the palm is `keep_m` near or a finger touches."""
        T = far.copy()
        fingers = [g for bones in self._bones.values() for g in bones]
        gone = 0.0
        while gone < most_m:
            self._place(T, q)
            # Nothing comes nearer faster than the hand moves, so it may go by the least distance that is left.
            step = min(
                self._nearest(self._palm, self._object) - keep_m,
                self._nearest(fingers, self._object) - _TOUCH_M,
                self._nearest([*fingers, *self._palm], [self._table]) - _TABLE_GAP_M,
            )
            if step < 2e-4:
                break
            T[:3, 3] -= step * far[:3, 2]
            gone += step
        return T

    def close(self, T_world_palm: Float[np.ndarray, "4 4"], q_open: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
        """Closes each finger joint by joint: a bone that touches stops the joints before it, the others go on."""
        q = q_open.copy()
        for finger in (*FINGERS[1:], "thumb"):
            others = [g for f, bones in self._bones.items() if f != finger for g in bones] if finger == "thumb" else []
            blocks = [*self._object, self._table, *others]
            joints = [int(self.model.joint(f"{finger}_{k}").qposadr[0]) - 7 for k in (1, 2, 3)]
            most = np.array(_CLOSED["thumb" if finger == "thumb" else "finger"])
            rate, free, near = np.array(_RATES), np.ones(3, dtype=bool), np.full(3, 0.05)
            while free.any():
                step = float(np.clip(near[int(np.argmax(free)) :].min() / _SWEEP_M, *_STEPS))
                free &= q[joints] + step * rate <= most
                before = q.copy()
                q[joints] += np.where(free, step * rate, 0.0)
                self._place(T_world_palm, q)
                near = np.array([self._nearest([bone], blocks) for bone in self._bones[finger]])
                if near.min() < 0.0:
                    q = before
                touching = np.flatnonzero(near < _TOUCH_M)
                if len(touching):
                    free[: touching[-1] + 1] = False
        return q

    def score(
        self, T_world_palm: Float[np.ndarray, "4 4"], q: Float[np.ndarray, " q"], centre: np.ndarray, height: float
    ) -> float:
        """How well a closed hand holds: thumb against fingers, many of them, at the object's middle; 0 is not."""
        self._place(T_world_palm, q)
        contacts = {f: [c for bone in bones if (c := self._contact(bone))] for f, bones in self._bones.items()}
        touching = [f for f in FINGERS[1:] if contacts[f]]
        if not contacts["thumb"] or not touching:
            return 0.0
        thumb = np.mean([n for _, n in contacts["thumb"]], axis=0)
        fingers = np.mean([np.mean([n for _, n in contacts[f]], axis=0) for f in touching], axis=0)
        points = np.array([p for found in contacts.values() for p, _ in found])
        off = np.linalg.norm(points.mean(axis=0) - centre) / height
        against = -float(thumb @ fingers)
        return max(0.0, against) * (0.2 + 0.2 * len(touching)) * float(np.exp(-((off / 0.5) ** 2)))

    def _contact(self, bone: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns where a bone touches the object and the direction from the object to the bone, or None."""
        line = np.zeros(6)
        for part in self._object:
            if mujoco.mj_geomDistance(self.model, self.data, bone, part, 0.05, line) < 3 * _TOUCH_M:
                away = self.data.geom_xpos[bone] - line[3:]
                way = line[:3] - line[3:]
                size = np.linalg.norm(way)
                # Two bodies that touch leave no gap to point along: then the bone's middle gives the direction.
                return line[3:].copy(), way / size if size > 1e-6 else away / np.linalg.norm(away)
        return None

    def _place(self, T_world_palm: Float[np.ndarray, "4 4"], q: Float[np.ndarray, " q"]) -> None:
        self.data.qpos[:7] = se3.to_pose(T_world_palm)
        self.data.qpos[7:] = q
        mujoco.mj_kinematics(self.model, self.data)

    def _nearest(self, some: list[int], others: list[int]) -> float:
        """Least distance between two groups of geoms [m], negative inside each other; 0.05 stands for far."""
        best, at, around = 0.05, self.data.geom_xpos, self.model.geom_rbound
        gap = np.linalg.norm(at[some][:, None] - at[others][None], axis=-1) - around[some][:, None] - around[others]
        for i, j in zip(*np.nonzero(gap < best), strict=True):  # far pairs are told apart by their bounding spheres
            if gap[i, j] < best:
                best = min(best, mujoco.mj_geomDistance(self.model, self.data, some[i], others[j], best, None))
        return best
