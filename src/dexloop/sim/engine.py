"""The engine behind a world, as a small interface: MuJoCo in C on all cores here, another one where it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import mujoco
import mujoco.batch
import numpy as np
from jaxtyping import Float

_TIME = int(mujoco.mjtState.mjSTATE_TIME)
INPUTS: dict[str, int] = {
    "ctrl": int(mujoco.mjtState.mjSTATE_CTRL),
    "mocap_pos": int(mujoco.mjtState.mjSTATE_MOCAP_POS),
    "mocap_quat": int(mujoco.mjtState.mjSTATE_MOCAP_QUAT),
}
"""What a rollout may be given step by step, in the order in which MuJoCo lays it side by side."""


@runtime_checkable
class Engine(Protocol):
    """n simulations of one model, each with its own values of some model fields."""

    model: mujoco.MjModel
    n: int

    def expand(self, field: str) -> np.ndarray:
        """Returns the live values [n, ...] of a model field; call `commit` after writing."""
        ...

    def commit(self, *, constants: bool) -> None:
        """Makes written fields count; `constants` if any of them is one that derived constants depend on."""
        ...

    def field(self, name: str) -> np.ndarray:
        """Returns the live state field [n, ...] of that name (qpos, qvel, ctrl, history, ...)."""
        ...

    def reset(self) -> None:
        """Puts all simulations into the model's initial state."""
        ...

    def state(self) -> Float[np.ndarray, "n s"]:
        """Returns a copy of everything the future depends on."""
        ...

    def set_state(self, state: Float[np.ndarray, "n s"]) -> None:
        """Puts back what `state` gave."""
        ...

    def rollout(
        self, steps: int, inputs: Mapping[str, Float[np.ndarray, "n t k"]], record: Sequence[str]
    ) -> tuple[Mapping[str, np.ndarray], dict[int, str]]:
        """Advances all simulations, recording MjData fields [n, t, ...] after each step.

        Args:
            steps: How many.
            inputs: By name, see `INPUTS`; what is not named keeps its value.
            record: Names of MjData fields.

        Returns:
            The recorded fields, and the simulations that failed with the reason; theirs are NaN from there on.
        """
        ...

    def snapshot(self, i: int) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """Returns one simulation's own model and data, forwarded, to draw it or to look into it."""
        ...


class CpuEngine:
    """MuJoCo in C on the CPU's cores, through `mujoco.batch`.

    Args:
        model: What is simulated.
        n: How many simulations.
        threads: 0 for all cores.
    """

    def __init__(self, model: mujoco.MjModel, n: int, threads: int = 0):
        self.model, self.n = model, n
        self._batch = mujoco.batch.Batch(model, nsim=n, nthread=threads)
        self._time = self._batch.bind("time")
        self._sample = mujoco.MjData(model)

    def expand(self, field: str) -> np.ndarray:
        """Returns the live values [n, ...] of a model field."""
        return self._batch.expand(field)

    def commit(self, *, constants: bool) -> None:
        """Recomputes derived constants where they are concerned."""
        if constants:
            self._batch.set_const()

    def field(self, name: str) -> np.ndarray:
        """Returns the live state field [n, ...]."""
        return self._batch.bind(name)

    def reset(self) -> None:
        """Puts all simulations into the model's initial state."""
        self._batch.reset(stage=int(mujoco.mjtStage.mjSTAGE_NONE))

    def state(self) -> Float[np.ndarray, "n s"]:
        """Returns a copy of MuJoCo's integration state."""
        return self._batch.state.copy()

    def set_state(self, state: Float[np.ndarray, "n s"]) -> None:
        """Puts back what `state` gave."""
        self._batch.state[...] = state

    def rollout(
        self, steps: int, inputs: Mapping[str, Float[np.ndarray, "n t k"]], record: Sequence[str]
    ) -> tuple[Mapping[str, np.ndarray], dict[int, str]]:
        """Advances all simulations in one call."""
        given = [name for name in INPUTS if name in inputs]
        spec = sum(INPUTS[name] for name in given)
        control = np.concatenate([inputs[name] for name in given], axis=-1) if len(given) > 1 else None
        if len(given) == 1:
            control = inputs[given[0]]
        start = self._time.copy()
        fields = {name: self._buffer(name, steps) for name in record}
        clock = np.zeros((self.n, steps, 1))
        failed: dict[int, str] = {}
        try:
            self._batch.rollout(
                steps, control=control, control_spec=spec, record=(*record, _TIME), out={**fields, _TIME: clock}
            )
        except mujoco.batch.SimulationError as error:
            failed = {int(i): self._batch.error(int(i)) for i in error.ids}
        # MuJoCo stops (or resets) a simulation whose numbers blow up: then its clock is not where it should be.
        due = start[:, None] + self._timesteps() * np.arange(1, steps + 1)
        late = ~(np.abs(clock[..., 0] - due) < 0.5 * self.model.opt.timestep)
        for i in np.flatnonzero(late[:, -1]):
            failed.setdefault(int(i), "its numbers became too large to go on")
        for i in failed:
            bad = int(np.argmax(late[i])) if late[i].any() else 0
            for name in record:
                if np.issubdtype(fields[name].dtype, np.floating):
                    fields[name][i, bad:] = np.nan  # what MuJoCo left there looks like numbers, and is not
        return fields, failed

    def snapshot(self, i: int) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """Returns one simulation's own model and data, forwarded."""
        model, data = self._batch.get_model(i), self._batch.get_data(i)
        mujoco.mj_forward(model, data)
        return model, data

    def _timesteps(self) -> np.ndarray | float:
        own = self._batch.expanded("opt.timestep")
        return self.model.opt.timestep if own is None else own.reshape(self.n, 1)

    def _buffer(self, name: str, steps: int) -> np.ndarray:
        like = np.asarray(getattr(self._sample, name))
        return np.zeros((self.n, steps, *like.shape), dtype=like.dtype)
