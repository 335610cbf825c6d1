from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.twin.bundle import Bundle, lenses, project
from tests.twin import CAMERA, path


def test_the_gradient_of_the_bundle_is_that_of_its_cost() -> None:
    rng = np.random.default_rng(0)
    T = np.stack([se3.inverse(p) for p in path(4)])
    X = rng.uniform(-0.1, 0.1, (12, 3))
    lens, lens_of = lenses([CAMERA] * 4)
    lens[:, 3:5] = -0.05, 0.01
    frame, point = np.repeat(np.arange(4), 12), np.tile(np.arange(12), 4)
    _, uv = project(X[point], T[frame], lens[lens_of[frame]])
    bundle = Bundle(
        frame, point, uv + rng.normal(0, 1.0, uv.shape), np.full(48, 0.7), 9, lens_of, lens * 1.01,
        np.full((1, 5), 0.5), np.ones(4, bool),
    )  # fmt: skip
    S, g, Vi, W, gp = bundle._system(T, lens, X, 0.0)
    full = g + W @ (Vi @ gp.reshape(-1, 3, 1)).ravel()  # the cameras' part before points were eliminated
    h = 1e-6

    def cost(change: np.ndarray) -> float:
        moved = lens.copy()
        moved[:, :5] += change[24:29]
        shifted = X.copy()
        shifted[:9] += change[29:].reshape(9, 3)
        return bundle._cost(se3.exp(change[:24].reshape(4, 6)) @ T, moved, shifted)

    slopes = np.array([(cost(h * e) - cost(-h * e)) / (2 * h) for e in np.eye(29 + 27)])
    np.testing.assert_allclose(-0.5 * slopes, np.concatenate([full, gp]), rtol=2e-4, atol=2e-2)
    assert np.linalg.eigvalsh(S).min() > 0
