"""Objects that stand elsewhere, weigh otherwise and are more or less slippery than the one that was shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.hold import Hold
from dexloop.robots.pickup import Load, Pickup
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene

MASSES = (0.3, 3.0)
"""Masses that are believed, over the one that was found: a policy shall know what to do with each."""
FRICTIONS = (0.2, 0.9)
BETTER = (1.0, 1.8)
"""True friction over the one that is believed to be the least."""
UNSURE = (0.01, 0.2)
"""How unsure the mass is: standard deviation of its logarithm."""
HEAVIER_SD = 0.05
"""Of the true mass about the believed one, relative."""
AROUND_M = 0.03
"""How far from its place an object is put [m]."""
_TRIES = 20


@dataclass(frozen=True, eq=False)
class Varied:
    """One object to be taken up, and how."""

    hold: int
    """Which of the holds."""
    load: Load
    """What is believed of it."""
    T_world_object: Float[np.ndarray, "4 4"]
    """At the start."""
    pickup: Pickup


def varied(
    robot: Embodiment,
    scene: Scene,
    holds: Sequence[Hold],
    T_world_object: Float[np.ndarray, "4 4"],
    load: Load,
    draws: Draws,
    rng: np.random.Generator,
    *,
    frictions: Sequence[float] = (),
    first: int = 0,
) -> tuple[list[Varied], Draws]:
    """Puts an object elsewhere in each world, of another mass and friction, and plans how to take it up there.

    Args:
        robot: That takes them.
        scene: Robot, object and table.
        holds: To choose from.
        T_world_object: Where the object stood.
        load: What is believed of it.
        draws: Worlds; their masses and frictions are replaced.
        rng: Draws the rest.
        frictions: Of the hand in the worlds, in turn; if there are none, any.
        first: Number of the first world, for whose turn it is.

    Raises:
        InputError: The robot reaches the object nowhere.
    """
    turn = np.arange(first, first + len(draws))
    given = np.asarray(frictions)[turn % len(frictions)] if frictions else None
    likely = [FRICTIONS] * len(draws) if given is None else [(f / BETTER[1], f / BETTER[0]) for f in given]
    made = [_drawn(robot, scene, holds, T_world_object, load, believed, rng) for believed in likely]
    masses = np.array([v.load.mass_kg for v in made]) * np.exp(rng.normal(0.0, HEAVIER_SD, len(made)))
    if given is None:
        given = np.array([v.load.friction for v in made]) * rng.uniform(*BETTER, len(made))
    return made, draws.with_values("object.mass", masses).with_hand_friction(given)


def _drawn(
    robot: Embodiment,
    scene: Scene,
    holds: Sequence[Hold],
    T_world_object: np.ndarray,
    load: Load,
    frictions: tuple[float, float],
    rng: np.random.Generator,
) -> Varied:
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
        return Varied(hold, believed, T, pickup)
    raise InputError(f"{robot.name} reaches the object in none of {_TRIES} places around where it stood")
