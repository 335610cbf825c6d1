"""What dexloop needs to know of a robot, whatever file it came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    import mujoco


@dataclass(frozen=True)
class Fingertip:
    """The end of a finger: where it touches."""

    name: str
    """Of the finger, such as "index", "thumb", "left"."""
    body: str
    """Body that carries the pad."""
    site: str
    """Site at the middle of the pad; its z axis points out of the pad. It also bounds the touch sensor's zone."""
    geoms: tuple[str, ...]
    """Geoms of the pad that may touch an object."""


@dataclass(frozen=True, eq=False)
class Embodiment:
    """A robot: its model and the meaning of its parts. Arrays are in the order of `joints`."""

    name: str
    make_spec: Callable[[], mujoco.MjSpec]
    """Gives a fresh model each time, without floor, lights or objects; its base is fixed at the origin."""
    joints: tuple[str, ...]
    """Actuated joints in command order: arm first, hand after."""
    actuators: tuple[str, ...]
    """One position servo a joint, in the same order. Its force range is the motor's torque limit."""
    arm_joints: tuple[str, ...]
    """The part of `joints` that carries the hand (an arm, or the six joints of a free wrist); may be empty."""
    hand_joints: tuple[str, ...]
    units: tuple[str, ...]
    """"rad" or "m", one a joint."""
    position_limits: Float[np.ndarray, "n 2"]
    """[rad or m]"""
    speed_limits: Float[np.ndarray, " n"]
    """[rad/s or m/s]"""
    effort_limits: Float[np.ndarray, " n"]
    """[N·m or N]"""
    home: Float[np.ndarray, " n"]
    """A collision-free pose [rad or m]."""
    fingertips: tuple[Fingertip, ...]
    """Thumb (or the first jaw) last; at least two for anything that grasps."""
    palm: str
    """Site on the palm: z out of the palm towards the object, x along the fingers (of a gripper: along the line of its
    jaws). Empty for a bare arm."""
    mount: str
    """Site of the mounting face: where a bare arm takes a hand (z outwards), or where a bare hand is bolted on (z
    towards the fingers, x out of the palm). Empty once mounted."""
    source: str
    """"builtin", or the file it was read from."""
