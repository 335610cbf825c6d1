"""The twin in motion: simulated from poses and parameters that somebody chose, a frame at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from dexloop.sim.world import World
from dexloop.view.contents import Contents

Poses = Mapping[str, Float[np.ndarray, "7"]]
"""T_world_object by object: x y z [m], qw qx qy qz."""


class Play:
    """One simulation of a twin, started again and again.

    Args:
        contents: With the twin's scene.
    """

    def __init__(self, contents: Contents):
        names = [*(o.mass.name for o in contents.objects), contents.friction.name]
        self._world = World(contents.scene, 1, parameters=names, threads=1)
        model = contents.scene.model
        joints = {o.name: int(model.body_jntadr[model.body(o.name).id]) for o in contents.objects}
        self._at = {name: int(model.jnt_qposadr[j]) for name, j in joints.items()}
        self._moves = {name: int(model.jnt_dofadr[j]) for name, j in joints.items()}
        self._step_s = float(model.opt.timestep)

    def start(self, poses: Poses, values: Mapping[str, float], speeds_m_s: Mapping[str, float]) -> None:
        """Puts the objects somewhere, each with a speed along the world's x axis [m/s].

        Args:
            poses: Of every object.
            values: Of parameters by name, such as "object.mass" [SI].
            speeds_m_s: By object; those that are not named stand still.
        """
        model = self._world.model
        qpos, qvel = model.qpos0.copy(), np.zeros(model.nv)
        for name, pose in poses.items():
            qpos[self._at[name] : self._at[name] + 7] = pose
        for name, speed in speeds_m_s.items():
            qvel[self._moves[name]] = speed
        self._world.set(dict(values))
        self._world.reset(qpos=qpos, qvel=qvel)

    def go(self, seconds: float) -> dict[str, Float[np.ndarray, "7"]]:
        """Simulates on, and returns where the objects are then.

        Raises:
            Diverged: The simulation became unstable; the message names a file that replays it.
        """
        qpos = self._world.step(steps=max(round(seconds / self._step_s), 1)).require()["qpos"][0]
        return {name: qpos[at : at + 7].copy() for name, at in self._at.items()}
