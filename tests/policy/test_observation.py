from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.policy.contract import Terms
from dexloop.policy.fields import LONG_S, PHASES
from dexloop.policy.observation import (
    Observation,
    Past,
    decode_pose,
    encode_belief,
    encode_pose,
    observe,
    rows,
)
from dexloop.robots import Embodiment
from tests.policy.planted import ball, looked_at, poses

N = 40
SQUEEZE = PHASES.index("lift")


@pytest.fixture(scope="module")
def given_all(terms: Terms) -> dict:
    """Arguments of `observe` but for terms and past, and a past."""
    rng = np.random.default_rng(1)
    q = rng.normal(size=(N, len(terms.joints)))
    return {
        "past": Past(poses(rng, N), rng.integers(0, 5, N), rng.uniform(0, 1, N), rng.normal(size=(N, 3))),
        "t_s": rng.uniform(1, 2, N),
        "q": q,
        "command": q + rng.normal(size=q.shape),
        "touch": rng.uniform(0, 3, (N, 4)),
        "T_world_palm": poses(rng, N),
        "T_world_object": poses(rng, N),
        "belief": encode_belief(rng.uniform(0.1, 1, N), 0.2, 0.6, 0.05),
        "points": ball(0.03),
    }


def one_by_one(robot: Embodiment, x: dict, k: int) -> np.ndarray:
    """The same observation, written out for a single moment."""
    past: Past = x["past"]
    T_start, T_palm, T_object = past.T_world_start[k], x["T_world_palm"][k], x["T_world_object"][k]
    palm = np.linalg.inv(T_start) @ T_palm
    thing = np.linalg.inv(T_palm) @ T_object
    slip = thing[:3, 3] - past.p_palm_lifted[k] if past.phase[k] >= SQUEEZE else np.zeros(3)
    q = [x["q"][k, robot.joints.index(j)] for j in robot.hand_joints]
    push = [(x["command"] - x["q"])[k, robot.joints.index(j)] for j in robot.hand_joints]
    phase = [1.0 if name == PHASES[past.phase[k]] else 0.0 for name in PHASES]
    return np.array(
        [
            *palm[:3, 3], *palm[:3, 0], *palm[:3, 1], *thing[:3, 3], *thing[:3, 0], *thing[:3, 1], *slip, *q, *push,
            *x["touch"][k], *x["belief"][k], *phase, x["t_s"][k] - past.since_s[k],
        ]
    )  # fmt: skip


def test_all_at_once_is_one_by_one(terms: Terms, robot: Embodiment, given_all: dict) -> None:
    seen = observe(terms, **given_all)
    assert len(seen) == N
    plain = np.array([one_by_one(robot, given_all, k) for k in range(N)])
    np.testing.assert_allclose(rows(terms, seen.fields()), plain, atol=1e-12)
    assert tuple(seen.fields()) == tuple(field.name for field in terms.observation)
    assert (given_all["past"].phase < SQUEEZE).any()
    assert (seen.slip[given_all["past"].phase < SQUEEZE] == 0).all()


def test_a_common_motion_of_the_world_changes_nothing(terms: Terms, given_all: dict) -> None:
    T = se3.exp(np.array([3.0, -2.0, 1.0, 0.4, -1.0, 2.0]))
    past: Past = given_all["past"]
    moved = {
        **given_all,
        "past": replace(past, T_world_start=T @ past.T_world_start),
        "T_world_palm": T @ given_all["T_world_palm"],
        "T_world_object": T @ given_all["T_world_object"],
    }
    before, after = observe(terms, **given_all), observe(terms, **moved)
    np.testing.assert_allclose(rows(terms, after.fields()), rows(terms, before.fields()), atol=1e-12)
    # And a motion of the object alone changes what is seen of it.
    alone = observe(terms, **{**given_all, "T_world_object": T @ given_all["T_world_object"]})
    assert np.abs(alone.object - before.object).max() > 0.1
    np.testing.assert_array_equal(alone.palm, before.palm)


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=6))
def test_poses_come_back(xi: list[float]) -> None:
    T = se3.exp(np.array(xi))
    np.testing.assert_allclose(decode_pose(encode_pose(T)), T, atol=1e-12)


def test_columns_that_are_not_orthonormal_become_the_nearest_by_gram_schmidt() -> None:
    x = np.array([[1.0, 2, 3, 0, 0, 2, 0, 5, 1]])
    np.testing.assert_allclose(decode_pose(x)[0], [[0, 0, -1, 1], [0, 1, 0, 2], [1, 0, 0, 3], [0, 0, 0, 1]], atol=1e-12)


def test_the_past_remembers_when_phases_and_lifts_began(terms: Terms, given_all: dict) -> None:
    T_palm = poses(np.random.default_rng(2), 3)
    T_object = poses(np.random.default_rng(3), 3)
    far = T_object @ se3.exp(np.array([0.01, 0.02, 0.0, 0.0, 0.0, 0.0]))
    past = Past.start(T_object, 10.0)

    def seen(past: Past, T: np.ndarray, t_s: float) -> Observation:
        rest = {name: given_all[name][:3] for name in ("q", "command", "touch", "belief")}
        return observe(
            terms, past, t_s=t_s, T_world_palm=T_palm, T_world_object=T, points=ball(0.03), **rest
        )  # fmt: skip

    np.testing.assert_array_equal(seen(past, far, 10.5).slip, 0.0)
    np.testing.assert_allclose(seen(past, far, 10.5).clock, 0.5)
    past = past.then(np.array([0, 3, 3]), 11.0, T_palm, T_object)
    past = past.then(np.array([0, 3, 4]), 12.0, T_palm, far)
    now = seen(past, far, 13.0)
    np.testing.assert_allclose(now.clock[:, 0], [LONG_S, LONG_S, 1.0])
    np.testing.assert_array_equal(now.phase.argmax(axis=1), [0, 3, 4])
    np.testing.assert_array_equal(now.slip[0], 0.0)
    # The third went on to hold: its slip still counts from where the lift began, along the palm's axes.
    moved = np.einsum("nji,nj->ni", T_palm[:, :3, :3], far[:, :3, 3] - T_object[:, :3, 3])
    np.testing.assert_allclose(now.slip[1:], moved[1:], atol=1e-12)
    assert np.linalg.norm(now.slip[1:], axis=1) == pytest.approx(np.hypot(0.01, 0.02))
    again = past.then(np.array([0, 1, 4]), 14.0, T_palm, far)
    np.testing.assert_array_equal(seen(again, T_object, 14.0).slip[1], 0.0)
    np.testing.assert_array_equal(np.isnan(again.p_palm_lifted).all(axis=1), [True, True, False])
    anew = again.then(np.array([0, 3, 4]), 15.0, T_palm, far)
    np.testing.assert_allclose(seen(anew, far, 15.0).slip[1], 0.0, atol=1e-15)


def test_a_lift_without_a_beginning_is_noticed(terms: Terms, given_all: dict) -> None:
    past = replace(given_all["past"], p_palm_lifted=np.full((N, 3), np.nan))
    with pytest.raises(InputError, match="'slip' of the observation holds nan"):
        rows(terms, observe(terms, **{**given_all, "past": past}).fields())


def test_belief_is_told_with_its_uncertainty() -> None:
    np.testing.assert_allclose(encode_belief(0.5, 0.1, 0.7, 0.05), [[np.log(0.5), 0.1, 0.7, 0.05]])
    np.testing.assert_allclose(encode_belief(np.array([1.0, np.e]), 0.1, 0.7, 0.05)[:, 0], [0.0, 1.0])
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(InputError, match="above zero"):
            encode_belief(wrong, 0.1, 0.7, 0.05)


def test_wrong_shapes_and_numbers_are_named(terms: Terms, given_all: dict) -> None:
    with pytest.raises(InputError, match=r"touch is \[40, 3\]; dex16@wrist at 40 moments has \[40, 4\]"):
        observe(terms, **{**given_all, "touch": given_all["touch"][:, :3]})
    with pytest.raises(InputError, match=r"q is \[40, 16\]"):
        observe(terms, **{**given_all, "q": given_all["q"][:, :16]})
    seen = looked_at(terms, 5).fields()
    with pytest.raises(InputError, match="no 'touch': normal force"):
        rows(terms, {name: value for name, value in seen.items() if name != "touch"})
    with pytest.raises(InputError, match=r"'slip' of the observation is \[5, 2\]"):
        rows(terms, {**seen, "slip": seen["slip"][:, :2]})
    with pytest.raises(InputError, match=r"'clock' of the observation is \[4, 1\]"):
        rows(terms, {**seen, "clock": seen["clock"][:4]})
    bad = seen["q"].copy()
    bad[3, 7] = np.inf
    with pytest.raises(InputError, match=r"'q' of the observation holds inf at \[3, 7\]"):
        rows(terms, {**seen, "q": bad})
