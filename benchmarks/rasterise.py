"""How fast splats are drawn and their gradients found, against the same formulas in vectorised PyTorch, in one run."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np

from benchmarks.metric import Metric
from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.vision.rasterise import render
from dexloop.vision.splats import Splats

COUNT, SIZE = 20_000, (320, 240)
ROUNDS = 7
TILE = 16
"""Of the PyTorch version, which like ours only computes the Gaussians that reach a tile: 16 px is its fastest."""
NAMES = ("means", "log_scales", "quats", "logits", "sh")


def run() -> list[Metric]:
    splats, camera = cloud(COUNT), located(*SIZE)
    g = np.random.default_rng(1).normal(size=(camera.height, camera.width, 3)).astype(np.float32)
    threads = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    print(f"{COUNT} Gaussians at {SIZE[0]} x {SIZE[1]}, {threads} threads", file=sys.stderr)
    ours = measure(splats, camera, g)
    print("the same in PyTorch", file=sys.stderr)
    torch_s, by_torch = peer(splats, camera, g)
    off = max(float(np.linalg.norm(ours.gradients[k] - by_torch[k]) / np.linalg.norm(by_torch[k])) for k in by_torch)
    both = ours.forward_s + ours.backward_s
    note = f"{COUNT} Gaussians of {ours.radius_px:.0f} px reach, {SIZE[0]} x {SIZE[1]}, {threads} threads"
    metrics = [
        Metric("forward", ours.forward_s, "s", "lower", math.inf, target=0.060, note=note),
        Metric("backward", ours.backward_s, "s", "lower", math.inf, target=0.070, note=note),
        Metric(
            "PyTorch / ours, forward and backward",
            torch_s / both,
            "1",
            "higher",
            0.4,
            target=20.0,
            note=f"PyTorch {torch_s:.2f} s",
        ),
        Metric(
            "gradients: difference from PyTorch", off, "1", "lower", 1.0, target=1e-3, note="largest of five groups"
        ),
    ]
    for count in (5_000, 80_000):
        # As many Gaussians as cover the same surface: they are smaller the more there are.
        metrics.append(_both(f"{count} Gaussians", cloud(count), camera))
    for size in ((160, 120), (640, 480)):
        metrics.append(_both(f"{size[0]} x {size[1]} px", splats, located(*size)))
    for k in range(1, threads + 1):
        numba.set_num_threads(k)
        metrics.append(_both(f"{k} threads", splats, camera))
    numba.set_num_threads(threads)
    return metrics


def cloud(n: int, *, degree: int = 1, seed: int = 0) -> Splats:
    """A ball of 20 cm covered with Gaussians of all shapes."""
    rng = np.random.default_rng(seed)
    d = rng.normal(size=(n, 3))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    size = 2e-3 * math.sqrt(20_000 / n)
    return Splats(
        0.1 * d,
        np.log(size * rng.uniform(0.4, 1.6, (n, 3))),
        rng.normal(size=(n, 4)),
        rng.normal(1.0, 1.5, n),
        rng.normal(0.0, 0.4, (n, (degree + 1) ** 2, 3)),
    )


def located(width: int, height: int) -> Camera:
    """Sees the ball as high as the picture."""
    return Camera.from_fov("c", width, height, 0.7, se3.look_at(np.array([0.25, -0.2, 0.15]), np.zeros(3)))


@dataclass(frozen=True)
class Run:
    """The best of some rounds."""

    forward_s: float
    backward_s: float
    gradients: dict[str, np.ndarray]
    radius_px: float


def measure(splats: Splats, camera: Camera, g: np.ndarray) -> Run:
    drawing = render(splats, camera)
    forward = _best(lambda: render(splats, camera))
    backward = _best(lambda: drawing.backward(g))
    pulled = drawing.backward(g)
    reach = float(drawing.radii[drawing.radii > 0].mean())
    return Run(forward, backward, {k: getattr(pulled, k) for k in NAMES}, reach)


def _both(name: str, splats: Splats, camera: Camera) -> Metric:
    ran = measure(splats, camera, np.ones((camera.height, camera.width, 3), np.float32))
    note = f"forward {1e3 * ran.forward_s:.1f} ms, backward {1e3 * ran.backward_s:.1f} ms"
    return Metric(f"{name}: forward and backward", ran.forward_s + ran.backward_s, "s", "lower", math.inf, note=note)


def _best(action: Callable[[], object]) -> float:
    action()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def peer(splats: Splats, camera: Camera, g: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Draws and differentiates by PyTorch, tile by tile; returns the time of both [s] and the gradients."""
    import torch

    assert camera.T_world_camera is not None
    view = torch.tensor(se3.inverse(camera.T_world_camera), dtype=torch.float32)
    eye = torch.tensor(camera.T_world_camera[:3, 3], dtype=torch.float32)
    wanted = torch.tensor(g)

    def once() -> tuple[float, dict[str, np.ndarray]]:
        x = {k: torch.tensor(getattr(splats, k), requires_grad=True) for k in NAMES}
        start = time.perf_counter()
        p = x["means"] @ view[:3, :3].T + view[:3, 3]
        zero = torch.zeros_like(p[:, 0])
        rows = [camera.fx / p[:, 2], zero, -camera.fx * p[:, 0] / p[:, 2] ** 2]
        rows += [zero, camera.fy / p[:, 2], -camera.fy * p[:, 1] / p[:, 2] ** 2]
        J = torch.stack(rows, dim=1).reshape(-1, 2, 3)
        N = J @ view[:3, :3] @ (_rotation(x["quats"]) * torch.exp(x["log_scales"])[:, None, :])
        cov = N @ N.transpose(1, 2) + 0.3 * torch.eye(2)
        conic = torch.linalg.inv(cov)
        uv = torch.stack([camera.fx * p[:, 0] / p[:, 2] + camera.cx, camera.fy * p[:, 1] / p[:, 2] + camera.cy], dim=1)
        towards = x["means"] - eye
        towards = towards / towards.norm(dim=1, keepdim=True)
        basis = torch.stack(
            [torch.full_like(zero, 0.2820948), *(0.4886025 * towards * torch.tensor([-1.0, -1.0, 1.0])).T[[1, 2, 0]]],
            dim=1,
        )
        colour = torch.clamp(0.5 + torch.einsum("nk,nkc->nc", basis, x["sh"]), min=0.0)
        opacity = torch.sigmoid(x["logits"])
        with torch.no_grad():
            reach = torch.sqrt(2 * torch.log(255 * opacity).clamp(min=0)[:, None] * cov.diagonal(dim1=1, dim2=2))
            order = torch.argsort(p[:, 2])
            low, high = (uv - reach)[order], (uv + reach)[order]
        loss = torch.zeros(())
        for top in range(0, camera.height, TILE):
            for left in range(0, camera.width, TILE):
                part = wanted[top : top + TILE, left : left + TILE]
                h, w = part.shape[:2]
                near = (
                    (high[:, 0] >= left)
                    & (low[:, 0] <= left + w - 1)
                    & (high[:, 1] >= top)
                    & (low[:, 1] <= top + h - 1)
                )
                ids = order[near]
                if not len(ids):
                    continue
                v, u = torch.meshgrid(torch.arange(top, top + h), torch.arange(left, left + w), indexing="ij")
                dx, dy = u.reshape(-1, 1) - uv[ids, 0], v.reshape(-1, 1) - uv[ids, 1]
                k = conic[ids]
                power = 0.5 * (k[:, 0, 0] * dx * dx + k[:, 1, 1] * dy * dy) + k[:, 0, 1] * dx * dy
                alpha = opacity[ids] * torch.exp(-power)
                alpha = torch.where(alpha > 1 / 255, alpha.clamp(max=0.999), 0.0)
                after = torch.cumprod(1 - alpha, dim=1)
                before = torch.cat([torch.ones_like(after[:, :1]), after[:, :-1]], dim=1)
                weight = torch.where(before > 1e-4, alpha * before, 0.0)
                loss = loss + ((weight @ colour[ids]) * part.reshape(-1, 3)).sum()
        loss.backward()
        taken = time.perf_counter() - start
        return taken, {k: np.asarray(v.grad) for k, v in x.items()}

    results = [once() for _ in range(3)]
    return min(r[0] for r in results), results[0][1]


def _rotation(q):
    import torch

    w, x, y, z = (q / q.norm(dim=1, keepdim=True)).unbind(dim=1)
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
    rows += [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
    rows += [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    return torch.stack(rows, dim=1).reshape(-1, 3, 3)
