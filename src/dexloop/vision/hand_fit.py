"""One skeleton through a whole video: the hand whose landmarks fall on those that were seen.

One camera tells little about depth. What fixes it: bones keep their lengths, joints bend as those of a hand about a
grasp, and nothing jerks. All frames are solved together by Levenberg-Marquardt; since a frame only meets the two
before it, the equations are a narrow band, bordered by the bone lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from dexloop.core import se3
from dexloop.vision.hand_skeleton import ANGLES_MEAN, ANGLES_SD, GAUGE, LENGTHS, PALM, UNKNOWNS, Posture, palm

_PIXEL_SHARE = np.full(21, 0.03)
_PIXEL_SHARE[[0, 1, 2, 3, 4, 18, 19, 20]] = 0.05
"""Standard deviations of landmarks in the picture, as a share of the hand's extent there. Wrist, thumb and little
finger err most: where a wrist begins is a matter of taste, and the others hide behind the hand."""
_OUTLIER = 3.0
"""Beyond so many standard deviations a landmark counts ever less (Cauchy's loss)."""
_WRIST_JERKS, _SHAPE_JERKS = np.array([5.0, 5.0, 0.3]), 1.0
"""How the hand accelerates, as white noise over one second: its wrist across the line of sight and along it, as a share
of its distance [1/s²]; its landmarks against the wrist [m/s²]. Depth is the one that must be smoothed. As a share,
because in metres a hand would seem calmer, and so better, the nearer it is."""
_LENGTH_SD = 0.3
"""Of the logarithm of a bone's length, for each frame: frames err alike, so more of them may not stretch it more."""
_REJECT, _REJECT_LEAST = 4.0, 20.0
"""A frame whose misfit is so many times the median, and at least so large, shows no hand of this skeleton."""
_NEAR, _START_FROM = 1e-3, 0.1
"""Nothing is nearer to the camera than this, and nothing starts nearer than that [m]."""
_ROUNDS = 3
_STEPS = 30
_SOME = 64
"""Frames that are solved first."""


@dataclass(frozen=True, eq=False)
class Fit:
    """What was found, in the camera's frame."""

    posture: Posture
    trust: Float[np.ndarray, " n"]
    """How much each frame counted, 0 to 1; at 0 it was not used, and the hand only moves smoothly through it."""


def fit_skeleton(
    rays: Float[np.ndarray, "n 21 2"],
    shape: Float[np.ndarray, "n 21 3"],
    seen: Bool[np.ndarray, " n"],
    t: Float[np.ndarray, " n"],
    hand_length_m: float,
) -> Fit:
    """Fits a right hand to what was seen of it.

    Args:
        rays: Landmarks in the picture, as x/z and y/z.
        shape: MediaPipe's shape of the hand, in the camera's axes. Only its palm is used, and only to start from: what
            it says of the depth of fingers is a guess (thumbs that point away were seen to point at the camera).
        seen: Which frames hold a hand; the first and the last do.
        t: [s]
        hand_length_m: From the wrist to the middle finger's knuckle [m].
    """
    # Some frames first: they tell the bone lengths, and from there all of them need but a few steps.
    some = np.flatnonzero(seen)
    some = some[np.unique(np.linspace(0, len(some) - 1, _SOME).round().astype(int))]
    seen, lengths = seen.copy(), hand_length_m * LENGTHS
    posture, trust = _from_the_start(rays[some], shape[some], np.ones(len(some)), t[some], lengths)
    for _ in range(_ROUNDS - 1):
        fine = trust > 0
        seen[some[~fine]] = False
        some = some[fine]
        posture, trust = _from_the_start(rays[some], shape[some], trust[fine], t[some], lengths)
    trust = seen * np.interp(t, t[some], trust)
    posture = posture.between(t[some], t)
    for _ in range(_ROUNDS - 1):
        problem = _Problem(rays, trust, t, posture.lengths, stretch=False)
        posture = problem.solve(posture)
        trust = _trust(np.where(trust > 0, problem.misfit(posture), np.nan))
        posture = posture.chosen(trust > 0).between(t[trust > 0], t)
    return Fit(_Problem(rays, trust, t, posture.lengths, stretch=False).solve(posture), trust)


def _from_the_start(
    rays: Float[np.ndarray, "n 21 2"],
    shape: Float[np.ndarray, "n 21 3"],
    trust: Float[np.ndarray, " n"],
    t: Float[np.ndarray, " n"],
    lengths: Float[np.ndarray, "5 4"],
) -> tuple[Posture, Float[np.ndarray, " n"]]:
    """Returns the posture in frames that were all seen, and how far to trust each of them from now on."""
    problem = _Problem(rays, trust, t, lengths, stretch=True)
    posture = problem.solve(problem.start(shape), damping=1e-3)
    return posture, _trust(problem.misfit(posture))


def _trust(misfit: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """How much frames count, 0 to 1: what fits worse than most counts ever less, and nothing if no hand explains it."""
    usual = max(float(np.nanmedian(misfit)), 1.0)
    trust = np.minimum(1.0, usual / np.maximum(misfit, 1e-9)) ** 2
    return np.where(misfit <= max(_REJECT * usual, _REJECT_LEAST), trust, 0.0)


class _Problem:
    """The least squares of one video.

    Args:
        rays: Landmarks in the picture, as x/z and y/z.
        trust: How much each frame counts. At 0 it has no landmarks, and no wish for any posture.
        t: [s]
        lengths: Of the bones, or what is known of them beforehand [m].
        stretch: Whether the lengths are unknown, too.
    """

    def __init__(
        self,
        rays: Float[np.ndarray, "n 21 2"],
        trust: Float[np.ndarray, " n"],
        t: Float[np.ndarray, " n"],
        lengths: Float[np.ndarray, "5 4"],
        *,
        stretch: bool,
    ):
        seen = trust > 0
        self.trust, self.seen, self.t, self.lengths = trust, seen, t, lengths
        self.unknowns = UNKNOWNS + (20 if stretch else 0)
        self.rays = np.where(seen[:, None, None], rays, 0.0)
        extent = np.linalg.norm(np.ptp(rays[seen], axis=1), axis=1)
        self.weight = seen[:, None, None] / (_PIXEL_SHARE[:, None] * float(np.median(extent)))
        before, after = np.diff(t)[:-1], np.diff(t)[1:]
        span = before + after
        second = np.stack([2 / (before * span), -2 / (before * after), 2 / (after * span)], axis=1)
        self.second = second * np.sqrt(0.5 * span)[:, None]
        stiffness = np.full(20, np.sqrt(seen.sum()) / _LENGTH_SD)
        stiffness[GAUGE] *= 1e3  # nothing else in a picture tells how large the hand is
        self.stiffness = stiffness

    def start(self, shape: Float[np.ndarray, "n 21 3"]) -> Posture:
        """Returns the mean posture, placed by the palm in each frame."""
        own = palm(self.lengths)
        rays = self.rays[self.seen]
        # MediaPipe sees the hand as if it were straight ahead: its axes are those of a camera turned towards it.
        x, y = rays.mean(axis=1).T
        off = np.hypot(x, y)
        axis = np.stack([-y, x, np.zeros_like(x)], axis=1) / np.maximum(off, 1e-12)[:, None]
        toward = se3.quat_to_matrix(se3.so3_exp(np.arctan(off)[:, None] * axis))
        seen_palm = shape[self.seen][:, PALM] @ np.swapaxes(toward, 1, 2)
        R = _rotation(own - own.mean(axis=0), seen_palm - seen_palm.mean(axis=1, keepdims=True))
        wrist = _place(rays[:, PALM], own @ np.swapaxes(R, 1, 2))
        wrist[:, 2] = np.maximum(wrist[:, 2], _START_FROM)
        one = Posture(wrist, R, np.tile(ANGLES_MEAN, (len(R), 1, 1)), self.lengths)
        return one.between(self.t[self.seen], self.t)

    def misfit(self, posture: Posture) -> Float[np.ndarray, " n"]:
        """Returns how badly each frame is explained: robust pixels and unusual angles, in squared deviations."""
        off = self._off(posture.landmarks())
        pixels = _OUTLIER**2 * np.log1p((off**2).sum(axis=-1) / _OUTLIER**2).sum(axis=-1)
        angles = (((posture.angles - ANGLES_MEAN) / ANGLES_SD) ** 2).sum(axis=(1, 2))
        return pixels + self.seen * angles

    def cost(self, posture: Posture) -> float:
        """Returns what is made least."""
        stretch = self.stiffness * np.log(posture.lengths / self.lengths).ravel()
        jerks = self._jerks(_motion(posture.landmarks()))
        return float(self.trust @ self.misfit(posture) + (jerks**2).sum() + (stretch**2).sum())

    def solve(self, posture: Posture, *, damping: float = 1e-5) -> Posture:
        """Goes downhill from a posture until that no longer helps; from a poor one with more damping."""
        cost = self.cost(posture)
        for _ in range(_STEPS):
            equations = self.equations(posture)
            while damping < 1e6:
                tried = posture.moved(*equations.step(damping))
                value = self.cost(tried)
                if value < cost:
                    break
                damping *= 10.0
            else:
                break
            gain, posture, cost = (cost - value) / cost, tried, value
            damping = max(0.1 * damping, 1e-6)
            if gain < 3e-4:
                break
        return posture

    def equations(self, posture: Posture) -> _Equations:
        """Returns the normal equations of a posture."""
        n = len(self.t)
        points, by = posture.derivatives()
        by = by[:, : self.unknowns]
        off = self._off(points)
        # Cauchy's loss, as least squares with weights.
        counts = self.trust[:, None, None] / (1.0 + (off**2).sum(axis=-1, keepdims=True) / _OUTLIER**2)
        root, depth = np.sqrt(counts), np.maximum(points[..., 2:], _NEAR)
        uv, scale = points[..., :2] / depth, root * self.weight / depth
        J = ((by[..., :2] - uv[:, None] * by[..., 2:]) * scale[:, None]).reshape(n, -1, 42)
        A, g = J @ np.swapaxes(J, 1, 2), (J @ (root * off).reshape(n, 42, 1))[..., 0]

        own = self.trust[:, None] / ANGLES_SD.ravel() ** 2
        A[:, range(6, UNKNOWNS), range(6, UNKNOWNS)] += own
        g[:, 6:UNKNOWNS] += own * (posture.angles - ANGLES_MEAN).reshape(n, 20)

        by = _motion_by(points, by).reshape(n, -1, 63)
        pull, same, next_, second_next = self._pull(_motion(points))
        g += (by @ pull.reshape(n, 63, 1))[..., 0]
        # How bone lengths meet the acceleration is left out of the matrix (not of the slope): it is next to nothing.
        step = by[:, :UNKNOWNS]
        H = A[:, :UNKNOWNS, :UNKNOWNS] + same[:, None, None] * (step @ np.swapaxes(step, 1, 2))
        one = next_[:, None, None] * (step[:-1] @ np.swapaxes(step[1:], 1, 2))
        two = second_next[:, None, None] * (step[:-2] @ np.swapaxes(step[2:], 1, 2))
        corner, g_length = A[:, UNKNOWNS:, UNKNOWNS:].sum(axis=0), g[:, UNKNOWNS:].sum(axis=0)
        if len(g_length):
            corner += np.diag(self.stiffness**2)
            g_length += self.stiffness**2 * np.log(posture.lengths / self.lengths).ravel()
        return _Equations(H, one, two, A[:, :UNKNOWNS, UNKNOWNS:], corner, g[:, :UNKNOWNS], g_length)

    def _off(self, points: Float[np.ndarray, "n 21 3"]) -> Float[np.ndarray, "n 21 2"]:
        """How far landmarks are from where they were seen, in standard deviations."""
        uv = points[..., :2] / np.maximum(points[..., 2:], _NEAR)
        return (uv - self.rays) * self.weight

    def _jerks(self, motion: Float[np.ndarray, "n 21 3"]) -> Float[np.ndarray, "n-2 21 3"]:
        a, b, c = (self.second[:, k, None, None] for k in range(3))
        return a * motion[:-2] + b * motion[1:-1] + c * motion[2:]

    def _pull(
        self, motion: Float[np.ndarray, "n 21 3"]
    ) -> tuple[
        Float[np.ndarray, "n 21 3"], Float[np.ndarray, " n"], Float[np.ndarray, " n-1"], Float[np.ndarray, " n-2"]
    ]:
        """Half the slope of the squared accelerations, and their matrix: its diagonal and the two beside it."""
        n, jerks, (a, b, c) = len(motion), self._jerks(motion), self.second.T
        pull, same, next_ = np.zeros_like(motion), np.zeros(n), np.zeros(n - 1)
        for k, weight in enumerate((a, b, c)):
            pull[k : n - 2 + k] += weight[:, None, None] * jerks
            same[k : n - 2 + k] += weight**2
        next_[:-1] += a * b
        next_[1:] += b * c
        return pull, same, next_, a * c


def _motion(points: Float[np.ndarray, "n 21 3"]) -> Float[np.ndarray, "n 21 3"]:
    """What should not jerk, in standard deviations: x/z, y/z and log z of the wrist, and the others seen from it."""
    out = (points - points[:, :1]) / _SHAPE_JERKS
    x, y, z = points[:, 0].T
    z = np.maximum(z, _NEAR)
    out[:, 0] = np.stack([x / z, y / z, np.log(z)], axis=1) / _WRIST_JERKS
    return out


def _motion_by(points: Float[np.ndarray, "n 21 3"], by: Float[np.ndarray, "n k 21 3"]) -> Float[np.ndarray, "n k 21 3"]:
    """How `_motion` changes, where the landmarks change by `by`."""
    out = (by - by[:, :, :1]) / _SHAPE_JERKS
    z = np.maximum(points[:, 0, 2], _NEAR)[:, None]
    wrist = by[:, :, 0] / z[..., None]
    wrist[..., :2] -= wrist[..., 2:] * (points[:, 0, :2] / z)[:, None]
    out[:, :, 0] = wrist / _WRIST_JERKS
    return out


@dataclass(frozen=True, eq=False)
class _Equations:
    """Normal equations: blocks of the frames, of neighbours one and two apart, and the bone lengths as a border.

    Where the lengths are known, the border is empty.
    """

    same: Float[np.ndarray, "n 26 26"]
    next_: Float[np.ndarray, "n-1 26 26"]
    second_next: Float[np.ndarray, "n-2 26 26"]
    border: Float[np.ndarray, "n 26 b"]
    corner: Float[np.ndarray, "b b"]
    g: Float[np.ndarray, "n 26"]
    g_length: Float[np.ndarray, " b"]

    def step(self, damping: float) -> tuple[Float[np.ndarray, "n 26"], Float[np.ndarray, "20"]]:
        """Returns the step of the frames and the stretch of the bones, with a diagonal raised by the damping."""
        from scipy.linalg import solveh_banded

        n, p = self.g.shape
        band = np.zeros((n, p, 3 * p))  # the lower part, column by column: 2 p below the diagonal, and one block more
        row, column = np.tril_indices(p)
        band[:, column, row - column] = self.same[:, row, column]
        band[:, range(p), 0] *= 1.0 + damping
        k = np.arange(p)
        for block, apart in ((self.next_, p), (self.second_next, 2 * p)):
            band[: len(block), k[:, None], apart + k[None, :] - k[:, None]] = block
        right = np.concatenate([self.g[..., None], self.border], axis=2).reshape(n * p, -1)
        solved = solveh_banded(band.reshape(n * p, -1).T, right, lower=True, check_finite=False)
        border = self.border.reshape(n * p, -1)
        corner = self.corner + damping * np.diag(np.diag(self.corner)) - border.T @ solved[:, 1:]
        stretch = -np.linalg.solve(corner, self.g_length - border.T @ solved[:, 0])
        step = (-solved[:, 0] - solved[:, 1:] @ stretch).reshape(n, p)
        return step, stretch if len(stretch) else np.zeros(20)


def _rotation(own: Float[np.ndarray, "m 3"], seen: Float[np.ndarray, "n m 3"]) -> Float[np.ndarray, "n 3 3"]:
    """Rotations that bring points about their middle closest to others (Kabsch)."""
    U, _, Vt = np.linalg.svd(np.swapaxes(seen, 1, 2) @ own)
    U[:, :, 2] *= np.sign(np.linalg.det(U @ Vt))[:, None]
    return U @ Vt


def _place(rays: Float[np.ndarray, "n m 2"], turned: Float[np.ndarray, "n m 3"]) -> Float[np.ndarray, "n 3"]:
    """Where points stand that are turned already: least squares of x - u z = 0 and y - v z = 0."""
    A = np.zeros((*rays.shape, 3))
    A[..., 0, 0] = A[..., 1, 1] = 1.0
    A[..., 2] = -rays
    A, b = A.reshape(len(rays), -1, 3), (rays * turned[..., 2:] - turned[..., :2]).reshape(len(rays), -1, 1)
    At = np.swapaxes(A, 1, 2)
    return np.linalg.solve(At @ A, At @ b)[..., 0]
