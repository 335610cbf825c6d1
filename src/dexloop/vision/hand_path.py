"""Where a person's hand is in the world, through a video: 21 landmarks, in metres."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from dexloop.core import se3
from dexloop.core.artifact import load_arrays, save_arrays, storage_errors
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.vision.hand_fit import fit_skeleton
from dexloop.vision.hand_skeleton import GAUGE, bone_lengths
from dexloop.vision.hands import HandTrack

HAND_LENGTH_M = 0.085
"""From the wrist's crease to the middle knuckle of an adult [m]: 0.446 of a hand of 0.19 m (Buchholz et al., 1992).
Between people it differs by a tenth."""
GAP_S = 0.5
"""How long a hand may be out of sight to be thought of as moving on [s]."""
_LEAST_FRAMES = 8
_OTHER_HAND = 1 / 3
"""Share of frames that may be taken for the other hand: a hidden thumb is enough for single ones."""
_PALM_M = (0.05, 0.15)
"""From wrist to middle knuckle, of a child and of a giant [m]."""


@dataclass(frozen=True, eq=False)
class HandPath:
    """One hand through a video, without gaps: from the first frame in which it was measured to the last."""

    t: Float[np.ndarray, " n"]
    """[s]"""
    landmarks: Float[np.ndarray, "n 21 3"]
    """In the world [m]: wrist, then thumb to little finger, each from root to tip."""
    seen: Bool[np.ndarray, " n"]
    """Whether a frame was measured; if not, it was bridged."""
    right: bool
    """Whether it is a right hand."""
    confidence: Float[np.ndarray, " n"]
    """How far to trust a frame, 0 (bridged) to 1."""
    bone_lengths: Float[np.ndarray, "20"]
    """Of the bones, each from its parent landmark (`hand_skeleton.PARENT`) to landmark 1, 2, ... 20 [m]."""

    def save(self, file: str | Path) -> None:
        """Writes an NPZ file that `load_landmarks` reads."""
        file = Path(file)
        if file.suffix != ".npz":
            raise InputError(f"{file} cannot hold a hand's path: give a name that ends in .npz")
        with storage_errors(file):
            save_arrays(
                file,
                t=self.t,
                landmarks=self.landmarks,
                seen=self.seen,
                right=np.array(self.right),
                confidence=self.confidence,
            )


def locate(
    track: HandTrack,
    camera: Camera,
    t: Float[np.ndarray, " n"],
    *,
    hand_length_m: float = HAND_LENGTH_M,
    right: bool | None = None,
    gap_s: float = GAP_S,
) -> HandPath:
    """Finds where the hand of a video is in the world.

    One skeleton of constant bones is fitted to the pixels of all frames at once (see `hand_fit`). Frames that no such
    hand explains are bridged like those in which none was found, and left out at both ends.

    Sure is what lies across the line of sight: some millimetres, as good as MediaPipe's pixels. Along it much less is
    known. A hand that is a tenth larger than `hand_length_m` is placed a tenth too near, all of it and all the time:
    measure yours. Beyond that, depth rests on foreshortening and on how hands usually bend, and may drift by
    centimetres as the hand closes. The thumb is taken to stand against the fingers, as in a grasp; that of a hand held
    flat comes out too far from its plane.

    Args:
        track: Of one hand, by `detect_hands`.
        camera: That took the video, located in the world.
        t: When each frame was taken [s].
        hand_length_m: From the wrist's crease to the middle finger's knuckle [m].
        right: Which hand to follow; if left out, the one that most frames show.
        gap_s: Gaps of up to this are bridged [s].

    Raises:
        InputError: There is no hand or too little of it, there are two, it was out of sight for too long, or the
            camera was not located.
    """
    t = np.asarray(t, dtype=np.float64)
    if camera.T_world_camera is None:
        raise InputError(f"camera {camera.name!r} has no place in the world: calibrate it, then set its T_world_camera")
    if len(t) != len(track.found):
        raise InputError(f"there are {len(t)} times for {len(track.found)} frames: give the time of each frame")
    _check_times(t, "the times of the frames")
    if not _PALM_M[0] <= hand_length_m <= _PALM_M[1]:
        raise InputError(
            f"no hand is {hand_length_m:g} m from wrist to middle knuckle: give metres, an adult's is about 0.085"
        )
    right = _which_hand(track) if right is None else right
    shown = track.found & (track.right == right)
    if shown.sum() < _LEAST_FRAMES:
        hand = "right" if right else "left"
        raise InputError(
            f"a {hand} hand is seen in {shown.sum()} of {len(t)} frames, which is too few: film it so that it stays in "
            f"the picture for at least {_LEAST_FRAMES} frames"
        )
    span = slice(np.argmax(shown), len(t) - np.argmax(shown[::-1]))
    # A left hand is a right hand in a mirror; the picture and MediaPipe's shape are turned left to right.
    mirror = np.array([1.0 if right else -1.0, 1.0, 1.0])
    rays = mirror[:2] * (track.landmarks_px[span] - [camera.cx, camera.cy]) / [camera.fx, camera.fy]
    fit = fit_skeleton(rays, mirror * track.world[span], shown[span], t[span], hand_length_m)
    points = se3.transform(camera.T_world_camera, mirror * fit.posture.landmarks())
    seen, sure = fit.trust > 0, track.score[span] * fit.trust
    keep = _one_stretch(t[span], seen, gap_s)
    return HandPath(t[span][keep], points[keep], seen[keep], right, sure[keep], fit.posture.lengths.ravel())


def load_landmarks(file: str | Path, *, right: bool | None = None, gap_s: float = GAP_S) -> HandPath:
    """Reads a hand's path that another tracker measured.

    Args:
        file: NPZ with `t` [n] in seconds and `landmarks` [n, 21, 3] in metres and the world, in MediaPipe's order, and
            if need be `right`, `seen` [n] and `confidence` [n]; or CSV with 64 columns, t and then x, y, z of each
            landmark, with or without a line of names. What was not measured is NaN (or an empty cell).
        right: Whether it is a right hand; if left out, what the file says, and a right one if it says nothing.
        gap_s: Gaps of up to this are bridged [s].

    Raises:
        InputError: The file cannot be read, or what it holds is no path of a hand; the message names the fix.
    """
    file = Path(file)
    if file.suffix not in (".npz", ".csv"):
        raise InputError(f"{file} is neither .npz nor .csv: save t [n] and landmarks [n, 21, 3] in one of these")
    data = load_arrays(file) if file.suffix == ".npz" else _read_csv(file)
    missing = [name for name in ("t", "landmarks") if name not in data]
    if missing:
        raise InputError(f"{file} lacks {' and '.join(missing)}: it holds {', '.join(sorted(data)) or 'nothing'}")
    t, landmarks = (np.asarray(data[name], dtype=np.float64) for name in ("t", "landmarks"))
    if t.ndim != 1 or landmarks.shape != (len(t), 21, 3):
        raise InputError(
            f"{file} has t of shape {t.shape} and landmarks of shape {landmarks.shape}: they must be [n] and [n, 21, 3]"
        )
    _check_times(t, f"{file}: the times")
    whole = np.logical_and.reduce(np.isfinite(landmarks), axis=(1, 2))
    if whole.sum() < _LEAST_FRAMES:
        raise InputError(f"{file} has {whole.sum()} whole frames of {len(t)}: at least {_LEAST_FRAMES} are needed")
    lengths = np.median(bone_lengths(landmarks[whole]), axis=0)
    _check_size(float(lengths[GAUGE]), file)
    seen = whole & _of_frames(data, "seen", t, file).astype(bool)
    confidence = np.where(seen, _of_frames(data, "confidence", t, file).astype(np.float64), 0.0)
    keep = _one_stretch(t, whole, gap_s)
    if right is None:
        right = bool(np.asarray(data.get("right", True)).all())
    points = _bridged(t[keep], landmarks[keep], whole[keep])
    return HandPath(t[keep], points, seen[keep], right, confidence[keep], lengths)


def _which_hand(track: HandTrack) -> bool:
    if not track.found.any():
        raise InputError("no hand was found in the video: film one hand, whole and well lit, from up to a metre away")
    share = float(track.right[track.found].mean())
    if _OTHER_HAND < share < 1.0 - _OTHER_HAND:
        raise InputError(
            f"{share:.0%} of the frames show a right hand and the others a left one: keep the other hand out of the "
            "picture, or say with right=True or right=False which one to follow"
        )
    return share >= 0.5


def _check_times(t: Float[np.ndarray, " n"], what: str) -> None:
    if not np.isfinite(t).all():
        raise InputError(f"{what} are not all numbers: give seconds")
    back = np.flatnonzero(np.diff(t) <= 0)
    if len(back):
        k = int(back[0])
        raise InputError(f"{what} do not increase (after frame {k}: {t[k]:g} s, then {t[k + 1]:g} s): sort the frames")
    if len(t) > 1 and np.median(np.diff(t)) > 1.0:
        raise InputError(f"{what} are {np.median(np.diff(t)):g} s apart: if they are milliseconds, divide them by 1000")


def _check_size(palm_m: float, file: Path) -> None:
    for unit, factor in (("metres", 1), ("centimetres", 100), ("millimetres", 1000)):
        if factor * _PALM_M[0] <= palm_m <= factor * _PALM_M[1]:
            if factor > 1:
                raise InputError(f"{file} looks like {unit}, not metres: divide the landmarks by {factor}")
            return
    raise InputError(
        f"{file} has {palm_m:g} m from wrist to middle knuckle, which no hand has: give metres, in MediaPipe's order "
        "(wrist, then thumb to little finger, each from root to tip)"
    )


def _of_frames(data: dict[str, np.ndarray], name: str, t: Float[np.ndarray, " n"], file: Path) -> np.ndarray:
    values = np.asarray(data.get(name, np.ones(len(t))))
    if values.shape != t.shape:
        raise InputError(f"{file} has {name} of shape {values.shape}: give one for each of the {len(t)} frames")
    return values


def _one_stretch(t: Float[np.ndarray, " n"], seen: Bool[np.ndarray, " n"], gap_s: float) -> slice:
    """Returns the frames from the first to the last that was seen, without stray ones beyond a long gap."""
    k = np.flatnonzero(seen)
    # A frame stands for the time up to the next one, so that without a gap the hand is out of sight for 0 s.
    away = np.diff(t[k]) - np.median(np.diff(t))
    stretches = np.split(k, np.flatnonzero(away > gap_s + 1e-9) + 1)
    whole = [s for s in stretches if len(s) >= _LEAST_FRAMES]
    if not whole:
        raise InputError(
            f"the hand is out of sight again and again, and never seen in {_LEAST_FRAMES} frames with gaps of at most "
            f"{gap_s:g} s: film it so that thumb and fingers stay in view"
        )
    if len(whole) > 1:
        gaps = ", ".join(f"{t[a[-1]]:.2f} s to {t[b[0]]:.2f} s" for a, b in itertools.pairwise(whole))
        raise InputError(
            f"the hand is out of sight from {gaps}, which is too long to bridge: cut the video there, or raise gap_s "
            f"from {gap_s:g}"
        )
    return slice(int(whole[0][0]), int(whole[0][-1]) + 1)


def _bridged(
    t: Float[np.ndarray, " n"], landmarks: Float[np.ndarray, "n 21 3"], whole: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, "n 21 3"]:
    """Fills frames that are not whole with the smoothest curve: a cubic spline."""
    from scipy.interpolate import CubicSpline

    out = landmarks.copy()
    out[~whole] = CubicSpline(t[whole], landmarks[whole], bc_type="natural")(t[~whole])
    return out


def _read_csv(file: Path) -> dict[str, np.ndarray]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as UTF-8 text: {error}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        cells = line.split(",")
        if not line.strip():
            continue
        try:
            row = [float(cell) if cell.strip() else np.nan for cell in cells]
        except ValueError as error:
            if not rows and number == 1:
                continue  # the line of names
            raise InputError(f"{file}, line {number}: {error}; write numbers separated by commas") from None
        if len(row) != 64:
            raise InputError(f"{file}, line {number} has {len(row)} columns: write 64, t and x, y, z of 21 landmarks")
        rows.append(row)
    table = np.array(rows).reshape(-1, 64)
    return {"t": table[:, 0], "landmarks": table[:, 1:].reshape(-1, 21, 3)}
