"""The terms that tests of policies share."""

from __future__ import annotations

import pytest

from dexloop.policy.contract import Contract, Terms
from dexloop.robots import Embodiment, load
from tests.policy.planted import sealed


@pytest.fixture(scope="session")
def robot() -> Embodiment:
    return load("dex16@wrist")


@pytest.fixture(scope="session")
def terms(robot: Embodiment) -> Terms:
    return Terms.of(robot, rate_hz=50.0)


@pytest.fixture(scope="session")
def contract(terms: Terms) -> Contract:
    return sealed(terms)
