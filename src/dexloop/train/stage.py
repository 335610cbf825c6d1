"""From demonstrations to a policy, by imitation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dexloop.core import se3
from dexloop.core.artifact import load_arrays, require_free
from dexloop.core.artifacts import Belief, Demos, Policy, Twin
from dexloop.core.errors import InputError
from dexloop.policy.bundle import save_policy
from dexloop.policy.contract import Terms
from dexloop.policy.rehearsal import Stage
from dexloop.policy.start import Start
from dexloop.policy.trials import load_of
from dexloop.robots.catalog import load as load_robot
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.hold import from_arrays
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.staging import open_scene, standing
from dexloop.sim.believed import draw
from dexloop.train.cfg import TrainCfg
from dexloop.train.from_demos import examples_of
from dexloop.train.imitate import imitate
from dexloop.train.improve import Task, improve

Progress = Callable[[str, float], None]


def train(
    demos: Demos,
    out: str | Path,
    *,
    twin: Twin | None = None,
    belief: Belief | None = None,
    cfg: TrainCfg = TrainCfg(),  # noqa: B008 - frozen
    replace: bool = False,
    progress: Progress | None = None,
) -> Policy:
    """Trains a policy that takes the demonstrated object up, as hard as it is told that it is heavy.

    Args:
        demos: By the stage `demonstrate`.
        out: Where the policy shall be.
        twin: Of the object. With it and a belief the policy is improved by trial in simulation.
        belief: What the object weighs and how slippery it is.
        cfg: How.
        replace: Put it in the place of one that is there.
        progress: Told what is going on.

    Raises:
        InputError: The demonstrations do not fit, or training diverges.
        MissingPart: torch is not installed.
    """
    require_free(Path(out), Policy, replace=replace)
    meta = demos.header.meta
    for name in ("robot", "joints", "T_world_base", "rate_hz", "object"):
        if name not in meta:
            raise InputError(f"{demos.path} does not say its {name}: demonstrate again, with --replace")
    robot = load_robot(str(meta["robot"]))
    if list(robot.joints) != list(meta["joints"]):
        raise InputError(f"{demos.path} was made with other joints than {robot.name} has: demonstrate again")
    terms = Terms.of(robot, rate_hz=float(meta["rate_hz"]))
    points = load_arrays(demos.path / "points.npz")["points"]
    base = np.asarray(meta["T_world_base"], dtype=np.float64)
    arrays = load_arrays(demos.path / "demos.npz")
    examples = examples_of(arrays, robot, terms, base, points)
    found = imitate(examples, terms, cfg=cfg, progress=progress)
    start = _start(arrays, robot, base)
    inputs: dict[str, Any] = {"demos": demos}
    if twin is not None and belief is not None and cfg.rounds:
        task = _task(demos, twin, belief, robot, base, points, start, arrays)
        found = improve(found, examples, terms, task, cfg=cfg, progress=progress)
        inputs |= {"twin": twin, "belief": belief}
    return save_policy(
        out, found.network, points={str(meta["object"]): points}, training=found.training, inputs=inputs,
        start=start, trained_on=_ranges(arrays),
        seed=cfg.seed, status=found.status, replace=replace,
    )  # fmt: skip


def _task(
    demos: Demos,
    twin: Twin,
    belief: Belief,
    robot: Embodiment,
    base: np.ndarray,
    points: np.ndarray,
    start: Start,
    arrays: dict[str, np.ndarray],
) -> Task:
    """Returns what the policy is tried on: the demonstrated object, in worlds drawn from the belief."""
    meta = demos.header.meta
    scene = open_scene(twin, {"name": robot.name, "T_world_base": base.tolist()})[2]
    kept = from_arrays(load_arrays(demos.path / "holds.npz"))
    seen = load_arrays(demos.path / "retargeted.npz")["T_world_object"]
    return Task(
        Stage(scene, robot, str(meta["object"]), base, points),
        start,
        [kept[k] for k in np.unique(arrays["hold"])],
        standing(scene, seen),
        load_of(meta["load"]),
        lambda n, seed: draw(belief, scene, n, seed=seed),
    )


def _start(demos: dict[str, np.ndarray], robot: Embodiment, base: np.ndarray) -> Start:
    """Returns where the first demonstration begins; all of one hold begin alike."""
    first = demos["command"][0]
    palm = base @ Kinematics(robot).palm(first)
    T = se3.inverse(se3.from_pose(demos["start"][int(demos["episode"][0])])) @ palm
    return Start(T, first[[robot.joints.index(j) for j in robot.hand_joints]])


def _ranges(demos: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Returns between which values the demonstrations vary what the policy is told."""
    told = {"object.mass": demos["mass_kg"], "fingertip.friction": demos["friction"]}
    return {name: (float(values.min()), float(values.max())) for name, values in told.items()}
