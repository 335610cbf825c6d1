"""How long a policy takes to answer."""

from __future__ import annotations

import time

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError
from dexloop.policy.bundle import Brain
from dexloop.policy.observation import Observation


def latency_s(brain: Brain, *, calls: int = 300) -> Float[np.ndarray, " calls"]:
    """Measures how long one observation takes, from numbers to numbers, on one core [s].

    The object's points are encoded before, as they are in use: once a trial, not once a tick.

    Args:
        brain: The policy; it is asked about the mean of what it was trained with.
        calls: How often it is asked, after a few that do not count.

    Raises:
        InputError: The policy has no object's points to be asked about.
    """
    import torch

    if not brain.points:
        raise InputError("this policy was saved without points of an object: there is nothing to ask it about")
    mean = {name: np.array([s.mean]) for name, s in brain.contract.normalisation.observation.items()}
    observation = Observation(**mean, points=next(iter(brain.points.values())))
    threads, taken = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for _ in range(10 + calls):
            start = time.perf_counter()
            brain.act(observation)
            taken.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return np.array(taken[10:])
