"""Cameras that another program located: a COLMAP model, or `transforms.json` of NeRF and instant-ngp."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.twin.cameras import FEWEST_FRAMES, Cameras, KnownLength, assess, straighten
from dexloop.twin.unmarked import Similarity, in_metres, load_pycolmap, placed, read_model
from dexloop.vision.views import View


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
    pycolmap = load_pycolmap()
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
    found = read_model(read, {n: _picture(f) for n, f in wanted.items() if f.is_file()})
    given = len(read.images)
    if metric:
        return placed(found, Similarity(1.0, np.eye(3), np.zeros(3)), given, 2e-3)
    return in_metres(
        found, given=given, positions=positions, length=length, why="a COLMAP model has no scale of its own"
    )


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
        rgb, camera = straighten(rgb, full, bend)
        views.append(View(image.stem, camera, T, rgb))
    if len(views) < FEWEST_FRAMES:
        raise InputError(f"{file} names {len(views)} pictures: {FEWEST_FRAMES} or more are needed, better 40")
    none = np.zeros((0, 3))
    return assess(
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
