from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots import Kinematics, check, import_robot, load, mount


@pytest.mark.parametrize("name", ["dex16@wrist", "dex16@arm7", "gripper@wrist", "gripper@arm7"])
def test_every_builtin_pair_is_sound(name: str) -> None:
    robot = load(name)
    assert check(robot) == []
    hand, arm = (load(part) for part in name.split("@"))
    assert robot.name == name
    assert robot.arm_joints == arm.joints
    assert robot.hand_joints == tuple(f"hand_{j}" for j in hand.joints)
    np.testing.assert_array_equal(robot.home, np.concatenate([arm.home, hand.home]))
    np.testing.assert_array_equal(robot.effort_limits, np.concatenate([arm.effort_limits, hand.effort_limits]))
    assert robot.mount == ""


def test_on_an_arm_the_mounting_faces_meet() -> None:
    arm, hand, both = load("arm7"), load("dex16"), load("dex16@arm7")
    T_flange = Kinematics(both).poses(both.home, "hand_flange")
    np.testing.assert_allclose(T_flange, Kinematics(arm).poses(arm.home, arm.mount), atol=1e-12)
    # The hand is the same hand: fingertips seen from the palm do not change.
    alone = Kinematics(hand)
    expected = se3.inverse(alone.palm(hand.home)) @ alone.fingertips(hand.home)
    mounted = Kinematics(both)
    found = se3.inverse(mounted.palm(both.home)) @ mounted.fingertips(both.home)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert np.all(mounted.fingertips(both.home)[:, 2, 3] < T_flange[2, 3] - 0.03)  # below the flange, pointing down


def test_masses_add_up() -> None:
    def mass(name: str) -> float:
        return float(load(name).make_spec().compile().body_mass.sum())

    assert mass("dex16@arm7") == pytest.approx(mass("dex16") + mass("arm7"))


def test_a_hand_can_be_mounted_elsewhere() -> None:
    T = se3.from_pose(np.array([0.0, 0.0, 0.1, 1, 0, 0, 0]))
    robot = mount(load("gripper"), load("arm7"), T_mount_hand=T)
    kinematics = Kinematics(robot)
    gap = kinematics.poses(robot.home, "hand_flange")[:3, 3] - kinematics.poses(robot.home, "arm_mount")[:3, 3]
    np.testing.assert_allclose(gap, [0, 0, -0.1], atol=1e-12)


def test_names_that_clash_do_not(claw) -> None:
    """A hand whose bodies are called like the arm's."""
    text = claw.read_text().replace('name="base"', 'name="arm_base"').replace('"base"', '"arm_base"')
    claw.write_text(text)
    robot = mount(import_robot(claw), load("arm7"))
    model = robot.make_spec().compile()
    assert model.body("arm_base").id != model.body("hand_arm_base").id
    assert check(robot) == []


@pytest.mark.parametrize("name", ["dex16@arm7", "dex16@wrist", "gripper@wrist"])
def test_a_mounted_model_can_be_saved_and_read_again(name: str, tmp_path) -> None:
    spec = load(name).make_spec()
    model = spec.compile()
    path = tmp_path / "robot.xml"
    path.write_text(spec.to_xml())
    again = mujoco.MjModel.from_xml_path(str(path))
    assert [again.joint(j).name for j in range(again.njnt)] == [model.joint(j).name for j in range(model.njnt)]
    np.testing.assert_allclose(again.body_mass, model.body_mass, rtol=1e-6)


def test_only_a_bare_hand_on_a_bare_arm() -> None:
    with pytest.raises(InputError, match="has no fingertips"):
        mount(load("arm7"), load("arm7"))
    with pytest.raises(InputError, match="is carried by an arm already"):
        mount(load("dex16@wrist"), load("arm7"))
    with pytest.raises(InputError, match="carries a hand already"):
        mount(load("dex16"), load("gripper@arm7"))


@pytest.mark.parametrize("name", ["leap_hand@arm7", "leap_hand@wrist", "wonik_allegro@arm7", "wonik_allegro@wrist"])
def test_menagerie_hands_mount(name: str, menagerie, monkeypatch) -> None:
    monkeypatch.setenv("MENAGERIE_ROOT", str(menagerie))
    robot = load(name)
    assert check(robot) == []
    T = Kinematics(robot).palm(robot.home)
    tips = Kinematics(robot).fingertips(robot.home)[:, :3, 3] - T[:3, 3]
    assert np.all(tips[:3] @ T[:3, 0] > 0.05)  # the fingers lie ahead of the palm
    if name.endswith("@wrist"):
        np.testing.assert_allclose(T[:3, 3], robot.home[:3], atol=1e-9)
        np.testing.assert_allclose(T[:3, 2], [0, 0, -1], atol=1e-9)
    else:
        np.testing.assert_allclose(T[:3, 0], [0, 0, -1], atol=1e-9)  # fingers down, as the flange is
