"""Puts any hand on any arm, or on the free wrist."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.builtin import wrist
from dexloop.robots.describe import describe, site_pose
from dexloop.robots.embodiment import Embodiment

PREFIX = "hand_"
"""Put before every name of a mounted hand, always: so names never clash and never depend on what carries the hand."""


def mount(hand: Embodiment, on: Embodiment, *, T_mount_hand: Float[np.ndarray, "4 4"] | None = None) -> Embodiment:
    """Returns the hand carried by the arm, as one robot.

    On an arm the hand's mounting face (its `mount` site) is put on the arm's, z on z. On the free wrist the palm is put
    on the wrist's moving point instead, so that its six joints speak of the palm. Every name of the hand gets the
    prefix `hand_`; names of the arm stay. A hand's joints keep their home, and so do the arm's.

    Args:
        hand: A robot with fingertips, on a fixed base (no arm joints).
        on: A bare arm: a robot with a `mount` site and without fingertips.
        T_mount_hand: Where the hand's base stands on the arm's `mount` site, when neither rule fits.

    Raises:
        InputError: The first has no fingertips or is carried already, or the second has nowhere to mount.
    """
    if not hand.fingertips or hand.arm_joints:
        why = "is carried by an arm already" if hand.fingertips else "has no fingertips"
        raise InputError(f"{hand.name!r} {why}: mount a bare hand, such as dex16 or gripper")
    if not on.mount or on.fingertips:
        why = "carries a hand already" if on.fingertips else "has no mount site"
        raise InputError(f"{on.name!r} {why}: mount on a bare arm, such as arm7 or wrist")
    T_mount_base = _placement(hand, on) if T_mount_hand is None else np.asarray(T_mount_hand, dtype=np.float64)

    def make_spec() -> mujoco.MjSpec:
        spec, child = on.make_spec(), hand.make_spec()
        site = spec.site(on.mount)
        T_body_site = se3.from_pose(np.concatenate([site.pos, site.quat]))
        pose = se3.to_pose(T_body_site @ T_mount_base)
        frame = site.parent.add_frame(pos=pose[:3], quat=pose[3:])
        roots = [PREFIX + body.name for body in child.worldbody.bodies]
        spec.attach(child, frame=frame, prefix=PREFIX)
        # Whatever the palm is bolted to may overlap it at the flange.
        for root in roots:
            spec.add_exclude(bodyname1=site.parent.name, bodyname2=root)
        return spec

    joints = {j: PREFIX + j for j in hand.hand_joints}
    return describe(
        f"{hand.name}@{on.name}",
        make_spec,
        arm_joints=on.arm_joints,
        hand_joints=tuple(joints.values()),
        speed_limits=dict(zip((*on.joints, *joints.values()), (*on.speed_limits, *hand.speed_limits), strict=True)),
        home=dict(zip((*on.joints, *joints.values()), (*on.home, *hand.home), strict=True)),
        fingertips=[
            dataclasses.replace(
                f, body=PREFIX + f.body, site=PREFIX + f.site, geoms=tuple(PREFIX + geom for geom in f.geoms)
            )
            for f in hand.fingertips
        ],
        palm=PREFIX + hand.palm,
        source=hand.source if on.source == "builtin" else f"{hand.source}, {on.source}",
    )


def _placement(hand: Embodiment, on: Embodiment) -> Float[np.ndarray, "4 4"]:
    face = hand.palm if on.name == wrist.NAME else hand.mount
    if not face:
        raise InputError(f"{hand.name!r} has no mounting face: give its `mount` site in robot.toml, or T_mount_hand")
    return se3.inverse(site_pose(hand.make_spec().compile(), face))
