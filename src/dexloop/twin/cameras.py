"""Where each picture of a scan was taken from, in metres, with the table as the plane z = 0.

A printed board that some pictures show gives scale, gravity and the first poses; the others are joined to them by
features that they share, and everything is refined at once (bundle adjustment, corners of the board held where they
were printed). Without a board structure from motion (pycolmap) finds the shape of the way, and a known length or known
camera positions its size.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.core.status import Level, Status, worst
from dexloop.twin.frames import Frame
from dexloop.vision.board import Board, BoardView
from dexloop.vision.views import View

FEATURES = 1500
"""Kept in a picture."""
_PARTNERS = 10
"""Other pictures that each one is compared with."""
_FEATURE_SD_PX, _CORNER_SD_PX = 0.5, 0.15
"""How well features and the board's corners are seen."""
_OUTLIER_PX, _FINAL_OUTLIER_PX = 3.0, 1.5
"""Farther from where it should be a feature is a wrong match: while pictures are joined, and at the end [px]."""
_ADJUSTED = 4000
"""Points that take part in the bundle adjustment, those in most pictures first; more add time and no precision."""
_MIN_ANGLE_RAD = np.radians(2.0)
"""Between two rays to a point, below which its depth is not known."""
_FEWEST_FRAMES = 8
_FEWEST_SHARED = 25
"""Points that a picture must share with located ones to be located."""
_PRIOR_KNOWN = np.array([0.02, 6.0, 6.0, 0.02, 0.02])
_PRIOR_GUESSED = np.array([0.4, 12.0, 12.0, 0.1, 0.1])
"""How far intrinsics may be off: factor on the focal length [1], principal point [px], two radial terms [1]."""
_PRINT_SD = 5e-4
"""How far a printer's millimetre is off [1]."""
_UNKNOWN_DISTANCE_M = 0.45
"""From camera to object, assumed where nothing tells the scale [m]."""


@dataclass(frozen=True)
class KnownLength:
    """Two marks on the table in one picture, and how far they are apart."""

    frame: str
    """The picture's name."""
    a_px: tuple[float, float]
    b_px: tuple[float, float]
    metres: float


@dataclass(frozen=True)
class CameraQuality:
    """How well the cameras are known."""

    given: int
    """Pictures that were tried."""
    located: int
    """Pictures whose place was found."""
    with_board: int
    """Pictures that show the board."""
    reprojection_px: float
    """Root mean square distance of features from where they should be, outliers left out [px]."""
    board_px: float | None
    """The same for the board's corners [px]."""
    position_sd_m: float | None
    """Of a camera, median [m]."""
    scale_sd: float
    """Relative standard deviation of all lengths [1]."""
    around: float
    """Part of the full circle around the object that was seen, in steps of 30 degrees [1]."""
    widest_gap_deg: float
    """Between neighbouring viewing directions around the vertical [degrees]."""

    def to_json(self) -> dict[str, float | int | None]:
        """Returns plain JSON values."""
        return {k: getattr(self, k) for k in self.__dataclass_fields__}


@dataclass(frozen=True, eq=False)
class Cameras:
    """Located pictures. The world's z axis points up, and the table is the plane z = 0."""

    views: tuple[View, ...]
    """Undistorted, in the order of the scan."""
    points: Float[np.ndarray, "p 3"]
    """Points that several pictures share [m]."""
    colours: UInt8[np.ndarray, "p 3"]
    target: Float[np.ndarray, "3"]
    """What the cameras look at: the point nearest to all optical axes [m]."""
    quality: CameraQuality
    statuses: tuple[Status, ...]

    @property
    def status(self) -> Status:
        """The worst of what was found."""
        q = self.quality
        text = f"{q.located} of {q.given} pictures located, {q.reprojection_px:.2f} px"
        return worst(self.statuses, otherwise=Status(Level.OK, "located", text))


def locate(
    frames: Sequence[Frame],
    *,
    camera_known: bool = True,
    board: Board | None = None,
    T_world_board: Float[np.ndarray, "4 4"] | None = None,
    positions: Mapping[str, Float[np.ndarray, "3"]] | None = None,
    length: KnownLength | None = None,
) -> Cameras:
    """Finds where pictures were taken from.

    Args:
        frames: Pictures of a scene that does not move.
        camera_known: Whether the frames' intrinsics are known to a percent or so, or guessed.
        board: Lies on the table; where the pictures show it, it gives scale, gravity and the table.
        T_world_board: Where it lies; by default its middle is the world's origin.
        positions: Where cameras were, by the frames' names [m]; for scans without a board.
        length: A length on the table; for scans without a board.

    Raises:
        InputError: The scan cannot be solved; the message says why and what to film again.
        MissingPart: There is no board, and pycolmap is not installed.
    """
    if len(frames) < _FEWEST_FRAMES:
        raise InputError(
            f"{len(frames)} pictures are too few to locate cameras: walk once around the object and take "
            f"{_FEWEST_FRAMES} or more, better 40"
        )
    seen = {k: v for k, f in enumerate(frames) if board and (v := board.detect(f.rgb, f.camera)) and v.rms_px < 3.0}
    if not seen:
        return _without_board(frames, camera_known, board, positions, length)
    T = np.eye(4) if T_world_board is None else np.asarray(T_world_board, dtype=np.float64)
    scan = _Scan(frames, seen, T, camera_known)
    scan.join()
    return scan.result()


class _Scan:
    """The state of a scan that is being solved with the help of a board."""

    def __init__(
        self, frames: Sequence[Frame], seen: dict[int, BoardView], T_world_board: np.ndarray, camera_known: bool
    ):
        self.frames, self.seen = frames, seen
        self.lens, self.lens_of = _lenses([f.camera for f in frames])
        self.prior = np.tile(_PRIOR_KNOWN if camera_known else _PRIOR_GUESSED, (len(self.lens), 1))
        self.start = self.lens.copy()
        self.T = np.tile(np.eye(4), (len(frames), 1, 1))  # T_camera_world
        self.located = np.zeros(len(frames), bool)
        for k, view in seen.items():
            self.T[k] = view.T_camera_board @ se3.inverse(T_world_board)
            self.located[k] = True
        self.corner_frame = np.concatenate([np.full(len(v.ids), k) for k, v in seen.items()])
        self.corner_px = np.concatenate([v.corners_px for v in seen.values()])
        self.corner_world = np.concatenate([se3.transform(T_world_board, v.corners_board) for v in seen.values()])
        self.tracks = _Tracks(np.zeros(0, int), np.zeros(0, int), np.zeros((0, 2)), 0)
        self.points = np.zeros((0, 3))
        self.solved = np.zeros(0, bool)
        self.sd = (0.0, 0.0)

    def join(self) -> None:
        """Locates all pictures, starting from those that show the board."""
        if not np.isfinite(self.prior).all() or (self.prior[0, 0] > 0.1 and len(self.seen) > 2):
            self._adjust(20, features=False)  # a guessed focal length first, for poses hang on it
        features = _features(self.frames)
        self.tracks = _follow(features, len(self.frames))
        before = -1
        while before < (before := int(self.located.sum())) or before == 0:
            self._triangulate()
            self._locate_more()
            self._adjust(4)
        for _ in range(2):
            self._triangulate(_FINAL_OUTLIER_PX)
            self._adjust(8)
        self._triangulate(_FINAL_OUTLIER_PX)
        self._complain(features)
        self.sd = self._adjust(2, spread=True)

    def _locate_more(self) -> None:
        import cv2

        t = self.tracks
        for k in np.flatnonzero(~self.located):
            mine = (t.frame == k) & self.solved[t.track]
            if mine.sum() < _FEWEST_SHARED:
                continue
            s, cx, cy, k1, k2, fx, fy = self.lens[self.lens_of[k]]
            K = np.array([[s * fx, 0, cx], [0, s * fy, cy], [0, 0, 1.0]])
            found, turn, shift, inliers = cv2.solvePnPRansac(
                self.points[t.track[mine]], t.px[mine], K, np.array([k1, k2, 0.0, 0.0]), iterationsCount=300,
                reprojectionError=4.0, confidence=0.999, flags=cv2.SOLVEPNP_SQPNP,
            )  # fmt: skip
            if not found or inliers is None or len(inliers) < max(_FEWEST_SHARED // 2, 0.3 * mine.sum()):
                continue
            R = se3.quat_to_matrix(se3.so3_exp(np.asarray(turn, np.float64).ravel()))
            self.T[k], self.located[k] = se3.from_rt(R, np.asarray(shift, np.float64).ravel()), True

    def _triangulate(self, limit_px: float = _OUTLIER_PX) -> None:
        t = self.tracks
        use = self.located[t.frame]
        self.points, self.solved = _triangulate(t, use, self.T, self.lens[self.lens_of])
        _, uv = _project(self.points[t.track], self.T[t.frame], self.lens[self.lens_of[t.frame]])
        far = use & self.solved[t.track] & ~(np.linalg.norm(uv - t.px, axis=1) < limit_px)
        if far.any():  # a wrong match is taken out for good, and its point solved again without it
            self.tracks = t = t.without(far)
            use = self.located[t.frame]
            self.points, self.solved = _triangulate(t, use, self.T, self.lens[self.lens_of])
            _, uv = _project(self.points[t.track], self.T[t.frame], self.lens[self.lens_of[t.frame]])
            bad = np.zeros(t.count, bool)
            bad[t.track[use & ~(np.linalg.norm(uv - t.px, axis=1) < limit_px)]] = True
            self.solved &= ~bad

    def _adjust(self, steps: int, *, features: bool = True, spread: bool = False) -> tuple[float, float]:
        """Refines everything; returns the spread of positions [m] and of scale [1] where asked for."""
        t = self.tracks
        use = self.located[t.frame] & self.solved[t.track] if features and t.count else np.zeros(len(t.frame), bool)
        times = np.bincount(t.track[use], minlength=t.count)
        if t.count > _ADJUSTED:
            use &= (times >= max(np.partition(times, -_ADJUSTED)[-_ADJUSTED], 2))[t.track]
        which, track = np.unique(t.track[use], return_inverse=True)
        problem = _Bundle(
            frame=np.concatenate([t.frame[use], self.corner_frame]),
            point=np.concatenate([track, len(which) + np.arange(len(self.corner_px))]),
            px=np.concatenate([t.px[use], self.corner_px]),
            sd=np.repeat([_FEATURE_SD_PX, _CORNER_SD_PX], [use.sum(), len(self.corner_px)]),
            free=len(which), lens_of=self.lens_of, start=self.start, prior=self.prior, located=self.located,
        )  # fmt: skip
        X = np.concatenate([self.points[which], self.corner_world])
        self.T, self.lens, X = problem.solve(self.T, self.lens, X, steps)
        self.points[which] = X[: len(which)]
        return problem.spread(self.T, self.lens, X) if spread else (0.0, 0.0)

    def _complain(self, features: Sequence[_Features]) -> None:
        located, n = int(self.located.sum()), len(self.frames)
        if located >= max(_FEWEST_FRAMES, 0.3 * n):
            return
        raise InputError(
            f"only {located} of {n} pictures could be located ({len(self.seen)} of them show the board): "
            + _why(features, self.tracks)
        )

    def result(self) -> Cameras:
        """Returns what was found, with pictures undistorted."""
        t = self.tracks
        use = self.located[t.frame] & self.solved[t.track]
        _, uv = _project(self.points[t.track[use]], self.T[t.frame[use]], self.lens[self.lens_of[t.frame[use]]])
        on = self.corner_frame
        _, corner = _project(self.corner_world, self.T[on], self.lens[self.lens_of[on]])
        seen_by = np.bincount(t.track[use], minlength=t.count)
        keep = self.solved & (seen_by >= 3)
        colours = _colours(t, use & keep[t.track], self.frames)[keep]
        views = _undistorted(self.frames, self.located, self.T, self.lens[self.lens_of])
        return _cameras(
            views,
            self.points[keep],
            colours,
            given=len(self.frames),
            with_board=len(self.seen),
            reprojection_px=_rms(uv - t.px[use]),
            board_px=_rms(corner - self.corner_px),
            position_sd_m=self.sd[0],
            scale_sd=float(np.hypot(self.sd[1], _PRINT_SD)),
        )


# ------------------------------------------------------------------------------------------------ features and tracks


@dataclass(frozen=True, eq=False)
class _Features:
    px: Float[np.ndarray, "n 2"]
    describes: Float[np.ndarray, "n 128"]


@dataclass(frozen=True, eq=False)
class _Tracks:
    """Observations of points in pictures, sorted by nothing."""

    frame: Int[np.ndarray, " o"]
    track: Int[np.ndarray, " o"]
    px: Float[np.ndarray, "o 2"]
    count: int

    def without(self, drop: Bool[np.ndarray, " o"]) -> _Tracks:
        return _Tracks(self.frame[~drop], self.track[~drop], self.px[~drop], self.count)


def _features(frames: Sequence[Frame]) -> list[_Features]:
    """Finds features in all pictures: root-SIFT, as Arandjelović and Zisserman (2012)."""
    import cv2

    def find(frame: Frame) -> _Features:
        grey = cv2.cvtColor(frame.rgb, cv2.COLOR_RGB2GRAY)
        sift = cv2.SIFT_create(nfeatures=FEATURES, contrastThreshold=0.02, enable_precise_upscale=True)  # type: ignore[attr-defined]
        points, describes = sift.detectAndCompute(grey, None)  # type: ignore[call-overload]
        if not points:
            return _Features(np.zeros((0, 2)), np.zeros((0, 128), np.float32))
        order = np.argsort([-p.response for p in points])[:FEATURES]
        d = np.asarray(describes, np.float32)[order]
        px = np.array([p.pt for p in points])[order]
        return _Features(px, np.sqrt(d / np.maximum(d.sum(axis=1, keepdims=True), 1e-9)))

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(find, frames))


def _follow(features: Sequence[_Features], n: int) -> _Tracks:
    """Matches pictures that show the same, and joins matches to tracks."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = _partners(features)
    with ThreadPoolExecutor(2) as pool:
        matches = list(pool.map(lambda pair: _match(features[pair[0]], features[pair[1]]), pairs))
    start = np.concatenate([[0], np.cumsum([len(f.px) for f in features])])
    a = np.concatenate([[], *(start[i] + m[:, 0] for (i, _), m in zip(pairs, matches, strict=True))]).astype(int)
    b = np.concatenate([[], *(start[j] + m[:, 1] for (_, j), m in zip(pairs, matches, strict=True))]).astype(int)
    size = int(start[-1])
    _, label = connected_components(coo_array((np.ones(len(a)), (a, b)), shape=(size, size)), directed=False)
    frame = np.repeat(np.arange(n), np.diff(start))
    px = np.concatenate([f.px for f in features])
    # A point appears once in a picture: where a track says otherwise, that picture does not know which it is.
    _, which, times = np.unique(label.astype(np.int64) * n + frame, return_inverse=True, return_counts=True)
    once = times[which] == 1
    in_track = np.bincount(label[once], minlength=int(label.max(initial=0)) + 1)
    keep = once & (in_track[label] >= 2)
    _, track = np.unique(label[keep], return_inverse=True)
    return _Tracks(frame[keep], track, px[keep], int(track.max(initial=-1)) + 1)


def _partners(features: Sequence[_Features], few: int = 250) -> list[tuple[int, int]]:
    """Returns pairs of pictures to compare: those whose strongest features look most alike, and neighbours."""
    n = len(features)
    alike = np.zeros((n, n))
    strong = [f.describes[:few] for f in features]
    for i in range(n):
        rest = np.concatenate([np.zeros((0, 128), np.float32), *strong[i + 1 :]])
        if not len(rest) or not len(strong[i]):
            continue
        score = strong[i] @ rest.T  # cosine of the angle between root-SIFT descriptors
        edges = np.cumsum([0, *(len(s) for s in strong[i + 1 :])])
        for j, (lo, hi) in enumerate(itertools.pairwise(edges), start=i + 1):
            alike[i, j] = alike[j, i] = (score[:, lo:hi].max(axis=1, initial=0) > 0.9).sum()
    near = np.abs(np.arange(n)[:, None] - np.arange(n)[None])
    alike[(near > 0) & (near <= 3)] += few
    best = np.argsort(-alike, axis=1)[:, : min(_PARTNERS, n - 1)]
    pairs = {(min(i, int(j)), max(i, int(j))) for i in range(n) for j in best[i] if j != i and alike[i, j] > 0}
    return sorted(pairs)


def _match(a: _Features, b: _Features) -> Int[np.ndarray, "m 2"]:
    """Returns pairs of features that are each other's nearest, clearly so, and fit one epipolar geometry."""
    import cv2

    none = np.zeros((0, 2), int)
    if min(len(a.px), len(b.px)) < 16:
        return none
    score = a.describes @ b.describes.T
    best = np.argmax(score, axis=1)
    rows = np.arange(len(score))
    top = score[rows, best]
    back = np.argmax(score, axis=0)
    score[rows, best] = -1.0
    second = score.max(axis=1)
    ok = (back[best] == rows) & (2 - 2 * top < 0.8**2 * (2 - 2 * second)) & (top > 0.7)
    pair = np.column_stack([rows[ok], best[ok]])
    if len(pair) < 16:
        return none
    _, good = cv2.findFundamentalMat(a.px[pair[:, 0]], b.px[pair[:, 1]], cv2.USAC_MAGSAC, 1.5, 0.999, 2000)
    if good is None or good.sum() < 12:
        return none
    return pair[good.ravel() > 0]


def _why(features: Sequence[_Features], tracks: _Tracks) -> str:
    """Says why pictures could not be joined."""
    found = float(np.median([len(f.px) for f in features]))
    if found < 150:
        return (
            f"there is hardly any detail in them (about {found:.0f} features in a picture). Film again in good light "
            f"and without shaking, and put something with a print under the object: a newspaper, a map"
        )
    shared = float(np.median(np.bincount(tracks.frame, minlength=len(features))))
    return (
        f"they hardly show the same things (about {shared:.0f} of {found:.0f} features in a picture are found again in "
        f"another). Film again in one slow walk around the object, without jumps, and keep everything else still"
    )


# ------------------------------------------------------------------------------------------------- bundle adjustment


def _lenses(cameras: Sequence[Camera]) -> tuple[Float[np.ndarray, "g 7"], Int[np.ndarray, " n"]]:
    """Returns one row [s, cx, cy, k1, k2, fx, fy] for each different camera, and which one each picture has.

    The focal lengths are s·fx and s·fy; k1 and k2 are OpenCV's radial terms.
    """
    rows = np.array([[1.0, c.cx, c.cy, 0.0, 0.0, c.fx, c.fy, c.width, c.height] for c in cameras])
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return different[:, :7].copy(), which.ravel()


def _project(
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


def _triangulate(
    t: _Tracks, use: Bool[np.ndarray, " o"], T_camera_world: Float[np.ndarray, "n 4 4"], lens: Float[np.ndarray, "n 7"]
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
class _Bundle:
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
        _, uv = _project(X[self.point], T[self.frame], lens[self.lens_of[self.frame]])
        r2 = np.sum(((uv - self.px) / self.sd[:, None]) ** 2, axis=1)
        r2 = np.where(np.isfinite(r2), r2, 1e6)
        prior = (lens[:, :5] - self.start[:, :5]) / self.prior
        return float(self.cut**2 * np.sum(np.log1p(r2 / self.cut**2)) + np.sum(prior**2))

    def _system(self, T: np.ndarray, lens: np.ndarray, X: np.ndarray, damping: float) -> tuple[Any, ...]:
        """Returns the reduced normal equations of the cameras, and what brings the points back."""
        from scipy.sparse import bsr_array, csr_array

        n, groups, o = len(T), len(lens), len(self.px)
        L = lens[self.lens_of[self.frame]]
        p, uv = _project(X[self.point], T[self.frame], L)
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


# --------------------------------------------------------------------------------------------------- without a board


def _without_board(
    frames: Sequence[Frame],
    camera_known: bool,
    board: Board | None,
    positions: Mapping[str, np.ndarray] | None,
    length: KnownLength | None,
) -> Cameras:
    with tempfile.TemporaryDirectory(prefix="dexloop-sfm-") as folder:
        model = _structure_from_motion(frames, camera_known, Path(folder))
    if model is None or model.num_reg_images() < max(_FEWEST_FRAMES, 0.3 * len(frames)):
        found = 0 if model is None else model.num_reg_images()
        features = _features(frames)
        missing = "none shows the marker board, and " if board else ""
        raise InputError(
            f"{missing}only {found} of {len(frames)} pictures could be located: "
            + _why(features, _follow(features, len(frames)))
        )
    pictures = {f.name: f.rgb for f in frames}
    solved = _read_model(model, pictures)
    why = "no picture shows the marker board" if board else "no marker board was given"
    return _metric(solved, given=len(frames), positions=positions, length=length, why=why)


def _structure_from_motion(frames: Sequence[Frame], camera_known: bool, folder: Path) -> Any:
    """Returns pycolmap's largest reconstruction, or None."""
    import cv2

    pycolmap = _pycolmap()
    pycolmap.logging.minloglevel = 2
    database = folder / "database.db"
    reader = pycolmap.ImageReaderOptions(camera_model="SIMPLE_RADIAL")
    extraction = pycolmap.FeatureExtractionOptions()
    extraction.sift.max_num_features = 3000
    for size in sorted({(f.camera.width, f.camera.height) for f in frames}):
        same = [f for f in frames if (f.camera.width, f.camera.height) == size]
        for frame in same:
            cv2.imwrite(str(folder / f"{frame.name}.png"), frame.rgb[..., ::-1])
        c = same[0].camera
        if camera_known:  # COLMAP counts pixels from the corner of the picture
            reader.camera_params = f"{0.5 * (c.fx + c.fy)},{c.cx + 0.5},{c.cy + 0.5},0"
        pycolmap.extract_features(
            database, folder, [f"{f.name}.png" for f in same], camera_mode=pycolmap.CameraMode.SINGLE,
            reader_options=reader, extraction_options=extraction,
        )  # fmt: skip
    pycolmap.match_exhaustive(database)
    options = pycolmap.IncrementalPipelineOptions(min_model_size=_FEWEST_FRAMES, random_seed=0, extract_colors=False)
    models = pycolmap.incremental_mapping(database, folder, folder / "sparse", options)
    return max(models.values(), key=lambda m: m.num_reg_images(), default=None)


def _pycolmap() -> Any:
    try:
        import pycolmap
    except ImportError as error:
        raise MissingPart("structure from motion needs pycolmap: pip install pycolmap") from error
    return pycolmap


@dataclass(frozen=True, eq=False)
class _Model:
    """Located pictures in a frame and a scale of their own."""

    views: list[View]
    points: Float[np.ndarray, "p 3"]
    colours: UInt8[np.ndarray, "p 3"]
    reprojection_px: float


def _read_model(model: Any, pictures: Mapping[str, UInt8[np.ndarray, "h w 3"]]) -> _Model:
    """Turns a pycolmap reconstruction into views, undistorted."""
    views = []
    for _, image in sorted(model.images.items(), key=lambda item: item[1].name):
        name = Path(image.name).stem
        if not image.has_pose or name not in pictures:
            continue
        camera, bend = _opencv_camera(model.cameras[image.camera_id], pictures[name].shape)
        T = np.vstack([image.cam_from_world().matrix(), [0, 0, 0, 1]])
        rgb, camera = _straight(pictures[name], camera, bend)
        views.append(View(name, camera, se3.inverse(T), rgb))
    if not views:
        named = ", ".join(sorted(Path(i.name).stem for i in model.images.values())[:3])
        raise InputError(f"no picture belongs to the model's cameras ({named}, ...): give the pictures it was made of")
    found = [p for p in model.points3D.values() if p.track.length() >= 3 and p.error < 2.0]
    points = np.array([p.xyz for p in found]).reshape(-1, 3)
    colours = np.array([p.color for p in found], dtype=np.uint8).reshape(-1, 3)
    if len(points) and not colours.any():
        colours = _colours_from(views, points)
    return _Model(views, points, colours, float(model.compute_mean_reprojection_error()))


def _opencv_camera(camera: Any, shape: tuple[int, ...]) -> tuple[Camera, Float[np.ndarray, " 5"]]:
    """Returns a COLMAP camera in OpenCV's convention, at the size of the picture, and its bend k1 k2 p1 p2 k3."""
    p = dict(zip(camera.params_info.replace(" ", "").split(","), camera.params, strict=True))
    usable = ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV")
    if camera.model_name not in usable:
        raise InputError(f"COLMAP camera model {camera.model_name} cannot be read: use one of {', '.join(usable)}")
    fx, fy = (p["fx"], p["fy"]) if "fx" in p else (p["f"], p["f"])
    bend = np.array([p.get("k1", p.get("k", 0.0)), p.get("k2", 0.0), p.get("p1", 0.0), p.get("p2", 0.0), 0.0])
    full = Camera("phone", int(camera.width), int(camera.height), fx, fy, p["cx"] - 0.5, p["cy"] - 0.5)
    return full.resized(shape[1], shape[0]), bend


@dataclass(frozen=True, eq=False)
class _Similarity:
    """p_world = scale · R p + t."""

    scale: float
    R: Float[np.ndarray, "3 3"]
    t: Float[np.ndarray, "3"]

    def points(self, p: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
        return self.scale * p @ self.R.T + self.t

    def pose(self, T: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "4 4"]:
        return se3.from_rt(self.R @ T[:3, :3], self.points(T[None, :3, 3])[0])


def _metric(
    model: _Model,
    *,
    given: int,
    positions: Mapping[str, np.ndarray] | None = None,
    length: KnownLength | None = None,
    why: str,
) -> Cameras:
    """Puts a model of unknown scale onto the table, in metres."""
    statuses: list[Status] = []
    if positions is not None:
        names = [v.name for v in model.views]
        known = [k for k, name in enumerate(names) if name in positions]
        if len(known) < 4:
            raise InputError(f"{len(known)} of the given camera positions belong to a located picture: 4 are needed")
        where = np.stack([np.asarray(positions[names[k]], dtype=np.float64) for k in known])
        eyes = np.stack([model.views[k].T_world_camera[:3, 3] for k in known])
        similarity, scale_sd = _similarity(eyes, where)
        return _placed(model, similarity, given, scale_sd, statuses)
    flat = _on_table(model)
    if length is not None:
        scale, scale_sd = _scale_of(length, model, flat), 2e-3
    else:
        views = [replace(v, T_world_camera=flat.pose(v.T_world_camera)) for v in model.views]
        eyes = np.stack([v.T_world_camera[:3, 3] for v in views])
        far = np.median(np.linalg.norm(eyes - look_at_point(views), axis=1))
        scale, scale_sd = _UNKNOWN_DISTANCE_M / float(far), 0.4
        statuses.append(
            Status(
                Level.WARN,
                "scale_unknown",
                f"{why}, so the size of everything is a guess (within a factor of 1.5)",
                "lay the printed board beside the object and film again, or give a known length on the table",
            )
        )
    return _placed(model, _Similarity(scale * flat.scale, flat.R, scale * flat.t), given, scale_sd, statuses)


def _placed(
    model: _Model, similarity: _Similarity, given: int, scale_sd: float, statuses: Sequence[Status] = ()
) -> Cameras:
    return _cameras(
        [replace(v, T_world_camera=similarity.pose(v.T_world_camera)) for v in model.views],
        similarity.points(model.points), model.colours, given=given, with_board=0,
        reprojection_px=model.reprojection_px, board_px=None, position_sd_m=None, scale_sd=scale_sd, statuses=statuses,
    )  # fmt: skip


def _similarity(a: Float[np.ndarray, "n 3"], b: Float[np.ndarray, "n 3"]) -> tuple[_Similarity, float]:
    """Returns the similarity from a to b (Umeyama 1991), outliers weighed down, and the scale's relative sd."""
    weight = np.ones(len(a))
    found, residual = _Similarity(1.0, np.eye(3), np.zeros(3)), np.zeros(len(a))
    for _ in range(20):
        w = weight / weight.sum()
        ma, mb = w @ a, w @ b
        U, D, Vt = np.linalg.svd((b - mb).T @ ((a - ma) * w[:, None]))
        sign = np.diag([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))])
        R = U @ sign @ Vt
        scale = float(np.trace(np.diag(D) @ sign) / (w @ np.sum((a - ma) ** 2, axis=1)))
        found = _Similarity(scale, R, mb - scale * R @ ma)
        residual = np.linalg.norm(found.points(a) - b, axis=1)
        sd = max(1.4826 * float(np.median(residual)) / 1.538, 1e-9)  # of one coordinate, from the median of lengths
        weight = 1.0 / (1.0 + (residual / (2.5 * sd)) ** 2)
    size = float(np.sqrt((weight / weight.sum()) @ np.sum((b - b.mean(axis=0)) ** 2, axis=1)))
    rms = float(np.sqrt((weight / weight.sum()) @ residual**2 / 3))
    return found, rms / (size * float(np.sqrt(max(weight.sum() - 2, 1))))


def _on_table(model: _Model) -> _Similarity:
    """Returns the motion that makes the largest plane below all cameras z = 0, with what they look at above 0, 0."""
    p = model.points
    eyes = np.stack([v.T_world_camera[:3, 3] for v in model.views])
    target = look_at_point(model.views)
    reach = float(np.median(np.linalg.norm(eyes - target, axis=1)))
    p = p[np.linalg.norm(p - target, axis=1) < reach]
    if len(p) < 50:
        raise InputError(
            "no table is to be seen under the object: film so that some table around it is in every picture, and put "
            "something with a print on it"
        )
    rng = np.random.default_rng(0)
    three = p[rng.integers(0, len(p), (2000, 3))]
    normal = np.cross(three[:, 1] - three[:, 0], three[:, 2] - three[:, 0])
    size = np.linalg.norm(normal, axis=1)
    normal, three = normal[size > 1e-12] / size[size > 1e-12, None], three[size > 1e-12]
    offset = np.sum(normal * three[:, 0], axis=1)
    normal *= np.where(np.median(eyes @ normal.T, axis=0) > offset, 1.0, -1.0)[:, None]
    offset = np.sum(normal * three[:, 0], axis=1)
    off = normal @ p.T - offset[:, None]
    # What lies below the table is not seen, so a plane with many points under it is none.
    score = (np.abs(off) < 0.005 * reach).sum(axis=1) - 2 * (off < -0.02 * reach).sum(axis=1)
    score = np.where((eyes @ normal.T > offset).all(axis=0), score, -len(p))
    best = int(np.argmax(score))
    near = p[np.abs(off[best]) < 0.01 * reach]
    if len(near) < 30:
        raise InputError("no flat table is to be seen under the object: put it on one, with a print, and film again")
    middle, up = near.mean(axis=0), normal[best]
    for _ in range(5):  # what stands on the table is taken out of it, down to the noise of the points
        middle = near.mean(axis=0)
        up = np.linalg.svd(near - middle, full_matrices=False)[2][2]
        up = up * np.sign(up @ normal[best])
        away = (p - middle) @ up
        noise = 1.4826 * float(np.median(np.abs((near - middle) @ up)))
        near = p[np.abs(away) < np.clip(3 * noise, 1e-9, 0.01 * reach)]
    x = np.cross([0.0, 1.0, 0.0] if abs(up[1]) < 0.9 else [1.0, 0.0, 0.0], up)
    x /= np.linalg.norm(x)
    R = np.stack([x, np.cross(up, x), up])
    under = target - up * ((target - middle) @ up)
    return _Similarity(1.0, R, -R @ under)


def _scale_of(length: KnownLength, model: _Model, flat: _Similarity) -> float:
    by_name = {v.name: v for v in model.views}
    if length.frame not in by_name:
        raise UnknownName("picture", length.frame, by_name, "The known length must be in one that was located.")
    if not length.metres > 0:
        raise InputError(f"a known length is positive, not {length.metres} m")
    view = by_name[length.frame]
    a, b = table_points(
        replace(view, T_world_camera=flat.pose(view.T_world_camera)), np.array([length.a_px, length.b_px])
    )
    apart = float(np.linalg.norm(a - b))
    if not apart > 0:
        raise InputError("the two marks of the known length are at one place, or above the horizon: name two others")
    return length.metres / apart


# ------------------------------------------------------------------------------------------------------ given cameras


def from_colmap(
    model: str | Path,
    pictures: str | Path,
    *,
    positions: Mapping[str, Float[np.ndarray, "3"]] | None = None,
    length: KnownLength | None = None,
    metric: bool = False,
) -> Cameras:
    """Reads a COLMAP sparse model (text or binary) and its pictures.

    Args:
        model: The folder with `cameras`, `images` and `points3D`, or one above it that holds `sparse/0`.
        pictures: Their folder.
        positions: Where cameras were [m], for the scale.
        length: A length on the table, for the scale.
        metric: The model is already in metres with the table at z = 0: take it as it is.
    """
    pycolmap = _pycolmap()
    folder = next(
        (f for f in (Path(model), Path(model) / "sparse" / "0", Path(model) / "sparse") if _is_model(f)), None
    )
    if folder is None:
        raise InputError(
            f"{model} holds no COLMAP model: give the folder with cameras, images and points3D (.bin, .txt)"
        )
    try:
        read = pycolmap.Reconstruction(str(folder))
    except Exception as error:  # pycolmap raises whatever its C++ side does
        raise InputError(f"{folder} cannot be read as a COLMAP model ({error}): export it again") from error
    wanted = {Path(i.name).stem: Path(pictures) / i.name for i in read.images.values()}
    found = _read_model(read, {n: _picture(f) for n, f in wanted.items() if f.is_file()})
    given = len(read.images)
    if metric:
        return _placed(found, _Similarity(1.0, np.eye(3), np.zeros(3)), given, 2e-3)
    return _metric(found, given=given, positions=positions, length=length, why="a COLMAP model has no scale of its own")


def _is_model(folder: Path) -> bool:
    return any((folder / f"cameras{suffix}").is_file() for suffix in (".bin", ".txt"))


def from_transforms(file: str | Path, *, metres: float = 1.0) -> Cameras:
    """Reads cameras in the convention of NeRF and instant-ngp.

    Args:
        file: `transforms.json`; poses map OpenGL camera axes (y up, z backward) to a world with z up and, here, the
            table at z = 0.
        metres: Length of the file's unit [m].
    """
    file = Path(file)
    try:
        data = json.loads(file.read_text())
        entries = list(data["frames"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is no transforms.json with a list of frames ({error}): export it again") from error
    views = []
    for entry in entries:
        image = file.parent / str(entry["file_path"])
        image = image if image.suffix else image.with_suffix(".png")  # the NeRF synthetic scenes leave it out
        rgb = _picture(image)
        h, w = rgb.shape[:2]
        about = {**data, **entry}
        full = _transforms_camera(about, w, h, file)
        T = np.asarray(entry["transform_matrix"], dtype=np.float64).reshape(-1, 4)
        T = np.vstack([T[:3], [0, 0, 0, 1]]) @ np.diag([1.0, -1.0, -1.0, 1.0])
        T[:3, 3] *= metres
        bend = np.array([float(about.get(k, 0.0)) for k in ("k1", "k2", "p1", "p2", "k3")])
        rgb, camera = _straight(rgb, full, bend)
        views.append(View(image.stem, camera, T, rgb))
    if len(views) < _FEWEST_FRAMES:
        raise InputError(f"{file} names {len(views)} pictures: {_FEWEST_FRAMES} or more are needed, better 40")
    none = np.zeros((0, 3))
    return _cameras(
        views, none, none.astype(np.uint8), given=len(entries), with_board=0, reprojection_px=float("nan"),
        board_px=None, position_sd_m=None, scale_sd=2e-3,
    )  # fmt: skip


def _transforms_camera(about: Mapping[str, Any], width: int, height: int, file: Path) -> Camera:
    w, h = float(about.get("w", width)), float(about.get("h", height))
    if "fl_x" in about:
        fx = float(about["fl_x"])
    elif "camera_angle_x" in about:
        fx = 0.5 * w / float(np.tan(0.5 * float(about["camera_angle_x"])))
    else:
        raise InputError(f"{file} does not say how cameras see: it needs fl_x or camera_angle_x")
    fy = float(about.get("fl_y", fx))
    full = Camera(
        "phone", round(w), round(h), fx, fy, float(about.get("cx", w / 2)) - 0.5, float(about.get("cy", h / 2)) - 0.5
    )
    return full.resized(width, height)


def _picture(file: Path) -> UInt8[np.ndarray, "h w 3"]:
    import cv2

    found = cv2.imread(str(file), cv2.IMREAD_COLOR)
    if found is None:
        raise InputError(f"{file} cannot be read as a picture: copy it again")
    return np.ascontiguousarray(found[..., ::-1])


# ------------------------------------------------------------------------------------------------------------ results


def look_at_point(views: Sequence[View]) -> Float[np.ndarray, "3"]:
    """Returns the point that is nearest to all optical axes [m]."""
    T = np.stack([v.T_world_camera for v in views])
    across = np.eye(3) - T[:, :3, 2, None] * T[:, None, :3, 2]
    return np.linalg.solve(across.sum(axis=0), (across @ T[:, :3, 3:]).sum(axis=0))[:, 0]


def table_points(view: View, px: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 3"]:
    """Returns where pixels see the plane z = 0 [m]; NaN where they look above the horizon."""
    d = view.camera.unproject(px, np.ones(len(px))) @ view.T_world_camera[:3, :3].T
    eye = view.T_world_camera[:3, 3]
    s = np.where(d[:, 2] < -1e-9, -eye[2] / np.minimum(d[:, 2], -1e-9), np.nan)
    return eye + s[:, None] * d


def _undistorted(
    frames: Sequence[Frame],
    located: Bool[np.ndarray, " n"],
    T_camera_world: Float[np.ndarray, "n 4 4"],
    lens: Float[np.ndarray, "n 7"],
) -> list[View]:
    views = []
    for k in (int(i) for i in np.flatnonzero(located)):
        s, cx, cy, k1, k2, fx, fy = (float(v) for v in lens[k])
        camera = replace(frames[k].camera, fx=s * fx, fy=s * fy, cx=cx, cy=cy, T_world_camera=None)
        rgb, camera = _straight(frames[k].rgb, camera, np.array([k1, k2, 0.0, 0.0, 0.0]))
        views.append(View(frames[k].name, camera, se3.inverse(T_camera_world[k]), rgb))
    return views


def _straight(
    rgb: UInt8[np.ndarray, "h w 3"], camera: Camera, bend: Float[np.ndarray, " 5"]
) -> tuple[UInt8[np.ndarray, "h w 3"], Camera]:
    """Takes the lens's bend (OpenCV's k1 k2 p1 p2 k3) out of a picture; no border shows what was not seen."""
    import cv2

    corner = np.array([[0.0, 0.0], [camera.width - 1.0, camera.height - 1.0]])
    x = (corner - [camera.cx, camera.cy]) / [camera.fx, camera.fy]
    r2 = np.sum(x**2, axis=1)
    shift = np.abs(bend[0] * r2 + bend[1] * r2**2 + bend[4] * r2**3).max() * camera.fx * np.sqrt(r2.max())
    if shift + np.abs(bend[2:4]).max() * camera.fx < 0.05:
        return rgb, camera
    size = (camera.width, camera.height)
    K, _ = cv2.getOptimalNewCameraMatrix(camera.K, bend, size, 0.0, size)
    maps = cv2.initUndistortRectifyMap(camera.K, bend, np.eye(3), K, size, cv2.CV_32FC1)
    straight = cv2.remap(rgb, *maps, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return straight, replace(camera, fx=float(K[0, 0]), fy=float(K[1, 1]), cx=float(K[0, 2]), cy=float(K[1, 2]))


def _colours(t: _Tracks, use: Bool[np.ndarray, " o"], frames: Sequence[Frame]) -> UInt8[np.ndarray, "p 3"]:
    """Mean colour of each track's observations."""
    total, times = np.zeros((t.count, 3)), np.bincount(t.track[use], minlength=t.count)
    for k, frame in enumerate(frames):
        mine = use & (t.frame == k)
        xy = np.round(t.px[mine]).astype(int)
        np.add.at(total, t.track[mine], frame.rgb[xy[:, 1], xy[:, 0]].astype(np.float64))
    return (total / np.maximum(times, 1)[:, None]).round().astype(np.uint8)


def _colours_from(views: Sequence[View], points: Float[np.ndarray, "p 3"]) -> UInt8[np.ndarray, "p 3"]:
    """Median colour of points in the pictures that have them in sight."""
    seen = np.full((len(views), len(points), 3), np.nan)
    for k, v in enumerate(views):
        uv = v.camera.project(se3.transform(se3.inverse(v.T_world_camera), points))
        inside = np.isfinite(uv).all(axis=1) & ((uv > 0) & (uv < [v.camera.width - 1, v.camera.height - 1])).all(axis=1)
        xy = np.round(uv[inside]).astype(int)
        seen[k, inside] = v.rgb[xy[:, 1], xy[:, 0]]
    seen[0, np.isnan(seen).all(axis=(0, 2))] = 128.0
    return np.nanmedian(seen, axis=0).astype(np.uint8)


def _rms(residual: Float[np.ndarray, "o 2"]) -> float:
    """Root mean square length."""
    return float(np.sqrt(np.mean(np.sum(residual**2, axis=1)))) if len(residual) else float("nan")


def _cameras(
    views: Sequence[View],
    points: Float[np.ndarray, "p 3"],
    colours: UInt8[np.ndarray, "p 3"],
    *,
    given: int,
    statuses: Sequence[Status] = (),
    **numbers: Any,
) -> Cameras:
    target = look_at_point(views)
    eyes = np.stack([v.T_world_camera[:3, 3] for v in views]) - target
    angle = np.degrees(np.arctan2(eyes[:, 1], eyes[:, 0])) % 360
    gap = float(np.diff(np.sort(np.concatenate([angle, [angle.min() + 360]]))).max())
    around = len(np.unique((angle // 30).astype(int))) / 12
    quality = CameraQuality(given=given, located=len(views), around=around, widest_gap_deg=gap, **numbers)
    found = list(statuses)
    if quality.located < 0.9 * given:
        found.append(
            Status(
                Level.WARN,
                "not_located",
                f"{given - quality.located} of {given} pictures could not be located and are left out",
                "film in one slow walk, without jumps, if a side of the object is missing",
            )
        )
    if gap > 75.0:
        found.append(
            Status(
                Level.WARN,
                "one_sided",
                f"nobody looked at the object over {gap:.0f} degrees around it",
                "walk all the way around it: what was not seen is guessed",
            )
        )
    if quality.reprojection_px > 1.0:
        found.append(
            Status(
                Level.WARN,
                "imprecise",
                f"features are {quality.reprojection_px:.1f} px from where they should be",
                "keep everything but the camera still, and hold it steady",
            )
        )
    return Cameras(tuple(views), points, colours, target, quality, tuple(found))
