from __future__ import annotations

import struct
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from scipy.special import sph_harm_y

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.vision.splats import Splats, joined, sh_basis, sh_rotation


def cloud(n: int = 7, degree: int = 3, seed: int = 0) -> Splats:
    rng = np.random.default_rng(seed)
    shapes = ((n, 3), (n, 3), (n, 4), (n,), (n, (degree + 1) ** 2, 3))
    return Splats(*(rng.normal(size=shape) for shape in shapes))


def same(a: Splats, b: Splats) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(Splats))


def directions(n: int, seed: int = 0) -> np.ndarray:
    d = np.random.default_rng(seed).normal(size=(n, 3))
    return d / np.linalg.norm(d, axis=1, keepdims=True)


def test_harmonics_are_those_of_scipy() -> None:
    """Real harmonics from complex ones, with the signs that 3D Gaussian Splatting has them with."""
    d = directions(50)
    polar, azimuth = np.arccos(d[:, 2]), np.arctan2(d[:, 1], d[:, 0])
    columns = []
    for degree in range(4):
        for order in range(-degree, degree + 1):
            y = sph_harm_y(degree, abs(order), polar, azimuth)  # with the phase (-1)^order
            part = y.real if order >= 0 else y.imag
            columns.append(part * (np.sqrt(2) if order else 1.0))
    assert np.allclose(sh_basis(d, 3), np.stack(columns, axis=1), atol=1e-12)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_turned_coefficients_are_the_turned_function(degree: int) -> None:
    R, d = Rotation.random(rng=np.random.default_rng(4)).as_matrix(), directions(40, seed=1)
    c = np.random.default_rng(2).normal(size=(degree + 1) ** 2)
    assert np.allclose(sh_basis(d, degree) @ (sh_rotation(R, degree) @ c), sh_basis(d @ R, degree) @ c, atol=1e-9)


@given(st.lists(st.floats(-2, 2), min_size=6, max_size=6))
def test_moving_there_and_back_changes_nothing(xi: list[float]) -> None:
    splats, T = cloud(), se3.exp(np.array(xi))
    back = splats.moved(T).moved(se3.inverse(T))
    for f in ("means", "log_scales", "logits", "sh"):
        assert np.allclose(getattr(back, f), getattr(splats, f), atol=1e-4)
    # A quaternion and its negative are the same rotation.
    dots = np.abs((back.quats * splats.quats).sum(axis=1)) / np.linalg.norm(splats.quats, axis=1) ** 2
    assert np.allclose(dots, 1.0, atol=1e-4)


def test_moved_gaussians_have_the_turned_covariance() -> None:
    splats, T = cloud(), se3.exp(np.array([1.0, 2.0, 3.0, 0.3, -0.8, 0.4]))

    def covariance(s: Splats) -> np.ndarray:
        R = Rotation.from_quat(s.quats, scalar_first=True).as_matrix()
        return R @ (np.exp(2 * s.log_scales)[..., None] * np.swapaxes(R, 1, 2))

    R = T[:3, :3]
    assert np.allclose(covariance(splats.moved(T)), R @ covariance(splats) @ R.T, rtol=1e-3, atol=1e-3)
    assert np.allclose(splats.moved(T).means, splats.means @ R.T + T[:3, 3], atol=1e-5)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_files_give_back_what_was_written(tmp_path: Path, degree: int) -> None:
    splats = cloud(degree=degree)
    splats.save(tmp_path / "a.ply")
    assert same(Splats.load(tmp_path / "a.ply"), splats)


def test_the_file_is_laid_out_as_in_3d_gaussian_splatting(tmp_path: Path) -> None:
    splats = cloud(n=2, degree=3)
    splats.save(tmp_path / "a.ply")
    head, _, body = (tmp_path / "a.ply").read_bytes().partition(b"end_header\n")
    names = [line.split()[2] for line in head.decode().splitlines() if line.startswith("property float")]
    rest = [f"f_rest_{i}" for i in range(45)]
    after = ["opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"]
    assert names == ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2", *rest, *after]
    second = dict(zip(names, struct.unpack("<62f", body[62 * 4 :]), strict=True))
    assert second["y"] == splats.means[1, 1]
    assert second["f_dc_2"] == splats.sh[1, 0, 2]
    assert second["f_rest_0"] == splats.sh[1, 1, 0]
    assert second["f_rest_16"] == splats.sh[1, 2, 1]  # all of red first, then all of green
    assert (second["opacity"], second["scale_2"]) == (splats.logits[1], splats.log_scales[1, 2])
    assert second["rot_0"] == splats.quats[1, 0]


def test_another_reader_opens_the_file(tmp_path: Path) -> None:
    import trimesh

    splats = cloud()
    splats.save(tmp_path / "a.ply")
    assert np.allclose(trimesh.load(tmp_path / "a.ply").vertices, splats.means)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"solid cube\n", "not a PLY file"),
        (lambda data: data.replace(b"binary_little_endian", b"ascii"), "not a binary little-endian"),
        (lambda data: data.replace(b"property float opacity\n", b""), "lacks opacity"),
        (lambda data: data[:-5], "ends early"),
        (lambda data: data.replace(b"end_header", b"element face 2\nend_header"), "more than vertices"),
        (lambda data: data.replace(b"float rot_3", b"list uchar int rot_3"), "not plain numbers"),
    ],
)
def test_a_file_that_is_no_splats_says_so(tmp_path: Path, change, message: str) -> None:
    file = tmp_path / "a.ply"
    cloud().save(file)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(InputError, match=message):
        Splats.load(file)


def test_points_become_splats_of_their_colour_and_spacing() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(5) * 0.01] * 3), axis=-1).reshape(-1, 3)
    colours = np.random.default_rng(0).random((125, 3))
    splats = Splats.from_points(grid, colours, degree=2)
    assert np.allclose(splats.colours, colours, atol=1e-6)
    assert np.allclose(np.exp(splats.log_scales), 0.01, rtol=1e-4)
    assert np.allclose(splats.opacities, 0.1, atol=1e-6)
    assert (splats.degree, len(splats)) == (2, 125)


def test_points_that_coincide_still_become_splats() -> None:
    splats = Splats.from_points(np.repeat(np.eye(3), 5, axis=0), np.full((15, 3), 0.5))
    assert np.all(np.isfinite(splats.log_scales))


def test_clouds_join_at_the_higher_degree_and_come_apart() -> None:
    a, b = cloud(3, degree=1), cloud(4, degree=2, seed=1)
    both = joined([a, b])
    assert both.degree == 2
    assert same(both.taken(np.arange(7) >= 3), b)
    assert same(both.taken(np.arange(3)).with_degree(1), a)
    assert np.all(both.sh[:3, 4:] == 0)


def test_bad_input_is_told() -> None:
    with pytest.raises(InputError, match="quats has shape"):
        replace(cloud(), quats=np.zeros((7, 3)))
    with pytest.raises(InputError, match="sh has shape"):
        replace(cloud(), sh=np.zeros((7, 5, 3)))
    with pytest.raises(InputError, match="too few"):
        Splats.from_points(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(InputError, match="as many colours"):
        Splats.from_points(np.zeros((9, 3)), np.zeros((8, 3)))
    with pytest.raises(InputError, match="at least one"):
        joined([])
