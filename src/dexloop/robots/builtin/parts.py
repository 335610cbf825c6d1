"""What the built-in models share: geoms that are drawn and collide, servos, touch sensors and finishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mujoco

DRAWN = 2
"""Geom group of what is drawn (MuJoCo Menagerie's habit). The built-in shapes are drawn and collide."""
HIDDEN = 4
"""Group of sites, which the renderer leaves out by default."""

FINISHES = {
    "shell": ([0.23, 0.24, 0.27, 1.0], 0.45, 0.55),
    "metal": ([0.55, 0.57, 0.60, 1.0], 0.60, 0.70),
    "pad": ([0.86, 0.84, 0.78, 1.0], 0.05, 0.10),
    "accent": ([0.10, 0.42, 0.55, 1.0], 0.35, 0.50),
    "white": ([0.90, 0.91, 0.92, 1.0], 0.35, 0.50),
}
"""Colour, specular and shininess by name."""

SHAPES = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "ellipsoid": mujoco.mjtGeom.mjGEOM_ELLIPSOID,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
}

PAD_CONTACT: dict[str, Any] = {
    "friction": [0.9, 0.005, 1e-4],
    "condim": 4,
    "solref": [0.01, 1.0],
    "solimp": [0.85, 0.95, 0.002, 0.5, 2.0],
    # The pad, not the object, decides how the pair slides and yields: rubber on anything is mostly rubber.
    "priority": 1,
}
"""Soft rubber: it yields by about a millimetre under a few newtons and resists twisting."""


def new_spec(name: str) -> mujoco.MjSpec:
    """Returns an empty model with the finishes. It leaves all simulation options to the scene it is put into."""
    spec = mujoco.MjSpec()
    spec.modelname = name
    spec.compiler.degree = False
    for finish, (rgba, specular, shininess) in FINISHES.items():
        spec.add_material(name=finish_name(name, finish), rgba=rgba, specular=specular, shininess=shininess)
    return spec


def finish_name(model: str, finish: str) -> str:
    """Returns the material of a finish in a model."""
    return f"{model}_{finish}"


def solid(body: Any, shape: str, finish: str, mass: float, *, name: str = "", **where: Any) -> Any:
    """Adds a geom that is drawn, collides and has mass [kg]. `where` is `size`, `pos`, `quat` or `fromto`."""
    return body.add_geom(
        name=name, type=SHAPES[shape], material=finish, mass=mass, group=DRAWN, condim=3, friction=[0.6, 0.005, 1e-4],
        **_three(where),
    )  # fmt: skip


def trim(body: Any, shape: str, finish: str, **where: Any) -> Any:
    """Adds a geom that is only drawn."""
    return body.add_geom(
        type=SHAPES[shape], material=finish, mass=0, group=DRAWN, contype=0, conaffinity=0, **_three(where)
    )


def pad(body: Any, shape: str, finish: str, mass: float, *, name: str, **where: Any) -> Any:
    """Adds a soft geom that touches objects."""
    return body.add_geom(
        name=name, type=SHAPES[shape], material=finish, mass=mass, group=DRAWN, **PAD_CONTACT, **_three(where)
    )


def joint(
    body: Any,
    name: str,
    axis: Sequence[float],
    limits: tuple[float, float],
    feel: Mapping[str, float],
    *,
    slide: bool = False,
) -> None:
    """Adds a hinge or slide with limits [rad or m]; `feel` is its armature, damping and frictionloss."""
    kind = mujoco.mjtJoint.mjJNT_SLIDE if slide else mujoco.mjtJoint.mjJNT_HINGE
    body.add_joint(
        name=name, type=kind, axis=axis, range=limits, limited=True, armature=feel["armature"],
        damping=[feel["damping"], 0, 0], frictionloss=feel["frictionloss"],
    )  # fmt: skip


def servo(
    spec: mujoco.MjSpec, joint_name: str, limits: tuple[float, float], *, kp: float, kv: float, effort: float
) -> None:
    """Adds a position servo named after its joint: effort = kp·(target - q) - kv·q̇, clipped to ±effort."""
    actuator = spec.add_actuator(name=joint_name, target=joint_name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    actuator.set_to_position(kp=kp, kv=kv)
    actuator.ctrllimited, actuator.ctrlrange = True, limits
    actuator.forcelimited, actuator.forcerange = True, [-effort, effort]


def touch(spec: mujoco.MjSpec, site: str) -> None:
    """Adds a sensor of the normal force inside a site's zone [N], named after the site."""
    spec.add_sensor(name=site, type=mujoco.mjtSensor.mjSENS_TOUCH, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=site)


def _three(where: dict[str, Any]) -> dict[str, Any]:
    size = list(where["size"])
    return {**where, "size": size + [0.0] * (3 - len(size))}
