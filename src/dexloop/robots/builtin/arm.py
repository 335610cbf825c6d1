"""arm7: a seven-joint arm of the size and strength of Franka and iiwa.

Its joints turn about z, y, z, -y, z, y, z, with shoulder, elbow and wrist each in one point: upright at zero, every
positive angle of joints 2 and 6 and every negative one of joint 4 leans it forward (+x). Its links are
gravity-compensated, as every such arm's controller does; what it carries is not, and makes it sag a little.
"""

from __future__ import annotations

import math

import mujoco

from dexloop.robots.builtin import parts
from dexloop.robots.describe import describe
from dexloop.robots.embodiment import Embodiment

NAME = "arm7"
SHOULDER_M, UPPER_M, FORE_M, FLANGE_M = 0.34, 0.40, 0.40, 0.126
"""Heights above each other at zero: shoulder above the base, elbow, wrist, mounting face."""

AXES = ((0, 0, 1), (0, 1, 0), (0, 0, 1), (0, -1, 0), (0, 0, 1), (0, 1, 0), (0, 0, 1))
OFFSETS_M = (0.15, SHOULDER_M - 0.15, UPPER_M / 2, UPPER_M / 2, FORE_M / 2, FORE_M / 2, 0.06)
"""Of each link from the one before, along z."""
LIMITS = (2.96, 2.09, 2.96, 2.09, 2.96, 2.09, 3.05)
"""To both sides [rad]."""
SPEEDS = (1.5, 1.5, 1.75, 1.75, 2.2, 2.4, 2.4)
"""[rad/s]"""
EFFORTS = (320.0, 320.0, 176.0, 176.0, 110.0, 40.0, 40.0)
"""[N·m]"""
STIFFNESS = (4000.0, 4000.0, 3000.0, 3000.0, 1500.0, 1000.0, 800.0)
"""[N·m/rad]; damping is a tenth of it [N·m·s/rad]."""
ARMATURE = (1.0, 1.0, 0.6, 0.6, 0.3, 0.15, 0.15)
"""Rotors behind their gears [kg·m²]."""
FRICTION = (1.0, 1.0, 0.6, 0.6, 0.4, 0.2, 0.2)
"""Dry [N·m]."""
MASSES = (3.6, 3.8, 3.0, 2.8, 2.0, 1.4, 0.4)
"""[kg]"""
RADII_M = (0.062, 0.060, 0.056, 0.054, 0.049, 0.046, 0.036)
LENGTHS_M = (OFFSETS_M[1], *OFFSETS_M[2:6], 0.035, FLANGE_M - 0.06)
HOME = (0.0, 0.4, 0.0, -1.6, 0.0, math.pi - 2.0, 0.0)
"""In front of the base, the mounting face straight down [rad]."""

WHITE, SHELL, METAL, ACCENT = (parts.finish_name(NAME, f) for f in ("white", "shell", "metal", "accent"))


def make_spec() -> mujoco.MjSpec:
    """Builds the model."""
    spec = parts.new_spec(NAME)
    body = spec.worldbody.add_body(name="arm_base")
    parts.solid(body, "cylinder", SHELL, 3.0, size=[0.095, 0.02], pos=[0, 0, 0.02])
    parts.solid(body, "cylinder", WHITE, 3.0, size=[0.075, 0.05], pos=[0, 0, 0.09])
    for i, (axis, offset) in enumerate(zip(AXES, OFFSETS_M, strict=True)):
        body = body.add_body(name=f"arm_link{i + 1}", pos=[0, 0, offset], gravcomp=1.0)
        name, limits = f"arm_j{i + 1}", (-LIMITS[i], LIMITS[i])
        feel = {"armature": ARMATURE[i], "damping": 1.0, "frictionloss": FRICTION[i]}
        parts.joint(body, name, axis, limits, feel)
        parts.servo(spec, name, limits, kp=STIFFNESS[i], kv=0.1 * STIFFNESS[i], effort=EFFORTS[i])
        r, length = RADII_M[i], LENGTHS_M[i]
        if i < 6:
            parts.solid(body, "capsule", WHITE, MASSES[i], fromto=[0, 0, 0, 0, 0, length], size=[r])
        else:
            parts.solid(body, "cylinder", METAL, MASSES[i], fromto=[0, 0, 0.004, 0, 0, length], size=[r])
        if axis[2] == 0:  # an axle across the arm, with a cap at each end
            parts.trim(body, "cylinder", SHELL, fromto=[0, -r - 0.006, 0, 0, r + 0.006, 0], size=[0.78 * r])
            parts.trim(body, "cylinder", ACCENT, fromto=[0, -r - 0.009, 0, 0, r + 0.009, 0], size=[0.45 * r])
        elif i < 6:
            parts.trim(body, "cylinder", SHELL, fromto=[0, 0, -0.004, 0, 0, 0.004], size=[r + 0.004])
    body.add_site(name="arm_mount", pos=[0, 0, LENGTHS_M[6]], size=[0.004] * 3, group=parts.HIDDEN)
    # MuJoCo lets a child touch its parent when the parent is fixed to the world.
    spec.add_exclude(bodyname1="arm_base", bodyname2="arm_link1")
    return spec


def make() -> Embodiment:
    """Returns the arm."""
    joints = tuple(f"arm_j{i}" for i in range(1, 8))
    return describe(
        NAME,
        make_spec,
        arm_joints=joints,
        hand_joints=(),
        speed_limits=dict(zip(joints, SPEEDS, strict=True)),
        home=dict(zip(joints, HOME, strict=True)),
        mount="arm_mount",
    )
