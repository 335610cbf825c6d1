from __future__ import annotations

import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.deploy.senses import Senses
from dexloop.deploy.trial import Moments, attempt, road
from dexloop.robots.collision import Collisions
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.shake import Shake
from dexloop.sim.scene import Scene
from tests.deploy.standin import RATE_HZ, IdealRig, Riser, features
from tests.robots.pinched import ROBOT, box_scene, pinch

SHAKE = Shake(hold_s=0.2, shake_s=2.0)
Z = ROBOT.joints.index("wrist_z")


@pytest.fixture(scope="module")
def scene() -> Scene:
    return box_scene()


def tried(doer: Riser, shake: Shake = SHAKE) -> tuple[IdealRig, Moments, list[tuple[str, object]]]:
    """One attempt with a perfect robot: what it sent, when things were, and what was told in which order."""
    rig, told = IdealRig(), []
    way = np.linspace(ROBOT.home, doer.before, 50)
    found = attempt(
        rig, doer, way, Senses(features(), ROBOT), ROBOT, shake, begin=lambda: told.append(("begin", rig.now())),
        note=lambda seen: told.append(("note", seen.samples["joint_position"].t[-1])),
        moment=lambda now: told.append(("moment", now)), ended=lambda: told.append(("ended", rig.now())),
    )  # fmt: skip
    return rig, found, told


def before() -> np.ndarray:
    q = np.array(ROBOT.home)
    q[Z] += 0.02
    return q


def test_it_goes_there_takes_up_holds_shakes_and_brings_back():
    rig, at, _ = tried(Riser(before()))
    assert at.begin == pytest.approx(0.2)
    assert at.lift - at.begin == pytest.approx(0.3)
    assert at.hold - at.begin == pytest.approx(0.4)
    assert at.end - at.hold == pytest.approx(SHAKE.duration_s, abs=0.045)  # whole looks, at 50 Hz
    t, sent = np.array([t for t, _ in rig.sent]), np.stack([q for _, q in rig.sent])
    np.testing.assert_allclose(np.diff(t), 1 / RATE_HZ)
    np.testing.assert_allclose(sent[0], ROBOT.home)
    np.testing.assert_allclose(sent[-1], ROBOT.home)
    # Held still first: the shake begins after its time, by as much as was asked for, and only then.
    palm = Kinematics(ROBOT).palm(sent)[:, :3, 3]
    still = (t > at.hold + 0.1) & (t < at.hold + SHAKE.hold_s - 1e-6)
    assert np.ptp(palm[still], axis=0).max() < 0.011  # the doer itself still rises
    shaken = (t > at.hold + SHAKE.hold_s) & (t < at.end)
    assert np.ptp(palm[shaken][:, :2], axis=0) == pytest.approx([0.04, 0.04], abs=2e-3)
    # Back the way that it came, without the shake.
    there = sent[t < at.hold]
    np.testing.assert_allclose(sent[-len(there) :], there[::-1], atol=5e-4)  # but for a tick


@pytest.mark.parametrize("shake_s", [2.0, 0.45])
def test_no_joint_is_ever_told_to_jump(shake_s: float):
    """Neither when a doer went on while the object was held, nor when the shake ends aside."""
    rig, _, _ = tried(Riser(before()), Shake(hold_s=0.2, shake_s=shake_s))
    sent = np.stack([q for _, q in rig.sent])
    assert (np.abs(np.diff(sent, axis=0)) * RATE_HZ <= ROBOT.speed_limits).all()
    assert np.abs(np.diff(sent, axis=0)).max() < 2e-3


def test_what_happens_is_told_in_order():
    _, at, told = tried(Riser(before()))
    words = [what for what, _ in told]
    assert words[0] == "begin"
    assert words[-1] == "ended"  # nothing of the way back is noted
    assert words.count("note") == pytest.approx((at.end - at.begin) * 50, abs=1)
    first, second, third = (now for what, now in told if what == "moment")
    assert (first.lift, second.lift, third) == (at.lift, at.lift, at)
    assert np.isnan(first.hold)
    assert np.isnan(second.end)
    assert set(first.to_json()) == {"begin", "lift"}
    assert set(at.to_json()) == {"begin", "lift", "hold", "end"}


def test_what_is_not_up_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dexloop.deploy.trial.LIMIT_S", 0.6)
    rig, at, _ = tried(Riser(before(), phases=3))
    assert np.isnan(at.lift)
    assert np.isnan(at.hold)
    assert at.end - at.begin == pytest.approx(0.6, abs=0.045)
    np.testing.assert_allclose(rig.sent[-1][1], ROBOT.home)


def above(scene: Scene, height_m: float, aside_m: float) -> np.ndarray:
    """Joints with the pinching hand beside or above the box."""
    from dexloop.policy.start import Start
    from tests.robots.pinched import T_WORLD_BASE, T_WORLD_OBJECT

    T = T_WORLD_OBJECT.copy()
    T[:3, 3] += [aside_m, 0.0, height_m]
    return Start(pinch().T_object_palm, pinch().q_open).posture(ROBOT, T_WORLD_BASE, T)


def test_the_way_goes_from_home_to_there_and_through_nothing(scene: Scene):
    q = above(scene, 0.12, 0.0)
    way = road(ROBOT, scene.model, q, RATE_HZ, qpos=scene.model.qpos0)
    np.testing.assert_allclose(way[0], ROBOT.home, atol=1e-9)
    np.testing.assert_allclose(way[-1], q, atol=1e-9)
    assert (np.abs(np.diff(way, axis=0)) * RATE_HZ <= ROBOT.speed_limits).all()
    touching = Collisions(scene.model, ROBOT.joints, qpos=scene.model.qpos0)
    assert all(touching.free(row) for row in way)


def test_a_box_in_the_way_is_gone_around_and_one_that_is_everywhere_is_an_error(scene: Scene):
    there = scene.model.qpos0.copy()
    q = above(scene, 0.0, 0.12)  # low behind the box: straight from home would be through it
    at = int(scene.model.joint("box.free").qposadr[0])
    home = Kinematics(ROBOT, scene.model).palm(ROBOT.home)[:3, 3]
    end = Kinematics(ROBOT, scene.model).palm(q)[:3, 3]
    there[at : at + 3] = home + 0.5 * (end - home)
    touching = Collisions(scene.model, ROBOT.joints, qpos=there)
    line = np.linspace(ROBOT.home, q, 60)
    assert not all(touching.free(row) for row in line), "the box is not in the way: the test tests nothing"
    way = road(ROBOT, scene.model, q, RATE_HZ, qpos=there)
    assert all(touching.free(row) for row in way[::5])
    there[at : at + 3] = end
    with pytest.raises(InputError, match="the hand does not get before the object"):
        road(ROBOT, scene.model, q, RATE_HZ, qpos=there)
