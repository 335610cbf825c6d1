"""Collision-free joint motion: RRT-Connect (OMPL), then shortcuts, then a dense check of what is handed out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.robots.collision import Collisions
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import compiled

SLIDE_SCALE_M = 0.25
"""A slide's way that counts as much as one radian of a hinge [m]."""


@dataclass(frozen=True)
class PlanCfg:
    """How a motion is searched for."""

    budget_s: float = 5.0
    """Time for the search [s]."""
    seed: int = 1
    """The same seed gives the same path, if it is found within the budget."""
    step_rad: float = 0.02
    """Poses are checked this far apart [rad]; a quarter of it for slides [m]."""
    margin_m: float = 0.005
    """Distance to keep at the poses that the search checks; given up where start or goal stand closer already."""
    reach_rad: float = 1.0
    """Longest edge of the search tree."""
    shortcuts: int = 100
    """Tries to cut a corner after a path is found."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A path, or why there is none."""

    path: Float[np.ndarray, "k n"] | None
    """Waypoints in the embodiment's joint order [rad or m], straight in between; None without a path."""
    status: Status


def plan(
    embodiment: Embodiment,
    start: Float[np.ndarray, " n"],
    goal: Float[np.ndarray, " n"],
    *,
    joints: Sequence[str] | None = None,
    scene: mujoco.MjModel | None = None,
    qpos: Float[np.ndarray, " nq"] | None = None,
    ignore: Iterable[tuple[str, str]] = (),
    cfg: PlanCfg = PlanCfg(),  # noqa: B008 - frozen
) -> Plan:
    """Finds a way from one pose to another on which the robot touches nothing.

    Args:
        embodiment: The robot.
        start: Joint values [rad or m].
        goal: Joint values [rad or m].
        joints: The joints the search moves; those of the arm by default, or all where there is no arm. The others go
            straight from start to goal along the way, and count in every check.
        scene: A compiled scene that holds the robot; the robot alone by default.
        qpos: Where the scene's other things are; its reference pose by default.
        ignore: Pairs of body names that may touch (an object in the hand).
        cfg: Time, seed and resolution.

    Returns:
        A path with status `path_found`, or none with `start_in_collision`, `goal_in_collision`, `outside_limits` or
        `no_path`.
    """
    model = scene if scene is not None else compiled(embodiment)
    q0, q1 = (np.asarray(q, dtype=np.float64) for q in (start, goal))
    if q0.shape != embodiment.home.shape or q1.shape != embodiment.home.shape:
        raise InputError(f"start and goal need {len(embodiment.joints)} values, one a joint of {embodiment.name}")
    moving = joints if joints is not None else (embodiment.arm_joints or embodiment.joints)
    for joint in moving:
        if joint not in embodiment.joints:
            raise UnknownName("joint", joint, embodiment.joints)
    low, high = embodiment.position_limits.T
    for what, q in (("start", q0), ("goal", q1)):
        outside = (q < low - 1e-6) | (q > high + 1e-6)
        if outside.any():
            joint = embodiment.joints[int(np.argmax(outside))]
            action = f"Bring {joint} back inside its limits."
            return _failure("outside_limits", f"the {what} has {joint} beyond its limits", action)
    touching = Collisions(model, embodiment.joints, qpos=qpos, ignore=ignore)
    for what, q in (("start", q0), ("goal", q1)):
        if touches := touching.touches(q):
            action = f"Move the {what} away from {touches[0].other}, or let the pair touch with `ignore`."
            return _failure(f"{what}_in_collision", f"{what} in collision: {touches[0]}", action)
    checker = Collisions(model, embodiment.joints, qpos=qpos, margin_m=cfg.margin_m, ignore=ignore)
    if not (checker.free(q0) and checker.free(q1)):
        checker = touching
    search = _Search(embodiment, moving, checker, touching, q0, q1, cfg)
    return search.run(low, high)


class _Search:
    def __init__(
        self,
        embodiment: Embodiment,
        moving: Sequence[str],
        checker: Collisions,
        touching: Collisions,
        start: np.ndarray,
        goal: np.ndarray,
        cfg: PlanCfg,
    ):
        self.index = np.array([embodiment.joints.index(j) for j in moving], dtype=int)
        slides = np.array([u == "m" for u in embodiment.units])
        self.scale = np.where(slides, SLIDE_SCALE_M, 1.0)
        self.checker, self.touching = checker, touching
        self.start, self.goal, self.cfg = start, goal, cfg
        rest = np.delete(np.arange(len(start)), self.index)
        self.rest = rest if np.abs(goal[rest] - start[rest]).any() else rest[:0]

    def run(self, low: np.ndarray, high: np.ndarray) -> Plan:
        """Searches with ever finer checks until the whole path passes a check finer still."""
        began, step = time.monotonic(), self.cfg.step_rad
        if self.clear(np.stack([self.start, self.goal]), 0.25 * step):
            return self._found(np.stack([self.start, self.goal]), began)
        while (left := self.cfg.budget_s - (time.monotonic() - began)) > 0:
            path = self._connect(low, high, step, left)
            if path is None:
                break
            if self.clear(path, 0.25 * step):
                return self._found(path, began)
            step *= 0.5
        message = f"no path in {self.cfg.budget_s:g} s from start to goal"
        return _failure("no_path", message, "Give more time (budget_s), another goal, or clear the way.")

    def clear(self, path: np.ndarray, step: float) -> bool:
        """Returns whether nothing touches anywhere on a path, at poses at most `step` apart."""
        for a, b in itertools.pairwise(path):
            count = max(2, int(np.ceil(np.abs((b - a) / self.scale).max() / step)) + 1)
            if not all(self.touching.free(a + s * (b - a)) for s in np.linspace(0, 1, count)):
                return False
        return True

    def _found(self, path: np.ndarray, began: float) -> Plan:
        message = f"{len(path)} waypoints in {time.monotonic() - began:.2f} s"
        return Plan(path, Status(Level.OK, "path_found", message))

    def _connect(self, low: np.ndarray, high: np.ndarray, step: float, budget_s: float) -> np.ndarray | None:
        from ompl import base, geometric, util

        util.setLogLevel(util.LOG_NONE)
        util.RNG.setSeed(self.cfg.seed)
        n = len(self.index)
        # Joints that the search does not move go along in step, as one more dimension from 0 to 1.
        extra = bool(len(self.rest))
        space = base.RealVectorStateSpace(n + extra)
        bounds = base.RealVectorBounds(n + extra)
        for k, i in enumerate(self.index):
            bounds.setLow(k, float(np.clip(low[i], -2 * np.pi, None) / self.scale[i]))
            bounds.setHigh(k, float(np.clip(high[i], None, 2 * np.pi) / self.scale[i]))
        if extra:
            bounds.setLow(n, 0.0)
            bounds.setHigh(n, 1.0)
        space.setBounds(bounds)
        setup = geometric.SimpleSetup(space)
        info = setup.getSpaceInformation()
        setup.setStateValidityChecker(lambda state: self.checker.free(self._pose(state, n)))
        info.setStateValidityCheckingResolution(step / space.getMaximumExtent())
        planner = geometric.RRTConnect(info)
        planner.setRange(self.cfg.reach_rad)
        setup.setPlanner(planner)
        ends = []
        for q, progress in ((self.start, 0.0), (self.goal, 1.0)):
            state: Any = space.allocState()
            for k, i in enumerate(self.index):
                state[k] = float(q[i] / self.scale[i])
            if extra:
                state[n] = progress
            ends.append(state)
        setup.setStartAndGoalStates(*ends)
        setup.solve(budget_s)
        if not setup.haveExactSolutionPath():
            return None
        path = setup.getSolutionPath()
        simplifier = geometric.PathSimplifier(info)
        simplifier.reduceVertices(path, self.cfg.shortcuts, self.cfg.shortcuts)
        simplifier.partialShortcutPath(path, self.cfg.shortcuts, self.cfg.shortcuts)
        simplifier.reduceVertices(path, self.cfg.shortcuts, self.cfg.shortcuts)
        found = np.array([self._pose(state, n) for state in path.getStates()])
        found[0], found[-1] = self.start, self.goal
        return found

    def _pose(self, state: Any, n: int) -> np.ndarray:
        q = self.start.copy()
        q[self.index] = [state[k] * self.scale[i] for k, i in enumerate(self.index)]
        if len(self.rest):
            q[self.rest] += state[n] * (self.goal - self.start)[self.rest]
        return q


def _failure(code: str, message: str, action: str) -> Plan:
    return Plan(None, Status(Level.FAIL, code, message, action))
