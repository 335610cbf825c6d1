"""Position servos for joints that have none, with defaults that are written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class Default:
    """What is assumed of a joint that a file says nothing about."""

    effort: float
    """[N·m or N]"""
    speed: float
    """[rad/s or m/s]"""
    error: float
    """At this error a servo made here pushes with all its effort [rad or m]: kp = effort / error."""
    armature: float
    """Where the file has none [kg·m² or kg]."""


DEFAULTS = {
    "hand hinge": Default(effort=1.0, speed=5.0, error=0.2, armature=5e-4),
    "hand slide": Default(effort=40.0, speed=0.15, error=0.01, armature=0.1),
    "arm hinge": Default(effort=100.0, speed=1.5, error=0.03, armature=0.1),
    "arm slide": Default(effort=200.0, speed=0.5, error=0.02, armature=0.5),
}
"""By part and kind of joint: a small servo hand, and an arm that carries a few kilograms."""


@dataclass(frozen=True)
class Servo:
    """How one joint is to be driven."""

    joint: str
    keep: str
    """Actuator of the file that already is a position servo, or empty to make one."""
    effort: float | None
    """Force limit to set [N·m or N]; None keeps the file's."""
    kp: float = 0.0
    """[N·m/rad or N/m]"""
    armature: float | None = None
    """To set where the file has none [kg·m² or kg]."""


def role(model: mujoco.MjModel, joint: str, arm: bool) -> str:
    """Returns which of `DEFAULTS` a joint falls under."""
    slide = model.jnt_type[model.joint(joint).id] == mujoco.mjtJoint.mjJNT_SLIDE
    return f"{'arm' if arm else 'hand'} {'slide' if slide else 'hinge'}"


def is_position_servo(model: mujoco.MjModel, actuator: int) -> bool:
    """Returns whether an actuator's force is kp·(ctrl - length) - kv·velocity."""
    kp = model.actuator_gainprm[actuator, 0]
    return bool(
        model.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_FIXED
        and model.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_AFFINE
        and kp > 0
        and abs(kp + model.actuator_biasprm[actuator, 1]) < 1e-6 * kp
    )


def plan_servos(
    model: mujoco.MjModel, arm: Sequence[str], hand: Sequence[str], efforts: Mapping[str, float]
) -> tuple[Servo, ...]:
    """Decides how each joint is driven.

    A position servo of the file's stays, with a force limit if it has none. Any other drive (a motor, a tendon) is
    replaced by a servo of the same strength, because a rig takes one position target a joint.

    Args:
        model: The robot as read.
        arm: Joints of the arm.
        hand: Joints of the hand.
        efforts: Force limits that a person set [N·m or N], by joint.
    """
    servos = []
    for name in (*arm, *hand):
        default = DEFAULTS[role(model, name, name in arm)]
        joint = model.joint(name).id
        mine = np.flatnonzero((model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT)
                              & (model.actuator_trnid[:, 0] == joint))  # fmt: skip
        kept = next((int(a) for a in mine if is_position_servo(model, int(a))), None)
        if kept is not None:
            limited = model.actuator_forcelimited[kept] or model.jnt_actfrclimited[joint]
            effort = efforts.get(name, None if limited else default.effort)
            servos.append(Servo(name, model.actuator(kept).name, effort))
            continue
        effort = efforts.get(name) or _strength(model, joint, [int(a) for a in mine]) or default.effort
        armature = None if model.dof_armature[model.jnt_dofadr[joint]] > 0 else default.armature
        servos.append(Servo(name, "", effort, effort / default.error, armature))
    return tuple(servos)


def drive(spec: mujoco.MjSpec, servos: Sequence[Servo]) -> None:
    """Makes a model's actuators what was planned; every other actuator is removed."""
    keep = {servo.keep for servo in servos if servo.keep}
    for actuator in list(spec.actuators):
        if actuator.name not in keep:
            spec.delete(actuator)
    for servo in servos:
        joint = spec.joint(servo.joint)
        if servo.armature is not None:
            joint.armature = servo.armature
        if servo.keep:
            actuator = spec.actuator(servo.keep)
        else:
            name = servo.joint
            while spec.actuator(name) is not None:
                name += "_servo"
            actuator = spec.add_actuator(name=name, target=servo.joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            actuator.set_to_position(kp=servo.kp, dampratio=1.0)
            if joint.range[0] < joint.range[1]:
                actuator.ctrllimited, actuator.ctrlrange = True, joint.range
        if servo.effort is not None:
            gear = abs(float(actuator.gear[0]))
            if gear == 0:
                raise InputError(f"actuator {actuator.name!r} has no gear: it cannot move its joint")
            actuator.forcelimited, actuator.forcerange = True, [-servo.effort / gear, servo.effort / gear]


def _strength(model: mujoco.MjModel, joint: int, actuators: Sequence[int]) -> float:
    """Returns what a joint's own limit or its motors allow [N·m or N]; 0 when nothing says."""
    if model.jnt_actfrclimited[joint]:
        return float(np.abs(model.jnt_actfrcrange[joint]).max())
    for a in actuators:
        gear = abs(float(model.actuator_gear[a, 0]))
        if model.actuator_forcelimited[a]:
            return gear * float(np.abs(model.actuator_forcerange[a]).max())
        if model.actuator_ctrllimited[a] and model.actuator_biastype[a] == mujoco.mjtBias.mjBIAS_NONE:
            gain = abs(float(model.actuator_gainprm[a, 0]))
            return gear * gain * float(np.abs(model.actuator_ctrlrange[a]).max())
    return 0.0
