from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.policy.contract import Terms
from dexloop.train.examples import Examples, normalisation_of


def test_good_ones_pass(few: Examples, terms: Terms) -> None:
    few.require(terms)
    assert len(few) == 300


def test_bad_ones_are_told_why(few: Examples, terms: Terms) -> None:
    nan = few.hand.copy()
    nan[5, 1] = np.nan
    for change, told in (
        ({"hand": nan}, r"'hand' of the examples holds nan at \[5, 1\]"),
        ({"hand": few.hand[:, :1]}, r"'hand' of the examples is \[300, 1\], and should be \[300, 2\]"),
        ({"episode": few.episode[:-1]}, "'episode' of the examples"),
        ({"force": few.force - 1e3}, "below zero"),
        ({"phase": few.phase + 5}, "'phase' of the examples must be from 0 to 4"),
        ({"shape": few.shape - 1}, "'shape' of the examples must be from 0 to 1"),
        ({"episode": np.zeros(300, dtype=int)}, "two episodes"),
        ({"points": few.points[:, :9]}, "give 128"),
        ({"observation": {**few.observation, "touch": few.observation["touch"][:, :1]}}, "'touch' of the observation"),
    ):
        with pytest.raises(InputError, match=told):
            replace(few, **change).require(terms)


def test_mean_and_spread_are_those_of_the_examples_that_are_used(few: Examples, terms: Terms) -> None:
    use = np.arange(100)
    found = normalisation_of(few, terms, use)
    np.testing.assert_allclose(found.observation["touch"].mean, few.observation["touch"][:100].mean(axis=0))
    np.testing.assert_allclose(found.action["hand"].scale, few.hand[:100].std(axis=0))
    terms.sealed(found)


def test_what_does_not_vary_gets_a_scale_that_means_something(few: Examples, terms: Terms) -> None:
    still = {**few.observation, "slip": np.zeros((300, 3)), "belief": np.ones((300, 4))}
    found = normalisation_of(replace(few, observation=still, force=np.zeros((300, 2))), terms, np.arange(300))
    assert found.observation["slip"].scale == (1e-3,) * 3
    assert min(found.observation["belief"].scale) > 0.01
    assert min(found.action["force"].scale) >= 0.1
    terms.sealed(found)
