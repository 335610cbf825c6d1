from __future__ import annotations

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.twin.masks import SeenObject, object_from_masks
from dexloop.twin.mesh import sample
from dexloop.twin.start import first_splats
from tests.twin.test_surface import Scan, scan

VOXEL_M = 0.002


@pytest.fixture(scope="module")
def tin() -> tuple[Scan, SeenObject]:
    found = scan("cookie_tin", noise_m=0.0, count=20)
    return found, object_from_masks(found[2])


def off_the_surface(splats, truth) -> np.ndarray:
    from scipy.spatial import KDTree

    return KDTree(sample(truth, 100_000)[0]).query(splats.means)[0]


def test_splats_begin_where_features_are(tin):
    """A tenth of the features are wrong, as matches are, and others lie on the table."""
    (truth, _, views, bounds), seen = tin
    rng = np.random.default_rng(0)
    features = sample(truth, 1500, seed=3)[0]
    features += 3e-4 * rng.standard_normal(features.shape)
    features[::10] += 0.01 * rng.standard_normal(features[::10].shape)
    table = np.c_[rng.uniform(-0.3, 0.3, (500, 2)), np.zeros(500)]
    found = first_splats(seen, np.concatenate([features, table]), views, bounds, VOXEL_M)
    alone = first_splats(seen, table, views, bounds, VOXEL_M)
    np.testing.assert_array_equal(alone.means, seen.points.astype(np.float32))
    assert np.percentile(off_the_surface(found, truth), 95) < 3e-3
    assert np.percentile(off_the_surface(alone, truth), 95) > 6e-3


def test_another_objects_features_do_no_harm(tin):
    """What stands in the corners of its box is in its masks only now and then."""
    (truth, _, views, bounds), seen = tin
    features = sample(truth, 1500, seed=3)[0]
    corner = se3.transform(seen.T_world_box, 0.45 * seen.size_m * np.array([1.0, 1.0, 0.0]))
    others = corner + [2e-3, 2e-3, 2e-4] * np.random.default_rng(1).standard_normal((60, 3))
    clean = first_splats(seen, features, views, bounds, VOXEL_M)
    mixed = first_splats(seen, np.concatenate([features, others]), views, bounds, VOXEL_M)
    np.testing.assert_array_equal(mixed.means, clean.means)
