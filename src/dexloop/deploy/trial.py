"""One trial: go before the object, let it be taken up, hold and shake it, put it down and go home."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError
from dexloop.deploy.doers import HOLD, LIFT, Doer
from dexloop.deploy.senses import Senses
from dexloop.policy.rehearsal import LIMIT_S
from dexloop.rig.protocol import Observation, Rig
from dexloop.robots.collision import Collisions
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.planning import plan
from dexloop.robots.shake import Shake, shaking
from dexloop.robots.trajectory import through

HASTE = 0.4
"""Fraction of the speed limits used on the way to the object and home."""
_LOOK = 10
"""Every how many control periods a straight way is checked for what stands in it."""


@dataclass(frozen=True)
class Moments:
    """When things began, on the rig's clock [s]; NaN for what never did."""

    begin: float
    lift: float = np.nan
    hold: float = np.nan
    end: float = np.nan

    def to_json(self) -> dict[str, float]:
        """Returns those that are known."""
        return {name: float(value) for name, value in vars(self).items() if np.isfinite(value)}


def road(
    robot: Embodiment,
    model: mujoco.MjModel,
    q: Float[np.ndarray, " j"],
    rate_hz: float,
    *,
    qpos: Float[np.ndarray, " nq"],
) -> Float[np.ndarray, "m j"]:
    """Returns the way from the robot's home to a posture, around what stands in it.

    Args:
        robot: That goes.
        model: What is there.
        q: Where to [rad or m].
        rate_hz: How often it is sent a target [1/s].
        qpos: Where everything else is.

    Raises:
        InputError: There is none.
    """
    straight = through(robot, np.stack([robot.home, q]), speed=HASTE, rate_hz=rate_hz).q
    touching = Collisions(model, robot.joints, qpos=qpos)
    if all(touching.free(row) for row in straight[::_LOOK]):
        return straight
    found = plan(robot, robot.home, q, scene=model, qpos=qpos)
    if found.path is None:
        raise InputError(f"the hand does not get before the object: {found.status.message}")
    return through(robot, found.path, speed=HASTE, rate_hz=rate_hz).q


def attempt(
    rig: Rig,
    doer: Doer,
    way: Float[np.ndarray, "m j"],
    senses: Senses,
    robot: Embodiment,
    shake: Shake,
    *,
    begin: Callable[[], None] = lambda: None,
    note: Callable[[Observation], None] = lambda _seen: None,
    moment: Callable[[Moments], None] = lambda _now: None,
    ended: Callable[[], None] = lambda: None,
) -> Moments:
    """Takes an object up, holds and shakes it, and puts it down again; one that is not up in time is given up.

    Args:
        rig: Connected, the robot at its home.
        doer: Who does it.
        way: From home to where the doer begins.
        senses: What is heard.
        robot: The rig's.
        shake: How it is tried.
        begin: Called when the doer begins.
        note: Given all that is observed from then on until the end.
        moment: Told when the lift begins, when the object is up, and when it has been shaken.
        ended: Called when it has been shaken, before it is put down.

    Raises:
        HaltError: The rig stopped.
    """
    assert rig.features.command is not None
    dt = 1.0 / rig.features.command.rate_hz
    few = max(round(1.0 / (doer.rate_hz * dt)), 1)
    _follow(rig, way, dt, senses)
    begin()
    at = Moments(rig.now())
    done = [way[-1]]
    aside, up, last = np.zeros((len(robot.joints), 3)), np.inf, way[-1]
    fine = dt * np.arange(1, few + 1)
    while True:
        t = rig.now() - at.begin
        assert senses.position is not None
        assert senses.touch is not None
        thing = senses.T_world_object(carried=doer.phase >= LIFT)
        targets = doer.step(t, senses.position, senses.touch, thing, fine)
        if doer.phase >= LIFT and not np.isfinite(at.lift):
            at = Moments(at.begin, rig.now())
            moment(at)
        if doer.phase >= HOLD and not np.isfinite(at.hold):
            at, up = Moments(at.begin, at.lift, rig.now()), t
            moment(at)
            aside = shaking(robot, Kinematics(robot), targets[-1])
        shaken = shake.offset(t + fine - up) @ aside.T if np.isfinite(up) else np.zeros_like(targets)
        for target in targets + shaken:
            last = np.clip(target, *robot.position_limits.T)
            rig.send(last)
            rig.sleep(dt)
        seen = rig.observe()
        senses.hear(seen)
        note(seen)
        if not np.isfinite(up):
            done.extend(targets)
        if t > up + shake.duration_s or (t > LIMIT_S / doer.pace and not np.isfinite(up)):
            break
    at = Moments(at.begin, at.lift, at.hold, rig.now())
    moment(at)
    ended()
    # What was done so far, backwards: down, open, away, home. First to where it was when the object was up: a doer may
    # have gone on since, and a shake may end aside.
    if not np.allclose(last, done[-1], atol=1e-9):
        _follow(rig, through(robot, np.stack([last, done[-1]]), speed=HASTE, rate_hz=1.0 / dt).q, dt, senses)
    _follow(rig, np.array(done[::-1]), dt, senses)
    _follow(rig, way[::-1], dt, senses)
    return at


def _follow(rig: Rig, targets: Float[np.ndarray, "m j"], dt: float, senses: Senses) -> None:
    for k, target in enumerate(targets):
        rig.send(target)
        rig.sleep(dt)
        if k % _LOOK == 0 or k == len(targets) - 1:
            senses.hear(rig.observe())
