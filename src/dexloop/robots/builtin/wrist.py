"""wrist: six servos that carry a hand freely through space, as an ideal arm would.

Three slides x, y, z and three hinges rx, ry, rz (each about the axes already turned by the ones before). A mounted
hand's palm site is the point they move: x, y, z are the palm's place in the world, and at zero angles the palm looks
straight down with the fingers (or the jaws' line) along the world's x. Its own links weigh little and are
gravity-compensated; the hand's weight it has to hold, which costs it a millimetre or less.
"""

from __future__ import annotations

import math

import mujoco

from dexloop.robots.builtin import parts
from dexloop.robots.describe import describe
from dexloop.robots.embodiment import Embodiment

NAME = "wrist"
MOUNT = "wrist_mount"

SLIDES = {"x": (-1.0, 1.0), "y": (-1.0, 1.0), "z": (-0.1, 1.3)}
"""[m]"""
HINGES = {"rx": (-math.pi, math.pi), "ry": (-1.65, 1.65), "rz": (-math.pi, math.pi)}
"""[rad]. The middle one stops a little beyond the upright hand, where the outer two would line up."""
SLIDE_SERVO = {"kp": 1.0e4, "kv": 300.0, "effort": 150.0}
"""[N/m], [N·s/m], [N]"""
HINGE_SERVO = {"kp": 150.0, "kv": 4.5, "effort": 12.0}
"""[N·m/rad], [N·m·s/rad], [N·m]"""
SLIDE_FEEL = {"armature": 0.8, "damping": 5.0, "frictionloss": 0.5}
"""[kg], [N·s/m], [N]"""
HINGE_FEEL = {"armature": 0.02, "damping": 0.05, "frictionloss": 0.02}
"""[kg·m²], [N·m·s/rad], [N·m]"""
SLIDE_SPEED_M_S, HINGE_SPEED_RAD_S = 0.8, 3.0
HOME = {"x": 0.0, "y": 0.0, "z": 0.35, "rx": 0.0, "ry": 0.0, "rz": 0.0}


def make_spec() -> mujoco.MjSpec:
    """Builds the model: a chain of six small bodies that nothing can touch."""
    spec = parts.new_spec(NAME)
    body = spec.worldbody
    for axis, limits in (SLIDES | HINGES).items():
        slide = axis in SLIDES
        direction = [float(axis[-1] == a) for a in "xyz"]
        body = body.add_body(name=f"wrist_{axis}", gravcomp=1.0)
        # Without a place for the centre of mass MuJoCo would leave the inertia out of a saved file.
        body.explicitinertial, body.mass, body.ipos, body.inertia = True, 0.05, [0, 0, 0], [2e-5] * 3
        feel = SLIDE_FEEL if slide else HINGE_FEEL
        parts.joint(body, f"wrist_{axis}", direction, limits, feel, slide=slide)
        parts.servo(spec, f"wrist_{axis}", limits, **(SLIDE_SERVO if slide else HINGE_SERVO))
    # Half a turn about x: z down, x forward.
    body.add_site(name=MOUNT, quat=[0, 1, 0, 0], size=[0.004] * 3, group=parts.HIDDEN)
    return spec


def make() -> Embodiment:
    """Returns the bare wrist."""
    joints = tuple(f"wrist_{axis}" for axis in SLIDES | HINGES)
    speeds = [SLIDE_SPEED_M_S] * len(SLIDES) + [HINGE_SPEED_RAD_S] * len(HINGES)
    return describe(
        NAME,
        make_spec,
        arm_joints=joints,
        hand_joints=(),
        speed_limits=dict(zip(joints, speeds, strict=True)),
        home=dict(zip(joints, HOME.values(), strict=True)),
        mount=MOUNT,
    )
