"""Improving by trial in simulation: where a policy comes by itself, it is told what would have been right there.

A network that imitates comes into states that no demonstration went through, and was never told what to do in them. So
it acts in worlds drawn from the belief; at each moment the planned motion, which knows the phase, the time and the
slip, says what it would have done; and the network learns from that too (DAgger: Ross, Gordon and Bagnell, 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.policy.acting import Acting
from dexloop.policy.bundle import Brain
from dexloop.policy.contract import Terms
from dexloop.policy.observation import encode_pose
from dexloop.policy.rehearsal import Stage, rehearse
from dexloop.policy.start import Start
from dexloop.robots.hold import Hold
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.outcome import HELD
from dexloop.robots.pickup import Load, Pickup
from dexloop.robots.shake import Shake
from dexloop.robots.varied import varied
from dexloop.sim.believed import Draws
from dexloop.train.cfg import TrainCfg
from dexloop.train.examples import Examples
from dexloop.train.imitate import Imitated, imitate

Progress = Callable[[str, float], None]

_GONE_M = 0.02
"""What has slipped by more is lost: there is nothing right to do any more [m]."""
_SHAKE = Shake(hold_s=0.5, shake_s=1.0)
_PRESSING = 2
"""From this phase on fingers press."""


@dataclass(frozen=True, eq=False)
class Task:
    """What a policy is tried on."""

    stage: Stage
    start: Start
    holds: Sequence[Hold]
    T_world_object: Float[np.ndarray, "4 4"]
    """Where the object stood."""
    load: Load
    worlds: Callable[[int, int], Draws]
    """Draws so many worlds from the belief, with a seed."""


def improve(
    found: Imitated,
    examples: Examples,
    terms: Terms,
    task: Task,
    *,
    cfg: TrainCfg,
    progress: Progress | None = None,
) -> Imitated:
    """Lets a policy act, has it corrected, trains it again; and keeps the one that holds more.

    Args:
        found: As imitation left it.
        examples: What it was trained on.
        terms: What it is for.
        task: What it is tried on.
        cfg: How often, and in how many worlds.
        progress: Told what is going on, and how much of it is done.

    Returns:
        The best, whose `training` has what every round was worth: how many were held in worlds that no example is from.
    """
    tell = progress or (lambda _text, _done: None)
    best, log = found, []
    asked = [_asked(task, cfg, 2 * r + 1) for r in range(cfg.rounds)]
    unseen = _asked(task, cfg, 0)
    held = _tried(best, task, unseen, tell, "trying the policy")
    for r, worlds in enumerate(asked):
        corrections = _Corrections([v.pickup for v in worlds[0]], task.stage)
        _tried(best, task, worlds, tell, "correcting the policy", corrections)
        examples = examples.and_those(corrections.examples())
        other = imitate(examples, terms, cfg=replace(cfg, seed=cfg.seed + r + 1), progress=tell)
        after = _tried(other, task, unseen, tell, "trying the policy")
        log.append({"held_before": held, "held_after": after, "worlds": cfg.worlds, "examples": len(examples)})
        if after >= held:
            best, held = other, after
    training: dict[str, Any] = {**best.training, "improvement": log}
    said = f"{best.status.message}; it held {100 * held:.0f} % in simulated worlds that it was not trained in"
    if log:
        said += f" ({100 * log[0]['held_before']:.0f} % before it was corrected)"
    return replace(best, training=training, status=replace(best.status, message=said))


def _asked(task: Task, cfg: TrainCfg, number: int) -> tuple[list, Draws]:
    """Draws worlds and where the object stands in them."""
    rng = np.random.default_rng([78, cfg.seed, number])
    draws = task.worlds(cfg.worlds, int(rng.integers(2**31)))
    return varied(task.stage.robot, task.stage.scene, task.holds, task.T_world_object, task.load, draws, rng)


def _tried(
    policy: Imitated,
    task: Task,
    worlds: tuple[list, Draws],
    tell: Progress,
    what: str,
    corrections: _Corrections | None = None,
) -> float:
    """Returns in which share of the worlds the policy holds the object."""
    brain = Brain(policy.network, {task.stage.thing: task.stage.points})
    made, draws = worlds
    outcomes = rehearse(
        brain, task.start, task.stage, np.stack([v.T_world_object for v in made]), [v.load for v in made], draws,
        shake=_SHAKE, note=corrections.note if corrections else lambda _acting: None,
        progress=lambda done: tell(what, done),
    )  # fmt: skip
    return float(np.mean([o.verdict == HELD for o in outcomes]))


class _Corrections:
    """Writes down what a policy saw, and what the planned motion would have done there.

    Args:
        pickups: The planned motions, one a world.
        stage: Where they are done.
    """

    def __init__(self, pickups: Sequence[Pickup], stage: Stage):
        self._pickups, self._stage = pickups, stage
        self._kinematics = Kinematics(stage.robot)
        self._hand = [stage.robot.joints.index(j) for j in stage.robot.hand_joints]
        self._forces = np.stack([p.finger_forces() for p in pickups])
        self._firm, self._lost = np.ones(len(pickups)), np.zeros(len(pickups), dtype=bool)
        self._rows: dict[str, list[np.ndarray]] = {}

    def note(self, acting: Acting) -> None:
        """Adds a moment of all worlds."""
        seen = acting.seen
        assert seen is not None
        phase, clock, slip = seen.phase.argmax(axis=1), seen.clock[:, 0], np.linalg.norm(seen.slip, axis=1)
        self._lost |= slip > _GONE_M
        dt = 1.0 / acting.brain.contract.rate_hz
        commands, phases = [], []
        for k, p in enumerate(self._pickups):
            # As demonstrations are timed: a phase is chosen at the moment before its first one.
            t = np.array([p.starts[phase[k]] + clock[k] + (2.0 * dt if phase[k] == 0 else 0.0)])
            self._firm[k] = p.pressed(float(t[0]) - dt, seen.touch[k], self._firm[k], dt=dt)
            self._firm[k] = float(p.firmness(slip[k], self._firm[k]))
            commands.append(p.command(t, self._firm[k])[0])
            phases.append(min(int(p.phases(t)[0]), int(phase[k]) + 1))
        command, then = np.stack(commands), np.array(phases)
        T_palm = self._stage.T_world_base @ self._kinematics.palm(command)
        moment = {
            **{f"seen.{name}": value for name, value in seen.fields().items()},
            "palm": encode_pose(se3.inverse(acting.past.T_world_start) @ T_palm),
            "hand": command[:, self._hand],
            "force": np.where(then >= _PRESSING, self._firm, 0.0)[:, None] * self._forces,
            "phase": then,
            "episode": np.arange(len(then)),
        }
        for name, value in moment.items():
            self._rows.setdefault(name, []).append(np.array(value)[~self._lost])

    def examples(self) -> Examples:
        """Returns all of it."""
        rows = {name: np.concatenate(value) for name, value in self._rows.items()}
        seen = {name.removeprefix("seen."): rows.pop(name) for name in list(rows) if name.startswith("seen.")}
        points = np.asarray(self._stage.points)[None]
        return Examples(seen, points=points, shape=np.zeros(len(rows["episode"]), dtype=int), **rows)
