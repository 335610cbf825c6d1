"""Demonstrations as arrays: what the robot saw and did, sample by sample, ready to learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.demonstrate.replay import Replayed, replay
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.hold import Hold
from dexloop.robots.pickup import Load, Pickup
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene

MASSES = (0.3, 3.0)
"""Masses that are believed in new demonstrations, over the one that was found: a policy shall know what to do with
each."""
FRICTIONS = (0.2, 0.9)
BETTER = (1.0, 1.8)
"""True friction over the one that is believed to be the least."""
UNSURE = (0.01, 0.2)
"""How unsure the mass is: standard deviation of its logarithm."""
HEAVIER_SD = 0.05
"""Of the true mass about the believed one, relative."""
AROUND_M = 0.03
"""How far from its place an object is put [m]."""
_BATCH = 16
_TRIES = 20


@dataclass(frozen=True, eq=False)
class Episode:
    """One pickup in one world."""

    hold: int
    """Which of the holds."""
    load: Load
    T_world_object: Float[np.ndarray, "4 4"]
    """At the start."""
    forces: Float[np.ndarray, " f"]
    """That each finger shall press with, thumb last [N]."""


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
        batch = draws[begin : begin + _BATCH]
        nth = np.arange(begin, begin + len(batch))
        given = np.asarray(frictions)[nth % len(frictions)] if frictions else None
        likely = [FRICTIONS] * len(batch) if given is None else [(f / BETTER[1], f / BETTER[0]) for f in given]
        made = [_drawn(robot, scene, holds, T_world_object, load, believed, rng) for believed in likely]
        masses = np.array([e.load.mass_kg for _, e in made]) * np.exp(rng.normal(0.0, HEAVIER_SD, len(made)))
        if given is None:
            given = np.array([e.load.friction for _, e in made]) * rng.uniform(*BETTER, len(made))
        batch = batch.with_values("object.mass", masses).with_hand_friction(given)
        done = replay(
            scene, thing, [p for p, _ in made], np.stack([e.T_world_object for _, e in made]), batch, shake=False
        )
        outcomes += done.outcome
        for k in np.flatnonzero(done.held):
            episodes.append(made[k][1])
            kept.append((done, int(k)))
        progress(min(begin + _BATCH, len(draws)) / len(draws))
    return arrays(episodes, kept), outcomes


def _drawn(
    robot: Embodiment,
    scene: Scene,
    holds: Sequence[Hold],
    T_world_object: np.ndarray,
    load: Load,
    frictions: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[Pickup, Episode]:
    """Draws a pickup that the robot can do, with a friction between these believed."""
    for _ in range(_TRIES):
        factor = float(np.exp(rng.uniform(*np.log(MASSES))))
        believed = replace(
            load, mass_kg=factor * load.mass_kg, friction=float(rng.uniform(*frictions)),
            mass_high_kg=factor * load.mass_kg * float(np.exp(1.96 * rng.uniform(*UNSURE))),
        )  # fmt: skip
        hold = int(rng.integers(len(holds)))
        turn = se3.from_rt(se3.quat_to_matrix(se3.so3_exp(np.array([0, 0, rng.uniform(-np.pi, np.pi)]))), np.zeros(3))
        centre = se3.from_rt(np.eye(3), T_world_object[:3, 3] + [*rng.uniform(-AROUND_M, AROUND_M, 2), 0.0])
        T = centre @ turn @ se3.from_rt(T_world_object[:3, :3], np.zeros(3))
        try:
            pickup = Pickup(robot, scene.model, holds[hold], T, believed)
        except InputError:
            continue  # out of reach there
        return pickup, Episode(hold, believed, T, pickup.finger_forces())
    raise InputError(f"{robot.name} reaches the object in none of {_TRIES} places around where it stood")


def arrays(episodes: Sequence[Episode], kept: Sequence[tuple[Replayed, int]]) -> dict[str, np.ndarray]:
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
            "command": done.command[k], "touch": done.touch[k], "force": pressed * episode.forces,
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
