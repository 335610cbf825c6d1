from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from dexloop.core.errors import InputError, UnknownName
from dexloop.robots import Embodiment, Kinematics, Overrides, check, import_robot
from dexloop.robots.servos import DEFAULTS
from tests.robots.conftest import settle


def test_a_scene_with_a_hand_gives_the_hand_alone(claw: Path) -> None:
    hand = import_robot(claw)
    assert check(hand) == []
    spec = hand.make_spec()
    model = spec.compile()
    assert (model.nlight, model.ncam, model.nkey) == (0, 0, 0)
    assert "ball" not in [b.name for b in spec.bodies]
    assert all(g.type != mujoco.mjtGeom.mjGEOM_PLANE for g in spec.geoms)
    assert (model.opt.timestep, model.opt.impratio) == (0.002, 1.0)  # options belong to the scene
    assert hand.joints == ("index_1", "index_2", "middle_1", "middle_2", "thumb_1", "thumb_2")
    assert [f.name for f in hand.fingertips] == ["index", "middle", "thumb"]
    assert hand.mount == "flange"
    assert hand.source == str(claw)


def test_drives_become_position_servos_of_the_same_strength(claw: Path) -> None:
    hand = import_robot(claw)
    assert hand.actuators[0] == "index_1"  # the motor was replaced: gear 2 times 0.3
    np.testing.assert_allclose(hand.effort_limits, [0.6, DEFAULTS["hand hinge"].effort, 0.4, 0.4, 0.4, 0.4])
    np.testing.assert_array_equal(hand.speed_limits, DEFAULTS["hand hinge"].speed)


def test_it_joins_a_scene_of_other_options_without_a_warning(claw: Path) -> None:
    scene = mujoco.MjSpec()
    scene.option.cone, scene.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 7
    scene.attach(import_robot(claw).make_spec(), frame=scene.worldbody.add_frame(), prefix="robot_")
    assert scene.compile().opt.impratio == 7


def test_a_floating_base_is_fixed(claw: Path) -> None:
    claw.write_text(claw.read_text().replace('<body name="base" pos="0 0 0.2">', '<body name="base"><freejoint/>'))
    assert import_robot(claw).make_spec().compile().nq == 6


def test_a_keyframe_is_the_home_and_one_called_home_comes_first(claw: Path) -> None:
    text = claw.read_text()
    keys = '<keyframe><key name="other" qpos="0 0 0 0 0 0 0 .1 .1 .1 .1 -.1 -.1"/>{}</keyframe></mujoco>'
    claw.write_text(text.replace("</mujoco>", keys.format("")))
    np.testing.assert_allclose(import_robot(claw).home, [0.1, 0.1, 0.1, 0.1, -0.1, -0.1])
    claw.write_text(text.replace("</mujoco>", keys.format('<key name="home" qpos="0 0 0 0 0 0 0 .2 9 0 0 0 0"/>')))
    np.testing.assert_allclose(import_robot(claw).home, [0.2, 1.5, 0, 0, 0, 0])  # clipped to the limits


def test_without_a_keyframe_home_avoids_touching_itself(claw: Path) -> None:
    post = '<geom type="sphere" size="0.004" pos="-0.02 0.02 0.12" mass="0.001"/>'  # where the index would end
    claw.write_text(claw.read_text().replace('<geom name="palm_box"', post + '<geom name="palm_box"'))
    hand = import_robot(claw)
    assert np.abs(hand.home).max() > 0
    assert check(hand) == []


def test_a_urdf_arm_with_a_gripper(urdf_arm: Path) -> None:
    robot = import_robot(urdf_arm)
    assert check(robot) == []
    assert robot.arm_joints == ("turn", "bend")
    assert set(robot.hand_joints) == {"left", "right"}
    assert robot.units == ("rad", "rad", "m", "m")
    by_joint = dict(zip(robot.joints, zip(robot.effort_limits, robot.speed_limits, strict=True), strict=True))
    assert by_joint["turn"] == (30.0, 2.5)
    assert by_joint["bend"] == (20.0, DEFAULTS["arm hinge"].speed)  # a speed of zero says nothing
    assert by_joint["left"] == (15.0, 0.1)
    assert by_joint["right"] == (DEFAULTS["hand slide"].effort, DEFAULTS["hand slide"].speed)
    T = Kinematics(robot).palm(np.zeros(4))
    np.testing.assert_allclose(T[:3, 2], [0, 0, 1], atol=1e-6)  # the way it approaches
    assert abs(T[0, 0]) == pytest.approx(1, abs=1e-6)  # the line of its jaws
    tips = Kinematics(robot).fingertips(np.zeros(4))
    assert tips[0, :3, 2] @ tips[1, :3, 2] == pytest.approx(-1, abs=1e-6)
    np.testing.assert_allclose(tips[:, 0, 3], 0, atol=1e-6)  # closed: both pads at the middle
    assert robot.mount == ""
    assert np.abs(settle(robot, robot.home, 1.0) - robot.home).max() < 0.02


def test_robot_toml_overrides_everything(urdf_arm: Path) -> None:
    urdf_arm.with_name("robot.toml").write_text("""
arm_joints = ["turn"]
hand_joints = ["bend", "right", "left"]
speed_limits = { bend = 0.7 }
effort_limits = 5.0
home = { bend = 0.4 }
palm = { body = "fore", pos = [0, 0, 0.2] }
mount = { body = "base" }
[[fingertips]]
name = "a"
body = "jaw_r"
pos = [0, 0, 0.06]
[[fingertips]]
name = "b"
body = "jaw_l"
""")
    robot = import_robot(urdf_arm)
    assert robot.joints == ("turn", "bend", "right", "left")
    assert robot.speed_limits[1] == 0.7
    np.testing.assert_array_equal(robot.effort_limits, 5.0)
    assert robot.home[1] == 0.4
    assert [(f.name, f.body, f.site) for f in robot.fingertips] == [("a", "jaw_r", "a_tip"), ("b", "jaw_l", "b_tip")]
    kinematics = Kinematics(robot)
    zero = np.zeros(4)
    np.testing.assert_allclose(kinematics.palm(zero)[:3, 3], [0, 0, 0.13 + 0.3 + 0.2], atol=1e-12)
    np.testing.assert_allclose(kinematics.poses(zero, "a_tip")[:3, 3], [0, 0, 0.13 + 0.3 + 0.23 + 0.06], atol=1e-12)
    assert robot.mount == "mount"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (Overrides(arm_joints=("nope",)), "arm_joints of robot.toml 'nope'"),
        (Overrides(home={"nope": 1.0}), "home of robot.toml 'nope'"),
        (Overrides(speed_limits={"nope": 1.0}), "speed_limits of robot.toml 'nope'"),
        (Overrides(palm="nope"), "unknown site 'nope'"),
    ],
)
def test_overrides_that_match_nothing_are_errors(urdf_arm: Path, overrides: Overrides, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        import_robot(urdf_arm, overrides=overrides)


def test_what_is_no_robot_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.xml"
    with pytest.raises(InputError, match="there is no robot file"):
        import_robot(path)
    path.write_text("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    with pytest.raises(InputError, match="no hinge or slide joint"):
        import_robot(path)
    path.write_text("<mujoco><nonsense/></mujoco>")
    with pytest.raises(InputError, match="cannot be read"):
        import_robot(path)


@pytest.fixture(scope="module", params=["leap_hand", "wonik_allegro"])
def real_hand(request, menagerie: Path) -> Embodiment:
    return import_robot(menagerie / request.param / "right_hand.xml", name=request.param)


def test_real_hands_are_sound(real_hand: Embodiment) -> None:
    assert check(real_hand) == []
    assert len(real_hand.joints) == 16
    assert real_hand.arm_joints == ()
    assert [f.name for f in real_hand.fingertips] == ["index", "middle", "ring", "thumb"]
    bodies = {
        "leap_hand": ["if_ds", "mf_ds", "rf_ds", "th_ds"],
        "wonik_allegro": ["ff_tip", "mf_tip", "rf_tip", "th_tip"],
    }
    assert [f.body for f in real_hand.fingertips] == bodies[real_hand.name]


def test_real_hands_have_a_palm_frame_that_means_something(real_hand: Embodiment) -> None:
    kinematics = Kinematics(real_hand)
    T = kinematics.palm(real_hand.home)
    tips = (kinematics.fingertips(real_hand.home)[:, :3, 3] - T[:3, 3]) @ T[:3, :3]
    assert np.all(tips[:3, 0] > 0.08)  # fingers ahead
    assert tips[0, 1] < tips[1, 1] < tips[2, 1]  # a right hand: the index is on the thumb's side
    assert tips[3, 1] < tips[0, 1]
    low, high = real_hand.position_limits.T
    flexed = real_hand.home.copy()
    flexing = high > 1.5  # abduction joints turn less
    flexed[flexing] += 0.4 * (high - real_hand.home)[flexing]
    closed = (kinematics.fingertips(np.clip(flexed, low, high))[:3, :3, 3] - T[:3, 3]) @ T[:3, :3]
    assert np.all(closed[:, 2] > tips[:3, 2] + 0.02)  # they close towards the side that z points to


def test_real_hands_tips_lie_on_their_pads(real_hand: Embodiment) -> None:
    """A ray from outside along -z meets the pad at the site."""
    model = real_hand.make_spec().compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    for tip in real_hand.fingertips:
        site, normal = data.site(tip.site).xpos, data.site(tip.site).xmat.reshape(3, 3)[:, 2]
        hit = np.zeros(1, dtype=np.int32)
        distance = mujoco.mj_ray(model, data, site + 0.05 * normal, -normal, None, True, -1, hit)
        assert model.body(model.geom_bodyid[hit[0]]).name in (
            tip.body,
            model.body(model.body(tip.body).parentid[0]).name,
        )
        assert distance == pytest.approx(0.05, abs=0.003)
        assert model.site(tip.site).size[0] < 0.04


def test_real_hands_hold_their_home(real_hand: Embodiment) -> None:
    assert np.abs(settle(real_hand, real_hand.home, 1.0) - real_hand.home).max() < 0.1


def test_jaws_on_one_tendon_get_a_servo_each(tmp_path: Path) -> None:
    """As in Menagerie's Panda: one actuator pulls a tendon over both finger joints."""
    jaw = """<body name="{0}" pos="0 0 0.05"><joint name="{0}" type="slide" axis="{1} 0 0" range="0 0.04"/>
      <geom type="box" size="0.005 0.01 0.02" pos="{1}5e-3 0 0.03" mass="0.02"/></body>"""
    path = tmp_path / "hand.xml"
    path.write_text(f"""<mujoco><worldbody><body name="base">
      <geom type="box" size="0.06 0.02 0.02" pos="0 0 0.02" mass="0.4"/>
      {jaw.format("left", "")}{jaw.format("right", "-")}</body></worldbody>
      <tendon><fixed name="split"><joint joint="left" coef="0.5"/><joint joint="right" coef="0.5"/></fixed></tendon>
      <actuator><general name="grip" tendon="split"/></actuator></mujoco>""".replace('axis=" ', 'axis="1 ')
                    .replace('axis="- ', 'axis="-1 '))  # fmt: skip
    hand = import_robot(path)
    assert check(hand) == []
    assert set(hand.actuators) == {"left", "right"}
    assert hand.make_spec().compile().nu == 2
    T = Kinematics(hand).palm(hand.home)
    np.testing.assert_allclose(T[:3, 2], [0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(T[:3, 3], [0, 0, 0.04], atol=1e-6)  # the face between the jaws
