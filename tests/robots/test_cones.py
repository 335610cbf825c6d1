from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dexloop.robots.cones import STEPS, least_effort


def solve(P, A, b, *, offsets=None, rows=None, limits=None, worth=1e3, width=3):
    """Solves one program, with share ≥ 0 added to its rows."""
    m = len(P)
    offsets = np.zeros((0, m)) if offsets is None else np.asarray(offsets, dtype=float)
    offsets = np.concatenate([np.zeros((1, m)), offsets])
    rows = np.zeros((0, m + 1)) if rows is None else np.asarray(rows, dtype=float)
    rows = np.concatenate([rows, -np.eye(m + 1)[-1:]])
    limits = np.append(np.zeros(0) if limits is None else limits, 0.0)
    u, share, steps = np.zeros((1, m)), np.zeros(1), np.zeros(1, dtype=np.int64)
    arrays = (np.ascontiguousarray(a, dtype=float)[None] for a in (P, A, b, offsets, rows, limits))
    least_effort(*arrays, np.array([worth]), width, u, share, steps)
    return u[0], float(share[0]), int(steps[0])


@pytest.mark.parametrize("seed", range(8))
def test_one_contact_misses_by_the_projection_onto_its_cone(seed) -> None:
    """One contact that pushes along the axes of the wrench itself: the nearest point of the cone has a formula."""
    rng = np.random.default_rng(seed)
    for width in (3, 4):
        A = np.eye(6)[:, :width]
        b = np.append(rng.normal(size=width), np.zeros(6 - width))
        c, v = b[0], b[1:width]
        length = np.linalg.norm(v)
        if length <= c:
            nearest = b[:width]
        elif length <= -c:
            nearest = np.zeros(width)
        else:
            nearest = 0.5 * (c + length) * np.append(1.0, v / length)
        u, _, steps = solve(np.eye(width), A, b, width=width)
        assert steps < STEPS
        np.testing.assert_allclose(u, nearest, atol=1e-5)
        assert np.linalg.norm(u[1:]) <= u[0]


def test_a_disturbance_is_borne_as_far_as_there_is_room() -> None:
    """The balance fixes u at 2 along the axis, and a disturbance takes 4 of it away: half of it can be borne."""
    b = np.array([2.0, 0, 0, 0, 0, 0])
    u, share, _ = solve(np.eye(3), np.eye(6)[:, :3], b, offsets=[[-4.0, 0, 0]])
    np.testing.assert_allclose(u, [2, 0, 0], atol=1e-6)
    assert share == pytest.approx(0.5, abs=1e-6)
    # One to the side of 1 is inside: all of it.
    _, share, _ = solve(np.eye(3), np.eye(6)[:, :3], b, offsets=[[0, 1.0, 0]])
    assert share == pytest.approx(1.0, abs=1e-6)


def test_a_row_holds_and_the_rest_is_missed() -> None:
    b = np.array([2.0, 0.5, 0, 0, 0, 0])
    u, _, _ = solve(np.eye(3), np.eye(6)[:, :3], b, rows=[[1.0, 0, 0, 0]], limits=[1.5])
    np.testing.assert_allclose(u, [1.5, 0.5, 0], atol=1e-5)
    assert u[0] <= 1.5 + 1e-9


def test_effort_is_as_low_as_a_general_solver_finds() -> None:
    n, compared = 4, 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(6, 3 * n))
        root = rng.normal(size=(3 * n, 3 * n))
        P = root @ root.T / n + 0.1 * np.eye(3 * n)
        inside = rng.normal(size=(n, 3))
        inside[:, 0] = np.linalg.norm(inside[:, 1:], axis=1) + rng.uniform(0.1, 1, n)
        b = A @ inside.ravel()
        u, _, steps = solve(P, A, b)
        assert steps < STEPS
        np.testing.assert_allclose(A @ u, b, atol=1e-6)
        found = reference(P, A, b, inside)
        if found.success:  # it trips over the tips of cones now and then
            compared += 1
            assert 0.5 * u @ P @ u == pytest.approx(found.fun, rel=1e-5)
    assert compared >= 8


def reference(P, A, b, start):
    def room(x):
        v = x.reshape(-1, 3)
        return v[:, 0] - np.sqrt((v[:, 1:] ** 2).sum(axis=1) + 1e-14)

    rules = [{"type": "ineq", "fun": room}, {"type": "eq", "fun": lambda x: A @ x - b, "jac": lambda _: A}]
    return minimize(
        lambda x: 0.5 * x @ P @ x, start.ravel(), jac=lambda x: P @ x, constraints=rules, method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-12},
    )  # fmt: skip


def test_many_at_once_are_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 6, 9))
    b = rng.normal(size=(5, 6))
    u, share, steps = np.zeros((5, 9)), np.zeros(5), np.zeros(5, dtype=np.int64)
    P = np.broadcast_to(np.eye(9), (5, 9, 9)).copy()
    rows = np.broadcast_to(-np.eye(10)[-1:], (5, 1, 10)).copy()
    least_effort(P, A, b, np.zeros((5, 1, 9)), rows, np.zeros((5, 1)), np.full(5, 1e3), 3, u, share, steps)
    for k in range(5):
        np.testing.assert_array_equal(u[k], solve(P[k], A[k], b[k])[0])
