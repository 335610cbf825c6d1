from pathlib import Path

import mujoco
import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.lab.objects import make
from dexloop.sim.parts import Table, Thing
from dexloop.sim.saving import ModelFile, save
from dexloop.sim.scene import Scene, SceneCfg, compose
from dexloop.sim.shape import shape_of
from dexloop.sim.world import World

POSE = (0.0, 0.0, 0.06, 1.0, 0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, Path]:
    scene = compose(Table(), Thing("can", make("meat_can").shape, 0.4, pose=POSE), cfg=SceneCfg(max_delay_s=0.0))
    return scene, save(scene, tmp_path_factory.mktemp("scene"))


def test_a_saved_scene_is_the_one_it_was_saved_from(saved):
    """To the six digits that an MJCF file keeps: bit by bit the same it cannot be, so paths after an impact differ."""
    scene, file = saved
    for again in (Scene.open(file, max_delay_s=0.0), compose(ModelFile(file), cfg=SceneCfg(max_delay_s=0.0))):
        assert again.model.npair == scene.model.npair
        for name in ("pair_solreffriction", "pair_friction", "geom_solimp", "body_mass", "body_inertia", "mesh_vert"):
            np.testing.assert_allclose(getattr(again.model, name), getattr(scene.model, name), rtol=1e-5, atol=1e-6)
        falling = [World(s).rollout(steps=20, record=("object.pose",))["object.pose"] for s in (scene, again)]
        np.testing.assert_allclose(falling[0], falling[1], atol=1e-6)


def test_a_saved_mesh_keeps_its_flat_faces(saved):
    """MuJoCo joins triangles that lie in one plane, to the last digit: an object shall not stand on half its bottom."""
    scene, file = saved
    again = Scene.open(file, max_delay_s=0.0).model
    np.testing.assert_array_equal(again.mesh_polynum, scene.model.mesh_polynum)
    np.testing.assert_array_equal(again.mesh_vert, scene.model.mesh_vert)


def test_the_file_can_be_moved_with_its_folder(saved, tmp_path):
    _, file = saved
    moved = file.parent.rename(tmp_path / "elsewhere")
    mujoco.MjModel.from_xml_path(str(moved / "scene.xml"))
    moved.rename(file.parent)


def test_shape_and_picture_come_back_from_a_compiled_model(saved):
    _, file = saved
    given, model = make("meat_can").shape, Scene.open(file).model
    found = shape_of(model, model.body("can").id)
    assert found.texture is not None
    assert given.texture is not None
    np.testing.assert_array_equal(found.texture, given.texture)
    low, high = found.visual.vertices.min(axis=0), found.visual.vertices.max(axis=0)
    np.testing.assert_allclose(low, given.visual.vertices.min(axis=0), atol=1e-5)
    np.testing.assert_allclose(high, given.visual.vertices.max(axis=0), atol=1e-5)
    assert len(found.visual.faces) == len(given.visual.faces)
    # The picture sits in the same place: each corner's coordinate goes with the same point in space.
    assert given.visual.uv is not None
    assert found.visual.uv is not None
    for k in (0, len(given.visual.faces) // 2):
        corner = given.visual.vertices[given.visual.faces[k]]
        near = np.abs(found.visual.vertices[found.visual.faces] - corner[None]).max(axis=(1, 2)).argmin()
        np.testing.assert_allclose(found.visual.vertices[found.visual.faces[near]], corner, atol=1e-5)
        np.testing.assert_allclose(
            found.visual.uv[found.visual.faces[near]], given.visual.uv[given.visual.faces[k]], atol=1e-5
        )


def test_a_missing_or_broken_file_is_one_clear_error(tmp_path):
    with pytest.raises(InputError, match="there is no model"):
        compose(ModelFile(tmp_path / "none.xml"))
    (tmp_path / "bad.xml").write_text("<mujoco><nonsense/></mujoco>")
    with pytest.raises(InputError, match=r"bad\.xml cannot be read"):
        compose(ModelFile(tmp_path / "bad.xml"))
