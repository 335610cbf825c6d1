"""Whatever fails and wherever it is noticed: a gate that has stopped has brought its robot to rest."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexloop.core.capture import StreamInfo
from dexloop.core.errors import HaltError, InputError, SetupError
from dexloop.rig.events import LET_GO, Action, Reason
from dexloop.rig.gate import Gate
from dexloop.rig.guarded import Guarded
from dexloop.rig.limits import Limits
from dexloop.rig.protocol import CommandInfo, Features, Observation, Samples

H, JOINTS = 0.004, ("a", "b")
STREAMS = {"joint_position": ("rad", JOINTS), "joint_effort": ("N·m", JOINTS), "touch": ("N", ("tip",))}


class Desk:
    """A robot that is wherever it was sent, with noise. What is in `broken` raises, and `spoil` changes what is seen.

    As a robot's own stop does, `stop` has commands refused until it is connected again.
    """

    def __init__(self) -> None:
        limits = {"touch": ((0.0, 20.0),)}
        streams = tuple(
            StreamInfo(k, k, names, (unit,) * len(names), "robot", 1 / H, limits=limits.get(k))
            for k, (unit, names) in STREAMS.items()
        )
        command = CommandInfo(JOINTS, ("rad",) * 2, ((-1.0, 1.5),) * 2, (2.0,) * 2, (3.0,) * 2, (0.0,) * 2, 1 / H)
        self.features = Features("desk", {}, streams, (), command)
        self.broken: set[str] = set()
        self.spoil: dict[str, float | None] = {}
        self.sent: list[np.ndarray] = []
        self.stops = self.tried = self.connects = 0
        self.stopped, self.connecting = False, lambda: None
        self._t, self._seen, self._q, self._rng = 0.0, 0.0, np.zeros(2), np.random.default_rng(0)

    def _link(self, name: str) -> None:
        if name in self.broken:
            raise ConnectionError(f"no link for {name}")

    def connect(self) -> None:
        self._link("connect")
        self.connects, self.stopped = self.connects + 1, False
        self.connecting()
        self.stopped = False  # a slow one: whatever was asked meanwhile is forgotten

    def disconnect(self) -> None:
        pass

    def now(self) -> float:
        self._link("now")
        return self._t

    def sleep(self, duration_s: float) -> None:
        self._t += duration_s
        self._link("sleep")

    def observe(self) -> Observation:
        self._link("observe")
        if self._t == self._seen:
            return Observation({}, {})
        self._seen = self._t
        position = self._q + 1e-5 * self._rng.normal(size=2)
        values = {"joint_position": position, "joint_effort": np.zeros(2), "touch": np.zeros(1)}
        for name, change in self.spoil.items():
            if change is None:
                del values[name]
            else:
                values[name] = values[name] + change
        return Observation({k: Samples(np.array([self._t]), v[None]) for k, v in values.items()}, {})

    def send(self, target: np.ndarray) -> None:
        self._link("send")
        if self.stopped:
            raise HaltError("it was stopped: connect it again")
        self.sent.append(np.array(target))
        self._q = np.array(target)

    def stop(self) -> None:
        self.tried += 1
        self._link("stop")
        self.stops, self.stopped = self.stops + 1, True


def moving() -> tuple[Desk, Guarded]:
    """Returns a robot in the middle of a swing, a period after its last command."""
    desk = Desk()
    guarded = Guarded(desk)
    guarded.connect()
    for k in range(30):
        go(guarded, k)
    assert guarded.events == ()
    assert speed(desk) > 0.2
    return desk, guarded


def go(guarded: Guarded, k: int) -> None:
    guarded.send(np.full(2, 0.3 * (1 - np.cos(2 * np.pi * k * H))))
    guarded.sleep(H)


def speed(desk: Desk) -> float:
    return float(np.abs(desk.sent[-1] - desk.sent[-2]).max() / H)


FAULTS = {Reason.FORCE: {"touch": 60.0}, Reason.NOT_FINITE: {"joint_position": np.nan}}


@pytest.mark.parametrize("reason", FAULTS)
@pytest.mark.parametrize("call", ["observe", "send"])
def test_a_fault_stops_the_robot_whoever_sees_it(reason: Reason, call: str):
    desk, guarded = moving()
    desk.spoil = FAULTS[reason]
    before = len(desk.sent)
    if call == "observe":
        assert "touch" in guarded.observe().samples  # what was seen is handed on all the same
    else:
        with pytest.raises(HaltError, match=reason):
            go(guarded, 30)
    assert guarded.gate.stopped == (reason,)
    assert desk.stops == (reason in LET_GO)
    if reason not in LET_GO:
        assert len(desk.sent) > before + 3  # it braked
        assert speed(desk) == 0.0
    done = (len(desk.sent), desk.tried)
    for _ in range(3):
        with pytest.raises(HaltError, match=reason):
            guarded.send(np.zeros(2))
        guarded.observe()
    assert (len(desk.sent), desk.tried) == done  # once is enough


def test_a_force_that_comes_after_it_has_braked_stops_it_too():
    desk, guarded = moving()
    with pytest.raises(HaltError):
        guarded.send(np.full(2, np.nan))
    assert desk.stops == 0
    guarded.sleep(H)
    desk.spoil = FAULTS[Reason.FORCE]
    guarded.observe()
    assert desk.stops == 1


def test_failed_trials_brake_a_robot_that_moves():
    desk, guarded = moving()
    for _ in range(guarded.gate.limits.failures):
        guarded.trial_ended(success=False)
    assert guarded.gate.stopped == (Reason.FAILURES,)
    assert speed(desk) == 0.0


LINKS = ["observe", "now", "send", "sleep", "stop"]


@given(st.sets(st.sampled_from(LINKS), min_size=1), st.sampled_from(["observe", "now", "send", "sleep"]))
@settings(max_examples=100, deadline=None)
def test_whatever_fails_its_own_stop_is_tried_and_the_gate_stays_stopped(broken: set[str], call: str):
    desk, guarded = moving()
    desk.broken = broken
    uses = {"observe": {"observe", "now"}, "send": {"observe", "now", "send"}}.get(call, {call})
    calls = {"send": lambda: guarded.send(desk.sent[-1]), "sleep": lambda: guarded.sleep(H)}
    act = calls.get(call, getattr(guarded, call))
    if not uses & broken:
        act()
        assert desk.tried == 0
        return
    with pytest.raises(HaltError, match=r"no link") as caught:
        act()
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert ("cut its power" in str(caught.value)) == ("stop" in broken)
    assert desk.tried > 0
    assert Reason.RIG in guarded.gate.stopped
    assert guarded.events[-1].reasons == (Reason.RIG,)
    desk.broken = set()
    with pytest.raises(HaltError, match="the rig failed"):
        guarded.send(np.zeros(2))
    assert desk.stopped  # if it did not hear it before, it does when the link is there again
    guarded.reset(person="Ada")
    guarded.send(np.zeros(2))


def test_an_observation_of_the_wrong_length_is_a_failure_and_a_command_is_not():
    desk, guarded = moving()
    with pytest.raises(InputError, match="2 joint positions"):
        guarded.send(np.zeros(3))
    assert not guarded.gate.stopped  # nothing was sent
    desk.spoil = {"touch": np.zeros(2)}
    with pytest.raises(HaltError, match="touch is 1 forces, not 2"):
        go(guarded, 30)
    assert desk.stopped


def test_a_shadow_stops_nothing():
    desk = Desk()
    guarded = Guarded(desk, shadow=True)
    guarded.connect()
    guarded.sleep(H)
    desk.spoil = FAULTS[Reason.FORCE]
    guarded.observe()
    desk.broken = {"observe"}
    with pytest.raises(ConnectionError):
        guarded.send(np.zeros(2))
    assert guarded.gate.stopped == (Reason.FORCE,)
    assert (desk.sent, desk.tried) == ([], 0)


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_either_flag_makes_a_shadow(flags: tuple[bool, bool]):
    desk = Desk()
    guarded = Guarded(desk, Gate(Limits.of_rig(desk.features), shadow=flags[0]), shadow=flags[1])
    assert guarded.shadow
    assert guarded.gate.shadow
    guarded.connect()
    for k in range(10):
        go(guarded, k)
    assert desk.sent == []


def pull(guarded: Guarded) -> None:
    """Presses the emergency stop, from a thread of its own."""
    thread = threading.Thread(target=guarded.stop)
    thread.start()
    thread.join()


@pytest.mark.parametrize("call", ["reset", "connect"])
def test_an_emergency_stop_while_it_connects_wins(call: str):
    desk, guarded = moving()
    guarded.stop()
    assert desk.stopped
    desk.connecting = lambda: pull(guarded)
    guarded.reset(person="Ada") if call == "reset" else guarded.connect()
    assert guarded.gate.stopped == (Reason.EMERGENCY,)
    assert desk.stopped
    count = len(desk.sent)
    with pytest.raises(HaltError, match="emergency stop"):
        guarded.send(np.zeros(2))
    assert len(desk.sent) == count
    if call == "reset":
        assert [e.action for e in guarded.events] == [Action.STOP, Action.RESET, Action.STOP]
    desk.connecting = lambda: None
    guarded.reset(person="Ada")
    guarded.send(np.zeros(2))


def test_an_emergency_stop_while_a_reset_waits_for_its_turn_wins():
    desk, guarded = moving()
    guarded.stop()
    asked = guarded._lock

    class Slow:
        """Somebody else is at it just when the reset begins, and meanwhile the stop is pressed."""

        def __enter__(self) -> None:
            guarded._lock = asked
            pull(guarded)
            asked.acquire()

        def __exit__(self, *_: object) -> None:
            asked.release()

    guarded._lock = Slow()
    guarded.reset(person="Ada")
    assert guarded.gate.stopped == (Reason.EMERGENCY,)
    assert desk.stopped


def test_connecting_again_does_not_release_what_the_emergency_stop_holds():
    desk, guarded = moving()
    guarded.stop()
    guarded.disconnect()
    guarded.connect()
    assert desk.stopped


def test_a_reset_by_nobody_leaves_the_robot_as_it_is():
    desk, guarded = moving()
    guarded.stop()
    connects = desk.connects
    with pytest.raises(InputError, match="say who you are"):
        guarded.reset(person=" ")
    assert desk.stopped
    assert desk.connects == connects
    assert guarded.gate.stopped == (Reason.EMERGENCY,)


def test_a_reset_that_fails_leaves_it_stopped():
    desk, guarded = moving()
    guarded.stop()
    desk.broken = {"connect"}
    with pytest.raises(HaltError, match="no link for connect"):
        guarded.reset(person="Ada")
    assert guarded.gate.stopped == (Reason.RIG,)
    assert desk.stopped


@pytest.mark.parametrize(
    ("stream", "words"), [("touch", "touch"), ("joint_effort", "joint efforts"), ("joint_position", "joint positions")]
)
def test_a_sensor_that_was_silent_from_the_beginning_is_noticed(stream: str, words: str):
    desk = Desk()
    desk.spoil = {stream: None}
    guarded = Guarded(desk)
    with pytest.raises(SetupError, match=f"told no {words} for"):
        guarded.connect()
    with pytest.raises(HaltError, match="no observation yet"):
        guarded.send(np.zeros(2))
    assert desk.sent == []
    desk.spoil = {}
    guarded.reset(person="Ada")
    guarded.send(np.zeros(2))
    desk.spoil = {stream: None}
    guarded.sleep(H)
    with pytest.raises(HaltError, match="observation too old"):
        for _ in range(100):
            guarded.send(np.zeros(2))
            guarded.sleep(H)


def test_a_sensor_that_begins_late_is_waited_for():
    desk = Desk()
    desk.spoil = {"touch": None}
    sleep = desk.sleep

    def awake(duration_s: float) -> None:
        sleep(duration_s)
        if desk.now() > 0.5:
            desk.spoil = {}

    desk.sleep = awake
    guarded = Guarded(desk)
    guarded.connect()
    guarded.send(np.zeros(2))
    assert guarded.events == ()


DEEDS = ["go", "observe", "nap", "late", "nan", "pull", "trial", "touch", "encoder", "effort", "mend"]
CUTS = [f"cut {link}" for link in LINKS]


@given(st.lists(st.sampled_from(DEEDS) | st.sampled_from(DEEDS[:3]) | st.sampled_from(CUTS), min_size=1, max_size=25))
@settings(max_examples=100, deadline=None)
def test_a_gate_that_has_stopped_has_brought_its_robot_to_rest(deeds: list[str]):
    desk, guarded = moving()
    deed = {
        "go": lambda: guarded.send(desk.sent[-1] + 0.004),
        "observe": guarded.observe,
        "nap": lambda: guarded.sleep(H),
        "nan": lambda: guarded.send(np.full(2, np.nan)),
        "pull": guarded.stop,
        "trial": lambda: guarded.trial_ended(success=False),
        "touch": lambda: desk.spoil.update(touch=60.0),
        "encoder": lambda: desk.spoil.update(joint_position=np.nan),
        "effort": lambda: desk.spoil.update(joint_effort=np.nan),
        "late": lambda: guarded.sleep(0.2),
        "mend": lambda: (desk.spoil.clear(), desk.broken.clear()),
    }
    for name in deeds:
        tried, before = desk.tried, set(guarded.gate.stopped)
        if name in CUTS:
            desk.broken.add(name.removeprefix("cut "))
            continue
        try:
            deed[name]()
        except HaltError:
            assert guarded.gate.stopped
        assert before <= set(guarded.gate.stopped)
        if set(guarded.gate.stopped) - before and not desk.stopped:
            if LET_GO & set(guarded.gate.stopped):
                assert desk.tried > tried
            else:
                assert speed(desk) == 0.0
        if name == "mend":
            guarded.observe()  # a stop that did not arrive is tried again
        if guarded.gate.stopped and "stop" not in desk.broken:
            assert desk.stopped or (guarded.gate.at_rest and not LET_GO & set(guarded.gate.stopped))
    deed["mend"]()
    guarded.reset(person="Ada")
    guarded.send(np.zeros(2))
