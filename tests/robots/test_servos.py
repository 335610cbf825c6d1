from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.robots.servos import DEFAULTS, drive, is_position_servo, plan_servos

XML = """<mujoco><compiler angle="radian"/><worldbody><body name="a"><geom size="0.1"/>
<joint name="motor" axis="0 0 1" range="-1 1"/>
<body name="b"><geom size="0.1"/><joint name="servo" axis="0 1 0" range="-1 1" armature="0.2"/>
<body name="c"><geom size="0.1"/><joint name="bare" axis="1 0 0" range="-1 1"/>
<body name="d"><geom size="0.1"/><joint name="rail" type="slide" range="0 1"/></body></body></body></body></worldbody>
<actuator><motor name="m" joint="motor" gear="5" ctrlrange="-2 2"/><position name="p" joint="servo" kp="9"/>
<velocity name="v" joint="bare" kv="1"/></actuator></mujoco>"""
JOINTS = ("motor", "servo", "bare", "rail")


def planned(**efforts: float) -> tuple[mujoco.MjModel, dict]:
    spec = mujoco.MjSpec.from_string(XML)
    servos = plan_servos(spec.compile(), JOINTS[:1], JOINTS[1:], efforts)
    drive(spec, servos)
    return spec.compile(), {s.joint: s for s in servos}


def test_every_joint_ends_with_one_position_servo() -> None:
    model, servos = planned()
    assert model.nu == 4
    assert all(is_position_servo(model, a) for a in range(model.nu))
    assert servos["motor"].effort == 10.0  # the motor's gear times its largest command
    assert servos["servo"].keep == "p"
    assert servos["servo"].effort == DEFAULTS["hand hinge"].effort
    assert servos["rail"].effort == DEFAULTS["hand slide"].effort
    assert servos["motor"].kp == pytest.approx(10.0 / DEFAULTS["arm hinge"].error)
    assert model.actuator("p").gainprm[0] == 9


def test_a_persons_limit_wins() -> None:
    model, _ = planned(servo=0.3, motor=4.0)
    np.testing.assert_array_equal(model.actuator("p").forcerange, [-0.3, 0.3])
    np.testing.assert_array_equal(model.actuator("motor").forcerange, [-4, 4])


def test_missing_inertia_of_the_rotor_is_filled_in_and_given_one_kept() -> None:
    model, _ = planned()
    armature = {j: model.dof_armature[model.joint(j).dofadr[0]] for j in JOINTS}
    assert armature["servo"] == 0.2
    assert armature["rail"] == DEFAULTS["hand slide"].armature


def test_motors_and_velocity_drives_are_not_servos() -> None:
    model = mujoco.MjModel.from_xml_string(XML)
    assert [is_position_servo(model, a) for a in range(3)] == [False, True, False]


def test_a_made_servo_follows_a_step_without_ringing() -> None:
    spec = mujoco.MjSpec.from_string(XML)
    spec.option.gravity = [0, 0, 0]
    drive(spec, plan_servos(spec.compile(), JOINTS, (), {}))
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model = spec.compile()
    data = mujoco.MjData(model)
    data.actuator("bare").ctrl = 0.01
    angles = []
    while data.time < 2:
        mujoco.mj_step(model, data)
        angles.append(data.joint("bare").qpos[0])
    assert angles[-1] == pytest.approx(0.01, rel=1e-3)
    assert max(angles) < 0.0105
