"""Motion in time: through waypoints in joint space, and along straight lines in task space."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import IkCfg, Kinematics, solve_ik

Profile = Literal["trapezoid", "quintic"]

RISE_S = 0.25
"""Without acceleration limits of its own, a robot reaches full speed in this time [s]."""
JUMP = 20.0
"""A line may be slowed down so many times for the joints' sake; faster joint motion is a jump between solutions."""
LINE_IK = IkCfg(restarts=0, position_tolerance_m=1e-6, rotation_tolerance_rad=1e-5)
"""No restarts, which would jump, and so exact that what is left does not shake the joints."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Joint values over time, sampled evenly."""

    t: Float[np.ndarray, " m"]
    """From 0 [s]."""
    q: Float[np.ndarray, "m n"]
    """[rad or m]"""

    @property
    def duration_s(self) -> float:
        """How long it takes [s]."""
        return float(self.t[-1])

    def at(self, t: Float[np.ndarray, "*b"] | float) -> Float[np.ndarray, "*b n"]:
        """Returns joint values at times [s], straight between samples; the ends are held."""
        t = np.clip(np.asarray(t, dtype=np.float64), self.t[0], self.t[-1])
        i = np.clip(np.searchsorted(self.t, t, side="right") - 1, 0, max(len(self.t) - 2, 0))
        j = np.minimum(i + 1, len(self.t) - 1)
        span = np.where(j > i, self.t[j] - self.t[i], 1.0)
        s = ((t - self.t[i]) / span)[..., None]
        return (1 - s) * self.q[i] + s * self.q[j]


@dataclass(frozen=True, eq=False)
class Motion:
    """A trajectory, or why there is none."""

    trajectory: Trajectory | None
    status: Status


def acceleration_limits(embodiment: Embodiment) -> Float[np.ndarray, " n"]:
    """Returns the default acceleration limits [rad/s² or m/s²]: full speed in `RISE_S`."""
    return embodiment.speed_limits / RISE_S


def through(
    embodiment: Embodiment,
    waypoints: Float[np.ndarray, "k n"],
    *,
    profile: Profile = "quintic",
    speed: float = 1.0,
    accelerations: Float[np.ndarray, " n"] | None = None,
    rate_hz: float = 100.0,
) -> Trajectory:
    """Moves through waypoints in joint space, straight and with all joints in step, resting at each.

    Args:
        embodiment: Gives the speed limits.
        waypoints: [rad or m], the first is where the motion starts.
        profile: "trapezoid" is fastest; "quintic" also has a smooth acceleration, which real motors like better.
        speed: Fraction of the speed limits to use, in (0, 1].
        accelerations: Limits [rad/s² or m/s²]; `acceleration_limits` by default.
        rate_hz: Samples a second.

    Raises:
        InputError: Fewer than one waypoint, a waypoint beyond the joint limits, or a wrong speed.
    """
    points = np.atleast_2d(np.asarray(waypoints, dtype=np.float64))
    if points.size == 0 or points.shape[1] != len(embodiment.joints):
        raise InputError(f"waypoints must be [k, {len(embodiment.joints)}] for {embodiment.name}, not {points.shape}")
    low, high = embodiment.position_limits.T
    beyond = (points < low - 1e-6) | (points > high + 1e-6) | ~np.isfinite(points)
    if beyond.any():
        k, j = np.argwhere(beyond)[0]
        raise InputError(f"waypoint {k} has {embodiment.joints[j]} at {points[k, j]:.3f}, beyond its limits")
    if not 0 < speed <= 1:
        raise InputError(f"speed is a fraction of the limits in (0, 1], not {speed}")
    limit_v = speed * embodiment.speed_limits
    limit_a = acceleration_limits(embodiment) if accelerations is None else np.asarray(accelerations, dtype=np.float64)
    laws = []
    for a, b in itertools.pairwise(points):
        way = np.abs(b - a)
        moves = way > 1e-12
        if moves.any():
            # The whole segment is s·(b - a): the slowest joint sets how fast s may run.
            law = _law(profile, float((limit_v[moves] / way[moves]).min()), float((limit_a[moves] / way[moves]).min()))
            laws.append((a, b, *law))
    ends = np.cumsum([0.0, *(duration for *_, duration in laws)])
    t = _times(ends[-1], rate_hz)
    q = np.tile(points[0], (len(t), 1))
    for k, (a, b, s, _) in enumerate(laws):
        inside = t >= ends[k]
        q[inside] = a + s(t[inside] - ends[k])[:, None] * (b - a)
    return Trajectory(t, q)


def straight(
    embodiment: Embodiment,
    site: str,
    targets: Sequence[Float[np.ndarray, "4 4"]],
    q0: Float[np.ndarray, " n"],
    *,
    speed_m_s: float = 0.1,
    speed_rad_s: float = 0.8,
    profile: Profile = "quintic",
    joints: Sequence[str] | None = None,
    scene: mujoco.MjModel | None = None,
    rate_hz: float = 100.0,
    cfg: IkCfg = LINE_IK,
) -> Motion:
    """Moves a site along straight lines with a steady turn, resting at each target.

    Every sample is solved by inverse kinematics from the one before. Where a joint would be faster than its limit the
    whole motion is slowed down. A jump to another branch of solutions is a failure, not a motion.

    Args:
        embodiment: The robot.
        site: What moves.
        targets: T_world_site, one after the other.
        q0: Where the robot is [rad or m].
        speed_m_s: Of the site, at most.
        speed_rad_s: Of its turn, at most.
        profile: As in `through`.
        joints: The joints that may move; the arm's by default, or all where there is no arm.
        scene: A compiled scene that holds the robot.
        rate_hz: Samples a second.
        cfg: Of the inverse kinematics.

    Returns:
        A trajectory with status `motion_found`, or none with `line_leaves_reach` or `line_jumps`.
    """
    moving = joints if joints is not None else (embodiment.arm_joints or embodiment.joints)
    q0 = np.asarray(q0, dtype=np.float64)
    kinematics = Kinematics(embodiment, scene)
    start = kinematics.poses(q0, site)
    slow, q = 1.0, np.zeros((0, len(q0)))
    t = np.zeros(0)
    for _ in range(3):  # slower lines sample the path elsewhere, so look again
        t, path = _line(start, targets, (speed_m_s, speed_rad_s), profile, slow, rate_hz)
        followed = _follow(embodiment, kinematics.model, site, path, q0, moving, rate_hz, cfg)
        if isinstance(followed, Status):
            return Motion(None, followed)
        q = followed
        more = _slowdown(t, q, embodiment)
        if more <= 1.001:
            break
        slow *= 1.02 * more
    message = f"{t[-1]:.2f} s" + (f", slowed down {slow:.1f} times for the joints' limits" if slow > 1.0 else "")
    return Motion(Trajectory(t, q), Status(Level.OK, "motion_found", message))


def _line(
    start: Float[np.ndarray, "4 4"],
    targets: Sequence[Float[np.ndarray, "4 4"]],
    speeds: tuple[float, float],
    profile: Profile,
    slow: float,
    rate_hz: float,
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m 7"]]:
    """Returns times and poses along the straight lines, `slow` times slower than the speeds [m/s, rad/s] allow."""
    laws, here = [], start
    for target in targets:
        way = float(np.linalg.norm(target[:3, 3] - here[:3, 3]))
        turn = float(np.linalg.norm(se3.so3_log(se3.quat_from_matrix(here[:3, :3].T @ target[:3, :3]))))
        if way > 1e-9 or turn > 1e-9:
            rate = min(speeds[0] / max(way, 1e-9), speeds[1] / max(turn, 1e-9))
            ends = np.stack([se3.to_pose(here), se3.to_pose(target)])
            laws.append((ends, *_law(profile, rate / slow, rate / RISE_S / slow**2)))
        here = target
    begins = np.cumsum([0.0, *(duration for *_, duration in laws)])
    t = _times(begins[-1], rate_hz)
    poses = np.tile(se3.to_pose(start), (len(t), 1))
    for begin, (ends, law, _) in zip(begins[:-1], laws, strict=True):
        inside = t >= begin
        poses[inside] = se3.interpolate(law(t[inside] - begin), np.array([0.0, 1.0]), ends)
    return t, poses


def _follow(
    embodiment: Embodiment,
    model: mujoco.MjModel,
    site: str,
    path: Float[np.ndarray, "m 7"],
    q0: Float[np.ndarray, " n"],
    moving: Sequence[str],
    rate_hz: float,
    cfg: IkCfg,
) -> Float[np.ndarray, "m n"] | Status:
    """Returns joint values along a path of poses, or why it cannot be followed."""
    q = np.tile(q0, (len(path), 1))
    jump = JUMP * embodiment.speed_limits / rate_hz
    for k in range(1, len(path)):
        found = solve_ik(embodiment, {site: se3.from_pose(path[k])}, q[k - 1], joints=moving, scene=model, cfg=cfg)
        done = f"{100 * k / len(path):.0f} % of the way"
        if not found.converged:
            action = "Start from another arm pose, turn less, or shorten the line."
            return Status(Level.FAIL, "line_leaves_reach", f"{found.status.message}, {done}", action)
        if (np.abs(found.q - q[k - 1]) > jump).any():
            joint = embodiment.joints[int(np.argmax(np.abs(found.q - q[k - 1]) / jump))]
            action = "Start from another arm pose, or go through a waypoint that avoids the singular pose."
            return Status(Level.FAIL, "line_jumps", f"{joint} would jump {done}", action)
        q[k] = found.q
    return q


def _slowdown(t: np.ndarray, q: np.ndarray, embodiment: Embodiment) -> float:
    if len(t) < 3:
        return 1.0
    v = np.diff(q, axis=0) / np.diff(t)[:, None]
    a = np.diff(v, axis=0) / (0.5 * (t[2:] - t[:-2]))[:, None]
    # Slowing down by c divides speeds by c and accelerations by c².
    by_speed = float((np.abs(v) / embodiment.speed_limits).max())
    by_acceleration = float(np.sqrt((np.abs(a) / acceleration_limits(embodiment)).max()))
    return max(1.0, by_speed, by_acceleration)


def _times(duration: float, rate_hz: float) -> Float[np.ndarray, " m"]:
    """Returns even times from 0 to at least the duration, so that the last sample is the end."""
    return np.arange(int(np.ceil(duration * rate_hz - 1e-9)) + 1) / rate_hz


def _law(profile: Profile, v: float, a: float) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """Returns s(t) from 0 to 1 with |ds/dt| <= v and |d²s/dt²| <= a, and its duration [s]."""
    if profile == "quintic":
        # s = 10τ³ - 15τ⁴ + 6τ⁵ has top speed 15/8 and top acceleration 10/√3, over T and T².
        duration = max(1.875 / v, float(np.sqrt(10 / np.sqrt(3) / a)))

        def quintic(t: np.ndarray) -> np.ndarray:
            x = np.clip(t / duration, 0.0, 1.0)
            return x**3 * (10 - 15 * x + 6 * x**2)

        return quintic, duration
    if profile != "trapezoid":
        raise InputError(f"there is no profile {profile!r}: choose trapezoid or quintic")
    top = min(v, float(np.sqrt(a)))  # a short way never reaches full speed
    rise = top / a
    duration = rise + 1.0 / top

    def trapezoid(t: np.ndarray) -> np.ndarray:
        t = np.clip(t, 0.0, duration)
        up = 0.5 * a * np.minimum(t, rise) ** 2
        flat = top * np.clip(t - rise, 0.0, duration - 2 * rise)
        down = np.maximum(t - (duration - rise), 0.0)
        return up + flat + top * down - 0.5 * a * down**2

    return trapezoid, duration
