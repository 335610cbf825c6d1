"""Bounded least squares over the joints of a hand, compiled: puts points of the fingers where they should be.

In each frame, over the unknowns x inside their limits,

    minimise  sum_k w_k ρ(|p_b(k) - p_a(k) - t_k|) + ½ sum_i s_i (x_i - x̄_i)²        ρ: Huber's function,

with p_a left out where the target is a place, not a vector. Levenberg-Marquardt on analytic Jacobians; unknowns at a
limit that want to go further are held there, and those that a step would take across are put on it (active set).
The palm can be six more unknowns: a shift v [m] and a rotation vector w [rad], p = exp(w) p_palm + v.

All compiled code is in this one file: numba's cache would not notice a change in another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from dexloop.demonstrate.chains import Links

_ITERATIONS = 100
"""At most, per frame."""
_STEP = 1e-6
"""A step below this ends the descent [rad or m]."""
_GAIN = 1e-9
"""So does one that improves the cost by less than this part of it."""
_GOOD_M = 0.005
"""Where points are nearer than this to their targets, no other start is tried."""
_DAMPED = 1e8
"""And more damping than this: there is no way down."""


class Points(NamedTuple):
    """Points on fingertips."""

    tip: Int[np.ndarray, " p"]
    """Number of the fingertip."""
    offset: Float[np.ndarray, "p 3"]
    """In the frame of the fingertip's site [m]."""


class Wishes(NamedTuple):
    """What points should do, in every frame."""

    a: Int[np.ndarray, " k"]
    """Point where the vector begins; -1 for the palm's own origin, as it is without being moved."""
    b: Int[np.ndarray, " k"]
    """Point where it ends."""
    target: Float[np.ndarray, "n k 3"]
    """[m]"""
    weight: Float[np.ndarray, "n k"]


class Pull(NamedTuple):
    """What keeps the unknowns together; `stay` and `follow` are in m² per unknown's unit²."""

    lower: Float[np.ndarray, " m"]
    upper: Float[np.ndarray, " m"]
    rest: Float[np.ndarray, "n m"]
    """Where each unknown is drawn."""
    stay: Float[np.ndarray, " m"]
    """How strongly."""
    follow: Float[np.ndarray, " m"]
    """How strongly its way from `rest` is to be that of the frame before."""


@dataclass(frozen=True, eq=False)
class Solution:
    """What came of it."""

    x: Float[np.ndarray, "n m"]
    cost: Float[np.ndarray, " n"]
    """Of the wishes and the pull [m²]."""
    iterations: Int[np.ndarray, " n"]


class Frames(NamedTuple):
    """Where joints and fingertips are, seen from the palm."""

    axis: Float[np.ndarray, "l 3"]
    anchor: Float[np.ndarray, "l 3"]
    """[m]"""
    R_tip: Float[np.ndarray, "f 3 3"]
    p_tip: Float[np.ndarray, "f 3"]
    """[m]"""


def walk(links: Links, x: Float[np.ndarray, " m"]) -> Frames:
    """Returns axes and anchors of all links, and the poses of the fingertips' sites."""
    room = _room(links)
    nowhere = Points(np.zeros(0, dtype=np.int64), np.zeros((0, 3)))
    _points(links, nowhere, _plain(x), room, np.zeros((0, 3)), np.zeros((0, 3, len(x))))
    return Frames(*room[2:6])


def follow(
    links: Links, points: Points, wishes: Wishes, pull: Pull, starts: Float[np.ndarray, "s m"], *, huber_m: float
) -> Solution:
    """Solves frame after frame, each starting from the one before, and from rest too where that ends badly.

    Args:
        links: Of the hand.
        points: On its fingertips.
        wishes: What they should do.
        pull: Limits, and what keeps the unknowns together. Those beyond the links' own are the palm's.
        starts: For the first frame; the best of them is carried on.
        huber_m: From this distance on, an error counts in proportion, no longer squared [m].
    """
    plain = Points(*map(_plain, points)), Wishes(*map(_plain, wishes)), Pull(*map(_plain, pull))
    return Solution(*_follow(links, *plain, _plain(starts), float(huber_m)))


def place(links: Links, points: Points, x: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n p 3"]:
    """Returns where points are, seen from the palm [m]."""
    return _place(links, Points(*map(_plain, points)), _plain(x), False)[0]


def place_with_slope(
    links: Links, points: Points, x: Float[np.ndarray, "n m"]
) -> tuple[Float[np.ndarray, "n p 3"], Float[np.ndarray, "n p 3 m"]]:
    """Returns where points are, and their derivatives by the unknowns."""
    return _place(links, Points(*map(_plain, points)), _plain(x), True)


def _plain(array: np.ndarray) -> np.ndarray:
    """Returns a copy of the one layout that code is compiled for."""
    return np.array(array, dtype=np.int64 if np.issubdtype(array.dtype, np.integer) else np.float64, order="C")


@njit(cache=True, nogil=True)
def _place(links, points, x, slopes):
    n, m, count = x.shape[0], x.shape[1], len(points.tip)
    p, J = np.zeros((n, count, 3)), np.zeros((n if slopes else 1, count, 3, m))
    room = _room(links)
    for t in range(n):
        _points(links, points, x[t], room, p[t], J[t if slopes else 0])
    return p, J


@njit(cache=True, nogil=True)
def _room(links):
    """Returns arrays to work in: displacement and slope by joint, axis and anchor by link, pose by tip, turn and its
    derivative of the palm."""
    joints, count, tips = len(links.source), len(links.joint), len(links.R_tip)
    return (
        np.zeros(joints), np.zeros(joints), np.zeros((count, 3)), np.zeros((count, 3)), np.zeros((tips, 3, 3)),
        np.zeros((tips, 3)), np.zeros((2, 3, 3)),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _points(links, points, x, room, p, J):
    """Writes where points are and their derivatives by the unknowns."""
    d, slope, axis, anchor, R_tip, p_tip, turn = room
    unknowns = _displace(links, x, d, slope)
    for f in range(len(links.R_tip)):
        _walk(links, f, d, axis, anchor, R_tip[f], p_tip[f])
    palm = len(x) > unknowns
    if palm:
        _turn(x[unknowns + 3 :], turn)
    J[:] = 0.0
    for k in range(len(points.tip)):
        f = points.tip[k]
        R, o = R_tip[f], points.offset[k]
        for c in range(3):
            p[k, c] = p_tip[f, c] + R[c, 0] * o[0] + R[c, 1] * o[1] + R[c, 2] * o[2]
        for e in range(links.start[f], links.start[f + 1]):
            j = links.joint[e]
            a, i, s = axis[e], links.unknown[j], slope[j]
            if links.slide[e]:
                for c in range(3):
                    J[k, c, i] += s * a[c]
            else:
                rx, ry, rz = p[k, 0] - anchor[e, 0], p[k, 1] - anchor[e, 1], p[k, 2] - anchor[e, 2]
                J[k, 0, i] += s * (a[1] * rz - a[2] * ry)
                J[k, 1, i] += s * (a[2] * rx - a[0] * rz)
                J[k, 2, i] += s * (a[0] * ry - a[1] * rx)
        if palm:
            _carry(x, unknowns, turn, p[k], J[k])


@njit(cache=True, nogil=True)
def _displace(links, x, d, slope):
    """Writes each joint's displacement and its derivative by its unknown; returns how many unknowns joints have."""
    unknowns = 0
    for j in range(len(links.source)):
        source = links.source[j]
        if source == j:
            d[j] = x[links.unknown[j]] - links.zero[j]
            slope[j] = 1.0
            unknowns += 1
        else:
            a, y = links.polynomial[j], d[source]
            d[j] = a[0] + y * (a[1] + y * (a[2] + y * (a[3] + y * a[4])))
            slope[j] = slope[source] * (a[1] + y * (2 * a[2] + y * (3 * a[3] + y * 4 * a[4])))
    return unknowns


@njit(cache=True, nogil=True)
def _walk(links, f, d, axis, anchor, R, p):
    """Goes from the palm to a fingertip; writes axes and anchors on the way, and the pose at the end."""
    for r in range(3):
        p[r] = 0.0
        for c in range(3):
            R[r, c] = 1.0 if r == c else 0.0
    Q = np.empty((3, 3))
    for e in range(links.start[f], links.start[f + 1]):
        _attach(R, p, links.R_fixed[e], links.p_fixed[e])
        u, by = links.axis[e], d[links.joint[e]]
        for c in range(3):
            axis[e, c] = R[c, 0] * u[0] + R[c, 1] * u[1] + R[c, 2] * u[2]
            anchor[e, c] = p[c]
        if links.slide[e]:
            for c in range(3):
                p[c] += by * axis[e, c]
        else:
            _rodrigues(u, math.cos(by), math.sin(by), Q)
            _times(R, Q)
    _attach(R, p, links.R_tip[f], links.p_tip[f])


@njit(cache=True, nogil=True)
def _attach(R, p, R_next, p_next):
    """Moves a pose on by another one."""
    for c in range(3):
        p[c] += R[c, 0] * p_next[0] + R[c, 1] * p_next[1] + R[c, 2] * p_next[2]
    _times(R, R_next)


@njit(cache=True, nogil=True)
def _times(R, Q):
    """Multiplies R by Q, in place."""
    for r in range(3):
        a, b, c = R[r, 0], R[r, 1], R[r, 2]
        for k in range(3):
            R[r, k] = a * Q[0, k] + b * Q[1, k] + c * Q[2, k]


@njit(cache=True, nogil=True)
def _rodrigues(u, c, s, Q):
    """Writes the rotation about a unit axis whose angle has cosine c and sine s."""
    x, y, z, v = u[0], u[1], u[2], 1.0 - c
    Q[0, 0], Q[0, 1], Q[0, 2] = c + v * x * x, v * x * y - s * z, v * x * z + s * y
    Q[1, 0], Q[1, 1], Q[1, 2] = v * x * y + s * z, c + v * y * y, v * y * z - s * x
    Q[2, 0], Q[2, 1], Q[2, 2] = v * x * z - s * y, v * y * z + s * x, c + v * z * z


@njit(cache=True, nogil=True)
def _turn(w, turn):
    """Writes exp(w) = 1 + s [w] + a [w]², and L = 1 + a [w] + b [w]²: d exp(w) p = (L dw) x (exp(w) p)."""
    angle = math.sqrt(w[0] * w[0] + w[1] * w[1] + w[2] * w[2])
    if angle < 1e-4:
        s, a, b = 1.0 - angle * angle / 6, 0.5 - angle * angle / 24, 1.0 / 6 - angle * angle / 120
    else:
        s = math.sin(angle) / angle
        a, b = (1.0 - math.cos(angle)) / angle**2, (1.0 - s) / angle**2
    L, x, y, z, square = turn[1], w[0], w[1], w[2], angle * angle
    L[0, 0], L[0, 1], L[0, 2] = 1.0 + b * (x * x - square), b * x * y - a * z, b * x * z + a * y
    L[1, 0], L[1, 1], L[1, 2] = b * x * y + a * z, 1.0 + b * (y * y - square), b * y * z - a * x
    L[2, 0], L[2, 1], L[2, 2] = b * x * z - a * y, b * y * z + a * x, 1.0 + b * (z * z - square)
    E = turn[0]
    E[0, 0], E[0, 1], E[0, 2] = 1.0 + a * (x * x - square), a * x * y - s * z, a * x * z + s * y
    E[1, 0], E[1, 1], E[1, 2] = a * x * y + s * z, 1.0 + a * (y * y - square), a * y * z - s * x
    E[2, 0], E[2, 1], E[2, 2] = a * x * z - s * y, a * y * z + s * x, 1.0 + a * (z * z - square)


@njit(cache=True, nogil=True)
def _carry(x, unknowns, turn, p, J):
    """Moves a point and its derivatives with the palm, and writes its derivatives by the palm's unknowns."""
    E, L = turn[0], turn[1]
    for i in range(unknowns):
        vx, vy, vz = J[0, i], J[1, i], J[2, i]
        for c in range(3):
            J[c, i] = E[c, 0] * vx + E[c, 1] * vy + E[c, 2] * vz
    px, py, pz = p[0], p[1], p[2]
    for c in range(3):
        p[c] = E[c, 0] * px + E[c, 1] * py + E[c, 2] * pz
    for i in range(3):
        J[i, unknowns + i] = 1.0
        J[0, unknowns + 3 + i] = L[1, i] * p[2] - L[2, i] * p[1]
        J[1, unknowns + 3 + i] = L[2, i] * p[0] - L[0, i] * p[2]
        J[2, unknowns + 3 + i] = L[0, i] * p[1] - L[1, i] * p[0]
    for c in range(3):
        p[c] += x[unknowns + c]


@njit(cache=True, nogil=True)
def _cost(wishes, t, huber, p, x, centre, stiffness):
    """Returns the cost [m²]."""
    total = 0.0
    for k in range(len(wishes.b)):
        w, a, b = wishes.weight[t, k], wishes.a[k], wishes.b[k]
        if w == 0.0:
            continue
        square = 0.0
        for c in range(3):
            r = p[b, c] - (p[a, c] if a >= 0 else 0.0) - wishes.target[t, k, c]
            square += r * r
        if square <= huber * huber:
            total += 0.5 * w * square
        else:
            total += w * huber * (math.sqrt(square) - 0.5 * huber)
    for i in range(len(x)):
        total += 0.5 * stiffness[i] * (x[i] - centre[i]) ** 2
    return total


@njit(cache=True, nogil=True)
def _model(wishes, t, huber, p, J, x, centre, stiffness, g, H):
    """Writes the cost's gradient and Gauss-Newton's Hessian."""
    m = len(x)
    for i in range(m):
        g[i] = stiffness[i] * (x[i] - centre[i])
        for j in range(i):
            H[i, j] = 0.0
        H[i, i] = stiffness[i]
    r, D = np.empty(3), np.empty((3, m))
    for k in range(len(wishes.b)):
        w, a, b = wishes.weight[t, k], wishes.a[k], wishes.b[k]
        if w == 0.0:
            continue
        square = 0.0
        for c in range(3):
            r[c] = p[b, c] - (p[a, c] if a >= 0 else 0.0) - wishes.target[t, k, c]
            square += r[c] * r[c]
            for i in range(m):
                D[c, i] = J[b, c, i] - (J[a, c, i] if a >= 0 else 0.0)
        if square > huber * huber:
            w *= huber / math.sqrt(square)
        for i in range(m):
            if D[0, i] == 0.0 and D[1, i] == 0.0 and D[2, i] == 0.0:
                continue
            g[i] += w * (D[0, i] * r[0] + D[1, i] * r[1] + D[2, i] * r[2])
            for j in range(i + 1):
                H[i, j] += w * (D[0, i] * D[0, j] + D[1, i] * D[1, j] + D[2, i] * D[2, j])


@njit(cache=True, nogil=True)
def _factor(A, m):
    """Overwrites the lower triangle of a positive matrix by its Cholesky factor; False if it is not positive."""
    for i in range(m):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s -= A[i, k] * A[j, k]
            if i == j:
                if s <= 0.0:
                    return False
                A[i, i] = math.sqrt(s)
            else:
                A[i, j] = s / A[j, j]
    return True


@njit(cache=True, nogil=True)
def _solve(A, m, y):
    """Solves by a Cholesky factor, in place."""
    for i in range(m):
        for k in range(i):
            y[i] -= A[i, k] * y[k]
        y[i] /= A[i, i]
    for i in range(m - 1, -1, -1):
        for k in range(i + 1, m):
            y[i] -= A[k, i] * y[k]
        y[i] /= A[i, i]


@njit(cache=True, nogil=True)
def _step(g, H, damping, x, lower, upper, free, ids, A, y, dx):
    """Writes the step that minimises the damped quadratic model inside the limits; False if it cannot be solved."""
    m = len(x)
    for i in range(m):
        dx[i] = 0.0
        free[i] = not ((x[i] <= lower[i] and g[i] >= 0.0) or (x[i] >= upper[i] and g[i] <= 0.0))
    while True:
        n = 0
        for i in range(m):
            if free[i]:
                ids[n] = i
                n += 1
        for r in range(n):
            i = ids[r]
            y[r] = -g[i]
            for j in range(m):
                if not free[j] and dx[j] != 0.0:
                    y[r] -= (H[i, j] if j <= i else H[j, i]) * dx[j]
            for c in range(r + 1):
                A[r, c] = H[i, ids[c]]
            A[r, r] += damping * H[i, i]
        if not _factor(A, n):
            return False
        _solve(A, n, y)
        crossed = False
        for r in range(n):
            i = ids[r]
            dx[i] = y[r]
            if x[i] + dx[i] < lower[i]:
                dx[i], free[i], crossed = lower[i] - x[i], False, True
            elif x[i] + dx[i] > upper[i]:
                dx[i], free[i], crossed = upper[i] - x[i], False, True
        if not crossed:
            return True


@njit(cache=True, nogil=True)
def _gain(g, H, dx):
    """Returns by how much the undamped quadratic model falls."""
    fall = 0.0
    for i in range(len(dx)):
        s = 0.5 * H[i, i] * dx[i]
        for j in range(i):
            s += H[i, j] * dx[j]
        fall -= dx[i] * (g[i] + s)
    return fall


@njit(cache=True, nogil=True)
def _descend(links, points, wishes, t, huber, lower, upper, centre, stiffness, x, room, space):
    """Goes down from x, which it overwrites; returns the cost there and the number of iterations."""
    p, J, p_new, J_new, g, H, A, y, dx, trial, free, ids = space
    _points(links, points, x, room, p, J)
    cost = _cost(wishes, t, huber, p, x, centre, stiffness)
    damping, growth = 1e-6, 4.0
    for iteration in range(1, _ITERATIONS + 1):
        _model(wishes, t, huber, p, J, x, centre, stiffness, g, H)
        while True:
            solved = _step(g, H, damping, x, lower, upper, free, ids, A, y, dx)
            expected = _gain(g, H, dx) if solved else 0.0
            far = 0.0
            for i in range(len(x)):
                far = max(far, abs(dx[i]))
            if expected > 0.0 and damping < 1.0 and (expected < _GAIN * cost or far < _STEP):
                return cost, iteration
            if expected > 0.0:
                for i in range(len(x)):
                    trial[i] = min(max(x[i] + dx[i], lower[i]), upper[i])
                _points(links, points, trial, room, p_new, J_new)
                new = _cost(wishes, t, huber, p_new, trial, centre, stiffness)
                if new < cost:
                    damping *= max(1.0 / 3.0, 1.0 - (2.0 * (cost - new) / expected - 1.0) ** 3)
                    growth = 4.0
                    cost = new
                    for i in range(len(x)):
                        x[i] = trial[i]
                    p, p_new, J, J_new = p_new, p, J_new, J
                    break
            # The step goes nowhere: past what the model can tell, or around a corner of the limits.
            damping *= growth
            growth *= 2.0
            if damping > _DAMPED:
                return cost, iteration
    return cost, _ITERATIONS


@njit(cache=True, nogil=True)
def _follow(links, points, wishes, pull, starts, huber):
    frames, m, count = len(wishes.target), starts.shape[1], len(points.tip)
    path, costs, iterations = np.zeros((frames, m)), np.zeros(frames), np.zeros(frames, np.int64)
    room = _room(links)
    space = (
        np.zeros((count, 3)), np.zeros((count, 3, m)), np.zeros((count, 3)), np.zeros((count, 3, m)), np.zeros(m),
        np.zeros((m, m)), np.zeros((m, m)), np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m, np.bool_),
        np.zeros(m, np.int64),
    )  # fmt: skip
    x, centre, stiffness, before = np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m)
    for t in range(frames):
        good = 0.0
        for k in range(len(wishes.b)):
            good += 0.5 * wishes.weight[t, k] * _GOOD_M**2
        strain = 0.0  # between the two pulls, whatever x is
        for i in range(m):
            stiffness[i], centre[i] = pull.stay[i], pull.rest[t, i]
            if t:
                before[i] = pull.rest[t, i] + path[t - 1, i] - pull.rest[t - 1, i]
                stiffness[i] += pull.follow[i]
                if stiffness[i] > 0.0:
                    apart, share = before[i] - pull.rest[t, i], pull.follow[i] / stiffness[i]
                    centre[i] += share * apart
                    strain += 0.5 * pull.stay[i] * share * apart * apart
        for k in range(2 if t else len(starts)):
            for i in range(m):
                start = (before[i] if k == 0 else pull.rest[t, i]) if t else starts[k, i]
                x[i] = min(max(start, pull.lower[i]), pull.upper[i])
            cost, taken = _descend(
                links, points, wishes, t, huber, pull.lower, pull.upper, centre, stiffness, x, room, space
            )
            iterations[t] += taken
            if k == 0 or cost < costs[t]:
                costs[t] = cost
                for i in range(m):
                    path[t, i] = x[i]
            if t and costs[t] < good:
                break
        costs[t] += strain
    return path, costs, iterations
