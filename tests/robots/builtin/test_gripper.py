from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.robots import Kinematics, check, load
from dexloop.robots.builtin import gripper


def test_it_is_sound_and_opens_to_eighty_millimetres() -> None:
    robot = gripper.make()
    assert check(robot) == []
    tips = Kinematics(robot).fingertips(np.array([[0.0, 0.0], [0.04, 0.04]]))
    gaps = np.linalg.norm(tips[:, 0, :3, 3] - tips[:, 1, :3, 3], axis=-1)
    np.testing.assert_allclose(gaps, [0.0, 0.08], atol=1e-9)
    assert tips[0, 0, :3, 2] @ tips[0, 1, :3, 2] == pytest.approx(-1)  # the pads face each other


def box_between_the_jaws(weight_kg: float, friction: float) -> tuple[mujoco.MjModel, mujoco.MjData]:
    robot = load("gripper@wrist")
    T_palm = Kinematics(robot).palm(robot.home)
    spec = robot.make_spec()
    spec.option.integrator, spec.option.cone = mujoco.mjtIntegrator.mjINT_IMPLICITFAST, mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio, spec.option.noslip_iterations = 10, 5
    for tip in robot.fingertips:
        spec.geom(tip.geoms[0]).friction = [friction, 0.005, 1e-4]
    # Off the middle by 5 mm, standing on a post until it is gripped.
    box = spec.worldbody.add_body(name="box", pos=T_palm[:3, 3] + [0.005, 0, -0.05])
    box.add_freejoint()
    box.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.02, 0.03, 0.02], mass=weight_kg)
    model = spec.compile()
    data = mujoco.MjData(model)
    for joint, q in zip(robot.joints, robot.home, strict=True):
        data.joint(joint).qpos = q
    data.ctrl[:] = [*robot.home[:6], 0.0, 0.0]
    model.opt.gravity[:] = 0
    mujoco.mj_step(model, data, nstep=400)
    model.opt.gravity[:] = [0, 0, -9.81]
    mujoco.mj_step(model, data, nstep=100)
    return model, data


def test_it_closes_on_a_box_centres_it_and_holds_it() -> None:
    model, data = box_between_the_jaws(0.5, friction=0.9)
    before = data.body("box").xpos.copy()
    mujoco.mj_step(model, data, nstep=500)
    assert np.linalg.norm(data.body("box").xpos - before) < 5e-4
    assert abs(before[0]) < 1e-3  # the gears keep both jaws at the same distance
    np.testing.assert_allclose(data.sensordata, 40.0, rtol=0.05)  # less what the gears' dry friction takes


def test_it_drops_what_friction_cannot_hold() -> None:
    """2 · mu · F = 2 · 0.1 · 40 N = 8 N holds less than 1.5 kg: the box slides out."""
    model, data = box_between_the_jaws(1.5, friction=0.1)
    before = data.body("box").xpos[2]
    mujoco.mj_step(model, data, nstep=300)
    assert data.body("box").xpos[2] < before - 0.05
