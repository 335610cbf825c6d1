from __future__ import annotations

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.deploy.doers import LIFT, MotionDoer, PolicyDoer
from dexloop.policy.rehearsal import Stage
from dexloop.robots.catalog import load
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.pickup import PHASES, Load, Pickup
from tests.policy.planted import ball
from tests.policy.played import BRISK, Player
from tests.robots.pinched import ROBOT, T_WORLD_BASE, T_WORLD_OBJECT, box_scene, pinch

LOAD = Load(0.2, 0.24, 0.4)
FINE = 0.004 * np.arange(1, 6)


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage(box_scene(), ROBOT, "box", T_WORLD_BASE, ball(0.03))


@pytest.fixture(scope="module")
def pickup(stage: Stage) -> Pickup:
    return Pickup(ROBOT, stage.scene.model, pinch(), T_WORLD_OBJECT, LOAD, BRISK)


def test_a_policy_goes_the_way_that_it_plays_without_a_jump(stage: Stage, pickup: Pickup):
    doer = PolicyDoer(Player(pickup, T_WORLD_BASE, T_WORLD_OBJECT), *_start(pickup), stage, T_WORLD_OBJECT, LOAD)
    np.testing.assert_allclose(doer.before, pickup.before, atol=2e-3)
    q, sent, phases = doer.before, [], []
    for k in range(round((pickup.starts[-1] + 0.1) * doer.rate_hz)):
        targets = doer.step(k / doer.rate_hz, q, np.zeros(2), T_WORLD_OBJECT, FINE)
        sent.append(targets)
        phases.append(doer.phase)
        q = targets[-1]
    way = np.concatenate(sent)
    assert list(dict.fromkeys(phases)) == list(range(len(PHASES)))
    np.testing.assert_allclose(way[-1], pickup.command(np.array(99.0)), atol=2e-3)
    assert (np.abs(np.diff(way, axis=0)) <= (1.0 + 1e-9) * ROBOT.speed_limits * 0.004).all()


def test_at_half_the_pace_a_policy_goes_the_same_way_half_as_fast(stage: Stage, pickup: Pickup):
    ways = []
    for pace in (1.0, 0.5):
        player = Player(pickup, T_WORLD_BASE, T_WORLD_OBJECT)
        doer = PolicyDoer(player, *_start(pickup), stage, T_WORLD_OBJECT, LOAD, pace=pace)
        fine = 0.02 / pace * np.linspace(0.2, 1.0, 5)
        assert doer.rate_hz == pace * 50.0
        q, sent = doer.before, []
        for k in range(60):
            sent.append(doer.step(k / doer.rate_hz, q, np.zeros(2), T_WORLD_OBJECT, fine))
            q = sent[-1][-1]
        ways.append(np.concatenate(sent))
    np.testing.assert_allclose(*ways, atol=1e-9)


def _start(pickup: Pickup) -> tuple:
    return (Player(pickup, T_WORLD_BASE, T_WORLD_OBJECT).start,)


def test_a_policy_for_another_robot_is_refused(stage: Stage, pickup: Pickup):
    other = Stage(stage.scene, load("gripper@arm7"), "box", T_WORLD_BASE, ball(0.03))
    with pytest.raises(InputError):
        PolicyDoer(Player(pickup, T_WORLD_BASE, T_WORLD_OBJECT), *_start(pickup), other, T_WORLD_OBJECT, LOAD)


def slipping(pickup: Pickup, *, feedback: bool, fall_m: float, felt: float = 1.0) -> tuple[MotionDoer, np.ndarray]:
    """Plays the motion for an object that goes with the palm, and slides out of it evenly once it is lifted; fingers
    feel a share of what is planned."""
    doer, kinematics = MotionDoer(pickup, T_WORLD_BASE, feedback=feedback), Kinematics(ROBOT)
    way, begun = [], None
    for k in range(round((pickup.starts[-1] + 0.2) * doer.rate_hz)):
        t = k / doer.rate_hz
        q = pickup.command(np.array(t))
        palm = T_WORLD_BASE @ kinematics.palm(q)
        if doer.phase >= LIFT and begun is None:
            begun = t
        fallen = 0.0 if begun is None else fall_m * min((t - begun) / 0.3, 1.0)
        T = palm @ se3.from_rt(np.eye(3), np.array([0.0, 0.0, 0.1 + fallen]))
        way.append(doer.step(t, q, felt * pickup.finger_forces(), T, FINE))
    return doer, np.concatenate(way)


def test_a_motion_squeezes_what_slips_harder_and_only_then(pickup: Pickup):
    hand = [ROBOT.joints.index(j) for j in ROBOT.hand_joints]
    t = np.concatenate([k / 50 + FINE for k in range(round((pickup.starts[-1] + 0.2) * 50))])
    planned = pickup.command(t)
    firm, still = slipping(pickup, feedback=True, fall_m=0.0)
    np.testing.assert_allclose(still, planned, atol=1e-9)
    assert firm.phase == len(PHASES) - 1
    _, deaf = slipping(pickup, feedback=False, fall_m=0.004)
    np.testing.assert_allclose(deaf, planned, atol=1e-9)
    _, firmer = slipping(pickup, feedback=True, fall_m=0.004)
    # 4 mm, of which the first is none: 400 times 3 mm is 1.2 more than planned.
    push = (pickup.hold.q_touch - firmer[-1, hand]) / (pickup.hold.q_touch - planned[-1, hand])
    np.testing.assert_allclose(push, 2.2, rtol=1e-3)
    before = t < pickup.starts[LIFT]
    np.testing.assert_allclose(firmer[before], planned[before], atol=1e-9)


def test_a_motion_squeezes_harder_what_it_feels_too_little_of(pickup: Pickup):
    hand = [ROBOT.joints.index(j) for j in ROBOT.hand_joints]
    planned, weak, deaf = (
        slipping(pickup, feedback=feedback, fall_m=0.0, felt=felt)[1][-1, hand] - pickup.hold.q_touch
        for feedback, felt in ((True, 1.0), (True, 0.4), (False, 0.4))
    )
    np.testing.assert_allclose(deaf, planned, atol=1e-9)
    assert (np.abs(weak) > 1.1 * np.abs(planned)).all()
