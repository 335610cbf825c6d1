from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dexloop.core import se3
from dexloop.core.errors import InputError, UnknownName
from dexloop.twin.cameras import KnownLength
from dexloop.twin.importing import from_colmap, from_transforms
from tests.twin import CAMERA, errors_m, scan


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
