from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from dexloop.robots.balance import EVEN, LIMITS, Problem
from dexloop.robots.grasp import Contacts, contact_columns, size_of


def scattered(rng: np.random.Generator, n: int, soft: bool) -> Contacts:
    """Fingers anywhere on a ball of some size, pushing roughly inwards."""
    size = 10 ** rng.uniform(-2.5, -0.5)
    out = rng.normal(size=(n, 3))
    out /= np.linalg.norm(out, axis=1)[:, None]
    normals = -out + rng.uniform(0, 0.8) * rng.normal(size=(n, 3))
    normals /= np.linalg.norm(normals, axis=1)[:, None]
    radius = size * rng.uniform(0, 0.3, n) if soft else None
    return Contacts(size * out, normals, rng.uniform(0.1, 1.2, n), radius_m=radius)


def problem(contacts: Contacts, f_min: float, f_max: float) -> Problem:
    n, centre = len(contacts), np.zeros(3)
    G = contact_columns(contacts, centre)
    none = np.zeros((0, G.shape[1])), np.zeros(0), np.zeros(0)
    size = size_of(contacts, centre)
    return Problem(G, contacts.width, size, np.full(n, f_min), np.full(n, f_max), *none)


def solve(p: Problem, mu, wrench, wrenches=()):
    found = p.solve(mu[None], wrench[None], np.reshape(wrenches, (1, -1, 6)))
    return found.v[0].reshape(len(mu), p.width), found.missed[0], float(found.held[0]), bool(found.feasible[0])


def scale_of(p: Problem) -> np.ndarray:
    return np.array([1, 1, 1, *[1 / p.size_m] * 3])


@settings(max_examples=120)
@given(seed=st.integers(0, 10**6), soft=st.booleans(), n=st.integers(1, 5))
def test_forces_keep_the_cones_and_limits_and_either_balance_or_prove_that_none_do(seed, soft, n) -> None:
    rng = np.random.default_rng(seed)
    contacts = scattered(rng, n, soft)
    force = 10 ** rng.uniform(-2, 2)
    wrench = force * rng.normal(size=6)
    f_max = force * 10 ** rng.uniform(-0.5, 1.5)
    f_min = rng.uniform(0, 0.2) * min(force, f_max)
    p = problem(contacts, f_min, f_max)
    wrench[3:] *= p.size_m
    v, missed, held, feasible = solve(p, contacts.mu, wrench)
    slack = contacts.mu * v[:, 0] - np.linalg.norm(v[:, 1:], axis=1)
    assert slack.min() > -1e-9 * v[:, 0].max()
    assert f_min * (1 - 1e-6) - 1e-9 * force <= v[:, 0].min()
    assert v[:, 0].max() <= f_max * (1 + 1e-7)
    assert held == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(missed, wrench - p.G @ v.ravel(), atol=1e-9 * force)
    W = scale_of(p)
    size = np.linalg.norm(W * wrench)
    distance = np.linalg.norm(W * missed)
    if feasible:
        assert distance < 1e-6 * size
        return
    # Nothing that the contacts can make reaches as far along the missing wrench as the wanted one does.
    way = W * missed / distance
    along = ((way * W) @ p.G).reshape(n, -1)
    best = along[:, 0] + contacts.mu * np.linalg.norm(along[:, 1:], axis=1)
    reach = np.where(best > 0, f_max, f_min) @ best
    assert (way * W) @ wrench - reach > 0.5 * distance - 1e-5 * size


def fits(p: Problem, mu, wrench, edges: int, outside: bool) -> bool:
    """Whether forces inside (or outside) pyramids with as many edges balance, by linear programming."""
    angle = 2 * np.pi * np.arange(edges) / edges
    wide = 1 / np.cos(np.pi / edges) if outside else 1.0
    unit = np.stack([np.ones(edges), wide * np.cos(angle), wide * np.sin(angle)])
    columns, normal = [], []
    for i, G in enumerate(np.split(p.G, len(mu), axis=1)):
        columns.append(G @ (np.array([1, mu[i], mu[i]])[:, None] * unit))
        row = np.zeros(edges * len(mu))
        row[i * edges : (i + 1) * edges] = 1.0
        normal.append(row)
    W = scale_of(p) / np.linalg.norm(scale_of(p) * wrench)
    scale = np.linalg.norm(wrench[:3])
    bounds = np.array(normal)
    return linprog(
        np.zeros(bounds.shape[1]), A_eq=W[:, None] * np.hstack(columns) * scale, b_eq=W * wrench,
        A_ub=np.vstack([bounds, -bounds]), b_ub=np.r_[p.f_max, -p.f_min] / scale, method="highs",
    ).status == 0  # fmt: skip


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 5))
def test_what_is_feasible_lies_between_linear_programs_inside_and_outside_the_cones(seed, n) -> None:
    rng = np.random.default_rng(seed)
    contacts = scattered(rng, n, soft=False)
    wrench = rng.normal(size=6)
    p = problem(contacts, 0.05, 10 ** rng.uniform(0, 1.5))
    wrench[3:] *= 0.3 * p.size_m
    feasible = solve(p, contacts.mu, wrench)[3]
    if fits(p, contacts.mu, wrench, 16, outside=False):
        assert feasible
    if feasible:
        assert fits(p, contacts.mu, wrench, 16, outside=True)


def reference(p: Problem, mu, wrench, responses):
    """The same forces by a general solver, from a start of its own; responses are changes of v to be ready for."""
    n, w = len(mu), p.width

    def effort(x):
        v = x.reshape(n, w)
        even = np.zeros_like(v)
        even[:, 0] = v[:, 0] - v[:, 0].mean()
        return 0.5 * (v * v).sum() + 0.5 * EVEN * (even**2).sum(), (v + EVEN * even).ravel()

    def room(x):
        v = (x + responses).reshape(-1, n, w)
        return np.concatenate(
            [(mu * v[..., 0] - np.sqrt((v[..., 1:] ** 2).sum(-1) + 1e-14)).ravel(), (p.f_max - v[..., 0]).ravel()]
        )

    rules = [{"type": "ineq", "fun": room}, {"type": "eq", "fun": lambda x: p.G @ x - wrench, "jac": lambda _: p.G}]
    start = np.zeros((n, w))
    start[:, 0] = 3.0
    return minimize(
        effort, start.ravel(), jac=True, constraints=rules, method="SLSQP", options={"maxiter": 300, "ftol": 1e-12}
    ), effort


@pytest.mark.parametrize("disturbed", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_effort_is_as_low_as_a_general_solver_finds(soft, disturbed) -> None:
    compared = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        angle = 2 * np.pi * (np.arange(4) + 0.2 * rng.normal(size=4)) / 4
        out = np.stack([np.cos(angle), np.sin(angle), 0.3 * rng.normal(size=4)], axis=1)
        out /= np.linalg.norm(out, axis=1)[:, None]
        # In units of the object's size, so that the general solver sees numbers around 1.
        contacts = Contacts(out, -out, rng.uniform(0.4, 0.9, 4), radius_m=np.full(4, 0.2) if soft else None)
        wrench = np.array([0, 0, 1.0, *0.1 * rng.normal(size=3)])
        p = problem(contacts, 0.0, 20.0)
        others = wrench + 0.3 * rng.normal(size=(4, 6)) if disturbed else np.zeros((0, 6))
        # The least change of forces that makes a change of wrench, by the pseudoinverse.
        responses = np.vstack([np.zeros(p.G.shape[1]), (others - wrench) @ np.linalg.pinv(p.G).T])
        v, _, held, feasible = solve(p, contacts.mu, wrench, others)
        found, effort = reference(p, contacts.mu, wrench, responses)
        assert feasible or not found.success
        if found.success:
            compared += 1
            assert held > 0.999
            assert effort(v.ravel())[0] == pytest.approx(found.fun, rel=1e-3 if disturbed else 1e-5)
    assert compared >= 6


def test_a_batch_is_as_its_parts_and_threads_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    contacts = scattered(rng, 3, soft=True)
    p = problem(contacts, 0.1, 30.0)
    b = 300  # more than one thread takes at a time
    mu, wrench = rng.uniform(0.2, 1.0, (b, 3)), rng.normal(size=(b, 6)) * [1, 1, 1, *[0.1 * p.size_m] * 3]
    others = wrench[:, None] + 0.1 * rng.normal(size=(b, 2, 6)) * p.size_m
    found = p.solve(mu, wrench, others)
    limit = p.limits(mu, wrench, others, found.feasible)
    assert 0 < found.feasible.sum() < b
    for k in range(0, b, 37):
        v, missed, held, feasible = solve(p, mu[k], wrench[k], others[k])
        np.testing.assert_allclose(found.v[k], v.ravel(), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.missed[k], missed, atol=1e-8)
        assert found.held[k] == pytest.approx(held, abs=1e-6)
        assert found.feasible[k] == feasible
        assert (limit[k] == 0) == feasible


def test_what_limits_the_forces_is_what_would_free_them() -> None:
    contacts = Contacts(np.array([[-1.0, 0, 0], [1, 0, 0]]), np.array([[1.0, 0, 0], [-1, 0, 0]]), np.full(2, 0.5))
    mu, wrench, none = np.full((1, 2), 0.5), np.array([[0, 0, 1.0, 0, 0, 0]]), np.zeros((1, 0, 6))

    def limit(f_max: float, torque: float, w=wrench) -> str:
        turn = np.array([[1.0, 0, 0, 0, 0, 0], [0, 0, 0, 1.0, 0, 0]])  # a motor each that pushes along the normal
        p = replace(problem(contacts, 0.0, f_max), turn=turn, low=np.full(2, -torque), high=np.full(2, torque))
        found = p.solve(mu, w, none)
        assert found.v[0, ::3].max() <= min(f_max, torque) * (1 + 1e-6)
        return LIMITS[p.limits(mu, w, none, found.feasible)[0]]

    # One newton needs a normal force of one on each side.
    assert limit(2.0, 2.0) == ""
    assert limit(0.9, 2.0) == "crush"
    assert limit(2.0, 0.9) == "motor"
    assert limit(0.9, 0.8) == "motor"  # both, and the motor is named
    assert limit(2.0, 2.0, np.array([[0, 0, 0, 1.0, 0, 0]])) == "friction"  # a torque that hard points cannot make
