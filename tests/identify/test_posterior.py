import numpy as np
import pytest

from dexloop.identify.posterior import Posterior
from dexloop.identify.unknowns import clock_unknown, model_unknown
from dexloop.sim.scene import Scene
from tests.identify.benches import Push, model_file

MEAN = np.r_[np.log([0.25, 0.3]), 0.01]
COVARIANCE = np.array([[0.01, -0.004, 0.0], [-0.004, 0.0025, 0.0], [0.0, 0.0, 1e-6]])


@pytest.fixture
def posterior(tmp_path) -> Posterior:
    scene = Scene.open(model_file(tmp_path, Push()), max_delay_s=0.0)
    unknowns = [model_unknown(scene, n) for n in ("object.mass", "table.friction")]
    return Posterior((*unknowns, clock_unknown("camera", same=False)), MEAN, COVARIANCE)


def test_draws_have_the_mean_and_covariance(posterior):
    draws = posterior.sample(20_000, np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(axis=0), MEAN, atol=0.003)
    np.testing.assert_allclose(np.cov(draws.T), COVARIANCE, atol=4e-4)


def test_intervals_are_those_of_a_lognormal(posterior):
    mean, sd, interval = posterior.summary()
    np.testing.assert_allclose(mean, [0.25, 0.3, 0.01])
    np.testing.assert_allclose(interval[:, 0], 0.25 * np.exp(np.array([-1.96, 1.96]) * 0.1), rtol=1e-6)
    np.testing.assert_allclose(interval[:, 2], 0.01 + np.array([-1.96, 1.96]) * 1e-3, rtol=1e-6)
    assert sd[0] == pytest.approx(0.25 * np.exp(0.005) * np.sqrt(np.exp(0.01) - 1.0), rel=0.05)


def test_draws_that_stand_for_it_are_used(posterior):
    draws = np.tile(MEAN, (100, 1))
    draws[50:, 0] += 0.2
    other = Posterior(posterior.unknowns, MEAN, COVARIANCE, draws)
    mean, _, interval = other.summary()
    assert mean[0] == pytest.approx(0.25 * (1.0 + np.exp(0.2)) / 2.0)
    np.testing.assert_allclose(interval[:, 0], [0.25, 0.25 * np.exp(0.2)], rtol=1e-6)
    assert {tuple(row) for row in other.sample(50, np.random.default_rng(0))} <= {tuple(row) for row in draws}


def test_draws_stay_within_the_bounds(posterior):
    wide = Posterior(posterior.unknowns, MEAN, 100.0 * np.eye(3))
    values = wide.values(wide.sample(500, np.random.default_rng(0)))
    assert values[:, 0].min() >= 1e-4
    assert values[:, 1].max() <= 3.0
    assert np.abs(values[:, 2]).max() <= 0.3
