"""The hidden truth of a lab: what a seed draws, and nobody but the scorer may read."""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.lab.objects import LabObject


@dataclass(frozen=True, eq=False)
class Truth:
    """Everything about a lab that its rig does not tell."""

    mass_kg: float
    com: Float[np.ndarray, "3"]
    """Centre of mass in the object's frame [m]."""
    inertia: Float[np.ndarray, "3 3"]
    """About the centre of mass [kg·m²]."""
    table_friction: float
    """Sliding friction of the object on the table, once it moves."""
    finger_friction: float
    """Sliding friction of the object on fingertips."""
    stiction: float
    """Ratio of friction at rest to friction in motion, on the table."""
    stribeck_m_s: float
    """Speed over which the one becomes the other [m/s]."""
    fingertip_softness_s: float
    """Time constant of fingertip contacts [s]."""
    actuator_gain: float
    """Factor on the servos' nominal stiffness."""
    actuator_damping: float
    """Factor on the servos' nominal damping."""
    joint_friction: float
    """Factor on the joints' nominal dry friction."""
    joint_armature: float
    """Factor on the joints' nominal rotor inertia."""
    delay_s: float
    """From command to motor [s]."""
    effort_scale: float
    """Reported over true effort."""
    clock_offset_s: float
    """Camera's clock minus robot's clock [s]."""
    encoder_noise: float
    """Standard deviation [rad or m]."""
    effort_noise: float
    """Standard deviation, as a fraction of each joint's limit."""
    touch_noise_n: float
    """Standard deviation [N]."""
    tracker_noise: tuple[float, float]
    """Standard deviation of the pose tracker [m, rad]."""
    camera_error: Float[np.ndarray, " 6"]
    """True minus nominal camera pose, as a tangent in camera axes [m, rad]."""
    focal_error: float
    """True over nominal focal length."""
    lamps: Float[np.ndarray, "2 4"]
    """Direction towards each lamp, and its brightness."""
    T_world_object: Float[np.ndarray, "4 4"]
    """Where the object stands at the start."""

    def friction_at(self, speed_m_s: float) -> float:
        """Returns the friction of the object on the table while it slides at a speed [m/s]."""
        extra = (self.stiction - 1.0) * np.exp(-((speed_m_s / self.stribeck_m_s) ** 2))
        return float(self.table_friction * (1.0 + extra))

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        values = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in values}


def draw(thing: LabObject, seed: int) -> Truth:
    """Draws the truth of a lab around the object's nominal values."""
    rng = np.random.default_rng([20, seed, zlib.crc32(thing.name.encode())])
    mass = thing.mass_kg * rng.uniform(0.6, 1.4)
    extent = np.ptp(thing.shape.visual.vertices, axis=0)
    # What is inside has shifted by up to 4 % of the size; the spread about the centre changes a little with it.
    com = thing.com + rng.uniform(-0.04, 0.04, 3) * extent
    inertia = mass * thing.inertia_per_kg * rng.uniform(0.9, 1.1)
    turn = se3.from_rt(se3.quat_to_matrix(se3.so3_exp(np.array([0, 0, rng.uniform(-np.pi, np.pi)]))), np.zeros(3))
    place = se3.from_rt(np.eye(3), np.array([*rng.uniform(-0.02, 0.02, 2), 0.0]))
    lamps = np.column_stack([rng.uniform(-0.8, 0.8, (2, 2)), np.ones(2), rng.uniform(0.2, 0.4, 2)])
    return Truth(
        mass_kg=float(mass),
        com=com,
        inertia=inertia,
        table_friction=float(rng.uniform(0.15, 0.9)),
        finger_friction=float(rng.uniform(0.15, 0.9)),
        stiction=float(rng.uniform(1.02, 1.2)),
        stribeck_m_s=float(rng.uniform(0.01, 0.04)),
        fingertip_softness_s=float(rng.uniform(0.006, 0.02)),
        actuator_gain=float(rng.uniform(0.8, 1.2)),
        actuator_damping=float(rng.uniform(0.8, 1.2)),
        joint_friction=float(rng.uniform(0.5, 2.0)),
        joint_armature=float(rng.uniform(0.8, 1.25)),
        delay_s=float(rng.uniform(0.002, 0.04)),
        effort_scale=float(rng.uniform(0.97, 1.03)),
        clock_offset_s=float(rng.uniform(-0.05, 0.05)),
        encoder_noise=float(rng.uniform(1e-4, 3e-4)),
        effort_noise=float(rng.uniform(0.002, 0.006)),
        touch_noise_n=float(rng.uniform(0.01, 0.05)),
        tracker_noise=(float(rng.uniform(2e-4, 5e-4)), float(rng.uniform(0.002, 0.006))),
        camera_error=rng.normal(0.0, 1.0, 6) * np.array([1e-3] * 3 + [2e-3] * 3),
        focal_error=float(rng.uniform(0.995, 1.005)),
        lamps=lamps,
        T_world_object=place @ turn @ thing.T_rest,
    )
