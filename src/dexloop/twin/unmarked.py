"""Cameras of a scan without a board: structure from motion (pycolmap) finds the shape of the way, and a known length or
known camera positions its size. The table is the largest plane below them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.core.status import Level, Status
from dexloop.twin.cameras import FEWEST_FRAMES, Cameras, KnownLength, assess, look_at_point, straighten, table_points
from dexloop.twin.frames import Frame
from dexloop.twin.tracks import find_features, follow, why_not_joined
from dexloop.vision.board import Board
from dexloop.vision.views import View

_UNKNOWN_DISTANCE_M = 0.45
"""From camera to object, assumed where nothing tells the scale [m]."""


def without_board(
    frames: Sequence[Frame],
    camera_known: bool,
    board: Board | None,
    positions: Mapping[str, np.ndarray] | None,
    length: KnownLength | None,
) -> Cameras:
    """Locates pictures in none of which a board was found; arguments as of `locate`."""
    with tempfile.TemporaryDirectory(prefix="dexloop-sfm-") as folder:
        model = _structure_from_motion(frames, camera_known, Path(folder))
    if model is None or model.num_reg_images() < max(FEWEST_FRAMES, 0.3 * len(frames)):
        found = 0 if model is None else model.num_reg_images()
        features = find_features(frames)
        missing = "none shows the marker board, and " if board else ""
        raise InputError(
            f"{missing}only {found} of {len(frames)} pictures could be located: "
            + why_not_joined(features, follow(features, len(frames)))
        )
    pictures = {f.name: f.rgb for f in frames}
    solved = read_model(model, pictures)
    why = "no picture shows the marker board" if board else "no marker board was given"
    return in_metres(solved, given=len(frames), positions=positions, length=length, why=why)


def _structure_from_motion(frames: Sequence[Frame], camera_known: bool, folder: Path) -> Any:
    """Returns pycolmap's largest reconstruction, or None."""
    import cv2

    pycolmap = load_pycolmap()
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
    options = pycolmap.IncrementalPipelineOptions(min_model_size=FEWEST_FRAMES, random_seed=0, extract_colors=False)
    models = pycolmap.incremental_mapping(database, folder, folder / "sparse", options)
    return max(models.values(), key=lambda m: m.num_reg_images(), default=None)


def load_pycolmap() -> Any:
    """Returns the module, or says how to get it."""
    try:
        import pycolmap
    except ImportError as error:
        raise MissingPart("structure from motion needs pycolmap: pip install pycolmap") from error
    return pycolmap


@dataclass(frozen=True, eq=False)
class Model:
    """Located pictures in a frame and a scale of their own."""

    views: list[View]
    points: Float[np.ndarray, "p 3"]
    colours: UInt8[np.ndarray, "p 3"]
    reprojection_px: float


def read_model(model: Any, pictures: Mapping[str, UInt8[np.ndarray, "h w 3"]]) -> Model:
    """Turns a pycolmap reconstruction into views, undistorted."""
    views = []
    for _, image in sorted(model.images.items(), key=lambda item: item[1].name):
        name = Path(image.name).stem
        if not image.has_pose or name not in pictures:
            continue
        camera, bend = _opencv_camera(model.cameras[image.camera_id], pictures[name].shape)
        T = np.vstack([image.cam_from_world().matrix(), [0, 0, 0, 1]])
        rgb, camera = straighten(pictures[name], camera, bend)
        views.append(View(name, camera, se3.inverse(T), rgb))
    if not views:
        named = ", ".join(sorted(Path(i.name).stem for i in model.images.values())[:3])
        raise InputError(f"no picture belongs to the model's cameras ({named}, ...): give the pictures it was made of")
    found = [p for p in model.points3D.values() if p.track.length() >= 3 and p.error < 2.0]
    points = np.array([p.xyz for p in found]).reshape(-1, 3)
    colours = np.array([p.color for p in found], dtype=np.uint8).reshape(-1, 3)
    if len(points) and not colours.any():
        colours = _colours_from(views, points)
    return Model(views, points, colours, float(model.compute_mean_reprojection_error()))


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


@dataclass(frozen=True, eq=False)
class Similarity:
    """p_world = scale · R p + t."""

    scale: float
    R: Float[np.ndarray, "3 3"]
    t: Float[np.ndarray, "3"]

    def points(self, p: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
        """Returns points in the world."""
        return self.scale * p @ self.R.T + self.t

    def pose(self, T: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "4 4"]:
        """Returns a pose in the world; axes are turned and keep their length."""
        return se3.from_rt(self.R @ T[:3, :3], self.points(T[None, :3, 3])[0])


def in_metres(
    model: Model,
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
        return placed(model, similarity, given, scale_sd, statuses)
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
    return placed(model, Similarity(scale * flat.scale, flat.R, scale * flat.t), given, scale_sd, statuses)


def placed(
    model: Model, similarity: Similarity, given: int, scale_sd: float, statuses: Sequence[Status] = ()
) -> Cameras:
    """Puts a model where a similarity says."""
    return assess(
        [replace(v, T_world_camera=similarity.pose(v.T_world_camera)) for v in model.views],
        similarity.points(model.points), model.colours, given=given, with_board=0,
        reprojection_px=model.reprojection_px, board_px=None, position_sd_m=None, scale_sd=scale_sd, statuses=statuses,
    )  # fmt: skip


def _similarity(a: Float[np.ndarray, "n 3"], b: Float[np.ndarray, "n 3"]) -> tuple[Similarity, float]:
    """Returns the similarity from a to b (Umeyama 1991), outliers weighed down, and the scale's relative sd."""
    weight = np.ones(len(a))
    found, residual = Similarity(1.0, np.eye(3), np.zeros(3)), np.zeros(len(a))
    for _ in range(20):
        w = weight / weight.sum()
        ma, mb = w @ a, w @ b
        U, D, Vt = np.linalg.svd((b - mb).T @ ((a - ma) * w[:, None]))
        sign = np.diag([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))])
        R = U @ sign @ Vt
        scale = float(np.trace(np.diag(D) @ sign) / (w @ np.sum((a - ma) ** 2, axis=1)))
        found = Similarity(scale, R, mb - scale * R @ ma)
        residual = np.linalg.norm(found.points(a) - b, axis=1)
        sd = max(1.4826 * float(np.median(residual)) / 1.538, 1e-9)  # of one coordinate, from the median of lengths
        weight = 1.0 / (1.0 + (residual / (2.5 * sd)) ** 2)
    size = float(np.sqrt((weight / weight.sum()) @ np.sum((b - b.mean(axis=0)) ** 2, axis=1)))
    rms = float(np.sqrt((weight / weight.sum()) @ residual**2 / 3))
    return found, rms / (size * float(np.sqrt(max(weight.sum() - 2, 1))))


def _on_table(model: Model) -> Similarity:
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
    return Similarity(1.0, R, -R @ under)


def _scale_of(length: KnownLength, model: Model, flat: Similarity) -> float:
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
