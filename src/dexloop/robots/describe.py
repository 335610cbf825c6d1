"""Fills in an `Embodiment` from its model, so that limits are written down once: in the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError, UnknownName
from dexloop.robots.embodiment import Embodiment, Fingertip


def describe(
    name: str,
    make_spec: Callable[[], mujoco.MjSpec],
    *,
    arm_joints: Sequence[str],
    hand_joints: Sequence[str],
    speed_limits: Mapping[str, float],
    home: Mapping[str, float],
    fingertips: Sequence[Fingertip] = (),
    palm: str = "",
    mount: str = "",
    source: str = "builtin",
) -> Embodiment:
    """Compiles the model once and reads units, limits and servos from it.

    Args:
        name: As `dexloop.robots.load` takes it.
        make_spec: Gives a fresh model each time.
        arm_joints: Joints that carry the hand, from the base outwards.
        hand_joints: Joints of the hand, in command order.
        speed_limits: [rad/s or m/s] by joint.
        home: [rad or m] by joint.
        fingertips: Thumb (or the first jaw) last.
        palm: Site on the palm, or empty.
        mount: Site of the mounting face, or empty.
        source: "builtin" or a file.

    Raises:
        InputError: MuJoCo refuses the model, or a joint has no actuator of its own.
        UnknownName: A joint that is not in the model.
    """
    spec = make_spec()
    try:
        model = spec.compile()
    except ValueError as error:
        raise InputError(f"the model of {name!r} does not compile: {error}") from error
    joints = (*arm_joints, *hand_joints)
    names = [model.joint(j).name for j in range(model.njnt)]
    for joint in joints:
        if joint not in names:
            raise UnknownName("joint", joint, names, f"The description of {name!r} speaks of it.")
    ids = np.array([names.index(joint) for joint in joints], dtype=int)
    actuators = tuple(servo_of(model, joint) for joint in joints)
    slide = model.jnt_type[ids] == mujoco.mjtJoint.mjJNT_SLIDE
    limited = model.jnt_limited[ids].astype(bool)[:, None]
    return Embodiment(
        name=name,
        make_spec=make_spec,
        joints=joints,
        actuators=actuators,
        arm_joints=tuple(arm_joints),
        hand_joints=tuple(hand_joints),
        units=tuple("m" if s else "rad" for s in slide),
        position_limits=np.where(limited, model.jnt_range[ids], [-np.inf, np.inf]),
        speed_limits=np.array([speed_limits[joint] for joint in joints], dtype=np.float64),
        effort_limits=np.array([effort_limit(model, a) for a in actuators], dtype=np.float64),
        home=np.array([home[joint] for joint in joints], dtype=np.float64),
        fingertips=tuple(fingertips),
        palm=palm,
        mount=mount,
        source=source,
    )


def servo_of(model: mujoco.MjModel, joint: str) -> str:
    """Returns the name of the first actuator that drives a joint directly."""
    drives = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
    found = np.flatnonzero(drives & (model.actuator_trnid[:, 0] == model.joint(joint).id))
    if not len(found):
        raise InputError(f"joint {joint!r} has no actuator: give it a position servo in the model")
    return model.actuator(int(found[0])).name


def effort_limit(model: mujoco.MjModel, actuator: str) -> float:
    """Returns the largest effort of an actuator on its joint [N·m or N]; infinite when nothing limits it."""
    a = model.actuator(actuator).id
    gear = abs(float(model.actuator_gear[a, 0]))
    limits = [np.inf]
    if model.actuator_forcelimited[a]:
        limits.append(gear * float(np.abs(model.actuator_forcerange[a]).min()))
    joint = int(model.actuator_trnid[a, 0])
    if model.jnt_actfrclimited[joint]:
        limits.append(float(np.abs(model.jnt_actfrcrange[joint]).min()))
    return min(limits)


def qpos_addresses(model: mujoco.MjModel, joints: Sequence[str]) -> np.ndarray:
    """Returns where hinge and slide joints stand in `qpos`."""
    return np.array([model.jnt_qposadr[model.joint(j).id] for j in joints], dtype=int)


def dof_addresses(model: mujoco.MjModel, joints: Sequence[str]) -> np.ndarray:
    """Returns where hinge and slide joints stand in `qvel`."""
    return np.array([model.jnt_dofadr[model.joint(j).id] for j in joints], dtype=int)


def site_pose(model: mujoco.MjModel, site: str, qpos: Float[np.ndarray, " nq"] | None = None) -> np.ndarray:
    """Returns T_world_site [4x4] at `qpos`, or at the model's reference pose."""
    data = mujoco.MjData(model)
    if qpos is not None:
        data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = data.site(site).xmat.reshape(3, 3), data.site(site).xpos
    return T
