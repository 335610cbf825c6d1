"""A policy that is known, and examples of what it does: what a training can be held against."""

from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.policy.contract import Contract, Terms
from dexloop.policy.fields import PHASES, POINTS
from dexloop.policy.normalisation import Normalisation, Scaling
from dexloop.policy.observation import Observation, Past, encode_belief, encode_pose, observe

FORCE_N_PER_KG = np.array([12.0, 9.0, 7.0, 15.0])
"""What each finger of the planted policy pushes with, by believed mass."""


def poses(rng: np.random.Generator, n: int, *, turn: float = 1.0) -> np.ndarray:
    """Poses within some centimetres, turned by about `turn` [rad]."""
    return se3.exp(np.concatenate([0.05 * rng.normal(size=(n, 3)), turn * rng.normal(size=(n, 3))], axis=1))


def ball(radius_m: float) -> np.ndarray:
    """Points on a ball."""
    k = np.arange(POINTS) + 0.5
    z, angle = 1 - 2 * k / POINTS, np.pi * (1 + 5**0.5) * k
    r = np.sqrt(1 - z**2)
    return radius_m * np.column_stack([r * np.cos(angle), r * np.sin(angle), z])


def sealed(terms: Terms, seed: int = 0) -> Contract:
    """A contract with some normalisation."""
    rng = np.random.default_rng(seed)

    def some(size: int) -> Scaling:
        return Scaling(tuple(rng.normal(size=size).tolist()), tuple(rng.uniform(0.5, 2.0, size).tolist()))

    return terms.sealed(
        Normalisation({f.name: some(f.size) for f in terms.observation}, {f.name: some(f.size) for f in terms.action})
    )


def looked_at(terms: Terms, n: int, *, seed: int = 0, radius_m: float = 0.04) -> Observation:
    """What could be seen at n moments: a palm above the object, hand joints in their limits, in any phase."""
    rng = np.random.default_rng(seed)
    low, high = np.array(terms.position_limits).T
    q = rng.uniform(low, high, (n, len(low)))
    start = poses(rng, n)
    above = poses(rng, n, turn=0.3)
    phase = rng.integers(0, len(PHASES), n)
    there = se3.transform(se3.inverse(above), np.zeros(3))
    return observe(
        terms,
        Past(start, phase, np.zeros(n), there + 0.002 * rng.normal(size=(n, 3))),
        t_s=rng.uniform(0.0, 1.0, n),
        q=q,
        command=q + 0.05 * (high - low) * rng.normal(size=q.shape),
        touch=rng.uniform(0.0, 5.0, (n, len(terms.fingertips))),
        T_world_palm=start @ above,
        T_world_object=start @ poses(rng, n, turn=0.1),
        belief=encode_belief(
            rng.uniform(0.05, 1.0, n), rng.uniform(0.05, 0.4, n), rng.uniform(0.3, 1.0, n), rng.uniform(0.02, 0.2, n)
        ),
        points=ball(radius_m),
    )


def answer(terms: Terms, seen: Observation, radius_m: float) -> dict[str, np.ndarray]:
    """What the planted policy does: smooth in what it sees, but for the phase.

    The palm follows a curve in time, another one in each phase; the hand closes with time and with the object's size,
    and from the squeeze on with touch, with slip and with itself instead of time; fingers push in proportion to the
    believed mass; the next phase comes after half a second.
    """
    low, high = np.array(terms.hand_limits).T
    clock, nth = seen.clock[:, 0], seen.phase.argmax(axis=1)
    curve = np.stack([0.02 * nth, 0.05 * np.sin(2.0 * clock), 0.04 * clock * (nth - 2)], axis=1)
    path = se3.exp(np.concatenate([curve, 0.2 * np.stack([clock, np.sin(nth + clock), 0.0 * clock], axis=1)], axis=1))
    share = (seen.q - low) / (high - low)
    felt = 0.4 * np.sin(1.5 * share) + 0.02 * seen.touch.sum(axis=1, keepdims=True) - 0.5 * seen.slip[:, 2:]
    feels = (nth >= PHASES.index("squeeze"))[:, None]
    close = 0.3 + np.where(feels, felt, 0.3 * np.sin(seen.clock)) - 5.0 * (radius_m - 0.04)
    force = np.exp(seen.belief[:, :1]) * FORCE_N_PER_KG[: len(terms.fingertips)]
    return {
        "palm": encode_pose(path),
        "hand": low + (high - low) * close,
        "force": force * feels,
        "phase": np.minimum(nth + (clock > 0.5), len(PHASES) - 1),
    }
