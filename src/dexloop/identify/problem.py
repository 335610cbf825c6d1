"""The problem: what is unknown, what was recorded, and how far the one is from explaining the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from dexloop.identify.segments import Segment
from dexloop.identify.streams import STATE_FIELDS, Measured, pose_error
from dexloop.identify.unknowns import COM_SD, DELAY, Unknown
from dexloop.sim.scene import Scene
from dexloop.sim.world import World

Array = np.ndarray
MODEL_ERROR = 0.005
"""No model is taken to be better than this fraction of what a channel varies by."""
Signals = Mapping[str, np.ndarray]
"""Recorded fields [n, t, ...] of some simulations of one segment."""


@dataclass(frozen=True, eq=False)
class Channel:
    """One channel of the residual of a stream in one recording: it has one noise level."""

    recording: str
    stream: str
    channel: str


class Problem:
    """Simulates segments with any values of the unknowns and compares them with what was measured.

    Args:
        scene: The model.
        unknowns: What is to be found.
        segments: What was recorded.
        fixed: Values of parameters that are known, by name.
    """

    def __init__(
        self,
        scene: Scene,
        unknowns: Sequence[Unknown],
        segments: Sequence[Segment],
        *,
        fixed: Mapping[str, float | np.ndarray] | None = None,
    ):
        self.scene, self.unknowns, self.segments = scene, tuple(unknowns), tuple(segments)
        self.fixed = dict(fixed or {})
        self._delay_s = float(np.asarray(self.fixed.pop(DELAY, scene.model.actuator_delay.max(initial=0.0))))
        self._named = {u.name: u for u in self.unknowns}
        self._names = [u.name for u in self.unknowns if u.parameter is not None]
        self._worlds: dict[int, World] = {}
        ends = np.cumsum([u.size for u in self.unknowns])
        self._where = {u.name: slice(int(e) - u.size, int(e)) for u, e in zip(self.unknowns, ends, strict=True)}
        self.size = int(ends[-1]) if len(ends) else 0
        self.simulated = np.concatenate(
            [np.zeros(0, dtype=bool), *(np.full(u.size, u.simulated) for u in self.unknowns)]
        )
        self.leading = np.concatenate([np.zeros(0, dtype=bool), *(np.full(u.size, u.leading) for u in self.unknowns)])
        self.channels = tuple(
            Channel(*key)
            for key in dict.fromkeys(
                (s.recording, m.stream, c) for s in self.segments for m in s.measured for c in m.channels
            )
        )
        fields = {m.field for s in self.segments for m in s.measured}
        self.record = tuple(sorted(fields | ({"qvel"} if "qfrc_actuator" in fields else set())))
        """Fields of MjData that simulations give."""
        self.layout = [_Layout(s, self.channels) for s in self.segments]

    # What is unknown, side by side.

    def _join(self, name: str) -> Float[Array, " p"]:
        return np.concatenate([np.zeros(0), *(getattr(u, name) for u in self.unknowns)])

    @property
    def prior_mean(self) -> Float[Array, " p"]:
        """Of all unknowns, in free coordinates."""
        return self._join("mean")

    @property
    def prior_sd(self) -> Float[Array, " p"]:
        """Of all unknowns, in free coordinates."""
        return self._join("sd")

    @property
    def bounds(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """Of all unknowns, in free coordinates."""
        return self._join("lower"), self._join("upper")

    @property
    def first_step(self) -> Float[Array, " p"]:
        """Of finite differences."""
        return self._join("step")

    @property
    def size_of_unknowns(self) -> Float[Array, " p"]:
        """Returns what a relative error of one would be, in free coordinates; none for what is no part of the model."""
        sizes = []
        for u in self.unknowns:
            if u.parameter is None:
                sizes.append(np.full(u.size, float(u.is_ratio)))  # a sensor's scale is told by the model too
            elif u.is_ratio or u.name.endswith("inertia"):
                sizes.append(np.ones(u.size))
            else:
                sizes.append(u.sd / COM_SD)  # of a centre of mass, the object's size
        return np.concatenate([np.zeros(0), *sizes])

    @property
    def labels(self) -> tuple[str, ...]:
        """One for each component."""
        return tuple(label for u in self.unknowns for label in u.labels)

    def where(self, name: str) -> slice:
        """Returns where an unknown's components are."""
        return self._where[name]

    def value(self, name: str, free: Float[Array, "*n p"]) -> Float[Array, "*n k"]:
        """Returns physical values of one unknown."""
        return self._named[name].value(free[..., self._where[name]])

    # Simulating.

    def simulate(self, points: Sequence[tuple[int, Float[Array, "n p"], Float[Array, "n l"]]]) -> list[Signals]:
        """Simulates segments, all that take equally many steps in one call.

        Args:
            points: Number of a segment, free coordinates of all unknowns, start coordinates of the segment; n of each.

        Returns:
            The recorded fields of each point.
        """
        groups: dict[int, list[int]] = {}
        for k, (segment, _, _) in enumerate(points):
            groups.setdefault(self.segments[segment].steps, []).append(k)
        out: list[Signals] = [{}] * len(points)
        for members in groups.values():
            recorded = self._rollout([points[k] for k in members])
            at = 0
            for k in members:
                n = len(points[k][1])
                out[k] = {name: value[at : at + n] for name, value in recorded.items()}
                at += n
        return out

    def _rollout(self, points: Sequence[tuple[int, Float[Array, "n p"], Float[Array, "n l"]]]) -> Signals:
        theta = np.concatenate([t for _, t, _ in points])
        world = self._world(len(theta))
        if self._names:
            values = [self.value(p.name, theta) for p in world.parameters if p.name in self._names]
            named = [p.name for p in world.parameters if p.name in self._names]
            world.set(dict(zip(named, values, strict=True)))
        states = [self.segments[s].state(local) for s, _, local in points]
        delay = self.value(DELAY, theta)[:, 0] if DELAY in self._where else np.full(len(theta), self._delay_s)
        at, controls = 0, []
        for s, t, _ in points:
            controls.append(self.segments[s].control(delay[at : at + len(t)], self.scene.model.nu))
            at += len(t)
        control = None if controls[0] is None else np.concatenate([c for c in controls if c is not None])
        world.reset(
            qpos=np.concatenate([q for q, _ in states]),
            qvel=np.concatenate([v for _, v in states]),
            ctrl=None if control is None else control[:, 0],
        )
        steps = self.segments[points[0][0]].steps
        signals = dict(world.rollout(control, steps=steps, moving=self._paths(points), record=self.record).signals)
        if "qfrc_actuator" in signals:
            signals["qfrc_actuator"] = self._in_time(signals["qfrc_actuator"], signals["qvel"], theta)
        return signals

    def _in_time(
        self, effort: Float[Array, "n t v"], velocity: Float[Array, "n t v"], theta: Float[Array, "n p"]
    ) -> Float[Array, "n t v"]:
        """Returns servo efforts at the beginning of steps.

        There the joints are at that moment, but their velocities half a step older: with damping, stiff servos that
        accelerate would seem to be pushed by several percent less than they are.
        """
        model = self.scene.model
        slope = np.zeros(model.nv)
        joints = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
        dofs = model.jnt_dofadr[model.actuator_trnid[joints, 0]]
        np.add.at(slope, dofs, model.actuator_biasprm[joints, 2] * model.actuator_gear[joints, 0] ** 2)
        factor = np.ones((1, 1))
        if "actuator.damping" in self._where:
            factor = self.value("actuator.damping", theta)
        elif "actuator.damping" in self.fixed:
            factor = np.asarray(self.fixed["actuator.damping"], dtype=np.float64).reshape(-1, 1)
        out = effort.copy()
        out[:, 1:] += 0.5 * np.diff(velocity, axis=1) * (factor * slope)[:, None]
        return out

    def _paths(
        self, points: Sequence[tuple[int, Float[Array, "n p"], Float[Array, "n l"]]]
    ) -> dict[str, Float[Array, "n t 7"]] | None:
        """Returns the paths of tools that are moved by hand, for each simulation."""
        following = [(self.segments[s].following, len(theta)) for s, theta, _ in points]
        names = {name for f, _ in following if f is not None for name in f.moving}
        if not names:
            return None
        steps = self.segments[points[0][0]].steps  # a path may be that of a longer piece
        return {
            name: np.concatenate([np.tile(f.moving[name][:steps], (n, 1, 1)) for f, n in following if f])
            for name in names
        }

    def _world(self, n: int) -> World:
        if n not in self._worlds:
            if len(self._worlds) >= 8:
                self._worlds.pop(next(iter(self._worlds)))
            world = World(self.scene, n, parameters=[*self._names, *self.fixed])
            if self.fixed:
                world.set(self.fixed)
            self._worlds[n] = world
        return self._worlds[n]

    # Comparing.

    def errors(self, segment: int, signals: Signals, theta: Float[Array, "n p"]) -> Float[Array, "n r"]:
        """Returns measured minus predicted, in SI units, all streams of a segment side by side."""
        s, n = self.segments[segment], len(theta)
        pieces = [np.zeros((n, 0))]
        for m, rows in zip(s.measured, self.layout[segment].rows, strict=True):
            shift = self.value(m.clock, theta)[:, 0] if m.clock in self._where else np.zeros(n)
            sim = _at_times(s, m, signals, m.t[rows], shift)
            value = m.value[rows]
            if m.is_pose:
                error = -pose_error(np.broadcast_to(value, sim.shape), sim)
            else:
                if f"gain.{m.stream}" in self._where:
                    sim = sim * self.value(f"gain.{m.stream}", theta)[:, :, None]
                error = value - sim
            if f"bias.{m.biased}" in self._where:
                error = error - self.value(f"bias.{m.biased}", theta)[:, None]
            if m.whiten is not None:
                error = np.einsum("mij,nmj->nmi", m.whiten[rows], error)
            if m.block > 1:
                error = error.reshape(n, -1, m.block, error.shape[-1]).mean(axis=2)
            pieces.append(error.reshape(n, -1))
        return np.concatenate(pieces, axis=1)

    def of(self, segments: Sequence[Segment]) -> Problem:
        """Returns the same problem with other segments."""
        other = Problem(self.scene, self.unknowns, segments, fixed=self.fixed)
        other._delay_s, other._worlds = self._delay_s, self._worlds
        return other

    def kind(self, segment: int, stream: str) -> str:
        """Returns of what kind a stream is."""
        return next(m.kind for m in self.segments[segment].measured if m.stream == stream)

    def measured(self, segment: int, channel: int, theta: Float[Array, " p"] | None) -> Float[Array, " m"]:
        """Returns what was measured in one channel, in the order of the residual.

        A rotation is given from the first sample on [rad]; biases are taken off if `theta` is given.
        """
        c = self.channels[channel]
        for m, rows in zip(self.segments[segment].measured, self.layout[segment].rows, strict=True):
            if m.stream != c.stream:
                continue
            k = m.channels.index(c.channel)
            value = m.value[rows]
            if m.is_pose:
                value = pose_error(value[:1], value) if k > 2 else value
            out = value[:, k].reshape(-1, m.block).mean(axis=1)
            if theta is not None and f"bias.{m.biased}" in self._where:
                out = out - self.value(f"bias.{m.biased}", theta[None])[0, k]
            return out
        return np.zeros(0)

    def noise_floor(self) -> Float[Array, " c"]:
        """Returns the least noise of each channel: what the samples show, and what a model may be wrong by."""
        level = {
            (s.recording, m.stream, c): m.noise[k] if m.whiten is None else 1.0
            for s in self.segments
            for m in s.measured
            for k, c in enumerate(m.channels)
        }
        fast = np.array([level[c.recording, c.stream, c.channel] for c in self.channels])
        return np.hypot(fast, MODEL_ERROR * self.spread())

    def spread(self) -> Float[Array, " c"]:
        """Returns how much each channel varies; for poses, what a motion on a table is worth."""
        out = {}
        for s in self.segments:
            for m in s.measured:
                scale = [0.02] * 3 + [0.2] * 3 if m.is_pose else np.std(m.value, axis=0)
                scale = np.ones(6) if m.whiten is not None else scale
                out |= {(s.recording, m.stream, c): scale[k] for k, c in enumerate(m.channels)}
        return np.array([out[c.recording, c.stream, c.channel] for c in self.channels])

    def start_theta(self) -> Float[Array, " p"]:
        """Returns the prior's mean within the bounds."""
        return np.clip(self.prior_mean, *self.bounds)

    def refresh(self, theta: Float[Array, " p"]) -> None:
        """Chooses anew which samples fall into which segment, now that the clocks are better known."""
        for k, s in enumerate(self.segments):
            shifts = {m.clock: float(self.value(m.clock, theta)[0]) for m in s.measured if m.clock in self._where}
            self.layout[k] = _Layout(s, self.channels, shifts)


class _Layout:
    """Where in a segment's residual which channel of which stream stands."""

    def __init__(self, segment: Segment, channels: Sequence[Channel], shifts: Mapping[str, float] | None = None):
        number = {(c.recording, c.stream, c.channel): k for k, c in enumerate(channels)}
        self.rows: list[np.ndarray] = []
        """Samples of each stream that fall into the segment."""
        index, keep, times = [np.zeros(0, dtype=int)], [np.zeros(0, dtype=bool)], [np.zeros(0)]
        for m in segment.measured:
            t = m.t - (shifts or {}).get(m.clock, 0.0)
            rows = np.flatnonzero((t > segment.t0) & (t <= segment.end))
            rows = rows[: len(rows) // m.block * m.block]
            self.rows.append(rows)
            blocks = rows.reshape(-1, m.block)
            index.append(np.tile([number[segment.recording, m.stream, c] for c in m.channels], len(blocks)))
            keep.append(m.keep[blocks].all(axis=1).ravel())
            times.append(np.repeat(t[blocks].mean(axis=1), len(m.channels)))
        self.channel = np.concatenate(index)
        """Channel of each number."""
        self.keep: Bool[Array, " r"] = np.concatenate(keep)
        self.t = np.concatenate(times)


def _at_times(
    segment: Segment, m: Measured, signals: Signals, t: Float[Array, " m"], shift: Float[Array, " n"]
) -> Float[Array, "n m c"]:
    """Returns the simulated stream at the times of the samples, straight between steps."""
    recorded = signals[m.field]
    first = segment.t0 + segment.timestep_s * STATE_FIELDS.get(m.field, 0.0)
    x = (t[None] - shift[:, None] - first) / segment.timestep_s
    x = np.clip(x, 0.0, segment.steps - 1.000001)
    i = x.astype(np.intp)
    f = (x - i)[..., None]
    values = recorded[:, :, m.columns]
    if (shift == shift[0]).all():
        low, high = values[:, i[0]], values[:, i[0] + 1]
    else:
        n = np.arange(len(shift))[:, None]
        low, high = values[n, i], values[n, i + 1]
    out = low + f * (high - low)
    if m.is_pose:
        out[..., 3:] /= np.linalg.norm(out[..., 3:], axis=-1, keepdims=True)
    return out
