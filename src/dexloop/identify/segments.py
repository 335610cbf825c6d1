"""Cuts recordings into pieces that are simulated in one go, each from a start that the recording tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import median_filter

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.identify.streams import Drive, Matched, Measured, pose_error
from dexloop.sim.kinematic import Following, Guided, ToolPath
from dexloop.sim.scene import Scene

Array = np.ndarray

LEAD_S, TAIL_S = 0.2, 0.25
"""How much of the time before the object is first touched and after it has come to rest is simulated too [s]."""
CLOCK_S = 0.1
"""How far clocks may be apart [s]."""
LONGEST_S = 2.4
"""What comes later in a recording adds little: a lift has been held by then [s]."""
_INTERPOLATED_S = 6e-3
"""Between commands that come at least as often as this a drive goes evenly [s]; others it holds."""
MIN_S = 0.02
TOUCHED_N = 0.3
"""What a fingertip feels when it touches [N]."""
_OUTLIERS = 5
"""Of so many samples a minority may be far off without anything having moved or touched."""
_STILL_S = 0.06
"""How long an object must not have moved at the beginning to be taken as at rest [s]."""
REST_SD = (2e-3, 2e-3, 0.02)
"""How well an object at rest is known before: x, y [m], turn about the vertical [rad]. The recording says more."""
MOVING_SD = (2e-3, 0.05, 0.3, 3.0)
"""How well one in motion is known before: place [m], rotation [rad], velocity [m/s], spin [rad/s]."""
_REST_STEP = (3e-4, 3e-4, 3e-3)
_MOVING_STEP = (3e-4, 3e-3, 1e-2, 5e-2)


@dataclass(frozen=True, eq=False)
class Start:
    """The state of one free object at the beginning, with the coordinates in which it is uncertain."""

    body: str
    pose: int
    """Where its pose begins in qpos."""
    twist: int
    """Where its velocity begins in qvel."""
    moving: bool

    @property
    def sd(self) -> Float[Array, " l"]:
        """Prior standard deviations of the coordinates."""
        return np.repeat(MOVING_SD, 3) if self.moving else np.array(REST_SD)

    @property
    def step(self) -> Float[Array, " l"]:
        """First steps of finite differences."""
        return np.repeat(_MOVING_STEP, 3) if self.moving else np.array(_REST_STEP)


@dataclass(frozen=True, eq=False)
class Segment:
    """A piece of a recording."""

    recording: str
    t0: float
    """When it begins, on the drive's clock [s]."""
    steps: int
    timestep_s: float
    drive: Drive
    measured: tuple[Measured, ...]
    qpos: Float[Array, " q"]
    """The start as the recording tells it."""
    qvel: Float[Array, " v"]
    starts: tuple[Start, ...]
    name: str = field(default="")
    following: Following | None = None
    """How a tool that is moved by hand goes on its measured path."""
    guided: Guided | None = None
    """That tool."""

    @property
    def end(self) -> float:
        """When it ends, on the drive's clock [s]."""
        return self.t0 + self.steps * self.timestep_s

    @property
    def begins_in_motion(self) -> bool:
        """Whether an object moves already when it begins."""
        return any(s.moving for s in self.starts)

    def beginning(self, share: float) -> Segment:
        """Returns the first part: the lead, and a share of what comes after it; all of one that begins in motion."""
        lead = round((LEAD_S + CLOCK_S) / self.timestep_s)
        if self.begins_in_motion or self.steps <= lead:
            return self
        return replace(self, steps=lead + max(round(share * (self.steps - lead)), 1))

    @property
    def local_sd(self) -> Float[Array, " l"]:
        """Prior standard deviations of all start coordinates."""
        return np.concatenate([np.zeros(0), *(s.sd for s in self.starts)])

    @property
    def local_step(self) -> Float[Array, " l"]:
        """First steps of finite differences of all start coordinates."""
        return np.concatenate([np.zeros(0), *(s.step for s in self.starts)])

    def state(self, local: Float[Array, "n l"]) -> tuple[Float[Array, "n q"], Float[Array, "n v"]]:
        """Returns the start displaced by local coordinates."""
        n = len(local)
        qpos, qvel = np.tile(self.qpos, (n, 1)), np.tile(self.qvel, (n, 1))
        if self.guided is not None and self.following is not None:
            qpos[:, self.guided.qpos], qvel[:, self.guided.qvel] = self.following.pose, self.following.velocity
        at = 0
        for s in self.starts:
            x = local[:, at : at + len(s.sd)]
            at += len(s.sd)
            place = slice(s.pose, s.pose + 3)
            turn = x[:, 3:6] if s.moving else np.column_stack([np.zeros((n, 2)), x[:, 2]])
            if s.moving:
                qpos[:, place] += x[:, :3]
                qvel[:, s.twist : s.twist + 6] += x[:, 6:]
            else:
                qpos[:, s.pose : s.pose + 2] += x[:, :2]
            quat = slice(s.pose + 3, s.pose + 7)
            qpos[:, quat] = se3.quat_multiply(se3.so3_exp(turn), qpos[:, quat])
        return qpos, qvel

    def control(self, delay_s: Float[Array, " n"], actuators: int) -> Float[Array, "n t u"] | None:
        """Returns the commands of each step, as they arrive after a delay.

        A command holds from when it was sent, but drives go evenly from one to the next if they come every few
        milliseconds. A step takes the mean over that time (or its own, if that is longer) about the step's beginning,
        where the joints' positions are taken too: so the motion changes smoothly with the delay, and a servo follows
        as closely as it does in continuous time, however coarse the steps are.
        """
        if not len(self.drive.actuators):
            return None
        t, u = self.drive.t, self.drive.command
        area = np.concatenate([np.zeros((1, u.shape[1])), np.cumsum(u[:-1] * np.diff(t)[:, None], axis=0)])
        period = float(np.median(np.diff(t))) if len(t) > 1 else 0.0
        width = max(self.timestep_s, period if period <= _INTERPOLATED_S else 0.0)
        middle = self.t0 + self.timestep_s * np.arange(self.steps)
        edges = np.stack([middle - 0.5 * width, middle + 0.5 * width])
        out = np.zeros((len(delay_s), self.steps, actuators))
        unique, which = np.unique(delay_s, return_inverse=True)
        for k, delay in enumerate(unique):
            when = edges - delay
            i = np.clip(np.searchsorted(t, when, side="right") - 1, 0, len(t) - 1)
            integral = area[i] + u[i] * (when - t[i])[..., None]  # before the first command: as if it had been held
            mean = (integral[1] - integral[0]) / width
            rows = np.flatnonzero(which == k)
            out[rows[:, None], :, np.asarray(self.drive.actuators)[None]] = mean.T[None]
        return out


def cut(
    scene: Scene, matched: Matched, *, window_s: float, clock_s: float = CLOCK_S, guided: Guided | None = None
) -> list[Segment]:
    """Cuts a recording into segments.

    One that begins with every object at rest is simulated whole, but for what comes before the first touch and after
    the last motion. One that begins in motion is cut into windows, each with a start of its own, so that bounces do
    not make the end depend on the beginning beyond reason.

    Args:
        scene: The model.
        matched: The recording.
        window_s: Length of windows [s].
        clock_s: How far clocks may be apart [s].
        guided: A tool in the model that follows its measured pose.
    """
    segments = _cut(scene, matched, window_s, clock_s)
    if guided is None:
        return segments
    if guided.body not in matched.drive.tools:
        raise InputError(f"recording {matched.recording.name!r} has no pose about {guided.body!r} for it to follow")
    stream = matched.drive.tools[guided.body]
    path = ToolPath.fit(stream.t, stream.value)
    return [replace(s, guided=guided, following=guided.follow(path, s.t0, s.steps)) for s in segments]


def _cut(scene: Scene, matched: Matched, window_s: float, clock_s: float) -> list[Segment]:
    drive = matched.drive
    poses = [m for m in matched.measured if m.is_pose]
    others = [m for m in matched.measured if not m.is_pose]
    dt = float(scene.model.opt.timestep)
    if len(drive.t):
        begin, end = float(drive.t[0]), float(drive.t[-1]) + float(np.median(np.diff(drive.t)))
    else:
        seen = [*matched.drive.tools.values()] or matched.measured
        begin, end = max(float(m.t[0]) for m in seen), min(float(m.t[-1]) for m in seen)
    if end - begin < MIN_S:
        raise InputError(f"recording {matched.recording.name!r} is too short: {1e3 * (end - begin):.0f} ms")
    if any(_moves(m) for m in poses):
        return _windows(scene, matched, begin, end, window_s, dt)
    if poses:
        first, last = _active(poses, others, clock_s)
        if not np.isfinite(first):
            raise InputError(
                f"the object does not move in recording {matched.recording.name!r}: record a push that reaches it, or "
                f"leave the recording out"
            )
        begin, end = max(begin, first - LEAD_S), min(end, last + TAIL_S)
        end = min(end, begin + LONGEST_S)
    qpos, qvel = _joints(scene, matched, begin)
    starts = []
    for m in poses:
        start = _start(scene, m, moving=False)
        qpos[start.pose : start.pose + 7] = _mean_pose(m.value[: _still(m)])
        starts.append(start)
    settle(scene, qpos, starts, drive, begin)
    steps = max(round((end - begin) / dt), 1)
    name = matched.recording.name
    return [Segment(name, begin, steps, dt, drive, matched.measured, qpos, qvel, tuple(starts), name=name)]


def _windows(scene: Scene, matched: Matched, begin: float, end: float, window_s: float, dt: float) -> list[Segment]:
    count = max(int((end - begin) / window_s + 0.5), 1)
    length = (end - begin) / count
    out = []
    for k in range(count):
        t0 = begin + k * length
        qpos, qvel = _joints(scene, matched, t0)
        starts = []
        for m in matched.measured:
            if not m.is_pose:
                continue
            start = _start(scene, m, moving=True)
            pose, twist = _state_at(m, t0)
            qpos[start.pose : start.pose + 7], qvel[start.twist : start.twist + 6] = pose, twist
            starts.append(start)
        name = f"{matched.recording.name}[{k}]"
        steps = max(round(length / dt), 1)
        segment = Segment(
            matched.recording.name, t0, steps, dt, matched.drive, matched.measured, qpos, qvel, tuple(starts), name=name
        )
        out.append(segment)
    return out


def _start(scene: Scene, m: Measured, *, moving: bool) -> Start:
    model = scene.model
    joint = int(np.flatnonzero(model.jnt_qposadr == int(m.columns[0]))[0])
    body = model.body(int(model.jnt_bodyid[joint])).name
    return Start(body, int(m.columns[0]), int(model.jnt_dofadr[joint]), moving)


def _still(m: Measured) -> int:
    """How many samples that takes."""
    return max(int(np.searchsorted(m.t, m.t[0] + _STILL_S)), 4)


def _moves(m: Measured) -> bool:
    """Whether a pose changes by more than its noise right at the beginning."""
    near = m.value[: _still(m)]
    error = pose_error(near[:1], near)
    half = max(len(near) // 2, 1)
    drift = error[half:].mean(axis=0) - error[:half].mean(axis=0)
    sd = np.maximum(m.noise, [2e-4] * 3 + [2e-3] * 3) * np.sqrt(4.0 / len(near))
    return bool((np.abs(drift) > 6.0 * sd).any())


def _active(poses: Sequence[Measured], others: Sequence[Measured], clock_s: float) -> tuple[float, float]:
    """Returns from when to when, on the drive's clock, an object is touched or moves."""
    first, last = np.inf, -np.inf
    for m in poses:
        begin, end = _mean_pose(m.value[: _still(m)]), _mean_pose(m.value[-_still(m) :])
        limit = np.maximum(8.0 * m.noise, [1e-3] * 3 + [1e-2] * 3)
        margin = clock_s if m.clock else 0.0
        left = np.flatnonzero(_lasting(np.abs(pose_error(begin[None], m.value)) > limit))
        moving = np.flatnonzero(_lasting(np.abs(pose_error(end[None], m.value)) > limit))
        if len(left):
            first = min(first, float(m.t[left[0]]) - margin)
        if len(moving):
            last = max(last, float(m.t[moving[-1]]) + margin)
    for m in others:
        if m.kind == "touch":
            touched = np.flatnonzero(_lasting(m.value > np.maximum(8.0 * m.noise, TOUCHED_N)))
            if len(touched):
                first, last = min(first, float(m.t[touched[0]])), max(last, float(m.t[touched[-1]]))
    return first, last


def _lasting(over: Bool[Array, "m c"]) -> Bool[Array, " m"]:
    """Returns where some channel is over, and most samples round about say so too: trackers are wrong for a frame, and
    touch is never quite 0."""
    return median_filter(over.any(axis=1).astype(np.uint8), size=_OUTLIERS, mode="nearest").astype(bool)


def _joints(scene: Scene, matched: Matched, t: float) -> tuple[Float[Array, " q"], Float[Array, " v"]]:
    """Returns where the joints are and how fast they move at a moment, from what was measured about it."""
    qpos, qvel = scene.model.qpos0.astype(np.float64).copy(), np.zeros(scene.model.nv)
    drive = matched.drive
    if len(drive.t):
        k = max(int(np.searchsorted(drive.t, t, side="right")) - 1, 0)
        for column, actuator in enumerate(drive.actuators):
            joint = int(scene.model.actuator_trnid[actuator, 0])
            qpos[scene.model.jnt_qposadr[joint]] = drive.command[k, column]
    for m in matched.measured:
        if m.kind not in ("joint_position", "joint_velocity"):
            continue
        near = np.argsort(np.abs(m.t - t))[:7]
        line = np.polynomial.polynomial.polyfit(m.t[near] - t, m.value[near], 1 if len(near) > 2 else 0)
        (qpos if m.kind == "joint_position" else qvel)[m.columns] = line[0]
        if m.kind == "joint_position" and not any(o.kind == "joint_velocity" for o in matched.measured):
            dofs = [int(scene.model.jnt_dofadr[np.flatnonzero(scene.model.jnt_qposadr == c)[0]]) for c in m.columns]
            qvel[dofs] = line[1] if len(line) > 1 else 0.0
    return qpos, qvel


def _state_at(m: Measured, t: float) -> tuple[Float[Array, " 7"], Float[Array, " 6"]]:
    """Returns pose and velocity of an object in motion: straight lines through the samples nearest to a moment."""
    near = np.sort(np.argsort(np.abs(m.t - t))[:5])
    middle = m.value[near[len(near) // 2]]
    away = pose_error(np.broadcast_to(middle, (len(near), 7)), m.value[near])
    line = np.polynomial.polynomial.polyfit(m.t[near] - t, away, 1 if len(near) > 1 else 0)
    pose = middle.copy()
    pose[:3] += line[0, :3]
    pose[3:] = se3.quat_multiply(se3.so3_exp(line[0, 3:]), middle[3:])
    velocity = line[1] if len(line) > 1 else np.zeros(6)
    spin = se3.quat_rotate(se3.quat_inverse(pose[3:]), velocity[3:])  # MuJoCo keeps it in the body's axes
    return pose, np.concatenate([velocity[:3], spin])


def _mean_pose(poses: Float[Array, "m 7"]) -> Float[Array, " 7"]:
    """Returns the middle of poses that differ little."""
    middle = poses[len(poses) // 2].copy()
    away = np.median(pose_error(np.broadcast_to(middle, poses.shape), poses), axis=0)
    middle[:3] += away[:3]
    middle[3:] = se3.quat_multiply(se3.so3_exp(away[3:]), middle[3:])
    return middle / np.concatenate([np.ones(3), np.full(4, np.linalg.norm(middle[3:]))])


def settle(scene: Scene, qpos: Float[Array, " q"], starts: Sequence[Start], drive: Drive, t: float) -> None:
    """Lets objects sink into their contacts: height and tilt are the model's, place and turn the recording's."""
    if not starts:
        return
    model = scene.model
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    if len(drive.t):
        data.ctrl[list(drive.actuators)] = drive.command[max(int(np.searchsorted(drive.t, t, side="right")) - 1, 0)]
    steps = int(0.3 / model.opt.timestep)
    for _ in range(10):
        mujoco.mj_step(model, data, steps // 10)
        data.qvel[:] *= 0.5
    for s in starts:
        settled, given = data.qpos[s.pose : s.pose + 7].copy(), qpos[s.pose : s.pose + 7].copy()
        away = pose_error(given[None], settled[None])[0]
        if not np.isfinite(away).all() or np.abs(away[:3]).max() > 0.01 or np.abs(away[3:]).max() > 0.1:
            raise InputError(
                f"{s.body} does not rest where the recording says: in the model it moves by "
                f"{1e3 * np.linalg.norm(away[:3]):.0f} mm and {np.rad2deg(np.linalg.norm(away[3:])):.0f} degrees at "
                f"once; check the pose's frame and the model's shape"
            )
        tilt = away[3:] * [1.0, 1.0, 0.0]
        qpos[s.pose + 2] = settled[2]
        qpos[s.pose + 3 : s.pose + 7] = se3.quat_multiply(se3.so3_exp(tilt), given[3:])
