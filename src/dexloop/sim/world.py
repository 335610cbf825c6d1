"""`World`: N simulations of one scene, each with its own parameter values, stepped and recorded together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mujoco
import numpy as np
from jaxtyping import Float
from mujoco import MjModel

from dexloop.core.errors import Diverged, InputError, NoEffect, UnknownName
from dexloop.sim.divergence import Dump, write_dump
from dexloop.sim.engine import CpuEngine, Engine
from dexloop.sim.parameters import Parameter, parameters
from dexloop.sim.scene import Scene
from dexloop.sim.signals import signal

Array = np.ndarray
_MAX_DUMPS = 3
_NOTHING = 1e-7
"""A change of any signal below this is none [m, N, rad, ...]."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """What was recorded."""

    signals: Mapping[str, np.ndarray]
    """By name, [n, steps, ...]. Positions and velocities are those after each step; efforts, touch, sensor readings and
    poses of bodies that are not free are those that led to them, one step older, as MuJoCo computes them."""
    diverged: Mapping[int, str] = field(default_factory=dict)
    """Worlds that became unstable, and why. Their signals are NaN from there on, until they are reset."""
    dumps: tuple[Path, ...] = ()
    """Files that replay the first of them."""

    def __getitem__(self, name: str) -> np.ndarray:
        return self.signals[name]

    def require(self) -> Rollout:
        """Returns itself, if no world diverged.

        Raises:
            Diverged: One did.
        """
        if self.diverged:
            first, reason = next(iter(self.diverged.items()))
            where = f"; replay it: dexloop replay-dump {self.dumps[0]}" if self.dumps else ""
            raise Diverged(f"{len(self.diverged)} worlds diverged, the first is number {first}: {reason}{where}")
        return self


class World:
    """N simulations of one scene.

    Args:
        scene: What is simulated.
        n: How many simulations.
        parameters: Names of what differs between them, such as "object.mass"; see `dexloop.sim.parameters`.
        threads: 0 for all cores.
        dumps: Folder for files that replay diverged worlds; None keeps them in the user's cache.
        engine: The engine to use instead of MuJoCo in C.
    """

    def __init__(
        self,
        scene: Scene,
        n: int = 1,
        *,
        parameters: Iterable[str] = (),
        threads: int = 0,
        dumps: Path | None = None,
        engine: Engine | None = None,
    ):
        if n < 1:
            raise InputError(f"a world needs at least one simulation, not {n}")
        self.scene, self.n = scene, n
        self.engine: Engine = engine or CpuEngine(scene.model, n, threads)
        self.parameters = _find(scene, parameters)
        self._values = {p.name: np.tile(p.nominal, (n, 1)) for p in self.parameters}
        self._written: set[str] = set()
        self._dumps, self._dumped = dumps, 0
        self._diverged: dict[int, str] = {}
        self._history = _control_history(scene.model)
        self.reset()

    @property
    def model(self) -> MjModel:
        """The scene's model, with nominal parameters."""
        return self.scene.model

    @property
    def size(self) -> int:
        """Number of components of all parameters together."""
        return sum(p.size for p in self.parameters)

    @property
    def nominal(self) -> Float[Array, " p"]:
        """The model's own values of all parameters, side by side."""
        return np.concatenate([p.nominal for p in self.parameters]) if self.parameters else np.zeros(0)

    @property
    def values(self) -> Float[Array, "n p"]:
        """The values in force, side by side."""
        return np.concatenate([np.zeros((self.n, 0)), *(self._values[p.name] for p in self.parameters)], axis=1)

    def set(self, values: Mapping[str, object] | Float[Array, "n p"]) -> None:
        """Gives worlds their parameter values.

        Args:
            values: By name: one number for all worlds, [n], [k] or [n, k]; or all side by side [n, p], in the order
                of `parameters`. What is not named keeps its value.

        Raises:
            UnknownName: A name is not among this world's parameters.
            InputError: A value has a wrong shape, is not finite or is out of bounds.
        """
        if not isinstance(values, Mapping):
            theta = np.asarray(values, dtype=np.float64)
            if theta.shape not in ((self.size,), (1, self.size), (self.n, self.size)):
                raise InputError(f"the parameters take [{self.n}, {self.size}] numbers, not {list(theta.shape)}")
            theta = np.broadcast_to(theta, (self.n, self.size))
            ends = np.cumsum([p.size for p in self.parameters])
            values = {p.name: theta[:, end - p.size : end] for p, end in zip(self.parameters, ends, strict=True)}
        known = {p.name: p for p in self.parameters}
        for name in values:
            if name not in known:
                raise UnknownName("parameter", name, known, "Name it when the world is made.")
        written: set[str] = set()

        def expand(name: str) -> np.ndarray:
            written.add(name)
            return self.engine.expand(name)

        given = {p.name: self._shaped(p, values[p.name]) for p in self.parameters if p.name in values}
        for p in self.parameters:  # all are checked before the first is written
            if p.name in given:
                p.check(given[p.name])
        self._values.update(given)
        self._written |= set(given)
        for p in self.parameters:
            # What was set before is written again, for parameters may share a field: mass scales the inertia.
            if p.name in self._written:
                p.write(expand, self.model, self._values[p.name])
        self.engine.commit(constants=bool(written & _CONSTANT_INPUTS))

    def reset(
        self,
        *,
        qpos: Float[Array, "*#n q"] | None = None,
        qvel: Float[Array, "*#n v"] | None = None,
        ctrl: Float[Array, "*#n u"] | None = None,
        past: Float[Array, "*#n h u"] | None = None,
    ) -> None:
        """Puts all worlds into the scene's initial state, or the given one.

        Args:
            qpos: Positions, for all worlds or each.
            qvel: Velocities.
            ctrl: Commands; they also fill the past that delayed actuators look back to.
            past: Commands of the last h steps before now, the latest last, where they were not all the same.

        Raises:
            InputError: A shape does not fit, or a number is not finite.
        """
        self.engine.reset()
        self._diverged = {}
        for name, value in (("qpos", qpos), ("qvel", qvel), ("ctrl", ctrl)):
            if value is not None:
                self._write_state(name, value)
        if self._history is None:
            return
        history = self.engine.field("history")
        if ctrl is not None:
            commands = np.broadcast_to(np.asarray(ctrl, dtype=np.float64), (self.n, self.model.nu))
            for actuator, entries in self._history.items():
                history[:, entries] = commands[:, [actuator]]
        if past is not None:
            commands = np.asarray(past, dtype=np.float64)
            commands = np.broadcast_to(commands, (self.n, *commands.shape[-2:]))
            for actuator, entries in self._history.items():
                known = min(len(entries), commands.shape[1])
                history[:, entries[len(entries) - known :]] = commands[:, commands.shape[1] - known :, actuator]

    def _write_state(self, name: str, value: object) -> None:
        live, given = self.engine.field(name), np.asarray(value, dtype=np.float64)
        if not np.isfinite(given).all():
            raise InputError(f"{name} holds a value that is not a finite number")
        try:
            live[...] = given
        except ValueError:
            raise InputError(
                f"{name} takes {list(live.shape)} or {list(live.shape[1:])}, not {list(given.shape)}"
            ) from None

    def rollout(
        self,
        control: Float[Array, "*#n t u"] | None = None,
        *,
        steps: int | None = None,
        moving: Mapping[str, Float[Array, "*#n t 7"]] | None = None,
        record: Sequence[str] = ("qpos",),
    ) -> Rollout:
        """Advances all worlds in one call.

        Args:
            control: Commands before each step, for all worlds [t, u] or each [n, t, u]; None keeps what is set.
            steps: How many; taken from `control` or `moving` if they are given.
            moving: Poses before each step of bodies that are moved by hand (MuJoCo's mocap), by name, [t, 7] or
                [n, t, 7] as x y z [m], qw qx qy qz; see `dexloop.sim.kinematic` for one that pushes as it should.
            record: Signals by name, see `dexloop.sim.signals`.

        Returns:
            The signals after each step. A diverged world is reported and does not spoil the others.
        """
        inputs: dict[str, np.ndarray] = {}
        if control is not None:
            inputs["ctrl"] = self._input("the control", control, self.model.nu, "actuators")
            steps = inputs["ctrl"].shape[1]
        if moving:
            inputs |= self._moved(moving, steps)
            steps = inputs["mocap_pos"].shape[1]
        if not steps or steps < 1:
            raise InputError("a rollout needs a control, or steps of at least 1")
        wanted = [signal(self.model, self.scene.roles, name) for name in record]
        fields = tuple(dict.fromkeys(name for s in wanted for name, _ in s.sources))
        before = self.engine.state()
        recorded, failed = self.engine.rollout(steps, inputs, fields)
        room = max(_MAX_DUMPS - self._dumped, 0)
        dumps = tuple(self._dump(i, before[i], inputs, steps, failed[i]) for i in list(failed)[:room])
        for i, reason in self._diverged.items():  # what diverged before has no state to go on from
            for name in fields:
                if np.issubdtype(recorded[name].dtype, np.floating):
                    recorded[name][i] = np.nan
            failed.setdefault(i, reason)
        self._diverged = dict(sorted(failed.items()))
        return Rollout({s.name: s.take(recorded) for s in wanted}, self._diverged, dumps)

    def _input(self, what: str, given: object, size: int, of: str) -> Float[Array, "n t k"]:
        array = np.asarray(given, dtype=np.float64)
        if array.ndim not in (2, 3) or array.shape[-1] != size:
            raise InputError(
                f"the scene has {size} {of}, {what} has {(0, *array.shape)[-1]}: give "
                f"[steps, {size}] or [{self.n}, steps, {size}]"
            )
        if array.ndim == 3 and array.shape[0] not in (1, self.n):
            raise InputError(f"there are {self.n} worlds, {what} is for {array.shape[0]}")
        if not np.isfinite(array).all():
            raise InputError(f"{what} holds a value that is not a finite number")
        return np.broadcast_to(array, (self.n, *array.shape[-2:]))

    def _moved(self, moving: Mapping[str, object], steps: int | None) -> dict[str, np.ndarray]:
        """Lays the poses of moved bodies side by side, those that are not named where they are."""
        paths: dict[int, np.ndarray] = {}
        hands = {self.model.body(b).name: int(k) for b, k in enumerate(self.model.body_mocapid) if k >= 0}
        for name, path in moving.items():
            if name not in hands:
                raise UnknownName("body moved by hand", name, hands, 'A body in MJCF is one with mocap="true".')
            paths[hands[name]] = self._input(f"the path of {name}", path, 7, "numbers in a pose")
            if steps is not None and paths[hands[name]].shape[1] != steps:
                raise InputError(f"the path of {name} has {paths[hands[name]].shape[1]} steps, the rest has {steps}")
            steps = paths[hands[name]].shape[1]
        assert steps is not None
        out = {}
        for name, columns in (("mocap_pos", slice(0, 3)), ("mocap_quat", slice(3, 7))):
            held = self.engine.field(name)[:, None].repeat(steps, axis=1)
            for k, path in paths.items():
                held[:, :, k] = path[..., columns]
            out[name] = held.reshape(self.n, steps, -1)
        return out

    def step(
        self, control: Float[Array, "*#n u"] | None = None, *, steps: int = 1, record: Sequence[str] = ("qpos",)
    ) -> Rollout:
        """Holds one command for some steps, as a control loop does.

        Args:
            control: For all worlds [u] or each [n, u]; None keeps what is set.
            steps: How many.
            record: Signals by name.

        Returns:
            The signals after the last step, [n, ...].
        """
        if control is not None:
            self._write_state("ctrl", control)
        out = self.rollout(steps=steps, record=record)
        return Rollout({name: value[:, -1] for name, value in out.signals.items()}, out.diverged, out.dumps)

    def state(self) -> Float[Array, "n s"]:
        """Returns everything the future depends on, except the parameters."""
        return self.engine.state()

    def set_state(self, state: Float[Array, "n s"]) -> None:
        """Puts back what `state` gave."""
        self._diverged = {}
        self.engine.set_state(state)

    def snapshot(self, i: int = 0) -> tuple[MjModel, mujoco.MjData]:
        """Returns one world's own model and data, to draw it or to look into it."""
        return self.engine.snapshot(i)

    def require_effect(
        self,
        control: Float[Array, "t u"] | None = None,
        *,
        steps: int | None = None,
        moving: Mapping[str, Float[Array, "t 7"]] | None = None,
        record: Sequence[str] = ("qpos",),
        relative: float = 0.2,
    ) -> None:
        """Checks by trying that every parameter changes the recorded signals of this motion.

        A change of less than 1e-7 (SI) is none. Each component is moved by `relative` of its value (or, where that is
        zero, of its range) in a world of its own; state and values of this world are left alone.

        Raises:
            NoEffect: A parameter moved and nothing else did.
        """
        trial = World(self.scene, self.size + 1, parameters=[p.name for p in self.parameters], dumps=self._dumps)
        trial.set_state(np.repeat(self.state()[:1], trial.n, axis=0))
        theta = np.repeat(self.values[:1], trial.n, axis=0)
        row, owner = 1, []
        for p in self.parameters:
            start = row - 1
            for k in range(p.size):
                free = p.transform.to_free(theta[0, start : start + p.size])
                step = np.log1p(relative) if _is_log(p, k) else relative * min(abs(p.bounds[1] - p.bounds[0]), 0.05)
                moved = p.transform.to_value(_replaced(free, k, free[k] + step))
                if (moved > p.bounds[1]).any():
                    moved = p.transform.to_value(_replaced(free, k, free[k] - step))
                theta[row, start : start + p.size] = moved
                owner.append(p.name)
                row += 1
        trial.set(theta)
        out = trial.rollout(control, steps=steps, moving=moving, record=record)
        silent = [
            name
            for name in dict.fromkeys(owner)
            if not any(
                np.nanmax(np.abs(out[s][1 + j] - out[s][0])) > _NOTHING
                for s in record
                for j, other in enumerate(owner)
                if other == name
            )
        ]
        if silent:
            raise NoEffect(
                f"{', '.join(silent)} changes nothing in {', '.join(record)} during this motion: try another one, "
                f"record more, or leave it out; a contact takes its friction and softness from the geom of higher "
                f"priority, and from the rougher one where they are equal"
            )

    def _shaped(self, p: Parameter, value: object) -> Float[Array, "n k"]:
        array = np.asarray(value, dtype=np.float64)
        if array.ndim == 1 and (p.size == 1 or array.shape[0] != p.size):
            array = array[:, None]
        try:
            return np.broadcast_to(array, (self.n, p.size)).copy()
        except ValueError:
            raise InputError(f"{p.name} takes [{self.n}, {p.size}] numbers, not {list(array.shape)}") from None

    def _dump(self, i: int, state: np.ndarray, inputs: Mapping[str, np.ndarray], steps: int, reason: str) -> Path:
        folder = self._dumps
        if folder is None:
            import platformdirs

            folder = Path(platformdirs.user_cache_dir("dexloop")) / "diverged"
        self._dumped += 1
        values = {p.name: self._values[p.name][i].tolist() for p in self.parameters}
        own_model, _ = self.engine.snapshot(i)
        moving = {name: rows[i].copy() for name, rows in inputs.items()}
        control = moving.pop("ctrl", None)
        return write_dump(folder, Dump(own_model, state, control, steps, reason, values, moving))


def _control_history(model: MjModel) -> dict[int, np.ndarray] | None:
    """Returns where in MjData.history each delayed actuator keeps its past commands, the oldest first.

    They are found by writing marks, since the layout of the buffer is MuJoCo's own affair.
    """
    data, found = mujoco.MjData(model), {}
    for actuator in range(model.nu):
        samples = int(model.actuator_history[actuator, 0])
        if samples > 0:
            marks = 1e6 + np.arange(samples)
            mujoco.mj_initCtrlHistory(model, data, actuator, None, marks)
            order = {float(v): k for k, v in enumerate(data.history)}
            found[actuator] = np.array([order[float(mark)] for mark in marks])
            mujoco.mj_initCtrlHistory(model, data, actuator, None, np.zeros(samples))
    return found or None


def _find(scene: Scene, names: Iterable[str]) -> tuple[Parameter, ...]:
    return parameters(scene.model, scene.roles, names)


def _is_log(p: Parameter, k: int) -> bool:
    """Whether component k of the unconstrained coordinates is a logarithm."""
    kind = type(p.transform).__name__
    return kind == "Log" or (kind == "LogCholesky" and k < 3)


def _replaced(values: np.ndarray, k: int, value: float) -> np.ndarray:
    out = values.copy()
    out[k] = value
    return out


_CONSTANT_INPUTS = frozenset(MjModel._setconst_inputs)  # pyright: ignore[reportAttributeAccessIssue]
