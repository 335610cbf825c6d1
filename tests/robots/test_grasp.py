from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.grasp import Contacts, closure, contact_columns, frames, grasp_matrix, size_of

HALF = 0.03


def opposite(mu: float = 0.5, radius: float | None = None) -> Contacts:
    """Two fingers on opposite sides of a box, along x."""
    return Contacts(
        np.array([[-HALF, 0, 0], [HALF, 0, 0]]), np.array([[1.0, 0, 0], [-1.0, 0, 0]]), np.full(2, mu),
        radius_m=None if radius is None else np.full(2, radius),
    )  # fmt: skip


def around(n: int, mu: float = 0.6) -> Contacts:
    """Fingers around a ball's equator."""
    angle = 2 * np.pi * np.arange(n) / n
    out = np.stack([np.cos(angle), np.sin(angle), np.zeros(n)], axis=1)
    return Contacts(HALF * out, -out, np.full(n, mu))


def scattered(seed: int, n: int, soft: bool = False) -> Contacts:
    """Fingers anywhere on a ball, pushing roughly inwards."""
    rng = np.random.default_rng(seed)
    out = rng.normal(size=(n, 3))
    out /= np.linalg.norm(out, axis=1)[:, None]
    normals = -out + 0.2 * rng.normal(size=(n, 3))
    normals /= np.linalg.norm(normals, axis=1)[:, None]
    return Contacts(HALF * out, normals, rng.uniform(0.2, 1.0, n), radius_m=rng.uniform(0, 0.01, n) if soft else None)


@given(seed=st.integers(0, 10**6))
def test_frames_are_rotations_with_the_normal_first(seed) -> None:
    normals = np.random.default_rng(seed).normal(size=(4, 3))
    normals /= np.linalg.norm(normals, axis=1)[:, None]
    normals[0] = np.eye(3)[seed % 3]
    F = frames(normals)
    np.testing.assert_allclose(F @ F.transpose(0, 2, 1), np.broadcast_to(np.eye(3), (4, 3, 3)), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(F), 1.0)
    np.testing.assert_array_equal(F[:, :, 0], normals)


@pytest.mark.parametrize("seed", range(5))
def test_the_grasp_matrix_does_the_work_of_its_forces(seed) -> None:
    """Virtual work: a small motion of the object moves its contacts, and f · dx = w · xi, by finite differences."""
    rng = np.random.default_rng(seed)
    contacts, centre = scattered(seed, 3), rng.normal(size=3) * 0.05
    f = rng.normal(size=9)
    w = grasp_matrix(contacts.points, contacts.normals, centre) @ f
    forces = np.einsum("npq,nq->np", contacts.frames, f.reshape(3, 3))
    for k in range(6):
        xi = np.eye(6)[k] * 1e-6
        moved = se3.transform(se3.exp(xi), contacts.points - centre) + centre
        assert np.sum(forces * (moved - contacts.points)) == pytest.approx(w @ xi, rel=1e-4, abs=1e-12)


def test_a_soft_finger_has_a_column_for_its_torque() -> None:
    contacts = opposite(radius=0.004)
    G = contact_columns(contacts, np.zeros(3))
    assert G.shape == (6, 8)
    hard = grasp_matrix(contacts.points, contacts.normals, np.zeros(3))
    np.testing.assert_array_equal(G.reshape(6, 2, 4)[:, :, :3].reshape(6, 6), hard)
    np.testing.assert_allclose(G[:, [3, 7]].T, [[0, 0, 0, 0.004, 0, 0], [0, 0, 0, -0.004, 0, 0]])
    np.testing.assert_array_equal(contact_columns(opposite(), np.zeros(3)), hard)


def test_contacts_move_with_the_object() -> None:
    contacts = scattered(1, 4)
    T = se3.exp(np.array([0.1, -0.2, 0.3, 0.4, 0.5, -0.6]))
    moved = contacts.moved(T)
    np.testing.assert_allclose(moved.points, se3.transform(T, contacts.points))
    np.testing.assert_allclose(moved.normals, contacts.normals @ T[:3, :3].T)
    np.testing.assert_array_equal(moved.mu, contacts.mu)


@pytest.mark.parametrize(
    "change",
    [
        {"normals": [[2.0, 0, 0], [-1, 0, 0]]},
        {"mu": [0.5]},
        {"mu": [0.5, -0.1]},
        {"points": [[0.0, 0, np.nan], [0, 0, 0]]},
        {"fingers": ("thumb",)},
        {"radius_m": [0.01]},
    ],
)
def test_contacts_that_make_no_sense_are_refused(change) -> None:
    good = {"points": np.zeros((2, 3)), "normals": np.eye(3)[:2], "mu": np.ones(2)}
    Contacts(**good)
    with pytest.raises(InputError):
        Contacts(**good | {k: v if k == "fingers" else np.array(v) for k, v in change.items()})


def test_two_soft_fingers_are_worst_at_torque_about_their_line() -> None:
    """A newton of squeeze resists µ · radius about the line: divided by the box's half width, that is the quality."""
    assert closure(opposite(0.5, 0.004)) == pytest.approx(0.5 * 0.004 / HALF, rel=1e-6)
    assert closure(opposite(0.8, 0.002)) == pytest.approx(0.8 * 0.002 / HALF, rel=1e-6)
    # With torques compared over twice the length they count for half.
    assert closure(opposite(0.5, 0.004), size_m=2 * HALF) == pytest.approx(0.25 * 0.004 / HALF, rel=1e-6)


def test_two_hard_fingers_cannot_hold_against_torque_about_their_line() -> None:
    assert closure(opposite(0.5)) == 0.0


def test_fingers_that_push_one_way_are_no_grasp() -> None:
    one_way = Contacts(
        np.array([[0, 0, 0], [0, 0.02, 0], [0.02, 0, 0.0]]), np.tile([0, 0, 1.0], (3, 1)), np.full(3, 0.3)
    )
    # Every wrench has a force of one newton along z: no mixture is nearer to zero than that.
    assert closure(one_way) == pytest.approx(-1.0, abs=1e-3)
    beside = Contacts(np.array([[0, 0, 0], [HALF, 0, 0]]), np.array([[1.0, 0, 0], [0, 0, 1.0]]), np.full(2, 0.2))
    assert closure(beside) < -0.1


def pyramid_radius(contacts: Contacts, edges: int, mu_factor: float) -> float:
    """The same quality with pyramids in place of cones, by the hull of all their edges."""
    angle = 2 * np.pi * (np.arange(edges) + 0.37) / edges
    G = contact_columns(contacts, contacts.points.mean(axis=0))
    G[3:] /= size_of(contacts, contacts.points.mean(axis=0))
    columns = G.T.reshape(len(contacts), 3, 6)
    mu = mu_factor * contacts.mu[:, None, None]
    points = columns[:, :1] + mu * (np.cos(angle)[:, None] * columns[:, 1:2] + np.sin(angle)[:, None] * columns[:, 2:])
    return float((-ConvexHull(points.reshape(-1, 6), qhull_options="QJ Pp").equations[:, -1]).min())


@pytest.mark.parametrize("contacts", [around(3), around(4), scattered(3, 4), scattered(5, 4), scattered(11, 5)])
def test_the_quality_lies_between_those_of_pyramids_inside_and_outside_the_cones(contacts) -> None:
    edges = 12
    inside = pyramid_radius(contacts, edges, 1.0)
    outside = pyramid_radius(contacts, edges, 1 / np.cos(np.pi / edges))
    found = closure(contacts)
    assert inside - 1e-6 <= found or inside < 0
    assert found <= outside + 1e-6 or outside < 0
    assert (found > 0) == (inside > 0)


def test_three_fingers_around_a_ball_close_it_and_two_of_them_do_not() -> None:
    three = around(3)
    assert closure(three) > 0.2
    assert closure(Contacts(three.points[:2], three.normals[:2], three.mu[:2])) <= 0.0
    # More friction is better, and without any a ball turns freely.
    assert closure(around(3, 0.8)) > closure(three) > closure(around(3, 0.3))
    assert closure(around(3, 0.0)) == 0.0


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_the_quality_is_the_same_wherever_the_object_is(seed) -> None:
    contacts = scattered(seed, 4, soft=bool(seed % 2))
    T = se3.exp(np.random.default_rng(seed).normal(size=6))
    assert closure(contacts.moved(T)) == pytest.approx(closure(contacts), rel=1e-4, abs=1e-5)


def test_the_quality_changes_steadily_as_a_finger_moves() -> None:
    values = []
    for shift in np.linspace(0, 0.01, 6):
        points = around(3).points.copy()
        points[0] += [0, shift, 0]
        values.append(closure(Contacts(points, around(3).normals, around(3).mu), centre=np.zeros(3), size_m=HALF))
    assert np.abs(np.diff(values)).max() < 0.05
    assert values[0] == max(values)
