from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import trimesh

from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.shape import Mesh
from dexloop.twin import mesh as meshes

BALL = trimesh.creation.icosphere(subdivisions=3, radius=0.04)
V, F = np.array(BALL.vertices), np.array(BALL.faces)
RNG = np.random.default_rng(0)


def _mixed() -> np.ndarray:
    some = RNG.random(len(F)) < 0.3
    return np.where(some[:, None], F[:, ::-1], F)


BROKEN = {
    "with a hole": (V, F[V[F].mean(axis=1)[:, 2] < 0.035], 0.97, "hole of 4"),
    "with touching holes": (V, F[RNG.random(len(F)) > 0.03], 0.99, "hole of"),
    "inside out": (V, F[:, ::-1], 0.999, "inside out"),
    "with faces both ways": (V, _mixed(), 0.999, "looked the other way"),
    "of loose triangles": (V[F].reshape(-1, 3), np.arange(3 * len(F)).reshape(-1, 3), 0.999, ""),
    "there twice": (np.r_[V, V], np.r_[F, F + len(V)], 0.999, "twice"),
    "with a crumb": (np.r_[V, 0.02 * V + 0.06], np.r_[F, F + len(V)], 0.999, "1 crumbs"),
    "with a hollow": (np.r_[V, 0.8 * V], np.r_[F, F[:, ::-1] + len(V)], 0.999, "united"),
    "with a fin": (np.r_[V, [[0, 0, 0.06]]], np.r_[F, [[F[0, 0], F[0, 1], len(V)]]], 0.999, "stuck out"),
    "with a loose face": (V, np.r_[F, [[0, 1, 300]]], 0.999, "without volume"),
}


@pytest.mark.parametrize("state", BROKEN)
def test_a_ball_in_any_state_becomes_a_ball(state: str):
    vertices, faces, share, note = BROKEN[state]
    mended = meshes.mend(Mesh(vertices.astype(float), faces))
    fitness = meshes.check(mended.mesh)
    assert fitness.fit, fitness.problems
    assert (fitness.shells, fitness.euler) == (1, 2)
    assert share * BALL.volume < fitness.volume_m3 < 1.001 * BALL.volume
    assert note in "; ".join(mended.notes)


def test_overlapping_shells_are_united():
    apart = 0.05  # two balls: V = 2 V_ball - lens, lens = π (4 r + d) (2 r - d)² / 12
    lens = np.pi * (4 * 0.04 + apart) * (2 * 0.04 - apart) ** 2 / 12
    two = Mesh(np.r_[V, V + np.array([apart, 0, 0])], np.r_[F, F + len(V)])
    found = meshes.mend(two)
    assert meshes.solid(found.mesh).volume_m3 == pytest.approx(2 * BALL.volume - lens, rel=0.01)
    assert meshes.check(found.mesh).shells == 1


def test_what_is_too_broken_is_made_anew():
    """Two balls in one shell: every edge of a face in both has four faces."""
    shifted = np.r_[V, V + np.array([0.03, 0, 0])]
    bridge = np.array([[0, 1, len(V)], [0, 1, len(V) + 1], [1, len(V), len(V) + 1], [0, 1, len(V) + 5]])
    keep = RNG.random(2 * len(F)) > 0.05
    mended = meshes.mend(Mesh(shifted, np.r_[np.r_[F, F + len(V)][keep], bridge]))
    fitness = meshes.check(mended.mesh)
    assert fitness.watertight
    assert fitness.outward
    lens = np.pi * (4 * 0.04 + 0.03) * (2 * 0.04 - 0.03) ** 2 / 12
    assert fitness.volume_m3 == pytest.approx(2 * BALL.volume - lens, rel=0.04)


def test_what_encloses_nothing_is_refused():
    corners = np.array([[0, 0, 0], [0.1, 0, 0], [0.1, 0.1, 0], [0, 0.1, 0.0]])
    with pytest.raises(InputError, match=r"encloses no volume.*thickness"):
        meshes.mend(Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]])))
    with pytest.raises(InputError, match="no faces"):
        meshes.mend(Mesh(corners, np.zeros((0, 3), int)))
    with pytest.raises(InputError, match="encloses no volume"):
        meshes.mend(Mesh(np.zeros((3, 3)), np.array([[0, 1, 2]])))


def test_check_sees_what_is_wrong():
    assert meshes.check(Mesh(V, F)).fit
    assert "look inwards" in meshes.check(Mesh(V, F[:, ::-1])).problems[0]
    holed = meshes.check(Mesh(V, F[1:]))
    assert not holed.watertight
    assert "3 edges are open" in holed.problems[0]
    turned = meshes.check(Mesh(V, np.r_[F[:1, ::-1], F[1:]]))
    assert not turned.winding_consistent
    plate = trimesh.creation.box((0.1, 0.1, 0.001))
    thin = meshes.check(Mesh(np.array(plate.vertices), np.array(plate.faces)))
    assert thin.thinnest_m == pytest.approx(0.001, rel=0.01)
    assert "walls" in thin.problems[0]
    ring = trimesh.creation.torus(0.04, 0.01)
    assert meshes.check(Mesh(np.array(ring.vertices), np.array(ring.faces))).euler == 0
    pushed = V.copy()
    pushed[V[:, 2] > 0.02, 2] -= 0.09  # the cap of the ball comes out below
    assert meshes.check(Mesh(pushed, F)).crossing_faces > 20


def test_smoothing_takes_noise_off_and_keeps_the_volume():
    ball = trimesh.creation.icosphere(subdivisions=5, radius=0.04)
    vertices, rng = np.array(ball.vertices), np.random.default_rng(1)
    noisy = Mesh(vertices * (1 + 0.01 * rng.normal(size=(len(vertices), 1))), np.array(ball.faces))
    smoothed = meshes.smooth(noisy)
    rough, fine = (np.std(np.linalg.norm(m.vertices, axis=1)) for m in (noisy, smoothed))
    assert fine < 0.4 * rough
    assert meshes.solid(smoothed).volume_m3 == pytest.approx(ball.volume, rel=0.005)
    flat = vertices[:, 2] < -0.03
    kept = meshes.smooth(noisy, flat=flat)
    np.testing.assert_array_equal(kept.vertices[flat, 2], noisy.vertices[flat, 2])


def test_simplified_meshes_stay_closed_and_near():
    ball = trimesh.creation.icosphere(subdivisions=5, radius=0.04)
    whole = Mesh(np.array(ball.vertices), np.array(ball.faces))
    small = meshes.simplify(whole, 1500)
    assert len(small.faces) <= 1500
    assert meshes.check(small).fit
    agreement = meshes.compare(small, whole, count=3_000)
    assert agreement.chamfer_m < 2e-4
    assert agreement.f_score == 1.0
    assert meshes.simplify(small, 5000) is small


def test_solid_against_formulas():
    box = trimesh.creation.box((0.02, 0.04, 0.06))
    found = meshes.solid(Mesh(np.array(box.vertices) + np.array([0.1, 0, 0]), np.array(box.faces)))
    volume = 0.02 * 0.04 * 0.06
    assert found.volume_m3 == pytest.approx(volume)
    np.testing.assert_allclose(found.com, [0.1, 0, 0], atol=1e-12)
    x, y, z = np.array([0.02, 0.04, 0.06]) ** 2
    np.testing.assert_allclose(found.inertia, volume * np.diag([y + z, x + z, x + y]) / 12, atol=1e-15)


def test_comparison_measures_a_known_gap():
    ball = trimesh.creation.icosphere(subdivisions=5, radius=0.04)
    a = Mesh(np.array(ball.vertices), np.array(ball.faces))
    b = Mesh(a.vertices * 1.05, a.faces)  # 2 mm apart
    near, far = meshes.compare(b, a, count=3_000), meshes.compare(b, a, within_m=0.0015, count=3_000)
    assert near.chamfer_m == pytest.approx(0.002, abs=3e-5)
    assert (near.f_score, far.f_score) == (1.0, 0.0)
    assert near.volume_error == pytest.approx(1.05**3 - 1, rel=1e-6)


@pytest.mark.parametrize("suffix", ["obj", "stl", "ply", "glb"])
@pytest.mark.parametrize(("unit", "scale"), [("m", 1.0), ("cm", 100.0), ("mm", 1000.0)])
def test_reads_formats_and_guesses_units(tmp_path: Path, suffix: str, unit: str, scale: float):
    box = trimesh.creation.box((0.05, 0.08, 0.12))
    box.apply_scale(scale)
    box.export(tmp_path / f"box.{suffix}")
    found = meshes.read(tmp_path / f"box.{suffix}")
    assert (found.unit, found.guessed) == (unit, True)
    # In glTF y is up: what was 80 mm of height there is now along z.
    size = (0.05, 0.12, 0.08) if suffix == "glb" else (0.05, 0.08, 0.12)
    np.testing.assert_allclose(np.ptp(found.mesh.vertices, axis=0), size, rtol=1e-5)
    assert meshes.solid(meshes.mend(found.mesh).mesh).volume_m3 == pytest.approx(0.05 * 0.08 * 0.12, rel=1e-4)


def test_given_units_win_and_bad_files_are_refused(tmp_path: Path):
    box = trimesh.creation.box((2.0, 2.0, 2.0))
    box.export(tmp_path / "box.stl")
    assert np.ptp(meshes.read(tmp_path / "box.stl", unit="in").mesh.vertices[:, 0]) == pytest.approx(0.0508)
    with pytest.raises(UnknownName, match="there is m, cm, mm, in"):
        meshes.read(tmp_path / "box.stl", unit="feet")
    with pytest.raises(InputError, match="there is no mesh"):
        meshes.read(tmp_path / "none.stl")
    (tmp_path / "box.step").write_text("ISO-10303-21;")
    with pytest.raises(InputError, match="convert it to one of"):
        meshes.read(tmp_path / "box.step")
    (tmp_path / "junk.glb").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"junk\.glb"):
        meshes.read(tmp_path / "junk.glb")
    trimesh.PointCloud(V).export(tmp_path / "cloud.ply")
    with pytest.raises(InputError, match="no triangles"):
        meshes.read(tmp_path / "cloud.ply")
    trimesh.creation.box((9000.0, 1, 1)).export(tmp_path / "huge.stl")
    with pytest.raises(InputError, match="cannot be guessed: give it"):
        meshes.read(tmp_path / "huge.stl")
