"""Points that pictures of a scan share: features are found, matched where pictures look alike, and joined to tracks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from dexloop.twin.frames import Frame

FEATURES = 1500
"""Kept in a picture."""
_PARTNERS = 10
"""Other pictures that each one is compared with."""


@dataclass(frozen=True, eq=False)
class Features:
    """Where a picture has features, and what they look like; the strongest first."""

    px: Float[np.ndarray, "n 2"]
    describes: Float[np.ndarray, "n 128"]


@dataclass(frozen=True, eq=False)
class Tracks:
    """Observations of points in pictures, sorted by nothing."""

    frame: Int[np.ndarray, " o"]
    track: Int[np.ndarray, " o"]
    px: Float[np.ndarray, "o 2"]
    count: int

    def without(self, drop: Bool[np.ndarray, " o"]) -> Tracks:
        """Leaves observations out; tracks keep their numbers."""
        return Tracks(self.frame[~drop], self.track[~drop], self.px[~drop], self.count)


def find_features(frames: Sequence[Frame]) -> list[Features]:
    """Finds features in all pictures: root-SIFT, as Arandjelović and Zisserman (2012)."""
    import cv2

    def find(frame: Frame) -> Features:
        grey = cv2.cvtColor(frame.rgb, cv2.COLOR_RGB2GRAY)
        sift = cv2.SIFT_create(nfeatures=FEATURES, contrastThreshold=0.02, enable_precise_upscale=True)  # type: ignore[attr-defined]
        points, describes = sift.detectAndCompute(grey, None)  # type: ignore[call-overload]
        if not points:
            return Features(np.zeros((0, 2)), np.zeros((0, 128), np.float32))
        order = np.argsort([-p.response for p in points])[:FEATURES]
        d = np.asarray(describes, np.float32)[order]
        px = np.array([p.pt for p in points])[order]
        return Features(px, np.sqrt(d / np.maximum(d.sum(axis=1, keepdims=True), 1e-9)))

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(find, frames))


def follow(features: Sequence[Features], n: int) -> Tracks:
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
    return Tracks(frame[keep], track, px[keep], int(track.max(initial=-1)) + 1)


def _partners(features: Sequence[Features], few: int = 250) -> list[tuple[int, int]]:
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


def _match(a: Features, b: Features) -> Int[np.ndarray, "m 2"]:
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


def why_not_joined(features: Sequence[Features], tracks: Tracks) -> str:
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
