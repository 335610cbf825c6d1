"""The safety gate: every command passes it, is made harmless, or stops the robot.

It is a plain state machine without clock, thread or device of its own. `see` tells it what was measured, `decide` what
a policy asks for, and it answers what may be sent. Whatever comes in, what goes out keeps the limits of position,
speed, acceleration and jerk, as differences of what was sent; see `dexloop.rig.braking`. Once stopped it stays stopped
until a person resets it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError
from dexloop.rig import braking
from dexloop.rig.encoders import ALIVE, NOT_FINITE, REPEATED, Encoders
from dexloop.rig.events import STAY, Action, Event, EventLog, Reason
from dexloop.rig.limits import Limits

SOONEST = 0.5
"""A command that comes after less than this part of a period is not sent."""
NEAR_S = 0.02
"""The first command is taken as it is if it is no farther from where a joint was measured than it goes in this time at
full speed [s]: a servo that carries weight does not stand quite where it was told to. Otherwise the joint goes there
from where it is."""
DRIFT = 1e-3
"""By how much two clocks may run apart [s/s]."""
OUTSIDE_M = 0.01
"""The palm may be measured so far outside its workspace before the robot is stopped [m]."""
LIFTED_M, LYING_M = 0.02, 0.005
"""An object that is higher than at first by more than the one is lifted, by less than the other it lies there [m]."""
RETREAT = 0.2
"""Part of the limits of speed, acceleration and jerk that a retreat uses."""
STANDS = 0.02
"""A joint that was sent slower than this part of its limit stands: no harm if nothing comes for a while."""
_REST = 1e-6
"""A joint slower than this part of its limit rests."""
_MARGIN, _SLACK = 1e-3, 1e-4
"""Limits of speed, acceleration and jerk are kept with this part to spare, and what changes them by less than the
second part is rounding: a planned motion that ends just at a limit of position passes as it is."""
_BITS = (
    (braking.POSITION, Reason.POSITION),
    (braking.SPEED, Reason.SPEED),
    (braking.ACCELERATION, Reason.ACCELERATION),
    (braking.JERK, Reason.JERK),
    (braking.BRAKING, Reason.BRAKING),
)
_REASONS = tuple(tuple(reason for bit, reason in _BITS if bits & bit) for bits in range(32))

Palm = Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, "3"]]
"""Where the palm is in the world [m] with the joints so."""


@dataclass(frozen=True, eq=False, slots=True)
class Decision:
    """What may be sent."""

    target: Float[np.ndarray, " n"] | None
    """[rad or m]; None if nothing may be."""
    action: Action
    reasons: tuple[Reason, ...] = ()


class Gate:
    """Between any policy and any robot.

    Args:
        limits: What it keeps.
        palm: Where the palm is; needed for a workspace, and to see an object fall.
        retreat: Waypoints to go through, slowly, after a stop that leaves the robot in order [rad or m]. They are not
            checked for collisions.
        shadow: What it decides is not sent, so the robot need not follow it.

    Raises:
        InputError: A workspace without a palm, or a retreat beyond the limits.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        palm: Palm | None = None,
        retreat: Float[np.ndarray, "m n"] | None = None,
        shadow: bool = False,
    ):
        if limits.workspace_m is not None and palm is None:
            raise InputError("a workspace was given, but not where the palm is: give `palm`")
        self.limits, self.log, self.shadow = limits, EventLog(), shadow
        self.expected = frozenset({"position"})
        """What must have been seen before anything is sent, by its name in `see`: a limit on what a silent sensor
        measures guards nothing."""
        self._palm = palm
        n = len(limits.joints)
        low, high = limits.position.T
        rates = np.stack([limits.speed, limits.acceleration, limits.jerk]) * (1.0 - _MARGIN)
        self._soonest = h = SOONEST * limits.period_s
        slack = _SLACK * RETREAT * np.min(rates * np.array([[h], [h**2], [h**3]]), axis=0)
        self._bounds = np.vstack([low, high, rates, slack])
        self._calm = np.vstack([low, high, RETREAT * rates, slack])
        self._retreat = np.zeros((0, n)) if retreat is None else np.asarray(retreat, dtype=np.float64)
        if self._retreat.shape[1:] != (n,) or (np.clip(self._retreat, low, high) != self._retreat).any():
            raise InputError(f"a retreat is [m, {n}] joint positions inside the limits")
        self._encoders = Encoders(limits.speed)
        self._why = np.zeros(n, dtype=np.int64)
        self._failed = 0
        self._pulled = self._acknowledged = object()
        self._reasons: tuple[Reason, ...] = ()
        self.restart()

    def restart(self) -> None:
        """Forgets where the robot was sent and what was measured, but not that it was stopped."""
        n = len(self.limits.joints)
        self._state: np.ndarray | None = None
        self._asked = np.zeros(n)
        self._told = np.full(n, np.nan)
        self._t = -math.inf
        self.position: np.ndarray | None = None
        """Where the joints were last measured [rad or m]."""
        self._stamps: dict[str, tuple[float, float, float]] = {}
        self._over: float | None = None
        self._rest: tuple[float, float] | None = None
        """The lowest that an object was, and where it last lay there: over the table, over the palm [m]."""
        self._carried: tuple[float, float] | None = None
        """The highest that an object was since it was lifted: over the table, over the palm [m]."""
        self._waypoint = -1  # it comes to rest first
        self._encoders.forget()

    @property
    def stopped(self) -> tuple[Reason, ...]:
        """Why it is stopped; empty if it is not."""
        if self._pulled is not self._acknowledged and Reason.EMERGENCY not in self._reasons:
            return (*self._reasons, Reason.EMERGENCY)
        return self._reasons

    @property
    def pull(self) -> object:
        """The last pull of the emergency stop: another object each time."""
        return self._pulled

    @property
    def unseen(self) -> tuple[str, ...]:
        """What is expected and has not been seen yet."""
        missing = self.expected - self._stamps.keys()
        # A reading that is not finite has a time, but does not tell where the robot is.
        return tuple(sorted(missing if self.position is not None else missing | {"position"}))

    @property
    def at_rest(self) -> bool:
        """Whether what was sent stands still, at the end of a retreat if there is one to go."""
        if self._state is None:
            return True
        still = bool((np.abs(self._state[1]) <= _REST * self.limits.speed).all())
        return still and not (self.retreats and self._waypoint < len(self._retreat))

    @property
    def retreats(self) -> bool:
        """Whether it is stopped for reasons that leave a retreat, and there is one."""
        return bool(self._reasons) and len(self._retreat) > 0 and not STAY & set(self._reasons)

    def see(
        self,
        t: float,
        stamp: float,
        *,
        position: Float[np.ndarray, " n"] | None = None,
        effort: Float[np.ndarray, " n"] | None = None,
        touch: Float[np.ndarray, " f"] | None = None,
        object_m: Float[np.ndarray, "3"] | None = None,
    ) -> None:
        """Takes what was measured. A sample that is not newer than the one before is not seen.

        Args:
            t: Now, on the clock of `decide` [s].
            stamp: When it was measured, on the sensor's own clock [s].
            position: Of the joints [rad or m].
            effort: Of the joints [N·m or N].
            touch: Of the fingertips [N].
            object_m: The object's place in the world [m].
        """
        if position is not None and self._is_new("position", t, stamp):
            found = self._encoders.see(position, self._told)
            if found == ALIVE:
                self.position = position
            elif found == NOT_FINITE:
                self._stop(t, Reason.NOT_FINITE)
            elif found == REPEATED:
                self._stop(t, Reason.FROZEN)
            else:
                self._stop(t, Reason.FROZEN, self.limits.joints[found], float(position[found]))
            if found == ALIVE and self._palm is not None and self.limits.workspace_m is not None:
                self._check_palm(t, position)
        if effort is not None and self._is_new("effort", t, stamp):
            self._check_effort(t, stamp, effort)
        if touch is not None and self._is_new("touch", t, stamp):
            if len(touch) != len(self.limits.fingers):
                raise InputError(f"touch is {len(self.limits.fingers)} forces, not {len(touch)}")
            # Written so that a force that is no number is too high.
            over = ~(touch < self.limits.fingertip_force_n)
            if over.any():
                k = int(np.argmax(over))
                reason = Reason.FORCE if math.isfinite(touch[k]) else Reason.NOT_FINITE
                self._stop(t, reason, self.limits.fingers[k], float(touch[k]))
        if object_m is not None and self._palm is not None and self.position is not None:
            self._check_object(t, object_m)

    def decide(self, t: float, target: Float[np.ndarray, " n"]) -> Decision:
        """Returns what may be sent now.

        Args:
            t: Now [s].
            target: What is asked for [rad or m].

        Raises:
            InputError: The target does not have one number a joint.
        """
        target = np.ascontiguousarray(target, dtype=np.float64)
        if target.shape != self._asked.shape:
            raise InputError(f"a command is {len(self._asked)} joint positions, not {list(target.shape)}")
        if self._pulled is not self._acknowledged and Reason.EMERGENCY not in self._reasons:
            self._stop(t, Reason.EMERGENCY)
        if not t >= self._t or t == math.inf:
            self._stop(self._t, Reason.CLOCK)
            t = self._t
        if not np.isfinite(target).all():
            k = int(np.argmin(np.isfinite(target)))
            self._stop(t, Reason.COMMAND, self.limits.joints[k], float(target[k]))
        if self._state is None and self.unseen:
            self._stop(t, Reason.BLIND)
            return Decision(None, Action.STOP, self._reasons)
        for stamp, _, offset in self._stamps.values():
            if t - stamp - offset > self.limits.stale_s:
                self._stop(t, Reason.STALE)
        if self._state is None:
            h = self.limits.period_s
            self._begin(target)
        else:
            h = t - self._t
            if h > self.limits.policy_period_s:
                # The robot has stood at its last target since.
                if (np.abs(self._state[1]) > STANDS * self.limits.speed).any():
                    self._stop(t, Reason.LATE)
                self._state[1:] = 0.0
                h = self.limits.period_s
            elif h < self._soonest * (1.0 - 1e-9):
                if not self._reasons:
                    self.log.add(Event(t, t, 1, Action.HOLD, (Reason.TOO_SOON,)))
                    return Decision(None, Action.HOLD, (Reason.TOO_SOON,))
                return Decision(None, Action.STOP, self._reasons)
        return self._move(t, target, h)

    def emergency_stop(self) -> None:
        """Stops, whatever else happens; may be called from any thread at any time."""
        self._pulled = object()

    def fail(self, t: float, reason: Reason) -> None:
        """Stops for a reason that others found [s]."""
        self._stop(t, reason)

    def trial_ended(self, t: float, *, success: bool) -> None:
        """Counts failed trials; so many in a row as the limits say stop the robot."""
        self._failed = 0 if success else self._failed + 1
        if self._failed >= self.limits.failures:
            self._stop(t, Reason.FAILURES)

    def reset(self, t: float, *, person: str, pull: object | None = None) -> None:
        """Lets the robot move again; the next command starts from where it is then measured.

        Args:
            t: Now [s].
            person: Who has looked at the robot and takes it upon them.
            pull: The last `pull` of the emergency stop that they knew of, by default the last that there was. A later
                one wins.

        Raises:
            InputError: Nobody was named.
        """
        if not person.strip():
            raise InputError("only a person can reset a robot: say who you are")
        pull, reasons = self._pulled if pull is None else pull, self.stopped
        self._reasons, self._failed = (), 0
        self._acknowledged = pull  # one that is pulled meanwhile is another, and wins
        self.restart()
        self.log.add(Event(t, t, 1, Action.RESET, reasons, person=person.strip()))

    def _begin(self, target: np.ndarray) -> None:
        """Starts from rest, where the robot is or is told to be nearby."""
        assert self.position is not None
        near = np.abs(target - self.position) <= NEAR_S * self.limits.speed
        start = np.where(near & (not self._reasons), target, self.position)
        start = np.clip(start, self._bounds[0], self._bounds[1])
        self._state = np.vstack([start, np.zeros((2, len(start)))])
        self._asked = start.copy()

    def _move(self, t: float, target: np.ndarray, h: float) -> Decision:
        assert self._state is not None
        if self._reasons:
            self._brake_or_retreat(h)
            bits = 0
        else:
            before = self._state.copy() if self.limits.workspace_m is not None else None
            bits = int(braking.step(self._state, target, self._asked, h, self._bounds, self._soonest, False, self._why))
            if before is not None and self._leaves():
                self._state = before
                braking.step(self._state, target, self._asked, h, self._bounds, self._soonest, True, self._why)
                self._t, sent = t, self._sent()
                self.log.add(Event(t, t, 1, Action.SLOW, (Reason.WORKSPACE,)))
                return Decision(sent, Action.SLOW, (Reason.WORKSPACE,))
        self._t, sent = t, self._sent()
        # Last of all, for it always wins.
        if self._pulled is not self._acknowledged and Reason.EMERGENCY not in self._reasons:
            self._stop(t, Reason.EMERGENCY)
        if self._reasons:
            return Decision(sent, Action.STOP, self._reasons)
        if not bits:
            return Decision(sent, Action.PASS)
        action = Action.CLIP if bits == braking.POSITION else Action.SLOW
        k = int(np.argmax(self._why > 0))
        asked, got = float(target[k]), float(sent[k])
        self.log.add(Event(t, t, 1, action, _REASONS[bits], self.limits.joints[k], asked, got))
        return Decision(sent, action, _REASONS[bits])

    def _sent(self) -> np.ndarray:
        assert self._state is not None
        sent = self._state[0].copy()
        if not self.shadow:
            self._told = sent
        return sent

    def _brake_or_retreat(self, h: float) -> None:
        state = self._state
        assert state is not None
        still = (np.abs(state[1]) <= _REST * self.limits.speed).all()
        if self._waypoint < 0 and still:
            self._waypoint = 0
        if self._waypoint < 0 or not self.retreats:
            braking.step(state, self._asked, self._asked, h, self._bounds, self._soonest, True, self._why)
        elif self._waypoint < len(self._retreat):
            goal = self._retreat[self._waypoint]
            braking.step(state, goal, self._asked, h, self._calm, self._soonest, False, self._why)
            self._waypoint += np.array_equal(state[0], goal) and not state[1].any()

    def _leaves(self) -> bool:
        """Whether the palm is outside its workspace, or would be after a stop from here."""
        assert self._state is not None
        return self._outside(self._state[0]) > 0.0 or self._outside(braking.rest(self._state, self._bounds)) > 0.0

    def _outside(self, q: np.ndarray) -> float:
        """Returns how far the palm is outside its workspace [m]."""
        assert self._palm is not None
        assert self.limits.workspace_m is not None
        p, (low, high) = self._palm(q), self.limits.workspace_m
        beyond = float(np.max(np.maximum(low - p, p - high)))
        return beyond if beyond == beyond else math.inf

    def _check_palm(self, t: float, position: np.ndarray) -> None:
        beyond = self._outside(position)
        if beyond > OUTSIDE_M:
            self._stop(t, Reason.WORKSPACE, "", beyond)

    def _check_effort(self, t: float, stamp: float, effort: np.ndarray) -> None:
        if len(effort) != len(self.limits.joints):
            raise InputError(f"efforts are {len(self.limits.joints)} numbers, not {len(effort)}")
        over = ~(np.abs(effort) <= self.limits.effort)
        if not over.any():
            self._over = None
            return
        k = int(np.argmax(over))
        if not np.isfinite(effort).all():
            self._stop(t, Reason.NOT_FINITE, self.limits.joints[k], float(effort[k]))
        self._over = stamp if self._over is None else self._over
        if stamp - self._over >= self.limits.effort_s:
            self._stop(t, Reason.EFFORT, self.limits.joints[k], float(effort[k]))

    def _check_object(self, t: float, object_m: np.ndarray) -> None:
        """Stops when an object that the hand has lifted falls, seen from the palm too: what is lowered goes with it.

        What was put down again is not lifted; nor is what rose without the palm: a push tipped it up, or somebody
        stood it up again.
        """
        assert self._palm is not None
        assert self.position is not None
        height = float(object_m[2])
        if not math.isfinite(height):
            return  # a tracker that has lost the object says nothing about it
        above_palm = height - float(self._palm(self.position)[2])
        lowest, lay = self._rest or (height, above_palm)
        lowest = min(height, lowest)
        if height - lowest < LIFTED_M:
            self._rest = lowest, (above_palm if height - lowest < LYING_M else lay)
            self._carried = None
            return
        if self._carried is None and above_palm - lay > 0.5 * LIFTED_M:
            self._rest = height, above_palm
            return
        before = self._carried or (height, above_palm)
        self._carried = max(before[0], height), max(before[1], above_palm)
        fallen = min(self._carried[0] - height, self._carried[1] - above_palm)
        if fallen > self.limits.drop_m:
            self._stop(t, Reason.DROPPED, "", fallen)

    def _is_new(self, stream: str, t: float, stamp: float) -> bool:
        """Whether a sample is newer than the last; keeps its time and the least delay between the two clocks."""
        last = self._stamps.get(stream)
        if not (math.isfinite(stamp) and math.isfinite(t)):
            return False
        if last is None:
            self._stamps[stream] = (stamp, t, t - stamp)
            return True
        if stamp <= last[0]:
            return False
        self._stamps[stream] = (stamp, t, min(t - stamp, last[2] + DRIFT * max(t - last[1], 0.0)))
        return True

    def _stop(self, t: float, reason: Reason, joint: str = "", value: float | None = None) -> None:
        if reason in self._reasons:
            return
        self._reasons = (*self._reasons, reason)
        self.log.add(Event(t, t, 1, Action.STOP, (reason,), joint, value))
