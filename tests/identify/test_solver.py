from dataclasses import replace

import numpy as np
import pytest

from dexloop.identify.problem import Problem
from dexloop.identify.segments import cut
from dexloop.identify.solver import HUBER, Estimate, Solver
from dexloop.identify.streams import match
from dexloop.identify.unknowns import bias_unknown, clock_unknown, gain_unknown, model_unknown
from dexloop.sim.scene import Scene
from tests.identify.benches import Push, happen, model_file, pose_stream, ramp, robot_streams, write

NAMES = ("object.mass", "table.friction")
MOTION = happen(Push(), ramp(0.4, start_s=0.15, distance=0.05, rest_s=0.3))


@pytest.fixture(scope="module")
def problem(tmp_path_factory) -> Problem:
    """A push without noise, with the true values in the model."""
    folder = tmp_path_factory.mktemp("push")
    scene = Scene.open(model_file(folder, Push()), max_delay_s=0.0)
    pose = pose_stream(MOTION, rate_hz=173.0, place_sd=0.0, turn_sd=0.0)
    streams = [*robot_streams(MOTION, effort_sd=0.0, place_sd=0.0), pose]
    matched = match(scene, write(folder, {"push": streams}).recording())
    pose_bias = bias_unknown("pose", ("x", "y", "z", "rx", "ry", "rz"), "m, rad", np.full(6, 1e-3))
    unknowns = [model_unknown(scene, n) for n in NAMES]
    unknowns += [clock_unknown("camera", same=False), gain_unknown("joint_effort", 0.05), pose_bias]
    return Problem(scene, unknowns, cut(scene, matched, window_s=0.25))


@pytest.fixture(scope="module")
def solver(problem) -> Solver:
    return Solver(problem)


def at(solver: Solver, **values: float) -> Estimate:
    theta = solver.problem.start_theta()
    for name, value in values.items():
        theta[solver.problem.where(name.replace("_", "."))] = np.log(value)
    return solver.start(theta)


def test_the_true_values_explain_the_motion(solver):
    """To what steps four times as long change: half a millimetre, against 5 cm of motion."""
    errors, layout = solver.errors(at(solver))[0], solver.problem.layout[0]
    for k, c in enumerate(solver.problem.channels):
        if c.stream == "pose" and c.channel in "xyz":
            assert np.abs(errors[layout.channel == k]).max() < 6e-4


@pytest.mark.parametrize("name", ["clock.camera", "gain.joint_effort", "bias.pose"])
def test_slopes_of_what_needs_no_simulation_are_those_of_the_errors(solver, problem, name):
    estimate = at(solver)
    linear = solver._linearise(estimate, 0.01 * np.diag(problem.first_step), [s.local_step for s in problem.segments])
    k, h = problem.where(name).start, 1e-5
    above, below = estimate.theta.copy(), estimate.theta.copy()
    above[k] += h
    below[k] -= h
    slope = (solver.errors(replace(estimate, theta=above))[0] - solver.errors(replace(estimate, theta=below))[0]) / (
        2 * h
    )
    assert np.linalg.norm(slope) > 0
    assert np.linalg.norm(linear.jacobians[0][:, k] - slope) < 0.03 * np.linalg.norm(slope)


def test_a_bias_is_one_of_the_pose_however_exactly_that_is_known(problem):
    """A tracker's pose comes with a covariance: its bias is in metres all the same, not in standard deviations."""
    sd = np.array([1e-3, 2e-3, 3e-3, 1e-2, 2e-2, 3e-2])

    def whitened(segment):
        streams = [
            replace(m, whiten=np.tile(np.diag(1 / sd), (len(m.t), 1, 1))) if m.is_pose else m for m in segment.measured
        ]
        return replace(segment, measured=tuple(streams))

    solver = Solver(problem.of([whitened(s) for s in problem.segments]))
    estimate = at(solver)
    where = problem.where("bias.pose")
    theta = estimate.theta.copy()
    theta[where] += sd
    change = solver.errors(replace(estimate, theta=theta))[0] - solver.errors(estimate)[0]
    for k, c in enumerate(solver.problem.channels):
        if c.stream == "pose":
            np.testing.assert_allclose(change[solver.problem.layout[0].channel == k], -1.0, atol=1e-9)


def test_an_infinitesimal_step_downhill_lowers_the_cost(solver, problem):
    """Nothing in the residual may jump: a step along the gradient is worth what the gradient says."""
    estimate = at(solver, object_mass=0.3)
    linear = solver._linearise(
        estimate, 0.1 * np.diag(problem.first_step), [0.1 * s.local_step for s in problem.segments]
    )
    estimate = solver.reweigh(estimate, linear.errors)
    normal = solver._normal(estimate, linear)
    delta, locals_, _ = normal.step(1e4, solver.lower - estimate.theta, solver.upper - estimate.theta)
    expected = -float(normal.g @ delta) - float(sum(h @ x for h, x in zip(normal.h, locals_, strict=True)))
    moved = [(x + d)[None] for x, d in zip(estimate.local, locals_, strict=True)]
    gained = normal.cost - float(solver._costs((estimate.theta + delta)[None], moved, estimate)[0])
    assert expected > 0
    assert gained == pytest.approx(expected, rel=0.2)


def test_the_normal_equations_cost_what_the_simulation_costs(solver, problem):
    estimate = at(solver, object_mass=0.35)
    linear = solver._linearise(estimate, np.diag(problem.first_step), [s.local_step for s in problem.segments])
    normal = solver._normal(estimate, linear)
    assert normal.cost == pytest.approx(float(solver.costs(estimate.theta[None], estimate)[0]), rel=1e-9)


def test_going_down_from_nearby_ends_at_the_truth(solver):
    found = solver.descend(at(solver, object_mass=0.3, table_friction=0.26))
    assert found.converged
    np.testing.assert_allclose(np.exp(found.theta[:2]), [0.25, 0.3], rtol=0.04)


def test_what_is_held_does_not_move(problem):
    held = np.zeros(problem.size, dtype=bool)
    held[problem.where("object.mass")] = True
    solver = Solver(problem, held=held)
    found = solver.descend(at(solver, object_mass=0.3), iterations=3)
    assert found.theta[0] == pytest.approx(np.log(0.3), abs=1e-12)


def test_large_errors_count_linearly(solver):
    from dexloop.identify.solver import _huber

    r = np.array([-10.0, -1.0, 0.0, 2.0, 10.0, np.nan])
    np.testing.assert_allclose(_huber(r)[:5], [HUBER * (10 - HUBER / 2), 0.5, 0.0, 2.0, HUBER * (10 - HUBER / 2)])
    assert np.isinf(_huber(r)[5])


def test_correlated_errors_are_worth_less():
    from dexloop.identify.solver import _correlation

    rng = np.random.default_rng(0)
    white = rng.standard_normal(20_000)
    slow = np.zeros(20_000)
    for k in range(1, len(slow)):
        slow[k] = 0.8 * slow[k - 1] + white[k]
    assert _correlation([white]) == pytest.approx(1.0, abs=0.15)
    assert _correlation([slow]) == pytest.approx((1 + 0.8) / (1 - 0.8), rel=0.2)  # of an autoregressive process
    assert _correlation([np.zeros(100)]) == 1.0


def test_finite_differences_agree_with_automatic_differentiation(problem, monkeypatch):
    """The same residuals differentiated by MJX: object pose and joint, by mass and friction."""
    pytest.importorskip("jax")
    pytest.importorskip("mujoco.mjx")
    from dexloop.sim import mjx

    segment, names = problem.segments[0], NAMES
    quick = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    monkeypatch.setattr(mjx, "_COMPILER", quick)
    engine = mjx.Sensitivities(problem.scene, names, ("qpos",))
    control = segment.control(np.zeros(1), problem.scene.model.nu)
    assert control is not None
    values = np.concatenate([p.nominal for p in engine.parameters])
    signals, slopes = engine(values, control[0], qpos=segment.qpos, qvel=segment.qvel)
    order = [[p.name for p in engine.parameters].index(n) for n in names]
    solver = Solver(problem)
    linear = solver._linearise(at(solver), 0.02 * np.diag(problem.first_step), [s.local_step for s in problem.segments])
    layout, pose = problem.layout[0], next(m for m in segment.measured if m.is_pose)
    rows = pose.t[problem.layout[0].rows[list(segment.measured).index(pose)]]
    # An error is measured minus simulated, so its slope is minus that of the simulation, at the samples' times.
    after = segment.t0 + segment.timestep_s * (1 + np.arange(segment.steps))
    channel = next(k for k, c in enumerate(problem.channels) if c.stream == "pose" and c.channel == "x")
    mine = linear.jacobians[0][layout.channel == channel][:, :2]
    theirs = np.stack([-np.interp(rows, after, slopes["qpos"][:, 0, k]) for k in order], axis=1)
    assert np.linalg.norm(theirs) > 1e-3
    for k in range(2):
        assert np.linalg.norm(mine[:, k] - theirs[:, k]) < 0.05 * np.linalg.norm(theirs[:, k]), names[k]
    assert len(signals["qpos"]) == segment.steps
