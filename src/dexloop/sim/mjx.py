"""Derivatives of a motion by automatic differentiation through MJX: the second gradient engine.

The first one is finite differences over a batch of worlds (`dexloop.sim.world`), which is faster on a CPU and knows all
of MuJoCo. This one has no step size to choose, and checks the first. It needs the extra `mjx`.

MJX runs elliptic and pyramidal cones, condim 3, 4 and 6, contacts named as pairs, boxes, convex meshes (slow from some
30 vertices on), the Euler and implicitfast integrators. It knows no delay buffers, no noslip iterations, and cylinders
and ellipsoids only among round shapes; a scene that needs them is refused. Its implicitfast lacks the gyroscopic
derivatives of free bodies that MuJoCo's has since 4.0: per step, a tumbling object differs by some (h·ω)².
"""

from __future__ import annotations

import contextlib
import copy
import io
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.errors import Diverged, InputError, MissingPart, NoEffect, TrialError, UnknownName
from dexloop.sim.parameters import Parameter, parameters
from dexloop.sim.scene import Scene
from dexloop.sim.signals import signal

try:
    import jax
    import jax.numpy as jnp

    with contextlib.redirect_stdout(io.StringIO()):  # it prints that it has no GPU backend, which is not asked for
        from mujoco import mjx
        from mujoco.mjx._src.solver import Context  # the balance of forces, which the public interface does not give
except ImportError as error:
    raise MissingPart("MJX is not installed: pip install 'dexloop[mjx]'") from error

Array = np.ndarray
_STEP = 1e-5
"""Of central differences of model fields, in unconstrained coordinates: they are exp, products and sums, so that what
is neglected is some 1e-10 of the derivative."""
_COMPILER: dict[str, Any] = {"xla_backend_optimization_level": 1}
"""Compiles a third faster than by default, and runs as fast."""
_FREE, _BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)
_INTEGRATORS = {
    int(mujoco.mjtIntegrator.mjINT_EULER): mjx.euler,
    int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST): mjx.implicit,
}


class Sensitivities:
    """Signals of one motion and their derivatives, compiled once for each number of steps.

    Parameter values reach the model through the same functions as in a `World`, so that both engines mean the same by
    them, derived constants included. From the model fields on it is `jax.jacfwd` through `jax.lax.scan`, in double
    precision.

    Args:
        scene: What is simulated.
        names: Parameters by name, such as "object.mass".
        record: Signals by name, see `dexloop.sim.signals`.

    Raises:
        InputError: MJX cannot simulate the scene, or not differentiate by a parameter.
        NoEffect: A parameter has no effect on any motion.
        UnknownName: A parameter or signal does not exist.
    """

    def __init__(self, scene: Scene, names: Iterable[str], record: Sequence[str] = ("qpos",)):
        self.parameters: tuple[Parameter, ...] = parameters(scene.model, scene.roles, names)
        """In the order of the Jacobians' last axis, as in a `World`."""
        self.compile_s = 0.0
        """Time spent on compiling so far [s]; tens of seconds where boxes or meshes touch."""
        if not self.parameters:
            raise InputError("name at least one parameter to differentiate by")
        _refuse(scene.model)
        self._nominal = scene.model
        self._signals = [signal(scene.model, scene.roles, name) for name in record]
        for s in self._signals:
            if s.convert is not None:
                raise InputError(f"MJX does not differentiate {s.name}: record something else, or use World")
        self._recorded = tuple(dict.fromkeys(field for s in self._signals for field, _ in s.sources))
        self._programs: dict[int, Any] = {}
        # A joint friction of zero is made a little larger here: MJX leaves out what is zero when a model is compiled.
        start = np.concatenate([np.clip(p.nominal, *p.bounds) for p in self.parameters])
        with jax.enable_x64(True):
            try:
                self._model = mjx.put_model(self._written(start)[0])
                self._data = mjx.make_data(self._model)
            except NotImplementedError as error:
                raise InputError(f"MJX cannot simulate this scene ({error}): use World for it") from error
        for name in self._recorded:
            if name not in {f.name for f in self._data.fields()}:
                raise InputError(f"MJX does not give {name}: record something else, or use World")
        self._fields = self._varying(start)

    def __call__(
        self,
        values: Mapping[str, object] | Float[Array, " p"],
        control: Float[Array, "t u"],
        *,
        qpos: Float[Array, " q"] | None = None,
        qvel: Float[Array, " v"] | None = None,
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Rolls out one motion.

        Args:
            values: Parameter values by name, or all side by side. What is not named keeps the model's own.
            control: Commands before each step.
            qpos: Initial positions; None for the scene's.
            qvel: Initial velocities; None for rest.

        Returns:
            The signals after each step, [t, c], and their derivatives with respect to the unconstrained coordinates of
            the parameters, [t, c, p].

        Raises:
            InputError: A value or a shape does not fit.
            Diverged: The motion became unstable.
            TrialError: The motion is fine but its derivative is not a number.
        """
        theta, model = self._checked(values), self._nominal
        control = _shaped("control", control, (None, model.nu))
        qpos = model.qpos0 if qpos is None else _shaped("qpos", qpos, (model.nq,))
        qvel = np.zeros(model.nv) if qvel is None else _shaped("qvel", qvel, (model.nv,))
        with jax.enable_x64(True):
            inputs = jax.tree.map(jnp.asarray, (*self._linearised(theta), qpos, qvel, control))
            steps = len(control)
            if steps not in self._programs:
                start = time.perf_counter()
                self._programs[steps] = jax.jit(self._run).lower(*inputs).compile(_COMPILER)
                self.compile_s += time.perf_counter() - start
            slopes, recorded = jax.tree.map(np.asarray, self._programs[steps](*inputs))
        if not all(np.isfinite(array).all() for array in recorded.values()):
            raise Diverged("MJX became unstable during this motion: try other values or a shorter time step")
        if not all(np.isfinite(array).all() for array in slopes.values()):
            raise TrialError("MJX gave a derivative that is not a number: use finite differences for this motion")
        worlds = {name: array[None] for name, array in recorded.items()}
        slopes = {name: np.moveaxis(array, -1, 0) for name, array in slopes.items()}
        return (
            {s.name: s.take(worlds)[0] for s in self._signals},
            {s.name: np.moveaxis(s.take(slopes), 0, -1) for s in self._signals},
        )

    def _run(self, fields: Any, slopes: Any, qpos: Any, qvel: Any, control: Any) -> Any:
        """Returns derivatives [t, ..., p] and values [t, ...] of the recorded fields."""

        def roll(delta: Any) -> Any:
            model = self._model.replace(
                **{name: fields[name] + jnp.tensordot(delta, slopes[name], 1) for name in fields}
            )

            def advance(state: Any, command: Any) -> Any:
                data = _step(model, self._data.replace(**state, ctrl=command))
                return {name: getattr(data, name) for name in state}, {n: getattr(data, n) for n in self._recorded}

            state = {"qpos": qpos, "qvel": qvel}
            state |= {name: getattr(self._data, name) for name in ("act", "qacc_warmstart", "time")}
            recorded = jax.lax.scan(advance, state, control)[1]
            return recorded, recorded

        return jax.jacfwd(roll, has_aux=True)(jnp.zeros(sum(p.size for p in self.parameters)))

    def _checked(self, values: Mapping[str, object] | np.ndarray) -> Float[Array, " p"]:
        if isinstance(values, Mapping):
            names = [p.name for p in self.parameters]
            if unknown := [name for name in values if name not in names]:
                raise UnknownName("parameter", unknown[0], names, "Name it where the sensitivities are made.")
            given = [_shaped(p.name, values.get(p.name, p.nominal), (p.size,)) for p in self.parameters]
        else:
            sizes = [p.size for p in self.parameters]
            given = np.split(_shaped("values", values, (sum(sizes),)), np.cumsum(sizes)[:-1])
        for p, value in zip(self.parameters, given, strict=True):
            p.check(value[None])
        return np.concatenate(given)

    def _written(self, theta: Float[Array, " p"]) -> tuple[mujoco.MjModel, dict[str, set[str]]]:
        """Returns a model with these values, and the fields that each parameter wrote."""
        model, written, end = copy.copy(self._nominal), {}, 0
        for p in self.parameters:
            mine = written.setdefault(p.name, set())

            def expand(field: str, mine: set[str] = mine) -> np.ndarray:
                mine.add(field)
                return getattr(model, field)[None]

            p.write(expand, self._nominal, theta[None, end : end + p.size])
            end += p.size
        mujoco.mj_setConst(model, mujoco.MjData(model))
        return model, written

    def _varying(self, theta: Float[Array, " p"]) -> tuple[str, ...]:
        """Returns the fields of MJX's model that change with the parameters, derived constants included."""
        arrays = [f.name for f in self._model.fields() if _is_real(getattr(self._model, f.name))]
        for p in self.parameters:
            if p.quantity.on == "cameras":
                raise NoEffect(f"{p.name} has no effect: a camera moves nothing")
            if p.quantity.name == "inertia":
                raise InputError(f"{p.name} is written as principal axes, which have no derivative where two are alike")
        _, written = self._written(theta)
        for name, fields in written.items():
            if missing := fields - set(arrays):
                raise InputError(f"MJX has no {', '.join(sorted(missing))}, so not {name}: leave it out, or use World")
        moved = [pair for k in range(len(theta)) for pair in self._pair(theta, k)]
        return tuple(f for f in arrays if any(np.any(getattr(m, f) != getattr(moved[0], f)) for m in moved))

    def _pair(self, theta: Float[Array, " p"], k: int) -> tuple[mujoco.MjModel, mujoco.MjModel]:
        """Returns the models a small step to either side of a value in component k."""
        free, sizes = [], [p.size for p in self.parameters]
        for p, value in zip(self.parameters, np.split(theta, np.cumsum(sizes)[:-1]), strict=True):
            free.append(p.transform.to_free(value))
        models = []
        for sign in (1.0, -1.0):
            moved = np.split(np.concatenate(free) + sign * _STEP * np.eye(len(theta))[k], np.cumsum(sizes)[:-1])
            values = [p.transform.to_value(f) for p, f in zip(self.parameters, moved, strict=True)]
            models.append(self._written(np.concatenate(values))[0])
        return models[0], models[1]

    def _linearised(self, theta: Float[Array, " p"]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Returns the varying fields at a value, and their derivatives [p, ...] in unconstrained coordinates."""
        model, _ = self._written(theta)
        pairs = [self._pair(theta, k) for k in range(len(theta))]
        slopes = {
            f: np.stack([(getattr(above, f) - getattr(below, f)) / (2 * _STEP) for above, below in pairs])
            for f in self._fields
        }
        return {f: getattr(model, f).copy() for f in self._fields}, slopes


_made: weakref.WeakKeyDictionary[Scene, dict[Any, Sensitivities]] = weakref.WeakKeyDictionary()


def sensitivities(
    scene: Scene,
    names: Sequence[str],
    values: Mapping[str, object] | Float[Array, " p"],
    *,
    control: Float[Array, "t u"],
    qpos: Float[Array, " q"] | None = None,
    qvel: Float[Array, " v"] | None = None,
    record: Sequence[str] = ("qpos",),
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Rolls out one motion and differentiates it; see `Sensitivities`, of which it keeps one for each scene and names.

    Returns:
        Signals [t, c] by name, and their derivatives [t, c, p] with respect to the unconstrained coordinates of the
        parameters, in the order of `World(scene, parameters=names).parameters`.
    """
    kept = _made.setdefault(scene, {})
    key = (tuple(names), tuple(record))
    if key not in kept:
        kept[key] = Sensitivities(scene, names, record)
    return kept[key](values, control, qpos=qpos, qvel=qvel)


def _step(model: Any, data: Any) -> Any:
    """Does what `mjx.step` does, but for how the solver and rotations are differentiated."""
    for stage in (
        mjx.fwd_position, mjx.sensor_pos, mjx.fwd_velocity, mjx.sensor_vel, mjx.fwd_actuation, mjx.fwd_acceleration,
        _solve, mjx.sensor_acc,
    ):  # fmt: skip
        data = stage(model, data)
    return _turn(model, data.qpos, _INTEGRATORS[int(model.opt.integrator)](model, data))


def _solve(model: Any, data: Any) -> Any:
    """Finds the acceleration with MJX's solver, and its derivative from the balance of forces that it fulfils.

    With r(a, θ) = M a - f_smooth - f_constraint(a) = 0 the derivative is da/dθ = -(∂r/∂a)⁻¹ ∂r/∂θ. Differentiating the
    solver's iterations instead gives NaN for elliptic cones as soon as one possible contact is open.
    """
    if data._impl.efc_J.size == 0:
        return data.replace(qacc=data.qacc_smooth)
    model_now, data_now = jax.lax.stop_gradient((model, data))
    found = mjx.solve(model_now, data_now).qacc

    def unbalanced(qacc: Any, m: Any, d: Any) -> Any:
        forces = Context.create(m, d.replace(qacc=qacc), grad=False)
        return forces.Ma - d.qfrc_smooth - forces.qfrc_constraint

    hessian = jax.jacfwd(unbalanced)(found, model_now, data_now)
    qacc = found - jnp.linalg.solve(hessian, unbalanced(found, model, data))
    data = data.replace(qacc=qacc, qfrc_constraint=mjx.mul_m(model, data, qacc) - data.qfrc_smooth)
    if model.nsensor:  # some are read from contact forces
        data = data.tree_replace({"_impl.efc_force": Context.create(model, data, grad=False).efc_force})
    return data


def _turn(model: Any, before: Any, data: Any) -> Any:
    """Integrates rotations again, for MJX takes that of a body at rest to be independent of its angular velocity."""
    qpos = data.qpos
    for joint in np.flatnonzero(np.isin(model.jnt_type, (_FREE, _BALL))):
        skip = 3 if model.jnt_type[joint] == _FREE else 0
        q, v = int(model.jnt_qposadr[joint]) + skip, int(model.jnt_dofadr[joint]) + skip
        half = 0.5 * model.opt.timestep * data.qvel[v : v + 3]
        square = half @ half
        tiny = square < 1e-10
        angle = jnp.sqrt(jnp.where(tiny, 1.0, square))
        # The rotation [cos |h|, h sin |h| / |h|], and its series where |h| is tiny.
        turn = jnp.append(
            jnp.where(tiny, 1.0 - square / 2.0, jnp.cos(angle)),
            half * jnp.where(tiny, 1.0 - square / 6.0, jnp.sin(angle) / angle),
        )
        (w, x, y, z), old = turn, before[q : q + 4]
        right = jnp.array([[w, -x, -y, -z], [x, w, z, -y], [y, -z, w, x], [z, y, -x, w]])  # old times turn
        new = right @ old
        qpos = qpos.at[q : q + 4].set(new / jnp.linalg.norm(new))
    return data.replace(qpos=qpos)


def _refuse(model: mujoco.MjModel) -> None:
    """Refuses what MJX would leave out without a word."""
    if model.opt.noslip_iterations > 0:
        raise InputError("MJX has no noslip iterations: compose with noslip_iterations=0, or use World")
    if model.actuator_delay.any() or model.sensor_delay.any():
        raise InputError("MJX has no delays: set them to zero, or use World")
    if int(model.opt.integrator) not in _INTEGRATORS:
        raise InputError("MJX is differentiated with the Euler and implicitfast integrators only: choose one of them")


def _is_real(value: object) -> bool:
    return isinstance(value, jax.Array) and bool(jnp.issubdtype(value.dtype, jnp.floating))


def _shaped(name: str, value: object, shape: tuple[int | None, ...]) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    array = array[None] if array.ndim == 0 else array
    if array.ndim != len(shape) or any(n is not None and n != m for n, m in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("steps" if n is None else str(n) for n in shape)
        raise InputError(f"{name} takes [{wanted}] numbers, not {list(array.shape)}")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds a value that is not a finite number")
    return array
