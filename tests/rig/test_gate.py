from __future__ import annotations

import dataclasses
import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexloop.core.errors import InputError
from dexloop.rig.events import Action, Reason
from dexloop.rig.gate import NEAR_S, Gate
from dexloop.rig.limits import Limits

H = 0.004


def limits(n: int = 2, **changes) -> Limits:
    about = {
        "joints": tuple(f"j{k}" for k in range(n)), "position": np.tile([-1.0, 1.5], (n, 1)), "speed": np.full(n, 2.0),
        "acceleration": np.full(n, 40.0), "jerk": np.full(n, 4000.0), "effort": np.full(n, 3.0), "period_s": H,
        "fingers": ("tip",), "fingertip_force_n": np.array([20.0]),
    }  # fmt: skip
    return Limits(**{**about, **changes})


class Bench:
    """A robot that is wherever it was sent, with noise, and the gate before it."""

    def __init__(self, gate: Gate, *, noise: float = 1e-5):
        n = len(gate.limits.joints)
        self.gate, self.t, self.q, self.noise = gate, 0.0, np.zeros(n), noise
        self.rng = np.random.default_rng(0)

    def look(self, **changes) -> None:
        n = len(self.q)
        seen = {
            "position": self.q + self.noise * self.rng.normal(size=n),
            "effort": np.zeros(n),
            "touch": np.zeros(len(self.gate.limits.fingers)),
        }
        self.gate.see(self.t, self.t + 7.0, **{**seen, **changes})

    def period(self, target, **changes):
        self.t += H
        self.look(**changes)
        decision = self.gate.decide(self.t, np.broadcast_to(np.asarray(target, float), self.q.shape))
        if decision.target is not None:
            self.q = decision.target
        return decision

    def wave(self, k: int) -> float:
        return 0.3 * (1 - math.cos(2 * math.pi * k * H))


def moving(gate: Gate, periods: int = 300) -> Bench:
    bench = Bench(gate)
    for k in range(periods):
        decision = bench.period(bench.wave(k) if k > 250 else 0.0)
        assert decision.action == Action.PASS, gate.log
    return bench


def departures(about: Limits, start: np.ndarray, asked: list, sent: list) -> list[str]:
    """Recomputes the differences of what was sent, and names each that is beyond its limit."""
    found = []
    q, v, a, last = start, np.zeros_like(start), np.zeros_like(start), None
    for (t, _), target in zip(asked, sent, strict=True):
        if target is None:
            continue
        if last is None:
            h = about.period_s
        else:
            h = t - last
            if h > about.policy_period_s:  # it has stood since
                v, a, h = np.zeros_like(v), np.zeros_like(a), about.period_s
        last = t
        v_new = (target - q) / h
        a_new = (v_new - v) / h
        j_new = (a_new - a) / h
        if not np.isfinite(target).all():
            found.append(f"{t}: not finite")
        if (target < about.position[:, 0]).any() or (target > about.position[:, 1]).any():
            found.append(f"{t}: position {target}")
        for name, value in (("speed", v_new), ("acceleration", a_new), ("jerk", j_new)):
            if (np.abs(value) > getattr(about, name)).any():
                found.append(f"{t}: {name} {np.abs(value) / getattr(about, name)}")
        q, v, a = target, v_new, a_new
    return found


def where_it_starts(about: Limits, measured: np.ndarray, first: np.ndarray) -> np.ndarray:
    near = np.abs(first - measured) <= NEAR_S * about.speed
    return np.clip(np.where(near, first, measured), *about.position.T)


@st.composite
def robots(draw) -> Limits:
    n = draw(st.integers(1, 3))
    numbers = lambda low, high: np.array(draw(st.lists(st.floats(low, high), min_size=n, max_size=n)))  # noqa: E731
    low, width, speed = numbers(-3, 3), numbers(0.01, 4), numbers(0.05, 8)
    rise, swell, period = numbers(0.003, 0.5), numbers(0.001, 0.3), draw(st.sampled_from([0.001, 0.004, 0.033]))
    about = limits(n)
    return dataclasses.replace(
        about, position=np.stack([low, low + width], axis=1), speed=speed, acceleration=speed / rise,
        jerk=speed / rise / swell, period_s=period, policy_period_s=max(0.05, 5 * period),
    )  # fmt: skip


WILD = st.one_of(
    st.floats(-5, 5),
    st.sampled_from([0.0, 1e308, -1e308, 1e-300, 5.0, -5.0]),
    st.floats(-1, 1),
)
SPACINGS = st.one_of(st.just(1.0), st.floats(0.4, 5.0), st.sampled_from([0.0, 0.5, 0.50001, 1e-9, 40.0, 100.0]))


@given(robots(), st.lists(st.tuples(SPACINGS, st.lists(WILD, min_size=3, max_size=3)), max_size=60), st.data())
@settings(max_examples=300)
def test_nothing_leaves_the_limits_whatever_is_asked_for_and_when(about: Limits, commands, data):
    # Commands that are not finite stop it: they come in the tests below, and here one in a few runs.
    poison = data.draw(st.sampled_from([None, None, None, math.nan, math.inf]))
    n = len(about.joints)
    gate = Gate(about)
    measured = np.array([data.draw(st.floats(low - 0.1, high + 0.1)) for low, high in about.position])
    t, asked, sent = 1.0, [], []
    for spacing, values in commands:
        t += spacing * about.period_s
        gate.see(t, t, position=measured + 1e-6 * len(asked))
        asked.append((t, np.array(values[:n])))
        if poison is not None and len(asked) == 30:
            asked[-1][1][-1] = poison
        sent.append(gate.decide(t, asked[-1][1]).target)
    if asked:
        start = where_it_starts(about, measured, asked[0][1])
        assert departures(about, start, asked, sent) == []


@given(robots(), st.integers(0, 2**32 - 1), st.sampled_from(["jumps", "walk", "edges", "waves"]))
@settings(max_examples=60)
def test_nothing_leaves_the_limits_in_a_long_run(about: Limits, seed: int, kind: str):
    rng = np.random.default_rng(seed)
    n, (low, high) = len(about.joints), about.position.T
    gate, m = Gate(about), 400
    q = 0.5 * (low + high)
    if kind == "jumps":
        targets = rng.uniform(low - 0.5, high + 0.5, (m, n)).repeat(rng.integers(1, 30), axis=0)[:m]
    elif kind == "walk":
        targets = q + np.cumsum(rng.normal(0, 1.5, (m, n)) * about.speed * about.period_s, axis=0)
    elif kind == "edges":
        targets = np.where(rng.random((m, n)) < 0.05, low, high)
    else:
        swing = np.sin(np.arange(m)[:, None] * about.period_s * rng.uniform(1, 60, n))
        targets = q + 0.6 * (high - low) * swing
    t, asked, sent = 0.0, [], []
    jitter = rng.uniform(0.5, 2.0, m) if rng.random() < 0.5 else np.ones(m)
    stopping = rng.integers(m // 2, 2 * m)
    for k, target in enumerate(targets):
        t += jitter[k] * about.period_s
        gate.see(t, t, position=q + 1e-6 * k)
        if k == stopping:
            gate.emergency_stop()
        asked.append((t, target))
        sent.append(gate.decide(t, target).target)
    start = where_it_starts(about, q, targets[0])
    assert departures(about, start, asked, sent) == []
    if stopping < m - 100:
        assert gate.stopped == (Reason.EMERGENCY,)


OPERATIONS = st.sampled_from(["nan", "inf", "command", "force", "late", "trial", "blind", "clock", "pull", "effort"])


@given(st.lists(OPERATIONS, min_size=1, max_size=30))
@settings(max_examples=150)
def test_once_stopped_it_stays_stopped_until_a_person_resets_it(operations: list[str]):
    gate = Gate(limits(failures=1))
    bench = Bench(gate)
    bench.period(0.0)
    stopped: tuple = ()
    for name in operations:
        before = gate.stopped
        changes = {"force": {"touch": np.array([99.0])}, "effort": {"effort": np.full(2, np.nan)}}.get(name, {})
        if name == "trial":
            gate.trial_ended(bench.t, success=False)
        elif name == "pull":
            gate.emergency_stop()
        elif name == "clock":
            gate.decide(math.nan, np.zeros(2))
        elif name == "blind":
            bench.t += 0.3
            gate.decide(bench.t, bench.q)
        elif name == "late":
            bench.period(0.01)
            bench.t += 0.2
        target = {"nan": math.nan, "inf": math.inf}.get(name, 0.0)
        decision = bench.period(target, **changes)
        assert set(before) <= set(gate.stopped)
        stopped = gate.stopped
        assert (decision.action == Action.STOP) == bool(stopped)
    gate.restart()
    assert gate.stopped == stopped
    for nobody in ("", "  "):
        with pytest.raises(InputError, match="say who you are"):
            gate.reset(bench.t, person=nobody)
    assert gate.stopped == stopped
    gate.reset(bench.t, person="Ada")
    assert not gate.stopped
    assert gate.log.events[-1].person == "Ada"
    assert bench.period(bench.q).action == Action.PASS


def test_a_smooth_motion_inside_the_limits_passes_as_it_is():
    gate = Gate(limits())
    bench = Bench(gate)
    for k in range(500):
        target = np.array([bench.wave(k), -0.5 * bench.wave(k)])
        decision = bench.period(target)
        assert decision.action == Action.PASS
        assert np.array_equal(decision.target, target)
    assert len(gate.log) == 0


def test_a_jump_is_followed_quickly_and_without_overshoot():
    gate = Gate(limits(1))
    bench = Bench(gate)
    bench.period(0.0)
    way = []
    for _ in range(150):
        bench.period(1.0)
        way.append(float(bench.q[0]))
    # 2 rad/s, 40 rad/s², 4000 rad/s³: 0.5 s at full speed, 50 ms to rise and fall, 10 ms to swell.
    assert way[int(0.58 / H)] == pytest.approx(1.0, abs=1e-3)
    assert max(way) <= 1.0 + 2e-3
    assert way[-1] == 1.0
    (event,) = gate.log.events[:1]
    assert (event.action, event.joint, event.asked) == (Action.SLOW, "j0", 1.0)
    assert len(gate.log) < 12
    assert sum(e.count for e in gate.log) > 100


def test_beyond_the_limit_it_goes_to_the_limit():
    gate = Gate(limits(1))
    bench = Bench(gate)
    for k in range(800):
        decision = bench.period(min(0.005 * k, 2.5))
    assert decision.target.tolist() == [1.5]
    assert (decision.action, decision.reasons) == (Action.CLIP, (Reason.POSITION,))


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (Reason.FORCE, {"touch": np.array([25.0])}),
        (Reason.NOT_FINITE, {"touch": np.array([math.nan])}),
        (Reason.NOT_FINITE, {"position": np.array([0.0, math.nan])}),
        (Reason.NOT_FINITE, {"effort": np.array([math.inf, 0.0])}),
    ],
)
def test_one_bad_observation_stops_it_in_that_period(reason: Reason, changes: dict):
    gate = Gate(limits())
    bench = moving(gate)
    assert bench.period(bench.wave(300), **changes).action == Action.STOP
    assert gate.stopped == (reason,)
    assert gate.log.events[-1].t == bench.t


def test_nan_is_named_and_braked():
    gate = Gate(limits())
    bench = moving(gate)
    decision = bench.period([bench.wave(300), math.nan])
    assert (decision.action, decision.reasons) == (Action.STOP, (Reason.COMMAND,))
    assert gate.log.events[-1].joint == "j1"
    places = [bench.q]
    for _ in range(50):
        bench.period(math.nan)
        places.append(bench.q)
    speed = np.abs(np.diff(places, axis=0)).max(axis=1) / H
    assert speed.max() > 0.5  # it does not jump to a halt
    assert gate.at_rest
    assert np.array_equal(places[25], places[-1])  # within 0.1 s
    assert np.array_equal(bench.period(0.0).target, places[-1])


def test_an_old_observation_stops_it_though_it_comes_again_and_again():
    gate = Gate(limits())
    bench = moving(gate)
    stamp, k = bench.t + 7.0, 300
    while not gate.stopped and k < 400:
        bench.t += H
        gate.see(bench.t, stamp, position=bench.q + 1e-6 * k)
        gate.decide(bench.t, np.full(2, bench.wave(k)))
        k += 1
    assert gate.stopped == (Reason.STALE,)
    assert (k - 300) * H == pytest.approx(gate.limits.stale_s, abs=2 * H)


def test_observations_that_come_ever_later_stop_it():
    gate = Gate(limits())
    bench = moving(gate)
    for k in range(300, 600):
        bench.t += H
        stamp = 7.0 + 300 * H + 0.5 * (bench.t - 300 * H)
        gate.see(bench.t, stamp, position=bench.q + 1e-6 * k, effort=np.zeros(2), touch=np.zeros(1))
        decision = gate.decide(bench.t, np.full(2, bench.wave(k)))
        if decision.action == Action.STOP:
            break
        bench.q = decision.target
    assert gate.stopped == (Reason.STALE,)
    assert (k - 300) * H == pytest.approx(2 * gate.limits.stale_s, abs=3 * H)


def test_clocks_that_drift_apart_do_not_stop_it():
    gate = Gate(limits(1))
    for k in range(200_000):  # a quarter of an hour
        t = k * H
        gate.see(t, 3.0 + t * (1 - 3e-4), position=np.array([1e-6 * (k % 7)]))
        if k % 100 == 0:
            gate.decide(t, np.zeros(1))
    assert not gate.stopped


def test_a_late_command_stops_a_moving_robot_but_not_one_that_stands():
    gate = Gate(limits())
    bench = moving(gate)
    place = bench.q
    bench.t += 0.2
    decision = bench.period(bench.wave(351))
    assert decision.reasons == (Reason.LATE,)
    assert np.array_equal(decision.target, place)
    still = Bench(Gate(limits()))
    still.period(0.0)
    still.t += 5.0
    assert still.period(0.0).action == Action.PASS
    still.t += 5.0
    # Five seconds later a jump is still a jump.
    assert still.period(0.5).action == Action.SLOW
    assert abs(still.q).max() < 1e-3


def test_a_command_too_soon_is_not_sent():
    gate = Gate(limits())
    bench = moving(gate)
    decision = gate.decide(bench.t + 0.3 * H, np.full(2, 0.1))
    assert (decision.target, decision.action) == (None, Action.HOLD)


def test_a_frozen_encoder_with_noise_is_found_at_once():
    gate = Gate(limits())
    bench = moving(gate)
    frozen = bench.q.copy()
    assert bench.period(bench.wave(300), position=frozen).action == Action.PASS
    assert bench.period(bench.wave(301), position=frozen).reasons == (Reason.FROZEN,)


def test_a_frozen_encoder_without_noise_is_found_when_its_joint_should_be_elsewhere():
    gate = Gate(limits())
    bench = Bench(gate, noise=0.0)
    for k in range(200):
        bench.period([0.0, 0.004 * k], position=np.array([0.0, 0.0]))
        if gate.stopped:
            break
    assert gate.log.events[-1].joint == "j1"
    assert 0.2 < 0.004 * k < 0.25  # what it goes in 0.1 s at full speed


def test_an_encoder_without_noise_may_rest():
    bench = Bench(Gate(limits()), noise=0.0)
    for k in range(1500):
        rounded = np.round(bench.q / 1e-3) * 1e-3
        assert bench.period(bench.wave(k) if k < 1000 else 0.0, position=rounded).action == Action.PASS


def test_effort_may_be_too_high_for_a_moment():
    gate = Gate(limits(effort_s=0.02))
    bench = Bench(gate)
    for k in range(60):
        high = np.array([0.0, -3.5]) if k % 5 else np.zeros(2)
        assert bench.period(0.0, effort=high).action == Action.PASS
    for _ in range(6):
        decision = bench.period(0.0, effort=np.array([0.0, -3.5]))
    assert decision.reasons == (Reason.EFFORT,)
    assert gate.log.events[-1].joint == "j1"


def palm(q: np.ndarray) -> np.ndarray:
    return np.array([q[0], q[1], 0.5])


def test_the_palm_stays_in_its_workspace():
    about = limits().tightened(workspace_m=[[-0.2, -0.5, 0.0], [0.3, 0.5, 1.0]])
    gate = Gate(about, palm=palm)
    bench = Bench(gate)
    seen = []
    for k in range(600):
        decision = bench.period([0.9 * math.sin(0.02 * k), 0.0])
        seen.append(decision.action)
        assert -0.2 <= bench.q[0] <= 0.3
    assert not gate.stopped
    assert Action.SLOW in seen
    assert Action.PASS in seen
    gate.see(bench.t + H, bench.t + 8.0, position=np.array([0.4, 0.0]))
    assert gate.stopped == (Reason.WORKSPACE,)
    with pytest.raises(InputError, match="give `palm`"):
        Gate(about)


def test_an_object_that_falls_stops_it_and_one_that_is_put_down_does_not():
    def carry(fall: bool) -> tuple:
        gate = Gate(limits(), palm=lambda q: np.array([0.0, 0.0, 0.2 + q[0]]))
        bench = Bench(gate)
        for k in range(600):
            height = 0.2 * math.sin(math.pi * min(k / 500, 1.0)) ** 2
            bench.period([height, 0.0])
            z = height if not (fall and k > 250) else max(height - 4.9 * ((k - 250) * H) ** 2, 0.0)
            gate.see(bench.t, bench.t, object_m=np.array([0.0, 0.0, 0.05 + z]))
        # The hand goes away from the object.
        for k in range(200):
            bench.period([0.2 * k / 200, 0.0])
            gate.see(bench.t, bench.t, object_m=np.array([0.0, 0.0, 0.05]))
        return gate.stopped

    assert carry(fall=False) == ()
    assert carry(fall=True) == (Reason.DROPPED,)


def test_an_object_that_was_tipped_up_is_not_dropped_when_the_hand_leaves():
    gate = Gate(limits(), palm=lambda q: np.array([0.0, 0.0, 0.2 + q[0]]))
    bench = Bench(gate)
    for k in range(600):
        bench.period([0.2 * max(k - 200, 0) / 400, 0.0])
        gate.see(bench.t, bench.t, object_m=np.array([0.0, 0.0, 0.05 + 0.03 * min(k / 100, 1.0)]))
    assert gate.stopped == ()


def test_an_object_that_falls_over_after_it_was_stood_up_again_is_not_dropped():
    gate = Gate(limits(), palm=lambda q: np.array([0.0, 0.0, 0.2 + q[0]]))
    bench = Bench(gate)
    for k in range(900):
        bench.period([0.2 * abs(math.sin(0.01 * k)), 0.0])  # the hand goes up and down all the while
        standing = 200 < k < 500 or k > 700
        gate.see(bench.t, bench.t, object_m=np.array([0.0, 0.0, 0.11 if standing else 0.03]))
    assert gate.stopped == ()


def test_failed_trials_in_a_row():
    gate = Gate(limits(failures=2))
    for success in (False, True, False, True, True, False):
        gate.trial_ended(0.0, success=success)
        assert not gate.stopped
    gate.trial_ended(1.0, success=False)
    assert gate.stopped == (Reason.FAILURES,)


def test_the_emergency_stop_wins_from_another_thread_and_over_a_reset():
    gate = Gate(limits())
    bench = Bench(gate)
    bench.period(0.0)
    thread = threading.Thread(target=gate.emergency_stop)
    thread.start()
    thread.join()
    assert gate.stopped == (Reason.EMERGENCY,)
    assert bench.period(0.0).action == Action.STOP
    restart = gate.restart
    gate.restart = lambda: (gate.emergency_stop(), restart())  # pulled in the middle of a reset
    gate.reset(bench.t, person="Ada")
    assert gate.stopped == (Reason.EMERGENCY,)
    del gate.restart
    assert bench.period(0.0).action == Action.STOP
    gate.reset(bench.t, person="Ada")
    assert bench.period(0.0).action == Action.PASS


def test_a_retreat_is_slow_and_only_where_the_robot_is_in_order():
    for reason, target, end in ((Reason.COMMAND, math.nan, -0.4), (Reason.FORCE, 0.0, None)):
        gate = Gate(limits(), retreat=np.array([[0.0, 0.0], [-0.4, -0.4]]))
        bench = moving(gate)
        changes = {"touch": np.array([30.0])} if reason == Reason.FORCE else {}
        bench.period(target, **changes)
        begin, places = bench.q, []
        for _ in range(1500):
            bench.period(0.0)
            places.append(bench.q)
            if gate.at_rest:
                break
        assert gate.stopped == (reason,)
        expected = begin if end is None else np.full(2, end)
        assert bench.q == pytest.approx(expected, abs=0.05 if end is None else 1e-6)
        if end is not None:
            late = np.array(places[30:])
            assert np.abs(np.diff(late, axis=0)).max() / H < 0.41  # a fifth of 2 rad/s
    with pytest.raises(InputError, match="retreat"):
        Gate(limits(), retreat=np.array([[9.0, 0.0]]))


def test_a_command_of_the_wrong_length_is_refused():
    with pytest.raises(InputError, match="2 joint positions"):
        Gate(limits()).decide(0.0, np.zeros(3))


def test_nothing_is_sent_before_anything_was_seen():
    gate = Gate(limits())
    decision = gate.decide(0.0, np.zeros(2))
    assert (decision.target, decision.reasons) == (None, (Reason.BLIND,))


@given(st.permutations(["position", "effort", "touch"]), st.integers(0, 3))
@settings(max_examples=30)
def test_nothing_is_sent_before_all_that_is_expected_was_seen(order: list[str], count: int):
    gate = Gate(limits())
    gate.expected = frozenset(order)
    values = {"position": np.zeros(2), "effort": np.zeros(2), "touch": np.zeros(1)}
    for name in order[:count]:
        gate.see(0.0, 7.0, **{name: values[name]})
    assert set(gate.unseen) == set(order[count:])
    decision = gate.decide(0.0, np.zeros(2))
    assert (decision.target is None) == (count < 3)
    assert gate.stopped == ((Reason.BLIND,) if count < 3 else ())


def test_a_reading_that_is_not_finite_does_not_tell_where_the_robot_is():
    gate = Gate(limits())
    gate.see(0.0, 0.0, position=np.array([0.0, math.nan]))
    assert gate.unseen == ("position",)
    assert gate.decide(0.0, np.zeros(2)).target is None


@given(st.lists(st.booleans(), max_size=4), st.integers(0, 4))
def test_a_reset_acknowledges_no_pull_that_came_after_the_one_it_knows_of(noticed: list[bool], known: int):
    gate, pulls = Gate(limits()), []
    bench = Bench(gate)
    bench.period(0.0)
    pulls.append(gate.pull)
    for seen in noticed:
        gate.emergency_stop()
        pulls.append(gate.pull)
        if seen:
            bench.period(0.0)
    known = min(known, len(noticed))
    gate.reset(bench.t, person="Ada", pull=pulls[known])
    assert gate.stopped == ((Reason.EMERGENCY,) if known < len(noticed) else ())
    assert (bench.period(0.0).action == Action.STOP) == (known < len(noticed))


def test_the_first_command_starts_where_the_robot_is():
    bench = Bench(Gate(limits()))
    assert np.array_equal(bench.period([0.03, 0.8]).target[:1], [0.03])  # a servo that sags
    assert abs(bench.q[1]) < 1e-3  # no jump to where it is not
