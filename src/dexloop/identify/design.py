"""Design of the next motion: which of some candidates tells most about what is asked, given what is believed now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError, TrialError, UnknownName
from dexloop.identify.posterior import Posterior
from dexloop.identify.problem import Problem, Signals
from dexloop.identify.segments import Segment, Start, settle
from dexloop.identify.solver import MODEL_SD, Estimate
from dexloop.identify.streams import STATE_FIELDS, Drive, Matched, Measured
from dexloop.sim.freezing import freeze
from dexloop.sim.scene import Scene

Array = np.ndarray

_ALLOWANCE, _CORRELATION = 0.02, 5.0
"""A model's own error in a new motion, as a fraction of what a channel varies by; and how many successive numbers are
worth one that is independent, where no fit has told."""
_POSE_ERROR = (4e-4,) * 3 + (4e-3,) * 3
"""A model's own error in poses, where no fit has told [m, rad]."""
_STILL = 2e-3
"""A joint that moves by less is held fast: most of a hand does nothing in a push [rad or m]."""
_LOOK = 5
"""Every how many steps it is looked at what touches the object."""
_LEFT = 0.05
"""How much of a variance can always still be learnt."""
_MORE = 0.05
"""A gain below this is none: the intervals shrink by a twentieth at most [nat]."""
_SAID = 3
"""How many parameters are named in a sentence."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A motion that the rig could do, as plain data."""

    name: str
    words: str
    """For people: "push at 0.6 m/s, 30 mm high"."""
    joints: tuple[str, ...]
    command: Float[Array, "t n"]
    """Position targets, one column a joint [rad or m]."""
    rate_hz: float
    """Of the command."""
    start_s: float
    """From when it is simulated [s after the first command]: shortly before the object is touched."""
    end_s: float
    """Until when [s]."""
    T_world_object: Float[Array, "4 4"]
    """Where the object rests before."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """What the motion was planned from, as plain JSON."""


@dataclass(frozen=True, eq=False)
class Sensor:
    """A stream that the next recording will have, and how far the model was off in it so far."""

    stream: str
    kind: str
    """As in `core.capture.KINDS`."""
    clock: str
    """The unknown that shifts it, if any."""
    field: str
    """Of MjData."""
    elements: tuple[str, ...]
    """Names in the model of what it measures: joints, sensors, or the one body whose pose it is."""
    channels: tuple[str, ...]
    rate_hz: float
    block: int
    """How many successive samples are averaged."""
    noise: Float[Array, " c"]
    """Standard deviation of each channel's error [SI]; infinite for one that is not used."""
    correlation: Float[Array, " c"]
    """How many numbers of a channel are worth one that is independent."""

    def without(self, joints: Set[str]) -> Sensor:
        """Returns the same without the channels of some joints."""
        keep = [k for k in range(len(self.elements)) if self.elements[k] not in joints]
        if not self.kind.startswith("joint_") or len(keep) == len(self.elements):
            return self
        names = tuple(self.elements[k] for k in keep), tuple(self.channels[k] for k in keep)
        return replace(
            self, elements=names[0], channels=names[1], noise=self.noise[keep], correlation=self.correlation[keep]
        )

    def columns(self, model: mujoco.MjModel) -> list[int]:
        """Returns which entries of the field it measures in a model."""
        if self.kind == "pose":
            at = int(model.jnt_qposadr[model.body_jntadr[model.body(self.elements[0]).id]])
            return list(range(at, at + 7))
        if self.kind.startswith("joint_"):
            address = model.jnt_qposadr if self.field == "qpos" else model.jnt_dofadr
            return [int(address[model.joint(name).id]) for name in self.elements]
        ids = [model.sensor(name).id for name in self.elements]
        return [int(model.sensor_adr[i]) + k for i in ids for k in range(int(model.sensor_dim[i]))]

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; a channel that is not used has no noise."""
        levels = [float(n) if np.isfinite(n) else None for n in self.noise]
        return {**self.__dict__, "noise": levels, "correlation": [float(c) for c in self.correlation]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Sensor:
        """Reads what `to_json` wrote."""
        arrays = {
            "noise": np.array([np.inf if n is None else float(n) for n in data["noise"]]),
            "correlation": np.array(data["correlation"], dtype=np.float64),
        }
        names = {"elements": tuple(data["elements"]), "channels": tuple(data["channels"])}
        return Sensor(**{**data, **arrays, **names})


@dataclass(frozen=True)
class Expected:
    """The 95 % interval of one parameter before and after a motion, as half of its width."""

    before: float
    after: float
    unit: str
    """"ratio": they are logarithms of a factor, so small ones are relative; otherwise the parameter's unit."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {"before": self.before, "after": self.after, "unit": self.unit}


@dataclass(frozen=True, eq=False)
class Ranked:
    """A candidate and what it is expected to tell."""

    candidate: Candidate
    gain: float
    """Expected information about what is asked: by how much half the log det of its covariance falls [nat]."""
    expected: Mapping[str, Expected]
    """By label, of what is asked."""
    samples: int
    """Over how many draws of the belief that is the mean."""

    @property
    def words(self) -> str:
        """What it is and what it is for, in one sentence."""
        order = sorted(self.expected, key=lambda k: self.expected[k].after / self.expected[k].before)
        if self.gain < _MORE:
            stays = " and ".join(
                f"{k} stays within {_show(self.expected[k].before, self.expected[k].unit)}" for k in order
            )
            return f"{self.candidate.words}: expected to tell nothing new, {stays}"
        told = [k for k in order if self.expected[k].after < 0.95 * self.expected[k].before][:_SAID] or order[:1]
        parts = [
            f"{k} from {_show(self.expected[k].before, self.expected[k].unit)} to "
            f"{_show(self.expected[k].after, self.expected[k].unit)}"
            for k in told
        ]
        return f"{self.candidate.words}: expected to shrink {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {
            "name": self.candidate.name,
            "words": self.words,
            "plan": dict(self.candidate.plan),
            "gain": self.gain,
            "expected": {label: e.to_json() for label, e in self.expected.items()},
            "samples": self.samples,
        }


@dataclass(frozen=True, eq=False)
class Design:
    """Candidates, the best one first."""

    ranked: tuple[Ranked, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Motions that cannot be done or simulated, and why."""

    def __iter__(self) -> Iterator[Ranked]:
        return iter(self.ranked)

    def __len__(self) -> int:
        return len(self.ranked)

    @property
    def best(self) -> Ranked:
        """The one to record next."""
        return self.ranked[0]

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {"ranked": [r.to_json() for r in self.ranked], "left_out": dict(self.left_out)}


def design(
    scene: Scene,
    belief: Posterior,
    candidates: Sequence[Candidate],
    sensors: Sequence[Sensor],
    *,
    asked: Sequence[str],
    samples: int = 4,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
) -> Design:
    """Ranks motions by what they are expected to tell about some parameters.

    Each candidate is simulated with values drawn from the belief. How all that would be measured changes with the
    unknowns gives the information of the recording, J^T W J, with its start eliminated; added to that of the belief it
    gives the covariance after it. Clocks, gains and biases are unknowns like others, so they take their share.

    Args:
        scene: The model.
        belief: What is believed now.
        candidates: What the rig could do.
        sensors: What would be measured.
        asked: Names of the parameters that are wanted, such as "object.mass".
        samples: Draws of the belief; the first is its mean.
        seed: Of the draws.
        progress: Told what is going on.

    Raises:
        InputError: There is no candidate or no sensor, or a candidate is of another robot.
        UnknownName: A parameter that is asked for is not in the belief.
        TrialError: No candidate can be simulated.
    """
    names = [u.name for u in belief.unknowns]
    for name in asked:
        if name not in names:
            raise UnknownName("parameter", name, names, "The belief holds what was identified.")
    if not candidates or not sensors or not asked:
        raise InputError(
            "there is nothing to choose from: give motions, what they would be measured with, and for what"
        )
    if samples < 1:
        raise InputError(f"a design needs at least one draw of the belief, not {samples}")
    draws = np.concatenate([belief.mean[None], belief.sample(samples, np.random.default_rng(seed))[1:]])
    before = _Before(scene, belief, asked)
    ranked, left_out = [], {}
    for k, candidate in enumerate(candidates):
        try:
            problem, used = _prepared(scene, belief, candidate, sensors)
            ranked.append(before.ranked(candidate, _informations(problem, used, draws, set(asked))))
        except TrialError as error:
            left_out[candidate.words] = str(error)
        if progress is not None:
            progress("trying motions", (k + 1) / len(candidates))
    if not ranked:
        raise TrialError(f"none of the motions can be simulated: {next(iter(left_out.values()))}")
    return Design(tuple(sorted(ranked, key=lambda r: -r.gain)), left_out)


def sensors_of(problem: Problem, estimate: Estimate) -> tuple[Sensor, ...]:
    """Returns what was measured in a fit, with the noise levels that it found, over all its recordings."""
    found: dict[str, Measured] = {}
    levels: dict[tuple[str, str], list[tuple[float, float]]] = {}
    number = {(c.recording, c.stream, c.channel): k for k, c in enumerate(problem.channels)}
    for s in problem.segments:
        for m in s.measured:
            found.setdefault(m.stream, m)
            worth = _unwhitened(m)
            for k, c in enumerate(m.channels):
                own = levels.setdefault((m.stream, c), [])
                if m.keep[:, k].any():
                    at = number[s.recording, m.stream, c]
                    own.append((float(estimate.noise[at] * worth[k]), max(float(estimate.correlation[at]), 1.0)))
    out = []
    for m in found.values():
        rows = [np.array(levels[m.stream, c]).reshape(-1, 2) for c in m.channels]
        noise = np.array([np.sqrt(np.mean(r[:, 0] ** 2)) if len(r) else np.inf for r in rows])
        correlation = np.array([np.mean(r[:, 1]) if len(r) else 1.0 for r in rows])
        out.append(_sensor(problem.scene.model, m, noise, correlation))
    return tuple(out)


def sensors_before(scene: Scene, matched: Sequence[Matched]) -> tuple[Sensor, ...]:
    """Returns what recordings measure where no fit has told how far the model is off: by the noise of the samples."""
    found: dict[str, Sensor] = {}
    for m in (m for x in matched for m in x.measured):
        noise = np.hypot(m.noise, _POSE_ERROR) if m.is_pose else m.noise
        noise = np.where(m.keep.any(axis=0), noise, np.inf)
        found[m.stream] = _sensor(scene.model, m, noise, np.full(len(m.channels), _CORRELATION))
    return tuple(found.values())


def joined(before: Sequence[Sensor], fitted: Sequence[Sensor]) -> tuple[Sensor, ...]:
    """Puts what a fit told of sensors in the place of what was thought before, channel by channel."""
    told = {s.stream: s for s in fitted}
    out = []
    for s in before:
        better = told.pop(s.stream, None)
        if better is not None:
            at = {c: k for k, c in enumerate(better.channels)}
            noise = np.array([better.noise[at[c]] if c in at else s.noise[k] for k, c in enumerate(s.channels)])
            correlation = np.array(
                [better.correlation[at[c]] if c in at else s.correlation[k] for k, c in enumerate(s.channels)]
            )
            s = replace(s, noise=noise, correlation=correlation)
        out.append(s)
    return (*out, *told.values())


def _sensor(model: mujoco.MjModel, m: Measured, noise: Float[Array, " c"], correlation: Float[Array, " c"]) -> Sensor:
    columns = [int(c) for c in m.columns]
    if m.is_pose:
        names = [model.body(int(model.jnt_bodyid[np.flatnonzero(model.jnt_qposadr == columns[0])[0]])).name]
    elif m.kind.startswith("joint_"):
        address = model.jnt_qposadr if m.field == "qpos" else model.jnt_dofadr
        names = [model.joint(int(np.flatnonzero(address == c)[0])).name for c in columns]
    else:
        ids = [int(np.flatnonzero(model.sensor_adr <= c)[-1]) for c in columns]
        names = [model.sensor(i).name for i in dict.fromkeys(ids)]
    rate = 1.0 / float(np.median(np.diff(m.t)))
    return Sensor(m.stream, m.kind, m.clock, m.field, tuple(names), m.channels, rate, m.block, noise, correlation)


def _unwhitened(m: Measured) -> Float[Array, " c"]:
    """Returns what a whitened error of one is worth in each channel."""
    if m.whiten is None:
        return np.ones(len(m.channels))
    root = np.linalg.inv(m.whiten)
    return np.sqrt(np.mean(np.einsum("mij,mij->mi", root, root), axis=0))


def _prepared(
    scene: Scene, belief: Posterior, candidate: Candidate, sensors: Sequence[Sensor]
) -> tuple[Problem, list[Sensor]]:
    """Returns what is simulated of a candidate: joints that keep their places in it are held fast, and not measured."""
    whole = Problem(scene, belief.unknowns, [_segment(scene, candidate, sensors)])
    whole.record = ("qpos",)
    segment, model = whole.segments[0], scene.model
    theta = np.clip(belief.mean, *whole.bounds)
    qpos = whole.simulate([(0, theta[None], np.zeros((1, len(segment.local_sd))))])[0]["qpos"][0]
    busy = _touching(model, segment.starts[0].body, qpos)
    still = {}
    for name in candidate.joints:
        joint = model.joint(name).id
        q = qpos[:, model.jnt_qposadr[joint]]
        if np.ptp(q) < _STILL and int(model.jnt_bodyid[joint]) not in busy:
            still[name] = float(np.mean(q))
    held = freeze(scene, still) if still else scene
    gone = {name for name in still if mujoco.mj_name2id(held.model, mujoco.mjtObj.mjOBJ_JOINT, name) < 0}
    rest = [k for k, name in enumerate(candidate.joints) if name not in gone]
    moving = replace(candidate, joints=tuple(candidate.joints[k] for k in rest), command=candidate.command[:, rest])
    used = [s.without(gone) for s in sensors]
    used = [s for s in used if s.channels]
    return Problem(held, belief.unknowns, [_segment(held, moving, used)]), used


def _touching(model: mujoco.MjModel, thing: str, qpos: Float[Array, "t q"]) -> Set[int]:
    """Returns the bodies that touch an object in a motion, all that carry them, and those that stand in the world."""
    data, own = mujoco.MjData(model), model.body(thing).id
    touched = set()
    for q in qpos[::_LOOK]:
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        for pair in model.geom_bodyid[data.contact.geom]:
            if own in pair:
                touched |= {int(b) for b in pair} - {own}
    busy = set(np.flatnonzero(model.body_parentid == 0).tolist())
    for body in touched:
        while body:
            busy.add(body)
            body = int(model.body_parentid[body])
    return busy


def _segment(scene: Scene, candidate: Candidate, sensors: Sequence[Sensor]) -> Segment:
    """Returns what the recording would be, from shortly before the touch on, with samples that are still empty."""
    model, dt = scene.model, float(scene.model.opt.timestep)
    by_joint = {
        model.joint(int(model.actuator_trnid[a, 0])).name: a
        for a in range(model.nu)
        if model.actuator_trntype[a] == mujoco.mjtTrn.mjTRN_JOINT
    }
    for joint in candidate.joints:
        if joint not in by_joint:
            raise UnknownName("joint", joint, by_joint, f"The motion {candidate.name!r} moves it: plan for this robot.")
    t = np.arange(len(candidate.command)) / candidate.rate_hz
    begin, end = max(candidate.start_s, 0.0), min(candidate.end_s, float(t[-1]))
    if end - begin < dt:
        raise InputError(f"the motion {candidate.name!r} ends before it begins: from {begin:g} to {end:g} s")
    qpos, qvel = model.qpos0.astype(np.float64).copy(), np.zeros(model.nv)
    speed = np.gradient(candidate.command, t, axis=0)
    at = int(np.searchsorted(t, begin, side="right")) - 1
    for k, name in enumerate(candidate.joints):
        joint = model.joint(name).id
        qpos[model.jnt_qposadr[joint]], qvel[model.jnt_dofadr[joint]] = candidate.command[at, k], speed[at, k]
    drive = Drive("robot", t, candidate.command, [by_joint[name] for name in candidate.joints])
    body = scene.roles["object"].bodies[0] if "object" in scene.roles else -1
    if body < 0:
        raise InputError("the model has not exactly one free object: nothing can be planned for it")
    joint = int(model.body_jntadr[body])
    start = Start(model.body(body).name, int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint]), moving=False)
    qpos[start.pose : start.pose + 7] = se3.to_pose(candidate.T_world_object)
    settle(scene, qpos, [start], drive, begin)
    steps = round((end - begin) / dt)
    measured = tuple(_empty(model, s, begin, begin + steps * dt) for s in sensors)
    return Segment(candidate.name, begin, steps, dt, drive, measured, qpos, qvel, (start,), name=candidate.name)


def _empty(model: mujoco.MjModel, s: Sensor, begin: float, end: float) -> Measured:
    t = begin + np.arange(1, int((end - begin) * s.rate_hz) + 1) / s.rate_hz
    columns = np.array(s.columns(model), dtype=int)
    value = np.zeros((len(t), len(columns)))
    if s.kind == "pose":
        value[:, 3] = 1.0
    keep = np.tile(np.isfinite(s.noise), (len(t), 1))
    return Measured(
        s.stream, s.kind, s.clock, s.field, columns, s.channels, t, value, keep, s.noise, s.block
    )  # fmt: skip


def _informations(
    problem: Problem, sensors: Sequence[Sensor], draws: Float[Array, "n p"], asked: Set[str]
) -> list[Float[Array, "p p"]]:
    """Returns the information of one candidate at each draw, all simulated together.

    What is unknown of the robot alone changes its motion much the same whatever the object is: it is varied at the
    first draw only.
    """
    unknowns, segment = problem.unknowns, problem.segments[0]
    layout = problem.layout[0]
    channel = layout.channel[layout.keep]  # numbered in the sensors' order
    robot = np.concatenate([np.full(u.size, u.name.startswith(("actuator.", "joint."))) for u in unknowns])
    robot &= ~np.concatenate([np.full(u.size, u.name in asked) for u in unknowns])
    plain, own = np.flatnonzero(~problem.simulated), np.flatnonzero(problem.simulated & ~robot)
    shared = np.flatnonzero(problem.simulated & robot)
    lower, upper = problem.bounds
    # Clocks, gains and biases have no effect on the motion, and what they are does not matter here.
    draws = np.where(problem.simulated, np.clip(draws, lower, upper), 0.0)
    points, sizes = [], []
    for k, theta in enumerate(draws):
        varied = np.concatenate([own, shared]) if k == 0 else own
        points.append(_varied(problem, theta, varied))
        sizes.append(len(points[-1][0]))
    thetas, local = (np.concatenate(x) for x in zip(*points, strict=True))
    signals = problem.simulate([(0, thetas, local)])[0]
    found: list[np.ndarray] = []
    correlation = np.concatenate([s.correlation for s in sensors])
    kept = np.zeros((len(channel), problem.size))
    for k, end in enumerate(np.cumsum(sizes)):
        rows = slice(int(end) - sizes[k], int(end))
        piece = {name: value[rows] for name, value in signals.items()}
        J, L = _jacobians(
            problem, segment, piece, thetas[rows], plain, np.concatenate([own, shared]) if k == 0 else own
        )
        if J is None or L is None:
            continue
        if not kept.any():
            kept[:, shared] = J[:, shared]
        J[:, shared] = kept[:, shared]
        scale = 1.0 / (_noise(sensors, segment, piece) * np.sqrt(correlation))[channel]
        J, L = J * scale[:, None], L * scale[:, None]
        C = L.T @ L + np.diag(segment.local_sd**-2)
        found.append(J.T @ J - J.T @ L @ np.linalg.solve(C, L.T @ J))
    if not found:
        raise TrialError("the simulation is unstable with the values that are believed: identify again first")
    return found


def _noise(sensors: Sequence[Sensor], segment: Segment, signals: Signals) -> Float[Array, " c"]:
    """Returns the noise of each channel, with the model's own error where more happens than before."""
    levels = []
    for s, m in zip(sensors, segment.measured, strict=True):
        own = np.zeros(len(s.noise)) if m.is_pose else np.std(signals[m.field][0][:, m.columns], axis=0)
        levels.append(np.hypot(s.noise, _ALLOWANCE * own))
    return np.concatenate(levels)


def _varied(
    problem: Problem, theta: Float[Array, " p"], varied: Float[Array, " v"]
) -> tuple[Float[Array, "n p"], Float[Array, "n l"]]:
    """Returns a point, the same with each unknown moved by a step, and with each start coordinate moved."""
    local_step = problem.segments[0].local_step
    step = problem.first_step
    step = np.where(theta + step > problem.bounds[1], -step, step)
    thetas = np.tile(theta, (1 + len(varied) + len(local_step), 1))
    local = np.zeros((len(thetas), len(local_step)))
    thetas[1 + np.arange(len(varied)), varied] += step[varied]
    local[1 + len(varied) :] = np.diag(local_step)
    return thetas, local


def _jacobians(
    problem: Problem,
    segment: Segment,
    signals: Signals,
    thetas: Float[Array, "n p"],
    plain: Float[Array, " q"],
    varied: Float[Array, " v"],
) -> tuple[Float[Array, "r p"] | None, Float[Array, "r l"] | None]:
    """Returns how all that is measured changes with the unknowns and with the start; None if it cannot be simulated."""
    measured = tuple(_filled(segment, m, signals) for m in segment.measured)
    here = Problem(problem.scene, problem.unknowns, [replace(segment, measured=measured)])
    keep = here.layout[0].keep
    e = here.errors(0, signals, thetas)[:, keep]
    if not np.isfinite(e).all():
        return None, None
    J = np.zeros((e.shape[1], here.size))
    step = thetas[1 + np.arange(len(varied)), varied] - thetas[0, varied]
    J[:, varied] = (e[1 : 1 + len(varied)] - e[0]).T / step
    if len(plain):
        nudged = np.tile(thetas[0], (len(plain), 1))
        nudged[np.arange(len(plain)), plain] += here.first_step[plain]
        again = {name: np.repeat(value[:1], len(plain), axis=0) for name, value in signals.items()}
        J[:, plain] = (here.errors(0, again, nudged)[:, keep] - e[0]).T / here.first_step[plain]
    return J, (e[1 + len(varied) :] - e[0]).T / segment.local_step


def _filled(segment: Segment, m: Measured, signals: Signals) -> Measured:
    """Gives a pose the values that are simulated: rotations are compared near to where they are, others anywhere."""
    if not m.is_pose:
        return m
    first = segment.t0 + segment.timestep_s * STATE_FIELDS.get(m.field, 0.0)
    i = np.clip(np.rint((m.t - first) / segment.timestep_s).astype(int), 0, segment.steps - 1)
    return replace(m, value=signals[m.field][0][i][:, m.columns])


class _Before:
    """What is believed now of what is asked, and what a motion would add."""

    def __init__(self, scene: Scene, belief: Posterior, asked: Sequence[str]):
        problem = Problem(scene, belief.unknowns, [])
        self.unknowns = [u for u in belief.unknowns if u.name in asked]
        self.keep = [i for u in self.unknowns for i in range(problem.where(u.name).start, problem.where(u.name).stop)]
        # No model is believed to better than a floor, which no recording lowers: it is taken off and put back. A belief
        # that is narrower than that already has a little left to learn.
        variance = np.diag(belief.covariance)
        own = np.maximum(variance - (MODEL_SD * problem.size_of_unknowns) ** 2, _LEFT * variance)
        share = np.sqrt(own / variance)
        self.floor = np.diag(variance - own)
        self.information = np.linalg.inv(belief.covariance * np.outer(share, share))

    def ranked(self, candidate: Candidate, informations: Sequence[Float[Array, "p p"]]) -> Ranked:
        """Joins the draws of a candidate."""
        own = np.ix_(self.keep, self.keep)
        after = [(np.linalg.inv(self.information + x) + self.floor)[own] for x in informations]
        before = (np.linalg.inv(self.information) + self.floor)[own]
        gain = float(np.mean([0.5 * (_log_det(before) - _log_det(c)) for c in after]))
        sd = np.mean([np.sqrt(np.diag(c)) for c in after], axis=0)
        expected, at = {}, 0
        for u in self.unknowns:
            for label in u.labels:
                unit = "ratio" if u.is_ratio or u.name.endswith("inertia") else u.unit
                width = 1.96 * float(np.sqrt(before[at, at]))
                expected[label] = Expected(width, 1.96 * float(sd[at]), unit)
                at += 1
        return Ranked(candidate, gain, expected, len(after))


def _log_det(matrix: Float[Array, "k k"]) -> float:
    return float(np.linalg.slogdet(matrix)[1])


def _show(half: float, unit: str) -> str:
    """Says an interval: ±4 %, a factor of 7, ±3 mm."""
    if unit == "ratio":
        return f"±{_round(100 * half)} %" if half < 0.5 else f"a factor of {_round(float(np.exp(half)))}"
    return f"±{_round(1e3 * half)} mm" if unit == "m" else f"±{_round(half)} {unit}"


def _round(value: float) -> str:
    """Writes two digits, plainly."""
    return f"{float(f'{value:.2g}'):g}"
