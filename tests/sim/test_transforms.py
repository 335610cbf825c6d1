import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexloop.sim.transforms import Identity, Log, LogCholesky, inertia_matrix, inertia_vector

free_vectors = hnp.arrays(np.float64, (6,), elements=st.floats(-2.0, 2.0))


@given(free_vectors)
def test_log_cholesky_gives_only_possible_inertias(free):
    principal = np.linalg.eigvalsh(inertia_matrix(LogCholesky().to_value(free)))
    assert principal[0] > 0
    assert principal[0] + principal[1] >= principal[2] * (1 - 1e-9), "the triangle inequality of real bodies"


@given(free_vectors)
def test_log_cholesky_is_one_to_one(free):
    transform = LogCholesky()
    np.testing.assert_allclose(transform.to_free(transform.to_value(free)), free, atol=1e-6)


def test_log_cholesky_of_a_cloud_of_points_matches_its_second_moment():
    points = np.random.default_rng(0).normal(size=(500, 3)) * [0.1, 0.2, 0.05]
    points -= points.mean(axis=0)
    inertia = sum(np.dot(p, p) * np.eye(3) - np.outer(p, p) for p in points)
    free = LogCholesky().to_free(inertia_vector(inertia))
    L = np.linalg.cholesky(points.T @ points)
    np.testing.assert_allclose(free[:3], np.log(np.diag(L)))
    np.testing.assert_allclose(free[3:], [L[1, 0], L[2, 0], L[2, 1]] / np.linalg.norm(np.diag(L)), atol=1e-12)


def test_log_cholesky_refuses_an_impossible_inertia():
    with pytest.raises(np.linalg.LinAlgError):
        LogCholesky().to_free(np.array([1.0, 1.0, 5.0, 0.0, 0.0, 0.0]))


def test_simple_transforms_are_inverse():
    x = np.array([[0.1], [3.0]])
    for transform in (Identity(), Log()):
        np.testing.assert_allclose(transform.to_value(transform.to_free(x)), x)
