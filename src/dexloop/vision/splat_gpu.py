"""Draws splats with gsplat where there is a CUDA device, by the same interface as `rasterise`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, MissingPart
from dexloop.vision import rasterise
from dexloop.vision.rasterise import NEAR_M, Drawing, Gradients
from dexloop.vision.splats import Splats

Render = Callable[..., Drawing]
"""`rasterise.render`, or what stands in for it."""


def engine() -> str:
    """Returns what splats are drawn with on this machine: "gsplat" (CUDA) or "numba" (all cores)."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "gsplat")):
        return "numba"
    import torch  # pyright: ignore[reportMissingImports]

    return "gsplat" if torch.cuda.is_available() else "numba"


def renderer() -> Render:
    """Returns the render function of this machine's engine."""
    return render if engine() == "gsplat" else rasterise.render


def render(
    splats: Splats,
    camera: Camera,
    *,
    background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    where: Bool[np.ndarray, "h w"] | None = None,
) -> Drawing:
    """Draws splats on the CUDA device; see `rasterise.render`. All tiles are drawn, whatever `where` says.

    gsplat has no median depth: it is the mean here, where half of the light is stopped.

    Raises:
        MissingPart: There is no gsplat, or no CUDA device.
        InputError: The camera has no place.
    """
    if engine() != "gsplat":
        raise MissingPart(
            "gsplat needs torch, gsplat and a CUDA device: `pip install torch gsplat`, or use `rasterise`"
        )
    if camera.T_world_camera is None:
        raise InputError(f"camera {camera.name!r} has no place: give it T_world_camera")
    import torch  # pyright: ignore[reportMissingImports]
    from gsplat import rasterization  # pyright: ignore[reportMissingImports]

    T_world_camera = camera.T_world_camera

    def tensor(array: np.ndarray, *, learn: bool = True) -> torch.Tensor:
        return torch.tensor(array, dtype=torch.float32, device="cuda", requires_grad=learn)

    means, log_scales, quats = tensor(splats.means), tensor(splats.log_scales), tensor(splats.quats)
    logits, sh = tensor(splats.logits), tensor(splats.sh)
    view = tensor(se3.inverse(T_world_camera)[None])
    K = camera.K
    K[:2, 2] += 0.5  # its pixel centres are at halves
    drawn, share, meta = rasterization(
        means,
        quats,
        torch.exp(log_scales),
        torch.sigmoid(logits),
        sh,
        view,
        tensor(K[None], learn=False),
        camera.width,
        camera.height,
        near_plane=NEAR_M,
        sh_degree=splats.degree,
        packed=False,
        backgrounds=tensor(np.array([[*background, 0.0]]), learn=False),
        render_mode="RGB+ED",
    )
    meta["means2d"].retain_grad()
    rgb, depth, alpha = drawn[0, ..., :3], drawn[0, ..., 3], share[0, ..., 0]

    def array(value: torch.Tensor) -> Float[np.ndarray, "..."]:
        return value.detach().cpu().numpy()

    def pull(d_rgb: np.ndarray, d_depth: np.ndarray, d_alpha: np.ndarray) -> Gradients:
        given = [tensor(d, learn=False) for d in (d_rgb, d_depth, d_alpha)]
        torch.autograd.backward([rgb, depth, alpha], given)

        def by(leaf: torch.Tensor) -> np.ndarray:
            return np.zeros(leaf.shape, np.float32) if leaf.grad is None else array(leaf.grad)

        return Gradients(
            by(means),
            by(log_scales),
            by(quats),
            by(logits),
            by(sh),
            by(meta["means2d"])[0],
            _pose_gradient(T_world_camera, by(view)[0].astype(np.float64)),
        )

    opacity = array(alpha)
    median = np.where(opacity > 0.5, array(depth), 0.0)
    radii = array(meta["radii"])[0].astype(np.float32)
    radii = radii.max(axis=-1) if radii.ndim == 2 else radii  # one or two numbers, by version
    return Drawing(array(rgb), opacity, array(depth), median, radii, pull)


def _pose_gradient(
    T_world_camera: Float[np.ndarray, "4 4"], by_view: Float[np.ndarray, "4 4"]
) -> Float[np.ndarray, "6"]:
    """Returns the gradient by xi in exp(xi) @ T_world_camera from that by its inverse, X: dX = -X hat(xi)."""
    X = se3.inverse(T_world_camera)
    Y = (X.T @ by_view)[:3]
    return -np.array([*Y[:, 3], Y[2, 1] - Y[1, 2], Y[0, 2] - Y[2, 0], Y[1, 0] - Y[0, 1]])
