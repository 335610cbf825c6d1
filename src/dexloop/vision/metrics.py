"""How alike two pictures are: PSNR and SSIM, the latter with its gradient."""

from __future__ import annotations

import cv2
import numpy as np
from jaxtyping import Bool, Float
from numba import njit

from dexloop.vision.cores import on_all_cores

_WINDOW = cv2.getGaussianKernel(11, 1.5).astype(np.float32)
_C1, _C2 = np.float32(0.01**2), np.float32(0.03**2)
"""Of pictures from 0 to 1 (Wang et al. 2004)."""


def psnr(
    a: Float[np.ndarray, "h w 3"], b: Float[np.ndarray, "h w 3"], mask: Bool[np.ndarray, "h w"] | None = None
) -> float:
    """Returns the peak signal-to-noise ratio of pictures from 0 to 1, over the mask [dB]."""
    difference = (a - b) if mask is None else (a - b)[mask]
    return float(-10.0 * np.log10(max(float(np.mean(difference**2)), 1e-12)))


def ssim(
    a: Float[np.ndarray, "h w 3"], b: Float[np.ndarray, "h w 3"], mask: Bool[np.ndarray, "h w"] | None = None
) -> float:
    """Returns the mean structural similarity of pictures from 0 to 1, over the mask; 1 for equal pictures."""
    alike = ssim_with_gradient(a.astype(np.float32), b.astype(np.float32))[0]
    return float(np.mean(alike if mask is None else alike[mask]))


def ssim_with_gradient(
    a: Float[np.ndarray, "h w 3"], b: Float[np.ndarray, "h w 3"], weight: Float[np.ndarray, "h w"] | None = None
) -> tuple[Float[np.ndarray, "h w 3"], Float[np.ndarray, "h w 3"]]:
    """Returns the structural similarity at each pixel, and the gradient of its weighted sum by `a`.

    The window is a Gaussian of 1.5 px, 11 wide; beyond the border pictures are black.
    """
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    weights = np.ones(a.shape[:2], np.float32) if weight is None else weight.astype(np.float32)
    products, terms = np.empty((*weights.shape, 15), np.float32), np.empty((*weights.shape, 9), np.float32)
    alike, gradient = np.empty_like(a), np.empty_like(a)
    on_all_cores(_products, a, b, products)
    on_all_cores(_alike, _blur(products), weights, alike, terms)
    on_all_cores(_gradient, a, b, _blur(terms), gradient)
    return alike, gradient


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _products(a, b, out, thread, threads):
    """Writes a, b, a², b² and a b side by side."""
    h, w, _ = a.shape
    for y in range(thread, h, threads):
        for x in range(w):
            for c in range(3):
                p, q = a[y, x, c], b[y, x, c]
                out[y, x, c], out[y, x, 3 + c] = p, q
                out[y, x, 6 + c], out[y, x, 9 + c], out[y, x, 12 + c] = p * p, q * q, p * q


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _alike(means, weight, alike, terms, thread, threads):
    """Writes the similarity, and its derivatives by the means of a, of a² and of a b, times the weight."""
    h, w, _ = means.shape
    two = np.float32(2)
    for y in range(thread, h, threads):
        for x in range(w):
            for c in range(3):
                m, n = means[y, x, c], means[y, x, 3 + c]
                light = m * m + n * n + _C1
                contrast = (means[y, x, 6 + c] - m * m) + (means[y, x, 9 + c] - n * n) + _C2
                l1, c1 = two * m * n + _C1, two * (means[y, x, 12 + c] - m * n) + _C2
                below = np.float32(1) / (light * contrast)
                s = l1 * c1 * below
                by_ab, by_aa = two * l1 * below, -s / contrast
                by_mean = two * (n * c1 * below - m * s / light) - two * m * by_aa - n * by_ab
                alike[y, x, c] = s
                terms[y, x, c], terms[y, x, 3 + c] = weight[y, x] * by_mean, weight[y, x] * by_aa
                terms[y, x, 6 + c] = weight[y, x] * by_ab


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _gradient(a, b, terms, out, thread, threads):
    h, w, _ = a.shape
    for y in range(thread, h, threads):
        for x in range(w):
            for c in range(3):
                own, other = np.float32(2) * a[y, x, c] * terms[y, x, 3 + c], b[y, x, c] * terms[y, x, 6 + c]
                out[y, x, c] = terms[y, x, c] + own + other


def _blur(pictures: Float[np.ndarray, "h w c"]) -> Float[np.ndarray, "h w c"]:
    """The window's mean at each pixel. It is symmetric and the outside counts as zero, so it is its own adjoint."""
    return cv2.sepFilter2D(pictures, -1, _WINDOW, _WINDOW, borderType=cv2.BORDER_CONSTANT)
