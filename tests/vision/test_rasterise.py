from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.vision.rasterise import render
from dexloop.vision.splats import Splats, sh_basis

NAMES = ("means", "log_scales", "quats", "logits", "sh")
Arrays = dict[str, np.ndarray]


def cloud(n: int, *, degree: int = 3, seed: int = 0, size: float = 0.012) -> Splats:
    """Gaussians of all shapes in a ball of 10 cm."""
    rng = np.random.default_rng(seed)
    return Splats(
        rng.uniform(-0.05, 0.05, (n, 3)),
        np.log(size * rng.uniform(0.3, 1.5, (n, 3))),
        rng.normal(size=(n, 4)),
        rng.normal(0.5, 1.5, n),
        rng.normal(0, 0.3, (n, (degree + 1) ** 2, 3)),
    )


def located(width: int = 44, height: int = 37) -> Camera:
    """A camera with nothing even about it; neither side is a multiple of a tile."""
    T = se3.look_at(np.array([0.12, -0.17, 0.09]), np.array([0.005, 0.0, 0.01]))
    return Camera("c", width, height, 62.0, 58.0, 20.3, 19.1, T)


def arrays(splats: Splats) -> Arrays:
    return {name: getattr(splats, name).astype(np.float64) for name in NAMES}


def plain(x: Arrays, camera: Camera, background: np.ndarray) -> dict[str, np.ndarray]:
    """The formulas as they stand, in float64: every Gaussian at every pixel."""
    assert camera.T_world_camera is not None
    T = se3.inverse(camera.T_world_camera)
    p = se3.transform(T, x["means"])
    J = np.zeros((len(p), 2, 3))
    J[:, 0, 0], J[:, 0, 2] = camera.fx / p[:, 2], -camera.fx * p[:, 0] / p[:, 2] ** 2
    J[:, 1, 1], J[:, 1, 2] = camera.fy / p[:, 2], -camera.fy * p[:, 1] / p[:, 2] ** 2
    R = se3.quat_to_matrix(x["quats"] / np.linalg.norm(x["quats"], axis=1, keepdims=True))
    N = J @ T[:3, :3] @ (R * np.exp(x["log_scales"])[:, None, :])
    conic = np.linalg.inv(N @ np.swapaxes(N, 1, 2) + 0.3 * np.eye(2))
    towards = x["means"] - camera.T_world_camera[:3, 3]
    basis = sh_basis(towards / np.linalg.norm(towards, axis=1, keepdims=True), round(x["sh"].shape[1] ** 0.5) - 1)
    colour = np.maximum(0.5 + np.einsum("nk,nkc->nc", basis, x["sh"]), 0.0)
    uv = np.stack(np.meshgrid(np.arange(camera.width), np.arange(camera.height)), axis=-1)
    left = np.ones((camera.height, camera.width))
    rgb, sums, median = np.zeros((*left.shape, 3)), np.zeros_like(left), np.zeros_like(left)
    for i in np.argsort(p[:, 2]):
        if p[i, 2] < 0.01:
            continue
        d = uv - camera.project(p[i])
        alpha = np.exp(-0.5 * np.einsum("hwi,ij,hwj->hw", d, conic[i], d)) / (1 + np.exp(-x["logits"][i]))
        alpha = np.where((alpha > 1 / 255) & (left > 1e-4), np.minimum(alpha, 0.999), 0.0)
        w = alpha * left
        median = np.where((left > 0.5) & (left - w <= 0.5), p[i, 2], median)
        rgb, sums, left = rgb + w[..., None] * colour[i], sums + w * p[i, 2], left - w
    alpha = 1 - left
    depth = sums / np.maximum(alpha, 1e-6)
    return {"rgb": rgb + left[..., None] * background, "alpha": alpha, "depth": depth, "median_depth": median}


BEHIND = (0.2, 0.5, 0.9)


@pytest.mark.parametrize("n", [1, 40, 400])
def test_pictures_are_those_of_the_plain_formulas(n: int) -> None:
    splats, camera = cloud(n, seed=n), located()
    drawing, truth = render(splats, camera, background=BEHIND), plain(arrays(splats), camera, np.array(BEHIND))
    for name in ("rgb", "alpha", "depth"):
        # A pixel at which a Gaussian falls to just 1/255 may go either way; no pixel may be off by more than that.
        # Where that Gaussian is the only one, it decides between its depth and none.
        off = np.abs(getattr(drawing, name) - truth[name])[(truth["alpha"] > 0.05) | (name != "depth")]
        assert np.mean(off) < 1e-5, name
        assert np.max(off) < 1 / 250, name
    assert np.mean(np.abs(drawing.median_depth - truth["median_depth"]) > 1e-5) < 0.005


def test_the_nearer_of_two_covers_the_other() -> None:
    """Worked out by hand: two Gaussians at the middle of a picture, opacities 0.8 and 0.5."""
    camera = Camera("c", 21, 21, 100.0, 100.0, 10.0, 10.0, np.eye(4))
    splats = Splats(
        np.array([[0, 0, 2.0], [0, 0, 1.0]]),
        np.full((2, 3), np.log(0.01)),
        np.array([[1.0, 0, 0, 0]] * 2),
        np.log(np.array([0.5 / 0.5, 0.8 / 0.2])),
        (np.array([[[1.0, 0, 0]], [[0, 1.0, 0]]]) - 0.5) / 0.28209479177387814,
    )
    drawing = render(splats, camera)
    assert drawing.rgb[10, 10] == pytest.approx([0.2 * 0.5, 0.8, 0.0], abs=1e-5)
    assert drawing.alpha[10, 10] == pytest.approx(0.9, abs=1e-5)
    assert drawing.depth[10, 10] == pytest.approx((0.8 * 1 + 0.1 * 2) / 0.9, abs=1e-5)
    assert drawing.median_depth[10, 10] == pytest.approx(1.0)
    # Standard deviation of the nearer: (100 * 0.01 / 1)² + 0.3 = 1.3 px².
    assert drawing.rgb[10, 12, 1] == pytest.approx(0.8 * np.exp(-0.5 * 4 / 1.3), abs=1e-5)


@pytest.fixture(scope="module")
def pulled() -> tuple[Splats, Camera, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A scene, and gradients of one loss: ours, and of the plain formulas by finite differences."""
    splats, camera = cloud(7, degree=3, seed=3), located()
    rng = np.random.default_rng(5)
    shape = (camera.height, camera.width)
    g = {"rgb": rng.normal(size=(*shape, 3)), "alpha": rng.normal(size=shape), "depth": 5 * rng.normal(size=shape)}
    drawing = render(splats, camera, background=BEHIND)
    g["depth"] *= drawing.alpha > 0.05  # a mean over hardly anything has no smooth depth
    ours = drawing.backward(g["rgb"], d_depth=g["depth"], d_alpha=g["alpha"])
    x, behind = arrays(splats), np.array(BEHIND)

    def loss(changed: Arrays, seen: Camera = camera) -> float:
        drawn = plain(changed, seen, behind)
        return float(sum((g[k] * drawn[k]).sum() for k in g))

    step, truth = 1e-6, {}
    for name in NAMES:
        out = np.zeros(x[name].size)
        for j in range(x[name].size):
            two = []
            for sign in (1, -1):
                moved = x[name].copy()
                moved.reshape(-1)[j] += sign * step
                two.append(loss({**x, name: moved}))
            out[j] = (two[0] - two[1]) / (2 * step)
        truth[name] = out.reshape(x[name].shape)
    pose = []
    for j in range(6):
        xi = np.zeros(6)
        xi[j] = step
        two = [loss(x, replace(camera, T_world_camera=se3.exp(s * xi) @ camera.T_world_camera)) for s in (1, -1)]
        pose.append((two[0] - two[1]) / (2 * step))
    truth["pose"] = np.array(pose)
    return splats, camera, {name: getattr(ours, name) for name in (*NAMES, "pose")}, truth


@pytest.mark.parametrize("name", [*NAMES, "pose"])
def test_gradients_are_those_of_finite_differences(pulled, name: str) -> None:
    *_, ours, truth = pulled
    assert np.linalg.norm(ours[name] - truth[name]) < 1e-3 * np.linalg.norm(truth[name])


def test_a_camera_that_moves_is_the_splats_moving_the_other_way() -> None:
    splats, camera = cloud(60, seed=8), located()
    T = se3.exp(np.array([0.02, -0.03, 0.01, 0.2, -0.3, 0.5]))
    moved = replace(camera, T_world_camera=T @ camera.T_world_camera)
    a, b = render(splats, camera), render(splats.moved(T), moved)
    assert np.mean(np.abs(a.rgb - b.rgb)) < 1e-5
    assert np.abs(a.rgb - b.rgb).max() < 1 / 250


def test_a_part_of_the_picture_is_that_part() -> None:
    splats, camera = cloud(200, seed=2), located(90, 70)
    whole, part = render(splats, camera), render(splats, camera.cropped(21, 13, 40, 33))
    assert np.abs(whole.rgb[13:46, 21:61] - part.rgb).max() < 1e-5
    assert np.abs(whole.median_depth[13:46, 21:61] - part.median_depth).max() < 1e-5


def test_only_the_tiles_asked_for_are_drawn() -> None:
    splats, camera = cloud(200, seed=2), located(90, 70)
    where = np.zeros((70, 90), bool)
    where[20:30, 40:44] = True
    whole, part = render(splats, camera, background=BEHIND), render(splats, camera, background=BEHIND, where=where)
    assert np.array_equal(whole.rgb[where], part.rgb[where])
    assert np.all(part.alpha[:, :32] == 0)
    assert np.allclose(part.rgb[:, :32], BEHIND)
    # And gradients of a loss there are the same.
    d = np.where(where[..., None], 1.0, 0.0) * np.ones(3)
    a, b = whole.backward(d), part.backward(d)
    assert np.allclose(a.means, b.means, rtol=1e-4, atol=1e-3)


def test_threads_do_not_change_the_result() -> None:
    import numba

    splats, camera = cloud(300, seed=4), located(90, 70)
    d = np.random.default_rng(0).normal(size=(70, 90, 3))
    before, results = numba.get_num_threads(), []
    try:
        for threads in (1, before):
            numba.set_num_threads(threads)
            drawing = render(splats, camera)
            results.append((drawing.rgb, drawing.backward(d).means))
    finally:
        numba.set_num_threads(before)
    assert np.array_equal(results[0][0], results[1][0])
    assert np.array_equal(results[0][1], results[1][1])


def test_what_cannot_be_seen_is_not_drawn_and_gets_no_gradient() -> None:
    camera = replace(located(), T_world_camera=np.eye(4))
    means = np.array([[0, 0, -1.0], [0, 0, 0.005], [50.0, 0, 1.0], [0, 0, 1.0], [0, 0, 1.5]])
    splats = replace(cloud(5, degree=0), means=means, logits=np.array([2.0, 2.0, 2.0, -9.0, 2.0]))
    drawing = render(splats, camera)
    assert (drawing.radii > 0).tolist() == [False, False, False, False, True]
    pull = drawing.backward(np.ones_like(drawing.rgb))
    assert np.all(pull.sh[:4] == 0)
    assert np.any(pull.sh[4] != 0)


def test_no_splats_are_an_empty_picture() -> None:
    drawing = render(cloud(3).taken(np.zeros(3, bool)), located(), background=BEHIND)
    assert np.allclose(drawing.rgb, BEHIND)
    assert len(drawing.backward(np.ones_like(drawing.rgb)).means) == 0


def test_bad_input_is_told() -> None:
    with pytest.raises(InputError, match="has no place"):
        render(cloud(3), replace(located(), T_world_camera=None))
    with pytest.raises(InputError, match="cut them alike"):
        render(cloud(3), located(), where=np.zeros((3, 3), bool))
    with pytest.raises(InputError, match="that of the drawing"):
        render(cloud(3), located()).backward(np.zeros((3, 3, 3)))
