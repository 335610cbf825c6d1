"""Says what is wrong with an embodiment, before anything relies on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import mujoco
import numpy as np

from dexloop.core.status import Level, Status
from dexloop.robots.collision import Collisions
from dexloop.robots.describe import effort_limit
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.servos import is_position_servo

MASS_KG = (1e-6, 200.0)
"""A moving link lighter than a milligram or heavier than a person with luggage is a mistake."""
HAND_REACH_M = (0.02, 0.5)
"""How far a hand's fingertips are from its palm, at most; beyond this the unit is not metres."""
ARM_REACH_M = 5.0
PINCH_M = 0.06
"""A hand whose thumb (or jaw) never comes this close to another fingertip cannot grasp anything small."""
SAMPLES = 400
"""Random poses that are tried for the closest pinch."""


def check(embodiment: Embodiment) -> list[Status]:
    """Returns what is wrong, worst first; nothing for a sound robot.

    A `fail` must be mended before the robot is used; a `warn` is unusual and should be looked at.
    """
    found = list(_describes(embodiment))
    try:
        model = embodiment.make_spec().compile()
    except ValueError as error:
        found.append(_fail("model_broken", f"MuJoCo refuses the model: {error}", "Mend the model file."))
        return found
    missing = list(_names(embodiment, model))
    found += missing
    found += _links(model)
    if not any(s.level == Level.FAIL for s in [*missing, *found]):
        found += [*_joints(embodiment, model), *_servos(embodiment, model), *_sensors(embodiment, model)]
    if not any(s.level == Level.FAIL for s in found):
        found += [*_home(embodiment, model), *_geometry(embodiment, model)]
    return sorted(found, key=lambda s: [Level.FAIL, Level.WARN, Level.OK].index(s.level))


def _describes(e: Embodiment) -> Iterator[Status]:
    """What can be told without the model."""
    for what, names in (("joint", e.joints), ("actuator", e.actuators), ("fingertip", [f.name for f in e.fingertips])):
        for name, count in Counter(names).items():
            if count > 1:
                yield _fail("duplicate_name", f"{what} {name!r} is listed {count} times", "List each once.")
    if e.arm_joints + e.hand_joints != e.joints:
        message = "joints are not the arm's followed by the hand's"
        yield _fail("joint_order", message, "Make joints = arm_joints + hand_joints.")
    n = len(e.joints)
    arrays = {"position_limits": (n, 2), "speed_limits": (n,), "effort_limits": (n,), "home": (n,)}
    for name, shape in arrays.items():
        if np.shape(getattr(e, name)) != shape:
            message = f"{name} has shape {np.shape(getattr(e, name))}, not {shape}"
            yield _fail("wrong_shape", message, f"Give {name} one entry a joint.")
    if len(e.actuators) != n or len(e.units) != n:
        message = f"{n} joints, {len(e.actuators)} actuators, {len(e.units)} units"
        yield _fail("wrong_shape", message, "Give one actuator and one unit a joint.")


def _names(e: Embodiment, model: mujoco.MjModel) -> Iterator[Status]:
    """Everything that the description speaks of must be in the model."""
    kinds = {
        "joint": (mujoco.mjtObj.mjOBJ_JOINT, e.joints),
        "actuator": (mujoco.mjtObj.mjOBJ_ACTUATOR, e.actuators),
        "site": (mujoco.mjtObj.mjOBJ_SITE, [s for s in (e.palm, e.mount) if s]),
        "fingertip site": (mujoco.mjtObj.mjOBJ_SITE, [f.site for f in e.fingertips]),
        "fingertip body": (mujoco.mjtObj.mjOBJ_BODY, [f.body for f in e.fingertips]),
        "fingertip geom": (mujoco.mjtObj.mjOBJ_GEOM, [g for f in e.fingertips for g in f.geoms]),
    }
    for what, (kind, names) in kinds.items():
        for name in names:
            if mujoco.mj_name2id(model, kind, name) < 0:
                code = f"missing_{what.replace(' ', '_')}"
                yield _fail(code, f"the model has no {what} {name!r}", "Name one that exists, or add it to the model.")
    if e.hand_joints and not e.palm:
        yield _fail("missing_palm", "a hand without a palm site", "Add a site: z out of the palm, x along the fingers.")
    if e.hand_joints and len(e.fingertips) < 2:
        message = f"{len(e.fingertips)} fingertip(s): nothing can be grasped"
        yield _warn("few_fingertips", message, "List the fingertips in robot.toml.")
    for tip in e.fingertips:
        if not tip.geoms:
            message = f"fingertip {tip.name!r} has no geom that touches"
            yield _fail("missing_fingertip_geom", message, "List the geoms of its pad.")


def _links(model: mujoco.MjModel) -> Iterator[Status]:
    for b in range(1, model.nbody):
        if model.body_weldid[b] == 0:
            continue  # it never moves: its mass does not matter
        name, mass, inertia = model.body(b).name, float(model.body_mass[b]), np.sort(model.body_inertia[b])
        moves = model.body_dofnum[b] > 0
        if moves and not MASS_KG[0] <= float(model.body_subtreemass[b]):
            yield _fail("mass_too_small", f"link {name!r} weighs {mass:.2g} kg", "Give its real mass in kilograms.")
        if mass > MASS_KG[1]:
            message = f"link {name!r} weighs {mass:.0f} kg"
            yield _fail("mass_too_large", message, "Give its mass in kilograms; were these grams?")
        if inertia[0] < 0 or inertia[2] > (inertia[0] + inertia[1]) * (1 + 1e-6) + 1e-15:
            a, b, c = (f"{i:.3g}" for i in inertia)
            message = f"no solid body has the inertia of link {name!r}: {c} > {a} + {b}"
            yield _fail("inertia_impossible", message, "Recompute its inertia from the geometry.")


def _joints(e: Embodiment, model: mujoco.MjModel) -> Iterator[Status]:
    for k, name in enumerate(e.joints):
        joint = model.joint(name).id
        if model.jnt_type[joint] not in (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)):
            yield _fail("joint_kind", f"joint {name!r} is neither hinge nor slide", "Drive only hinges and slides.")
            continue
        low, high = e.position_limits[k]
        if not model.jnt_limited[joint] or not np.isfinite([low, high]).all():
            yield _fail("joint_unlimited", f"joint {name!r} has no limits", "Give it a range in the model.")
        elif low >= high:
            yield _fail("joint_range_empty", f"joint {name!r} can move nowhere: {low} to {high}", "Mend its range.")
        elif high - low > 4.1 * np.pi and model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE:
            message = f"joint {name!r} turns {np.degrees(high - low):.0f}°"
            yield _warn("units_suspicious", message, "Give limits in radians; were these degrees?")
        if not (np.isfinite(e.speed_limits[k]) and e.speed_limits[k] > 0):
            message = f"joint {name!r} has a speed limit of {e.speed_limits[k]}"
            yield _fail("speed_limit", message, "Give a speed limit above zero.")
    mine = {model.joint(j).id for j in e.joints}
    passive = [model.joint(j).name for j in range(model.njnt) if j not in mine]
    if passive:
        message = f"nothing drives {', '.join(passive)}"
        yield _warn("passive_joints", message, "Drive them, or make sure that they are coupled.")


def _servos(e: Embodiment, model: mujoco.MjModel) -> Iterator[Status]:
    for joint, name in zip(e.joints, e.actuators, strict=True):
        a = model.actuator(name).id
        direct = model.actuator_trntype[a] == mujoco.mjtTrn.mjTRN_JOINT
        if not direct or model.actuator_trnid[a, 0] != model.joint(joint).id:
            yield _fail("actuator_elsewhere", f"actuator {name!r} does not drive {joint!r}", "Point it at its joint.")
            continue
        if not is_position_servo(model, a):
            message = f"actuator {name!r} of {joint!r} is not a position servo"
            yield _fail("not_position_servo", message, "Use <position kp= kv=>, or import the file again.")
        effort = effort_limit(model, name)
        if effort <= 0:
            yield _fail("no_effort", f"joint {joint!r} has a force limit of zero", "Give it a forcerange.")
        elif not np.isfinite(effort):
            message = f"joint {joint!r} has unlimited force"
            yield _fail("unlimited_effort", message, "Give it a forcerange: the torque at the motor's current limit.")


def _sensors(e: Embodiment, model: mujoco.MjModel) -> Iterator[Status]:
    touch = model.sensor_objid[model.sensor_type == mujoco.mjtSensor.mjSENS_TOUCH]
    for tip in e.fingertips:
        if model.site(tip.site).id not in touch:
            message = f"fingertip {tip.name!r} has no touch sensor on site {tip.site!r}"
            yield _warn("no_touch_sensor", message, "Add a touch sensor to feel contact force.")


def _home(e: Embodiment, model: mujoco.MjModel) -> Iterator[Status]:
    low, high = e.position_limits.T
    outside = ~((e.home >= low - 1e-6) & (e.home <= high + 1e-6))  # NaN counts as outside
    for k in np.flatnonzero(outside):
        message = f"home has {e.joints[k]!r} at {e.home[k]:.3f}, outside {low[k]:.3f} to {high[k]:.3f}"
        yield _fail("home_outside_limits", message, "Choose a home inside the limits.")
    if not outside.any() and (touches := Collisions(model, e.joints).touches(e.home)):
        yield _fail("home_collides", f"at home the robot touches itself: {touches[0]}", "Choose an open home pose.")


def _geometry(e: Embodiment, model: mujoco.MjModel) -> Iterator[Status]:
    if not np.isfinite(e.home).all():
        return
    kinematics = Kinematics(e, model)
    if e.palm and e.fingertips:
        palm, tips = kinematics.palm(e.home)[:3, 3], kinematics.fingertips(e.home)[:, :3, 3]
        reach = float(np.linalg.norm(tips - palm, axis=1).max())
        if not HAND_REACH_M[0] <= reach <= HAND_REACH_M[1]:
            message = f"the fingertips are {reach:.3g} m from the palm"
            yield _fail("units_suspicious", message, "Give lengths in metres; were these millimetres or inches?")
            return
        apart = np.linalg.norm(tips[:, None] - tips[None], axis=-1)[np.triu_indices(len(tips), 1)]
        if len(apart) and apart.min() < 1e-3:
            yield _fail("fingertips_coincide", "two fingertips are at one place", "Move each site to its own pad.")
        elif len(tips) > 1:
            yield from _pinch(e, kinematics)
    elif e.mount and np.linalg.norm(kinematics.poses(e.home, e.mount)[:3, 3]) > ARM_REACH_M:
        yield _fail("units_suspicious", "the arm's end is over 5 m away", "Give lengths in metres.")


def _pinch(e: Embodiment, kinematics: Kinematics) -> Iterator[Status]:
    rng = np.random.default_rng(0)
    q = np.tile(e.home, (SAMPLES, 1))
    hand = [e.joints.index(j) for j in e.hand_joints]
    q[:, hand] = rng.uniform(*np.clip(e.position_limits[hand], -np.pi, np.pi).T, size=(SAMPLES, len(hand)))
    tips = kinematics.fingertips(q)[..., :3, 3]
    gap = float(np.linalg.norm(tips[:, :-1] - tips[:, -1:], axis=-1).min())
    if gap > PINCH_M:
        message = f"the last fingertip never comes closer than {1e3 * gap:.0f} mm to another"
        yield _warn("cannot_pinch", message, "Put the thumb last in `fingertips`, and check the sites and limits.")


def _fail(code: str, message: str, action: str) -> Status:
    return Status(Level.FAIL, code, message, action)


def _warn(code: str, message: str, action: str) -> Status:
    return Status(Level.WARN, code, message, action)
