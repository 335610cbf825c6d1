from __future__ import annotations

import numpy as np
import pytest

from dexloop.vision.metrics import psnr, ssim, ssim_with_gradient


def pair(seed: int = 0, shape: tuple[int, int] = (21, 26)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.random((*shape, 3))
    return a, np.clip(a + 0.2 * rng.normal(size=a.shape), 0, 1)


def plain_ssim(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As in the paper, pixel by pixel, in float64; beyond the border pictures are black."""
    k = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
    window = np.outer(k, k)[..., None] / np.outer(k, k).sum()
    a, b = (np.pad(x, ((5, 5), (5, 5), (0, 0))) for x in (a, b))
    h, w = a.shape[0] - 10, a.shape[1] - 10
    out = np.zeros((h, w, 3))
    for y in range(h):
        for x in range(w):
            p, q = a[y : y + 11, x : x + 11], b[y : y + 11, x : x + 11]
            m, n = (window * p).sum(axis=(0, 1)), (window * q).sum(axis=(0, 1))
            pp, qq = (window * p * p).sum(axis=(0, 1)) - m * m, (window * q * q).sum(axis=(0, 1)) - n * n
            pq = (window * p * q).sum(axis=(0, 1)) - m * n
            out[y, x] = (2 * m * n + 1e-4) * (2 * pq + 9e-4) / ((m * m + n * n + 1e-4) * (pp + qq + 9e-4))
    return out


def test_psnr_by_hand() -> None:
    a = np.zeros((4, 5, 3))
    mask = np.zeros((4, 5), bool)
    mask[0, 0] = True
    b = np.where(mask[..., None], 0.1, 0.01) * np.ones(3)
    assert psnr(a, b, mask) == pytest.approx(20.0)
    assert psnr(a, b) == pytest.approx(-10 * np.log10((0.01 + 19 * 1e-4) / 20))


def test_similarity_is_that_of_the_paper() -> None:
    a, b = pair()
    truth = plain_ssim(a, b)
    assert np.allclose(ssim_with_gradient(a.astype(np.float32), b.astype(np.float32))[0], truth, atol=1e-4)
    assert ssim(a, b) == pytest.approx(truth.mean(), abs=1e-5)
    mask = np.random.default_rng(1).random(a.shape[:2]) > 0.5
    assert ssim(a, b, mask) == pytest.approx(truth[mask].mean(), abs=1e-5)
    assert ssim(a, a) == pytest.approx(1.0, abs=1e-6)


def test_its_gradient_is_that_of_finite_differences() -> None:
    a, b = pair(seed=2, shape=(13, 12))
    weight = np.random.default_rng(3).random(a.shape[:2])
    ours = ssim_with_gradient(a.astype(np.float32), b.astype(np.float32), weight)[1]
    rng, step = np.random.default_rng(4), 1e-5
    for _ in range(5):
        d = rng.normal(size=a.shape)
        two = [(plain_ssim(a + s * step * d, b) * weight[..., None]).sum() for s in (1, -1)]
        assert (ours * d).sum() == pytest.approx((two[0] - two[1]) / (2 * step), rel=2e-3, abs=1e-3)
