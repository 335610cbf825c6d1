"""Small scenes that several tests share."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.sim.parts import FixedCamera, Light, Primitive, Table, Thing
from dexloop.sim.scene import Scene, SceneCfg, compose

CAMERA = Camera.from_fov("cam", 320, 240, 0.8, se3.look_at(np.array([0.5, -0.4, 0.4]), np.array([0.0, 0.0, 0.03])))


@dataclass(frozen=True)
class Pusher:
    """A ball on a driven slide."""

    kp: float = 500.0
    frictionloss: float = 0.2
    armature: float = 0.05

    def add_to(self, spec: mujoco.MjSpec) -> None:
        body = spec.worldbody.add_body(name="pusher", pos=[-0.1, 0, 0.03])
        body.add_joint(
            name="slide", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[1, 0, 0], damping=1.0,
            frictionloss=self.frictionloss, armature=self.armature,
        )  # fmt: skip
        body.add_geom(name="ball", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.015, 0, 0], mass=0.2)
        actuator = spec.add_actuator(name="servo", target="slide", trntype=mujoco.mjtTrn.mjTRN_JOINT)
        actuator.set_to_position(kp=self.kp, kv=20.0)


def box(**changes: object) -> Thing:
    values = {"mass_kg": 0.12, "pose": (0.0, 0.0, 0.03, 1.0, 0.0, 0.0, 0.0), **changes}
    return Thing("box", Primitive("box", (0.03, 0.03, 0.03)), **values)


def push_scene(*, table: Table | None = None, thing: Thing | None = None, pusher: Pusher | None = None, **cfg) -> Scene:
    return compose(
        table or Table(), thing or box(), pusher or Pusher(), Light("lamp", (1.0, 0.0, 2.0)), FixedCamera(CAMERA),
        cfg=SceneCfg(**cfg),
    )  # fmt: skip


def push_control(steps: int = 400) -> np.ndarray:
    return np.linspace(0.0, 0.16, steps)[:, None]
