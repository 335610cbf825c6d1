"""Reads any MJCF or URDF robot and makes an embodiment of it.

What the file does not say is inferred (see `anatomy`) or taken from defaults (see `servos`), and all of it can be put
right by a `robot.toml` beside the file (see `overrides`). What is not the robot is dropped: floors, lights, cameras,
loose objects and simulation options, which belong to the scene.
"""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError, UnknownName
from dexloop.robots.anatomy import Anatomy, dissect
from dexloop.robots.builtin.parts import HIDDEN
from dexloop.robots.collision import Collisions
from dexloop.robots.describe import describe, qpos_addresses
from dexloop.robots.embodiment import Embodiment, Fingertip
from dexloop.robots.overrides import Overrides, Place
from dexloop.robots.servos import DEFAULTS, Servo, drive, plan_servos, role

_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_DIRECT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))


@dataclass(frozen=True)
class _Site:
    """A site to be added, and whether a touch sensor goes with it."""

    name: str
    body: str
    pose: Float[np.ndarray, "7"]
    """In the body's frame."""
    radius_m: float = 0.004
    touch: bool = False


@dataclass(frozen=True)
class _Plan:
    """Everything that is changed in the model as read."""

    servos: tuple[Servo, ...]
    sites: tuple[_Site, ...]


def import_robot(path: str | Path, *, name: str | None = None, overrides: Overrides | None = None) -> Embodiment:
    """Makes an embodiment of a model file.

    Joints: those with an actuator of their own, or that hang on a driven tendon; all hinges and slides where nothing is
    driven (URDF). Each gets a position servo if it has none; see `servos` for the defaults. A keyframe (one called
    "home", or the first) is the home pose; without one it is the open pose, or the nearest of some tries that does not
    touch itself. A base that floats is fixed where it stands.

    Args:
        path: An `.xml`, `.mjcf` or `.urdf` file.
        name: Of the embodiment; the file's own by default.
        overrides: Instead of the `robot.toml` beside the file.

    Raises:
        InputError: MuJoCo cannot read it, or it has no joint to drive.
        UnknownName: The overrides speak of something that is not there.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no robot file {path}: give the path of an .xml, .mjcf or .urdf file")
    known = overrides if overrides is not None else Overrides.beside(path)
    model, keys = _compile(_read(path), path)
    joints = _driven(model)
    if not joints:
        raise InputError(f"{path} has no hinge or slide joint: it is not a robot that can be driven")
    anatomy = dissect(model, joints)
    arm, hand = _split(anatomy, known, joints)
    sites, tips, palm, mount = _sites(model, anatomy, known, arm)
    urdf = _urdf_limits(path)
    servos = plan_servos(model, arm, hand, _by_joint(known.effort_limits, joints, "effort_limits"))
    plan = _Plan(servos, sites)
    make_spec = functools.partial(_make_spec, path, plan)
    speeds = {j: urdf.get(j) or DEFAULTS[role(model, j, j in arm)].speed for j in (*arm, *hand)}
    speeds |= _by_joint(known.speed_limits, joints, "speed_limits")
    home = _home(make_spec, (*arm, *hand), keys, anatomy.open_q)
    _check_names("home", known.home, joints)
    return describe(
        name or path.stem,
        make_spec,
        arm_joints=arm,
        hand_joints=hand,
        speed_limits=speeds,
        home=home | dict(known.home),
        fingertips=tips,
        palm=palm,
        mount=mount,
        source=str(path),
    )


def _read(path: Path) -> mujoco.MjSpec:
    """Reads a file and leaves only the robot, with a name on every body, joint, actuator and colliding geom."""
    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    # Links welded together stay separate bodies, so that what a person calls them can be found.
    spec.compiler.fusestatic = False
    fresh = mujoco.MjSpec()
    for key in (k for k in dir(fresh.option) if not k.startswith("_")):
        setattr(spec.option, key, getattr(fresh.option, key))
    for key in (k for k in dir(spec.authored) if not k.startswith("_")):
        setattr(spec.authored, key, 0)
    for element in [*spec.lights, *spec.cameras]:
        spec.delete(element)
    for geom in list(spec.worldbody.geoms):
        if geom.type in (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD):
            spec.delete(geom)
    for body in list(spec.worldbody.bodies):
        joints = _joints_below(body)
        free = [j for j in joints if j.type == mujoco.mjtJoint.mjJNT_FREE]
        if body.mocap or (free and len(joints) == len(free)):
            spec.delete(body)
        else:
            for joint in free:
                spec.delete(joint)
    for kind, elements in (("body", spec.bodies[1:]), ("joint", spec.joints), ("actuator", spec.actuators)):
        for k, element in enumerate(elements):
            element.name = element.name or f"{kind}{k}"
    for body in spec.bodies:
        for k, geom in enumerate(g for g in body.geoms if g.contype or g.conaffinity):
            geom.name = geom.name or f"{body.name}_geom{k}"
    return spec


def _compile(spec: mujoco.MjSpec, path: Path) -> tuple[mujoco.MjModel, dict[str, dict[str, float]]]:
    """Compiles, and returns the keyframes as joint values by name."""
    try:
        model = spec.compile()
    except ValueError as error:
        raise InputError(f"{path} does not compile: {error}") from error
    scalar = [model.joint(j).name for j in range(model.njnt) if model.jnt_type[j] in _SCALAR]
    address = qpos_addresses(model, scalar)
    keys = {model.key(k).name or f"key{k}": dict(zip(scalar, model.key_qpos[k][address], strict=True))
            for k in range(model.nkey)}  # fmt: skip
    return model, keys


def _joints_below(body: Any) -> list[Any]:
    return [*body.joints, *(j for child in body.bodies for j in _joints_below(child))]


def _driven(model: mujoco.MjModel) -> tuple[str, ...]:
    """Returns the driven joints in the order of the tree."""
    driven: set[int] = set()
    for a in range(model.nu):
        target = int(model.actuator_trnid[a, 0])
        if model.actuator_trntype[a] in _DIRECT:
            driven.add(target)
        elif model.actuator_trntype[a] == mujoco.mjtTrn.mjTRN_TENDON:
            first, count = int(model.tendon_adr[target]), int(model.tendon_num[target])
            wraps = range(first, first + count)
            driven |= {int(model.wrap_objid[w]) for w in wraps if model.wrap_type[w] == mujoco.mjtWrap.mjWRAP_JOINT}
    scalar = [j for j in range(model.njnt) if model.jnt_type[j] in _SCALAR]
    return tuple(model.joint(j).name for j in scalar if j in driven or not driven)


def _split(anatomy: Anatomy, known: Overrides, joints: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    _check_names("arm_joints", known.arm_joints or (), joints)
    _check_names("hand_joints", known.hand_joints or (), joints)
    arm = known.arm_joints if known.arm_joints is not None else anatomy.arm_joints
    if known.hand_joints is not None:
        return arm, known.hand_joints
    ordered = dict.fromkeys((*anatomy.arm_joints, *anatomy.hand_joints, *joints))
    return arm, tuple(j for j in ordered if j not in arm)


def _sites(
    model: mujoco.MjModel, anatomy: Anatomy, known: Overrides, arm: tuple[str, ...]
) -> tuple[tuple[_Site, ...], tuple[Fingertip, ...], str, str]:
    """Decides which sites to add; returns them with the fingertips, the palm's site and the mount's."""
    names = [model.site(s).name for s in range(model.nsite)]
    bodies = [model.body(b).name for b in range(model.nbody)]
    data = mujoco.MjData(model)
    data.qpos[qpos_addresses(model, tuple(anatomy.open_q))] = list(anatomy.open_q.values())
    mujoco.mj_kinematics(model, data)
    sites: list[_Site] = []

    def add(wanted: str, body: str, T_world_site: np.ndarray, **more: Any) -> str:
        if body not in bodies:
            raise UnknownName("body", body, bodies, "robot.toml speaks of it.")
        site = wanted
        while site in names:
            site += "_"
        names.append(site)
        at = model.body(body).id
        T_world_body = se3.from_rt(data.xmat[at].reshape(3, 3), data.xpos[at])
        sites.append(_Site(site, body, se3.to_pose(se3.inverse(T_world_body) @ T_world_site), **more))
        return site

    def given(wanted: str, place: str | Place) -> str:
        if isinstance(place, str):
            if place not in names:
                raise UnknownName("site", place, names, "robot.toml speaks of it.")
            return place
        if place.body not in bodies:
            raise UnknownName("body", place.body, bodies, "robot.toml speaks of it.")
        T_world_body = se3.from_pose(np.concatenate([data.body(place.body).xpos, data.body(place.body).xquat]))
        return add(wanted, place.body, T_world_body @ se3.from_pose(_pose(place.pos, place.quat)))

    tips = []
    found = {tip.body: tip for tip in anatomy.tips}
    if known.fingertips is None:
        for tip in anatomy.tips:
            site = add(f"{tip.name}_tip", tip.body, tip.T_world_site, radius_m=tip.radius_m, touch=True)
            tips.append(Fingertip(tip.name, tip.body, site, tip.geoms))
    for tip in known.fingertips or ():
        if tip.body not in bodies:
            raise UnknownName("body", tip.body, bodies, f"Fingertip {tip.name!r} in robot.toml speaks of it.")
        inferred = found.get(tip.body)
        T = se3.from_rt(data.body(tip.body).xmat.reshape(3, 3), data.body(tip.body).xpos)
        if tip.pos is not None or tip.quat is not None or inferred is None:
            T = T @ se3.from_pose(_pose(tip.pos or (0, 0, 0), tip.quat or (1, 0, 0, 0)))
        else:
            T = inferred.T_world_site
        radius = inferred.radius_m if inferred else 0.02
        site = add(f"{tip.name}_tip", tip.body, T, radius_m=radius, touch=True)
        tips.append(Fingertip(tip.name, tip.body, site, tip.geoms or _colliding(model, tip.body)))
    palm = mount = ""
    if known.palm is not None:
        palm = given("palm", known.palm)
    elif anatomy.T_world_palm is not None:
        # A site called just "palm" is taken at its word; others rarely follow our axes.
        palm = "palm" if "palm" in names else add("palm", anatomy.end_body, anatomy.T_world_palm)
    if known.mount is not None:
        mount = given("mount", known.mount)
    elif not tips:
        mount = (
            "attachment_site" if "attachment_site" in names else add("mount", anatomy.end_body, anatomy.T_world_mount)
        )
    elif not arm:
        mount = add("flange", anatomy.end_body, anatomy.T_world_mount)
    return tuple(sites), tuple(tips), palm, mount


def _make_spec(path: Path, plan: _Plan) -> mujoco.MjSpec:
    spec = _read(path)
    for key in list(spec.keys):  # the home pose is in the embodiment; a keyframe would not fit a larger scene
        spec.delete(key)
    drive(spec, plan.servos)
    for site in plan.sites:
        body = spec.worldbody if site.body == "world" else spec.body(site.body)
        body.add_site(name=site.name, pos=site.pose[:3], quat=site.pose[3:], size=[site.radius_m] * 3, group=HIDDEN)
        if site.touch:
            name = site.name
            while spec.sensor(name) is not None:
                name += "_"
            spec.add_sensor(
                name=name, type=mujoco.mjtSensor.mjSENS_TOUCH, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=site.name
            )
    return spec


def _home(
    make_spec: Any, joints: tuple[str, ...], keys: dict[str, dict[str, float]], open_q: Mapping[str, float]
) -> dict[str, float]:
    model = make_spec().compile()
    ids = [model.joint(j).id for j in joints]
    limited = model.jnt_limited[ids].astype(bool)
    low, high = np.where(limited, model.jnt_range[ids].T, [[-np.pi], [np.pi]])
    if keys:
        key = keys.get("home") or next(iter(keys.values()))
        return dict(zip(joints, np.clip([key[j] for j in joints], low, high), strict=True))
    collisions = Collisions(model, joints)
    start = np.clip([open_q[j] for j in joints], low, high)
    middle = 0.5 * (low + high)
    rng = np.random.default_rng(0)
    tries = [start, middle, 0.5 * (start + middle)]
    tries += [np.clip(start + s * (high - low) * rng.uniform(-0.5, 0.5, len(joints)), low, high)
              for s in np.linspace(0.05, 1.0, 60)]  # fmt: skip
    best = next((q for q in tries if collisions.free(q)), start)
    return dict(zip(joints, (float(q) for q in best), strict=True))


def _urdf_limits(path: Path) -> dict[str, float]:
    """Returns the speed limits that a URDF states [rad/s or m/s]; MuJoCo does not read them."""
    if path.suffix.lower() != ".urdf":
        return {}
    root = ElementTree.parse(path).getroot()
    limits = {joint.get("name", ""): joint.find("limit") for joint in root.iter("joint")}
    return {name: float(limit.get("velocity", 0)) for name, limit in limits.items() if limit is not None}


def _by_joint(given: float | Mapping[str, float] | None, joints: tuple[str, ...], what: str) -> dict[str, float]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        _check_names(what, given, joints)
        return dict(given)
    return dict.fromkeys(joints, given)


def _check_names(what: str, names: Any, joints: tuple[str, ...]) -> None:
    for name in names:
        if name not in joints:
            raise UnknownName(f"joint in {what} of robot.toml", name, joints)


def _colliding(model: mujoco.MjModel, body: str) -> tuple[str, ...]:
    geoms = np.flatnonzero(model.geom_bodyid == model.body(body).id)
    return tuple(model.geom(g).name for g in geoms if model.geom_contype[g] or model.geom_conaffinity[g])


def _pose(pos: Any, quat: Any) -> Float[np.ndarray, "7"]:
    q = np.asarray(quat, dtype=np.float64)
    return np.concatenate([np.asarray(pos, dtype=np.float64), q / np.linalg.norm(q)])
