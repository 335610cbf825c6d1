"""A box on a table before a robot: small enough for tests, with sides that can be worked out by hand."""

from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.demonstrate.holds import find_holds
from dexloop.demonstrate.retarget import Retargeter
from dexloop.demonstrate.touching import Touching
from dexloop.robots.catalog import load
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.hold import Hold
from dexloop.sim.parts import Primitive, Robot, Table, Thing
from dexloop.sim.scene import Scene, SceneCfg, compose

HALF = (0.03, 0.025, 0.035)
T_WORLD_OBJECT = se3.from_rt(np.eye(3), np.array([0.02, 0.0, HALF[2]]))
T_WORLD_BASE = se3.from_rt(np.eye(3), np.array([-0.26, 0.0, 0.0]))


def robot(name: str = "dex16@wrist") -> Embodiment:
    return load(name)


def scene(name: str = "dex16@wrist", *, mass_kg: float = 0.15, friction: float = 0.5) -> Scene:
    pose = tuple(float(v) for v in se3.to_pose(T_WORLD_OBJECT))
    return compose(
        Table(),
        Robot(robot(name), T_WORLD_BASE, fingertip_friction=friction),
        Thing("box", Primitive("box", HALF), mass_kg, pose=pose, friction=friction),
        cfg=SceneCfg(max_delay_s=0.0),
    )


def from_above() -> np.ndarray:
    """A palm that looks down, fingers pointing to -x, above the box."""
    R = np.array([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])
    return se3.from_rt(R, np.array([0.07, 0.0, 0.13]))


def pinch_by_jaws(of: Scene) -> Hold:
    """A pinch by two jaws, found as any other: from above, somewhere near the middle."""
    jaws = robot("gripper@wrist")
    touching = Touching(of, jaws, "box", T_WORLD_OBJECT)
    T = from_above()
    T[:3, 3] = T_WORLD_OBJECT[:3, 3] + [0.0, 0.0, 0.1]
    opened = jaws.position_limits[[jaws.joints.index(j) for j in jaws.hand_joints], 1]
    found = find_holds(touching, Retargeter(jaws), T, opened, mass_kg=0.2, com=np.zeros(3), tries=40, most=1)
    assert found.holds, found.reasons
    return found.holds[0]
