from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, least_squares, minimize

from dexloop.core import se3
from dexloop.demonstrate.chains import Chains, chains
from dexloop.demonstrate.descent import Points, Pull, Wishes, follow, place, place_with_slope

FRAMES = 12


def _points(c: Chains) -> Points:
    """Two on every finger."""
    tips = np.repeat(np.arange(len(c.links.R_tip)), 2)
    return Points(tips, np.tile([[0.0, 0.0, -0.005], [-0.02, 0.0, 0.0]], (len(c.links.R_tip), 1)))


def _problem(c: Chains, seed: int, *, off_m: float) -> tuple[Points, Wishes, Pull]:
    """Places and vectors that drift, out of reach by about `off_m`; joints come to their limits now and then."""
    rng = np.random.default_rng(seed)
    points, m, f = _points(c), len(c.free), len(c.links.R_tip)
    t = np.linspace(0.0, 1.0, FRAMES)[:, None]
    waves = 0.5 + 0.6 * np.sin(2.0 * t + rng.uniform(0, 6, m))
    truth = np.clip(c.lower + (c.upper - c.lower) * waves, c.lower, c.upper)
    at = place(c.links, points, truth)
    a = np.concatenate([np.full(f, -1), np.full(f - 1, 2 * f - 2)])
    b = np.concatenate([2 * np.arange(f), 2 * np.arange(f - 1)])
    start = np.where((a >= 0)[:, None], at[:, a], 0.0)
    target = at[:, b] - start + off_m * rng.normal(size=(len(b), 3))
    weight = rng.uniform(0.2, 2.0, (FRAMES, len(b)))
    rest = np.tile(0.5 * (c.lower + c.upper), (FRAMES, 1))
    return points, Wishes(a, b, target, weight), Pull(c.lower, c.upper, rest, np.full(m, 1e-5), np.full(m, 1e-4))


def _errors(c: Chains, points: Points, wishes: Wishes, t: int, x: np.ndarray) -> np.ndarray:
    at = place(c.links, points, x[None])[0]
    start = np.where((wishes.a >= 0)[:, None], at[wishes.a], 0.0)
    return at[wishes.b] - start - wishes.target[t]


def _cost(c: Chains, points: Points, wishes: Wishes, pull: Pull, path: np.ndarray, t: int, x: np.ndarray, h: float):
    """The objective, written out once more."""
    d = np.linalg.norm(_errors(c, points, wishes, t, x), axis=1)
    rho = np.where(d <= h, 0.5 * d**2, h * (d - 0.5 * h)) if np.isfinite(h) else 0.5 * d**2
    total = float(wishes.weight[t] @ rho + 0.5 * pull.stay @ (x - pull.rest[t]) ** 2)
    if t:
        step = (x - pull.rest[t]) - (path[t - 1] - pull.rest[t - 1])
        total += float(0.5 * pull.follow @ step**2)
    return total


@pytest.mark.parametrize("name", ["dex16", "leap_hand", "wonik_allegro", "coupled", "gripper"])
def test_finds_the_minimum_that_scipy_finds(robot, name: str):
    """`least_squares` on the same sum of squares: from the same start, or from our end, it finds nothing better."""
    c = chains(robot(name))
    points, wishes, pull = _problem(c, seed=1, off_m=0.008)
    found = follow(c.links, points, wishes, pull, pull.rest[:1], huber_m=np.inf)
    for t in (0, 4, 11):

        def residuals(x: np.ndarray, t: int = t) -> np.ndarray:
            parts = [
                (np.sqrt(wishes.weight[t])[:, None] * _errors(c, points, wishes, t, x)).ravel(),
                np.sqrt(pull.stay) * (x - pull.rest[t]),
            ]
            if t:
                parts.append(np.sqrt(pull.follow) * (x - found.x[t - 1] + pull.rest[t - 1] - pull.rest[t]))
            return np.concatenate(parts)

        inside = np.clip(found.x[t], c.lower + 1e-9, c.upper - 1e-9)
        ours = 0.5 * float(np.sum(residuals(found.x[t]) ** 2))
        assert ours == pytest.approx(found.cost[t], rel=1e-9)
        from_ours = least_squares(residuals, inside, bounds=(c.lower, c.upper), xtol=1e-12, ftol=1e-12, gtol=1e-12)
        assert ours == pytest.approx(from_ours.cost, rel=1e-5)
        middle = 0.5 * (c.lower + c.upper)
        from_rest = least_squares(residuals, middle, bounds=(c.lower, c.upper), xtol=1e-12, ftol=1e-12, gtol=1e-12)
        assert ours <= from_rest.cost * (1 + 1e-3)


@pytest.mark.parametrize("huber", [0.005, np.inf])
@pytest.mark.parametrize("name", ["dex16", "leap_hand", "five"])
def test_ends_where_the_cost_is_flat_inside_the_limits(robot, name: str, huber: float):
    """At the end, a joint inside its limits sees no slope, and one at a limit is pushed against it."""
    c = chains(robot(name))
    points, wishes, pull = _problem(c, seed=2, off_m=0.012)
    found = follow(c.links, points, wishes, pull, pull.rest[:1], huber_m=huber)
    pressed = 0
    for t in range(FRAMES):
        x = found.x[t]
        assert (x >= c.lower).all()
        assert (x <= c.upper).all()
        cost = lambda y, t=t: _cost(c, points, wishes, pull, found.x, t, y, huber)  # noqa: E731
        assert cost(x) == pytest.approx(found.cost[t], rel=1e-9)
        g = approx_fprime(x, cost, 1e-7)
        low, high = x <= c.lower, x >= c.upper
        pressed += int((low | high).sum())
        g = np.where(low, np.minimum(g, 0.0), np.where(high, np.maximum(g, 0.0), g))
        scale = wishes.weight[t].sum() * 0.1 * 0.01  # a lever of 10 cm times an error of 1 cm
        assert np.abs(g).max() < 1e-3 * scale
    assert pressed > 0


def test_hubers_minimum_is_that_of_a_general_minimiser(robot):
    c = chains(robot("dex16"))
    points, wishes, pull = _problem(c, seed=3, off_m=0.02)
    found = follow(c.links, points, wishes, pull, pull.rest[:1], huber_m=0.01)
    for t in (0, 6):
        cost = lambda y, t=t: 1e4 * _cost(c, points, wishes, pull, found.x, t, y, 0.01)  # noqa: E731
        limits = list(zip(c.lower, c.upper, strict=True))
        best = minimize(cost, found.x[t], bounds=limits, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9})
        assert 1e4 * found.cost[t] <= best.fun * (1 + 1e-5)


def _slide(c: Chains, target: float, frames: int, weight: float = 1.0) -> Wishes:
    """The left jaw's pad is to be at x = target: a linear problem in one unknown."""
    place_ = np.tile([[[target, 0.0, 0.054]]], (frames, 1, 1))
    return Wishes(np.array([-1]), np.array([0]), place_, np.full((frames, 1), weight))


def test_one_slide_has_the_solution_of_a_weighted_mean(robot):
    """x = (w t + s x̄) / (w + s); from the second frame on, with the frame before in it too."""
    c = chains(robot("gripper"))
    points = Points(np.array([1]), np.zeros((1, 3)))  # the left jaw, whose pad is at x = q
    pull = Pull(c.lower, c.upper, np.full((3, 1), 0.01), np.array([0.5]), np.array([2.0]))
    found = follow(c.links, points, _slide(c, 0.03, 3), pull, np.array([[0.02]]), huber_m=np.inf)
    first = (0.03 + 0.5 * 0.01) / 1.5
    second = (0.03 + 0.5 * 0.01 + 2.0 * first) / 3.5
    third = (0.03 + 0.5 * 0.01 + 2.0 * second) / 3.5
    np.testing.assert_allclose(found.x[:, 0], [first, second, third], rtol=1e-6)


def test_an_outlier_pulls_with_hubers_force(robot):
    """Far away, the pull is w h, whatever the distance: s (x - x̄) = w h."""
    c = chains(robot("gripper"))
    points = Points(np.array([1]), np.zeros((1, 3)))
    pull = Pull(c.lower, c.upper, np.full((1, 1), 0.01), np.array([0.4]), np.array([0.0]))
    for far in (0.2, 2.0):
        found = follow(c.links, points, _slide(c, far, 1), pull, np.array([[0.02]]), huber_m=0.005)
        assert found.x[0, 0] == pytest.approx(0.01 + 0.005 / 0.4, rel=1e-4)
    found = follow(c.links, points, _slide(c, 0.2, 1, weight=9.0), pull, np.array([[0.02]]), huber_m=0.005)
    assert found.x[0, 0] == 0.04


def test_the_palm_moves_points_as_a_rigid_body(robot):
    c = chains(robot("dex16"))
    points, m = _points(c), len(c.free)
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.uniform(c.lower, c.upper, (4, m)), rng.normal(0.0, 0.4, (4, 6))], axis=1)
    x[0, m:] = 0.0
    x[1, m + 3 :] = 1e-5
    still = place(c.links, points, x[:, :m])
    p, J = place_with_slope(c.links, points, x)
    T = se3.from_rt(se3.quat_to_matrix(se3.so3_exp(x[:, m + 3 :])), x[:, m : m + 3])
    np.testing.assert_allclose(p, se3.transform(T[:, None], still), atol=1e-12)
    h = 1e-6
    for i in range(m + 6):
        step = h * np.eye(m + 6)[i]
        slope = (place(c.links, points, x + step) - place(c.links, points, x - step)) / (2 * h)
        np.testing.assert_allclose(J[..., i], slope, atol=2e-9)


def test_a_wish_without_weight_is_none(robot):
    c = chains(robot("dex16"))
    points, wishes, pull = _problem(c, seed=5, off_m=0.0)
    muted = wishes._replace(weight=np.zeros_like(wishes.weight))
    found = follow(c.links, points, muted, pull, c.upper[None], huber_m=0.02)
    np.testing.assert_allclose(found.x, pull.rest, atol=1e-5)


def test_a_straight_finger_gets_out_of_its_singular_pose(robot):
    """At the open pose no small motion shortens a finger, and a full step would leap over the limits."""
    c = chains(robot("leap_hand"))
    points = Points(np.arange(4), np.zeros((4, 3)))
    goal = np.clip(0.45 * (c.lower + c.upper) + 0.3, c.lower, c.upper)
    target = place(c.links, points, goal[None])
    wishes = Wishes(np.full(4, -1), np.arange(4), target, np.ones((1, 4)))
    pull = Pull(c.lower, c.upper, np.zeros((1, 16)), np.full(16, 1e-8), np.zeros(16))
    found = follow(c.links, points, wishes, pull, np.zeros((1, 16)), huber_m=np.inf)
    np.testing.assert_allclose(place(c.links, points, found.x), target, atol=1e-4)
