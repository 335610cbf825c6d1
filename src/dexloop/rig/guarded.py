"""A rig behind its safety gate: it is used like any other rig, and nothing reaches a motor except through the gate."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import HaltError, InputError, SetupError
from dexloop.rig.events import LET_GO, Event, Reason
from dexloop.rig.gate import Decision, Gate, Palm
from dexloop.rig.limits import Limits
from dexloop.rig.protocol import Features, Frames, Observation, Rig, Samples

FIRST_LOOK_S = 1.0
"""A rig of which some sensor that the gate needs is silent for so long after it was connected is not used [s]."""
BRAKE_S = 1.0
"""A stop comes to rest in this time, or the robot's own stop is called [s]. A retreat may take `RETREAT_S`."""
RETREAT_S = 30.0
LOCK_S = 0.05
"""An emergency stop waits so long for a command that is being sent, and then no longer [s]."""
_NEEDED = {"position": "joint positions", "effort": "joint efforts", "touch": "touch"}
"""What must be seen before anything is sent, where the rig has it. An object may be out of its tracker's sight."""


class Guarded:
    """A rig that a gate watches.

    Before each command it looks at what the rig has measured, so that a fault is found within one control period
    however seldom the caller looks; what it saw is handed on by the next `observe`. Whoever finds that the gate has
    stopped, be it `send` or `observe`, brings the robot to rest before anything else.

    Args:
        rig: What is guarded. Nobody else should send it commands.
        gate: What guards it; by default one with the rig's own limits.
        shadow: Compute, compare, never send: `compared` says how far the commands lay from what was measured. A gate
            that is a shadow stays one.

    Raises:
        InputError: The rig takes no commands, or tells no joint positions; or the gate is for other joints or fingers.
    """

    def __init__(self, rig: Rig, gate: Gate | None = None, *, shadow: bool = False):
        command = rig.features.command
        if command is None:
            raise InputError(f"rig {rig.features.name!r} takes no commands: there is nothing to guard")
        if gate is None:
            gate = Gate(Limits.of_rig(rig.features), palm=palm_of(rig.features))
        if gate.limits.joints != command.joints:
            raise InputError(f"the gate is for joints {', '.join(gate.limits.joints)}, not {', '.join(command.joints)}")
        self.rig, self.gate = rig, gate
        self.shadow = gate.shadow = shadow or gate.shadow
        self.compared = np.zeros(len(command.joints))
        """In shadow mode: how far the commands that might have been sent lay from where the joints were, at most
        [rad or m]."""
        self._streams = _streams(rig.features)
        gate.expected = frozenset(self._streams.keys() & _NEEDED.keys())
        touch = next((s.channels for s in rig.features.streams if s.kind == "touch"), ())
        if gate.limits.fingers != tuple(touch):
            raise InputError(
                f"the gate limits forces of {', '.join(gate.limits.fingers) or 'no finger'}, the rig feels those of "
                f"{', '.join(touch) or 'none'}: use Limits.of_rig"
            )
        self._samples: dict[str, list[Samples]] = defaultdict(list)
        self._frames: dict[str, list[Frames]] = defaultdict(list)
        self._lock = threading.RLock()
        self._reconnect = False  # whether the rig has to be connected again before it takes commands
        self._halted: frozenset[Reason] = frozenset()  # what the robot was brought to rest for
        self._t = 0.0

    @property
    def features(self) -> Features:
        """Of the rig."""
        return self.rig.features

    @property
    def operator(self) -> Any:
        """The person at the bench, where the rig has one."""
        return self.rig.operator  # type: ignore[attr-defined]

    @property
    def events(self) -> tuple[Event, ...]:
        """What the gate did and why."""
        return self.gate.log.events

    def connect(self) -> None:
        """Opens the rig and waits for all that the gate needs to see. A gate that was stopped stays so.

        Raises:
            SetupError: A sensor is silent.
        """
        self.rig.connect()
        with self._lock:
            self.gate.restart()
            self._clear()
            self._released()
            self._wait_for_sensors()
            self._halt()

    def disconnect(self) -> None:
        """Lets go of the rig."""
        self.rig.disconnect()
        self._clear()

    def now(self) -> float:
        """Returns the rig's clock [s]."""
        with self._failures():
            return self.rig.now()

    def sleep(self, duration_s: float) -> None:
        """Lets time pass."""
        with self._failures():
            self.rig.sleep(duration_s)

    def observe(self) -> Observation:
        """Returns what arrived since the last call. If the gate stops at it, the robot is at rest when it returns.

        Raises:
            HaltError: The rig failed.
        """
        with self._lock:
            with self._failures():
                self._look()
            self._halt()
            samples = {k: _joined(v) for k, v in self._samples.items()}
            frames = {k: _film(v) for k, v in self._frames.items()}
            self._clear()
            return Observation(samples, frames)

    def send(self, target: Float[np.ndarray, " joints"]) -> None:
        """Sends position targets, or what the gate makes of them.

        Raises:
            HaltError: The gate has stopped the robot, or the rig failed; a person must `reset` it.
            InputError: The target does not have one number a joint; nothing was sent.
        """
        with self._lock:
            self._halt()
            self._require_running()
            if np.shape(target) != self.compared.shape:
                raise InputError(f"a command is {len(self.compared)} joint positions, not {list(np.shape(target))}")
            with self._failures():
                self._look()
                decision = self.gate.decide(self.rig.now(), target)
                if self.shadow:
                    self._compare(decision)
                elif decision.target is not None and not LET_GO & set(decision.reasons):
                    self.rig.send(decision.target)
            self._halt()
            self._require_running()

    def stop(self) -> None:
        """The emergency stop: it always wins, from any thread, and lasts until a person resets it.

        Raises:
            HaltError: The robot's own stop failed: cut its power.
        """
        self.gate.emergency_stop()
        # Whoever sends just now finishes first, so that the stop is the last that the robot hears.
        locked = self._lock.acquire(timeout=LOCK_S)
        try:
            # Without the lock a command may still follow: then whoever holds it stops the robot once more.
            self._own_stop(lasts=locked)
            if locked:
                self.gate.fail(self._now(), Reason.EMERGENCY)
        finally:
            if locked:
                self._lock.release()

    def reset(self, *, person: str) -> None:
        """Lets the robot move again, on the word of a person who has looked at it.

        An emergency stop that comes while it waits, connects or looks is not undone.

        Raises:
            InputError: Nobody was named; nothing has changed.
            HaltError: The rig failed, or a sensor is silent; it is still stopped.
        """
        pull = self.gate.pull
        with self._lock:
            # The gate first, for it may refuse, and connecting releases the robot's own stop.
            self.gate.reset(self._now(), person=person, pull=pull)
            if self._reconnect:
                with self._failures():
                    self.rig.connect()
            self._released()
            with self._failures():
                self._wait_for_sensors()
            self._halt()

    def trial_ended(self, *, success: bool) -> None:
        """Counts failed trials in a row; see `Limits.failures`."""
        with self._lock:
            self.gate.trial_ended(self._now(), success=success)
            self._halt()

    def _wait_for_sensors(self) -> None:
        begin = self.rig.now()
        while unseen := self.gate.unseen:
            if self.rig.now() - begin > FIRST_LOOK_S:
                self._reconnect = True
                self.rig.disconnect()
                silent = " and no ".join(_NEEDED[k] for k in unseen)
                raise SetupError(f"{self.features.name} told no {silent} for {FIRST_LOOK_S} s: look at it")
            self.rig.sleep(self.gate.limits.period_s)
            self._look()

    def _released(self) -> None:
        """Nothing holds the robot any more: if the gate is stopped, or has been again meanwhile, it is held anew."""
        self._reconnect, self._halted = False, frozenset()
        self._halt()

    def _require_running(self) -> None:
        if self.gate.stopped and not self.shadow:
            raise HaltError(self._why())

    def _why(self, more: str = "") -> str:
        return f"{self.features.name} was stopped: {', '.join(self.gate.stopped)}{more}; look at it, then reset it"

    def _now(self) -> float:
        """Returns the rig's clock, or what it last said: a stop is written down though the clock fails."""
        with contextlib.suppress(Exception):
            self._t = self.rig.now()
        return self._t

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """A rig that raises is stopped by its own stop, before anything else is asked of it.

        Raises:
            HaltError: It did, from its error.
        """
        try:
            yield
        except Exception as error:
            if self.shadow:
                raise
            with self._lock:
                try:
                    self._own_stop()
                finally:
                    self.gate.fail(self._now(), Reason.RIG)
                raise HaltError(self._why(f" ({error})")) from error

    def _own_stop(self, *, lasts: bool = True) -> None:
        """Calls the robot's own stop; if that lasts, nothing is left to do whatever else is found.

        Raises:
            HaltError: It failed. It is tried again whenever the rig is used.
        """
        self._reconnect = True
        try:
            self.rig.stop()
        except Exception as error:
            raise HaltError(f"{self.features.name} could not be stopped ({error}): cut its power") from error
        if lasts:
            self._halted = frozenset(Reason)

    def _halt(self) -> None:
        """Brings a robot to rest whose gate has stopped, as the reasons ask for; once is enough for each."""
        if self.shadow or self._halted >= set(self.gate.stopped):
            return
        with self._failures():
            if LET_GO & set(self.gate.stopped) or not self._brake():
                self._own_stop()
            else:
                self._halted = frozenset(self.gate.stopped)
        if Reason.EMERGENCY in self.gate.stopped:
            self.gate.fail(self._now(), Reason.EMERGENCY)  # one that came without the lock is not written down yet

    def _brake(self) -> bool:
        """Brakes, and retreats if there is a way; returns whether the robot rests and nothing asks for its own stop."""
        begin = self.rig.now()
        while not self.gate.at_rest:
            if self.rig.now() - begin > (RETREAT_S if self.gate.retreats else BRAKE_S):
                return False
            # A stopped gate does not read what is asked for. Just after a command it is too soon for another.
            decision = self.gate.decide(self.rig.now(), np.zeros_like(self.compared))
            if LET_GO & set(decision.reasons):
                return False
            if decision.target is not None:
                self.rig.send(decision.target)
            self.rig.sleep(self.gate.limits.period_s)
            self._look()
        return not LET_GO & set(self.gate.stopped)

    def _look(self) -> None:
        seen = self.rig.observe()
        for name, samples in seen.samples.items():
            self._samples[name].append(samples)
        for name, frames in seen.frames.items():
            self._frames[name].append(frames)
        t = self._t = self.rig.now()
        for kind, (name, order) in self._streams.items():
            samples = seen.samples.get(name)
            if samples is not None:
                for stamp, row in zip(samples.t, samples.value, strict=True):
                    value = row[order] if order is not None else row
                    self.gate.see(t, float(stamp), **{kind: np.ascontiguousarray(value, dtype=np.float64)})

    def _compare(self, decision: Decision) -> None:
        position = self.gate.position
        if decision.target is not None and position is not None:
            np.maximum(self.compared, np.abs(decision.target - position), out=self.compared)

    def _clear(self) -> None:
        self._samples.clear()
        self._frames.clear()


def palm_of(features: Features) -> Palm | None:
    """Returns where the palm of a rig's robot is, as a function; None where the robot or its place is not known."""
    from dexloop.robots import load
    from dexloop.robots.kinematics import Kinematics

    base, name = features.robot.get("T_world_base"), features.robot.get("name")
    if base is None or not name:
        return None
    embodiment = load(str(name))
    if not embodiment.palm or features.command is None or embodiment.joints != features.command.joints:
        return None
    kinematics, T_world_base = Kinematics(embodiment), np.asarray(base, dtype=np.float64)
    return lambda q: (T_world_base @ kinematics.palm(q))[:3, 3]


def _streams(features: Features) -> dict[str, tuple[str, list[int] | None]]:
    """Returns by what the gate sees: the stream that tells it, and the order of its channels."""
    assert features.command is not None
    joints = features.command.joints
    found: dict[str, tuple[str, list[int] | None]] = {}
    for kind, key in (("joint_position", "position"), ("joint_effort", "effort")):
        stream = next((s for s in features.streams if s.kind == kind and set(joints) <= set(s.channels)), None)
        if stream is not None:
            order = [stream.channels.index(j) for j in joints]
            found[key] = (stream.name, None if order == list(range(len(stream.channels))) else order)
    if "position" not in found:
        raise InputError(f"rig {features.name!r} has no stream with the positions of all its joints: no safe stop")
    touch = next((s for s in features.streams if s.kind == "touch"), None)
    if touch is not None:
        found["touch"] = (touch.name, None)
    pose = next((s for s in features.streams if s.kind == "pose" and s.about == "object"), None)
    if pose is not None:
        found["object_m"] = (pose.name, [0, 1, 2])
    return found


def _joined(parts: list[Samples]) -> Samples:
    return Samples(np.concatenate([s.t for s in parts]), np.concatenate([s.value for s in parts]))


def _film(parts: list[Frames]) -> Frames:
    return Frames(np.concatenate([f.t for f in parts]), lambda: np.concatenate([f.image for f in parts]))
