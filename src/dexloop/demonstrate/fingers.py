"""Which human finger drives which robot finger, and what of a robot finger corresponds to a human one.

A human fingertip's landmark lies inside the finger, on the line of its last bone; a robot's fingertip site lies on its
pad. So each robot finger gets three points: the end of its last bone, its pad, and one further back on that bone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from dexloop.core.errors import InputError
from dexloop.demonstrate.chains import Chains
from dexloop.demonstrate.descent import Frames, Points, walk
from dexloop.demonstrate.skeleton import FINGERS
from dexloop.robots.embodiment import Embodiment

BONE_M = 0.03
"""From a finger's end back to the third point: gives its last bone's direction the weight of this lever."""
_FLEXION = 0.7
"""A joint bends a finger if its axis is this much along the finger's side: cosine."""
_DEEPEST_M = 0.03
"""A bone lies at most this far below the pad."""
_ASIDE_M = 0.005
"""A thumb that stands less to one side makes neither a right nor a left hand."""


@dataclass(frozen=True, eq=False)
class Fingers:
    """A robot's fingers; arrays are in the order of its fingertips, seen from its palm's site."""

    names: tuple[str, ...]
    human: dict[str, str]
    """Robot finger to human finger. The thumb's is last."""
    gripper: bool
    """Two jaws that face each other along the palm's x."""
    right: bool | None
    """Whether it is a right hand; None where both are the same to it."""
    R_palm_hand: Float[np.ndarray, "3 3"]
    """Axes that the human palm's correspond to: x along the open fingers, z out of the palm."""
    points: Points
    """Of all fingers in turn: the end of the last bone, the pad, a point further back on the bone."""
    knuckles: Float[np.ndarray, "f 3"]
    """Where a finger first bends [m]."""
    lengths: Float[np.ndarray, " f"]
    """From there to its end, when open [m]."""

    @property
    def ends(self) -> Int[np.ndarray, " f"]:
        """Numbers of the points at the end of a bone."""
        return 3 * np.arange(len(self.names))

    @property
    def pads(self) -> Int[np.ndarray, " f"]:
        """Numbers of the points on pads."""
        return self.ends + 1

    @property
    def backs(self) -> Int[np.ndarray, " f"]:
        """Numbers of the points behind the ends."""
        return self.ends + 2


def fingers_of(embodiment: Embodiment, chains: Chains, jaws: tuple[str, str]) -> Fingers:
    """Looks at a robot at its open pose, every joint at zero or as near as its limits let it.

    Args:
        embodiment: With two fingertips or more, the thumb's last.
        chains: Of it.
        jaws: Human fingers for the two of a gripper; the second for its last fingertip.

    Raises:
        InputError: There are more fingers than a human has, or one hangs on no joint.
    """
    names = tuple(tip.name for tip in embodiment.fingertips)
    if len(names) > len(FINGERS):
        raise InputError(f"{embodiment.name} has {len(names)} fingers, more than a human hand can drive: at most 5")
    links = chains.links
    at = walk(links, np.clip(0.0, chains.lower, chains.upper))
    offsets, knuckles, ends = [], [], []
    for f, name in enumerate(names):
        first, last = int(links.start[f]), int(links.start[f + 1]) - 1
        if last < first:
            raise InputError(f"no joint moves finger {name!r} of {embodiment.name} against its palm")
        along, depth = _bone(at, f, last, bool(links.slide[last]))
        end = -depth * np.array([0.0, 0.0, 1.0])
        offsets += [end, np.zeros(3), end - BONE_M * along]
        ends.append(at.p_tip[f] + at.R_tip[f] @ end)
        knuckles.append(_knuckle(at, f, first, last, links.slide, ends[-1], along))
    points = Points(np.repeat(np.arange(len(names)), 3), np.array(offsets))
    end, root = np.array(ends), np.array(knuckles)
    normals = at.R_tip[:, :, 2]
    gripper = len(names) == 2 and normals[0, 0] > 0.7 and normals[1, 0] < -0.7
    if gripper:
        human = dict(zip(names, jaws, strict=True))
        return Fingers(names, human, True, None, np.eye(3), points, root, np.linalg.norm(end - root, axis=1))
    R = _axes((end - root)[:-1])
    human, right = _assign(names, root @ R, end @ R)
    return Fingers(names, human, False, right, R, points, root, np.linalg.norm(end - root, axis=1))


def _bone(at: Frames, f: int, last: int, slide: bool) -> tuple[Float[np.ndarray, "3"], float]:
    """Returns the direction of the last bone in the site's frame, and how far it lies below the pad [m]."""
    if slide:
        return np.array([1.0, 0.0, 0.0]), 0.0
    R = at.R_tip[f]
    arm, axis = R.T @ (at.p_tip[f] - at.anchor[last]), R.T @ at.axis[last]
    arm = arm - axis * (axis @ arm)  # an anchor can be anywhere on its axis
    depth = float(np.clip(arm[2], 0.0, _DEEPEST_M))
    along = np.array([arm[0], arm[1], 0.0])
    size = np.linalg.norm(along)
    return (along / size if size > 1e-6 else np.array([1.0, 0.0, 0.0])), depth


def _knuckle(
    at: Frames, f: int, first: int, last: int, slide: np.ndarray, end: np.ndarray, along: np.ndarray
) -> Float[np.ndarray, "3"]:
    """Returns where the finger's first joint that bends it is, in the plane in which the finger bends."""
    side = np.cross(at.R_tip[f][:, 2], at.R_tip[f] @ along)
    bends = [e for e in range(first, last + 1) if not slide[e] and abs(at.axis[e] @ side) > _FLEXION]
    e = bends[0] if bends else first
    return at.anchor[e] + at.axis[e] * (at.axis[e] @ (end - at.anchor[e])) * bool(bends)


def _axes(open_fingers: Float[np.ndarray, "f 3"]) -> Float[np.ndarray, "3 3"]:
    """Returns the palm's axes, turned so that x is where the open fingers point, without lifting it out of the palm."""
    x = np.sum(open_fingers / np.linalg.norm(open_fingers, axis=1, keepdims=True), axis=0)
    x[2] = 0.0
    size = np.linalg.norm(x)
    x, z = (x / size if size > 0.1 else np.array([1.0, 0.0, 0.0])), np.array([0.0, 0.0, 1.0])
    return np.stack([x, np.cross(z, x), z], axis=-1)


def _assign(
    names: tuple[str, ...], roots: Float[np.ndarray, "f 3"], ends: Float[np.ndarray, "f 3"]
) -> tuple[dict[str, str], bool | None]:
    """Returns which human finger drives which of the robot's, and whether the robot's is a right hand.

    The last finger is the thumb. The others go by their names; those without a telling one take what is left, from the
    thumb's side across the palm. A right hand has its thumb, and its index before its little finger, towards -y.
    """
    across = roots[:, 1]
    named = {k: name for k, name in enumerate(names[:-1]) if name in FINGERS[1:]}
    aside = across[:-1].mean() - 0.5 * (across[-1] + ends[-1, 1])
    right: bool | None = None
    if abs(aside) > _ASIDE_M:
        right = bool(aside > 0)
    if len(named) > 1:
        order = sorted(named, key=lambda k: FINGERS.index(named[k]))
        right = bool(across[order[-1]] > across[order[0]])
    sign = -1.0 if right is False else 1.0
    left = [finger for finger in FINGERS[1:] if finger not in named.values()]
    unnamed = sorted((k for k in range(len(names) - 1) if k not in named), key=lambda k: sign * across[k])
    driven = named | dict(zip(unnamed, left, strict=False))
    return {names[k]: driven[k] for k in range(len(names) - 1)} | {names[-1]: "thumb"}, right
