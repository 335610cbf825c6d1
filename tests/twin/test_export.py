from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
import trimesh

from dexloop.core import se3
from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.lab.objects import OBJECTS, make
from dexloop.sim.parts import Primitive, Table, Thing
from dexloop.sim.scene import compose
from dexloop.twin.export import export, settle, weighed, write_glb, write_mjcf, write_obj, write_urdf, write_usd
from dexloop.twin.mesh import read


def _thing(name: str, *, x: float = 0.0, y: float = 0.0, lift: float = 0.0) -> Thing:
    thing = make(name)
    T = thing.T_rest.copy()
    T[:3, 3] += [x, y, lift]
    return Thing(name, thing.shape, thing.mass_kg, tuple(float(v) for v in se3.to_pose(T)))


@pytest.fixture(scope="module")
def thing() -> Thing:
    return _thing("letter_a", x=0.1)


def test_uniform_solid_is_weighed_as_trimesh_does(thing: Thing):
    found = weighed(thing)
    mesh = make("letter_a").shape.visual
    truth = trimesh.Trimesh(mesh.vertices, mesh.faces)
    truth.density = 0.134 / truth.volume
    np.testing.assert_allclose(found.com, truth.center_mass, atol=1e-9)
    np.testing.assert_allclose(found.inertia, truth.moment_inertia, rtol=1e-6, atol=1e-12)
    assert weighed(found) is found


def test_mjcf_loads_in_mujoco(thing: Thing, tmp_path: Path):
    model = mujoco.MjModel.from_xml_path(str(write_mjcf([thing], tmp_path, table=Table())))
    body = model.body("letter_a")
    assert body.mass[0] == pytest.approx(0.134)
    np.testing.assert_allclose(body.pos[:2], [0.1, 0.0])
    assert model.ntex == 1
    truth = np.linalg.eigvalsh(np.asarray(weighed(thing).inertia))
    np.testing.assert_allclose(np.sort(body.inertia), truth, rtol=1e-4)


def test_urdf_loads_in_mujoco(thing: Thing, tmp_path: Path):
    model = mujoco.MjModel.from_xml_path(str(write_urdf(thing, tmp_path)))
    body = model.body("letter_a")
    assert body.mass[0] == pytest.approx(0.134)
    assert model.ngeom == 1 + len(make("letter_a").shape.parts)
    np.testing.assert_allclose(body.ipos, weighed(thing).com, atol=1e-6)
    truth = np.linalg.eigvalsh(np.asarray(weighed(thing).inertia))
    np.testing.assert_allclose(np.sort(body.inertia), truth, rtol=1e-4)


@pytest.mark.parametrize("write", [write_glb, write_obj])
def test_glb_and_obj_come_back_with_their_texture(thing: Thing, tmp_path: Path, write):
    shape = make("letter_a").shape
    found = read(write(thing, tmp_path), unit="m")
    np.testing.assert_allclose(
        found.mesh.vertices[found.mesh.faces], shape.visual.vertices[shape.visual.faces], atol=1e-6
    )
    assert found.mesh.uv is not None
    assert shape.visual.uv is not None
    np.testing.assert_allclose(found.mesh.uv[found.mesh.faces], shape.visual.uv[shape.visual.faces], atol=1e-5)
    np.testing.assert_array_equal(found.texture, shape.texture)


def test_usd_loads_in_usd(thing: Thing, tmp_path: Path):
    pxr = pytest.importorskip("pxr", reason="usd-core is not installed")
    from pxr import Usd, UsdGeom, UsdPhysics, UsdShade

    assert pxr is not None
    file = write_usd(thing, tmp_path)
    assert write_usd(thing, tmp_path) == file  # and again
    stage = Usd.Stage.Open(str(file))
    assert UsdGeom.GetStageMetersPerUnit(stage) == 1.0
    assert UsdGeom.GetStageUpAxis(stage) == "Z"
    body = stage.GetDefaultPrim()
    assert UsdPhysics.MassAPI(body).GetMassAttr().Get() == pytest.approx(0.134)
    np.testing.assert_allclose(UsdPhysics.MassAPI(body).GetCenterOfMassAttr().Get(), weighed(thing).com, atol=1e-6)
    colliders = [p for p in stage.Traverse() if p.HasAPI(UsdPhysics.CollisionAPI)]
    assert len(colliders) == len(make("letter_a").shape.parts)
    visual = stage.GetPrimAtPath("/letter_a/visual")
    points = np.array(UsdGeom.Mesh(visual).GetPointsAttr().Get())
    np.testing.assert_allclose(points, make("letter_a").shape.visual.vertices, atol=1e-6)
    material, _ = UsdShade.MaterialBindingAPI(visual).ComputeBoundMaterial()
    assert material.GetPath() == "/letter_a/material"
    assert (tmp_path / "letter_a.png").is_file()


def test_export_refuses_what_it_cannot_do(thing: Thing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UnknownName, match="there is urdf, usd, glb, obj"):
        export(thing, tmp_path, ["fbx"])
    monkeypatch.setitem(sys.modules, "pxr", None)
    with pytest.raises(MissingPart, match="pip install 'dexloop\\[usd\\]'"):
        export(thing, tmp_path, ["usd"])
    ball = Thing("ball", Primitive("sphere", (0.03,)), 0.1)
    with pytest.raises(InputError, match="ball is a sphere"):
        export(ball, tmp_path, ["obj"])


def test_all_objects_settle_together_and_stay():
    """They start 4 mm in the table, or above it."""
    things = [
        _thing(n, x=-0.3 + 0.2 * (i % 4), y=-0.15 + 0.3 * (i // 4), lift=-0.004 if i % 2 else 0.004)
        for i, n in enumerate(OBJECTS)
    ]
    settled = settle(things, Table())
    for before, s in zip(things, settled, strict=True):
        assert s.note == ""
        assert s.moved_m == pytest.approx(0.004, abs=0.001)
        assert s.turned_rad < np.radians(0.5)
        assert s.thing.name == before.name
    # Simulated afresh from there, nothing is deep in anything, and nothing jumps.
    scene = compose(Table(), *(s.thing for s in settled))
    data = mujoco.MjData(scene.model)
    mujoco.mj_forward(scene.model, data)
    assert min(c.dist for c in data.contact) > -5e-4
    start, highest = data.qpos.copy(), 0.0
    for _ in range(250):
        mujoco.mj_step(scene.model, data)
        highest = max(highest, float(np.abs(data.qvel).reshape(-1, 6)[:, :3].max()))
    assert highest < 0.01
    assert np.abs(data.qpos - start).reshape(-1, 7)[:, :3].max() < 5e-4


def test_objects_in_one_another_are_pushed_apart():
    a, b = _thing("cube"), replace(_thing("cube", x=0.055), name="other")
    first, second = settle([a, b], Table())
    gap = np.array(second.thing.pose[:3]) - np.array(first.thing.pose[:3])
    assert np.linalg.norm(gap) == pytest.approx(0.065, abs=0.001)
    assert max(first.drift_m, second.drift_m) < 5e-4


def test_what_cannot_stand_is_said_to_have_fallen():
    tilted = _thing("ketchup_bottle")
    turn = se3.so3_exp(np.array([np.radians(35.0), 0.0, 0.0]))
    (fallen,) = settle([replace(tilted, pose=(*tilted.pose[:3], *(float(v) for v in turn)))], Table())
    assert "does not stand as it was seen" in fallen.note
