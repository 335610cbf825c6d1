from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.core.errors import InputError, UnknownName
from dexloop.robots.describe import describe, effort_limit, servo_of

XML = """<mujoco><compiler angle="radian"/><worldbody><body name="a"><geom size="0.1"/>
<joint name="h" axis="0 0 1" range="-1 2"/>
<body name="b"><geom size="0.1"/><joint name="s" type="slide" range="0 0.5" actuatorfrcrange="-7 7"/>
<body name="c"><geom size="0.1"/><joint name="free" axis="1 0 0"/></body></body></body></worldbody>
<actuator><position name="ah" joint="h" kp="1" gear="3" forcerange="-2 2"/><position name="as" joint="s" kp="1"/>
<position name="af" joint="free" kp="1"/></actuator></mujoco>"""


def make() -> mujoco.MjSpec:
    return mujoco.MjSpec.from_string(XML)


def test_units_limits_and_servos_come_from_the_model() -> None:
    joints = ("s", "h")
    robot = describe("x", make, arm_joints=joints[:1], hand_joints=joints[1:],
                     speed_limits={"s": 1.0, "h": 2.0}, home={"s": 0.1, "h": 0.2})  # fmt: skip
    assert robot.joints == ("s", "h")
    assert robot.actuators == ("as", "ah")
    assert robot.units == ("m", "rad")
    np.testing.assert_array_equal(robot.position_limits, [[0, 0.5], [-1, 2]])
    np.testing.assert_array_equal(robot.effort_limits, [7.0, 6.0])  # the joint's own limit; gear times force
    np.testing.assert_array_equal(robot.home, [0.1, 0.2])


def test_what_nothing_limits_is_infinite() -> None:
    model = make().compile()
    assert effort_limit(model, "af") == np.inf
    robot = describe("x", make, arm_joints=("free",), hand_joints=(), speed_limits={"free": 1.0}, home={"free": 0.0})
    np.testing.assert_array_equal(robot.position_limits, [[-np.inf, np.inf]])


def test_an_unknown_joint_and_an_undriven_one_are_named() -> None:
    with pytest.raises(UnknownName, match="there is h, s, free"):
        describe("x", make, arm_joints=("nope",), hand_joints=(), speed_limits={}, home={})
    model = mujoco.MjSpec.from_string(XML.replace('<position name="af" joint="free" kp="1"/>', "")).compile()
    with pytest.raises(InputError, match="'free' has no actuator"):
        servo_of(model, "free")


def test_a_model_that_mujoco_refuses_is_an_input_error() -> None:
    def broken() -> mujoco.MjSpec:
        spec = make()
        spec.add_exclude(bodyname1="a", bodyname2="nobody")
        return spec

    with pytest.raises(InputError, match="does not compile"):
        describe("x", broken, arm_joints=(), hand_joints=(), speed_limits={}, home={})
