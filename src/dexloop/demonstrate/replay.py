"""Taking an object up in many simulated worlds at once: what holds there, and what was seen meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.handling import Felt, Handling
from dexloop.robots.outcome import DIVERGED, HELD, SEEN_S, outcome
from dexloop.robots.pickup import Pickup
from dexloop.robots.shake import Shake, shaking
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene

RATE_HZ = 50.0
"""How often slip is looked at, and signals are noted [1/s]."""
SHAKE = Shake(hold_s=1.0, shake_s=1.0)
"""What a hold has to bear before it is kept."""


@dataclass(frozen=True, eq=False)
class Replayed:
    """What happened in n worlds, at `RATE_HZ`."""

    outcome: tuple[str, ...]
    """"held", or why it was not."""
    slip_m: Float[np.ndarray, " n"]
    """Farthest that the object moved in the palm's frame after the squeeze [m]."""
    t: Float[np.ndarray, " m"]
    """[s]"""
    phase: Int[np.ndarray, "n m"]
    position: Float[np.ndarray, "n m j"]
    """Of all joints [rad or m]."""
    command: Float[np.ndarray, "n m j"]
    touch: Float[np.ndarray, "n m f"]
    """[N]"""
    T_world_object: Float[np.ndarray, "n m 4 4"]
    T_world_palm: Float[np.ndarray, "n m 4 4"]
    firmness: Float[np.ndarray, "n m"]

    @property
    def held(self) -> Bool[np.ndarray, " n"]:
        """Whether each world's object was held to the end."""
        return np.array([o == HELD for o in self.outcome])


def replay(
    scene: Scene,
    thing: str,
    pickups: Sequence[Pickup],
    T_world_object: Float[np.ndarray, "n 4 4"],
    draws: Draws,
    *,
    feedback: bool = True,
    shake: bool = True,
    progress: Callable[[float], None] = lambda _done: None,
) -> Replayed:
    """Takes an object up and holds it, in one world for each pickup.

    Args:
        scene: Robot, object and table.
        thing: The object's name.
        pickups: One a world, all of one robot and with the same timing.
        T_world_object: Where the object stands in each.
        draws: Parameters of each.
        feedback: Whether what is felt too little of, and what slips, is squeezed harder.
        shake: Whether it is shaken in the end, or held still for as long.
        progress: Told which share is done.

    Raises:
        InputError: Numbers of worlds that do not agree, or pickups that take different times.
    """
    n = len(pickups)
    if len(T_world_object) != n or len(draws) != n:
        raise InputError(f"{n} pickups need as many poses and draws, not {len(T_world_object)} and {len(draws)}")
    starts = pickups[0].starts
    if any(not np.array_equal(p.starts, starts) for p in pickups):
        raise InputError("pickups that are replayed together need the same timing")
    robot = pickups[0].embodiment
    q = np.stack([p.before for p in pickups])
    bench = Handling(scene, robot, thing, draws, q=q, T_world_object=T_world_object, rate_hz=RATE_HZ)
    aside = np.stack([shaking(robot, bench.kinematics, p.above) for p in pickups]) * shake
    ticks = round((starts[-1] + SHAKE.duration_s) / bench.dt)
    after, few = round(starts[3] / bench.dt), max(round(SEEN_S / bench.dt), 1)
    firm = np.ones(n)
    felt: list[Felt] = []
    firms, commands, in_palm = [], [], []
    for k in range(ticks):
        t = k * bench.dt + bench.fine
        targets = np.stack([p.command(t, f) for p, f in zip(pickups, firm, strict=True)])
        targets += np.einsum("njx,sx->nsj", aside, SHAKE.offset(t - starts[-1]))
        felt.append(bench.step(targets))
        in_palm.append(_in_palm(felt[-1]))
        firms.append(firm)
        commands.append(targets[:, -1])
        if feedback:
            felt_by = zip(pickups, felt[-1].touch, firm, strict=True)
            firm = np.array([p.pressed(t[-1], touch, f, dt=bench.dt) for p, touch, f in felt_by])
        if feedback and k >= after:
            slip = np.linalg.norm(
                np.mean(in_palm[-few:], axis=0) - np.mean(in_palm[after - few : after], axis=0), axis=1
            )
            firm = np.array([float(p.firmness(s, f)) for p, s, f in zip(pickups, slip, firm, strict=True)])
        progress((k + 1) / ticks)
    position, touch, objects, palms = (
        np.stack([getattr(f, name) for f in felt], axis=1)
        for name in ("position", "touch", "T_world_object", "T_world_palm")
    )
    t = bench.dt * (1.0 + np.arange(ticks))
    ends = [
        outcome(t, palms[i], objects[i], touch[i], lift=after, failure=DIVERGED if i in bench.diverged else "")
        for i in range(n)
    ]
    return Replayed(
        tuple(e.verdict for e in ends), np.array([e.slip_m for e in ends]), t, np.tile(pickups[0].phases(t), (n, 1)),
        position, np.stack(commands, axis=1), touch, objects, palms, np.stack(firms, axis=1),
    )  # fmt: skip


def _in_palm(felt: Felt) -> Float[np.ndarray, "n 3"]:
    return (se3.inverse(felt.T_world_palm) @ felt.T_world_object)[:, :3, 3]
