from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dexloop.twin import unmarked


def test_a_similarity_is_found_in_spite_of_outliers() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(0, 1, (30, 3))
    R = Rotation.from_rotvec([0.3, -0.7, 1.1]).as_matrix()
    b = 0.37 * a @ R.T + [0.1, 0.2, -0.3] + rng.normal(0, 1e-3, a.shape)
    b[:5] += rng.normal(0, 0.5, (5, 3))
    found, scale_sd = unmarked._similarity(a, b)
    np.testing.assert_allclose(found.R, R, atol=3e-3)
    assert found.scale == pytest.approx(0.37, rel=3e-3)
    assert 1e-4 < scale_sd < 3e-3
