"""The bench as the planner pictures it: the robot, a table, and a box of the object's rough size and place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.rig.protocol import Features
from dexloop.robots.catalog import load
from dexloop.robots.embodiment import Embodiment
from dexloop.sim.parts import Primitive, Robot, Table, Thing
from dexloop.sim.scene import Scene, SceneCfg, compose


@dataclass(frozen=True, eq=False)
class Bench:
    """What a motion is planned in."""

    robot: Embodiment
    T_world_base: Float[np.ndarray, "4 4"]
    scene: Scene
    """Robot, table and, if it is known where one is, the object as a box called "object"."""
    T_world_object: Float[np.ndarray, "4 4"] | None
    """Where the object is, roughly: the middle of its box."""
    size: Float[np.ndarray, "3"] | None
    """Of the object along its own axes [m], roughly."""

    def object_at(self) -> Box:
        """Returns the object as a box.

        Raises:
            InputError: The rig does not say where the object is.
        """
        if self.T_world_object is None or self.size is None:
            raise InputError(
                "the rig does not say where the object is: give scene.T_world_object_rough [4x4] and object_size_m [3]"
            )
        return Box(self.T_world_object, self.size)


@dataclass(frozen=True, eq=False)
class Box:
    """A box around an object."""

    T: Float[np.ndarray, "4 4"]
    size: Float[np.ndarray, "3"]
    """Along its own axes [m]."""

    @property
    def centre(self) -> Float[np.ndarray, "3"]:
        """Its middle [m]."""
        return self.T[:3, 3]

    @property
    def height_m(self) -> float:
        """How high it reaches above the table [m]."""
        return 2.0 * self.reach(np.array([0.0, 0.0, 1.0]))

    def reach(self, direction: Float[np.ndarray, "3"]) -> float:
        """Returns how far it reaches from its middle in a direction [m]."""
        return float(0.5 * np.abs(self.T[:3, :3].T @ direction) @ self.size)

    def narrow_axis(self) -> tuple[Float[np.ndarray, "3"], float]:
        """Returns the most level direction across which it is narrowest, and its width there [m]."""
        level = [k for k in range(3) if abs(self.T[2, k]) < 0.5]
        k = min(level, key=lambda k: float(self.size[k]))
        axis = self.T[:3, k] * [1.0, 1.0, 0.0]
        return axis / np.linalg.norm(axis), float(self.size[k])


def picture(features: Features) -> Bench:
    """Builds the planner's bench from what the rig says of itself.

    Raises:
        InputError: The rig has no robot, or one that cannot be commanded.
    """
    if not features.robot or features.command is None:
        raise InputError(f"rig {features.name!r} has no robot to move: it can only film")
    robot = load(str(features.robot["name"]))
    if robot.joints != tuple(features.command.joints):
        raise InputError(
            f"rig {features.name!r} commands the joints {', '.join(features.command.joints)}, but {robot.name} has "
            f"{', '.join(robot.joints)}: name the right robot"
        )
    T_world_base = np.asarray(features.robot.get("T_world_base", np.eye(4)), dtype=np.float64)
    T, size = _object(features.scene)
    width, depth = features.scene.get("table_size_m", (2.0, 2.0))
    parts: list[Any] = [Table(size_m=(float(width), float(depth))), Robot(robot, T_world_base)]
    if T is not None and size is not None:
        pose = se3.to_pose(T)
        pose[2] = Box(T, size).height_m / 2 + 1e-3
        half = (float(size[0]) / 2, float(size[1]) / 2, float(size[2]) / 2)
        parts.append(Thing("object", Primitive("box", half), 0.1, pose=tuple(float(v) for v in pose)))
    return Bench(robot, T_world_base, compose(*parts, cfg=SceneCfg(max_delay_s=0.0)), T, size)


def _object(scene: Mapping[str, Any]) -> tuple[np.ndarray | None, np.ndarray | None]:
    if "T_world_object_rough" not in scene or "object_size_m" not in scene:
        return None, None
    T = np.asarray(scene["T_world_object_rough"], dtype=np.float64)
    return T, np.asarray(scene["object_size_m"], dtype=np.float64)
