"""Many simulated worlds at once in which a robot handles an object: targets in, signals out, at the pace of control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene
from dexloop.sim.world import World


@dataclass(frozen=True, eq=False)
class Felt:
    """What sensors of n worlds would say at one moment."""

    position: Float[np.ndarray, "n j"]
    """Of all joints [rad or m]."""
    effort: Float[np.ndarray, "n j"]
    """Of their motors, as the joints feel it [N·m or N]."""
    touch: Float[np.ndarray, "n f"]
    """[N]"""
    T_world_object: Float[np.ndarray, "n 4 4"]
    T_world_palm: Float[np.ndarray, "n 4 4"]


class Handling:
    """Worlds with a robot and an object in each.

    Args:
        scene: Holds both.
        robot: The robot; where it stands is the scene's.
        thing: The object's name.
        draws: Parameters, one row a world.
        q: Where the joints are at first, and are told to stay [rad or m].
        T_world_object: Where the object is at first.
        rate_hz: How often targets come [1/s]; rounded to whole steps of simulation.
    """

    def __init__(
        self,
        scene: Scene,
        robot: Embodiment,
        thing: str,
        draws: Draws,
        *,
        q: Float[np.ndarray, "n j"],
        T_world_object: Float[np.ndarray, "n 4 4"],
        rate_hz: float,
    ):
        model = scene.model
        self.robot, self.kinematics = robot, Kinematics(robot, model)
        self.world = World(scene, len(draws), parameters=draws.names)
        self.world.set(draws.by_name())
        self._joints, self._free = qpos_addresses(model, robot.joints), int(model.joint(f"{thing}.free").qposadr[0])
        self._dofs = [int(model.joint(j).dofadr[0]) for j in robot.joints]
        # Sensors come in the order of the model's bodies, and fingers in the robot's own.
        felt = [model.site(model.sensor_objid[s]).name for s in scene.roles["fingertip"].sensors]
        self._fingers = [felt.index(tip.site) for tip in robot.fingertips]
        self._servos = [model.actuator(a).id for a in robot.actuators]
        qpos = np.tile(model.qpos0, (len(draws), 1))
        qpos[:, self._joints] = q
        qpos[:, self._free : self._free + 7] = se3.to_pose(np.asarray(T_world_object))
        ctrl = np.zeros((len(draws), model.nu))
        ctrl[:, self._servos] = qpos[:, self._joints]
        self.world.reset(qpos=qpos, ctrl=ctrl)
        self.steps = max(round(1.0 / (rate_hz * model.opt.timestep)), 1)
        self.dt = self.steps * float(model.opt.timestep)
        """Between two moments [s]."""
        self.fine = (np.arange(self.steps) + 1.0) / self.steps * self.dt
        """When targets are due within it [s]."""
        self.diverged: Mapping[int, str] = {}
        """Worlds that became unstable, and how; they stand where they did at the start."""

    def step(self, targets: Float[np.ndarray, "n s j"]) -> Felt:
        """Advances all worlds to the next moment, with a target for every step on the way [rad or m]."""
        model = self.world.model
        control = np.zeros((len(targets), self.steps, model.nu))
        control[:, :, self._servos] = np.clip(targets, *self.robot.position_limits.T)
        out = self.world.rollout(control, record=("qpos", "qfrc_actuator", "fingertip.touch"))
        self.diverged = out.diverged
        last = out["qpos"][:, -1]
        qpos = np.where(np.isnan(last), model.qpos0, last)
        position, pose = qpos[:, self._joints], qpos[:, self._free : self._free + 7]
        effort, touch = (np.nan_to_num(out[name].mean(axis=1)) for name in ("qfrc_actuator", "fingertip.touch"))
        effort, touch = effort[:, self._dofs], touch[:, self._fingers]
        return Felt(position, effort, touch, se3.from_pose(pose), self.kinematics.palm(position))
