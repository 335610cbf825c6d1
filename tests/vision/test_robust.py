from __future__ import annotations

import numpy as np

from dexloop.vision.robust import block_of, block_sums, tukey, weighted_correlation


def test_tukey_finds_the_scale_and_rejects_what_does_not_belong():
    rng = np.random.default_rng(0)
    residual = np.concatenate([rng.normal(0, 3.0, 4000), np.full(800, 200.0)])
    weight, scale = tukey(residual)
    assert 2.7 < scale < 4.2  # a sixth of it are outliers, which raise the median a little
    assert (weight[-800:] == 0).all()
    assert weight[:4000].mean() > 0.7
    assert tukey(residual, least=7.0)[1] == 7.0
    assert tukey(residual, most=1.0)[1] == 1.0


def test_blocks_sum_up_their_pixels():
    rows, columns = np.nonzero(np.ones((40, 50), bool))
    block = block_of(rows, columns, 50)
    values = np.random.default_rng(0).normal(size=(len(rows), 3))
    sums = block_sums(values, block)
    np.testing.assert_allclose(sums.sum(axis=0), values.sum(axis=0))
    first = (rows < 16) & (columns < 16)
    np.testing.assert_allclose(sums[block[0]], values[first].sum(axis=0))
    assert len(np.unique(block)) == 3 * 4


def test_correlation_is_that_of_numpy_over_what_counts():
    rng = np.random.default_rng(0)
    a = rng.normal(size=200)
    b = a + rng.normal(size=200)
    weight = (np.arange(200) < 100).astype(float)
    np.testing.assert_allclose(weighted_correlation(a, b, weight), np.corrcoef(a[:100], b[:100])[0, 1])
    assert abs(weighted_correlation(np.ones(5), np.arange(5.0), np.ones(5))) < 1e-6
