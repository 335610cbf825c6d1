from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.robots import Kinematics, check, load, solve_ik
from dexloop.robots.builtin import hand
from tests.robots.conftest import settle


@pytest.fixture(scope="module")
def dex16():
    return hand.make()


def test_it_is_a_sound_hand_of_the_right_size(dex16) -> None:
    assert check(dex16) == []
    model = dex16.make_spec().compile()
    assert len(dex16.joints) == 16
    assert 0.6 < model.body_mass.sum() < 0.9
    assert np.all((dex16.effort_limits >= 0.5) & (dex16.effort_limits <= 1.0))
    assert [f.name for f in dex16.fingertips] == ["index", "middle", "ring", "thumb"]
    assert not model.body_gravcomp.any()


def test_a_straight_finger_ends_where_its_lengths_say(dex16) -> None:
    q = np.zeros(16)
    tip = Kinematics(dex16).poses(q, "middle_tip")
    y, z, _ = hand.FINGERS["middle"]
    length = 0.012 + hand.PROXIMAL_M + hand.MIDDLE_M + 0.018
    np.testing.assert_allclose(tip[:3, 3], [0.0124, y, z + length], atol=1e-12)
    np.testing.assert_allclose(tip[:3, 2], [1, 0, 0], atol=1e-7)  # out of the pad, as out of the palm


def test_it_is_a_right_hand_and_closes_towards_the_palm_side(dex16) -> None:
    kinematics = Kinematics(dex16)
    T_palm = kinematics.palm(dex16.home)
    open_tips = kinematics.fingertips(np.zeros(16))[:, :3, 3] @ T_palm[:3, :3]
    assert open_tips[0, 1] < open_tips[1, 1] < open_tips[2, 1]  # seen from the palm, the index is next to the thumb
    assert open_tips[3, 1] < open_tips[0, 1]
    bent = np.array([0, 1.2, 1.0, 0.5] * 3 + [1.5, 0.3, 0.3, 0.3])
    assert np.all((kinematics.fingertips(bent)[:, :3, 3] - T_palm[:3, 3]) @ T_palm[:3, 2] > 0.02)


@pytest.mark.parametrize("finger", ["index", "middle", "ring"])
def test_the_thumb_can_touch_every_finger(dex16, finger: str) -> None:
    y = 0.9 * hand.FINGERS[finger][0]
    meeting = [np.array([x, y, z]) for x in (0.06, 0.07, 0.08) for z in (0.08, 0.1)]
    tries = [solve_ik(dex16, {f"{finger}_tip": p + np.array([0, 0, 0.003]), "thumb_tip": p}) for p in meeting]
    assert any(found.converged for found in tries)


def test_thumb_and_fingers_face_each_other_across_an_object(dex16) -> None:
    q = np.array([0, 1.45, 0.1, 0.0] * 3 + [1.65, 0.1, 0.1, 0.0])
    tips = Kinematics(dex16).fingertips(q)
    for finger in tips[:2]:
        assert finger[:3, 2] @ tips[3, :3, 2] < -0.9
    assert 0.03 < np.linalg.norm(tips[0, :3, 3] - tips[3, :3, 3]) < 0.1


def test_it_grasps_a_can_and_holds_it_for_a_second() -> None:
    robot = load("dex16@wrist")
    T_palm = Kinematics(robot).palm(robot.home)
    spec = robot.make_spec()
    spec.option.integrator, spec.option.cone = mujoco.mjtIntegrator.mjINT_IMPLICITFAST, mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio, spec.option.noslip_iterations = 10, 5
    place = T_palm[:3, 3] + T_palm[:3, :3] @ [0.035, 0.0, 0.042]
    can = spec.worldbody.add_body(name="can", pos=place, quat=[0.5**0.5, 0.5**0.5, 0, 0])
    can.add_freejoint()
    can.add_geom(type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=[0.027, 0.05, 0], mass=0.3)
    model = spec.compile()
    data = mujoco.MjData(model)
    start, grip = robot.home.copy(), robot.home.copy()
    for joint, before, after in (
        *((f"{f}_{j}", None, q) for f in hand.FINGERS for j, q in (("mcp", 1.3), ("pip", 1.5), ("dip", 1.2))),
        ("thumb_rot", 1.6, 1.6), ("thumb_cmc", -0.3, 0.7), ("thumb_mcp", None, 0.9), ("thumb_ip", None, 0.8),
    ):  # fmt: skip
        k = robot.joints.index(f"hand_{joint}")
        start[k] = start[k] if before is None else before
        grip[k] = after
    for joint, q in zip(robot.joints, start, strict=True):
        data.joint(joint).qpos = q
    model.opt.gravity[:] = 0  # an invisible hand holds the can while the fingers close
    for k in range(500):
        s = min(1.0, k / 300)
        data.ctrl[:] = (1 - s) * start + s * grip
        mujoco.mj_step(model, data)
    model.opt.gravity[:] = [0, 0, -9.81]
    mujoco.mj_step(model, data, nstep=200)
    held = data.body("can").xpos.copy()
    mujoco.mj_step(model, data, nstep=500)
    assert np.linalg.norm(data.body("can").xpos - held) < 5e-4
    assert np.all(data.sensordata > 1.0)  # every fingertip feels it
    assert np.abs(data.actuator_force[6:]).max() <= 0.7 + 1e-9  # and no motor beyond its current limit


def test_touch_reads_the_force_on_a_pad(dex16) -> None:
    """A weight resting on a fingertip from the front is felt with its full weight."""
    spec = dex16.make_spec()
    spec.option.gravity = [-9.81, 0, 0]  # towards the palm: the pad of the straight finger is on top
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    site = Kinematics(dex16).poses(np.zeros(16), "middle_tip")[:3, 3]
    ball = spec.worldbody.add_body(name="ball", pos=site + np.array([0.0105, 0, 0]))
    ball.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[1, 0, 0])
    ball.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.01, 0, 0], mass=0.1)
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, nstep=1500)
    assert data.sensor("middle_tip").data[0] == pytest.approx(0.1 * 9.81, rel=0.02)
    assert data.sensor("index_tip").data[0] == 0.0


def test_it_holds_its_home_under_gravity(dex16) -> None:
    assert np.abs(settle(dex16, dex16.home, 2.0) - dex16.home).max() < 0.02
