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


@dataclass(frozen=True, eq=False)
class Rollout:
    """What was recorded."""

    signals: Mapping[str, np.ndarray]
    """By name, [n, steps, ...]: the value after each step."""
    diverged: Mapping[int, str] = field(default_factory=dict)
    """Worlds that became unstable, and why. Their signals repeat the last good value."""
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
            where = f"; replay it: dexloop sim replay {self.dumps[0]}" if self.dumps else ""
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
        self._dumps = dumps
        self._history = _ControlHistory.of(scene.model)
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
        return np.concatenate([self._values[p.name] for p in self.parameters], axis=1)

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
            theta = np.broadcast_to(np.asarray(values, dtype=np.float64), (self.n, self.size))
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

        for p in self.parameters:
            # A parameter is written again if another one was, for they may share a field (mass scales the inertia).
            value = self._shaped(p, values[p.name]) if p.name in values else self._values[p.name]
            p.write(expand, self.model, value)
            self._values[p.name] = value
        self.engine.commit(constants=bool(written & _CONSTANT_INPUTS))

    def reset(
        self,
        *,
        qpos: Float[Array, "*#n q"] | None = None,
        qvel: Float[Array, "*#n v"] | None = None,
        ctrl: Float[Array, "*#n u"] | None = None,
    ) -> None:
        """Puts all worlds into the scene's initial state, or the given one.

        Args:
            qpos: Positions, for all worlds or each.
            qvel: Velocities.
            ctrl: Commands; they also fill the past that delayed actuators look back to.
        """
        self.engine.reset()
        for name, value in (("qpos", qpos), ("qvel", qvel), ("ctrl", ctrl)):
            if value is not None:
                self.engine.field(name)[...] = value
        if ctrl is not None and self._history is not None:
            self.engine.field("history")[:, self._history.entries] = np.broadcast_to(
                np.asarray(ctrl, dtype=np.float64), (self.n, self.model.nu)
            )[:, self._history.controls]

    def rollout(
        self,
        control: Float[Array, "*#n t u"] | None = None,
        *,
        steps: int | None = None,
        record: Sequence[str] = ("qpos",),
    ) -> Rollout:
        """Advances all worlds in one call.

        Args:
            control: Commands before each step, for all worlds [t, u] or each [n, t, u]; None keeps what is set.
            steps: How many; taken from `control` if it is given.
            record: Signals by name, see `dexloop.sim.signals`.

        Returns:
            The signals after each step. A diverged world is reported and does not spoil the others.
        """
        if control is not None:
            control = np.asarray(control, dtype=np.float64)
            control = np.broadcast_to(control, (self.n, *control.shape[-2:]))
            if control.shape[-1] != self.model.nu:
                raise InputError(f"the scene has {self.model.nu} actuators, the control has {control.shape[-1]}")
            steps = control.shape[1]
        if not steps or steps < 1:
            raise InputError("a rollout needs a control, or steps of at least 1")
        wanted = [signal(self.model, self.scene.roles, name) for name in record]
        fields = tuple(dict.fromkeys(name for s in wanted for name, _ in s.sources))
        before = self.engine.state()
        recorded, failed = self.engine.rollout(steps, control, fields)
        dumps = tuple(self._dump(i, before[i], control, steps, failed[i]) for i in list(failed)[:_MAX_DUMPS])
        return Rollout({s.name: s.take(recorded) for s in wanted}, failed, dumps)

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
            self.engine.field("ctrl")[...] = control
        out = self.rollout(steps=steps, record=record)
        return Rollout({name: value[:, -1] for name, value in out.signals.items()}, out.diverged, out.dumps)

    def state(self) -> Float[Array, "n s"]:
        """Returns everything the future depends on, except the parameters."""
        return self.engine.state()

    def set_state(self, state: Float[Array, "n s"]) -> None:
        """Puts back what `state` gave."""
        self.engine.set_state(state)

    def snapshot(self, i: int = 0) -> tuple[MjModel, mujoco.MjData]:
        """Returns one world's own model and data, to draw it or to look into it."""
        return self.engine.snapshot(i)

    def require_effect(
        self,
        control: Float[Array, "t u"] | None = None,
        *,
        steps: int | None = None,
        record: Sequence[str] = ("qpos",),
        relative: float = 0.2,
    ) -> None:
        """Checks by trying that every parameter changes the recorded signals of this motion.

        Each component is moved by `relative` of its value (or, where that is zero, of its range) in a world of its
        own; state and values of this world are left alone.

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
                span = abs(p.bounds[1] - p.bounds[0])
                moved = free[k] + (np.log1p(relative) if _is_log(p, k) else relative * min(span, 0.05))
                if not _is_log(p, k) and moved > p.bounds[1]:
                    moved = free[k] - relative * min(span, 0.05)
                theta[row, start : start + p.size] = p.transform.to_value(_replaced(free, k, moved))
                owner.append(p.name)
                row += 1
        trial.set(theta)
        out = trial.rollout(control, steps=steps, record=record)
        silent = [
            name
            for name in dict.fromkeys(owner)
            if not any(
                np.abs(out[s][1 + j] - out[s][0]).max() > 1e-12
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

    def _dump(self, i: int, state: np.ndarray, control: np.ndarray | None, steps: int, reason: str) -> Path:
        folder = self._dumps
        if folder is None:
            import platformdirs

            folder = Path(platformdirs.user_cache_dir("dexloop")) / "diverged"
        values = {p.name: self._values[p.name][i].tolist() for p in self.parameters}
        own_model, _ = self.engine.snapshot(i)
        own = None if control is None else control[i].copy()
        return write_dump(folder, Dump(own_model, state, own, steps, reason, values))


@dataclass(frozen=True, eq=False)
class _ControlHistory:
    """Where delayed actuators keep their past commands."""

    entries: np.ndarray
    """Positions in MjData.history."""
    controls: np.ndarray
    """The control that each holds."""

    @staticmethod
    def of(model: MjModel) -> _ControlHistory | None:
        """Finds them by writing a mark, since the layout of the buffer is MuJoCo's own affair."""
        data = mujoco.MjData(model)
        entries, controls = [], []
        for a in range(model.nu):
            samples = int(model.actuator_history[a, 0])
            if samples < 1:
                continue
            before = data.history.copy()
            mujoco.mj_initCtrlHistory(model, data, a, None, np.full(samples, 1234.5))
            found = np.flatnonzero(data.history != before)
            entries.append(found)
            controls.append(np.full(len(found), a))
        return _ControlHistory(np.concatenate(entries), np.concatenate(controls)) if entries else None


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
