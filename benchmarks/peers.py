"""The peers of `identify` on one shared problem: `mujoco.sysid`, and automatic differentiation through MJX.

Each is used as its own documentation asks. `problem()` is what all of them solve, dexloop's solver too. By itself,
`python -m benchmarks.peers` prints what they take.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.identify.problem import Problem
from dexloop.identify.segments import Segment
from dexloop.identify.solver import Solver
from dexloop.identify.streams import POSE_AXES, Drive, Measured
from dexloop.identify.unknowns import model_unknown
from dexloop.sim.parts import Primitive, Table, Thing
from dexloop.sim.scene import Scene, SceneCfg, compose
from dexloop.sim.world import World

Array = np.ndarray
STEPS = 750
NOISE = {"object.pose": 2e-4, "joint.position": 5e-5, "actuator.force": 0.05}
"""Standard deviation of what is measured [m and 1, m, N]."""
_KP, _KV = 500.0, 20.0
"""Of the servo, what its gain and damping are factors of [N/m, N·s/m]."""
_MJX_ITERATIONS = (4, 8)
"""Of MJX's solver and its line search: as few as its documentation asks for."""
_LEAST_S = 1.0
"""What is quick is timed for at least this long [s]."""


@dataclass(frozen=True, eq=False)
class SharedProblem:
    """One push, and four unknowns."""

    scene: Scene
    """With the start values: what a user has at hand."""
    control: Float[Array, "t u"]
    """Commands before each step."""
    times_s: Float[Array, " t"]
    """Of what was measured, after each step [s]."""
    measured: Mapping[str, Float[Array, "t c"]]
    """By signal, with noise."""
    noise: Mapping[str, float]
    """Standard deviation by signal."""
    start: Mapping[str, float]
    """Values to start from, by parameter."""
    truth: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]]

    def residual(self, values: Mapping[str, float]) -> Float[Array, " r"]:
        """Returns (predicted - measured) / noise, all signals one after the other."""
        world = World(self.scene, parameters=list(self.truth))
        world.set(values)
        out = world.rollout(self.control, record=list(self.measured)).require()
        return np.concatenate([((out[n][0] - y) / self.noise[n]).ravel() for n, y in self.measured.items()])

    def cost(self, values: Mapping[str, float]) -> float:
        """Returns half the sum of squares of the residual: the same figure for all, whatever each minimises itself."""
        return 0.5 * float(np.sum(self.residual(values) ** 2))


@dataclass(frozen=True, eq=False)
class Timing:
    """What a peer took, and where it ended."""

    jacobian_s: float
    """Time for one residual and its Jacobian at the start values, the best of several [s]."""
    jacobian: Float[Array, "r p"]
    """Of `SharedProblem.residual` by the logarithms of the unknowns."""
    total_s: float = np.nan
    """Time of the whole fit [s]."""
    iterations: int = 0
    cost: float = np.nan
    """`SharedProblem.cost` at the end."""
    values: Mapping[str, float] = field(default_factory=dict)
    """At the end."""
    compile_s: float = 0.0
    """Time for compiling, not part of the others [s]."""


class _Pusher:
    """A ball on a slide, driven by a position servo."""

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Adds it to the specification."""
        body = spec.worldbody.add_body(name="pusher", pos=[-0.06, 0.0, 0.03])
        body.add_joint(name="slide", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[1, 0, 0], damping=1.0, armature=0.05)
        body.add_geom(
            name="ball", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.015, 0, 0], mass=0.2, friction=[0.3, 0.003, 1e-4],
            priority=2,
        )  # fmt: skip
        servo = spec.add_actuator(name="servo", target="slide", trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.set_to_position(kp=_KP, kv=_KV)


def problem(*, seed: int = 0, steps: int = STEPS) -> SharedProblem:
    """Returns the shared problem: a box pushed over a table with growing speed, stopped and left to slide.

    The measurements come from the true values, with white noise. The start is twice the true mass and off in the rest.
    """
    truth = {"object.mass": 0.12, "table.friction": 0.35, "actuator.gain": 1.1, "actuator.damping": 0.9}
    start = {"object.mass": 0.24, "table.friction": 0.5, "actuator.gain": 1.0, "actuator.damping": 1.0}
    bounds = {
        "object.mass": (0.02, 1.0), "table.friction": (0.05, 1.5), "actuator.gain": (0.3, 3.0),
        "actuator.damping": (0.3, 3.0),
    }  # fmt: skip
    box = Thing("box", Primitive("box", (0.03, 0.03, 0.03)), start["object.mass"], pose=(0, 0, 0.03, 1, 0, 0, 0))
    scene = compose(Table(friction=start["table.friction"]), box, _Pusher(), cfg=SceneCfg(max_delay_s=0.0))
    t = np.arange(steps) * scene.model.opt.timestep
    # Faster and faster, so that inertia shows beside friction; then held, so that the box slides on by itself.
    command = 0.14 * np.clip(t / 0.9, 0.0, 1.0) ** 2
    world = World(scene, parameters=list(truth))
    world.set(truth)
    out = world.rollout(command[:, None], record=list(NOISE)).require()
    rng = np.random.default_rng(seed)
    measured = {name: out[name][0] + rng.normal(0.0, sd, out[name][0].shape) for name, sd in NOISE.items()}
    times_s = t + scene.model.opt.timestep
    return SharedProblem(scene, command[:, None], times_s, measured, NOISE, start, truth, bounds)


def growth() -> dict[str, list[tuple[int, float]]]:
    """Returns what a Jacobian of dexloop's solver takes [s] with more steps, recordings and unknowns."""
    shared = problem()
    names = list(shared.start)
    segment = _segment(shared)

    def seconds(names: Sequence[str], segments: Sequence[Segment]) -> float:
        solver = Solver(Problem(shared.scene, [model_unknown(shared.scene, n) for n in names], segments))
        start = solver.start()
        return _best(lambda: solver.assess(start))

    longer = {n: _segment(problem(steps=n)) for n in (375, 750, 1500)}
    return {
        "steps": [(n, seconds(names, [longer[n]])) for n in longer],
        "recordings": [(n, seconds(names, [segment] * n)) for n in (1, 2, 4)],
        "unknowns": [(n, seconds(names[:n], [segment])) for n in (1, 2, 4)],
    }


def run_solver(shared: SharedProblem) -> Timing:
    """Fits with dexloop's solver from the same start; nothing is looked for but the four unknowns."""
    scene = shared.scene
    unknowns = []
    for name, value in shared.start.items():
        u = model_unknown(scene, name)
        low, high = (np.log(np.array([b])) for b in shared.bounds[name])
        unknowns.append(replace(u, mean=np.log(np.array([value])), lower=low, upper=high))
    segment = _segment(shared)

    def prepare() -> Solver:
        return Solver(Problem(scene, unknowns, [segment]))

    solver = prepare()
    start = solver.start()
    jacobian_s = _best(lambda: solver.assess(start))
    begin = time.perf_counter()
    fitted = prepare().descend(start)
    total_s = time.perf_counter() - begin
    values = {u.name: float(u.value(fitted.theta[solver.problem.where(u.name)])[0]) for u in unknowns}
    return Timing(
        jacobian_s,
        np.zeros((0, 4)),
        total_s=total_s,
        iterations=fitted.iterations,
        cost=shared.cost(values),
        values=values,
    )


def _segment(shared: SharedProblem) -> Segment:
    """Returns the shared problem as dexloop sees a recording."""
    model = shared.scene.model
    adr = int(model.jnt_qposadr[model.body_jntadr[model.body("box").id]])
    slide, dof = int(model.joint("slide").qposadr[0]), int(model.joint("slide").dofadr[0])
    dt = float(model.opt.timestep)
    kinds = {
        "object.pose": ("pose", "qpos", list(range(adr, adr + 7)), POSE_AXES, shared.times_s),
        "joint.position": ("joint_position", "qpos", [slide], ("slide",), shared.times_s),
        # Forces are those that led to a step, so they belong to its beginning.
        "actuator.force": ("joint_effort", "qfrc_actuator", [dof], ("slide",), shared.times_s - dt),
    }
    measured = []
    for name, (kind, where, columns, channels, t) in kinds.items():
        value = shared.measured[name]
        noise = np.full(len(channels), shared.noise[name])
        if kind == "pose":
            value = np.column_stack([value[:, :3], value[:, 3:] / np.linalg.norm(value[:, 3:], axis=1, keepdims=True)])
            noise[3:] *= 2.0  # a rotation is twice its quaternion's vector
        keep = np.ones((len(t), len(channels)), dtype=bool)
        measured.append(Measured(name, kind, "", where, np.array(columns), channels, t, value, keep, noise))
    drive = Drive("robot", shared.times_s - dt - 0.5 * dt, shared.control, [0])
    return Segment(
        "push",
        0.0,
        len(shared.times_s),
        dt,
        drive,
        tuple(measured),
        model.qpos0.copy(),
        np.zeros(model.nv),
        (),
        name="push",
    )


def run_sysid(shared: SharedProblem) -> Timing:
    """Fits with `mujoco.sysid` in the steps of its README, with its default (and recommended) optimizer.

    The residual is its third tier, a function of one's own: measured poses are part of the state, and weighting by the
    known noise makes the cost comparable. The time grids are the same, so nothing is resampled, which is to its favour.
    """
    from mujoco import minimize, sysid

    spec = shared.scene.spec.copy()
    kind, of = mujoco.mjtSensor.mjSENS_ACTUATORFRC, mujoco.mjtObj.mjOBJ_ACTUATOR
    spec.add_sensor(name="force", type=kind, objtype=of, objname="servo")
    model = spec.compile()
    params = sysid.ParameterDict()
    for name, modifier in _modifiers(shared).items():
        params.add(sysid.Parameter(name, shared.start[name], *shared.bounds[name], modifier=modifier))
    # It takes the first sample to be that of the initial state, which does not count, and leaves out the last command.
    times = np.concatenate([[0.0], shared.times_s])
    control = sysid.TimeSeries(times, np.concatenate([shared.control, shared.control[-1:]]))
    force, pose, joint = (shared.measured[n] for n in ("actuator.force", "object.pose", "joint.position"))
    weights = np.repeat([1.0 / shared.noise[n] for n in ("actuator.force", "object.pose", "joint.position")], (1, 7, 1))
    rows = np.concatenate([np.zeros((1, 9)), np.column_stack([force, pose, joint])])
    in_state, in_sensor = sysid.SignalType.MjStateQPos, sysid.SignalType.MjSensor
    names = [("force", in_sensor), ("box_qpos", in_state), ("slide_qpos", in_state)]
    sensors = sysid.TimeSeries.from_names(times, rows, model, names=names)
    initial = sysid.create_initial_state(model, model.qpos0.copy(), np.zeros(model.nv))
    with _quiet():  # a warning that there are more measured columns than sensors
        sequences = sysid.ModelSequences("push", spec, "push", initial, control, sensors, allow_missing_sensors=True)
    box = 1 + int(model.jnt_qposadr[model.body_jntadr[model.body("box").id]])  # the state begins with the time
    slide = 1 + int(model.joint("slide").qposadr[0])

    def compare(params, predicted, measured, model, return_pred_all, state, sensor_weights=None):
        found = np.column_stack([predicted.data, state[:, box : box + 7], state[:, slide]])
        known = sysid.TimeSeries(measured.times[1:], measured.data[1:], measured.signal_mapping)
        error = (found - known.data) * weights
        return error, sysid.TimeSeries(known.times, found, measured.signal_mapping), known

    residual = sysid.build_residual_fn(models_sequences=[sequences], modify_residual=compare, resample_true=False)
    x0, bounds = params.as_vector(), params.get_bounds()

    def stacked(x: np.ndarray) -> np.ndarray:
        return np.concatenate(residual(x, params)[0])

    def jacobian() -> np.ndarray:
        return minimize.jacobian_fd(
            residual=stacked, x=x0[:, None], r=stacked(x0)[:, None], eps=np.finfo(np.float64).eps ** 0.5, n_res=0,
            bounds=[b[:, None] for b in bounds],
        )[0]  # fmt: skip

    jacobian_s = _best(jacobian)
    slopes = jacobian().reshape(len(shared.times_s), 9, -1) * x0  # by the logarithms
    slopes = [slopes[:, 1:8], slopes[:, 8:9], slopes[:, 0:1]]
    begin = time.perf_counter()
    with _quiet():  # what it prints of each iteration
        fitted, result = sysid.optimize(params, residual)
    total_s = time.perf_counter() - begin
    values = {name: float(fitted[name].value[0]) for name in shared.start}
    return Timing(
        jacobian_s, np.concatenate([s.reshape(-1, len(x0)) for s in slopes]), total_s=total_s,
        iterations=len(result.extras["objective"]), cost=shared.cost(values), values=values,
    )  # fmt: skip


def _modifiers(shared: SharedProblem) -> dict[str, Callable]:
    """Writes the unknowns into a specification, as dexloop's parameters write them into a compiled model."""
    from mujoco import sysid

    box = shared.scene.model.body("box")
    inertia_per_kg = box.inertia / box.mass

    def mass(spec, p) -> None:
        body = spec.body("box")
        body.explicitinertial = True
        body.ipos, body.iquat = [0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]
        body.mass, body.inertia = float(p.value[0]), inertia_per_kg * float(p.value[0])

    def friction(spec, p) -> None:
        spec.geom("table").friction[0] = p.value[0]
        for pair in spec.pairs:
            pair.friction[:2] = p.value[0]

    return {
        "object.mass": mass,
        "table.friction": friction,
        "actuator.gain": lambda spec, p: sysid.apply_pgain(spec, "servo", _KP * float(p.value[0])),
        "actuator.damping": lambda spec, p: sysid.apply_dgain(spec, "servo", _KV * float(p.value[0])),
    }


def run_mjx(shared: SharedProblem) -> Timing:
    """Takes the Jacobian with MJX as dexloop does: double precision, the solver differentiated implicitly."""
    from dexloop.sim.mjx import Sensitivities

    engine = Sensitivities(shared.scene, list(shared.start), list(shared.measured))
    _, slopes = engine(shared.start, shared.control)
    order = [[p.name for p in engine.parameters].index(name) for name in shared.start]
    rows = [slopes[n][..., order].reshape(-1, len(order)) / shared.noise[n] for n in shared.measured]
    best = _best(lambda: engine(shared.start, shared.control))
    return Timing(best, np.concatenate(rows), compile_s=engine.compile_s)


def run_mjx_step(shared: SharedProblem) -> Timing:
    """Takes the Jacobian with MJX as its documentation shows: `jax.jacfwd` through a scan of `mjx.step`.

    With few iterations of the solver, as it recommends for speed. With this scene's elliptic cones the derivative is
    NaN as soon as ball and box are apart, so that only the time says something; with pyramids the box chatters, and
    central differences of any step disagree with each other too.
    """
    import jax
    import jax.numpy as jnp

    with _quiet():
        from mujoco import mjx
    model = shared.scene.spec.copy().compile()
    model.opt.iterations, model.opt.ls_iterations = _MJX_ITERATIONS
    base, data = mjx.put_model(model), mjx.make_data(model)
    box, slide = int(model.body("box").id), int(model.joint("slide").qposadr[0])
    adr = int(model.jnt_qposadr[model.body_jntadr[box]])
    weights = jnp.asarray(np.repeat([1.0 / s for s in shared.noise.values()], (7, 1, 1)))

    def residual(free, control):
        mass, friction, gain, damping = jnp.exp(free)
        ratio = mass / model.body_mass[box]
        changed = base.replace(
            body_mass=base.body_mass.at[box].multiply(ratio),
            body_subtreemass=base.body_subtreemass.at[box].multiply(ratio),
            body_inertia=base.body_inertia.at[box].multiply(ratio),
            body_invweight0=base.body_invweight0.at[box].divide(ratio),
            pair_friction=base.pair_friction.at[:, :2].set(friction),
            actuator_gainprm=base.actuator_gainprm.at[:, 0].multiply(gain),
            actuator_biasprm=base.actuator_biasprm.at[:, 1].multiply(gain).at[:, 2].multiply(damping),
        )

        def step(data, command):
            data = mjx.step(changed, data.replace(ctrl=command))
            seen = (data.qpos[adr : adr + 7], data.qpos[slide : slide + 1], data.actuator_force)
            return data, jnp.concatenate(seen) * weights

        return jax.lax.scan(step, data, control)[1]

    free, control = jnp.log(jnp.array(list(shared.start.values()))), jnp.asarray(shared.control)
    begin = time.perf_counter()
    compiled = jax.jit(jax.jacfwd(residual)).lower(free, control).compile()
    compile_s = time.perf_counter() - begin
    best = _best(lambda: np.asarray(compiled(free, control)))
    slopes = np.asarray(compiled(free, control), dtype=np.float64)
    rows = [s.reshape(-1, len(free)) for s in (slopes[:, :7], slopes[:, 7:8], slopes[:, 8:])]
    return Timing(best, np.concatenate(rows), compile_s=compile_s)


def run_world(shared: SharedProblem, *, step: float = 1e-4) -> Timing:
    """Takes the Jacobian by central differences over one batch of worlds, dexloop's own first engine."""
    size = len(shared.start)
    world = World(shared.scene, 2 * size + 1, parameters=list(shared.start))
    rows = step * np.concatenate([np.zeros((1, size)), np.eye(size), -np.eye(size)])
    columns = {name: value * np.exp(rows[:, k]) for k, (name, value) in enumerate(shared.start.items())}

    def jacobian() -> np.ndarray:
        world.reset()
        world.set(columns)
        out = world.rollout(shared.control, record=list(shared.measured))
        slopes = [
            (out[n][1 : size + 1] - out[n][size + 1 :]).reshape(size, -1) / (2 * step * s)
            for n, s in shared.noise.items()
        ]
        return np.concatenate(slopes, axis=1).T

    return Timing(_best(jacobian), jacobian())


def _best(action: Callable[[], object]) -> float:
    """Returns the least time of several goes [s]; the first does not count."""
    action()
    best, spent, goes = np.inf, 0.0, 0
    while spent < _LEAST_S or goes < 5:
        begin = time.perf_counter()
        action()
        taken = time.perf_counter() - begin
        best, spent, goes = min(best, taken), spent + taken, goes + 1
    return best


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what libraries print and log to themselves."""
    from absl import logging

    level = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)


def main() -> None:
    """Prints what each takes for one Jacobian, and where it ends."""
    shared = problem()
    print(f"cost at the start {shared.cost(shared.start):.0f}, at the truth {shared.cost(shared.truth):.0f}")
    reference = run_world(shared)
    for name, run in (("World", run_world), ("sysid", run_sysid), ("MJX", run_mjx), ("mjx.step", run_mjx_step)):
        found = run(shared)
        off = np.linalg.norm(found.jacobian - reference.jacobian, axis=0) / np.linalg.norm(reference.jacobian, axis=0)
        ratio = found.jacobian_s / reference.jacobian_s
        print(f"{name:9} Jacobian {1e3 * found.jacobian_s:.1f} ms, {ratio:.1f} times that of World", end=", ")
        print(f"off by {np.max(off):.1e}, compiled in {found.compile_s:.0f} s")
        if found.values:
            ended = ", ".join(f"{n} {v:.4g} ({shared.truth[n]:.4g})" for n, v in found.values.items())
            print(f"{'':9} fit {found.total_s:.2f} s, {found.iterations} iterations, cost {found.cost:.0f}: {ended}")


if __name__ == "__main__":
    main()
