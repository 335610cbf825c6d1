from __future__ import annotations

import threading

import numpy as np
import pytest

from dexloop.capture import FreeMotion, Lift, Push, capture
from dexloop.core.errors import HaltError, InputError, SetupError
from dexloop.lab import Lab, LabCfg
from dexloop.rig.events import Action, Reason
from dexloop.rig.gate import Gate
from dexloop.rig.guarded import Guarded, palm_of
from dexloop.rig.limits import Limits
from dexloop.rig.protocol import Observation, Rig, Samples
from dexloop.robots import load
from dexloop.robots.kinematics import Kinematics

QUICK = LabCfg(object="cube", seed=1, video=False)


class Spy:
    """Stands between guard and lab: keeps what is sent, and spoils what is seen."""

    def __init__(self, rig):
        self.rig, self.sent, self.stops, self.spoil = rig, [], 0, None

    def __getattr__(self, name: str):
        return getattr(self.rig, name)

    def send(self, target) -> None:
        self.sent.append((self.rig.now(), np.array(target)))
        self.rig.send(target)

    def stop(self) -> None:
        self.stops += 1
        self.rig.stop()

    def observe(self) -> Observation:
        seen = self.rig.observe()
        return self.spoil(seen) if self.spoil is not None else seen


def swinging(guarded: Guarded, periods: int = 300) -> np.ndarray:
    """Rests for a while, then swings a wrist; returns the home pose."""
    guarded.connect()
    home = np.array(guarded.features.command.home)
    for k in range(periods):
        send(guarded, home, max(k - 250, 0))
    return home


def send(guarded: Guarded, home: np.ndarray, k: int) -> None:
    target = home.copy()
    target[3] += 0.2 * (1 - np.cos(2 * np.pi * k * 0.004))
    guarded.send(target)
    guarded.sleep(0.004)


def test_it_is_a_rig():
    guarded = Guarded(Lab(QUICK).rig())
    assert isinstance(guarded, Rig)
    assert guarded.features.name == "lab/cube"


@pytest.mark.parametrize("robot", ["dex16@wrist", "gripper@arm7"])
def test_what_the_lab_does_passes_undisturbed(tmp_path, robot: str):
    cfg = LabCfg(object="cube", seed=1, video=False, robot=robot)
    plans = [Push(), Lift(hold_s=0.3), FreeMotion(duration_s=1.0)]
    if robot == "dex16@wrist":
        plans.append(Push(speed_m_s=0.7, distance_m=0.12, direction_rad=-0.6))
    spy = Spy(Lab(cfg).rig())
    guarded = Guarded(spy)
    recorded = capture(guarded, plans, tmp_path / "c")
    assert guarded.events == ()
    assert spy.stops == 0
    sent = np.array([q for _, q in spy.sent])
    for name in recorded.recordings:
        # What was seen for the gate's sake is recorded too, and every period once.
        t = recorded.recording(name).stream("joint_position").t
        assert np.diff(t) == pytest.approx(np.full(len(t) - 1, 0.004))
        told = recorded.recording(name).stream("joint_command").value
        assert (sent == told[len(told) // 2]).all(axis=1).any()


def test_a_jump_is_made_harmless_and_written_down():
    spy = Spy(Lab(QUICK).rig())
    guarded = Guarded(spy)
    home = swinging(guarded, 10)
    target = home.copy()
    target[0] += 0.05
    for _ in range(100):
        guarded.send(target)
        guarded.sleep(0.004)
    steps = np.abs(np.diff([q for _, q in spy.sent], axis=0)) / 0.004
    assert (steps <= guarded.gate.limits.speed).all()
    assert spy.sent[-1][1] == pytest.approx(target, abs=1e-9)
    assert guarded.events[0].joint == "wrist_x"
    assert guarded.events[0].asked == target[0]


def test_nan_brakes_holds_and_waits_for_a_person():
    spy = Spy(Lab(QUICK).rig())
    guarded = Guarded(spy)
    home = swinging(guarded)
    before = len(spy.sent)
    with pytest.raises(HaltError, match="command not finite; look at it, then reset it"):
        guarded.send(np.full(22, np.nan))
    assert spy.stops == 0  # the hand keeps what it holds
    assert 3 < len(spy.sent) - before < 30  # it braked
    assert np.isfinite([q for _, q in spy.sent]).all()
    ways = np.diff([q[3] for _, q in spy.sent[before - 2 :]])
    assert np.abs(np.diff(ways)).max() / 0.004**2 <= guarded.gate.limits.acceleration[3]
    for _ in range(3):
        with pytest.raises(HaltError):
            guarded.send(home)
    count = len(spy.sent)
    guarded.disconnect()
    guarded.connect()
    with pytest.raises(HaltError):
        guarded.send(home)
    assert len(spy.sent) == count
    guarded.reset(person="Ada")
    guarded.send(home)
    assert len(spy.sent) == count + 1
    assert [e.action for e in guarded.events] == [Action.STOP, Action.RESET, Action.SLOW][: len(guarded.events)]


def spoiled(stream: str, change):
    def spoil(seen: Observation) -> Observation:
        samples = dict(seen.samples)
        if stream in samples:
            samples[stream] = Samples(samples[stream].t, change(samples[stream].value))
        return Observation(samples, seen.frames)

    return spoil


@pytest.mark.parametrize(
    ("reason", "stream", "change", "periods", "stops"),
    [
        (Reason.FORCE, "touch", lambda v: v + 60.0, 1, 1),
        (Reason.FROZEN, "joint_position", lambda v: 0.0 * v, 2, 0),
        (Reason.NOT_FINITE, "joint_position", lambda v: np.nan * v, 1, 0),
        (Reason.STALE, "joint_position", None, 26, 0),
    ],
)
def test_faults_stop_it_within_a_period(reason: Reason, stream: str, change, periods: int, stops: int):
    spy = Spy(Lab(QUICK).rig())
    guarded = Guarded(spy)
    home = swinging(guarded)
    if change is None:
        spy.spoil = lambda seen: Observation({k: v for k, v in seen.samples.items() if k != stream}, seen.frames)
    else:
        spy.spoil = spoiled(stream, change)
    sent = 0
    with pytest.raises(HaltError, match=reason):
        for k in range(100):
            send(guarded, home, 50 + k)
            sent += 1
    assert sent <= periods
    assert spy.stops == stops
    assert guarded.events[-1].reasons == (reason,)


def test_a_stall_of_the_policy_stops_it():
    guarded = Guarded(Lab(QUICK).rig())
    home = swinging(guarded)
    guarded.sleep(0.2)
    with pytest.raises(HaltError, match="too late"):
        send(guarded, home, 100)


def test_the_emergency_stop_from_another_thread():
    spy = Spy(Lab(QUICK).rig())
    guarded = Guarded(spy)
    home = swinging(guarded)
    count = len(spy.sent)
    thread = threading.Thread(target=guarded.stop)
    thread.start()
    thread.join()
    assert spy.stops == 1
    with pytest.raises(HaltError, match="emergency stop"):
        send(guarded, home, 50)
    assert len(spy.sent) == count
    guarded.reset(person="Ada")
    guarded.send(home)  # the rig, which was stopped, is connected again


def test_a_rig_that_fails_is_stopped():
    spy = Spy(Lab(QUICK).rig())
    guarded = Guarded(spy)
    home = swinging(guarded)

    def broken(_seen):
        raise OSError("the cable is out")

    spy.spoil = broken
    with pytest.raises(HaltError, match="cable"):
        send(guarded, home, 50)
    assert spy.stops == 1
    spy.spoil = None
    with pytest.raises(HaltError, match="the rig failed"):
        send(guarded, home, 51)


def test_a_shadow_never_sends():
    spy = Spy(Lab(QUICK).rig())
    guarded = Guarded(spy, shadow=True)
    home = swinging(guarded, 400)
    assert spy.sent == []
    assert guarded.events == ()
    assert guarded.compared[3] == pytest.approx(0.4, abs=0.1)  # the robot stood at home meanwhile
    assert guarded.compared[0] < 0.02
    guarded.send(np.full(22, np.nan))
    assert guarded.gate.stopped == (Reason.COMMAND,)
    send(guarded, home, 0)
    assert spy.sent == []
    assert spy.stops == 0


def test_a_retreat_goes_home():
    spy = Spy(Lab(QUICK).rig())
    home = np.array(spy.features.command.home)
    guarded = Guarded(spy, Gate(Limits.of_rig(spy.features), retreat=home[None]))
    swinging(guarded, 350)
    with pytest.raises(HaltError):
        guarded.send(np.full(22, np.nan))
    assert np.array_equal(spy.sent[-1][1], home)


def test_failed_trials_halt():
    guarded = Guarded(Lab(QUICK).rig())
    home = swinging(guarded, 3)
    for _ in range(3):
        guarded.trial_ended(success=False)
    with pytest.raises(HaltError, match="failed trials"):
        guarded.send(home)


def test_the_palm_is_where_kinematics_says():
    features = Lab(QUICK).rig().features
    palm = palm_of(features)
    T = np.array(features.robot["T_world_base"]) @ Kinematics(load("dex16@wrist")).palm(np.array(features.command.home))
    assert palm(np.array(features.command.home)) == pytest.approx(T[:3, 3])


def test_rigs_that_cannot_be_guarded():
    rig = Lab(QUICK).rig()
    with pytest.raises(InputError, match="the gate is for joints"):
        Guarded(rig, Gate(Limits.of(load("gripper@wrist"), rate_hz=250.0)))
    with pytest.raises(InputError, match="no finger"):
        Guarded(rig, Gate(Limits.of(load("dex16@wrist"), rate_hz=250.0)))
    spy = Spy(rig)
    spy.spoil = lambda _seen: Observation({}, {})
    with pytest.raises(SetupError, match="no joint positions"):
        Guarded(spy).connect()
