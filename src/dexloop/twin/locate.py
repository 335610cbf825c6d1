"""Where each picture of a scan was taken from, in metres, with the table as the plane z = 0.

A printed board that some pictures show gives scale, gravity and the first poses; the others are joined to them by
features that they share, and everything is refined at once (bundle adjustment, corners of the board held where they
were printed). Without a board `unmarked` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, UInt8

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.twin.bundle import Bundle, lenses, project, triangulate
from dexloop.twin.cameras import FEWEST_FRAMES, Cameras, KnownLength, assess, straighten
from dexloop.twin.frames import Frame
from dexloop.twin.tracks import Features, Tracks, find_features, follow, why_not_joined
from dexloop.twin.unmarked import without_board
from dexloop.vision.board import Board, BoardView
from dexloop.vision.views import View

_FEATURE_SD_PX, _CORNER_SD_PX = 0.5, 0.15
"""How well features and the board's corners are seen."""
_OUTLIER_PX, _FINAL_OUTLIER_PX = 3.0, 1.5
"""Farther from where it should be a feature is a wrong match: while pictures are joined, and at the end [px]."""
_ADJUSTED = 4000
"""Points that take part in the bundle adjustment, those in most pictures first; more add time and no precision."""
_FEWEST_SHARED = 25
"""Points that a picture must share with located ones to be located."""
_PRIOR_KNOWN = np.array([0.02, 6.0, 6.0, 0.02, 0.02])
_PRIOR_GUESSED = np.array([0.4, 12.0, 12.0, 0.1, 0.1])
"""How far intrinsics may be off: factor on the focal length [1], principal point [px], two radial terms [1]."""
_PRINT_SD = 5e-4
"""How far a printer's millimetre is off [1]."""


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
    if len(frames) < FEWEST_FRAMES:
        raise InputError(
            f"{len(frames)} pictures are too few to locate cameras: walk once around the object and take "
            f"{FEWEST_FRAMES} or more, better 40"
        )
    seen = {k: v for k, f in enumerate(frames) if board and (v := board.detect(f.rgb, f.camera)) and v.rms_px < 3.0}
    if not seen:
        return without_board(frames, camera_known, board, positions, length)
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
        self.lens, self.lens_of = lenses([f.camera for f in frames])
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
        self.tracks = Tracks(np.zeros(0, int), np.zeros(0, int), np.zeros((0, 2)), 0)
        self.points = np.zeros((0, 3))
        self.solved = np.zeros(0, bool)
        self.sd = (0.0, 0.0)

    def join(self) -> None:
        """Locates all pictures, starting from those that show the board."""
        if not np.isfinite(self.prior).all() or (self.prior[0, 0] > 0.1 and len(self.seen) > 2):
            self._adjust(20, features=False)  # a guessed focal length first, for poses hang on it
        features = find_features(self.frames)
        self.tracks = follow(features, len(self.frames))
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
        self.points, self.solved = triangulate(t, use, self.T, self.lens[self.lens_of])
        _, uv = project(self.points[t.track], self.T[t.frame], self.lens[self.lens_of[t.frame]])
        far = use & self.solved[t.track] & ~(np.linalg.norm(uv - t.px, axis=1) < limit_px)
        if far.any():  # a wrong match is taken out for good, and its point solved again without it
            self.tracks = t = t.without(far)
            use = self.located[t.frame]
            self.points, self.solved = triangulate(t, use, self.T, self.lens[self.lens_of])
            _, uv = project(self.points[t.track], self.T[t.frame], self.lens[self.lens_of[t.frame]])
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
        problem = Bundle(
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

    def _complain(self, features: Sequence[Features]) -> None:
        located, n = int(self.located.sum()), len(self.frames)
        if located >= max(FEWEST_FRAMES, 0.3 * n):
            return
        raise InputError(
            f"only {located} of {n} pictures could be located ({len(self.seen)} of them show the board): "
            + why_not_joined(features, self.tracks)
        )

    def result(self) -> Cameras:
        """Returns what was found, with pictures undistorted."""
        t = self.tracks
        use = self.located[t.frame] & self.solved[t.track]
        _, uv = project(self.points[t.track[use]], self.T[t.frame[use]], self.lens[self.lens_of[t.frame[use]]])
        on = self.corner_frame
        _, corner = project(self.corner_world, self.T[on], self.lens[self.lens_of[on]])
        seen_by = np.bincount(t.track[use], minlength=t.count)
        keep = self.solved & (seen_by >= 3)
        colours = _colours(t, use & keep[t.track], self.frames)[keep]
        views = _undistorted(self.frames, self.located, self.T, self.lens[self.lens_of])
        return assess(
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
        rgb, camera = straighten(frames[k].rgb, camera, np.array([k1, k2, 0.0, 0.0, 0.0]))
        views.append(View(frames[k].name, camera, se3.inverse(T_camera_world[k]), rgb))
    return views


def _colours(t: Tracks, use: Bool[np.ndarray, " o"], frames: Sequence[Frame]) -> UInt8[np.ndarray, "p 3"]:
    """Mean colour of each track's observations."""
    total, times = np.zeros((t.count, 3)), np.bincount(t.track[use], minlength=t.count)
    for k, frame in enumerate(frames):
        mine = use & (t.frame == k)
        xy = np.round(t.px[mine]).astype(int)
        np.add.at(total, t.track[mine], frame.rgb[xy[:, 1], xy[:, 0]].astype(np.float64))
    return (total / np.maximum(times, 1)[:, None]).round().astype(np.uint8)


def _rms(residual: Float[np.ndarray, "o 2"]) -> float:
    """Root mean square length."""
    return float(np.sqrt(np.mean(np.sum(residual**2, axis=1)))) if len(residual) else float("nan")
