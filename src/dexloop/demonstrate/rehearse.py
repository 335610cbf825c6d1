"""Which way to hold an object is best: each is tried in simulated worlds, and the one that holds and slips least wins.

Statics say how little friction a hold needs, not what happens while the hand closes: fingers meet around what is thin,
push a can aside, roll a jar out. Worlds drawn from what is believed show that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError
from dexloop.demonstrate.replay import replay
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.hold import Hold
from dexloop.robots.outcome import HELD
from dexloop.robots.pickup import Load, Pickup, PickupCfg
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene

OUT_OF_REACH = "out of reach"


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """How one hold did in some worlds."""

    outcome: tuple[str, ...]
    """How each world ended."""
    slips_m: tuple[float, ...]
    """Farthest that the object moved in the hand in each [m]."""
    pickup: Pickup | None
    """The motion; None where the arm does not get there."""

    @property
    def outcomes(self) -> dict[str, int]:
        """How often it ended how."""
        return dict(Counter(self.outcome))

    @property
    def share(self) -> float:
        """Of the worlds in which it held."""
        return self.outcome.count(HELD) / len(self.outcome)

    @property
    def rank(self) -> tuple[float, float]:
        """Less is better: what holds more often comes first, and of those that hold alike what slips less."""
        return -self.share, float(np.median(self.slips_m))

    def and_then(self, more: Rehearsed) -> Rehearsed:
        """Returns the same hold's outcomes with those of other worlds after them."""
        return replace(self, outcome=self.outcome + more.outcome, slips_m=self.slips_m + more.slips_m)


def rehearse(
    robot: Embodiment,
    scene: Scene,
    thing: str,
    hold: Hold,
    T_world_object: Float[np.ndarray, "4 4"],
    load: Load,
    draws: Draws,
    *,
    cfg: PickupCfg = PickupCfg(),  # noqa: B008 - frozen
    feedback: bool = True,
) -> Rehearsed:
    """Takes an object up with one hold, in all worlds.

    Args:
        robot: That takes it.
        scene: Robot, object and table.
        thing: The object's name.
        hold: How.
        T_world_object: Where it stands.
        load: What is believed of it.
        draws: The worlds.
        cfg: How it is taken up.
        feedback: Whether what is felt too little of, and what slips, is squeezed harder.
    """
    try:
        pickup = Pickup(robot, scene.model, hold, T_world_object, load, cfg)
    except InputError:
        return Rehearsed((OUT_OF_REACH,) * len(draws), (np.inf,) * len(draws), None)
    poses = np.repeat(np.asarray(T_world_object)[None], len(draws), axis=0)
    done = replay(scene, thing, [pickup] * len(draws), poses, draws, feedback=feedback)
    return Rehearsed(done.outcome, tuple(done.slip_m.tolist()), pickup)


def best_of(
    robot: Embodiment,
    scene: Scene,
    thing: str,
    holds: Sequence[Hold],
    T_world_object: Float[np.ndarray, "4 4"],
    load: Load,
    draws: Draws,
    *,
    look: int,
    most: int,
    progress: Callable[[float], None] = lambda _done: None,
) -> list[tuple[Hold, Rehearsed]]:
    """Rehearses all holds in a few worlds, and the best of them in all; those come back, the best first.

    Args:
        robot: That takes the object.
        scene: Robot, object and table.
        thing: The object's name.
        holds: To choose from.
        T_world_object: Where the object stands.
        load: What is believed of it.
        draws: The worlds.
        look: In how many of them all are rehearsed.
        most: How many are rehearsed in all.
        progress: Told which share is done.
    """
    look = min(look, len(draws))
    tried = []
    work = look * len(holds) + (len(draws) - look) * min(most, len(holds))
    for k, hold in enumerate(holds):
        progress(look * k / work)
        tried.append((hold, rehearse(robot, scene, thing, hold, T_world_object, load, draws[:look])))
    tried = sorted(tried, key=lambda each: each[1].rank)[:most]
    for k, (hold, seen) in enumerate(tried if look < len(draws) else []):
        progress((look * len(holds) + (len(draws) - look) * k) / work)
        more = rehearse(robot, scene, thing, hold, T_world_object, load, draws[look:])
        tried[k] = hold, seen.and_then(more)
    progress(1.0)
    return sorted(tried, key=lambda each: each[1].rank)
