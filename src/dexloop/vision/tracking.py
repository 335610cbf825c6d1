"""Where a known object is in every frame of a fixed camera, how surely, and when it was lost.

Each frame is predicted from the ones before, drawn, compared and corrected (`alignment`). Neither light nor background
is given: both are learnt on the way. Covariances are of xi in T_true = T_world_object @ exp(xi), the tangent [v, w] of
`core.se3` in the object's own axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Bool, Float, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.capture import Recording
from dexloop.core.errors import InputError
from dexloop.sim.shape import Shape
from dexloop.vision.alignment import Fit, LightBelief, PoseBelief, Region, Scene, align
from dexloop.vision.appearance import Appearance, MeshAppearance, box_corners
from dexloop.vision.background import Background, cut
from dexloop.vision.board import Board
from dexloop.vision.calibration import Calibration, calibrate, moved
from dexloop.vision.search import search
from dexloop.vision.shading import TERMS, even_light
from dexloop.vision.video import read_frames

Progress = Callable[[str, float], None]
"""Is told what is going on and how much of it is done, from 0 to 1."""
Enough = Callable[[Float[np.ndarray, "k 4 4"], Bool[np.ndarray, " k"]], bool]
"""Is told the poses until now and in which frames the object was lost; says whether the frames that follow may be left
out."""

_MARGIN_PX = 24
"""How far around the object to look."""
_MULTIPLE_PX = 32
"""Of which sides of a region are multiples, so that it can be reduced, and seldom changes its size."""
_ROUGH_PX, _SURE_PX = 6, 2
"""How far from the outline the background begins, at the rough start and at a pose that was found."""
_LIGHT_KEPT, _LIGHT_LEARNT = 0.5, 0.05
"""Of what earlier frames said about the light, and of what this one says, how much counts in the next."""
_ALIKE = 0.03
"""Relative difference of misfits below which two looks have found the same."""
_WORST_SCALE = 4.0
"""How many times worse than any noise an appearance may be."""
_CALIBRATION_FRAMES = 9


@dataclass(frozen=True)
class TrackCfg:
    """How the tracker looks."""

    start_sd_m: float = 0.005
    """How far off the start may be [m]."""
    start_sd_rad: float = 0.05
    """How far off the start may be [rad]."""
    change_sd_m: float = 0.01
    """How far from where its velocity would bring it the object may be in the next frame [m]."""
    change_sd_rad: float = 0.15
    """The same for its rotation [rad]."""
    min_visible: float = 0.2
    """Share of the object that must look as expected, or else it is lost."""
    min_correlation: float = 0.8
    """Of frame and drawing over what is visible, or else the object is lost."""

    def __post_init__(self) -> None:
        for name in ("start_sd_m", "start_sd_rad", "change_sd_m", "change_sd_rad"):
            if not getattr(self, name) > 0:
                raise InputError(f"TrackCfg.{name} must be positive, not {getattr(self, name):g}")
        for name in ("min_visible", "min_correlation"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"TrackCfg.{name} is from 0 to 1, not {getattr(self, name):g}")


@dataclass(frozen=True, eq=False)
class Track:
    """An object's way through a video."""

    pose: Float[np.ndarray, "n 7"]
    """T_world_object as x y z [m], qw qx qy qz; while lost, a guess."""
    covariance: Float[np.ndarray, "n 6 6"]
    """Of [v, w] in the object's axes [m, rad]: what differs from frame to frame."""
    shared: Float[np.ndarray, "n 6 6"]
    """The same of the error that all frames share, because the camera is not exactly where it should be."""
    lost: Bool[np.ndarray, " n"]
    """Frames in which the object was not to be found."""
    score: Float[np.ndarray, " n"]
    """Share of the object that looks as predicted, 0 to 1."""

    @property
    def share_found(self) -> float:
        """Share of frames in which the object was found, 0 to 1."""
        return float(1.0 - self.lost.mean())


def track(
    frames: Iterable[UInt8[np.ndarray, "h w 3"]],
    camera: Camera | Calibration,
    appearance: Appearance,
    T_start: Float[np.ndarray, "4 4"],
    *,
    masks: Iterable[Bool[np.ndarray, "h w"]] | None = None,
    cfg: TrackCfg = TrackCfg(),  # noqa: B008 - frozen
    progress: Progress | None = None,
    enough: Enough | None = None,
) -> Track:
    """Follows an object through the frames of a fixed camera.

    Args:
        frames: RGB pictures in the order of time, evenly spaced.
        camera: Located; a `Calibration` also says how well.
        appearance: What the object looks like.
        T_start: T_world_object in the first frame, roughly.
        masks: For each frame the pixels to leave out, such as the robot's where it is known; may be left out.
        cfg: How to look.
        progress: Told how many frames are done, where their number is known.
        enough: Says after each frame whether that was all; then the track is shorter than the video.

    Raises:
        InputError: There is no frame, one has another size than the camera's, or the camera has no place.
    """
    if T_start.shape != (4, 4) or not np.isfinite(T_start).all():
        raise InputError("the rough pose to start from must be a finite 4 x 4 matrix T_world_object")
    exact = camera if isinstance(camera, Camera) else camera.camera
    tracker = _Tracker(exact, appearance, np.asarray(T_start, dtype=np.float64), cfg)
    total = len(frames) if hasattr(frames, "__len__") else 0  # type: ignore[arg-type]
    left_out = iter(masks) if masks is not None else itertools.repeat(None)
    for k, frame in enumerate(frames):
        try:
            tracker.step(frame, next(left_out))
        except StopIteration:
            raise InputError(f"there are {k} masks but more frames: give one for each frame") from None
        if progress is not None and total:
            progress("tracking", (k + 1) / total)
        if enough is not None and enough(np.stack([p.T for p in tracker.poses]), np.array(tracker.lost)):
            break
    if not tracker.poses:
        raise InputError("the video has no frames: nothing to track the object in")
    known = np.zeros((7, 7)) if isinstance(camera, Camera) else camera.covariance
    return Track(
        pose=se3.to_pose(np.stack([p.T for p in tracker.poses])),
        covariance=np.stack([p.covariance for p in tracker.poses]),
        shared=np.stack([_by_camera(exact, known, p.T, appearance.box) for p in tracker.poses]),
        lost=np.array(tracker.lost),
        score=np.array(tracker.score),
    )


def track_recording(
    recording: Recording,
    looks: Shape | Appearance,
    *,
    video: str | None = None,
    T_start: Float[np.ndarray, "4 4"] | None = None,
    cfg: TrackCfg = TrackCfg(),  # noqa: B008 - frozen
    progress: Progress | None = None,
    enough: Enough | None = None,
) -> Track:
    """Follows the object of a recording through one of its videos; frame k was taken at `recording.video(video).t[k]`.

    The camera's nominal calibration is refined where the recording says which board lies where.

    Args:
        recording: With a video of a camera that stands still.
        looks: What the object looks like: a textured mesh, or anything else that draws it.
        video: Which one; the only one if left out.
        T_start: T_world_object in the first frame, roughly; by default the scene's `T_world_object_rough`.
        cfg: How to look.
        progress: Told how many frames are done.
        enough: Says after each frame whether that was all; then the track is shorter than the video.

    Raises:
        InputError: Nothing says where the object is at first, the camera has no place, or there are several videos.
        UnknownName: There is no such video.
    """
    if video is None:
        if len(recording.videos) != 1:
            raise InputError(
                f"say in which video to track: {recording.name!r} has {', '.join(recording.videos) or 'none'}"
            )
        video = next(iter(recording.videos))
    film, scene = recording.video(video), recording.scene
    if T_start is None:
        if "T_world_object_rough" not in scene:
            raise InputError(
                f"recording {recording.name!r} does not say where the object is at first: "
                f"its scene needs T_world_object_rough"
            )
        T_start = np.array(scene["T_world_object_rough"], dtype=np.float64)
    camera: Camera | Calibration = film.info.camera
    if "board" in scene and "T_world_board" in scene:
        chosen = np.unique(np.linspace(0, len(film.t) - 1, _CALIBRATION_FRAMES).astype(int)).tolist()
        some = list(read_frames(film.path, indices=chosen))
        camera = calibrate(some, film.info.camera, Board.from_json(scene["board"]), np.array(scene["T_world_board"]))
    count = itertools.count(1)

    def frames() -> Iterable[np.ndarray]:
        for frame in read_frames(film.path):
            yield frame
            if progress is not None:
                progress("tracking", next(count) / len(film.t))

    if not isinstance(looks, Shape):
        return track(frames(), camera, looks, T_start, cfg=cfg, enough=enough)
    with MeshAppearance(looks) as appearance:
        return track(frames(), camera, appearance, T_start, cfg=cfg, enough=enough)


class _Tracker:
    """What is known from frame to frame."""

    def __init__(self, camera: Camera, appearance: Appearance, T_start: Float[np.ndarray, "4 4"], cfg: TrackCfg):
        if camera.T_world_camera is None:
            raise InputError(f"camera {camera.name!r} has no place: give it T_world_camera")
        self.camera, self.appearance, self.cfg = camera, appearance, cfg
        self.background = Background((camera.height, camera.width))
        self.belief = PoseBelief(T_start, _squares(cfg.start_sd_m, cfg.start_sd_rad))
        self.velocity = np.zeros(6)
        self.light = LightBelief(even_light(), np.diag([1.0 / 0.5**2] + [1.0 / 0.3**2] * (TERMS - 1)))
        self.usual_misfit, self.scale = 0.0, _WORST_SCALE
        self.poses: list[PoseBelief] = []
        self.lost: list[bool] = []
        self.score: list[float] = []

    def step(self, frame: UInt8[np.ndarray, "h w 3"], ignore: Bool[np.ndarray, "h w"] | None = None) -> None:
        """Takes in the next frame."""
        if frame.shape[:2] != (self.camera.height, self.camera.width):
            raise InputError(
                f"frame {len(self.poses)} is {frame.shape[1]} x {frame.shape[0]} px but camera {self.camera.name!r} "
                f"has {self.camera.width} x {self.camera.height} px: use the camera the video was taken with"
            )
        grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY).astype(np.float32)
        first = not self.poses
        if first:
            region = self._region(self.belief.T)
            rough = self.appearance.render(self.camera.cropped(*region), self.belief.T)
            self._learn(grey, rough.mask, region, _ROUGH_PX, ignore)
        scene = Scene(grey, ignore, self.camera, self.background, self.appearance, self.light, self.scale)
        predicted = self._predict() if not first else self.belief
        fit = self._look(scene, predicted)
        found = self._accepts(fit)
        if not found:
            fit, found = self._recover(scene, fit)
        if found:
            was_lost = first or self.lost[-1]
            self.velocity = np.zeros(6) if was_lost else se3.log(se3.inverse(self.belief.T) @ fit.pose.T)
            self.usual_misfit += (1.0 if first else 0.2) * (fit.misfit - self.usual_misfit)
            usual = 1.5 * fit.scale
            self.scale = usual if first else min(self.scale + 0.2 * (usual - self.scale), _WORST_SCALE)
            self.belief = fit.pose
            self.light = LightBelief(
                fit.light.mean, _LIGHT_KEPT * self.light.information + _LIGHT_LEARNT * fit.light.information
            )
            self._learn(grey, fit.mask, fit.region, _SURE_PX, ignore)
        else:
            self.belief, self.velocity = predicted, 0.5 * self.velocity
        self.poses.append(self.belief)
        self.lost.append(not found)
        self.score.append(fit.visible)

    def _predict(self) -> PoseBelief:
        """The last pose, moved on by the last velocity."""
        change = _squares(self.cfg.change_sd_m, self.cfg.change_sd_rad)
        return PoseBelief(self.belief.T @ se3.exp(self.velocity), self.belief.covariance + change)

    def _look(self, scene: Scene, predicted: PoseBelief) -> Fit:
        first = not self.poses
        fit = align(scene, predicted.T, predicted, self._region(predicted.T), (4, 2, 1) if first else (2, 1))
        if first or self.lost[-1] or fit.misfit < 1.3 * self.usual_misfit + 0.02:
            return fit
        # A blow or a topple, where the last velocity tells little, or something before the object. Look from other
        # places, and from farther, until two agree.
        for factor in (0.0, 1.5, 0.5, 2.0):
            T = self.belief.T @ se3.exp(factor * self.velocity)
            other = align(scene, T, predicted, self._region(T), (8, 4, 2, 1))
            agree = abs(other.misfit - fit.misfit) < _ALIKE * fit.misfit
            fit = min(fit, other, key=lambda f: f.misfit)
            if agree:
                break
        return fit

    def _recover(self, scene: Scene, fit: Fit) -> tuple[Fit, bool]:
        """Looks for the object all over the frame; what is found far away must look better than what was expected."""
        for T in search(scene, self.belief.T, self._region(self.belief.T)):
            anywhere = PoseBelief(T, _squares(0.1, 1.0))
            other = align(scene, T, anywhere, self._region(T), (8, 4, 2, 1))
            if self._accepts(other) and other.misfit < 1.5 * self.usual_misfit + 0.1:
                return other, True
        return fit, False

    def _accepts(self, fit: Fit) -> bool:
        return fit.visible >= self.cfg.min_visible and fit.correlation >= self.cfg.min_correlation

    def _learn(
        self, grey: np.ndarray, mask: np.ndarray, region: Region, margin_px: int, ignore: np.ndarray | None
    ) -> None:
        left, top, _, _ = region
        near = cv2.dilate(mask.astype(np.uint8), np.ones((2 * margin_px + 1,) * 2, np.uint8))
        free = cut(near, -left, -top, self.camera.width, self.camera.height) == 0
        self.background.learn(grey, free if ignore is None else free & ~ignore)

    def _region(self, T: Float[np.ndarray, "4 4"]) -> Region:
        """The part of the frame that the object and its surroundings take; at least one multiple, at most the frame."""
        uv = self.camera.project_world(se3.transform(T, box_corners(self.appearance.box)))
        uv = np.clip(
            np.nan_to_num(uv, nan=0.0), -_MARGIN_PX, [self.camera.width, self.camera.height] + _MARGIN_PX * np.ones(2)
        )
        low = np.floor(uv.min(axis=0)).astype(int) - _MARGIN_PX
        size = np.ceil(uv.max(axis=0)).astype(int) + _MARGIN_PX - low
        width, height = (int(-(-s // _MULTIPLE_PX) * _MULTIPLE_PX) for s in size)
        return int(low[0]), int(low[1]), width, height


def _squares(sd_m: float, sd_rad: float) -> Float[np.ndarray, "6 6"]:
    return np.diag([sd_m**2] * 3 + [sd_rad**2] * 3)


def _by_camera(
    camera: Camera, covariance: Float[np.ndarray, "7 7"], T: Float[np.ndarray, "4 4"], box: Float[np.ndarray, "2 3"]
) -> Float[np.ndarray, "6 6"]:
    """Returns how unsure a pose is that is seen rightly by a camera of unsure calibration.

    The object's pixels stay where they are: J_pose xi + J_camera x = 0.
    """
    if not covariance.any():
        return np.zeros((6, 6))
    corners, h = box_corners(box), 1e-5

    def pixels(xi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return moved(camera, x).project_world(se3.transform(T @ se3.exp(xi), corners)).ravel()

    by_pose = np.stack([(pixels(d, np.zeros(7)) - pixels(-d, np.zeros(7))) / (2 * h) for d in h * np.eye(6)], axis=1)
    by_camera = np.stack([(pixels(np.zeros(6), d) - pixels(np.zeros(6), -d)) / (2 * h) for d in h * np.eye(7)], axis=1)
    if not (np.isfinite(by_pose).all() and np.isfinite(by_camera).all()):
        return np.zeros((6, 6))  # a guess of a lost object, behind the camera
    gain = np.linalg.pinv(by_pose) @ by_camera
    return gain @ covariance @ gain.T
