"""A film of a human hand that takes an object: where both are, and when the hand has it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from dexloop.core import se3
from dexloop.core.capture import Recording
from dexloop.core.errors import InputError
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.sim.shape import Shape
from dexloop.vision.appearance import Appearance
from dexloop.vision.hand_path import HandPath, load_landmarks, locate
from dexloop.vision.hand_skeleton import TIPS
from dexloop.vision.hands import detect_hands
from dexloop.vision.tracking import Track, track_recording
from dexloop.vision.video import read_frames

_MOVED_M = 0.008
"""An object that is farther than this from where it stood has been taken [m]."""
_STAYS_S = 0.1
"""And stays so for this long: a tracker may err for a frame [s]."""
_AT_FIRST_S = 0.3
"""The object stands where it was seen in its first frames, so many [s]."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Watched:
    """What a film shows."""

    path: HandPath
    T_world_object: Float[np.ndarray, "4 4"]
    """Before it was touched."""
    grasp: int
    """Frame of the path in which the hand has it and has hardly moved it yet."""
    moved: bool
    """Whether the object was seen to move; if not, the grasp is where fingertips are nearest to it."""


def watch(
    recording: Recording,
    looks: Shape | Appearance,
    T_start: Float[np.ndarray, "4 4"] | None,
    cfg: DemonstrateCfg,
    tell: Progress,
) -> Watched:
    """Finds hand and object in a film.

    Args:
        recording: With one video, of a camera that stands still and whose place is known.
        looks: What the object looks like.
        T_start: T_world_object in the first frame, roughly; by default as the recording says.
        cfg: Which hand, and how large.
        tell: Told what is going on.

    Raises:
        InputError: No hand is seen for long enough, or the object is not.
    """
    film = recording.video(next(iter(recording.videos))) if recording.videos else None
    right = {"": None, "right": True, "left": False}[cfg.hand]
    if film is None:
        if not cfg.landmarks:
            raise InputError(f"recording {recording.name!r} has no film: film a hand, or give --landmarks")
        if T_start is None:
            raise InputError(f"recording {recording.name!r} does not say where the object is")
        path = load_landmarks(cfg.landmarks, right=right)
        return Watched(path, T_start, nearest(path, T_start), False)
    few, first = _frames(film.t, _STAYS_S), _frames(film.t, _AT_FIRST_S)

    def hand() -> HandPath:
        if cfg.landmarks:
            return load_landmarks(cfg.landmarks, right=right)
        track = detect_hands(read_frames(film.path), film.info.fps)
        return locate(track, film.info.camera, film.t, hand_length_m=cfg.hand_length_m, right=right)

    with ThreadPoolExecutor(1) as beside:  # most of both is work of one core
        found = beside.submit(hand)

        def enough(T_world_object: Float[np.ndarray, "k 4 4"], lost: Bool[np.ndarray, " k"]) -> bool:
            if found.done() and found.exception():
                return True  # there is nothing to go on with
            # Whoever has it in hand covers it: to look for it further takes long, and is not asked.
            return len(_moves(T_world_object[~lost, :3, 3], first, few)) > 0

        text = "looking for hand and object"
        seen = track_recording(
            recording, looks, T_start=T_start, progress=lambda _, done: tell(text, done), enough=enough
        )
        path = found.result()
    tell(text, 1.0)
    return _taken(path, film.t, seen)


def _taken(path: HandPath, t: Float[np.ndarray, " m"], seen: Track) -> Watched:
    """Finds where the object stood, and the last frame in which it still did."""
    found = np.flatnonzero(~seen.lost)
    if not len(found):
        raise InputError("the object was not found in the film: check where it stood and the camera's calibration")
    first = _frames(t, _AT_FIRST_S)
    T = se3.from_pose(seen.pose[found[min(first, len(found)) // 2]])
    moves = _moves(seen.pose[found, :3], first, _frames(t, _STAYS_S))
    if not len(moves):
        return Watched(path, T, nearest(path, T), False)
    began = t[found[moves[0]]]
    if not path.t[0] < began <= path.t[-1] + _STAYS_S:
        raise InputError(
            f"the object moves at {began:.2f} s, but the hand is known from {path.t[0]:.2f} to {path.t[-1]:.2f} s: "
            f"film both, or give landmarks on the film's clock"
        )
    return Watched(path, T, int(np.searchsorted(path.t, began)) - 1, True)


def _frames(t: Float[np.ndarray, " m"], seconds: float) -> int:
    """Returns how many frames a time is, at least one."""
    return max(round(seconds / max(float(np.median(np.diff(t))), 1e-6)), 1)


def _moves(places: Float[np.ndarray, "k 3"], first: int, few: int) -> Int[np.ndarray, " r"]:
    """Returns from where on an object is away from where it stood in its first frames, for at least a few frames."""
    if len(places) < few:
        return np.zeros(0, dtype=int)
    away = np.linalg.norm(places - np.median(places[:first], axis=0), axis=1) > _MOVED_M
    return np.flatnonzero(np.convolve(away, np.ones(few), mode="valid") >= few)


def nearest(path: HandPath, T_world_object: Float[np.ndarray, "4 4"]) -> int:
    """Returns the frame in which the fingertips' middle is nearest to the object's origin."""
    middle = path.landmarks[:, TIPS].mean(axis=1)
    return int(np.argmin(np.linalg.norm(middle - T_world_object[:3, 3], axis=1)))
