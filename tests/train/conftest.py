"""Examples of a planted policy that tests of training share."""

from __future__ import annotations

import numpy as np
import pytest

from dexloop.policy.contract import Terms
from dexloop.robots import load
from dexloop.train.examples import Examples
from tests.policy.planted import answer, ball, looked_at

RADII_M = (0.03, 0.05)


@pytest.fixture(scope="session")
def terms() -> Terms:
    return Terms.of(load("gripper@wrist"), rate_hz=50.0)


def planted(terms: Terms, episodes: int, *, each: int = 50) -> Examples:
    """Episodes of the planted policy, with two objects in turn."""
    seen, done = [], []
    for k in range(episodes):
        radius = RADII_M[k % 2]
        seen.append(looked_at(terms, each, seed=k, radius_m=radius))
        done.append(answer(terms, seen[-1], radius))
    return Examples(
        {name: np.concatenate([x.fields()[name] for x in seen]) for name in seen[0].fields()},
        **{name: np.concatenate([x[name] for x in done]) for name in ("palm", "hand", "force", "phase")},
        episode=np.repeat(np.arange(100, 100 + episodes), each),
        points=np.stack([ball(r) for r in RADII_M]),
        shape=np.repeat(np.arange(episodes) % 2, each),
    )


@pytest.fixture(scope="session")
def few(terms: Terms) -> Examples:
    return planted(terms, 6)
