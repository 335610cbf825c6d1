from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.grasp import Contacts, contact_columns
from dexloop.robots.grip import (
    Motors,
    carrying_wrench,
    hold_forces,
    hold_forces_batch,
    min_forces,
    min_forces_batch,
    required_wrenches,
)

HALF, G = 0.03, 9.81
ORIGIN = np.zeros(3)


def box(mu: float = 0.5, radius: float | None = None) -> Contacts:
    """Two fingers on opposite sides of a box, along x."""
    return Contacts(
        np.array([[-HALF, 0, 0], [HALF, 0, 0]]), np.array([[1.0, 0, 0], [-1.0, 0, 0]]), np.full(2, mu),
        ("index", "thumb"), None if radius is None else np.full(2, radius),
    )  # fmt: skip


def tripod(mu: float = 0.6) -> Contacts:
    """Two fingers across from a thumb."""
    points = np.array([[HALF, 0.015, 0.002], [HALF, -0.015, 0.0], [-HALF, 0.001, -0.003]])
    normals = np.array([[-1.0, -0.1, 0.0], [-1.0, 0.1, 0.1], [1.0, 0.0, 0.05]])
    return Contacts(points, normals / np.linalg.norm(normals, axis=1)[:, None], np.full(3, mu))


@pytest.mark.parametrize(("mass", "mu"), [(0.1, 0.5), (0.3, 0.5), (0.3, 0.25), (2.0, 1.0)])
def test_a_box_between_two_fingers_needs_half_its_weight_over_friction(mass, mu) -> None:
    grip = min_forces(box(mu), carrying_wrench(mass, ORIGIN, ORIGIN), centre=ORIGIN)
    assert grip.feasible
    assert grip.limited_by == ""
    np.testing.assert_allclose(grip.normal, mass * G / (2 * mu), rtol=1e-6)
    np.testing.assert_allclose(grip.forces[:, 2], mass * G / 2, rtol=1e-6)
    np.testing.assert_allclose(grip.residual, 0, atol=1e-8)
    assert grip.margin_n == pytest.approx(0, abs=1e-6)  # the least squeeze is about to slip


def test_a_hand_under_an_object_carries_it_without_a_squeeze() -> None:
    below = Contacts(np.array([[0, 0, -HALF]]), np.array([[0, 0, 1.0]]), np.array([0.4]))
    grip = min_forces(below, carrying_wrench(0.5, ORIGIN, ORIGIN), centre=ORIGIN)
    np.testing.assert_allclose(grip.forces, [[0, 0, 0.5 * G]], atol=1e-6)
    assert grip.margin_n == pytest.approx(0.4 * 0.5 * G, rel=1e-6)


def test_soft_fingers_carry_a_mass_beside_their_line_and_share_friction_with_its_torque() -> None:
    """Gravity and torque about the line: |(m g / 2, m g y / (2 r))| = µ N at each finger."""
    mass, y, radius, mu = 0.2, 0.01, 0.006, 0.5
    wrench = carrying_wrench(mass, np.array([0, y, 0]), ORIGIN)
    assert not min_forces(box(mu), wrench, centre=ORIGIN).feasible
    grip = min_forces(box(mu, radius), wrench, centre=ORIGIN)
    assert grip.feasible
    expected = mass * G / (2 * mu) * np.hypot(1, y / radius)
    np.testing.assert_allclose(grip.normal, expected, rtol=1e-5)
    np.testing.assert_allclose(grip.torsion * box().normals[:, 0], mass * G * y / 2, rtol=1e-5)


def test_wrenches_are_weight_and_accelerations_at_the_centre_of_mass() -> None:
    com, centre = np.array([0.1, 0.0, 0.2]), np.array([0.1, 0.05, 0.2])
    np.testing.assert_allclose(carrying_wrench(0.5, com, centre), [0, 0, 0.5 * G, -0.05 * 0.5 * G, 0, 0])
    fall = carrying_wrench(0.5, com, centre, acceleration=(0, 0, -G))
    np.testing.assert_allclose(fall, 0, atol=1e-12)
    wrenches = required_wrenches(0.5, com, centre, acceleration=3.0, safety=1.5)
    assert wrenches.shape == (7, 6)
    np.testing.assert_allclose(wrenches[0], 1.5 * carrying_wrench(0.5, com, centre))
    steps = wrenches[1:, :3] - wrenches[0, :3]
    np.testing.assert_allclose(steps, 1.5 * 0.5 * 3.0 * np.concatenate([np.eye(3), -np.eye(3)]), atol=1e-12)
    many = required_wrenches(np.array([0.5, 1.0]), np.stack([com, com]), centre)
    assert many.shape == (2, 7, 6)
    np.testing.assert_allclose(many[1], 2 * many[0])
    np.testing.assert_allclose(many[0], required_wrenches(0.5, com, centre))


@pytest.mark.parametrize("acceleration", [0.5, 2.0, 12.0])
def test_holding_against_accelerations_has_a_formula_for_two_fingers(acceleration) -> None:
    """Each finger takes half: up it carries m (g + a) / 2 by friction, along x it loses m a / 2 of its normal force."""
    mass, mu, a = 0.3, 0.5, acceleration
    present = carrying_wrench(mass, ORIGIN, ORIGIN)
    ready = required_wrenches(mass, ORIGIN, ORIGIN, acceleration=a, safety=1.0)
    grip = hold_forces(box(mu), present, ready, centre=ORIGIN)
    up, along = mass * (G + a) / (2 * mu), mass * (G / (2 * mu) + a / 2)
    assert grip.feasible
    np.testing.assert_allclose(grip.normal, max(up, along), rtol=1e-3)
    np.testing.assert_allclose(grip.forces.sum(axis=0), [0, 0, mass * G], atol=1e-6)  # now it only carries
    # The crush limit counts with the disturbance, which adds m a / 2 to one finger.
    most = max(up, along) + mass * a / 2
    assert hold_forces(box(mu), present, ready, centre=ORIGIN, f_max=1.01 * most).feasible
    # Halfway between what carries it now and that, half of the disturbances can be borne: all of it is linear.
    tight = hold_forces(box(mu), present, ready, centre=ORIGIN, f_max=0.5 * (mass * G / (2 * mu) + most))
    assert tight.limited_by == "crush"
    assert tight.held == pytest.approx(0.5, abs=2e-3)
    np.testing.assert_allclose(tight.residual, 0, atol=1e-5)  # what is there now is carried all the same


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_after_any_disturbance_all_contacts_hold(seed) -> None:
    rng = np.random.default_rng(seed)
    contacts = tripod(rng.uniform(0.4, 1.0))
    com = 0.003 * rng.normal(size=3)
    mass = rng.uniform(0.05, 1.0)
    present = carrying_wrench(mass, com, ORIGIN)
    ready = required_wrenches(mass, com, ORIGIN, acceleration=rng.uniform(0, 3), safety=1.2)
    grip = hold_forces(contacts, present, ready, centre=ORIGIN, f_max=300.0)
    if not grip.feasible:
        return
    columns = contact_columns(contacts, ORIGIN)
    now = np.einsum("npq,np->nq", contacts.frames, grip.forces)
    np.testing.assert_allclose(columns @ now.ravel(), present, atol=1e-4 * mass * G)
    for wrench in ready:
        v = now + (np.linalg.pinv(columns) @ (wrench - present)).reshape(3, 3)
        np.testing.assert_allclose(columns @ v.ravel(), wrench, atol=1e-4 * mass * G)
        slip = np.linalg.norm(v[:, 1:], axis=1) - contacts.mu * v[:, 0]
        assert slip.max() < 5e-3 * v[:, 0].max()
        assert v[:, 0].max() < 300.0


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_forces_turn_and_move_with_the_whole_scene(seed) -> None:
    rng = np.random.default_rng(seed)
    contacts = tripod()
    com, gravity = 0.003 * rng.normal(size=3), np.array([1.0, 2.0, -9.0])
    T = se3.exp(rng.normal(size=6))
    R = T[:3, :3]

    def grip(c: Contacts, at: np.ndarray, centre: np.ndarray, g: np.ndarray, turn: np.ndarray):
        present = carrying_wrench(0.2, at, centre, gravity=g)
        ready = np.stack([carrying_wrench(0.2, at, centre, gravity=g, acceleration=turn @ a) for a in 2 * np.eye(3)])
        return hold_forces(c, present, ready, centre=centre, f_min=0.1, f_max=30.0)

    here = grip(contacts, com, ORIGIN, gravity, np.eye(3))
    there = grip(contacts.moved(T), se3.transform(T, com), se3.transform(T, ORIGIN), R @ gravity, R)
    np.testing.assert_allclose(there.forces, here.forces @ R.T, atol=1e-4)
    assert there.feasible == here.feasible


def test_where_torques_are_taken_about_does_not_matter() -> None:
    com, other = np.array([0.002, 0.001, 0.0]), np.array([0.02, -0.01, 0.015])
    forces = [
        min_forces(tripod(), carrying_wrench(0.2, com, centre), centre=centre).forces for centre in (ORIGIN, other)
    ]
    np.testing.assert_allclose(forces[0], forces[1], atol=1e-5)


def test_more_mass_or_less_friction_takes_more_force() -> None:
    def squeeze(mass: float, mu: float) -> float:
        ready = required_wrenches(mass, ORIGIN, ORIGIN)
        return hold_forces(tripod(mu), carrying_wrench(mass, ORIGIN, ORIGIN), ready, centre=ORIGIN).normal.sum()

    by_mass = [squeeze(mass, 0.6) for mass in (0.05, 0.1, 0.3, 1.0)]
    assert np.all(np.diff(by_mass) > 0)
    assert by_mass[-1] == pytest.approx(20 * by_mass[0], rel=1e-3)  # in proportion
    assert np.all(np.diff([squeeze(0.2, mu) for mu in (0.9, 0.7, 0.5, 0.4)]) > 0)


def test_even_fingers_share_and_the_least_touch_is_kept() -> None:
    grip = min_forces(tripod(), carrying_wrench(1e-4, ORIGIN, ORIGIN), centre=ORIGIN, f_min=0.3)
    assert grip.feasible
    assert grip.normal.min() >= 0.3 * (1 - 1e-6)
    f_min = np.array([0.5, 0.1, 0.2])
    assert (min_forces(tripod(), np.zeros(6), centre=ORIGIN, f_min=f_min).normal >= f_min * (1 - 1e-6)).all()


def test_a_crush_limit_is_kept_and_what_is_missing_is_told() -> None:
    """At N on each side friction carries 2 µ N, and the rest of the weight is missing."""
    mass, mu, most = 0.5, 0.5, 3.0
    grip = min_forces(box(mu), carrying_wrench(mass, ORIGIN, ORIGIN), centre=ORIGIN, f_max=most)
    assert not grip.feasible
    assert grip.limited_by == "crush"
    np.testing.assert_allclose(grip.normal, most, rtol=1e-4)
    np.testing.assert_allclose(grip.residual, [0, 0, mass * G - 2 * mu * most, 0, 0, 0], atol=1e-3)


def levers(length: float, torque: float) -> Motors:
    """A motor for each finger of `box`, which pushes it along its normal with a lever."""
    jacobians = np.zeros((2, 6, 2))
    jacobians[0, 0, 0], jacobians[1, 0, 1] = length, -length
    return Motors(jacobians, np.full(2, -torque), np.full(2, torque))


def test_torques_are_those_of_the_levers_and_stay_within_the_motors() -> None:
    wrench = carrying_wrench(0.3, ORIGIN, ORIGIN)
    needed = 0.3 * G / (2 * 0.5) * 0.08
    strong = min_forces(box(), wrench, centre=ORIGIN, motors=levers(0.08, 2 * needed))
    assert strong.feasible
    np.testing.assert_allclose(strong.torques, needed, rtol=1e-6)
    weak = min_forces(box(), wrench, centre=ORIGIN, motors=levers(0.08, 0.5 * needed))
    assert weak.limited_by == "motor"
    np.testing.assert_allclose(weak.torques, 0.5 * needed, rtol=1e-4)
    assert abs(weak.torques).max() <= 0.5 * needed * (1 + 1e-6)
    # A least touch that the motors cannot give is lowered, not an error.
    feeble = min_forces(box(), wrench, centre=ORIGIN, f_min=2.0, motors=levers(0.08, 0.01))
    assert feeble.limited_by == "motor"
    assert abs(feeble.torques).max() <= 0.01 * (1 + 1e-6)
    # A motor that does not even carry its own finger gives nothing.
    dead = min_forces(box(), wrench, centre=ORIGIN, motors=replace(levers(0.08, 1.0), high=np.array([-0.1, 1.0])))
    assert dead.limited_by == "motor"
    assert dead.normal[0] < 1e-3


def test_no_friction_and_no_wrench_are_ordinary_cases() -> None:
    slippery = min_forces(box(0.0), carrying_wrench(0.3, ORIGIN, ORIGIN), centre=ORIGIN, f_max=20.0)
    assert slippery.limited_by == "friction"
    np.testing.assert_allclose(slippery.forces[:, 1:], 0, atol=1e-9)
    nothing = min_forces(tripod(), np.zeros(6), centre=ORIGIN)
    assert nothing.feasible
    np.testing.assert_allclose(nothing.forces, 0, atol=1e-6)
    fixed = min_forces(box(), carrying_wrench(0.3, ORIGIN, ORIGIN), centre=ORIGIN, f_min=4.0, f_max=4.0)
    assert fixed.feasible
    np.testing.assert_allclose(fixed.normal, 4.0, rtol=1e-3)


def test_a_batch_of_beliefs_is_as_its_parts() -> None:
    rng = np.random.default_rng(0)
    b, contacts = 200, tripod()
    mass, mu = rng.uniform(0.05, 2.0, b), rng.uniform(0.2, 1.0, (b, 3))
    com = 0.005 * rng.normal(size=(b, 3))
    present, ready = carrying_wrench(mass, com, ORIGIN), required_wrenches(mass, com, ORIGIN)
    motors = Motors(0.05 * rng.normal(size=(3, 6, 5)), np.full(5, -0.7), np.full(5, 0.7))
    options = {"centre": ORIGIN, "f_min": 0.1, "f_max": 20.0, "motors": motors}
    held = hold_forces_batch(contacts, mu, present, ready, **options)
    least = min_forces_batch(contacts, mu, present, **options)
    assert len(held) == b
    assert 0 < held.feasible.sum() < b
    for k in range(0, b, 29):
        own = replace(contacts, mu=mu[k])
        for many, one in (
            (held[k], hold_forces(own, present[k], ready[k], **options)),
            (least[k], min_forces(own, present[k], **options)),
        ):
            np.testing.assert_allclose(many.forces, one.forces, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(many.torques, one.torques, rtol=1e-5, atol=1e-8)
            assert many.margin_n == pytest.approx(one.margin_n, abs=1e-6)
            assert (many.feasible, many.limited_by) == (one.feasible, one.limited_by)


def test_input_that_makes_no_sense_is_refused() -> None:
    wrench = carrying_wrench(0.3, ORIGIN, ORIGIN)
    with pytest.raises(InputError, match="f_min"):
        min_forces(box(), wrench, centre=ORIGIN, f_min=2.0, f_max=1.0)
    with pytest.raises(InputError, match="finite"):
        min_forces(box(), np.full(6, np.nan), centre=ORIGIN)
    with pytest.raises(InputError, match="jacobians"):
        min_forces(tripod(), wrench, centre=ORIGIN, motors=levers(0.1, 1.0))
    with pytest.raises(InputError, match="mu"):
        min_forces_batch(box(), np.full((4, 3), 0.5), np.tile(wrench, (4, 1)), centre=ORIGIN)
