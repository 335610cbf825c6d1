from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.handling import Handling
from dexloop.robots.pickup import Load, Pickup
from dexloop.sim.scene import Scene
from tests.robots.pinched import HALF, ROBOT, T_WORLD_OBJECT, box_scene, pinch, worlds


@pytest.fixture(scope="module")
def scene() -> Scene:
    return box_scene()


@pytest.fixture(scope="module")
def motion(scene: Scene) -> Pickup:
    return Pickup(ROBOT, scene.model, pinch(), T_WORLD_OBJECT, Load(0.2, 0.24, 0.4))


def bench(scene: Scene, motion: Pickup, masses: list[float], rate_hz: float = 50.0, **more: object) -> Handling:
    n = len(masses)
    given = {"q": np.tile(motion.before, (n, 1)), "T_world_object": np.tile(T_WORLD_OBJECT, (n, 1, 1)), **more}
    return Handling(scene, ROBOT, "box", worlds(masses, [0.5] * n), rate_hz=rate_hz, **given)  # type: ignore[arg-type]


def test_it_is_what_mujoco_does_with_the_same_targets(scene: Scene, motion: Pickup):
    """Step by step, to the last: joints, efforts, touch, and where object and palm are."""
    made = bench(scene, motion, [0.2, 0.3])
    model, data = scene.model, mujoco.MjData(scene.model)
    joints, servos = qpos_addresses(model, ROBOT.joints), [model.actuator(a).id for a in ROBOT.actuators]
    dofs = [int(model.joint(j).dofadr[0]) for j in ROBOT.joints]
    touch = [int(model.sensor(tip.site).adr[0]) for tip in ROBOT.fingertips]  # in the robot's own order
    data.qpos[joints] = motion.before
    felt, efforts, touched = None, [], []
    # Past the squeeze: then everything has something to say.
    for k in range(round(2.6 / made.dt)):
        targets = motion.command(k * made.dt + made.fine)
        felt = made.step(np.stack([targets] * 2))
        efforts, touched = [], []
        for target in targets:
            data.ctrl[servos] = target
            mujoco.mj_step(model, data)
            efforts.append(data.qfrc_actuator[dofs].copy())
            touched.append(data.sensordata[touch].copy())
    assert felt is not None
    np.testing.assert_allclose(felt.position[0], data.qpos[joints], atol=1e-9)
    np.testing.assert_allclose(felt.effort[0], np.mean(efforts, axis=0), atol=1e-6)
    np.testing.assert_allclose(felt.touch[0], np.mean(touched, axis=0), atol=1e-6)
    assert felt.touch[0].min() > 2.0
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(felt.T_world_object[0, :3, 3], data.body("box").xpos, atol=1e-9)
    palm = data.site(ROBOT.palm)
    np.testing.assert_allclose(felt.T_world_palm[0], se3.from_rt(palm.xmat.reshape(3, 3), palm.xpos), atol=1e-9)


def test_worlds_begin_where_they_are_told_to_and_differ_in_their_parameters(scene: Scene, motion: Pickup):
    aside = np.tile(T_WORLD_OBJECT, (2, 1, 1))
    aside[1, :2, 3] += [0.2, -0.1]
    q = np.stack([motion.before, motion.above])
    made = bench(scene, motion, [0.2, 0.6], q=q, T_world_object=aside)
    felt = made.step(np.repeat(q[:, None], made.steps, axis=1))
    np.testing.assert_allclose(felt.position, q, atol=5e-3)
    np.testing.assert_allclose(felt.T_world_object, aside, atol=2e-3)
    mass = [p.name for p in made.world.parameters].index("object.mass")
    np.testing.assert_allclose(made.world.values[:, mass], [0.2, 0.6])


def test_moments_are_whole_steps_and_targets_are_due_at_their_ends(scene: Scene, motion: Pickup):
    made = bench(scene, motion, [0.2], rate_hz=30.0)  # 16.7 steps of 2 ms
    assert made.steps == 17
    assert made.dt == pytest.approx(0.034)
    np.testing.assert_allclose(made.fine, 0.002 * np.arange(1, 18))


def test_targets_stay_inside_the_joints_limits(scene: Scene, motion: Pickup):
    made = bench(scene, motion, [0.2])
    high = ROBOT.position_limits[:, 1]
    far = np.tile(motion.before, (1, made.steps, 1))
    jaw = [ROBOT.joints.index(j) for j in ROBOT.hand_joints]
    far[..., jaw] = 100.0
    for _ in range(40):
        felt = made.step(far)
    np.testing.assert_allclose(felt.position[0, jaw], high[jaw], atol=1e-3)


def test_a_world_that_becomes_unstable_is_told_and_spoils_no_other(scene: Scene, motion: Pickup):
    alone, made = (bench(scene, motion, [0.2] * n) for n in (1, 2))
    hold = np.tile(motion.before, (2, made.steps, 1))
    state = made.world.state()
    state[1, -scene.model.nv :] = 1e12  # a speed that no solver bears
    made.world.set_state(state)
    for _ in range(2):
        felt, calm = made.step(hold), alone.step(hold[:1])
    assert set(made.diverged) == {1}
    assert not alone.diverged
    np.testing.assert_allclose(felt.position[0], calm.position[0], atol=1e-12)
    assert np.isfinite(felt.position).all()
    assert felt.T_world_object[1, 2, 3] == pytest.approx(HALF[2])
