"""Demonstrations as arrays: what the robot saw and did, sample by sample, ready to learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.demonstrate.replay import Replayed, replay
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.hold import Hold
from dexloop.robots.pickup import Load
from dexloop.robots.varied import Varied, varied
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene

_BATCH = 16


def variations(
    robot: Embodiment,
    scene: Scene,
    thing: str,
    holds: Sequence[Hold],
    T_world_object: Float[np.ndarray, "4 4"],
    load: Load,
    draws: Draws,
    *,
    seed: int,
    frictions: Sequence[float] = (),
    progress: Callable[[float], None] = lambda _done: None,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Replays holds on objects that stand elsewhere, weigh otherwise and are more or less slippery.

    Args:
        robot: That takes them.
        scene: Robot, object and table.
        thing: The object's name.
        holds: To choose from.
        T_world_object: Where the object stood.
        load: What is believed of it.
        draws: Worlds, one for each new demonstration; their masses and frictions are replaced.
        seed: Of the random numbers.
        frictions: Of the hand in the worlds, in turn; if there are none, any.
        progress: Told which share is done.

    Returns:
        Arrays of those that held (see `arrays`), and the outcomes of all.
    """
    rng = np.random.default_rng([77, seed])
    episodes, outcomes, kept = [], [], []
    for begin in range(0, len(draws), _BATCH):
        made, batch = varied(
            robot, scene, holds, T_world_object, load, draws[begin : begin + _BATCH], rng, frictions=frictions,
            first=begin,
        )  # fmt: skip
        done = replay(
            scene, thing, [v.pickup for v in made], np.stack([v.T_world_object for v in made]), batch, shake=False
        )
        outcomes += done.outcome
        for k in np.flatnonzero(done.held):
            episodes.append(made[k])
            kept.append((done, int(k)))
        progress(min(begin + _BATCH, len(draws)) / len(draws))
    return arrays(episodes, kept), outcomes


def arrays(episodes: Sequence[Varied], kept: Sequence[tuple[Replayed, int]]) -> dict[str, np.ndarray]:
    """Lays episodes one after another; `episode` says which one a sample belongs to.

    Of each sample: `t` [s], `phase`, `position` and `command` of all joints [rad or m], `touch` and `force` of the
    fingers [N], `object` and `palm` as poses in the world, `firmness`. Of each episode: `hold`, `start` (the object's
    pose), `mass_kg`, `mass_high_kg`, `friction`.
    """
    if not episodes:
        raise InputError("nothing was held in any world: there is no demonstration to keep")
    rows: dict[str, list[np.ndarray]] = {}
    for number, (episode, (done, k)) in enumerate(zip(episodes, kept, strict=True)):
        pressed = np.where(done.phase[k] >= 2, done.firmness[k], 0.0)[:, None]
        sample = {
            "episode": np.full(len(done.t), number), "t": done.t, "phase": done.phase[k], "position": done.position[k],
            "command": done.command[k], "touch": done.touch[k], "force": pressed * episode.pickup.finger_forces(),
            "object": se3.to_pose(done.T_world_object[k]), "palm": se3.to_pose(done.T_world_palm[k]),
            "firmness": done.firmness[k],
        }  # fmt: skip
        for name, value in sample.items():
            rows.setdefault(name, []).append(value)
    return {name: np.concatenate(value) for name, value in rows.items()} | {
        "hold": np.array([e.hold for e in episodes]),
        "start": np.stack([se3.to_pose(e.T_world_object) for e in episodes]),
        "mass_kg": np.array([e.load.mass_kg for e in episodes]),
        "mass_high_kg": np.array([e.load.mass_high_kg for e in episodes]),
        "friction": np.array([e.load.friction for e in episodes]),
    }
