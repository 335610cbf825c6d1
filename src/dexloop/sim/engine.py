"""The engine behind a world, as a small interface: MuJoCo in C on all cores here, another one where it fits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
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


STICTION, STRIBECK = "slide.stiction", "slide.stribeck"
"""Fields [n, 1] that MuJoCo's models do not have: how much more friction on the table holds what is at rest than what
slides, as a ratio, and the speed over which the one becomes the other [m/s]."""
STRIBECK_M_S = 0.02
"""Where nobody says otherwise."""
_SLIDE_EVERY_S = 0.004
"""How often friction that depends on speed is set anew [s]."""
_GRIP_1_S = (10.0, 400.0)
"""How fast friction may act where it is set anew [1/s]."""


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
        self._slide: dict[str, np.ndarray] = {}

    def expand(self, field: str) -> np.ndarray:
        """Returns the live values [n, ...] of a model field, or of one of ours."""
        if field in (STICTION, STRIBECK):
            first = 1.0 if field == STICTION else STRIBECK_M_S
            return self._slide.setdefault(field, np.full((self.n, 1), first))
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
        out: dict[str | int, np.ndarray] = {**fields, _TIME: clock}
        with _quiet():
            advance = self._slid if self._slide else self._advance
            failed = advance(steps, control, spec, out)
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

    def _advance(
        self, steps: int, control: np.ndarray | None, spec: int, out: Mapping[str | int, np.ndarray]
    ) -> dict[int, str]:
        try:
            self._batch.rollout(steps, control=control, control_spec=spec, record=tuple(out), out=dict(out))
        except mujoco.batch.SimulationError as error:
            return {int(i): self._batch.error(int(i)) for i in error.ids}
        return {}

    def _slid(
        self, steps: int, control: np.ndarray | None, spec: int, out: Mapping[str | int, np.ndarray]
    ) -> dict[int, str]:
        """Advances a few steps at a time, and sets the table's friction in between by how fast objects slide.

        Friction also acts as fast as that speed allows (`table.grip`): so nothing hops, however fast it slides.
        """
        pairs, dofs = _sliding_pairs(self.model)
        friction, grip = self._batch.expand("pair_friction"), self._batch.expand("pair_solreffriction")
        sliding, gripping = friction[:, pairs, 0].copy(), grip[:, pairs, 1].copy()
        stiction, stribeck = self.expand(STICTION), self.expand(STRIBECK)
        velocity = self._batch.bind("qvel")
        every = max(round(_SLIDE_EVERY_S / self.model.opt.timestep), 1)
        failed: dict[int, str] = {}
        for k in range(0, steps, every):
            speed = np.hypot(velocity[:, dofs], velocity[:, dofs + 1])
            now = sliding * (1.0 + (stiction - 1.0) * np.exp(-((speed / stribeck) ** 2)))
            friction[:, pairs, 0] = friction[:, pairs, 1] = now
            grip[:, pairs, 1] = -np.clip(2.0 * now * 9.81 / np.maximum(speed, 1e-3), *_GRIP_1_S)
            span = slice(k, min(k + every, steps))
            piece = {name: np.ascontiguousarray(value[:, span]) for name, value in out.items()}
            part = None if control is None else control[:, span]
            failed |= self._advance(span.stop - k, part, spec, piece)
            for name, value in piece.items():
                out[name][:, span] = value
        friction[:, pairs, 0] = friction[:, pairs, 1] = sliding
        grip[:, pairs, 1] = gripping
        return failed

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


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps MuJoCo from printing that a simulation is unstable, and from writing a file about it wherever one is: that
    it failed is said to whoever asked for it."""
    previous = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(previous)


def _sliding_pairs(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Returns named contacts of free bodies with what stands, and where each body's velocity begins in qvel."""
    pairs, dofs = [], []
    for k, geoms in enumerate(zip(model.pair_geom1, model.pair_geom2, strict=True)):
        bodies = [int(model.geom_bodyid[g]) for g in geoms]
        standing = [model.body_weldid[b] == 0 for b in bodies]
        if sum(standing) == 1:
            joint = int(model.body_jntadr[bodies[standing.index(False)]])
            if joint >= 0 and model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
                pairs.append(k)
                dofs.append(int(model.jnt_dofadr[joint]))
    return np.array(pairs, dtype=int), np.array(dofs, dtype=int)
