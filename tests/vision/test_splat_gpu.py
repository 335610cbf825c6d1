from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import MissingPart
from dexloop.vision import rasterise, splat_gpu
from tests.vision.test_rasterise import BEHIND, NAMES, cloud, located

CUDA = splat_gpu.engine() == "gsplat"


def test_the_pose_gradient_is_that_of_finite_differences() -> None:
    T, g = se3.exp(np.array([0.1, 0.2, -0.3, 0.5, -0.4, 0.9])), np.random.default_rng(0).normal(size=(4, 4))
    g[3] = 0.0

    def loss(xi: np.ndarray) -> float:
        return float((g * se3.inverse(se3.exp(xi) @ T)).sum())

    truth = [(loss(1e-6 * e) - loss(-1e-6 * e)) / 2e-6 for e in np.eye(6)]
    assert splat_gpu._pose_gradient(T, g) == pytest.approx(truth, abs=1e-6)


@pytest.mark.skipif(CUDA, reason="this machine has gsplat and a CUDA device")
def test_without_a_gpu_the_cores_draw() -> None:
    assert splat_gpu.renderer() is rasterise.render
    with pytest.raises(MissingPart, match="pip install"):
        splat_gpu.render(cloud(3), located())


def test_an_engine_is_only_taken_when_all_of_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert splat_gpu.engine() == "numba"


@pytest.mark.skipif(not CUDA, reason="needs gsplat and a CUDA device")
def test_both_engines_draw_and_differentiate_alike() -> None:
    splats, camera = cloud(60), located()
    ours, theirs = (r(splats, camera, background=BEHIND) for r in (rasterise.render, splat_gpu.render))
    assert np.abs(ours.rgb - theirs.rgb).mean() < 1e-3
    d = np.random.default_rng(0).normal(size=ours.rgb.shape)
    a, b = ours.backward(d), theirs.backward(d)
    for name in (*NAMES, "pose"):
        x, y = getattr(a, name), getattr(b, name)
        assert np.linalg.norm(x - y) < 1e-2 * np.linalg.norm(x), name
