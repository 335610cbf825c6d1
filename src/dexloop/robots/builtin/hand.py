"""dex16: a right hand with three fingers and a thumb, four joints each, of the size and strength of LEAP and Allegro.

Base frame: origin on the mounting face, z towards the fingers, x out of the palm, y towards the thumb. A finger's
joints are abduction (positive towards the thumb) and three flexions (positive closes); the thumb's are opposition (0
beside the palm, pi/2 across from the index finger) and three flexions. Links are not gravity-compensated: a small servo
hand has no model of its own weight, and its sag of up to two hundredths of a radian is for identification to explain.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from dexloop.core import se3
from dexloop.robots.builtin import parts
from dexloop.robots.describe import describe
from dexloop.robots.embodiment import Embodiment, Fingertip

NAME = "dex16"

FINGERS = {"index": (0.036, 0.104, -0.05), "middle": (0.0, 0.108, 0.0), "ring": (-0.036, 0.103, 0.05)}
"""Knuckle's y and z in the base frame [m], and how far the finger is splayed about x [rad]."""
PROXIMAL_M, MIDDLE_M = 0.050, 0.034
THUMB_ROOT = (0.016, 0.026, 0.031)
"""Where the thumb's opposition axis stands in the base frame [m]; the axis is parallel to z."""
THUMB_METACARPAL_M, THUMB_PROXIMAL_M = 0.046, 0.037

FINGER_LIMITS = {"abd": (-0.35, 0.35), "mcp": (-0.30, 1.75), "pip": (-0.10, 1.85), "dip": (-0.10, 1.60)}
THUMB_LIMITS = {"rot": (-0.20, 2.40), "cmc": (-0.50, 1.30), "mcp": (-0.20, 1.40), "ip": (-0.10, 1.60)}
"""[rad]"""
FINGER_HOME = {"abd": 0.0, "mcp": 0.35, "pip": 0.40, "dip": 0.30}
THUMB_HOME = {"rot": 1.0, "cmc": 0.05, "mcp": 0.30, "ip": 0.30}
"""Open, as before a grasp [rad]."""

SERVO = {"kp": 4.0, "kv": 0.12, "effort": 0.7}
"""Stiffness [N·m/rad], damping [N·m·s/rad] and torque at the current limit [N·m] of a small geared servo."""
FEEL = {"armature": 8e-4, "damping": 0.02, "frictionloss": 0.012}
"""Rotor inertia behind the gear [kg·m²], viscous [N·m·s/rad] and dry friction [N·m]."""
SPEED_RAD_S = 5.0

SHELL, METAL, PAD, ACCENT = (parts.finish_name(NAME, f) for f in ("shell", "metal", "pad", "accent"))
# The pad's outward normal becomes z, the direction along the finger x: the same turn for palm and fingertips.
OUTWARD = [0.0, 0.70710678, 0.0, 0.70710678]
# The thumb at rest: its length (z) along the palm's y, its pad (x) towards the fingers (the palm's z).
SIDEWAYS = [0.5, -0.5, -0.5, -0.5]


def make_spec() -> mujoco.MjSpec:
    """Builds the model."""
    spec = parts.new_spec(NAME)
    palm = spec.worldbody.add_body(name="palm")
    _palm(palm)
    for finger, (y, z, splay) in FINGERS.items():
        knuckle = palm.add_body(
            name=f"{finger}_knuckle", pos=[0.0, y, z], quat=se3.so3_exp(np.array([splay, 0.0, 0.0]))
        )
        parts.joint(knuckle, f"{finger}_abd", (-1, 0, 0), FINGER_LIMITS["abd"], FEEL)
        parts.solid(knuckle, "capsule", METAL, 0.030, fromto=[-0.006, 0, 0, 0.004, 0, 0], size=[0.0125])
        proximal = _link(knuckle, finger, "proximal", "mcp", [0, 0, 0.012], FINGER_LIMITS["mcp"], PROXIMAL_M, 0.034)
        middle = _link(proximal, finger, "middle", "pip", [0, 0, PROXIMAL_M], FINGER_LIMITS["pip"], MIDDLE_M, 0.024)
        _tip(spec, middle, finger, "dip", [0, 0, MIDDLE_M], FINGER_LIMITS["dip"])
        for moving in ("knuckle", "proximal"):
            spec.add_exclude(bodyname1="palm", bodyname2=f"{finger}_{moving}")
    _thumb(spec, palm)
    for name, limits in joint_limits().items():
        parts.servo(spec, name, limits, **SERVO)
    return spec


def joint_limits() -> dict[str, tuple[float, float]]:
    """Returns the joints in command order with their limits [rad]."""
    fingers = {f"{f}_{j}": limits for f in FINGERS for j, limits in FINGER_LIMITS.items()}
    return fingers | {f"thumb_{j}": limits for j, limits in THUMB_LIMITS.items()}


def make() -> Embodiment:
    """Returns the hand."""
    home = {f"{f}_{j}": q for f in FINGERS for j, q in FINGER_HOME.items()}
    home |= {f"thumb_{j}": q for j, q in THUMB_HOME.items()}
    joints = tuple(joint_limits())
    return describe(
        NAME,
        make_spec,
        arm_joints=(),
        hand_joints=joints,
        speed_limits=dict.fromkeys(joints, SPEED_RAD_S),
        home=home,
        fingertips=[Fingertip(f, f"{f}_distal", f"{f}_tip", (f"{f}_pad",)) for f in (*FINGERS, "thumb")],
        palm="palm",
        mount="flange",
    )


def _palm(palm: Any) -> None:
    parts.solid(palm, "cylinder", METAL, 0.060, size=[0.031, 0.006], pos=[0, 0, 0.006])
    parts.solid(palm, "cylinder", SHELL, 0.030, size=[0.024, 0.012], pos=[0, 0, 0.022])
    parts.solid(palm, "box", SHELL, 0.110, size=[0.013, 0.040, 0.031], pos=[-0.004, 0, 0.062])
    for y in (-0.040, 0.040):
        parts.solid(palm, "capsule", SHELL, 0.020, fromto=[-0.004, y, 0.034, -0.004, y, 0.091], size=[0.013])
    parts.solid(palm, "capsule", SHELL, 0.020, fromto=[-0.004, -0.040, 0.0915, -0.004, 0.040, 0.0915], size=[0.013])
    parts.solid(palm, "capsule", SHELL, 0.020, fromto=[-0.004, -0.034, 0.034, -0.004, 0.034, 0.034], size=[0.013])
    parts.pad(palm, "ellipsoid", PAD, 0.012, name="palm_pad", size=[0.006, 0.044, 0.018], pos=[0.008, 0, 0.084])
    parts.pad(palm, "ellipsoid", PAD, 0.012, name="heel_pad", size=[0.007, 0.020, 0.026], pos=[0.008, -0.024, 0.050])
    parts.trim(palm, "box", ACCENT, size=[0.001, 0.022, 0.018], pos=[-0.0172, 0, 0.064])
    palm.add_site(name="palm", pos=[0.014, 0, 0.066], quat=OUTWARD, size=[0.004] * 3, group=parts.HIDDEN)
    palm.add_site(name="flange", size=[0.004] * 3, group=parts.HIDDEN)


def _thumb(spec: mujoco.MjSpec, palm: Any) -> None:
    base = palm.add_body(name="thumb_base", pos=THUMB_ROOT)
    parts.joint(base, "thumb_rot", (0, 0, -1), THUMB_LIMITS["rot"], FEEL)
    parts.solid(base, "capsule", METAL, 0.036, fromto=[0, 0, -0.010, 0, 0, 0.008], size=[0.0135])
    metacarpal = _link(
        base, "thumb", "metacarpal", "cmc", [0, 0.021, 0], THUMB_LIMITS["cmc"], THUMB_METACARPAL_M, 0.034, SIDEWAYS
    )
    proximal = _link(
        metacarpal, "thumb", "proximal", "mcp", [0, 0, THUMB_METACARPAL_M], THUMB_LIMITS["mcp"], THUMB_PROXIMAL_M, 0.026
    )
    _tip(spec, proximal, "thumb", "ip", [0, 0, THUMB_PROXIMAL_M], THUMB_LIMITS["ip"])
    for moving in ("base", "metacarpal"):
        spec.add_exclude(bodyname1="palm", bodyname2=f"thumb_{moving}")


def _link(
    parent: Any,
    finger: str,
    link: str,
    joint: str,
    pos: list[float],
    limits: tuple[float, float],
    length: float,
    mass: float,
    quat: list[float] | None = None,
) -> Any:
    """Adds a phalanx along its own z, with the axle that bends it at its root."""
    body = parent.add_body(name=f"{finger}_{link}", pos=pos, quat=quat or [1.0, 0, 0, 0])
    parts.joint(body, f"{finger}_{joint}", (0, 1, 0), limits, FEEL)
    parts.solid(body, "capsule", SHELL, mass, fromto=[0, 0, 0.007, 0, 0, length - 0.007], size=[0.0102])
    parts.trim(body, "cylinder", METAL, fromto=[0, -0.0112, 0, 0, 0.0112, 0], size=[0.0092])
    parts.trim(body, "capsule", PAD, fromto=[0.0052, 0, 0.013, 0.0052, 0, length - 0.013], size=[0.0066])
    return body


def _tip(
    spec: mujoco.MjSpec, parent: Any, finger: str, joint: str, pos: list[float], limits: tuple[float, float]
) -> None:
    """Adds the last phalanx with its soft, rounded pad, the site in the middle of the pad and the touch sensor."""
    body = parent.add_body(name=f"{finger}_distal", pos=pos)
    parts.joint(body, f"{finger}_{joint}", (0, 1, 0), limits, FEEL)
    parts.solid(body, "capsule", SHELL, 0.011, fromto=[-0.001, 0, 0.004, -0.001, 0, 0.019], size=[0.0092])
    parts.trim(body, "cylinder", METAL, fromto=[0, -0.0104, 0, 0, 0.0104, 0], size=[0.0086])
    parts.pad(
        body, "capsule", PAD, 0.007, name=f"{finger}_pad", fromto=[0.0030, 0, 0.0130, 0.0022, 0, 0.0230], size=[0.0098]
    )
    # On the pad's surface; the sphere around it takes in every point of the pad, so that no contact goes unfelt.
    body.add_site(name=f"{finger}_tip", pos=[0.0124, 0, 0.018], quat=OUTWARD, size=[0.022] * 3, group=parts.HIDDEN)
    parts.touch(spec, f"{finger}_tip")
