from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.artifact import writing
from dexloop.core.artifacts import Twin
from dexloop.core.capture import Capture, StreamInfo
from dexloop.core.errors import InputError
from dexloop.rig.protocol import Features, Samples
from dexloop.rig.recorder import Recorder
from dexloop.robots.staging import open_scene, place_of, robot_of, standing
from dexloop.sim.parts import Part, Primitive, Table, Thing
from dexloop.sim.saving import save
from dexloop.sim.scene import SceneCfg, compose
from tests.robots.pinched import T_WORLD_BASE

LYING = se3.exp(np.array([0.03, -0.02, 0.03, np.pi / 2, 0.0, 0.0]))
"""A twin may lie on its side: its own z points along the table."""


def twin(folder: Path, *parts: Part) -> Twin:
    with writing(folder / "twin", Twin) as draft:
        save(compose(Table(), *parts, cfg=SceneCfg(max_delay_s=0.0)), draft.folder)
    return Twin.open(folder / "twin")


def box(name: str = "box", x: float = 0.0) -> Thing:
    T = LYING.copy()
    T[0, 3] += x
    return Thing(name, Primitive("box", (0.02, 0.03, 0.02)), 0.1, pose=tuple(se3.to_pose(T).tolist()))


ABOUT = {"name": "gripper@wrist", "T_world_base": T_WORLD_BASE.tolist()}


def recorded(folder: Path, about: dict) -> Capture:
    stream = StreamInfo("x", "scalar", ("x",), ("m",), "robot")
    with Recorder(folder / "capture", Features("bench", about, (stream,), (), None, {})) as recorder:
        recorder.start("one")
        recorder.append_samples("x", Samples(np.zeros(1), np.zeros((1, 1))))
    assert recorder.capture is not None
    return recorder.capture


def test_the_robot_stands_in_the_twin_where_the_rig_says(tmp_path: Path):
    robot, base, scene = open_scene(twin(tmp_path, box()), ABOUT)
    assert robot.name == "gripper@wrist"
    np.testing.assert_array_equal(base, T_WORLD_BASE)
    model = scene.model
    assert {model.joint(j).name for j in robot.joints} == set(robot.joints)
    assert model.opt.noslip_iterations > 0  # fit for holding
    assert model.nhistory > 0  # fit for delays
    at = place_of(scene, "box")
    np.testing.assert_allclose(se3.from_pose(model.qpos0[at : at + 7]), LYING, atol=1e-6)
    _, base, _ = open_scene(Twin.open(tmp_path / "twin"), {"name": "gripper@wrist"})
    np.testing.assert_array_equal(base, np.eye(4))


@pytest.mark.parametrize("parts", [(), (box("a"), box("b", 0.3))])
def test_a_twin_of_none_or_of_two_is_refused(tmp_path: Path, parts: tuple[Part, ...]):
    with pytest.raises(InputError, match="exactly one free object"):
        open_scene(twin(tmp_path, *parts), ABOUT)


def test_what_is_seen_tilted_or_above_stands_on_the_table(tmp_path: Path):
    _, _, scene = open_scene(twin(tmp_path, box()), ABOUT)
    turn = se3.from_rt(se3.quat_to_matrix(se3.so3_exp(np.array([0.0, 0.0, 2.5]))), np.array([0.1, 0.2, 0.0]))
    true = turn @ LYING
    true[2, 3] = LYING[2, 3]
    np.testing.assert_allclose(standing(scene, true), true, atol=1e-6)
    seen = true.copy()
    seen[2, 3] += 0.004
    tilt = se3.quat_to_matrix(se3.so3_exp(np.array([0.03, -0.02, 0.0])))
    seen[:3, :3] = tilt @ seen[:3, :3]
    np.testing.assert_allclose(standing(scene, seen), true, atol=1e-3)  # a tilt has nearly no turn in it
    for tilt_rad in (0.3, 1.4, 3.1):
        seen[:3, :3] = se3.quat_to_matrix(se3.so3_exp(np.array([0.0, tilt_rad, 0.0]))) @ true[:3, :3]
        with pytest.raises(InputError, match=f"does not stand .* tilted by {np.rad2deg(tilt_rad):.0f}°"):
            standing(scene, seen)


def test_recordings_tell_of_the_robot_or_it_is_an_error(tmp_path: Path):
    assert robot_of(recorded(tmp_path / "a", ABOUT))["name"] == "gripper@wrist"
    with pytest.raises(InputError, match="record one with the robot"):
        robot_of(recorded(tmp_path / "b", {}))
