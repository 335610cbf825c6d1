"""Motion that can always still be stopped: how a joint follows a target inside its limits.

A joint's state is where it was last sent, its speed and its acceleration, as differences of what was sent:

    v' = (q' - q) / h,    a' = (v' - v) / h,    j' = (a' - a) / h,    with h the time since the last command.

A state is safe if the shortest stop from it, with the jerk and acceleration that are allowed, stays within the limits
of position and speed. `brake` gives the next command of that stop. However long h is, it leads from a safe state to a
safe one: these differences brake at least as well as the smooth motion does, for each new acceleration acts at once
(`tests/rig/test_braking.py` tries it a million times). A state is also safe if it is so slow that the next command may
be to stand still. So a target is followed exactly where that is safe, and where it is not, as nearly as is safe; a safe
command is always left.

All compiled code is in this one file: numba's cache would not notice a change in another.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

POSITION, SPEED, ACCELERATION, JERK, BRAKING = 1, 2, 4, 8, 16
"""Why a command was not followed, as bits. BRAKING: it could not have stopped at its limit later."""
_HALVINGS = 24


@njit(cache=True, nogil=True)
def extent(v, a, A, J):
    """Returns how far the shortest stop goes up and down, and the highest and the lowest speed on the way.

    It turns the acceleration down at the jerk's limit to -p, holds it there if p is the acceleration's limit, and
    turns it up to zero just when the speed is zero. Where the acceleration brakes too hard already it is the mirror
    image: a speed that would fall below zero is braked from below.
    """
    flip = v + a * abs(a) / (2.0 * J) < 0.0
    if flip:
        v, a = -v, -a
    p = math.sqrt(max(J * v + 0.5 * a * a, 0.0))
    hold = 0.0
    if p > A:
        p = A
        hold = max((v + a * a / (2.0 * J)) / A - A / J, 0.0)
    t = max((a + p) / J, 0.0)
    end = t * (v + t * (a / 2.0 - J * t / 6.0))
    end += hold * (p * p / (2.0 * J) + 0.5 * p * hold) + p * p * p / (6.0 * J * J)
    fastest = v + a * a / (2.0 * J) if a > 0.0 else v
    if v >= 0.0:
        up, down, slowest = max(end, 0.0), 0.0, 0.0
    else:
        t = -2.0 * v / (a + math.sqrt(max(a * a + 2.0 * J * v, 0.0)))
        down, slowest = max(-t * (v + t * (a / 2.0 - J * t / 6.0)), 0.0), v
        up = max(end, 0.0)
    if flip:
        return down, up, -slowest, -fastest
    return up, down, fastest, slowest


@njit(cache=True, nogil=True)
def brake(v, a, h, A, J):
    """Returns the next acceleration of the shortest stop: as near as it may get to where its final turn begins."""
    turn = -2.0 * J * v / (math.sqrt(J * J * h * h + 2.0 * J * abs(v)) + J * h)
    return min(max(turn, max(a - J * h, -A)), min(a + J * h, A))


@njit(cache=True, nogil=True)
def holds(v, a, A, J, soonest):
    """Whether it may stand still from the next command on, if that comes no sooner than is said [s]."""
    return abs(v) <= A * soonest and abs(v) / soonest + abs(a) <= J * soonest


@njit(cache=True, nogil=True)
def safe(q, v, a, low, high, V, A, J, slack, soonest):
    """Whether it may stand still at once, or the shortest stop stays within the limits.

    Those of position have a slack that is below rounding.
    """
    if holds(v, a, A, J, soonest):
        return low <= q <= high and abs(v) <= V
    up, down, fastest, slowest = extent(v, a, A, J)
    return q + up <= high + slack and q - down >= low - slack and fastest <= V and slowest >= -V


@njit(cache=True, nogil=True)
def stop(v, a, h, A, J, soonest):
    """Returns the next acceleration of a stop that leads from any safe state to a safe state."""
    return -v / h if holds(v, a, A, J, soonest) else brake(v, a, h, A, J)


@njit(cache=True, nogil=True)
def _overshoots(gap, v, a, A, J, allowed):
    """Whether a stop relative to a target that is `gap` away goes past it by more than is allowed."""
    up, down, _, _ = extent(v, a, A, J)
    return up > max(gap, 0.0) + allowed or down > max(-gap, 0.0) + allowed


@njit(cache=True, nogil=True)
def _follow(q, v, a, x, drift, h, low, high, V, A, J, slack, soonest):
    """Returns the acceleration that follows a target x, which moves at a speed `drift`, as nearly as is safe."""
    lowest, highest = max(a - J * h, -A), min(a + J * h, A)
    wanted = min(max(((x - q) / h - v) / h, lowest), highest)
    # Come to the target without going past it; what this loop finds is good manners, not safety.
    calm = brake(v - drift, a, h, A, J)
    allowed = 1e-3 * abs(x - q)
    new = v + wanted * h
    if _overshoots(x + drift * h - q - new * h, new - drift, wanted, A, J, allowed):
        near, far = calm, wanted
        for _ in range(_HALVINGS):
            middle = 0.5 * (near + far)
            new = v + middle * h
            if _overshoots(x + drift * h - q - new * h, new - drift, middle, A, J, allowed):
                far = middle
            else:
                near = middle
        wanted = near
    new = v + wanted * h
    if safe(q + new * h, new, wanted, low, high, V, A, J, slack, soonest):
        return wanted
    near, far = stop(v, a, h, A, J, soonest), wanted
    for _ in range(_HALVINGS):
        middle = 0.5 * (near + far)
        new = v + middle * h
        if safe(q + new * h, new, middle, low, high, V, A, J, slack, soonest):
            near = middle
        else:
            far = middle
    return near


@njit(cache=True, nogil=True)
def step(state, target, before, h, bounds, soonest, stopping, why):
    """Moves the state on by one command, in place, and returns all reasons together.

    Args:
        state: Position, speed, acceleration, [3, n].
        target: What was asked for [n]; not read when stopping.
        before: What was asked for the last time [n]; the target is put there.
        h: Since the last command [s].
        bounds: Lowest and highest position, speed, acceleration, jerk, and what counts as rounding [rad or m], [6, n].
        soonest: No two commands are closer [s].
        stopping: Brake, whatever was asked for.
        why: Reasons by joint, as bits [n]; written.
    """
    reasons = 0
    for i in range(state.shape[1]):
        q, v, a = state[0, i], state[1, i], state[2, i]
        low, high, V = bounds[0, i], bounds[1, i], bounds[2, i]
        A, J, slack = bounds[3, i], bounds[4, i], bounds[5, i]
        why[i] = 0
        if stopping:
            q_new = q + (v + stop(v, a, h, A, J, soonest) * h) * h
        else:
            x = min(max(target[i], low), high)
            if abs(x - target[i]) > slack:
                why[i] |= POSITION
            new = (x - q) / h
            pull = (new - v) / h
            bits = 0
            if abs(new) > V:
                bits |= SPEED
            elif abs(pull) > A:
                bits |= ACCELERATION
            elif abs(pull - a) > J * h:
                bits |= JERK
            elif not safe(x, new, pull, low, high, V, A, J, slack, soonest):
                bits |= BRAKING
            q_new = x
            if bits:
                drift = (x - before[i]) / h
                if abs(drift) > V:
                    drift = 0.0
                q_new = q + (v + _follow(q, v, a, x, drift, h, low, high, V, A, J, slack, soonest) * h) * h
            why[i] |= bits
            before[i] = x
        reasons |= why[i]
        q_new = min(max(q_new, low), high)
        # The differences of what is sent, rounded as it is: errors do not add up.
        new = (q_new - q) / h
        state[0, i], state[1, i], state[2, i] = q_new, new, (new - v) / h
    return reasons


@njit(cache=True, nogil=True)
def rest(state, bounds):
    """Returns where the shortest stop ends, joint by joint [n]."""
    ends = np.empty(state.shape[1])
    for i in range(state.shape[1]):
        up, down, _, _ = extent(state[1, i], state[2, i], bounds[3, i], bounds[4, i])
        ends[i] = state[0, i] + (up if up >= down else -down)
    return ends
