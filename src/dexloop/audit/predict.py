"""What a trial should have looked like: the commands that were sent, sent again to many simulated worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.policy.rehearsal import Stage
from dexloop.robots.handling import Felt, Handling
from dexloop.robots.traces import RATE_HZ, Traces
from dexloop.sim.believed import Draws

CHANNELS = {"pose": "m", "slip": "m", "force": "N", "effort": "N·m or N", "joints": "rad or m"}
"""What is compared, and its unit: where the object is, how far it moved in the hand, what each fingertip feels, what
motors do, and where the joints are."""


@dataclass(frozen=True, eq=False)
class Channels:
    """Signals of n worlds, or of a real trial (n = 1), on one clock."""

    t: Float[np.ndarray, " m"]
    """[s]"""
    values: dict[str, Float[np.ndarray, "n m c"]]
    """By channel, see `CHANNELS`."""


def measured(found: Traces, lift_s: float) -> Channels:
    """Returns what was measured in a trial.

    Args:
        found: Its traces.
        lift_s: When the lift began [s]; NaN if it never did.
    """
    return _channels(
        found.t, found.position[None], found.effort[None], found.touch[None], found.T_world_object[None],
        found.T_world_palm[None], lift_s,
    )  # fmt: skip


def predicted(
    found: Traces,
    stage: Stage,
    T_world_object: Float[np.ndarray, "n 4 4"],
    draws: Draws,
    lift_s: float,
    *,
    progress: Callable[[float], None] = lambda _done: None,
) -> tuple[Channels, frozenset[int]]:
    """Sends a trial's commands to worlds, from where the trial began.

    Args:
        found: The trial's traces.
        stage: Robot and object.
        T_world_object: Where the object stands at first in each world.
        draws: How each world is.
        lift_s: When the lift began [s]; NaN if it never did.
        progress: Told which share is done.

    Returns:
        Their signals, and which worlds became unstable.
    """
    rows, lost = predicted_felt(found, stage, T_world_object, draws, progress=progress)
    position, effort, touch, thing, palm = (
        np.stack([getattr(row, name) for row in rows], axis=1)
        for name in ("position", "effort", "touch", "T_world_object", "T_world_palm")
    )
    return _channels(found.t, position, effort, touch, thing, palm, lift_s), lost


def predicted_felt(
    found: Traces,
    stage: Stage,
    T_world_object: Float[np.ndarray, "n 4 4"],
    draws: Draws,
    *,
    progress: Callable[[float], None] = lambda _done: None,
) -> tuple[list[Felt], frozenset[int]]:
    """Does the same, and returns what sensors would say, moment by moment."""
    n = len(draws)
    q = np.repeat(found.position[:1], n, axis=0)
    bench = Handling(stage.scene, stage.robot, stage.thing, draws, q=q, T_world_object=T_world_object, rate_hz=RATE_HZ)
    before, rows = found.command[0], []
    share = (bench.fine / bench.dt)[:, None]
    for k, target in enumerate(found.command):
        rows.append(bench.step(np.repeat((before + share * (target - before))[None], n, axis=0)))
        before = target
        progress((k + 1) / len(found.command))
    return rows, frozenset(bench.diverged)


def _channels(
    t: np.ndarray,
    position: np.ndarray,
    effort: np.ndarray,
    touch: np.ndarray,
    thing: np.ndarray,
    palm: np.ndarray,
    lift_s: float,
) -> Channels:
    place = np.einsum("...ji,...j->...i", palm[..., :3, :3], thing[..., :3, 3] - palm[..., :3, 3])
    lift = int(np.searchsorted(t, lift_s)) if np.isfinite(lift_s) else len(t)
    slip = np.zeros((*place.shape[:2], 1))
    if lift < len(t):
        slip[:, lift:, 0] = np.linalg.norm(
            place[:, lift:] - place[:, max(lift - 3, 0) : lift + 1].mean(1)[:, None], axis=2
        )
    return Channels(t, {"pose": thing[..., :3, 3], "slip": slip, "force": touch, "effort": effort, "joints": position})


def moved(T_world_object: Float[np.ndarray, "4 4"], shift: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4 4"]:
    """Returns a pose that stands elsewhere on the table: shifted along x and y [m], turned about the vertical [rad]."""
    turn = se3.quat_to_matrix(se3.so3_exp(np.array([0.0, 0.0, float(shift[2])])))
    T = np.array(T_world_object)
    T[:3, :3] = turn @ T[:3, :3]
    T[:2, 3] += shift[:2]
    return T
