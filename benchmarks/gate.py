"""The safety gate: whether anything gets past it, what it costs, and how soon it stops at a fault."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.metric import Metric
from dexloop.rig.events import Action, Reason
from dexloop.rig.gate import NEAR_S, Gate
from dexloop.rig.limits import Limits
from dexloop.robots import load

COMMANDS, RUN = 100_000, 400
"""How many commands to a gate that is not stopped, and after how many a new gate is tried."""
PERIOD_S = 0.004
FINGERS = ("index", "middle", "ring", "thumb")
LIMITS = Limits.of(
    load("dex16@wrist"), rate_hz=1.0 / PERIOD_S, fingers=FINGERS, fingertip_force_n=np.full(len(FINGERS), 50.0)
)
HOME = load("dex16@wrist").home
N = len(LIMITS.joints)


def run() -> list[Metric]:
    print("adversarial commands", file=sys.stderr)
    left, live, tried, escapes = _adversary()
    note = f"{tried} commands, {live} of them to a gate that was not stopped yet"
    metrics = [
        Metric("adversarial: commands that leave the limits", left, "1", "lower", 0.0, target=0.0, note=note),
        Metric("adversarial: stops that did not last", escapes, "1", "lower", 0.0, target=0.0, note=note),
    ]
    print("cost", file=sys.stderr)
    for name, targets in (("smooth", _smooth(20_000)), ("wild", _wild(20_000))):
        cost = _cost(targets) * 1e6
        note = f"{N} joints, observation and command; 99 % below {np.quantile(cost, 0.99):.0f} µs; this machine"
        median = float(np.median(cost))
        metrics.append(Metric(f"cost per command: {name}", median, "µs", "lower", math.inf, target=50.0, note=note))
    print("faults", file=sys.stderr)
    for name, (reason, fault) in _FAULTS.items():
        periods = _periods_until_stop(reason, fault)
        metrics.append(Metric(f"periods until stop: {name}", periods, "1", "lower", 0.0, target=1.0, note=str(reason)))
    false = _false_stops()
    metrics.append(Metric("smooth motion: events", false, "1", "lower", 0.0, target=0.0, note="20,000 commands"))
    return metrics


def _smooth(m: int) -> np.ndarray:
    """Swings that all joints can follow."""
    rng = np.random.default_rng(1)
    low, high = LIMITS.position.T
    room = np.minimum(np.minimum(high - HOME, HOME - low), 0.2 * LIMITS.speed)
    t = np.arange(m)[:, None] * PERIOD_S
    return HOME + 0.5 * room * (1 - np.cos(2 * np.pi * rng.uniform(0.2, 0.7, N) * t)) * rng.choice([-1, 1], N)


def _wild(m: int) -> np.ndarray:
    return np.random.default_rng(2).uniform(-4.0, 4.0, (m, N))


def _adversary() -> tuple[int, int, int, int]:
    """Returns how many commands left the limits, how many came to a live gate, how many came at all, and how many were
    followed after a stop."""
    rng = np.random.default_rng(0)
    low, high = LIMITS.position.T
    left = live = tried = escapes = 0
    while live < COMMANDS:
        gate = Gate(LIMITS)
        q0 = rng.uniform(low, high)
        targets = _attack(rng, q0)
        spacing = PERIOD_S * rng.choice([1.0, 1.0, 0.5, 0.3, 2.0, 9.0, *rng.uniform(0.5, 3.0, 6)], RUN)
        spacing[rng.random(RUN) < 2e-3] = 30 * PERIOD_S  # stops what moves
        if rng.random() < 0.5:
            spacing[:] = PERIOD_S
        bad = rng.integers(0, 3 * RUN)
        t, check = 1.0, None
        for k in range(RUN):
            t += float(spacing[k])
            measured = _observe(gate, rng, t, q0, wrong=k == bad > 0)
            stopped = bool(gate.stopped)
            if k == bad + 100:
                gate.emergency_stop()
            decision = gate.decide(t, targets[k])
            escapes += stopped and decision.action != Action.STOP
            live, tried = live + (decision.action != Action.STOP), tried + 1
            # It starts where it is told to be, if that is near and nothing is wrong, or else where it is.
            near = (np.abs(targets[k] - measured) <= NEAR_S * LIMITS.speed) & (decision.action != Action.STOP)
            check = check or _Check(np.clip(np.where(near, targets[k], measured), low, high))
            left += check.leaves(t, decision.target)
    return left, live, tried, escapes


def _attack(rng: np.random.Generator, q0: np.ndarray) -> np.ndarray:
    low, high = LIMITS.position.T
    kind = rng.integers(6)
    if kind == 0:
        targets = rng.uniform(-1e3, 1e3, (RUN, N))
    elif kind == 1:
        targets = np.where(rng.random((RUN, N)) < 0.03, low, high)
    elif kind == 2:
        targets = q0 + np.cumsum(rng.normal(0, 1.2, (RUN, N)) * LIMITS.speed * PERIOD_S, axis=0)
    elif kind == 3:
        targets = rng.uniform(low - 0.3, high + 0.3, (RUN // 20, N)).repeat(20, axis=0)
    elif kind == 4:
        t = np.arange(RUN)[:, None] * PERIOD_S
        targets = q0 + (high - low) * np.sin(rng.uniform(1, 80, N) * t)
    else:  # as fast as it may towards a limit, and beyond
        targets = q0 + np.arange(RUN)[:, None] * PERIOD_S * 0.999 * LIMITS.speed * rng.choice([-1, 1], N)
    if rng.random() < 0.2:
        targets[rng.integers(RUN), rng.integers(N)] = rng.choice([np.nan, np.inf, -np.inf, 1e308])
    return targets


def _observe(gate: Gate, rng: np.random.Generator, t: float, q: np.ndarray, *, wrong: bool) -> np.ndarray:
    """Shows the gate noise around q, or something wrong once, and returns the joint positions."""
    position, effort, touch = q + rng.normal(0, 1e-4, N), rng.normal(0, 0.1, N), np.abs(rng.normal(0, 1, 4))
    if wrong:
        spoilt = (position, effort, touch)[rng.integers(3)]
        spoilt[rng.integers(len(spoilt))] = rng.choice([np.nan, np.inf, 1e6])
    gate.see(t, t, position=position, effort=effort, touch=touch)
    return position


class _Check:
    """Recomputes the differences of what is sent."""

    def __init__(self, start: np.ndarray):
        self.q, self.t = start, None
        self.v = self.a = np.zeros(len(start))

    def leaves(self, t: float, sent: np.ndarray | None) -> bool:
        if sent is None:
            return False
        limits = LIMITS
        h = limits.period_s if self.t is None else t - self.t
        if h > limits.policy_period_s:  # it has stood at its last target since
            self.v = self.a = np.zeros(len(sent))
            h = limits.period_s
        v = (sent - self.q) / h
        a = (v - self.v) / h
        j = (a - self.a) / h
        self.t, self.q, self.v, self.a = t, sent, v, a
        low, high = limits.position.T
        inside = (sent >= low) & (sent <= high) & (np.abs(v) <= limits.speed)
        inside &= (np.abs(a) <= limits.acceleration) & (np.abs(j) <= limits.jerk)
        return not inside.all()


def _cost(targets: np.ndarray) -> np.ndarray:
    """Returns what each observation and command takes together [s]."""
    gate, rng = Gate(LIMITS), np.random.default_rng(3)
    noise = rng.normal(0, 1e-5, (len(targets), N))
    effort, touch = np.zeros(N), np.zeros(len(FINGERS))
    cost = np.empty(len(targets))
    for k, target in enumerate(targets):
        t = k * PERIOD_S
        position = HOME + noise[k]
        begin = time.perf_counter()
        gate.see(t, t, position=position, effort=effort, touch=touch)
        gate.decide(t, target)
        cost[k] = time.perf_counter() - begin
    if gate.stopped:
        raise AssertionError(f"what was timed is a stopped gate: {gate.log}")
    return cost[100:]


class _Robot:
    """One that is where it was sent, with noise, and swings after a second of rest."""

    def __init__(self) -> None:
        self.gate, self.rng = Gate(LIMITS), np.random.default_rng(4)
        self.way = np.vstack([np.repeat(HOME[None], 250, axis=0), _smooth(1000)])
        self.k, self.q, self.t = 0, HOME, 0.0

    def seen(self) -> dict[str, np.ndarray]:
        position = self.q + self.rng.normal(0, 1e-5, N)
        return {"position": position, "effort": np.zeros(N), "touch": np.zeros(len(FINGERS))}

    def period(self, *, seen: dict[str, np.ndarray] | None, target: np.ndarray | None = None) -> Action:
        """Lets a period pass; None is seen if nothing comes."""
        self.k, self.t = self.k + 1, self.t + PERIOD_S
        if seen is not None:
            self.gate.see(self.t, self.t, **seen)
        decision = self.gate.decide(self.t, self.way[self.k] if target is None else target)
        self.q = self.q if decision.target is None else decision.target
        return decision.action


def _nan(robot: _Robot) -> int:
    """Returns the periods from the fault until it has stopped; the others below too."""
    return 1 if robot.period(seen=robot.seen(), target=np.full(N, np.nan)) == Action.STOP else RUN


def _spike(robot: _Robot) -> int:
    return 1 if robot.period(seen={**robot.seen(), "touch": np.full(4, 60.0)}) == Action.STOP else RUN


def _frozen(robot: _Robot) -> int:
    frozen = robot.seen()["position"]
    robot.period(seen={**robot.seen(), "position": frozen})  # the last good reading
    return _count(robot, lambda: robot.period(seen={**robot.seen(), "position": frozen}))


def _stalled_policy(robot: _Robot) -> int:
    robot.t += 0.2
    return _count(robot, lambda: robot.period(seen=robot.seen()))


def _stalled_sensors(robot: _Robot) -> int:
    """Counts from the first command at which what was seen is too old; a stall of 200 ms is longer than that."""
    last = robot.t
    while robot.t + PERIOD_S - last <= LIMITS.stale_s:
        if robot.period(seen=None) == Action.STOP:
            raise AssertionError("it stopped too early")
    return _count(robot, lambda: robot.period(seen=None))


def _count(robot: _Robot, period: Callable[[], Action]) -> int:
    for k in range(1, RUN):
        if period() == Action.STOP:
            return k
    return RUN


_FAULTS: dict[str, tuple[Reason, Callable[[_Robot], int]]] = {
    "policy stalls for 200 ms": (Reason.LATE, _stalled_policy),
    "sensors stall": (Reason.STALE, _stalled_sensors),
    "command is NaN": (Reason.COMMAND, _nan),
    "encoders freeze": (Reason.FROZEN, _frozen),
    "force spike": (Reason.FORCE, _spike),
}


def _periods_until_stop(reason: Reason, fault: Callable[[_Robot], int]) -> int:
    """Returns the worst of 20 moments of a swing; a stop for another reason or not written down does not count."""
    worst = 0
    for start in range(20):
        robot = _Robot()
        for _ in range(300 + 17 * start):
            if robot.period(seen=robot.seen()) != Action.PASS:
                raise AssertionError(f"it does not run smoothly: {robot.gate.log}")
        periods = fault(robot)
        written = any(event.action == Action.STOP and event.reasons == (reason,) for event in robot.gate.log)
        worst = max(worst, periods if written else RUN)
    return worst


def _false_stops() -> int:
    robot = _Robot()
    robot.way = _smooth(20_001)
    for _ in range(20_000):
        robot.period(seen=robot.seen())
    return len(robot.gate.log)
