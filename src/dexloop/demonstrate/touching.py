"""A hand beside an object on a table: what touches what, and how the hand closes on it."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float, Int

from dexloop.core import se3
from dexloop.core.errors import UnknownName
from dexloop.robots.collision import robot_bodies
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import IkCfg, Kinematics, solve_ik
from dexloop.robots.pickup import fingers_of_bodies
from dexloop.robots.pointcloud import collides, surface
from dexloop.sim.scene import Scene

_FAR_M = 0.3
"""Rays begin this far from where they are aimed [m]."""
_CLOSES = 0.7
"""A joint closes a finger if it moves the tip along its pad's normal: cosine."""
_SHARES = ((1.0, 1.0), (0.5, 1.0), (0.3, 0.8))
_HEAVY_KG = 1e4
"""Of an object that does not give way when the hand closes on it [kg]."""
_CLOSING_S, _TICK_S = 1.2, 0.004
"""How long closing takes, and how often targets change meanwhile [s]."""


@dataclass(frozen=True, eq=False)
class Touch:
    """Where a part of the hand is near the object."""

    link: str
    """Body of the robot."""
    finger: str
    """Fingertip that the link carries; empty for the palm."""
    point: Float[np.ndarray, "3"]
    """In the world [m]."""
    normal: Float[np.ndarray, "3"]
    """Into the object."""
    gap_m: float
    """Negative where they overlap."""


class Touching:
    """A robot's hand, an object and a table.

    Args:
        scene: Holds all three, with the robot's names unchanged.
        embodiment: The robot.
        thing: Name of the object, whose free joint is `<thing>.free`.
        T_world_object: Where it is.

    Raises:
        UnknownName: There is no such object.
    """

    def __init__(self, scene: Scene, embodiment: Embodiment, thing: str, T_world_object: Float[np.ndarray, "4 4"]):
        self.scene, self.embodiment, self.thing = scene, embodiment, thing
        self.T_world_object = np.asarray(T_world_object, dtype=np.float64)
        self.model = copy.copy(scene.model)
        names = [self.model.body(b).name for b in range(self.model.nbody)]
        if thing not in names:
            raise UnknownName("object", thing, [n for n in names if f"{n}.free" in _joint_names(self.model)])
        self.data = mujoco.MjData(self.model)
        self._q = qpos_addresses(self.model, embodiment.joints)
        self._free = int(self.model.joint(f"{thing}.free").qposadr[0])
        self._object = self.model.body(thing).id
        self._mine = robot_bodies(self.model, embodiment.joints)
        self._hand = np.array([embodiment.joints.index(j) for j in embodiment.hand_joints], dtype=int)
        palm = int(self.model.site_bodyid[self.model.site(embodiment.palm).id])
        below = [b for b in range(self.model.nbody) if _descends(self.model, b, palm)]
        fingers = fingers_of_bodies(embodiment)
        self._finger = {b: fingers.get(names[b], "") for b in below}
        self._palm_geoms = self._geoms(palm)
        self._hand_geoms = [g for b in below for g in self._geoms(b)]
        self._object_geoms = self._geoms(self._object)
        self.closing, self.shares = _closing(embodiment)
        mujoco.mj_forward(self.model, self.data)
        at = self.data.site(embodiment.palm)
        home = Kinematics(embodiment).palm(self.data.qpos[self._q])
        self._T_base_world = home @ se3.inverse(se3.from_rt(at.xmat.reshape(3, 3), at.xpos))
        self.place(embodiment.home)
        cloud = surface(self.model, self.data, self._object_geoms)
        self._middle = 0.5 * (cloud.min(axis=0) + cloud.max(axis=0))
        self.table_z, self.top_z = float(cloud[:, 2].min()), float(cloud[:, 2].max())

    @property
    def middle(self) -> Float[np.ndarray, "3"]:
        """Middle of the box around the object's colliding parts, in the world [m]."""
        return self._middle

    @property
    def arm(self) -> Int[np.ndarray, " a"]:
        """Which joints carry the hand."""
        return np.array([self.embodiment.joints.index(j) for j in self.embodiment.arm_joints], dtype=int)

    @property
    def hand_efforts(self) -> Float[np.ndarray, " h"]:
        """What the hand's motors can do [N·m or N]."""
        return self.embodiment.effort_limits[self._hand]

    def clip_hand(self, hand: Float[np.ndarray, " h"]) -> Float[np.ndarray, " h"]:
        """Returns hand joints within their limits [rad or m]."""
        return np.clip(hand, *self.embodiment.position_limits[self._hand].T)

    def fingertips(self, hand: Float[np.ndarray, " h"]) -> Float[np.ndarray, "f 3"]:
        """Returns the pads' middles, seen from the palm [m]."""
        kinematics, q = Kinematics(self.embodiment), self.with_hand(hand)
        return se3.transform(se3.inverse(kinematics.palm(q)), kinematics.fingertips(q)[:, :3, 3])

    def reach(
        self, T_world_palm: Float[np.ndarray, "4 4"], q: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"] | None:
        """Brings the palm to a pose by moving the arm; None where it cannot."""
        robot = self.embodiment
        target = self._T_base_world @ T_world_palm
        found = solve_ik(robot, {robot.palm: target}, q, joints=robot.arm_joints, cfg=IkCfg(restarts=2))
        return found.q if found.converged else None

    def with_hand(self, hand: Float[np.ndarray, " h"]) -> Float[np.ndarray, " n"]:
        """Returns the robot's home with other hand joints."""
        q = self.embodiment.home.copy()
        q[self._hand] = hand
        return q

    def hand_of(self, q: Float[np.ndarray, " n"]) -> Float[np.ndarray, " h"]:
        """Returns the hand joints out of all."""
        return q[self._hand]

    def place(self, q: Float[np.ndarray, " n"]) -> None:
        """Puts the robot there, and the object where it stands."""
        self.data.qpos[self._q] = q
        self.data.qpos[self._free : self._free + 7] = se3.to_pose(self.T_world_object)
        mujoco.mj_kinematics(self.model, self.data)

    def touches(self, within_m: float) -> list[Touch]:
        """Returns where the hand is this near to the object, as it was placed."""
        found, line = [], np.zeros(6)
        at, around = self.data.geom_xpos, self.model.geom_rbound
        for g in self._hand_geoms:
            for o in self._object_geoms:
                if np.linalg.norm(at[g] - at[o]) > around[g] + around[o] + within_m:
                    continue
                gap = mujoco.mj_geomDistance(self.model, self.data, g, o, within_m, line)
                way = line[3:] - line[:3]
                size = float(np.linalg.norm(way))
                if gap < within_m and size > 1e-7:
                    body = int(self.model.geom_bodyid[g])
                    normal = way / size if gap > 0 else -way / size
                    found.append(
                        Touch(self.model.body(body).name, self._finger[body], line.reshape(2, 3).mean(0), normal, gap)
                    )
        return found

    def palm_gap(self) -> float:
        """Returns how far the palm is from the object, as it was placed [m]."""
        pairs = [(g, o) for g in self._palm_geoms for o in self._object_geoms]
        return min(mujoco.mj_geomDistance(self.model, self.data, g, o, 1.0, None) for g, o in pairs)

    def overlaps(self) -> tuple[float, float]:
        """Returns how deep the robot is in the table or anything else but the object, and in itself [m]."""
        mujoco.mj_collision(self.model, self.data)
        around = own = 0.0
        for contact in self.data.contact:
            a, b = (int(self.model.geom_bodyid[g]) for g in contact.geom)
            if self._object in (a, b) or not (self._mine[a] or self._mine[b]):
                continue
            if self._mine[a] and self._mine[b]:
                own = max(own, -float(contact.dist))
            else:
                around = max(around, -float(contact.dist))
        return around, own

    def cast(
        self, towards: Float[np.ndarray, "3"], along: Float[np.ndarray, "3"]
    ) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]] | None:
        """Returns where a ray through a point first meets the object, and the outward normal there."""
        model, data = self.model, self.data
        start = towards - _FAR_M * along
        best, normal = np.inf, np.zeros(3)
        for g in self._object_geoms:
            n = np.zeros(3)
            if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH:
                far = mujoco.mj_rayMesh(model, data, g, start, along, n)
            else:
                far = mujoco.mju_rayGeom(
                    data.geom_xpos[g], data.geom_xmat[g], model.geom_size[g], start, along, int(model.geom_type[g]), n
                )
            if 0 <= far < best:
                best, normal = far, n
        if not np.isfinite(best):
            return None
        size = np.linalg.norm(normal)
        if size < 1e-9:
            return None
        return start + best * along, -np.sign(normal @ along) * normal / size

    def close(
        self, q: Float[np.ndarray, " n"], goal: Float[np.ndarray, " h"], torque: Float[np.ndarray, " h"]
    ) -> Float[np.ndarray, " n"]:
        """Closes the hand by simulation until it rests on the object, which does not give way.

        Args:
            q: Where it begins.
            goal: Hand joints that it would come to if nothing were in the way [rad or m].
            torque: Most that each joint pushes with [N·m or N].
        """
        model = copy.copy(self.model)
        model.opt.gravity[:] = 0.0
        model.body_mass[self._object], model.body_inertia[self._object] = _HEAVY_KG, _HEAVY_KG
        # Hard contacts: it matters only where the hand comes to rest, which is on the surface.
        model.geom_solref[:], model.geom_solimp[:] = (0.006, 1.0), (0.95, 0.99, 1e-3, 0.5, 2.0)
        mujoco.mj_setConst(model, mujoco.MjData(model))
        data = mujoco.MjData(model)
        data.qpos[:] = self.data.qpos
        data.qpos[self._q] = q
        servos = [model.actuator(a).id for a in self.embodiment.actuators]
        data.ctrl[servos] = q
        hand = np.array(servos)[self._hand]
        stiffness = model.actuator_gainprm[hand, 0] * model.actuator_gear[hand, 0] ** 2
        begin, steps = q[self._hand], max(round(_TICK_S / model.opt.timestep), 1)
        ticks = round(_CLOSING_S / _TICK_S)
        first = int(model.jnt_dofadr[model.body_jntadr[self._object]])
        thing, twist = slice(self._free, self._free + 7), slice(first, first + 6)
        for k in range(ticks):
            now = data.qpos[self._q][self._hand]
            aim = begin + min(1.25 * (k + 1) / ticks, 1.0) * (goal - begin)
            data.ctrl[hand] = now + np.clip(stiffness * (aim - now), -torque, torque) / stiffness
            mujoco.mj_step(model, data, steps)
            # However heavy: out of the table, into which it has sunk a little, it would float away.
            data.qpos[thing], data.qvel[twist] = self.data.qpos[thing], 0.0
        return data.qpos[self._q].copy()

    def _geoms(self, body: int) -> list[int]:
        return [g for g in range(self.model.ngeom) if self.model.geom_bodyid[g] == body and collides(self.model, g)]


def _closing(robot: Embodiment) -> tuple[Float[np.ndarray, " h"], tuple[tuple[float, float], ...]]:
    """Returns the way in which each hand joint closes (0 for those that swing a finger aside), and between which shares
    of the first joint's torque each may push: those farther out push less, or they would bend the finger open."""
    kinematics = Kinematics(robot)
    way = np.zeros(len(robot.hand_joints))
    shares = [(1.0, 1.0)] * len(robot.hand_joints)
    for tip in robot.fingertips:
        normal = kinematics.poses(robot.home, tip.site)[:3, 2]
        J = kinematics.jacobians(robot.home, tip.site)[:3]
        nth = 0
        for h, joint in enumerate(robot.hand_joints):
            speed = J[:, robot.joints.index(joint)]
            size = np.linalg.norm(speed)
            if size > 1e-9 and abs(speed @ normal) > _CLOSES * size:
                way[h] = np.sign(speed @ normal)
                shares[h] = _SHARES[min(nth, len(_SHARES) - 1)]
                nth += 1
    return way, tuple(shares)


def _joint_names(model: mujoco.MjModel) -> set[str]:
    return {model.joint(j).name for j in range(model.njnt)}


def _descends(model: mujoco.MjModel, body: int, ancestor: int) -> bool:
    while body and body != ancestor:
        body = int(model.body_parentid[body])
    return body == ancestor
