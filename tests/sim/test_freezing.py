import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.robots.catalog import load
from dexloop.sim.freezing import freeze
from dexloop.sim.parts import Robot, Table
from dexloop.sim.scene import SceneCfg, compose

HELD = {"hand_middle_mcp": 0.4, "hand_middle_pip": 0.7, "hand_thumb_rot": -0.2, "wrist_z": 0.03}


@pytest.fixture(scope="module")
def scene():
    place = se3.from_rt(np.eye(3), np.array([-0.2, 0.0, 0.3]))
    return compose(Table(), Robot(load("dex16@wrist"), place), cfg=SceneCfg(max_delay_s=0.0))


def test_what_hung_on_frozen_joints_stands_where_it_stood(scene):
    frozen = freeze(scene, HELD)
    gone = {"hand_middle_mcp", "hand_middle_pip", "hand_thumb_rot"}
    gone |= {"wrist_z"} if frozen.model.nv == scene.model.nv - 4 else set()
    assert frozen.model.nv == scene.model.nv - len(gone)
    a, b = mujoco.MjData(scene.model), mujoco.MjData(frozen.model)
    for name in gone:
        a.joint(name).qpos[0] = HELD[name]
    mujoco.mj_forward(scene.model, a)
    mujoco.mj_forward(frozen.model, b)
    np.testing.assert_allclose(a.xpos, b.xpos, atol=1e-12)
    np.testing.assert_allclose(a.xmat, b.xmat, atol=1e-12)
    assert frozen.model.nu == scene.model.nu - len(gone)


def test_roles_stay_what_they_were_and_the_scene_is_left_alone(scene):
    before = scene.model.nv
    frozen = freeze(scene, HELD)
    assert scene.model.nv == before
    names = [frozen.model.geom(g).name for g in frozen.roles["fingertip"].geoms]
    assert names == [scene.model.geom(g).name for g in scene.roles["fingertip"].geoms]
    assert len(frozen.roles["joint"].joints) == frozen.model.njnt
    assert frozen.model.opt.timestep == scene.model.opt.timestep
