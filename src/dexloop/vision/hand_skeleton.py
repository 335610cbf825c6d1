"""A person's hand as a skeleton: 20 bones of constant length, 20 joint angles, 21 landmarks in MediaPipe's order.

The palm's frame, of a right hand: origin in the wrist, x towards the middle finger's knuckle, y towards the thumb's
side, z out of the back of the hand. A left hand is a right hand in a mirror.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from dexloop.core import se3

FINGERS = ("thumb", "index", "middle", "ring", "little")
PARENT = np.array([0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11, 0, 13, 14, 15, 0, 17, 18, 19])
"""The landmark at which each of the 20 bones starts; bone k ends at landmark k + 1."""
TIPS = np.array([4, 8, 12, 16, 20])
PALM = np.array([0, 1, 5, 9, 13, 17])
"""Landmarks that keep their distances: the wrist, the thumb's root and the four knuckles."""
GAUGE = 8
"""The bone from the wrist to the middle finger's knuckle: it sets the size of all others."""
UNKNOWNS = 26
"""Of a frame: where the wrist is, how the palm is turned (both in the camera's frame), and 20 angles."""

_ROOTS = np.array(
    [[0.27, 0.276, -0.177], [0.991, 0.261, -0.073], [1.0, 0.0, 0.0], [0.94, -0.231, -0.033], [0.772, -0.404, -0.073]]
)
"""Where the fingers start, in lengths of the gauge: MediaPipe's own palm, averaged over 621 frames of a real hand."""
_BONES = np.array(
    [[0.49, 0.385, 0.31], [0.48, 0.285, 0.215], [0.52, 0.335, 0.24], [0.48, 0.325, 0.235], [0.39, 0.235, 0.20]]
)
"""Of each finger, in lengths of the gauge. Halfway between bones as X-rays show them (Buchholz et al., 1992) and as
MediaPipe marks them on a real hand held flat: its wrist lies lower, and its fingertips lie before the very tip."""
LENGTHS = np.concatenate([np.linalg.norm(_ROOTS, axis=1)[:, None], _BONES], axis=1)
"""Of an average adult, in lengths of the gauge: [finger, bone from the wrist outwards]."""

ANGLES_MEAN = np.array([[0.0, 0.0, 0.3, 0.3], *[[0.0, 0.5, 0.7, 0.4]] * 4])
ANGLES_SD = np.array([[0.35, 0.35, 0.3, 0.3], *[[0.15, 0.5, 0.6, 0.35]] * 4])
"""Angles of a hand about a grasp [rad]: of each finger its spread, then how its three joints bend."""

_SPLAY = (0.06, 0.0, -0.06, -0.14)
"""How far the four fingers point apart at rest [rad]."""
_THUMB = ((0.35, 0.1, -0.93), (-0.3, 0.95, 0.0))
"""Along the thumb's first bone, and out of its nail: it stands against the fingers, as in every grasp."""


def _bases() -> Float[np.ndarray, "5 3 3"]:
    """Frames of the straight fingers in the palm: x along the finger, z out of its back."""
    along, back = (np.asarray(v) for v in _THUMB)
    x = along / np.linalg.norm(along)
    z = back - x * (x @ back)
    z /= np.linalg.norm(z)
    turned = se3.quat_to_matrix(se3.so3_exp(np.array(_SPLAY)[:, None] * [0.0, 0.0, 1.0]))
    return np.concatenate([np.stack([x, np.cross(z, x), z], axis=1)[None], turned])


_BASES = _bases()
_DIRECTIONS = _ROOTS / np.linalg.norm(_ROOTS, axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Posture:
    """One right hand in n frames, in the camera's frame."""

    wrist: Float[np.ndarray, "n 3"]
    """[m]"""
    R: Float[np.ndarray, "n 3 3"]
    """Turns the palm's frame into the camera's."""
    angles: Float[np.ndarray, "n 5 4"]
    """[rad]"""
    lengths: Float[np.ndarray, "5 4"]
    """Of the bones, the same in all frames [m]."""

    def moved(self, step: Float[np.ndarray, "n 26"], stretch: Float[np.ndarray, "20"]) -> Posture:
        """Returns the posture after a step: wrist [m], turn in the camera's axes, angles [rad]; and log of lengths."""
        return Posture(
            self.wrist + step[:, :3],
            se3.quat_to_matrix(se3.so3_exp(step[:, 3:6])) @ self.R,
            self.angles + step[:, 6:].reshape(-1, 5, 4),
            self.lengths * np.exp(stretch).reshape(5, 4),
        )

    def chosen(self, which: Bool[np.ndarray, " n"]) -> Posture:
        """Returns the posture in some of the frames."""
        return Posture(self.wrist[which], self.R[which], self.angles[which], self.lengths)

    def between(self, times: Float[np.ndarray, " n"], t: Float[np.ndarray, " m"]) -> Posture:
        """Returns the posture at other times [s]; before the first and after the last it is held."""
        pose = np.concatenate([self.wrist, se3.quat_from_matrix(self.R)], axis=1)
        T = se3.from_pose(se3.interpolate(t, times, pose))
        angles = np.stack([np.interp(t, times, column) for column in self.angles.reshape(-1, 20).T], axis=1)
        return Posture(T[:, :3, 3], T[:, :3, :3], angles.reshape(-1, 5, 4), self.lengths)

    def landmarks(self) -> Float[np.ndarray, "n 21 3"]:
        """Returns where the landmarks are [m]."""
        arm = np.cumsum(self.lengths[:, :, None] * _bone_directions(self.angles)[0], axis=2)
        return self._placed(arm)

    def derivatives(
        self,
    ) -> tuple[Float[np.ndarray, "n 21 3"], Float[np.ndarray, "n 46 21 3"]]:
        """Returns landmarks [m] and how they change with each part of `moved`'s step, then of its stretch."""
        n = len(self.wrist)
        direction, by_spread, by_bend = _bone_directions(self.angles)
        bones = self.lengths[:, :, None] * direction
        points = self._placed(np.cumsum(bones, axis=2))
        Rt = np.swapaxes(self.R, 1, 2)

        spread = np.cumsum(self.lengths[:, 1:, None] * by_spread, axis=2)
        bend = np.cumsum(self.lengths[:, 1:, None] * by_bend, axis=2)
        by_angle = np.zeros((n, 5, 4, 3, 3))  # frame, finger, angle, landmark behind the knuckle
        by_angle[:, :, 0] = spread
        for k in range(3):  # joint k carries all bones from the k-th on
            by_angle[:, :, k + 1, k:] = bend[:, :, k:] - (bend[:, :, k - 1 : k] if k else 0.0)
        by_angle = (by_angle.reshape(n, 60, 3) @ Rt).reshape(n, 5, 4, 3, 3)
        by_bone = (bones.reshape(n, 20, 3) @ Rt).reshape(n, 5, 4, 1, 3)

        by = np.zeros((n, UNKNOWNS + 20, 21, 3))
        by[:, range(3), :, range(3)] = 1.0
        by[:, 3:6] = np.moveaxis(se3.hat(points - self.wrist[:, None]), 1, 2)
        for f in range(5):
            own = slice(4 * f + 2, 4 * f + 5)
            by[:, 6 + 4 * f : 10 + 4 * f, own] = by_angle[:, f]
            for k in range(4):
                by[:, UNKNOWNS + 4 * f + k, 4 * f + 1 + k : 4 * f + 5] = by_bone[:, f, k]
        return points, by

    def _placed(self, arm: Float[np.ndarray, "n 5 4 3"]) -> Float[np.ndarray, "n 21 3"]:
        n = len(arm)
        inside = np.concatenate([np.zeros((n, 1, 3)), arm.reshape(n, 20, 3)], axis=1)
        return inside @ np.swapaxes(self.R, 1, 2) + self.wrist[:, None]


def palm(lengths: Float[np.ndarray, "5 4"]) -> Float[np.ndarray, "6 3"]:
    """Returns the landmarks of the palm in its own frame, in `PALM`'s order [m]."""
    return np.concatenate([np.zeros((1, 3)), lengths[:, :1] * _DIRECTIONS])


def bone_lengths(landmarks: Float[np.ndarray, "n 21 3"]) -> Float[np.ndarray, "n 20"]:
    """Returns the lengths of the 20 bones [m]."""
    return np.linalg.norm(landmarks[:, 1:] - landmarks[:, PARENT], axis=-1)


def _bone_directions(
    angles: Float[np.ndarray, "n 5 4"],
) -> tuple[Float[np.ndarray, "n 5 4 3"], Float[np.ndarray, "n 5 3 3"], Float[np.ndarray, "n 5 3 3"]]:
    """Directions of all bones in the palm's frame; of the fingers' bones also by the spread and by the bend so far.

    A finger bends in a plane: (cos a cos b, sin a cos b, -sin b), with the spread a and the sum of bends b.
    """
    n = len(angles)
    spread, bend = angles[:, :, :1], np.cumsum(angles[:, :, 1:], axis=2)
    ca, sa, cb, sb = np.cos(spread), np.sin(spread), np.cos(bend), np.sin(bend)
    o = np.zeros_like(cb)
    local = np.stack(
        [
            np.stack([ca * cb, sa * cb, -sb], axis=-1),
            np.stack([-sa * cb, ca * cb, o], axis=-1),
            np.stack([-ca * sb, -sa * sb, -cb], axis=-1),
        ],
        axis=2,
    )  # frame, finger, (value, by spread, by bend), bone, xyz
    turned = (local.reshape(n, 5, 9, 3) @ np.swapaxes(_BASES, 1, 2)).reshape(n, 5, 3, 3, 3)
    roots = np.broadcast_to(_DIRECTIONS[:, None], (n, 5, 1, 3))
    return np.concatenate([roots, turned[:, :, 0]], axis=2), turned[:, :, 1], turned[:, :, 2]
