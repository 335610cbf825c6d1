"""Puts the robot of some recordings into the twin of an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.artifacts import Twin
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError
from dexloop.robots.catalog import load as load_robot
from dexloop.robots.embodiment import Embodiment
from dexloop.sim.parts import Part, Robot
from dexloop.sim.saving import ModelFile
from dexloop.sim.scene import Scene, SceneCfg, compose

TILT_RAD = 0.25
"""What is seen tilted by more has fallen over, or stands on another side [rad]."""
TIMESTEP_S, MAX_DELAY_S = 0.002, 0.15
_SLIPPING = 10.0
"""MuJoCo's friction lets what is held creep, the less the higher this ratio of impedances."""


def robot_of(capture: Capture) -> Mapping[str, Any]:
    """Returns what recordings say of the robot.

    Raises:
        InputError: They say nothing.
    """
    about = next((r.robot for r in capture.recordings.values() if r.robot), None)
    if about is None:
        raise InputError(f"no recording in {capture.path} says which robot stands there: record one with the robot")
    return about


def open_scene(twin: Twin, about: Mapping[str, Any]) -> tuple[Embodiment, Float[np.ndarray, "4 4"], Scene]:
    """Opens the twin with a robot in it, fit for holding; also says where the robot stands.

    Args:
        twin: Of one object.
        about: What a rig or a recording says of the robot: `name`, and `T_world_base` if known.

    Raises:
        InputError: There is not exactly one object.
    """
    robot = load_robot(str(about["name"]))
    base = np.asarray(about.get("T_world_base", np.eye(4)), dtype=np.float64)
    scene = scene_of([ModelFile(twin.path / "scene.xml")], robot, base)
    if "object" not in scene.roles:
        raise InputError("the twin has not exactly one free object: say which by making a twin of it alone")
    return robot, base, scene


def scene_of(parts: Sequence[Part], robot: Embodiment, T_world_base: Float[np.ndarray, "4 4"]) -> Scene:
    """Returns a scene that is fit for holding: what lies there, and a robot."""
    cfg = SceneCfg(timestep_s=TIMESTEP_S, max_delay_s=MAX_DELAY_S, impratio=_SLIPPING, noslip_iterations=3)
    return compose(*parts, Robot(robot, T_world_base), cfg=cfg)


def place_of(scene: Scene, thing: str) -> int:
    """Returns where in `qpos` an object's pose begins."""
    return int(scene.model.joint(f"{thing}.free").qposadr[0])


def standing(scene: Scene, T_world_object: np.ndarray) -> np.ndarray:
    """Returns where a film or a tracker shows the object, standing on the table as its twin does: only place and turn
    are new.

    Raises:
        InputError: It does not stand so.
    """
    joint = scene.model.body_jntadr[scene.model.body(scene.roles["object"].bodies[0]).id]
    adr = int(scene.model.jnt_qposadr[joint])
    rest = se3.from_pose(scene.model.qpos0[adr : adr + 7])
    turn = T_world_object[:3, :3] @ rest[:3, :3].T
    tilt = float(np.arccos(np.clip(turn[2, 2], -1.0, 1.0)))
    if not tilt <= TILT_RAD:
        raise InputError(
            f"the object does not stand as its twin does: it is tilted by {np.rad2deg(tilt):.0f}°; set it upright, "
            "or look whether the tracker follows it rightly"
        )
    yaw = float(np.arctan2(turn[1, 0] - turn[0, 1], turn[0, 0] + turn[1, 1]))
    R = se3.quat_to_matrix(se3.so3_exp(np.array([0.0, 0.0, yaw])))
    return se3.from_rt(R @ rest[:3, :3], np.array([*T_world_object[:2, 3], rest[2, 3]]))
