from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, UnknownName
from dexloop.twin import cameras
from dexloop.twin.cameras import KnownLength, from_colmap, from_transforms, locate, look_at_point, table_points
from dexloop.twin.frames import Frame
from dexloop.vision.views import View
from tests.twin import BOARD, path, shoot, table

CAMERA = Camera.from_fov("phone", 400, 300, 0.85)


@cache
def scan(n: int = 14) -> tuple[list[Frame], np.ndarray]:
    """A scan, and T_world_camera of its pictures."""
    T = path(n)
    views = [shoot(pose, CAMERA, seed=k)[0] for k, pose in enumerate(T)]
    return [Frame(v.name, k, v.rgb, CAMERA, 1.0) for k, v in enumerate(views)], T


def errors_m(views: tuple[View, ...], T: np.ndarray) -> np.ndarray:
    return np.array([np.linalg.norm(v.T_world_camera[:3, 3] - T[int(v.name[1:])][:3, 3]) for v in views])


def test_cameras_are_found_to_a_millimetre_with_a_wrong_focal_length() -> None:
    frames, T = scan()
    nominal = replace(CAMERA, fx=CAMERA.fx * 1.008, fy=CAMERA.fy * 1.008)
    found = locate([replace(f, camera=nominal) for f in frames], board=BOARD, T_world_board=table()[1])
    assert len(found.views) == len(frames)
    assert found.quality.with_board < len(frames)  # the others were joined by what they share
    assert np.median(errors_m(found.views, T)) < 1e-3
    assert found.quality.reprojection_px < 0.5
    assert found.views[0].camera.fx == pytest.approx(CAMERA.fx, rel=3e-3)
    assert found.quality.around == 1.0
    # Half of the shared points lie on the print, and none below it.
    assert np.median(np.abs(found.points[:, 2])) < 1e-3
    assert np.percentile(found.points[:, 2], 1) > -3e-3


def test_a_bent_lens_is_straightened() -> None:
    frames, T = scan()
    bend = np.array([-0.12, 0.02, 0.0, 0.0, 0.0])
    u, v = np.meshgrid(np.arange(400.0), np.arange(300.0))
    straight = cv2.undistortPoints(np.stack([u, v], -1).reshape(-1, 1, 2), CAMERA.K, bend, P=CAMERA.K).reshape(
        300, 400, 2
    )
    maps = straight.astype(np.float32)
    bent = [replace(f, rgb=cv2.remap(f.rgb, maps[..., 0], maps[..., 1], cv2.INTER_CUBIC)) for f in frames]
    found = locate(bent, camera_known=False, board=BOARD, T_world_board=table()[1])
    assert np.median(errors_m(found.views, T)) < 1.5e-3
    assert found.quality.reprojection_px < 0.6
    # In the straightened picture the board's corners are where a pinhole camera puts them.
    worst = [
        np.abs(
            view.camera.project(se3.transform(se3.inverse(view.T_world_camera) @ table()[1], b.corners_board))
            - b.corners_px
        )
        for view in found.views
        if (b := BOARD.detect(view.rgb, view.camera)) is not None
    ]
    assert np.median(np.concatenate(worst)) < 0.3


def test_the_gradient_of_the_bundle_is_that_of_its_cost() -> None:
    rng = np.random.default_rng(0)
    T = np.stack([se3.inverse(p) for p in path(4)])
    X = rng.uniform(-0.1, 0.1, (12, 3))
    lens, lens_of = cameras._lenses([CAMERA] * 4)
    lens[:, 3:5] = -0.05, 0.01
    frame, point = np.repeat(np.arange(4), 12), np.tile(np.arange(12), 4)
    _, uv = cameras._project(X[point], T[frame], lens[lens_of[frame]])
    bundle = cameras._Bundle(
        frame, point, uv + rng.normal(0, 1.0, uv.shape), np.full(48, 0.7), 9, lens_of, lens * 1.01,
        np.full((1, 5), 0.5), np.ones(4, bool),
    )  # fmt: skip
    S, g, Vi, W, gp = bundle._system(T, lens, X, 0.0)
    full = g + W @ (Vi @ gp.reshape(-1, 3, 1)).ravel()  # the cameras' part before points were eliminated
    h = 1e-6

    def cost(change: np.ndarray) -> float:
        moved = lens.copy()
        moved[:, :5] += change[24:29]
        shifted = X.copy()
        shifted[:9] += change[29:].reshape(9, 3)
        return bundle._cost(se3.exp(change[:24].reshape(4, 6)) @ T, moved, shifted)

    slopes = np.array([(cost(h * e) - cost(-h * e)) / (2 * h) for e in np.eye(29 + 27)])
    np.testing.assert_allclose(-0.5 * slopes, np.concatenate([full, gp]), rtol=2e-4, atol=2e-2)
    assert np.linalg.eigvalsh(S).min() > 0


def test_a_similarity_is_found_in_spite_of_outliers() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(0, 1, (30, 3))
    R = Rotation.from_rotvec([0.3, -0.7, 1.1]).as_matrix()
    b = 0.37 * a @ R.T + [0.1, 0.2, -0.3] + rng.normal(0, 1e-3, a.shape)
    b[:5] += rng.normal(0, 0.5, (5, 3))
    found, scale_sd = cameras._similarity(a, b)
    np.testing.assert_allclose(found.R, R, atol=3e-3)
    assert found.scale == pytest.approx(0.37, rel=3e-3)
    assert 1e-4 < scale_sd < 3e-3


def test_pictures_that_share_nothing_are_refused() -> None:
    frames, _ = scan()
    rng = np.random.default_rng(0)
    board = {k for k, f in enumerate(frames) if BOARD.detect(f.rgb, f.camera)}
    keep = sorted(board)[0]
    noise = [cv2.resize(rng.integers(0, 255, (60, 80, 3), dtype=np.uint8), (400, 300)) for _ in frames]
    mixed = [f if k == keep else replace(f, rgb=noise[k]) for k, f in enumerate(frames)]
    with pytest.raises(InputError, match=r"only 1 of 14 pictures could be located.*[Ff]ilm again"):
        locate(mixed, board=BOARD)
    plain = [f if k == keep else replace(f, rgb=np.full_like(f.rgb, 90)) for k, f in enumerate(frames)]
    with pytest.raises(InputError, match="hardly any detail"):
        locate(plain, board=BOARD)
    with pytest.raises(InputError, match="too few"):
        locate(frames[:4], board=BOARD)


def test_transforms_json_is_read(tmp_path: Path) -> None:
    frames, T = scan()
    entries = []
    for f, pose in zip(frames, T, strict=True):
        cv2.imwrite(str(tmp_path / f"{f.name}.png"), f.rgb[..., ::-1])
        gl = pose.copy()
        gl[:3, 1:3] *= -1  # y up, z backward
        gl[:3, 3] *= 10  # in decimetres
        entries.append({"file_path": f"./{f.name}", "transform_matrix": gl.tolist()})
    angle = 2 * np.arctan(0.5 * 400 / CAMERA.fx)
    (tmp_path / "transforms.json").write_text(json.dumps({"camera_angle_x": angle, "frames": entries}))
    found = from_transforms(tmp_path / "transforms.json", metres=0.1)
    np.testing.assert_allclose([v.T_world_camera for v in found.views], T, atol=1e-9)
    assert found.views[0].camera.fx == pytest.approx(CAMERA.fx)
    assert found.views[0].camera.cx == pytest.approx(CAMERA.cx)
    assert found.target == pytest.approx(np.array([-0.02, 0, 0.03]), abs=1e-6)
    (tmp_path / "transforms.json").write_text(json.dumps({"frames": entries}))
    with pytest.raises(InputError, match="camera_angle_x"):
        from_transforms(tmp_path / "transforms.json")
    (tmp_path / "transforms.json").write_text("{")
    with pytest.raises(InputError, match="no transforms"):
        from_transforms(tmp_path / "transforms.json")


def write_colmap(folder: Path, scale: float, turn: Rotation) -> None:
    """Writes a text model by hand: the scan in another frame and scale, points on the table and above it."""
    frames, T = scan()
    rng = np.random.default_rng(0)
    p = np.column_stack([rng.uniform(-0.25, 0.25, (300, 2)), np.zeros(300)])
    p[200:] = rng.uniform([-0.04, -0.03, 0.0], [0.04, 0.03, 0.09], (100, 3))
    (folder / "sparse" / "0").mkdir(parents=True)
    model, pictures = folder / "sparse" / "0", folder / "images"
    pictures.mkdir()
    (model / "cameras.txt").write_text(
        f"1 PINHOLE 400 300 {CAMERA.fx} {CAMERA.fy} {CAMERA.cx + 0.5} {CAMERA.cy + 0.5}\n"
    )
    lines = []
    for k, (f, pose) in enumerate(zip(frames, T, strict=True), start=1):
        R_world_model = turn.as_matrix()
        R = pose[:3, :3].T @ R_world_model
        t = -scale * pose[:3, :3].T @ pose[:3, 3]
        x, y, z, w = Rotation.from_matrix(R).as_quat()
        marks = " ".join(f"{10 + i % 50} {10 + i // 50} {i + 1}" for i in range(300))
        lines += [f"{k} {w} {x} {y} {z} {t[0]} {t[1]} {t[2]} 1 {f.name}.png", marks]
        cv2.imwrite(str(pictures / f"{f.name}.png"), f.rgb[..., ::-1])
    (model / "images.txt").write_text("\n".join(lines) + "\n")
    seen = " ".join(f"{k} {{i}}" for k in range(1, len(frames) + 1))
    rows = scale * p @ turn.as_matrix()
    (model / "points3D.txt").write_text(
        "".join(f"{i + 1} {x} {y} {z} 200 10 10 0.5 {seen.format(i=i)}\n" for i, (x, y, z) in enumerate(rows))
    )


def test_a_colmap_model_is_put_onto_the_table_in_metres(tmp_path: Path) -> None:
    pytest.importorskip("pycolmap")
    frames, T = scan()
    write_colmap(tmp_path, 7.3, Rotation.from_rotvec([0.5, 1.0, -0.4]))
    # By where cameras were: everything is where it really is.
    where = {f.name: pose[:3, 3] for f, pose in zip(frames, T, strict=True)}
    found = from_colmap(tmp_path, tmp_path / "images", positions=where)
    assert errors_m(found.views, T).max() < 1e-6
    np.testing.assert_allclose(found.views[3].T_world_camera, T[3], atol=1e-6)
    assert np.sum(np.abs(found.points[:, 2]) < 1e-6) >= 200
    # By a length on the table: the same up to a motion on the table.
    marks = CAMERA.project(se3.transform(se3.inverse(T[2]), np.array([[0.1, 0.0, 0.0], [-0.05, 0.02, 0.0]])))
    length = KnownLength(frames[2].name, tuple(marks[0]), tuple(marks[1]), float(np.hypot(0.15, 0.02)))
    found = from_colmap(tmp_path, tmp_path / "images", length=length)
    eyes = np.stack([v.T_world_camera[:3, 3] for v in found.views])
    np.testing.assert_allclose(eyes[:, 2], T[:, 2, 3], atol=1e-3)
    np.testing.assert_allclose(
        np.linalg.norm(eyes[0] - eyes, axis=1), np.linalg.norm(T[0, :3, 3] - T[:, :3, 3], axis=1), atol=1e-3
    )
    # By nothing: marked.
    assert from_colmap(tmp_path, tmp_path / "images").status.code == "scale_unknown"
    with pytest.raises(UnknownName, match="v000"):
        from_colmap(tmp_path, tmp_path / "images", length=replace(length, frame="v0"))
    with pytest.raises(InputError, match="no COLMAP model"):
        from_colmap(tmp_path / "images", tmp_path / "images")


def test_half_a_walk_is_said_to_be_one_sided() -> None:
    frames, T = scan()
    views = [View(f.name, CAMERA, pose, f.rgb) for f, pose in zip(frames, T, strict=True)][:8]
    none = np.zeros((0, 3))
    found = cameras._cameras(
        views, none, none.astype(np.uint8), given=8, with_board=0, reprojection_px=0.3, board_px=None,
        position_sd_m=None, scale_sd=1e-3,
    )  # fmt: skip
    assert found.status.code == "one_sided"
    first, last = (np.degrees(np.arctan2(T[k, 1, 3], T[k, 0, 3] + 0.02)) for k in (0, 7))
    assert found.quality.widest_gap_deg == pytest.approx((first - last) % 360, abs=0.1)


def test_pixels_on_the_table() -> None:
    view = View("v", CAMERA, path(3)[1], np.zeros((300, 400, 3), np.uint8))
    p = np.array([[0.1, -0.05, 0.0], [0.0, 0.03, 0.0]])
    uv = CAMERA.project(se3.transform(se3.inverse(view.T_world_camera), p))
    np.testing.assert_allclose(table_points(view, uv), p, atol=1e-9)
    level = replace(view, T_world_camera=se3.look_at(np.array([0, 0, 0.3]), np.array([1.0, 0, 0.3])))
    assert np.isnan(table_points(level, np.array([[200.0, 10.0]]))).all()
    np.testing.assert_allclose(
        look_at_point([replace(view, T_world_camera=T) for T in path(5)]), [-0.02, 0, 0.03], atol=1e-9
    )
