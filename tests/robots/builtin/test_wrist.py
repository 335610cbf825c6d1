from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.robots import Kinematics, check, load
from dexloop.robots.builtin import wrist
from tests.robots.conftest import settle


def test_the_bare_wrist_is_sound() -> None:
    robot = wrist.make()
    assert check(robot) == []
    assert robot.units == ("m", "m", "m", "rad", "rad", "rad")


@pytest.mark.parametrize("name", ["dex16@wrist", "gripper@wrist"])
def test_its_joints_are_the_palms_place_and_turn(name: str) -> None:
    robot = load(name)
    q = robot.home.copy()
    q[:3] = [0.1, -0.2, 0.3]
    T = Kinematics(robot).palm(q)
    np.testing.assert_allclose(T[:3, 3], q[:3], atol=1e-12)
    np.testing.assert_allclose(T[:3, 2], [0, 0, -1], atol=1e-12)  # the palm looks down
    np.testing.assert_allclose(T[:3, 0], [1, 0, 0], atol=1e-7)
    q[4] = 0.5  # about y: the fingers go down
    T = Kinematics(robot).palm(q)
    np.testing.assert_allclose(T[:3, 3], q[:3], atol=1e-12)
    np.testing.assert_allclose(T[:3, 0], [np.cos(0.5), 0, -np.sin(0.5)], atol=1e-7)


@pytest.mark.parametrize("name", ["dex16@wrist", "gripper@wrist"])
def test_it_holds_a_hand_under_gravity(name: str) -> None:
    robot = load(name)
    error = settle(robot, robot.home, 1.0) - robot.home
    assert np.abs(error[:3]).max() < 1e-3
    assert np.abs(error[3:6]).max() < 5e-3


def test_a_step_command_arrives_without_ringing(hand_on_wrist) -> None:
    spec = hand_on_wrist.make_spec()
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model = spec.compile()
    data = mujoco.MjData(model)
    for joint, q in zip(hand_on_wrist.joints, hand_on_wrist.home, strict=True):
        data.joint(joint).qpos = q
    data.ctrl[:] = hand_on_wrist.home
    data.ctrl[0] += 0.01
    data.ctrl[5] += 0.1
    x, rz = [], []
    while data.time < 0.5:
        mujoco.mj_step(model, data)
        x.append(data.joint("wrist_x").qpos[0])
        rz.append(data.joint("wrist_rz").qpos[0])
    assert max(x) < 0.01 * 1.1
    assert max(rz) < 0.1 * 1.15
    assert x[-1] == pytest.approx(0.01, abs=3e-4)
    assert rz[-1] == pytest.approx(0.1, abs=3e-3)
