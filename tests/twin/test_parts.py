from __future__ import annotations

import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
import trimesh

from dexloop.core.errors import InputError
from dexloop.sim.parts import Thing
from dexloop.sim.scene import compose
from dexloop.sim.shape import Mesh, Shape
from dexloop.twin.parts import concavity, convex_parts


def _mesh(solid: trimesh.Trimesh) -> Mesh:
    return Mesh(np.array(solid.vertices, dtype=float), np.array(solid.faces, dtype=np.int64))


@pytest.fixture(scope="module")
def angle() -> Mesh:
    """An L of two bars of 100 x 20 x 20 mm."""
    corners = np.array([[0, 0], [0.1, 0], [0.1, 0.02], [0.02, 0.02], [0.02, 0.1], [0, 0.1]])
    low, high = np.c_[corners, np.zeros(6)], np.c_[corners, np.full(6, 0.02)]
    flat = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 5]])
    sides = [[i, (i + 1) % 6, (i + 1) % 6 + 6] for i in range(6)] + [[i, (i + 1) % 6 + 6, i + 6] for i in range(6)]
    return Mesh(np.r_[low, high], np.r_[flat[:, ::-1], flat + 6, sides])


def test_an_angle_is_two_bars(angle: Mesh, tmp_path: Path):
    found = convex_parts(angle, cache=tmp_path)
    assert len(found.parts) == 2
    assert found.note == ""
    assert found.volume_over_mesh == pytest.approx(1.0, abs=0.01)
    assert found.overlap > 0.98
    assert found.concavity_m < 0.001
    hull = trimesh.convex.convex_hull(angle.vertices)
    # The inner walls are deep inside the hull, but nowhere farther than 10 mm from its flat sides, 20 mm apart.
    assert 0.008 < concavity([_mesh(hull)], angle) <= 0.01


def test_it_is_cut_once_and_remembered(angle: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = convex_parts(angle, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setitem(sys.modules, "coacd", None)
    second = convex_parts(angle, cache=tmp_path)
    for a, b in zip(first.parts, second.parts, strict=True):
        np.testing.assert_array_equal(a.vertices, b.vertices)
    other = convex_parts(angle, cache=tmp_path, seed=1)  # not remembered, and nothing can cut it
    assert len(other.parts) == 1
    assert "hull stands for" in other.note
    assert other.volume_over_mesh > 1.5


def test_a_ball_is_one_part_that_mujoco_takes(tmp_path: Path):
    ball = _mesh(trimesh.creation.icosphere(subdivisions=4, radius=0.04))
    found = convex_parts(ball, cache=tmp_path)
    (part,) = found.parts
    assert len(part.vertices) <= 128
    assert found.volume_over_mesh > 0.9
    scene = compose(Thing("ball", Shape(ball, None, found.parts), 0.1))
    assert scene.model.mesh_vertnum[1] <= 128
    assert mujoco.mj_getTotalmass(scene.model) == pytest.approx(0.1)


def test_an_open_mesh_is_refused(angle: Mesh):
    with pytest.raises(InputError, match="mend it first"):
        convex_parts(Mesh(angle.vertices, angle.faces[1:]))


def test_what_stands_on_a_flat_foot_has_one_polygon_there() -> None:
    """A scanned can is rough everywhere; its foot may not be, or it rocks."""
    import mujoco

    made = trimesh.creation.cylinder(radius=0.04, height=0.1, sections=64).subdivide().subdivide()
    rng = np.random.default_rng(0)
    vertices = np.array(made.vertices)
    side = vertices[:, 2] > -0.05 + 1e-6
    vertices[side] += 3e-4 * rng.standard_normal((int(side.sum()), 3))
    (part,) = convex_parts(Mesh(vertices, np.array(made.faces))).parts
    foot = part.vertices[:, 2] == part.vertices[:, 2].min()
    assert foot.sum() > 8
    spec = mujoco.MjSpec()
    spec.add_mesh(name="part", uservert=part.vertices.ravel(), userface=part.faces.ravel())
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="part")
    model = spec.compile()
    normals = model.mesh_polynormal.reshape(-1, 3)
    # MuJoCo turns meshes into their principal axes: the foot is the polygon with most corners.
    assert model.mesh_polyvertnum.max() >= foot.sum() - 1, normals


def test_an_edge_that_stands_on_the_table_is_not_rounded_off() -> None:
    """As scans do it: the lowest 2.5 mm of a can curve inwards by 4 mm."""
    outline = [[0, 0], [0.036, 0], [0.038, 6e-4], [0.0395, 1.5e-3], [0.04, 2.5e-3], [0.04, 0.1], [0, 0.1]]
    made = trimesh.creation.revolve(np.array(outline), sections=64)
    (part,) = convex_parts(_mesh(made)).parts
    foot = part.vertices[part.vertices[:, 2] < 1e-5]
    assert np.linalg.norm(foot[:, :2], axis=1).max() > 0.0385


def test_a_ball_gets_no_foot() -> None:
    ball = trimesh.creation.icosphere(subdivisions=3, radius=0.04)
    (part,) = convex_parts(Mesh(np.array(ball.vertices), np.array(ball.faces))).parts
    assert (part.vertices[:, 2] < part.vertices[:, 2].min() + 1e-4).sum() <= 3
