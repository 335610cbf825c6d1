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
from dexloop.rig.events import LET_GO, Action, Event, Reason
from dexloop.rig.gate import Decision, Gate, Palm
from dexloop.rig.limits import Limits
from dexloop.rig.protocol import Features, Frames, Observation, Rig, Samples

FIRST_LOOK_S = 1.0
"""A rig that tells no joint positions for so long after it was connected is not used [s]."""
BRAKE_S = 1.0
"""A stop comes to rest in this time, or the robot's own stop is called [s]. A retreat may take `RETREAT_S`."""
RETREAT_S = 30.0
LOCK_S = 0.05
"""An emergency stop waits so long for a command that is being sent, and then no longer [s]."""


class Guarded:
    """A rig that a gate watches.

    Before each command it looks at what the rig has measured, so that a fault is found within one control period
    however seldom the caller looks; what it saw is handed on by the next `observe`.

    Args:
        rig: What is guarded. Nobody else should send it commands.
        gate: What guards it; by default one with the rig's own limits.
        shadow: Compute, compare, never send: `compared` says how far the commands lay from what was measured.

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
        self.shadow = gate.shadow = shadow
        self.compared = np.zeros(len(command.joints))
        """In shadow mode: how far the commands that might have been sent lay from where the joints were, at most
        [rad or m]."""
        self._streams = _streams(rig.features)
        touch = next((s.channels for s in rig.features.streams if s.kind == "touch"), ())
        if gate.limits.fingers != tuple(touch):
            raise InputError(
                f"the gate limits forces of {', '.join(gate.limits.fingers) or 'no finger'}, the rig feels those of "
                f"{', '.join(touch) or 'none'}: use Limits.of_rig"
            )
        self._samples: dict[str, list[Samples]] = defaultdict(list)
        self._frames: dict[str, list[Frames]] = defaultdict(list)
        self._lock = threading.RLock()
        self._rig_stopped = False

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
        """Opens the rig and waits for its first joint positions. A gate that was stopped stays so.

        Raises:
            SetupError: The rig tells no joint positions.
        """
        self.rig.connect()
        self._rig_stopped = False
        with self._lock:
            self.gate.restart()
            self._clear()
            self._wait_for_joints()

    def disconnect(self) -> None:
        """Lets go of the rig."""
        self.rig.disconnect()
        self._clear()

    def now(self) -> float:
        """Returns the rig's clock [s]."""
        return self.rig.now()

    def sleep(self, duration_s: float) -> None:
        """Lets time pass."""
        self.rig.sleep(duration_s)

    def observe(self) -> Observation:
        """Returns what arrived since the last call."""
        with self._lock:
            self._look()
            samples = {k: _joined(v) for k, v in self._samples.items()}
            frames = {
                k: Frames(np.concatenate([f.t for f in v]), np.concatenate([f.image for f in v]))
                for k, v in self._frames.items()
            }
            self._clear()
            return Observation(samples, frames)

    def send(self, target: Float[np.ndarray, " joints"]) -> None:
        """Sends position targets, or what the gate makes of them.

        Raises:
            HaltError: The gate has stopped the robot; a person must `reset` it.
        """
        with self._lock:
            if self.gate.stopped and not self.shadow:
                raise HaltError(self._why())
            with self._failures():
                self._look()
                decision = self.gate.decide(self.rig.now(), target)
                if self.shadow:
                    self._compare(decision)
                    return
                if decision.action != Action.STOP:
                    if decision.target is not None:
                        self.rig.send(decision.target)
                    return
            self._halt(decision)
            raise HaltError(self._why())

    def stop(self) -> None:
        """The emergency stop: it always wins, from any thread, and lasts until a person resets it."""
        self.gate.emergency_stop()
        # Whoever sends just now finishes first, so that the stop is the last that the robot hears.
        locked = self._lock.acquire(timeout=LOCK_S)
        try:
            self._rig_stopped = True
            self.rig.stop()
            if locked:
                self.gate.fail(self.rig.now(), Reason.EMERGENCY)
        finally:
            if locked:
                self._lock.release()

    def reset(self, *, person: str) -> None:
        """Lets the robot move again, on the word of a person who has looked at it.

        Raises:
            InputError: Nobody was named.
            SetupError: The rig tells no joint positions.
        """
        with self._lock:
            if self._rig_stopped:
                self.rig.connect()
                self._rig_stopped = False
            self.gate.reset(self.rig.now(), person=person)
            self._wait_for_joints()

    def trial_ended(self, *, success: bool) -> None:
        """Counts failed trials in a row; see `Limits.failures`."""
        with self._lock:
            self.gate.trial_ended(self.rig.now(), success=success)

    def _wait_for_joints(self) -> None:
        begin = self.rig.now()
        while not self.gate.seen:
            if self.rig.now() - begin > FIRST_LOOK_S:
                self.rig.disconnect()
                raise SetupError(f"{self.features.name} told no joint positions for {FIRST_LOOK_S} s: look at it")
            self.rig.sleep(self.gate.limits.period_s)
            self._look()

    def _why(self) -> str:
        return f"{self.features.name} was stopped: {', '.join(self.gate.stopped)}; look at it, then reset it"

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """A rig that raises is a reason to stop."""
        try:
            yield
        except InputError:
            raise  # nothing was sent
        except Exception:
            if not self.shadow:
                self.gate.fail(self.rig.now(), Reason.RIG)
                with contextlib.suppress(Exception):
                    self._rig_stopped = True
                    self.rig.stop()
            raise

    def _halt(self, decision: Decision) -> None:
        """Brings the robot to rest as the reasons ask for: by its own stop, or by braking and a retreat."""
        period, begin = self.gate.limits.period_s, self.rig.now()
        ask = np.zeros(len(self.gate.limits.joints))  # a stopped gate does not read it
        with self._failures():
            while not LET_GO & set(self.gate.stopped):
                if decision.target is not None:
                    self.rig.send(decision.target)
                if self.gate.at_rest:
                    return
                if self.rig.now() - begin > (RETREAT_S if self.gate.retreats else BRAKE_S):
                    break
                self.rig.sleep(period)
                self._look()
                decision = self.gate.decide(self.rig.now(), ask)
        self._rig_stopped = True
        self.rig.stop()

    def _look(self) -> None:
        seen = self.rig.observe()
        for name, samples in seen.samples.items():
            self._samples[name].append(samples)
        for name, frames in seen.frames.items():
            self._frames[name].append(frames)
        t = self.rig.now()
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
