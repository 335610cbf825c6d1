"""A human demonstrator: a right hand that reaches for an object, grasps it, lifts it and holds it.

The motion is made, not simulated: the palm follows smooth (minimum-jerk) paths, each finger closes until it touches,
and from then on the object moves rigidly with the palm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.lab.human_grasp import Grasp, find_grasp
from dexloop.lab.human_hand import LANDMARKS, hand_spec
from dexloop.sim.shape import Shape

PHASES = ("reach", "close", "lift", "hold")
_SHARES = (0.42, 0.16, 0.24, 0.18)
"""How much of the time each phase takes."""
PREFIX = "human/"
"""Before every name of the hand in a composed scene."""
LIFT_M = 0.10
_STANDOFF_M = 0.11
"""How far before the object the hand turns to its straight approach [m]."""


@dataclass(frozen=True, eq=False)
class HumanMotion:
    """A demonstration, frame by frame. This is truth: only scoring code may read it."""

    t: Float[np.ndarray, " n"]
    """[s]"""
    qpos_hand: Float[np.ndarray, "n q"]
    """Of the model made by `hand_spec`: palm pose x y z [m] qw qx qy qz, then joint angles [rad]."""
    T_world_object: Float[np.ndarray, "n 4 4"]
    phase: tuple[str, ...]
    """One of `PHASES` for each frame."""
    turn_rad: float
    """How far the hand is turned about the vertical from where it comes most comfortably [rad]."""

    def pose(self, model: mujoco.MjModel, data: mujoco.MjData, frame: int, thing: str) -> None:
        """Puts hand and object of a composed scene into one frame.

        Args:
            model: Of a scene with a `HumanHand` and the object.
            data: Changed: positions, and all that follows from them.
            frame: Which.
            thing: Name of the object, whose free joint is `<thing>.free`.
        """
        hand = int(model.joint(f"{PREFIX}palm").qposadr[0])
        data.qpos[hand : hand + self.qpos_hand.shape[1]] = self.qpos_hand[frame]
        at = int(model.joint(f"{thing}.free").qposadr[0])
        data.qpos[at : at + 7] = se3.to_pose(self.T_world_object[frame])
        mujoco.mj_forward(model, data)


@dataclass(frozen=True)
class HumanHand:
    """The demonstrator's hand as a part of a scene; `HumanMotion.pose` moves it."""

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Adds the hand, its names prefixed with `PREFIX`."""
        spec.attach(hand_spec(), frame=spec.worldbody.add_frame(), prefix=PREFIX)


def grasp_motion(
    shape: Shape,
    T_world_object: Float[np.ndarray, "4 4"],
    *,
    duration_s: float = 3.0,
    fps: float = 30.0,
    seed: int = 0,
) -> HumanMotion:
    """Plans one demonstration for an object that stands on a table.

    Tall objects are taken from the side, thumb up; low and thin ones from above. The lowest point of the object is
    the height of the table.

    Args:
        shape: The object.
        T_world_object: Where it stands.
        duration_s: Of the whole motion [s].
        fps: Frames per second.
        seed: Of where the hand starts, its tremor and its timing.
    """
    if duration_s <= 0 or fps <= 0 or round(duration_s * fps) < 8:
        raise InputError(f"a demonstration needs at least 8 frames: {duration_s} s at {fps} frames/s are too few")
    rng = np.random.default_rng(seed)
    grasp = find_grasp(shape, np.asarray(T_world_object, dtype=np.float64))
    n = round(duration_s * fps)
    t = np.arange(n) / fps
    shares = np.array(_SHARES) * rng.uniform(0.92, 1.08, 4)
    ends = np.cumsum(shares) / shares.sum() * t[-1]
    starts = np.concatenate([[0.0], ends[:-1]])
    s = np.stack([_minimum_jerk((t - a) / (b - a)) for a, b in zip(starts, ends, strict=True)])
    phase = tuple(PHASES[min(int(np.searchsorted(ends, x)), 3)] for x in t)

    palm = _palm_path(grasp, s, rng)
    shake = _tremor(t, rng)
    # A hand that closes on an object steadies itself on it; what it holds shakes with it.
    calm = np.clip(1.0 - s[0], 0.0, 1.0) + s[2]
    palm[:, :3] += calm[:, None] * shake
    fingers = grasp.q_open + s[1][:, None] * (grasp.q_closed - grasp.q_open)
    fingers += (1.0 - s[0])[:, None] * 0.25 * (grasp.q_rest - grasp.q_open)

    T_palm = se3.from_pose(palm)
    T_palm_object = se3.inverse(grasp.T_world_palm) @ T_world_object
    lifted = T_palm @ T_palm_object
    moving = np.array([p in ("lift", "hold") for p in phase])
    T_object = np.where(moving[:, None, None], lifted, np.asarray(T_world_object)[None])
    return HumanMotion(t, np.concatenate([palm, fingers], axis=1), T_object, phase, grasp.turn_rad)


def landmarks(motion: HumanMotion) -> Float[np.ndarray, "n 21 3"]:
    """Returns the 21 landmarks in the world, in MediaPipe's order [m]: the truth to score hand tracking against."""
    model = _hand_model()
    data = mujoco.MjData(model)
    ids = [model.site(name).id for name in LANDMARKS]
    out = np.zeros((len(motion.t), len(ids), 3))
    for i, q in enumerate(motion.qpos_hand):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        out[i] = data.site_xpos[ids]
    return out


def film_camera(
    width: int = 640,
    height: int = 480,
    *,
    target: tuple[float, float, float] = (0.0, 0.0, 0.11),
    turn_rad: float = 0.0,
) -> Camera:
    """Returns a camera that sees the demonstration well: in front of the table, to the left, and somewhat above.

    Args:
        width: [px]
        height: [px]
        target: What it looks at: the object's place, a hand's breadth above the table [m].
        turn_rad: Of the hand (`HumanMotion.turn_rad`): whoever films steps around with it [rad].
    """
    at = np.asarray(target)
    eye = at + se3.quat_rotate(se3.so3_exp(np.array([0.0, 0.0, turn_rad])), np.array(_CAMERA_FROM))
    return Camera.from_fov("human", width, height, np.radians(42.0), se3.look_at(eye, at))


_CAMERA_FROM = (-0.48, -0.48, 0.275)
"""Where the camera stands, seen from its target [m]."""


@cache
def _hand_model() -> mujoco.MjModel:
    return hand_spec().compile()


def _minimum_jerk(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Goes from 0 to 1 with no speed and no acceleration at both ends: 10 x³ - 15 x⁴ + 6 x⁵."""
    x = np.clip(x, 0.0, 1.0)
    return x**3 * (10.0 + x * (6.0 * x - 15.0))


def _palm_path(grasp: Grasp, s: Float[np.ndarray, "4 n"], rng: np.random.Generator) -> Float[np.ndarray, "n 7"]:
    """The palm's pose [m]: from the side of the table over a point before the object to it, then up."""
    goal = grasp.T_world_palm
    before = goal.copy()
    before[:3, 3] -= _STANDOFF_M * grasp.approach
    wrist_back = -goal[:3, 0]
    start = before.copy()
    start[:3, 3] += 0.12 * wrist_back - 0.02 * grasp.approach + [0.0, 0.0, 0.02] + rng.uniform(-0.02, 0.02, 3)
    turn = se3.so3_exp(rng.uniform(-0.12, 0.12, 3))
    start[:3, :3] = se3.quat_to_matrix(turn) @ start[:3, :3]
    poses = se3.to_pose(np.stack([start, before, goal]))
    # A quadratic Bézier curve in position whose last piece runs straight along the approach.
    x = s[0][:, None]
    position = (1 - x) ** 2 * poses[0, :3] + 2 * x * (1 - x) * poses[1, :3] + x**2 * poses[2, :3]
    spin = se3.so3_log(se3.quat_multiply(se3.quat_inverse(poses[:1, 3:]), poses[2:, 3:]))
    quat = se3.quat_multiply(poses[:1, 3:], se3.so3_exp(np.minimum(1.0, 1.6 * x) * spin))
    lift = np.array([0.0, 0.0, LIFT_M]) + np.array([*rng.uniform(-0.015, 0.015, 2), 0.0])
    return np.concatenate([position + s[2][:, None] * lift, quat], axis=1)


def _tremor(t: Float[np.ndarray, " n"], rng: np.random.Generator) -> Float[np.ndarray, "n 3"]:
    """Physiological tremor [m]: some tenths of a millimetre at 8 to 11 Hz, and a slow wander of a millimetre."""
    out = np.zeros((len(t), 3))
    for low, high, size in ((8.0, 11.0, 1.5e-4), (0.4, 1.2, 8e-4)):
        for _ in range(3):
            frequency, phase = rng.uniform(low, high, 3), rng.uniform(0.0, 2 * np.pi, 3)
            out += size * rng.uniform(0.5, 1.0, 3) * np.sin(2 * np.pi * frequency * t[:, None] + phase)
    return out
