"""A person's right hand with its forearm, as a MuJoCo model.

The palm's frame: origin in the wrist, x towards the fingers, y towards the thumb's side, z out of the back of the hand.
All measures are those of an average adult: 190 mm from wrist to middle fingertip, 86 mm across the knuckles.
"""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.lab.objects.patches import convex

FINGERS = ("thumb", "index", "middle", "ring", "little")

_KNUCKLE = {
    "index": (0.0920, 0.0265, 0.0),
    "middle": (0.0950, 0.0050, 0.0025),
    "ring": (0.0890, -0.0160, 0.0010),
    "little": (0.0800, -0.0345, -0.0030),
}
"""Where each finger starts [m]."""
_LENGTHS = {
    "thumb": (0.0450, 0.0340, 0.0270),
    "index": (0.0440, 0.0260, 0.0210),
    "middle": (0.0490, 0.0295, 0.0220),
    "ring": (0.0455, 0.0280, 0.0220),
    "little": (0.0350, 0.0205, 0.0195),
}
"""Of the three bones [m]; the thumb's first is its metacarpal."""
_RADII = {
    "thumb": (0.0145, 0.0120, 0.0110, 0.0085),
    "index": (0.0110, 0.0095, 0.0085, 0.0068),
    "middle": (0.0112, 0.0097, 0.0087, 0.0070),
    "ring": (0.0105, 0.0092, 0.0082, 0.0066),
    "little": (0.0092, 0.0080, 0.0072, 0.0058),
}
"""At the three joints and the tip [m]."""
_SPLAY = {"index": 0.06, "middle": 0.0, "ring": -0.06, "little": -0.14}
"""How far the fingers point apart at rest [rad]."""

_THUMB_ROOT = (0.0230, 0.0230, -0.0080)
_SKIN = (0.86, 0.64, 0.52)
_TONES = {"palm": 1.0, "thumb": 1.01, "index": 1.0, "middle": 0.985, "ring": 0.995, "little": 1.01, "forearm": 0.97}
_NAIL, _CREASE = (0.94, 0.78, 0.72, 1.0), (0.74, 0.50, 0.41, 1.0)

LANDMARKS = (
    "wrist", "thumb_1", "thumb_2", "thumb_3", "thumb_tip", "index_1", "index_2", "index_3", "index_tip", "middle_1",
    "middle_2", "middle_3", "middle_tip", "ring_1", "ring_2", "ring_3", "ring_tip", "little_1", "little_2", "little_3",
    "little_tip",
)  # fmt: skip
"""Sites of the 21 landmarks in MediaPipe's order: wrist, then each finger from its root to its tip."""


def hand_spec() -> mujoco.MjSpec:
    """Builds the hand: a free palm (joint `palm`), 2 wrist joints that swing the forearm, and 22 finger joints.

    Geoms that can touch things are named `<finger>_<bone>` and `palm`, in group 2; nothing collides in the dynamics,
    since a person's motion is given, not simulated.
    """
    spec = mujoco.MjSpec()
    spec.modelname = "human"
    spec.compiler.degree = False
    for name, shine in (("skin", 0.15), ("nail", 0.5)):
        spec.add_material(name=name, specular=shine, shininess=0.3)
    palm = spec.worldbody.add_body(name="palm")
    palm.add_freejoint(name="palm")
    palm.add_site(name="wrist", group=5)
    _palm(spec, palm)
    _forearm(spec, palm)
    _thumb(spec, palm)
    for finger in FINGERS[1:]:
        root = palm.add_body(name=f"{finger}_1", pos=_KNUCKLE[finger], quat=_turn([0, 0, 1], _SPLAY[finger]))
        root.add_joint(name=f"{finger}_spread", axis=[0, 0, 1], range=[-0.35, 0.35])
        root.add_joint(name=f"{finger}_1", axis=[0, 1, 0], range=[-0.4, 1.6])
        _bones(spec, root, finger)
    for joint in spec.joints:
        # Four hinges in the thumb's one root would leave the inertia matrix singular.
        joint.armature = 1e-4 if joint.type == mujoco.mjtJoint.mjJNT_HINGE else 0.0
    return spec


def _palm(spec: mujoco.MjSpec, palm: mujoco.MjsBody) -> None:
    wrist = [((0.004, 0.017, -0.001), 0.0165), ((0.004, -0.015, -0.002), 0.0160)]
    knuckles = [(np.array(_KNUCKLE[f]) - [0.006, 0, 0.0035], _RADII[f][0] + 0.0015) for f in FINGERS[1:]]
    heel = [((0.030, -0.026, -0.010), 0.0155), ((0.060, -0.034, -0.008), 0.0130)]
    _solid(spec, palm, "palm", [*wrist, *knuckles, *heel], "palm")
    # The ball of the thumb lies on the palm's near half and moves little with the thumb.
    _solid(spec, palm, "palm_ball", [((0.022, 0.016, -0.012), 0.0160), ((0.052, 0.024, -0.011), 0.0125)], "palm")
    for finger in FINGERS[1:]:  # tendons show as slight ridges on the back of the hand
        end, r = np.array(_KNUCKLE[finger]), _RADII[finger][0]
        start = np.array([0.030, 0.42 * end[1], 0.0125])
        geom = palm.add_geom(name=f"tendon_{finger}", type=mujoco.mjtGeom.mjGEOM_CAPSULE, size=[0.0024, 0, 0])
        geom.fromto = [*start, end[0] - 0.008, end[1], end[2] + r - 0.0045]
        _dress(geom, "palm", 0.985)


def _forearm(spec: mujoco.MjSpec, palm: mujoco.MjsBody) -> None:
    arm = palm.add_body(name="forearm")
    arm.add_joint(name="wrist_bend", axis=[0, 1, 0], range=[-1.2, 1.2])
    arm.add_joint(name="wrist_swing", axis=[0, 0, 1], range=[-0.7, 0.7])
    balls = [
        ((0.000, 0.010, 0.0), 0.0195), ((0.000, -0.010, 0.0), 0.0190), ((-0.110, 0.018, -0.002), 0.0270),
        ((-0.110, -0.016, -0.002), 0.0270), ((-0.270, 0.016, -0.004), 0.0360), ((-0.270, -0.016, -0.004), 0.0360),
    ]  # fmt: skip
    _solid(spec, arm, "forearm", balls, "forearm")
    sleeve = [(np.array(c), r + 0.007) for c, r in balls[4:]] + [
        (np.array(c) - [0.055, 0, 0], r + 0.016) for c, r in balls[2:4]
    ]
    geom = _solid(spec, arm, "sleeve", sleeve, "forearm")
    geom.rgba = [0.22, 0.30, 0.42, 1.0]


def _thumb(spec: mujoco.MjSpec, palm: mujoco.MjsBody) -> None:
    along = np.array([0.66, 0.66, -0.36])
    along /= np.linalg.norm(along)
    back = np.array([-0.45, 0.80, 0.55])  # the nail looks away from the palm
    back -= along * (back @ along)
    back /= np.linalg.norm(back)
    R = np.stack([along, np.cross(back, along), back], axis=1)
    root = palm.add_body(name="thumb_1", pos=_THUMB_ROOT, quat=se3.quat_from_matrix(R))
    # The saddle joint turns the thumb about the palm's own axis first: that is what opposes it to the fingers.
    root.add_joint(name="thumb_oppose", axis=-R[0], range=[-0.4, 1.5])
    root.add_joint(name="thumb_spread", axis=[0, 0, 1], range=[-0.6, 0.6])
    root.add_joint(name="thumb_roll", axis=[1, 0, 0], range=[-1.0, 0.3])
    root.add_joint(name="thumb_1", axis=[0, 1, 0], range=[-0.9, 0.8])
    _bones(spec, root, "thumb")


def _bones(spec: mujoco.MjSpec, body: mujoco.MjsBody, finger: str) -> None:
    """Adds the three bones of a finger; `body` is the first."""
    lengths, radii = _LENGTHS[finger], _RADII[finger]
    for k in range(3):
        if k:
            body = body.add_body(name=f"{finger}_{k + 1}", pos=[lengths[k - 1], 0, 0])
            body.add_joint(name=f"{finger}_{k + 1}", axis=[0, 1, 0], range=[-0.15, 1.9 if k == 1 else 1.4])
        body.add_site(name=f"{finger}_{k + 1}", group=5)
        length, r0, r1 = lengths[k], radii[k], radii[k + 1]
        end = length if k < 2 else length - r1
        balls = [((0, 0, 0), r0), ((0.5 * end, 0, -0.0012), 0.5 * (r0 + r1) + 0.0004), ((end, 0, 0), r1)]
        _solid(spec, body, f"{finger}_{k + 1}", balls, finger)
        if k == (2 if finger == "thumb" else 1):
            crease = body.add_geom(name=f"crease_{finger}", type=mujoco.mjtGeom.mjGEOM_ELLIPSOID)
            crease.size, crease.pos = [0.0036, 0.62 * r0, 0.0022], [0.0, 0.0, r0 - 0.0013]
            _dress(crease, finger, 1.0)
            crease.rgba = _CREASE
    r = radii[3]
    nail = body.add_geom(name=f"nail_{finger}", type=mujoco.mjtGeom.mjGEOM_ELLIPSOID)
    nail.size, nail.pos = [0.0062 * r / 0.0068, 0.78 * r, 0.0018], [lengths[2] - 1.15 * r, 0.0, 0.86 * r]
    nail.quat = _turn([0, 1, 0], 0.12)
    _dress(nail, finger, 1.0)
    nail.rgba, nail.material = _NAIL, "nail"
    body.add_site(name=f"{finger}_tip", pos=[lengths[2] - 0.3 * r, 0, 0], group=5)


def _solid(
    spec: mujoco.MjSpec, body: mujoco.MjsBody, name: str, balls: Sequence[tuple[object, float]], tone: str
) -> mujoco.MjsGeom:
    """Adds the convex hull of some balls: a tapered, rounded piece of flesh."""
    unit = _ball()
    hull = convex(np.concatenate([np.asarray(c) + r * unit for c, r in balls]))
    spec.add_mesh(
        name=name, uservert=hull.vertices.ravel(), userface=hull.faces.ravel().astype(np.int32), smoothnormal=True
    )
    geom = body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name)
    _dress(geom, tone, 1.0)
    return geom


def _dress(geom: mujoco.MjsGeom, tone: str, shade: float) -> None:
    geom.material = "skin"
    geom.rgba = [*(min(1.0, c * _TONES[tone] * shade) for c in _SKIN), 1.0]
    geom.contype = geom.conaffinity = 0
    geom.group, geom.density = 2, 1000.0


def _ball(n: int = 150) -> Float[np.ndarray, "n 3"]:
    """Evenly spread points on the unit sphere (Fibonacci lattice)."""
    k = np.arange(n) + 0.5
    polar, turn = np.arccos(1 - 2 * k / n), np.pi * (1 + np.sqrt(5)) * k
    return np.stack([np.cos(turn) * np.sin(polar), np.sin(turn) * np.sin(polar), np.cos(polar)], axis=1)


def _turn(axis: Sequence[float], angle: float) -> Float[np.ndarray, "4"]:
    return se3.so3_exp(np.asarray(axis, dtype=np.float64) * angle)
