"""gripper: two parallel jaws that open to 80 mm and press with up to 40 N.

Base frame: origin on the mounting face, z the way it approaches, x from the right jaw to the left one. A jaw's joint is
its distance from the middle [m]. The jaws are geared together as in most parallel grippers (an equality constraint), so
that a squeezed object stays in the middle: send both the same target. The palm site's z is the approach and its x the
jaws' line, because with two fingers "along the fingers" and "out of the palm" are the same direction.
"""

from __future__ import annotations

import mujoco

from dexloop.robots.builtin import parts
from dexloop.robots.describe import describe
from dexloop.robots.embodiment import Embodiment, Fingertip

NAME = "gripper"
LIMITS_M = (0.0, 0.04)
SERVO = {"kp": 4000.0, "kv": 70.0, "effort": 40.0}
"""Stiffness [N/m], damping [N·s/m] and force at the current limit [N]."""
FEEL = {"armature": 0.2, "damping": 4.0, "frictionloss": 1.0}
"""Motor inertia behind the spindle [kg], viscous [N·s/m] and dry friction [N]."""
SPEED_M_S = 0.15

SHELL, METAL, PAD, ACCENT = (parts.finish_name(NAME, f) for f in ("shell", "metal", "pad", "accent"))
# z out of the pad (towards the other jaw), x along the finger.
FACING = {"left": [0.70710678, 0.0, -0.70710678, 0.0], "right": [0.0, 0.70710678, 0.0, 0.70710678]}


def make_spec() -> mujoco.MjSpec:
    """Builds the model."""
    spec = parts.new_spec(NAME)
    base = spec.worldbody.add_body(name="gripper_base")
    parts.solid(base, "cylinder", METAL, 0.08, size=[0.032, 0.006], pos=[0, 0, 0.006])
    parts.solid(base, "box", SHELL, 0.40, size=[0.052, 0.026, 0.026], pos=[0, 0, 0.038])
    for x in (-0.052, 0.052):
        parts.solid(base, "cylinder", SHELL, 0.03, fromto=[x, 0, 0.012, x, 0, 0.064], size=[0.026])
    parts.trim(base, "box", METAL, size=[0.066, 0.008, 0.003], pos=[0, 0, 0.066])
    parts.trim(base, "box", ACCENT, size=[0.024, 0.0265, 0.008], pos=[0, 0, 0.038])
    base.add_site(name="palm", pos=[0, 0, 0.069], size=[0.004] * 3, group=parts.HIDDEN)
    base.add_site(name="flange", size=[0.004] * 3, group=parts.HIDDEN)
    for jaw, side in (("left", 1.0), ("right", -1.0)):
        body = base.add_body(name=f"{jaw}_jaw", pos=[0, 0, 0.069])
        parts.joint(body, f"{jaw}_jaw", (side, 0, 0), LIMITS_M, FEEL, slide=True)
        parts.solid(body, "box", METAL, 0.030, size=[0.011, 0.013, 0.009], pos=[side * 0.016, 0, 0.009])
        parts.solid(
            body, "box", SHELL, 0.022, name=f"{jaw}_shell", size=[0.005, 0.011, 0.026], pos=[side * 0.011, 0, 0.042]
        )
        parts.pad(body, "box", PAD, 0.008, name=f"{jaw}_pad", size=[0.003, 0.010, 0.014], pos=[side * 0.003, 0, 0.054])
        body.add_site(
            name=f"{jaw}_tip", pos=[0, 0, 0.054], quat=FACING[jaw], type=mujoco.mjtGeom.mjGEOM_BOX,
            size=[0.030, 0.014, 0.018], group=parts.HIDDEN,
        )  # fmt: skip
        parts.touch(spec, f"{jaw}_tip")
        parts.servo(spec, f"{jaw}_jaw", LIMITS_M, **SERVO)
        spec.add_exclude(bodyname1="gripper_base", bodyname2=f"{jaw}_jaw")
    gears = spec.add_equality(
        name="gears", type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT, name1="left_jaw",
        name2="right_jaw", solref=[0.005, 1.0],
    )  # fmt: skip
    gears.data[:5] = [0.0, 1.0, 0.0, 0.0, 0.0]
    return spec


def make() -> Embodiment:
    """Returns the gripper."""
    joints = ("left_jaw", "right_jaw")
    return describe(
        NAME,
        make_spec,
        arm_joints=(),
        hand_joints=joints,
        speed_limits=dict.fromkeys(joints, SPEED_M_S),
        home=dict.fromkeys(joints, LIMITS_M[1]),
        fingertips=[
            Fingertip(jaw, f"{jaw}_jaw", f"{jaw}_tip", (f"{jaw}_pad", f"{jaw}_shell")) for jaw in ("right", "left")
        ],
        palm="palm",
        mount="flange",
    )
