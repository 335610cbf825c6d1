"""SE(3) against group axioms, scipy's Rotation and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation, Slerp

from dexloop.core import se3

PI = float(np.pi)
# Angles where formulas break: none, tiny, the switch of the series, a quarter, and all around the half turn.
ANGLES = [0.0, 1e-12, 1e-9, 3e-8, 1e-5, 9.9e-5, 1.01e-4, 1e-2, PI / 2, PI - 1e-3, PI - 1e-6, PI - 1e-9]


def unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v)


directions = (
    arrays(np.float64, 3, elements=st.floats(-1, 1)).filter(lambda v: np.linalg.norm(v) > 0.1).map(unit)
    # Axis-aligned half turns leave three components of the quaternion at exactly zero.
    | st.sampled_from(list(np.vstack([np.eye(3), -np.eye(3)])))
)
angles = st.floats(0.0, PI - 1e-9) | st.sampled_from(ANGLES)
rotation_vectors = st.builds(lambda axis, angle: axis * angle, directions, angles)
quaternions = rotation_vectors.map(lambda w: np.roll(Rotation.from_rotvec(w).as_quat(), 1))
points = arrays(np.float64, 3, elements=st.floats(-10, 10))
tangents = st.builds(lambda v, w: np.concatenate([v, w]), points, rotation_vectors)
transforms = st.builds(lambda w, p: matrix(w, p), rotation_vectors, points)


def matrix(w: np.ndarray, p: np.ndarray) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = Rotation.from_rotvec(w).as_matrix(), p
    return T


def scipy_rotation(q: np.ndarray) -> Rotation:
    """scipy writes x, y, z, w."""
    return Rotation.from_quat(np.roll(q, -1, axis=-1))


def assert_same_rotation(a: np.ndarray, b: np.ndarray, *, tolerance: float = 1e-12) -> None:
    """q and -q are the same rotation."""
    error = min(float(np.abs(a - b).max()), float(np.abs(a + b).max()))
    assert error < tolerance, f"{a} is not {b}"


@given(quaternions, quaternions)
def test_quat_multiply_is_scipys(a: np.ndarray, b: np.ndarray) -> None:
    expected = np.roll((scipy_rotation(a) * scipy_rotation(b)).as_quat(), 1)
    assert_same_rotation(se3.quat_multiply(a, b), expected)


def test_quat_multiply_is_hamiltons() -> None:
    i, j, k = np.eye(4)[1:]
    np.testing.assert_array_equal(se3.quat_multiply(i, j), k)
    np.testing.assert_array_equal(se3.quat_multiply(j, i), -k)
    np.testing.assert_array_equal(se3.quat_multiply(i, i), -np.eye(4)[0])


@given(quaternions)
def test_quat_inverse(q: np.ndarray) -> None:
    np.testing.assert_allclose(se3.quat_multiply(q, se3.quat_inverse(q)), [1, 0, 0, 0], atol=1e-14)


@given(quaternions, points)
def test_quat_rotate_is_scipys(q: np.ndarray, v: np.ndarray) -> None:
    np.testing.assert_allclose(se3.quat_rotate(q, v), scipy_rotation(q).apply(v), atol=1e-12)


@given(quaternions)
def test_quat_to_matrix_is_scipys(q: np.ndarray) -> None:
    R = se3.quat_to_matrix(q)
    np.testing.assert_allclose(R, scipy_rotation(q).as_matrix(), atol=1e-14)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(R) == pytest.approx(1.0)


@given(rotation_vectors)
@example(np.array([PI, 0.0, 0.0]))
@example(np.array([0.0, -PI, 0.0]))
@example(PI * unit(np.array([1.0, 1.0, 0.0])))
@example(PI * unit(np.array([-1.0, 2.0, 3.0])))
def test_quat_from_matrix_is_exact_up_to_half_turns(w: np.ndarray) -> None:
    rotation = Rotation.from_rotvec(w)
    q = se3.quat_from_matrix(rotation.as_matrix())
    assert_same_rotation(q, np.roll(rotation.as_quat(), 1), tolerance=1e-13)
    assert np.linalg.norm(q) == pytest.approx(1.0, abs=1e-15)
    assert q[0] >= 0.0


@given(rotation_vectors, st.floats(1e-9, 1e-6), st.integers(0, 2**32 - 1))
def test_quat_from_matrix_forgives_a_matrix_that_is_not_quite_orthonormal(
    w: np.ndarray, size: float, seed: int
) -> None:
    R = Rotation.from_rotvec(w).as_matrix() + np.random.default_rng(seed).uniform(-size, size, (3, 3))
    q = se3.quat_from_matrix(R)
    assert np.linalg.norm(q) == pytest.approx(1.0, abs=1e-15)
    np.testing.assert_allclose(se3.quat_to_matrix(q), R, atol=10 * size)


@given(rotation_vectors)
def test_so3_exp_is_scipys(w: np.ndarray) -> None:
    assert_same_rotation(se3.so3_exp(w), np.roll(Rotation.from_rotvec(w).as_quat(), 1), tolerance=1e-15)


@given(rotation_vectors)
def test_so3_log_undoes_so3_exp(w: np.ndarray) -> None:
    # Where the cosine of the half angle is small the vector's direction keeps its digits: there is no loss near pi.
    np.testing.assert_allclose(se3.so3_log(se3.so3_exp(w)), w, atol=1e-14, rtol=1e-12)


@given(quaternions)
def test_so3_log_is_the_short_way_round(q: np.ndarray) -> None:
    np.testing.assert_allclose(se3.so3_log(-q), se3.so3_log(q), atol=1e-14)
    assert np.linalg.norm(se3.so3_log(q)) <= PI + 1e-15


@pytest.mark.parametrize("size", [1.5 * PI, 2 * PI - 1e-6, 7.0])
def test_so3_log_of_more_than_half_a_turn(size: float) -> None:
    axis = unit(np.array([1.0, -2.0, 0.5]))
    expected = Rotation.from_rotvec(axis * size).as_rotvec()
    np.testing.assert_allclose(se3.so3_log(se3.so3_exp(axis * size)), expected, atol=1e-9)


@given(points, points)
def test_hat_is_the_cross_product(w: np.ndarray, v: np.ndarray) -> None:
    np.testing.assert_allclose(se3.hat(w) @ v, np.cross(w, v), atol=1e-12)


@given(transforms, transforms, transforms)
def test_group_axioms(A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
    np.testing.assert_allclose((A @ B) @ C, A @ (B @ C), atol=1e-12)
    np.testing.assert_allclose(A @ se3.inverse(A), np.eye(4), atol=1e-12)
    np.testing.assert_allclose(se3.inverse(A) @ A, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(se3.inverse(A @ B), se3.inverse(B) @ se3.inverse(A), atol=1e-12)
    for T in (se3.inverse(A), se3.exp(se3.log(A))):  # closure
        np.testing.assert_array_equal(T[3], [0, 0, 0, 1])
        np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)


@given(transforms, transforms, points)
def test_transform_is_an_action(A: np.ndarray, B: np.ndarray, p: np.ndarray) -> None:
    np.testing.assert_allclose(se3.transform(A, se3.transform(B, p)), se3.transform(A @ B, p), atol=1e-11)
    np.testing.assert_allclose(se3.transform(A, p), (A @ np.append(p, 1.0))[:3], atol=1e-12)


@given(tangents)
def test_exp_is_the_matrix_exponential(xi: np.ndarray) -> None:
    twist = np.zeros((4, 4))
    twist[:3, :3], twist[:3, 3] = se3.hat(xi[3:]), xi[:3]
    np.testing.assert_allclose(se3.exp(xi), scipy.linalg.expm(twist), atol=1e-11)


@given(tangents)
def test_log_undoes_exp(xi: np.ndarray) -> None:
    # v comes from solving with the left Jacobian, whose condition grows to pi / 2 at the half turn, not beyond.
    np.testing.assert_allclose(se3.log(se3.exp(xi)), xi, atol=1e-9)


@given(transforms)
def test_exp_undoes_log(T: np.ndarray) -> None:
    np.testing.assert_allclose(se3.exp(se3.log(T)), T, atol=1e-10)


@given(points)
def test_log_of_a_pure_translation(v: np.ndarray) -> None:
    np.testing.assert_array_equal(se3.log(matrix(np.zeros(3), v)), [*v, 0, 0, 0])


def test_log_of_exact_half_turns() -> None:
    for axis in np.eye(3):
        T = matrix(PI * axis, np.array([1.0, 2.0, 3.0]))
        xi = se3.log(T)
        assert np.linalg.norm(xi[3:]) == pytest.approx(PI)
        np.testing.assert_allclose(se3.exp(xi), T, atol=1e-12)


@given(tangents, st.floats(-1.0, 1.0))
def test_exp_is_a_one_parameter_group_along_each_direction(xi: np.ndarray, s: float) -> None:
    np.testing.assert_allclose(se3.exp(xi * (1 + s)), se3.exp(xi * s) @ se3.exp(xi), atol=1e-10)


@given(tangents, st.integers(0, 5))
def test_finite_differences_of_exp(xi: np.ndarray, axis: int) -> None:
    """They agree with scipy's Fréchet derivative of the matrix exponential, also across the switch to the series."""
    h = 1e-5
    step = np.eye(6)[axis] * h
    numeric = (se3.exp(xi + step) - se3.exp(xi - step)) / (2 * h)
    twist, direction = np.zeros((4, 4)), np.zeros((4, 4))
    twist[:3, :3], twist[:3, 3] = se3.hat(xi[3:]), xi[:3]
    direction[:3, :3], direction[:3, 3] = se3.hat(step[3:] / h), step[:3] / h
    exact = scipy.linalg.expm_frechet(twist, direction, compute_expm=False)
    np.testing.assert_allclose(numeric, exact, atol=5e-8)


@given(quaternions, points)
def test_pose_round_trip(q: np.ndarray, p: np.ndarray) -> None:
    pose = np.concatenate([p, q])
    again = se3.to_pose(se3.from_pose(pose))
    np.testing.assert_array_equal(again[:3], p)
    assert_same_rotation(again[3:], q)


def test_pose_is_position_then_w_first() -> None:
    T = se3.from_pose(np.array([1.0, 2.0, 3.0, np.cos(PI / 4), 0.0, 0.0, np.sin(PI / 4)]))
    expected = [[0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]]  # a quarter turn to the left about z
    np.testing.assert_allclose(T, expected, atol=1e-15)


def test_from_rt_broadcasts() -> None:
    R = Rotation.from_rotvec([0.1, 0.2, 0.3]).as_matrix()
    p = np.arange(6.0).reshape(2, 3)
    T = se3.from_rt(R, p)
    assert T.shape == (2, 4, 4)
    for k in range(2):
        np.testing.assert_array_equal(T[k], np.block([[R, p[k][:, None]], [np.zeros(3), np.ones(1)]]))


@given(st.integers(0, 2**32 - 1))
def test_leading_dimensions_are_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    xi, p = rng.normal(size=(2, 3, 6)), rng.normal(size=(2, 3, 3))
    T = se3.exp(xi)
    moved, back, logs, poses = se3.transform(T, p), se3.inverse(T), se3.log(T), se3.to_pose(T)
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(T[index], se3.exp(xi[index]), atol=1e-14)
        np.testing.assert_allclose(moved[index], se3.transform(T[index], p[index]), atol=1e-14)
        np.testing.assert_allclose(back[index], se3.inverse(T[index]), atol=1e-14)
        np.testing.assert_allclose(logs[index], se3.log(T[index]), atol=1e-12)
        np.testing.assert_allclose(poses[index], se3.to_pose(T[index]), atol=1e-14)


def test_one_rotation_broadcasts_over_many_points() -> None:
    q = np.roll(Rotation.from_rotvec([0.3, -0.2, 0.9]).as_quat(), 1)
    points = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(se3.quat_rotate(q, points), scipy_rotation(q).apply(points), atol=1e-14)
    np.testing.assert_allclose(se3.transform(np.eye(4), points), points)


def random_path(seed: int, n: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.05, 1.0, n))
    quats = np.roll(Rotation.random(n, random_state=seed).as_quat(), 1, axis=-1)
    # Signs are arbitrary in recorded data; the interpolation must go the short way round all the same.
    quats *= rng.choice([-1.0, 1.0], n)[:, None]
    return times, np.concatenate([rng.normal(size=(n, 3)), quats], axis=-1)


@given(st.integers(0, 2**32 - 1))
def test_interpolate_is_scipys_slerp(seed: int) -> None:
    times, poses = random_path(seed)
    t = np.random.default_rng(seed + 1).uniform(times[0], times[-1], 20)
    out = se3.interpolate(t, times, poses)
    expected = np.roll(Slerp(times, scipy_rotation(poses[:, 3:]))(t).as_quat(), 1, axis=-1)
    for got, want in zip(out[:, 3:], expected, strict=True):
        assert_same_rotation(got, want, tolerance=1e-9)
    for axis in range(3):
        np.testing.assert_allclose(out[:, axis], np.interp(t, times, poses[:, axis]), atol=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_interpolate_meets_the_knots_and_holds_the_ends(seed: int) -> None:
    times, poses = random_path(seed)
    for got, want in zip(se3.interpolate(times, times, poses), poses, strict=True):
        np.testing.assert_allclose(got[:3], want[:3], atol=1e-12)
        assert_same_rotation(got[3:], want[3:])
    outside = se3.interpolate(np.array([times[0] - 5.0, times[-1] + 5.0]), times, poses)
    for got, want in zip(outside, poses[[0, -1]], strict=True):
        np.testing.assert_allclose(got[:3], want[:3], atol=1e-12)
        assert_same_rotation(got[3:], want[3:])


def test_interpolate_halves_the_angle_in_the_middle() -> None:
    quarter = np.array([np.cos(PI / 4), 0.0, 0.0, np.sin(PI / 4)])
    poses = np.array([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, *quarter]])
    middle = se3.interpolate(np.array([0.5]), np.array([0.0, 1.0]), poses)[0]
    np.testing.assert_allclose(middle, [1, 0, 0, np.cos(PI / 8), 0, 0, np.sin(PI / 8)], atol=1e-15)


def test_interpolate_of_a_single_pose_is_constant() -> None:
    pose = np.array([[1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0]])
    out = se3.interpolate(np.array([-1.0, 0.0, 7.0]), np.array([0.0]), pose)
    np.testing.assert_array_equal(out, np.repeat(pose, 3, axis=0))


@given(points, points.filter(lambda d: np.linalg.norm(d) > 0.1))
def test_look_at_axes(eye: np.ndarray, forward: np.ndarray) -> None:
    T = se3.look_at(eye, eye + forward)
    R = T[:3, :3]
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(R) == pytest.approx(1.0)
    np.testing.assert_array_equal(T[:3, 3], eye)
    np.testing.assert_allclose(R[:, 2], unit(forward), atol=1e-9)
    assert R[2, 0] == pytest.approx(0.0, abs=1e-9)  # the horizon is level
    assert R[2, 1] <= 1e-9  # y points down


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("up", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)])
def test_look_at_along_up(sign: float, up: tuple[float, float, float]) -> None:
    T = se3.look_at(np.zeros(3), sign * np.array(up), up)
    np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(T[:3, 2], sign * np.array(up), atol=1e-15)


def test_look_at_a_table_from_the_front() -> None:
    """A camera south of the table that looks north: east is to its right and up is against its y."""
    T = se3.look_at(np.array([0.0, -1.0, 0.0]), np.zeros(3))
    np.testing.assert_allclose(T[:3, :3].T, [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-15)
