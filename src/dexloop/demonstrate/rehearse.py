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
    holds: Sequence[Hold],
    T_world_object: Float[np.ndarray, "4 4"],
    load: Load,
    draws: Draws,
    *,
    cfg: PickupCfg = PickupCfg(),  # noqa: B008 - frozen
    feedback: bool = True,
    progress: Callable[[float], None] = lambda _done: None,
) -> list[Rehearsed]:
    """Takes an object up with each of some holds, in all worlds, and returns how each did.

    Args:
        robot: That takes it.
        scene: Robot, object and table.
        thing: The object's name.
        holds: How.
        T_world_object: Where it stands.
        load: What is believed of it.
        draws: The worlds.
        cfg: How it is taken up.
        feedback: Whether what is felt too little of, and what slips, is squeezed harder.
        progress: Told which share is done.
    """
    n = len(draws)
    out = [Rehearsed((OUT_OF_REACH,) * n, (np.inf,) * n, None) for _ in holds]
    pickups: dict[int, Pickup] = {}
    for k, hold in enumerate(holds):
        try:
            pickups[k] = Pickup(robot, scene.model, hold, T_world_object, load, cfg)
        except InputError:
            continue
    if not pickups:
        return out
    # All at once: many worlds take hardly longer than a few.
    each = [pickup for pickup in pickups.values() for _ in range(n)]
    poses = np.repeat(np.asarray(T_world_object)[None], len(each), axis=0)
    worlds = Draws.together(*[draws] * len(pickups))
    done = replay(scene, thing, each, poses, worlds, feedback=feedback, progress=progress)
    for turn, (k, pickup) in enumerate(pickups.items()):
        own = slice(turn * n, (turn + 1) * n)
        out[k] = Rehearsed(done.outcome[own], tuple(done.slip_m[own].tolist()), pickup)
    return out


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
    first, then = look * len(holds), (len(draws) - look) * min(most, len(holds))

    def told(before: int, own: int) -> Callable[[float], None]:
        return lambda done: progress((before + own * done) / (first + then))

    looked = rehearse(robot, scene, thing, holds, T_world_object, load, draws[:look], progress=told(0, first))
    tried = sorted(zip(holds, looked, strict=True), key=lambda each: each[1].rank)[:most]
    if then:
        best = [hold for hold, _ in tried]
        more = rehearse(robot, scene, thing, best, T_world_object, load, draws[look:], progress=told(first, then))
        tried = [(hold, seen.and_then(m)) for (hold, seen), m in zip(tried, more, strict=True)]
    progress(1.0)
    return sorted(tried, key=lambda each: each[1].rank)
