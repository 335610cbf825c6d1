from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.hold import Hold
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.pickup import PHASES, Load, Pickup, PickupCfg
from dexloop.sim.scene import Scene
from tests.robots.pinched import HALF, ROBOT, T_WORLD_OBJECT, box_scene, pinch


@pytest.fixture(scope="module")
def scene() -> Scene:
    return box_scene()


@pytest.fixture(scope="module")
def hold() -> Hold:
    return pinch()


def pickup(scene: Scene, hold: Hold, mass_kg: float = 0.2, **more: float) -> Pickup:
    return Pickup(ROBOT, scene.model, hold, T_WORLD_OBJECT, Load(mass_kg, 1.2 * mass_kg, 0.4, **more))


def test_phases_follow_each_other_without_a_jump(scene: Scene, hold: Hold):
    one = pickup(scene, hold)
    t = np.arange(0.0, one.starts[-1] + 0.5, 0.004)
    assert list(dict.fromkeys(one.phases(t))) == list(range(len(PHASES)))
    q = one.command(t)
    np.testing.assert_allclose(q[0], one.before, atol=1e-12)
    speed = np.abs(np.diff(q, axis=0)) / 0.004
    assert (speed <= 1.05 * ROBOT.speed_limits).all()
    assert np.abs(np.diff(q, n=2, axis=0)).max() < 1e-4
    palm = Kinematics(ROBOT, scene.model).palm(q[[0, -1]])[:, :3, 3]
    there = (T_WORLD_OBJECT @ hold.T_object_palm)[:3, 3]
    np.testing.assert_allclose(palm[0] - there, [0, 0, 0.12], atol=1e-4)  # the palm looks down, and comes from above
    np.testing.assert_allclose(palm[1] - there, [0, 0, 0.10], atol=1e-4)


def test_it_squeezes_as_hard_as_the_mass_asks_for(scene: Scene, hold: Hold):
    forces = [pickup(scene, hold, m).grip.normal.sum() for m in (0.1, 0.2, 0.4)]
    assert forces[1] == pytest.approx(2 * forces[0], rel=0.02)
    assert forces[2] == pytest.approx(4 * forces[0], rel=0.02)
    one = pickup(scene, hold, 0.2)
    # Two jaws that press against each other: 2 µ N carries m (g + a) with safety, at least.
    assert 2 * 0.4 * one.grip.normal.min() >= 1.3 * 1.2 * 0.2 * (9.81 + 3.0) * 0.99
    assert one.finger_forces() == pytest.approx(one.grip.normal)


def test_it_stays_below_what_the_object_bears(scene: Scene, hold: Hold):
    one = pickup(scene, hold, 0.4, crush_n=10.0)
    assert one.grip.normal.max() <= 6.0 + 1e-9
    assert not one.grip.feasible
    assert one.grip.limited_by == "crush"


def test_fingers_that_feel_too_little_squeeze_harder_until_the_lift(scene: Scene, hold: Hold):
    one, dt = pickup(scene, hold), 0.02
    planned = one.finger_forces()  # two jaws, which touch with nothing but their tips

    def squeezed(share: float) -> list[float]:
        """How firmly it squeezes while the jaws feel a share of what their servos ask for."""
        firm, all_of = 1.0, []
        for t in np.arange(one.starts[1], one.starts[4], dt):
            x = np.clip((t - one.starts[2]) / one.cfg.squeeze_s, 0.0, 1.0)
            firm = one.pressed(t, share * firm * x**3 * (10.0 + x * (6.0 * x - 15.0)) * planned, firm, dt=dt)
            all_of.append(firm)
        return all_of

    np.testing.assert_allclose(squeezed(1.0), 1.0)
    assert set(squeezed(1.4)) == {1.0}, "never less hard than planned"
    weak = squeezed(0.5)
    before_squeeze, lift = (int(np.ceil((one.starts[k] - one.starts[1]) / dt)) for k in (2, 3))
    assert set(weak[:before_squeeze]) == {1.0}
    assert weak[-1] * 0.5 == pytest.approx(1.0, abs=0.15)
    assert len(set(weak[lift:])) == 1
    assert squeezed(0.0)[-1] == one.cfg.firmest
    fragile = pickup(scene, hold, crush_n=float(planned.sum()))  # of which half is gripped with
    assert fragile.pressed(one.starts[3] - dt, 0 * planned, 1.15, dt=1.0) == pytest.approx(1.2)


def test_what_slips_is_squeezed_harder_and_never_less_hard(scene: Scene, hold: Hold):
    one, cfg = pickup(scene, hold), PickupCfg()
    slips = np.array([0.0, 0.5e-3, 1e-3, 2e-3, 3e-3, 1.0])
    firm = one.firmness(slips)
    assert (firm[:3] == 1.0).all()
    assert firm[3] == pytest.approx(1.4)
    assert firm[-1] == cfg.firmest
    assert one.firmness(np.array(0.0), 1.7) == 1.7
    t = np.array([one.starts[-1]])
    hand = [ROBOT.joints.index(j) for j in ROBOT.hand_joints]
    push = [one.command(t, f)[0, hand] - hold.q_touch for f in (1.0, 1.5)]
    np.testing.assert_allclose(push[1], 1.5 * push[0], rtol=1e-9)


def test_a_pinch_is_squeezed_no_harder_than_all_its_motors_can(scene: Scene, hold: Hold):
    def firmest(mass_kg: float, kind: str) -> float:
        load = Load(mass_kg, 1.2 * mass_kg, 0.4)
        one = Pickup(ROBOT, scene.model, replace(hold, kind=kind), T_WORLD_OBJECT, load, PickupCfg(firmest=1e6))
        return float(one.firmness(np.array(1e6)))

    room = firmest(0.2, "pinch")
    assert 2.0 < room < 1e3
    jaws = [ROBOT.joints.index(j) for j in hold.joints]
    limit = min(ROBOT.effort_limits[jaws])  # a jaw that slides presses as hard as its motor pulls
    assert room * pickup(scene, hold, 0.2).grip.normal.max() == pytest.approx(limit, rel=0.02)
    assert firmest(10.0, "pinch") < 1.5  # more than its motors can carry
    assert firmest(0.2, "enclose") == 1e6  # what lies in the palm is not pressed out of it


@pytest.mark.parametrize(("believed", "holds"), [(0.2, True), (0.02, False)])
def test_in_simulation_the_right_belief_holds_and_a_tenth_of_it_drops(
    scene: Scene, hold: Hold, believed: float, holds: bool
):
    one = pickup(scene, hold, believed)
    model, data = scene.model, mujoco.MjData(scene.model)
    q = [int(model.joint(j).qposadr[0]) for j in ROBOT.joints]
    u = [model.actuator(a).id for a in ROBOT.actuators]
    data.qpos[q], data.ctrl[u] = one.before, one.before
    steps = round(0.004 / model.opt.timestep)
    for command in one.command(np.arange(0.0, one.starts[-1] + 1.0, 0.004)):
        data.ctrl[u] = command
        mujoco.mj_step(model, data, steps)
    height = float(data.body("box").xpos[2])
    assert (height > HALF[2] + 0.08) == holds


def test_bad_loads_are_refused():
    for bad in ((0.0, 1.0, 0.5), (0.2, 0.1, 0.5), (0.2, 0.3, 0.0), (np.nan, 0.3, 0.5)):
        with pytest.raises(InputError):
            Load(*bad)


def test_an_object_out_of_reach_is_an_error(scene: Scene, hold: Hold):
    far = se3.from_rt(np.eye(3), np.array([9.0, 0.0, 0.0]))
    with pytest.raises(InputError, match="does not get to the object"):
        Pickup(ROBOT, scene.model, hold, far, Load(0.2, 0.24, 0.4))
