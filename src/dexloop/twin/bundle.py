"""How cameras see points and where points are that cameras see; both refined together (bundle adjustment)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.twin.tracks import Tracks

_MIN_ANGLE_RAD = np.radians(2.0)
"""Between two rays to a point, below which its depth is not known."""


def lenses(cameras: Sequence[Camera]) -> tuple[Float[np.ndarray, "g 7"], Int[np.ndarray, " n"]]:
    """Returns one row [s, cx, cy, k1, k2, fx, fy] for each different camera, and which one each picture has.

    The focal lengths are s·fx and s·fy; k1 and k2 are OpenCV's radial terms.
    """
    rows = np.array([[1.0, c.cx, c.cy, 0.0, 0.0, c.fx, c.fy, c.width, c.height] for c in cameras])
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return different[:, :7].copy(), which.ravel()


def project(
    p_world: Float[np.ndarray, "o 3"], T_camera_world: Float[np.ndarray, "o 4 4"], lens: Float[np.ndarray, "o 7"]
) -> tuple[Float[np.ndarray, "o 3"], Float[np.ndarray, "o 2"]]:
    """Returns points in the camera's frame and on its picture; NaN behind it."""
    p = se3.transform(T_camera_world, p_world)
    z = np.where(p[:, 2] > 1e-6, p[:, 2], np.nan)
    x = p[:, :2] / z[:, None]
    r2 = np.sum(x**2, axis=1)
    bend = 1.0 + lens[:, 3] * r2 + lens[:, 4] * r2**2
    return p, lens[:, :1] * lens[:, 5:7] * bend[:, None] * x + lens[:, 1:3]


def _rays(px: Float[np.ndarray, "o 2"], lens: Float[np.ndarray, "o 7"]) -> Float[np.ndarray, "o 2"]:
    """Returns x/z and y/z of pixels, with the lens's bend taken out by a few fixed-point steps."""
    seen = (px - lens[:, 1:3]) / (lens[:, :1] * lens[:, 5:7])
    x = seen
    for _ in range(5):
        r2 = np.sum(x**2, axis=1, keepdims=True)
        x = seen / (1.0 + lens[:, 3:4] * r2 + lens[:, 4:5] * r2**2)
    return x


def triangulate(
    t: Tracks, use: Bool[np.ndarray, " o"], T_camera_world: Float[np.ndarray, "n 4 4"], lens: Float[np.ndarray, "n 7"]
) -> tuple[Float[np.ndarray, "p 3"], Bool[np.ndarray, " p"]]:
    """Returns the points that are nearest to their rays, and which of them are seen under a sufficient angle."""
    frame, track = t.frame[use], t.track[use]
    x = _rays(t.px[use], lens[frame])
    T_world_camera = se3.inverse(T_camera_world[frame])
    d = (T_world_camera[:, :3, :3] @ np.column_stack([x, np.ones(len(x))])[..., None])[..., 0]
    d = d / np.linalg.norm(d, axis=1, keepdims=True)
    eye = T_world_camera[:, :3, 3]
    across = np.eye(3) - d[:, :, None] * d[:, None, :]
    A, b, mean = np.zeros((t.count, 3, 3)), np.zeros((t.count, 3)), np.zeros((t.count, 3))
    np.add.at(A, track, across)
    np.add.at(b, track, (across @ eye[..., None])[..., 0])
    np.add.at(mean, track, d)
    times = np.bincount(track, minlength=t.count)
    mean = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-9)
    apart = np.zeros(t.count)
    np.maximum.at(apart, track, 2 * np.arccos(np.clip(np.sum(d * mean[track], axis=1), -1, 1)))
    ok = (times >= 2) & (apart > _MIN_ANGLE_RAD)
    points = np.zeros((t.count, 3))
    points[ok] = np.linalg.solve(A[ok] + 1e-12 * np.eye(3), b[ok][..., None])[..., 0]
    in_front = np.ones(t.count, bool)
    in_front[track[np.sum((points[track] - eye) * d, axis=1) <= 0]] = False
    return points, ok & in_front


@dataclass(frozen=True, eq=False)
class Bundle:
    """Levenberg-Marquardt over poses, lenses and points; the points are eliminated (Schur complement).

    The first `free` points may move; those behind, the board's corners, may not.
    """

    frame: Int[np.ndarray, " o"]
    point: Int[np.ndarray, " o"]
    px: Float[np.ndarray, "o 2"]
    sd: Float[np.ndarray, " o"]
    """[px]"""
    free: int
    lens_of: Int[np.ndarray, " n"]
    start: Float[np.ndarray, "g 7"]
    """Nominal intrinsics."""
    prior: Float[np.ndarray, "g 5"]
    located: Bool[np.ndarray, " n"]
    cut: float = field(default=2.5)
    """Residuals beyond this many standard deviations count less and less (Cauchy)."""

    def solve(
        self, T: Float[np.ndarray, "n 4 4"], lens: Float[np.ndarray, "g 7"], X: Float[np.ndarray, "p 3"], steps: int
    ) -> tuple[Float[np.ndarray, "n 4 4"], Float[np.ndarray, "g 7"], Float[np.ndarray, "p 3"]]:
        """Returns better poses (T_camera_world), lenses and points."""
        damping, cost = 1e-4, self._cost(T, lens, X)
        for _ in range(steps):
            S, g, Vi, W, gp = self._system(T, lens, X, damping)
            dc = np.linalg.solve(S, g)
            dp = (Vi @ (gp - W.T @ dc).reshape(-1, 3, 1))[..., 0]
            n = len(T)
            T_new = se3.exp(dc[: 6 * n].reshape(n, 6)) @ T
            lens_new, X_new = lens.copy(), X.copy()
            lens_new[:, :5] += dc[6 * n :].reshape(-1, 5)
            X_new[: self.free] += dp
            new = self._cost(T_new, lens_new, X_new)
            if new < cost:
                small = cost - new < 1e-5 * cost
                T, lens, X, cost, damping = T_new, lens_new, X_new, new, max(damping / 5, 1e-8)
                if small:
                    break
            else:
                damping *= 10
        return T, lens, X

    def spread(
        self, T: Float[np.ndarray, "n 4 4"], lens: Float[np.ndarray, "g 7"], X: Float[np.ndarray, "p 3"]
    ) -> tuple[float, float]:
        """Returns the standard deviation of a camera's position (median) [m] and of the scale of all positions [1]."""
        S = self._system(T, lens, X, 0.0)[0]
        covariance = np.linalg.inv(S)
        n, k = len(T), np.flatnonzero(self.located)
        T_world_camera = se3.inverse(T)
        # A step [v, w] moves the camera's centre by -R v: to first order w turns it about itself.
        J = np.zeros((3 * n, 6 * n))
        for i in k:
            J[3 * i : 3 * i + 3, 6 * i : 6 * i + 3] = -T_world_camera[i, :3, :3]
        C = J @ covariance[: 6 * n, : 6 * n] @ J.T
        variance = np.diag(C).reshape(n, 3)[k].mean(axis=1)
        arm = np.zeros((n, 3))
        arm[k] = T_world_camera[k, :3, 3] - T_world_camera[k, :3, 3].mean(axis=0)
        unit = (arm / np.sum(arm**2)).ravel()
        return float(np.sqrt(np.median(variance))), float(np.sqrt(unit @ C @ unit))

    def _cost(self, T: np.ndarray, lens: np.ndarray, X: np.ndarray) -> float:
        _, uv = project(X[self.point], T[self.frame], lens[self.lens_of[self.frame]])
        r2 = np.sum(((uv - self.px) / self.sd[:, None]) ** 2, axis=1)
        r2 = np.where(np.isfinite(r2), r2, 1e6)
        prior = (lens[:, :5] - self.start[:, :5]) / self.prior
        return float(self.cut**2 * np.sum(np.log1p(r2 / self.cut**2)) + np.sum(prior**2))

    def _system(self, T: np.ndarray, lens: np.ndarray, X: np.ndarray, damping: float) -> tuple[Any, ...]:
        """Returns the reduced normal equations of the cameras, and what brings the points back."""
        from scipy.sparse import bsr_array, csr_array

        n, groups, o = len(T), len(lens), len(self.px)
        L = lens[self.lens_of[self.frame]]
        p, uv = project(X[self.point], T[self.frame], L)
        r = (self.px - uv) / self.sd[:, None]
        ok = np.isfinite(r.sum(axis=1))
        r2 = np.where(ok, np.sum(r**2, axis=1), 0.0)
        weight = np.where(ok, np.sqrt(1.0 / (1.0 + r2 / self.cut**2)), 0.0) / self.sd
        r = np.where(ok[:, None], (self.px - uv) * weight[:, None], 0.0)
        z = np.where(ok, p[:, 2], 1.0)
        x = p[:, :2] / z[:, None]
        rr = np.sum(x**2, axis=1)
        bend = 1.0 + L[:, 3] * rr + L[:, 4] * rr**2
        focal = L[:, :1] * L[:, 5:7]
        D = bend[:, None, None] * np.eye(2) + 2 * (L[:, 3] + 2 * L[:, 4] * rr)[:, None, None] * (
            x[:, :, None] * x[:, None, :]
        )
        Pi = np.zeros((o, 2, 3))
        Pi[:, 0, 0] = Pi[:, 1, 1] = 1 / z
        Pi[:, :, 2] = -x / z[:, None]
        to_point = focal[:, :, None] * (D @ Pi) * weight[:, None, None]
        J_pose = np.concatenate([to_point, -to_point @ se3.hat(p)], axis=2)
        straight = focal * x
        J_lens = np.zeros((o, 2, 5))
        J_lens[:, :, 0] = L[:, 5:7] * bend[:, None] * x
        J_lens[:, 0, 1] = J_lens[:, 1, 2] = 1.0
        J_lens[:, :, 3] = straight * rr[:, None]
        J_lens[:, :, 4] = straight * rr[:, None] ** 2
        J_lens *= weight[:, None, None]
        Jc = np.concatenate([J_pose, J_lens], axis=2)
        columns = np.concatenate(
            [6 * self.frame[:, None] + np.arange(6), 6 * n + 5 * self.lens_of[self.frame][:, None] + np.arange(5)],
            axis=1,
        )
        size = 6 * n + 5 * groups
        jc = csr_array(
            (Jc.ravel(), np.repeat(columns, 2, axis=0).ravel(), np.arange(0, 22 * o + 1, 11)), shape=(2 * o, size)
        )
        H = np.asarray((jc.T @ jc).todense())
        g = jc.T @ r.ravel()
        lens_part = np.arange(6 * n, size)
        H[lens_part, lens_part] += 1.0 / self.prior.ravel() ** 2
        g[lens_part] += ((self.start[:, :5] - lens[:, :5]) / self.prior**2).ravel()
        H[np.arange(size), np.arange(size)] += damping * np.diag(H) + 1e-9
        moves = np.flatnonzero(self.point < self.free)
        m = self.free
        Jp = to_point[moves] @ T[self.frame[moves], :3, :3]
        at = self.point[moves]
        jp = csr_array(
            (
                Jp.ravel(),
                np.repeat(3 * at[:, None] + np.arange(3), 2, axis=0).ravel(),
                np.arange(0, 6 * len(at) + 1, 3),
            ),
            shape=(2 * len(at), 3 * m),
        )
        V = np.zeros((m, 3, 3))
        np.add.at(V, at, np.swapaxes(Jp, 1, 2) @ Jp)
        V += damping * V * np.eye(3) + 1e-9 * np.eye(3)
        Vi = np.linalg.inv(V)
        gp = jp.T @ r[moves].ravel()
        W = jc[np.column_stack([2 * moves, 2 * moves + 1]).ravel()].T @ jp
        WV = W @ bsr_array((Vi, np.arange(m), np.arange(m + 1)), shape=(3 * m, 3 * m)) if m else W
        S = H - (WV @ W.T).todense() if m else H
        return np.asarray(S), g - WV @ gp, Vi, W, gp
