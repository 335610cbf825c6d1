"""A box on a table before a robot: small enough for tests, with sides that can be worked out by hand."""

from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.robots.catalog import load
from dexloop.robots.embodiment import Embodiment
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
