from __future__ import annotations

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.hold import Hold, from_arrays, to_arrays


def hold(count: int, seed: int) -> Hold:
    rng = np.random.default_rng(seed)
    normals = rng.normal(size=(count, 3))
    return Hold(
        "pinch", ("a", "b"), se3.exp(rng.normal(size=6)), rng.normal(size=2), rng.normal(size=2),
        rng.normal(size=(count, 3)), normals / np.linalg.norm(normals, axis=1, keepdims=True),
        tuple(f"link{k}" for k in range(count)), 0.25,
    )  # fmt: skip


def test_arrays_give_back_what_they_were_made_of():
    holds = [hold(3, 0), hold(5, 1), hold(2, 2)]
    for one, other in zip(holds, from_arrays(to_arrays(holds)), strict=True):
        assert (one.kind, one.joints, one.links, one.friction_needed) == (
            other.kind, other.joints, other.links, other.friction_needed,
        )  # fmt: skip
        for name in ("T_object_palm", "q_open", "q_touch", "points", "normals"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_contacts_move_with_the_object():
    one, T = hold(4, 3), se3.exp(np.array([0.1, -0.2, 0.3, 0.4, 0.5, -0.6]))
    there = one.contacts(T, 0.4)
    np.testing.assert_allclose(there.points, se3.transform(T, one.points))
    np.testing.assert_allclose(there.normals, one.normals @ T[:3, :3].T)
    assert (there.mu == 0.4).all()
    assert there.fingers == one.links


def test_nothing_cannot_be_stored():
    with pytest.raises(InputError, match="no hold"):
        to_arrays([])
