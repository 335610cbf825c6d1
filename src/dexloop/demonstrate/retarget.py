"""Retargeting: the gestures of a human hand, 21 landmarks a frame, become those of any robot hand.

Vectors are matched, as DexPilot and its heirs do: from each knuckle to its fingertip, scaled by how much longer the
robot's finger is; and from the thumb's pad to the others', which near a pinch keep their true distance, for an object
between them is not scaled. Fingertips then are where the human's were: the palm is put where that holds best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.demonstrate import skeleton
from dexloop.demonstrate.chains import chains
from dexloop.demonstrate.descent import Pull, Solution, Wishes, follow, place
from dexloop.demonstrate.fingers import BONE_M, Fingers, fingers_of
from dexloop.robots.embodiment import Embodiment

_STARTS = 8
"""Random postures, beside the robot's home, from which the first frame is tried."""
_LEVER_M = 0.05
"""So many metres count like one radian."""
_REACH_WEIGHT = 100.0
"""Of a place to be reached: against this, the pull back to the given motion leaves some hundredths of a millimetre."""
_PALM_STAYS = 5.0
"""How much more than a joint the palm is pulled back."""
_FAR_M = 0.02
"""Fingertips farther off than this, in the median, are not the human's gesture."""


@dataclass(frozen=True)
class RetargetCfg:
    """What counts how much. Weights are relative to a fingertip's vector, which counts 1."""

    jaws: tuple[str, str] = ("index", "thumb")
    """Human fingers that become the jaws of a gripper."""
    pinch_m: tuple[float, float] = (0.02, 0.05)
    """Between two pads: nearer than the first, they keep their true distance; farther than the second, it is scaled
    like all else. Wider limits put the pads around larger objects, at the cost of the gesture."""
    pinch_weight: float = 20.0
    """Of a pair that pinches."""
    pair_weight: float = 0.2
    """Of a pair that does not."""
    bone_weight: float = 0.1
    """Of the direction of a finger's last bone: without it, how a finger bends would be left open."""
    flesh_m: float = 0.008
    """How far a human landmark lies below the skin of the fingertip."""
    smooth_m: float = 0.01
    """What a change by one radian from frame to frame costs, as the error of a fingertip."""
    rest_m: float = 0.001
    """What one radian away from the robot's home costs, as the error of a fingertip."""
    huber_m: float = 0.02
    """From here on, an error counts in proportion, no longer squared: what is out of reach shall not spoil the rest."""


@dataclass(frozen=True, eq=False)
class Retargeted:
    """What the robot is to do."""

    joints: tuple[str, ...]
    """The hand's."""
    q: Float[np.ndarray, "n h"]
    """[rad or m], inside the limits."""
    T_world_palm: Float[np.ndarray, "n 4 4"]
    """Of the palm's site, in the frame that the landmarks are in."""
    residual_m: Float[np.ndarray, "n f"]
    """How far each fingertip is from where its vector ends; of a gripper, how much its opening is off. In the order of
    the embodiment's fingertips."""
    fingers: dict[str, str]
    """Robot finger to the human finger that drives it."""
    scale: float
    """Length of the robot's fingers over that of the human's; 1 for a gripper."""
    mirrored: bool
    """Whether a left hand was turned into a right one, or a right one into a left one."""
    status: Status


@dataclass(frozen=True, eq=False)
class Reached:
    """Fingertips brought to places in the world."""

    q: Float[np.ndarray, "n h"]
    """[rad or m]"""
    T_world_palm: Float[np.ndarray, "n 4 4"]
    error_m: Float[np.ndarray, "n f"]
    """Of each fingertip; NaN where it had no target. In the order of the embodiment's fingertips."""


class Retargeter:
    """Turns human gestures into those of one robot.

    Args:
        embodiment: The robot. Only its hand moves; the palm's path is given, for an arm to follow.
        cfg: What counts how much.

    Raises:
        InputError: It has no fingers, only one, or more than a human.
    """

    def __init__(self, embodiment: Embodiment, cfg: RetargetCfg = RetargetCfg()):  # noqa: B008 - frozen
        self.embodiment, self.cfg = embodiment, cfg
        if not embodiment.fingertips:
            raise InputError(
                f"{embodiment.name} has no fingertips: mount a hand on it, such as dex16@{embodiment.name}"
            )
        if len(embodiment.fingertips) < 2:
            raise InputError(f"{embodiment.name} has one fingertip: it takes two to follow a hand")
        for finger in cfg.jaws:
            if finger not in skeleton.FINGERS:
                raise UnknownName("human finger", finger, skeleton.FINGERS)
        self.chains = chains(embodiment)
        self.fingers: Fingers = fingers_of(embodiment, self.chains, cfg.jaws)

    def retarget(self, landmarks: Float[np.ndarray, "n 21 3"], *, right: bool = True) -> Retargeted:
        """Follows a human hand.

        Args:
            landmarks: In MediaPipe's order, in any frame of axes [m]: wrist, then thumb to little finger, each from
                root to tip.
            right: Whether it is a right hand. Where the robot's is the other, the human's is mirrored about the plane
                through its palm's x and z, so that palm and fingers stay where they are and the thumb changes sides.

        Raises:
            InputError: Another shape, or frames without a hand.
        """
        points = skeleton.check(landmarks)
        f, cfg = self.fingers, self.cfg
        T_world_hand = skeleton.jaws(points, cfg.jaws) if f.gripper else skeleton.palm(points, right=right)
        local = se3.transform(se3.inverse(T_world_hand)[:, None], points)
        mirrored = not f.gripper and f.right is not None and f.right != right
        if mirrored:
            local = local * [1.0, -1.0, 1.0]
        scale, wishes = self.wishes(local)
        path = self._path(wishes)
        at = place(self.chains.links, f.points, path.x)
        # The thumb against all others: what lies between them shall stay between them.
        share = np.array([*[0.5 / (len(f.names) - 1)] * (len(f.names) - 1), 0.5])
        human = np.stack([skeleton.tip(local, finger) for finger in f.human.values()], axis=1)
        robot = at[:, f.pads if f.gripper else f.ends] @ f.R_palm_hand
        shift = np.einsum("f,nfc->nc", share, human - robot)
        residual = _residual(wishes, at)[:, : 1 if f.gripper else len(f.names)]
        return Retargeted(
            self.embodiment.hand_joints,
            self.chains.expand(path.x),
            T_world_hand @ se3.from_rt(f.R_palm_hand.T, shift),
            np.broadcast_to(residual, (len(points), len(f.names))).copy(),
            dict(f.human),
            scale,
            mirrored,
            _status(residual, right, mirrored),
        )

    def wishes(self, local: Float[np.ndarray, "n 21 3"]) -> tuple[float, Wishes]:
        """Returns the scale and what the robot's points should do, of landmarks seen from the human's palm.

        First come the fingertips' places, then the pairs with the thumb, then the last bones' directions; of a gripper
        there is only the one pair.
        """
        f, cfg, n = self.fingers, self.cfg, len(local)
        fingers = list(f.human.values())
        tips = np.stack([skeleton.tip(local, finger) for finger in fingers], axis=1)
        apart = tips[:, :-1] - tips[:, -1:]
        distance = np.linalg.norm(apart, axis=-1, keepdims=True)
        gap = np.maximum(distance - 2.0 * cfg.flesh_m, 0.0)
        if f.gripper:
            # A hand opens wider than most grippers; one that is as open as it can be is right.
            ends = place(self.chains.links, f.points, np.stack([self.chains.lower, self.chains.upper]))[:, f.pads]
            widest = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=-1).max()
            target = np.minimum(gap, widest) * [-1.0, 0.0, 0.0]
            return 1.0, Wishes(f.pads[-1:], f.pads[:1], target, np.ones((n, 1)))
        size = skeleton.lengths(local)
        ratio = f.lengths[:-1] / [size[finger] for finger in fingers[:-1]]
        scale = float(np.median(ratio))
        knuckles = np.stack([local[:, skeleton.KNUCKLES[finger]] for finger in fingers[:-1]], axis=1)
        vectors = np.concatenate(
            [ratio[:, None] * (tips[:, :-1] - knuckles), scale * (tips[:, -1:] - knuckles.mean(axis=1, keepdims=True))],
            axis=1,
        )
        roots = np.concatenate([f.knuckles[:-1], f.knuckles[:-1].mean(axis=0, keepdims=True)])
        near = _smooth_step((cfg.pinch_m[1] - gap) / (cfg.pinch_m[1] - cfg.pinch_m[0]))
        pairs = apart / np.maximum(distance, 1e-9) * gap * (near + (1.0 - near) * scale)
        bones = BONE_M * skeleton.unit(tips - np.stack([local[:, skeleton.KNUCKLES[k] + 2] for k in fingers], axis=1))
        count, R = len(fingers), f.R_palm_hand
        pinch = cfg.pair_weight + near[..., 0] * (cfg.pinch_weight - cfg.pair_weight)
        return scale, Wishes(
            np.concatenate([np.full(count, -1), np.full(count - 1, f.pads[-1]), f.backs]),
            np.concatenate([f.ends, f.pads[:-1], f.ends]),
            np.concatenate([roots + vectors @ R.T, pairs @ R.T, bones @ R.T], axis=1),
            np.concatenate([np.ones((n, count)), pinch, np.full((n, count), cfg.bone_weight)], axis=1),
        )

    def reach(
        self,
        targets: Mapping[str, Float[np.ndarray, "n 3"]],
        q: Float[np.ndarray, "n h"],
        T_world_palm: Float[np.ndarray, "n 4 4"],
        *,
        palm_m_rad: tuple[float, float] | None = None,
    ) -> Reached:
        """Brings fingertips (the middle of their pads) to places in the world, close to a given motion.

        Args:
            targets: By robot finger [m]; NaN in frames in which it has none. Fingers without a target keep their joints
                as far as nothing else moves them.
            q: Hand joints to stay close to [rad or m].
            T_world_palm: The palm's path.
            palm_m_rad: How far the palm may shift along each of its axes [m] and turn about it [rad]; it stays by
                default.

        Raises:
            UnknownName: A finger that the robot does not have.
            InputError: Numbers of frames that do not agree, or no target at all.
        """
        f = self.fingers
        n, names = len(q), list(f.names)
        places = np.full((n, len(names), 3), np.nan)
        for name, target in targets.items():
            if name not in names:
                raise UnknownName("finger", name, names)
            if np.shape(target) != (n, 3):
                raise InputError(f"targets of {name!r} are {np.shape(target)}, but the motion has {n} frames: n x 3")
            places[:, names.index(name)] = target
        if np.shape(q) != (n, len(self.chains.joints)) or np.shape(T_world_palm) != (n, 4, 4):
            raise InputError(
                f"q is {np.shape(q)} and the palm's path {np.shape(T_world_palm)}: give n x {len(self.chains.joints)} "
                "and n x 4 x 4"
            )
        wanted = np.asarray(np.isfinite(places).all(axis=-1))
        if not wanted.any():
            raise InputError("no fingertip has a target in any frame: nothing to reach for")
        T = np.asarray(T_world_palm, dtype=np.float64)
        seen = np.where(wanted[..., None], se3.transform(se3.inverse(T)[:, None], places), 0.0)
        wishes = Wishes(np.full(len(names), -1), f.pads, seen, np.where(wanted, _REACH_WEIGHT, 0.0))
        pull = self._pull(self.chains.reduce(np.asarray(q, dtype=np.float64)), palm_m_rad)
        path = follow(self.chains.links, f.points, wishes, pull, pull.rest[:1], huber_m=np.inf)
        m = len(self.chains.free)
        if palm_m_rad is not None:
            turn = se3.quat_to_matrix(se3.so3_exp(path.x[:, m + 3 :]))
            T = T @ se3.from_rt(turn, path.x[:, m : m + 3])
        pads = se3.transform(T[:, None], place(self.chains.links, f.points, path.x[:, :m])[:, f.pads])
        error = np.where(wanted, np.linalg.norm(pads - places, axis=-1), np.nan)
        return Reached(self.chains.expand(path.x[:, :m]), T, error)

    def _path(self, wishes: Wishes) -> Solution:
        """Solves all frames."""
        c, f = self.chains, self.fingers
        pull = self._pull(np.broadcast_to(c.rest, (len(wishes.target), len(c.rest))))
        low, high = np.maximum(c.lower, -np.pi), np.minimum(c.upper, np.pi)
        starts = np.vstack([c.rest, np.random.default_rng(0).uniform(low, high, (_STARTS, len(low)))])
        return follow(c.links, f.points, wishes, pull, starts, huber_m=self.cfg.huber_m)

    def _pull(self, rest: Float[np.ndarray, "n m"], palm_m_rad: tuple[float, float] | None = None) -> Pull:
        """Returns limits and pulls of the joints, and of the palm if it may move by so much."""
        c, cfg = self.chains, self.cfg
        lower, upper = c.lower, c.upper
        unit = np.where(c.slides, 1.0 / _LEVER_M, 1.0)
        if palm_m_rad is not None:
            far = np.repeat(palm_m_rad, 3)
            lower, upper = np.concatenate([lower, -far]), np.concatenate([upper, far])
            rest = np.concatenate([rest, np.zeros((len(rest), 6))], axis=1)
            unit = np.concatenate([unit, np.repeat([_PALM_STAYS / _LEVER_M, _PALM_STAYS], 3)])
        stay, smooth = (cfg.rest_m * unit) ** 2, (cfg.smooth_m * unit) ** 2
        return Pull(lower, upper, np.ascontiguousarray(rest), stay, smooth)


def _smooth_step(x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Goes from 0 to 1 with no slope at both ends."""
    x = np.clip(x, 0.0, 1.0)
    return x * x * (3.0 - 2.0 * x)


def _residual(wishes: Wishes, at: Float[np.ndarray, "n p 3"]) -> Float[np.ndarray, "n k"]:
    """Returns how far each wish is from being met [m]."""
    start = np.where((wishes.a >= 0)[:, None], at[:, wishes.a], 0.0)
    return np.linalg.norm(at[:, wishes.b] - start - wishes.target, axis=-1)


def _status(residual: Float[np.ndarray, "n k"], right: bool, mirrored: bool) -> Status:
    off = float(np.median(residual))
    sides = ("right", "left") if right else ("left", "right")
    said = f"fingertips are {1e3 * off:.1f} mm (median) from where their vectors end"
    if mirrored:
        said += f"; the human's {sides[0]} hand was mirrored, for the robot's is a {sides[1]} one"
    if off > _FAR_M:
        action = "Check that the landmarks are in metres, of one hand, and right or left as stated."
        return Status(Level.WARN, "far_off", said, action)
    return Status(Level.OK, "mirrored" if mirrored else "retargeted", said)
