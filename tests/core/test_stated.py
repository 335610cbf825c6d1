"""A belief that is stated reads as one that was identified does."""

import numpy as np
import pytest

from dexloop.core.artifact import load_arrays
from dexloop.core.artifacts import Belief
from dexloop.core.errors import InputError
from dexloop.core.stated import state_belief


def test_what_is_stated_is_what_is_read(tmp_path):
    mass, friction = np.linspace(0.1, 0.3, 201), np.resize([0.4, 0.6, 0.8], 201)
    state_belief(tmp_path / "b", {"object.mass": mass, "fingertip.friction": friction}, why="weighed on scales")
    belief = Belief.open(tmp_path / "b")
    assert belief.header.meta["labels"] == ["object.mass", "fingertip.friction"]
    row = belief.header.meta["parameters"]["object.mass"]
    assert row["mean"] == pytest.approx(0.2)
    assert row["interval"] == pytest.approx([0.105, 0.295])
    arrays = load_arrays(belief.path / "posterior.npz")
    np.testing.assert_array_equal(arrays["samples"], np.column_stack([mass, friction]))
    np.testing.assert_allclose(arrays["mean"], [0.2, 0.6])
    assert arrays["covariance"].shape == (2, 2)
    assert str(belief.status).startswith("warn: weighed on scales")


def test_one_parameter_is_enough(tmp_path):
    belief = state_belief(tmp_path / "b", {"object.mass": [0.1, 0.2]})
    assert load_arrays(belief.path / "posterior.npz")["covariance"].shape == (1, 1)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "one parameter at least"),
        ({"object.mass": [0.1]}, "two at least"),
        ({"object.mass": [0.1, 0.2], "table.friction": [0.5, 0.6, 0.7]}, "2 of object.mass, 3 of table.friction"),
        ({"object.mass": [0.1, np.nan]}, "not a finite number"),
    ],
)
def test_what_is_no_belief_is_refused(tmp_path, values, says):
    with pytest.raises(InputError, match=says):
        state_belief(tmp_path / "b", values)
    assert not (tmp_path / "b").exists()
