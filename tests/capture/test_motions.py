"""Motions are checked by where the robot's own kinematics put the fingertip."""

import dataclasses

import numpy as np
import pytest

from dexloop.capture.bench import Box, picture
from dexloop.capture.motions import BACK_M, plan_motion
from dexloop.capture.plans import FreeMotion, Lift, Press, Push
from dexloop.capture.postures import pinch_sites, poke
from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.lab import Lab, LabCfg
from dexloop.robots import Collisions, Kinematics

ROBOTS = ("dex16@wrist", "gripper@arm7", "dex16@arm7")
RATE = 250.0


@pytest.fixture(scope="module")
def benches():
    made = {}
    for robot in ROBOTS:
        rig = Lab(LabCfg(object="cube", robot=robot, seed=1, video=False)).rig()
        made[robot] = picture(rig.features)
    return made


def tips(bench, q, site) -> np.ndarray:
    return se3.transform(bench.T_world_base, Kinematics(bench.robot).poses(q, site)[:, :3, 3])


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_push_is_a_straight_line_that_touches_gently_and_ends_at_its_speed(benches, robot):
    bench = benches[robot]
    plan = Push(speed_m_s=0.2, direction_rad=0.3, height_m=0.025, release=False)
    motion = plan_motion(plan, bench, RATE)
    p = tips(bench, motion.action, bench.robot.fingertips[0].site)
    ahead = np.array([np.cos(0.3), np.sin(0.3), 0.0])
    along = (p - p[0]) @ ahead
    assert np.abs((p - p[0]) - along[:, None] * ahead).max() < 1e-3
    assert p[:, 2] == pytest.approx(0.025, abs=1e-3)
    speed = np.diff(along) * RATE
    touching = int(np.searchsorted(along, 0.034))
    assert speed[touching - 5 : touching].mean() == pytest.approx(plan.touch_m_s, rel=0.02)
    last = int(motion.markers["release"] * RATE) - 1
    assert speed[last - 20 : last].mean() == pytest.approx(0.2, rel=0.02)
    assert along[-1] == pytest.approx(0.035 + plan.distance_m, abs=2e-3)


def test_a_released_push_stops_at_once_and_pulls_back(benches):
    bench = benches["dex16@wrist"]
    motion = plan_motion(Push(speed_m_s=0.3), bench, RATE)
    x = tips(bench, motion.action, bench.robot.fingertips[0].site)[:, 0]
    end = int(np.argmax(x))
    assert end / RATE - motion.markers["release"] < 0.1
    assert x[end] - x[-1] == pytest.approx(0.02, abs=1e-3)


@pytest.mark.parametrize("robot", ROBOTS)
def test_every_motion_begins_and_ends_at_home_and_touches_nothing_on_the_way(benches, robot):
    bench = benches[robot]
    for plan in (Push(), Press(), FreeMotion(duration_s=1.5)):
        motion = plan_motion(plan, bench, RATE)
        np.testing.assert_allclose(motion.approach[0], bench.robot.home)
        np.testing.assert_allclose(motion.retreat[-1], bench.robot.home)
        np.testing.assert_allclose(motion.approach[-1], motion.action[0], atol=1e-9)
        collisions = Collisions(bench.scene.model, bench.robot.joints)
        assert all(collisions.free(q) for q in motion.approach[::15])
        whole = np.vstack([motion.approach, motion.action, motion.retreat])
        assert (np.abs(np.diff(whole, axis=0)) * RATE <= bench.robot.speed_limits * 1.05).all()
        low, high = bench.robot.position_limits.T
        assert ((whole >= low - 1e-9) & (whole <= high + 1e-9)).all()


def test_free_motion_moves_every_joint_each_in_its_own_way(benches):
    motion = plan_motion(FreeMotion(duration_s=4.0), benches["dex16@wrist"], RATE)
    q = motion.action - motion.action.mean(axis=0)
    assert (np.ptp(q, axis=0) > 1e-3).all()
    correlation = np.corrcoef(q.T) - np.eye(q.shape[1])
    assert np.abs(correlation).max() < 0.98
    other = plan_motion(FreeMotion(duration_s=4.0, variation=1), benches["dex16@wrist"], RATE)
    assert np.abs(other.action - motion.action).max() > 1e-2


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_press_goes_below_the_table_deeper_each_time_with_one_fingertip(benches, robot):
    bench = benches[robot]
    tip = bench.robot.fingertips[0]
    motion = plan_motion(Press(presses=3), bench, RATE)
    collisions = Collisions(bench.scene.model, bench.robot.joints)
    depths, touching = [], {(t.robot, t.other) for q in motion.action[::5] for t in collisions.touches(q)}
    for q in np.array_split(motion.action, 3):
        depths.append(max(-t.distance_m for row in q for t in collisions.touches(row)))
    assert touching == {(tip.body, "table")}
    assert 1e-5 < depths[0] < depths[1] < depths[2]
    np.testing.assert_allclose(np.array(depths) / depths[2], [1 / 3, 2 / 3, 1.0], atol=0.1)
    p = tips(bench, motion.action, tip.site)
    box = bench.object_at()
    assert (np.linalg.norm(p[:, :2] - box.centre[:2], axis=1) > box.reach(np.array([1.0, 0.0, 0.0])) + 0.03).all()


def test_a_press_that_is_too_strong_for_a_motor_says_how_hard_one_can(benches):
    bench = benches["dex16@wrist"]
    weak = dataclasses.replace(bench.robot, effort_limits=0.03 * bench.robot.effort_limits)
    with pytest.raises(InputError, match=r"cannot press with 20 N: the motor of .* is too weak; press with"):
        plan_motion(Press(force_n=20.0), dataclasses.replace(bench, robot=weak), RATE)


@pytest.mark.parametrize("robot", ["dex16@wrist", "gripper@arm7"])
def test_a_lift_straddles_the_object_and_rises(benches, robot):
    bench = benches[robot]
    motion = plan_motion(Lift(height_m=0.05), bench, RATE)
    a, b = (tips(bench, motion.action, site) for site in pinch_sites(bench.robot))
    box = bench.object_at()
    axis, width = box.narrow_axis()
    gap = np.abs((a - b) @ axis)
    assert gap[0] > width
    held = int(motion.markers["lift"] * RATE) - 5
    assert gap[held] < width, "they aim inside the object"
    top = int(motion.markers["hold"] * RATE)
    rise = 0.5 * (a + b)[top, 2] - 0.5 * (a + b)[held, 2]
    assert rise == pytest.approx(0.05, abs=5e-3)
    np.testing.assert_allclose(0.5 * (a + b)[0, :2], box.centre[:2], atol=5e-3)


@pytest.mark.parametrize("robot", ["dex16@wrist", "gripper@arm7"])
def test_what_meets_the_table_too_early_is_let_go_of_above_it(benches, robot):
    bench = benches[robot]
    motion = plan_motion(Lift(height_m=0.05), bench, RATE)
    down = motion.put_down
    assert down is not None
    assert down.lowering.start == round(motion.markers["lower"] * RATE)
    row = down.lowering[len(down.lowering) // 2]
    way = np.vstack([motion.action[row], down.let_go(motion.action, row), down.retreat])
    limits = bench.robot.speed_limits / RATE
    assert (np.abs(np.diff(way, axis=0)) <= 1.01 * limits).all(), "no jump anywhere, nor into the retreat"
    a, b = (tips(bench, way, site) for site in pinch_sites(bench.robot))
    gap, height = np.linalg.norm(a - b, axis=1), 0.5 * (a + b)[:, 2]
    opened = int(np.argmax(gap > gap[0] + 0.005))
    assert height[opened] > height[0] + 0.5 * BACK_M, "it is lifted before it is let go of"
    assert height[: -len(down.retreat)].min() > height[0] - 0.02, "and nothing goes on down"
    np.testing.assert_allclose(way[-1], bench.robot.home, atol=1e-6)


def test_a_lift_pinches_where_it_is_told(benches):
    bench = benches["dex16@wrist"]
    motion = plan_motion(Lift(grip_height_m=0.05, grip_width_m=0.03), bench, RATE)
    a, b = (tips(bench, motion.action, site) for site in pinch_sites(bench.robot))
    assert 0.5 * (a + b)[0, 2] == pytest.approx(0.05, abs=2e-3)
    assert 0.03 < np.linalg.norm((a - b)[0]) < 0.07
    with pytest.raises(InputError, match="above the object"):
        plan_motion(Lift(grip_height_m=0.5), bench, RATE)


def test_poking_stretches_one_finger_beyond_all_others(benches):
    robot = benches["dex16@wrist"].robot
    kinematics = Kinematics(robot)
    q = poke(robot)
    ahead = se3.transform(se3.inverse(kinematics.palm(q)), kinematics.fingertips(q)[:, :3, 3])[:, 0]
    assert ahead[0] > ahead[1:].max() + 0.03


def test_a_push_above_the_object_says_so(benches):
    with pytest.raises(InputError, match="misses the object"):
        plan_motion(Push(height_m=0.5), benches["dex16@wrist"], RATE)


def test_an_object_out_of_reach_says_so():
    rig = Lab(LabCfg(object="cube", robot="gripper@arm7", video=False)).rig()
    far = np.eye(4)
    far[0, 3] = 3.0
    scene = {**rig.features.scene, "T_world_object_rough": far.tolist()}
    with pytest.raises(InputError, match="cannot bring its finger"):
        plan_motion(Push(), picture(dataclasses.replace(rig.features, scene=scene)), RATE)
    del scene["T_world_object_rough"]
    with pytest.raises(InputError, match="does not say where the object is"):
        plan_motion(Push(), picture(dataclasses.replace(rig.features, scene=scene)), RATE)


def test_too_wide_to_pinch():
    rig = Lab(LabCfg(object="cookie_tin", robot="gripper@wrist", video=False)).rig()
    with pytest.raises(InputError, match="does not open wide enough"):
        plan_motion(Lift(), picture(rig.features), RATE)


def test_a_box_reaches_as_far_as_its_corners():
    R = se3.quat_to_matrix(se3.so3_exp(np.array([0.0, 0.0, np.pi / 4])))
    box = Box(se3.from_rt(R, np.array([0.1, 0.0, 0.02])), np.array([0.06, 0.06, 0.04]))
    assert box.reach(np.array([1.0, 0.0, 0.0])) == pytest.approx(0.03 * np.sqrt(2))
    assert box.height_m == pytest.approx(0.04)
