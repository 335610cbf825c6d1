"""Least-effort forces inside friction cones: a second-order cone program, solved by an interior-point method.

The unknowns are u, one vector (normal, tangents / µ) for each contact, and the share of the disturbances that is borne:

    minimise    ½ uᵀ P u + PULL |r| + ½ SPRING |r|² + ½ worth (1 - share)²,    r = A u - b
    subject to  u_i + share · d_ki in the cone {(c, v): |v| ≤ c}    for each contact i and disturbance k
                rows · (u, share) ≤ limits

There always is an answer: where forces that balance exist, r is zero; else they miss least. |r| has a corner at zero,
and the multiplier y of r = A u - b rests there as long as it is shorter than PULL. Steps are Mehrotra's predictor and
corrector in Nesterov and Todd's scaling, as Vandenberghe describes them (The CVXOPT linear and quadratic cone program
solvers, 2010).

All that is compiled is in this file, written out in loops: Numba's cache does not notice a change in another file, and
loops over few numbers compile in half the time.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numba import njit

PULL = 1e6
"""What a unit of imbalance costs, where effort counts as 1: more than effort can save, with forces up to some hundred
times the wrench."""
SPRING = 1e6
"""Makes the miss the least in the sense of squares, where there must be one."""
STEADY = 1e-8
"""Keeps steps of y finite where contacts cannot make a wrench at all."""
STEPS = 50
"""It takes 10 to 20."""
TOLERANCE = 1e-9
"""Of conditions and of the duality gap, relative."""

_compiled = njit(cache=True, error_model="numpy", nogil=True)


@_compiled
def least_effort(
    P: Float[np.ndarray, "b m m"],
    A: Float[np.ndarray, "b 6 m"],
    wrench: Float[np.ndarray, "b 6"],
    offsets: Float[np.ndarray, "b k m"],
    rows: Float[np.ndarray, "b l m+1"],
    limits: Float[np.ndarray, "b l"],
    worth: Float[np.ndarray, " b"],
    width: int,
    u: Float[np.ndarray, "b m"],
    share: Float[np.ndarray, " b"],
    steps: Int[np.ndarray, " b"],
) -> None:
    """Solves the program above, many times. It is meant for numbers around 1: scale forces first.

    Args:
        P: Effort; symmetric, positive.
        A: Makes a wrench of u.
        wrench: The wanted one, b above.
        offsets: Disturbances d_k, the first one zero.
        rows: Bounds on u and the share, among them share ≥ 0.
        limits: Of these rows. There must be some u inside all cones that keeps them, at a share of zero.
        worth: Of bearing the disturbances, against effort; less than PULL times the square of their size.
        width: How many numbers a contact has, 3 or 4.
        u: Written: forces, inside the cones.
        share: Written: share of the disturbances that is borne.
        steps: Written: how many it took, `STEPS` where it did not converge.
    """
    for g in range(P.shape[0]):
        share[g], steps[g] = _solve_one(P[g], A[g], wrench[g], offsets[g], rows[g], limits[g], worth[g], width, u[g])


@_compiled
def _solve_one(P, A, b, offsets, rows, limits, worth, width, u):
    m, bounds = P.shape[0], rows.shape[0]
    n = m // width
    c = offsets.shape[0] * n
    Q = np.zeros((m + 1, m + 1))
    for p in range(m):
        for q in range(m):
            Q[p, q] = P[p, q]
    Q[m, m] = worth
    M, V, S, D = np.empty((m + 1, m + 1)), np.empty((m + 1, 6)), np.empty((6, 6)), np.zeros((6, 6))
    x, y, dx, dy, r_x, r_y = np.zeros(m + 1), np.zeros(6), np.zeros(m + 1), np.zeros(6), np.zeros(m + 1), np.zeros(6)
    # Cones: slack s, multiplier z, scaling w and eta, scaled point lam, residual r, correction t.
    s, z, ds, dz = np.zeros((c, width)), np.zeros((c, width)), np.zeros((c, width)), np.zeros((c, width))
    w, lam, r, t = np.zeros((c, width)), np.zeros((c, width)), np.zeros((c, width)), np.zeros((c, width))
    eta, one, two, three = np.ones(c), np.zeros(width), np.zeros(width), np.zeros(width)
    # Rows, likewise.
    s_l, z_l, ds_l, dz_l = np.zeros(bounds), np.zeros(bounds), np.zeros(bounds), np.zeros(bounds)
    w_l, r_l, t_l = np.ones(bounds), np.zeros(bounds), np.zeros(bounds)

    # Start from the answer with springs in place of walls, pushed inside.
    for i in range(c):
        w[i, 0] = 1.0
    for q in range(6):
        D[q, q] = 1.0 / SPRING
    _factorise(Q, A, offsets, rows, w, eta, w_l, D, M, V, S)
    for j in range(bounds):
        for p in range(m + 1):
            r_x[p] += rows[j, p] * limits[j]
    r_x[m] += worth
    _solve(M, V, S, r_x, b, x, y)
    _slacks(x, offsets, rows, s, s_l)
    for j in range(bounds):
        s_l[j] += limits[j]
        z_l[j] = -s_l[j]
    for i in range(c):
        for p in range(width):
            z[i, p] = -s[i, p]
    _push_inside(s, s_l)
    _push_inside(z, z_l)

    step = 0
    while step < STEPS:
        # What the conditions miss.
        for p in range(m + 1):
            r_x[p] = 0.0
            for q in range(m + 1):
                r_x[p] += Q[p, q] * x[q]
        effort = 0.0
        for p in range(m):
            effort += 0.5 * x[p] * r_x[p]
            for q in range(6):
                r_x[p] += A[q, p] * y[q]
        r_x[m] -= worth
        _add_transposed(z, z_l, offsets, rows, -1.0, r_x)
        pull = 0.0
        for q in range(6):
            pull += y[q] * y[q]
        pull = np.sqrt(pull)
        slip = max(1.0 - PULL / pull, 0.0) / SPRING if pull > 0.0 else 0.0
        for q in range(6):
            for p in range(6):
                D[q, p] = (1.0 / SPRING - slip) * y[q] * y[p] / (pull * pull) if slip > 0.0 else 0.0
            D[q, q] += slip if slip > 0.0 else STEADY
            r_y[q] = -slip * y[q] - b[q]
            for p in range(m):
                r_y[q] += A[q, p] * x[p]
        _slacks(x, offsets, rows, r, r_l)
        gap, worst, steep, far = 0.0, 0.0, 1.0, 1.0
        for i in range(c):
            for p in range(width):
                r[i, p] = s[i, p] - r[i, p]
                gap += s[i, p] * z[i, p]
                worst, far, steep = max(worst, abs(r[i, p])), max(far, s[i, p]), max(steep, z[i, p])
        for j in range(bounds):
            r_l[j] = s_l[j] - r_l[j] - limits[j]
            gap += s_l[j] * z_l[j]
            worst, steep = max(worst, abs(r_l[j])), max(steep, z_l[j])
        gap /= c + bounds
        tight = worst < TOLERANCE * far and gap < TOLERANCE * (1.0 + effort + 0.5 * slip * pull * pull)
        off_balance = 1e2 * TOLERANCE * far + 1e-6 * slip * pull
        if tight and _largest(r_y) < off_balance and _largest(r_x) < 1e4 * TOLERANCE * steep:
            break

        _scale(s, z, w, eta, lam)
        for j in range(bounds):
            w_l[j] = np.sqrt(s_l[j] / z_l[j])
        _factorise(Q, A, offsets, rows, w, eta, w_l, D, M, V, S)

        # Predictor: straight to the answer. How far it gets tells how much to centre.
        for i in range(c):
            for p in range(width):
                t[i, p] = lam[i, p]
        for j in range(bounds):
            t_l[j] = np.sqrt(s_l[j] * z_l[j])
        _step(M, V, S, offsets, rows, w, eta, w_l, r_x, r_y, r, r_l, t, t_l, dx, dy, ds, ds_l, dz, dz_l)
        reach = min(1.0, _reach(s, ds, s_l, ds_l), _reach(z, dz, z_l, dz_l))
        centre, bend = max((1.0 - reach) ** 3, 1e-4) * gap, 1.0
        if step % 8 == 7 and step > 16:
            centre, bend = 0.5 * gap, 0.0  # the steps may go round in a circle; this one leaves it

        # Corrector: centred, and with the curvature that the predictor left out.
        for i in range(c):
            _unscaled(w[i], eta[i], ds[i], one)
            _scaled(w[i], eta[i], dz[i], two)
            _product(one, two, three)
            _product(lam[i], lam[i], one)
            for p in range(width):
                three[p] = bend * three[p] + one[p]
            three[0] -= centre
            _divide(lam[i], three, t[i])
        for j in range(bounds):
            t_l[j] = (s_l[j] * z_l[j] + bend * ds_l[j] * dz_l[j] - centre) / np.sqrt(s_l[j] * z_l[j])
        _step(M, V, S, offsets, rows, w, eta, w_l, r_x, r_y, r, r_l, t, t_l, dx, dy, ds, ds_l, dz, dz_l)
        reach = min(1.0, 0.99 * _reach(s, ds, s_l, ds_l), 0.99 * _reach(z, dz, z_l, dz_l))
        if not np.isfinite(_largest(dx) + _largest(dy)):
            step = STEPS  # rounding has the last word
            break
        for p in range(m + 1):
            x[p] += reach * dx[p]
        for q in range(6):
            y[q] += reach * dy[q]
        for i in range(c):
            for p in range(width):
                s[i, p] += reach * ds[i, p]
                z[i, p] += reach * dz[i, p]
        for j in range(bounds):
            s_l[j] += reach * ds_l[j]
            z_l[j] += reach * dz_l[j]
        step += 1
    # The slacks of the undisturbed cones are u, and they are inside whatever happened.
    for i in range(n):
        for p in range(width):
            u[i * width + p] = s[i, p]
    return x[m], step


@_compiled
def _slacks(x, offsets, rows, s, s_l):
    """Writes u_i + share · d_ki for every cone, and -rows · x."""
    width, m = s.shape[1], offsets.shape[1]
    n = m // width
    for k in range(offsets.shape[0]):
        for i in range(n):
            for p in range(width):
                s[k * n + i, p] = x[i * width + p] + x[m] * offsets[k, i * width + p]
    for j in range(rows.shape[0]):
        s_l[j] = 0.0
        for p in range(m + 1):
            s_l[j] -= rows[j, p] * x[p]


@_compiled
def _add_transposed(z, z_l, offsets, rows, sign, out):
    """Adds to `out` what the transposed of `_slacks` makes of z, times `sign`."""
    width, m = z.shape[1], offsets.shape[1]
    n = m // width
    for k in range(offsets.shape[0]):
        for i in range(n):
            for p in range(width):
                value = sign * z[k * n + i, p]
                out[i * width + p] += value
                out[m] += value * offsets[k, i * width + p]
    for j in range(rows.shape[0]):
        value = sign * z_l[j]
        for p in range(m + 1):
            out[p] -= value * rows[j, p]


@_compiled
def _step(M, V, S, offsets, rows, w, eta, w_l, r_x, r_y, r, r_l, t, t_l, dx, dy, ds, ds_l, dz, dz_l):
    """Writes Newton's step; t is what scaled slack and scaled multiplier together shall lose."""
    for i in range(r.shape[0]):
        _unscaled(w[i], eta[i], r[i], dz[i])
        for p in range(r.shape[1]):
            ds[i, p] = dz[i, p] - t[i, p]
        _unscaled(w[i], eta[i], ds[i], dz[i])
    for j in range(rows.shape[0]):
        dz_l[j] = (r_l[j] / w_l[j] - t_l[j]) / w_l[j]
    right, low = np.empty(r_x.shape[0]), np.empty(6)
    for p in range(r_x.shape[0]):
        right[p] = -r_x[p]
    for q in range(6):
        low[q] = -r_y[q]
    _add_transposed(dz, dz_l, offsets, rows, 1.0, right)
    _solve(M, V, S, right, low, dx, dy)
    _slacks(dx, offsets, rows, ds, ds_l)
    scratch = np.empty(r.shape[1])
    for i in range(r.shape[0]):
        for p in range(r.shape[1]):
            ds[i, p] -= r[i, p]
        _unscaled(w[i], eta[i], ds[i], scratch)
        for p in range(r.shape[1]):
            scratch[p] = -t[i, p] - scratch[p]
        _unscaled(w[i], eta[i], scratch, dz[i])
    for j in range(rows.shape[0]):
        ds_l[j] -= r_l[j]
        dz_l[j] = -(t_l[j] + ds_l[j] / w_l[j]) / w_l[j]


@_compiled
def _factorise(Q, A, offsets, rows, w, eta, w_l, D, M, V, S):
    """Writes L of L Lᵀ = Q + Cᵀ W⁻² C, V = L⁻¹ Aᵀ, and the factor of Vᵀ V + D."""
    m, width = offsets.shape[1], w.shape[1]
    n = m // width
    for p in range(m + 1):
        for q in range(p + 1):
            M[p, q] = Q[p, q]
    for k in range(offsets.shape[0]):
        for i in range(n):
            c = k * n + i
            inverse = 1.0 / (eta[c] * eta[c])
            for p in range(width):
                pull, a = 0.0, i * width + p
                for q in range(width):
                    # W⁻² = (2 v vᵀ - diag(1, -1, ...)) / eta² with v = (w0, -w1).
                    value = 2.0 * w[c, p] * w[c, q]
                    if (p == 0) != (q == 0):
                        value = -value
                    if p == q:
                        value += -1.0 if p == 0 else 1.0
                    value *= inverse
                    if q <= p:
                        M[a, i * width + q] += value
                    pull += value * offsets[k, i * width + q]
                M[m, a] += pull
                M[m, m] += pull * offsets[k, a]
    for j in range(rows.shape[0]):
        inverse = 1.0 / (w_l[j] * w_l[j])
        for p in range(m + 1):
            if rows[j, p] != 0.0:
                value = inverse * rows[j, p]
                for q in range(p + 1):
                    M[p, q] += value * rows[j, q]
    _cholesky(M)
    for p in range(m + 1):
        for q in range(6):
            value = A[q, p] if p < m else 0.0
            for k in range(p):
                value -= M[p, k] * V[k, q]
            V[p, q] = value / M[p, p]
    for p in range(6):
        for q in range(p + 1):
            S[p, q] = D[p, q]
            for k in range(m + 1):
                S[p, q] += V[k, p] * V[k, q]
    _cholesky(S)


@_compiled
def _solve(M, V, S, right, low, dx, dy):
    """Writes the answer of M dx + Aᵀ dy = right, A dx - D dy = low; spoils `right`."""
    size = M.shape[0]
    _forward(M, right)
    for q in range(6):
        dy[q] = -low[q]
        for p in range(size):
            dy[q] += V[p, q] * right[p]
    _forward(S, dy)
    _backward(S, dy)
    for p in range(size):
        dx[p] = right[p]
        for q in range(6):
            dx[p] -= V[p, q] * dy[q]
    _backward(M, dx)


@_compiled
def _cholesky(M):
    """Writes the lower factor over M. Where rounding left nothing of a pivot, that direction is held still."""
    for j in range(M.shape[0]):
        pivot = M[j, j]
        for k in range(j):
            pivot -= M[j, k] * M[j, k]
        M[j, j] = np.sqrt(pivot) if pivot > 1e-30 else 1e30
        for i in range(j + 1, M.shape[0]):
            value = M[i, j]
            for k in range(j):
                value -= M[i, k] * M[j, k]
            M[i, j] = value / M[j, j]


@_compiled
def _forward(L, t):
    for i in range(L.shape[0]):
        for k in range(i):
            t[i] -= L[i, k] * t[k]
        t[i] /= L[i, i]


@_compiled
def _backward(L, t):
    for i in range(L.shape[0] - 1, -1, -1):
        t[i] /= L[i, i]
        for k in range(i):
            t[k] -= L[i, k] * t[i]


@_compiled
def _largest(t):
    largest = 0.0
    for p in range(t.shape[0]):
        largest = max(largest, abs(t[p]))
        if np.isnan(t[p]):
            return np.nan
    return largest


@_compiled
def _length(v):
    total = 0.0
    for p in range(1, v.shape[0]):
        total += v[p] * v[p]
    return np.sqrt(total)


@_compiled
def _determinant(v):
    length = _length(v)
    return (v[0] - length) * (v[0] + length)


@_compiled
def _push_inside(v, v_l):
    """Moves all vectors along the axes of their cones, until the outermost is inside by a good part of the longest."""
    room, size = np.inf, 1.0
    for i in range(v.shape[0]):
        room = min(room, v[i, 0] - _length(v[i]))
        size = max(size, abs(v[i, 0]))
    for j in range(v_l.shape[0]):
        room = min(room, v_l[j])
    shift = max(0.0, 0.1 * size - room)
    for i in range(v.shape[0]):
        v[i, 0] += shift
    for j in range(v_l.shape[0]):
        v_l[j] += shift


@_compiled
def _scale(s, z, w, eta, lam):
    """Writes W = eta · [w0, w1ᵀ; w1, 1 + w1 w1ᵀ / (1 + w0)], which makes W z = W⁻¹ s, and that point."""
    for i in range(s.shape[0]):
        root_s, root_z = np.sqrt(_determinant(s[i])), np.sqrt(_determinant(z[i]))
        dot = 0.0
        for p in range(s.shape[1]):
            dot += s[i, p] * z[i, p]
        gamma = np.sqrt(2.0 + 2.0 * dot / (root_s * root_z))
        for p in range(s.shape[1]):
            mirrored = z[i, p] if p == 0 else -z[i, p]
            w[i, p] = (s[i, p] / root_s + mirrored / root_z) / gamma
        eta[i] = np.sqrt(root_s / root_z)
        _scaled(w[i], eta[i], z[i], lam[i])


@_compiled
def _scaled(w, eta, v, out):
    """Writes W v."""
    dot = 0.0
    for p in range(1, v.shape[0]):
        dot += w[p] * v[p]
    along = v[0] + dot / (1.0 + w[0])
    for p in range(1, v.shape[0]):
        out[p] = eta * (v[p] + along * w[p])
    out[0] = eta * (w[0] * v[0] + dot)


@_compiled
def _unscaled(w, eta, v, out):
    """Writes W⁻¹ v."""
    dot = 0.0
    for p in range(1, v.shape[0]):
        dot += w[p] * v[p]
    along = dot / (1.0 + w[0]) - v[0]
    for p in range(1, v.shape[0]):
        out[p] = (v[p] + along * w[p]) / eta
    out[0] = (w[0] * v[0] - dot) / eta


@_compiled
def _product(a, b, out):
    """Writes a ∘ b = (aᵀb, a0 b1 + b0 a1)."""
    out[0] = a[0] * b[0]
    for p in range(1, a.shape[0]):
        out[0] += a[p] * b[p]
        out[p] = a[0] * b[p] + b[0] * a[p]


@_compiled
def _divide(a, b, out):
    """Writes v of a ∘ v = b."""
    out[0] = a[0] * b[0]
    for p in range(1, a.shape[0]):
        out[0] -= a[p] * b[p]
    out[0] /= _determinant(a)
    for p in range(1, a.shape[0]):
        out[p] = (b[p] - out[0] * a[p]) / a[0]


@_compiled
def _reach(v, dv, v_l, dv_l):
    """Returns how many times dv can be added until a vector leaves its cone, or a number is negative."""
    least = 1e30
    for i in range(v.shape[0]):
        square, cross = dv[i, 0] * dv[i, 0], v[i, 0] * dv[i, 0]
        for p in range(1, v.shape[1]):
            square -= dv[i, p] * dv[i, p]
            cross -= v[i, p] * dv[i, p]
        inside = _determinant(v[i])
        # First positive root of square · a² + 2 cross · a + inside = 0. Rounding may make a double root complex.
        root = np.sqrt(max(cross * cross - square * inside, 0.0))
        q = -cross - root if cross >= 0.0 else -cross + root
        if q > 0.0:
            least = min(least, inside / q)
        if square != 0.0 and q / square > 0.0:
            least = min(least, q / square)
    for j in range(v_l.shape[0]):
        if dv_l[j] < 0.0:
            least = min(least, -v_l[j] / dv_l[j])
    return least
