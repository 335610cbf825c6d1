"""A scene with some joints held fast: what does not move need not be simulated."""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.sim.roles import Selection
from dexloop.sim.scene import Scene

_KINDS = {
    "bodies": mujoco.mjtObj.mjOBJ_BODY,
    "geoms": mujoco.mjtObj.mjOBJ_GEOM,
    "joints": mujoco.mjtObj.mjOBJ_JOINT,
    "actuators": mujoco.mjtObj.mjOBJ_ACTUATOR,
    "cameras": mujoco.mjtObj.mjOBJ_CAMERA,
    "sensors": mujoco.mjtObj.mjOBJ_SENSOR,
}


def freeze(scene: Scene, positions: Mapping[str, float]) -> Scene:
    """Returns a copy of a scene in which some joints are gone, and what hung on them stands as at these positions.

    A joint that cannot be taken out alone (it shares its body with others, hangs on the world, maybe by a frame of its
    own, or something refers to it) stays.

    Args:
        scene: The scene; it is left as it is.
        positions: Where each joint is held [rad or m].
    """
    model, spec = scene.model, scene.spec.copy()
    for name, q in positions.items():
        joint = model.joint(name).id
        body = int(model.jnt_bodyid[joint])
        if (
            not model.body_parentid[body]
            or model.body_jntnum[body] != 1
            or int(model.jnt_type[joint]) not in _TURNING_OR_SLIDING
            or _referred(model, joint)
        ):
            continue
        place = spec.body(model.body(body).name)
        pose = _moved(model, joint, body, q)
        place.pos, place.quat = pose[:3], pose[3:]
        place.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
        for actuator in list(spec.actuators):
            if actuator.target == name:
                spec.delete(actuator)
        spec.delete(spec.joint(name))
    compiled = spec.compile()
    compiled.opt = model.opt
    roles = {role: _again(model, compiled, s) for role, s in scene.roles.items()}
    return Scene(spec, compiled, roles)


_TURNING_OR_SLIDING = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))


def _moved(model: mujoco.MjModel, joint: int, body: int, q: float) -> Float[np.ndarray, " 7"]:
    """Returns a body's pose in its parent's frame with its joint at a position."""
    T = se3.from_pose(np.concatenate([model.body_pos[body], model.body_quat[body]]))
    axis, anchor = model.jnt_axis[joint], model.jnt_pos[joint]
    q = q - float(model.qpos0[model.jnt_qposadr[joint]])
    if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE:
        return se3.to_pose(T @ se3.from_rt(np.eye(3), q * axis))
    R = se3.quat_to_matrix(se3.so3_exp(q * axis))
    return se3.to_pose(T @ se3.from_rt(R, anchor - R @ anchor))


def _referred(model: mujoco.MjModel, joint: int) -> bool:
    """Whether an equality, a tendon or a sensor speaks of a joint."""
    of_joints = model.eq_type == mujoco.mjtEq.mjEQ_JOINT
    coupled = bool((model.eq_obj1id[of_joints] == joint).any() or (model.eq_obj2id[of_joints] == joint).any())
    wrapped = bool((model.wrap_objid[model.wrap_type == mujoco.mjtWrap.mjWRAP_JOINT] == joint).any())
    sensed = bool((model.sensor_objid[model.sensor_objtype == mujoco.mjtObj.mjOBJ_JOINT] == joint).any())
    return coupled or wrapped or sensed


def _again(old: mujoco.MjModel, new: mujoco.MjModel, s: Selection) -> Selection:
    """Finds the same elements in another model by their names, or by their place among what has none."""
    kept = {}
    for field, kind in _KINDS.items():
        ids = []
        for i in getattr(s, field):
            name = mujoco.mj_id2name(old, kind, i)
            found = mujoco.mj_name2id(new, kind, name) if name else -1
            if not name and field in ("bodies", "geoms"):
                found = i  # none of these went away, so their numbers are what they were
            if found >= 0:
                ids.append(found)
        kept[field] = tuple(ids)
    return Selection(**kept)
