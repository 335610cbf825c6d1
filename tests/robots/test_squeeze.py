from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np
import pytest

from dexloop.core.errors import InputError, UnknownName
from dexloop.robots import Embodiment, Kinematics, load
from dexloop.robots.grasp import Contacts
from dexloop.robots.grip import Grip, carrying_wrench, hold_forces, min_forces, required_wrenches
from dexloop.robots.squeeze import Squeeze
from dexloop.sim.parts import Primitive, Robot, Thing
from dexloop.sim.scene import SceneCfg, compose
from tests.robots.conftest import settle

MU, RADIUS_M = 0.7, 0.005 / 0.7
"""Friction of the pads, and their torsional friction, which is the scene's own 5 mm."""
PINCH = {
    "index_abd": -0.06, "index_mcp": 1.292, "index_pip": 0.02, "index_dip": 0.154,
    "middle_abd": -0.009, "middle_mcp": 1.326, "middle_pip": 0.02, "middle_dip": 0.183,
    "ring_abd": 0.0, "ring_mcp": 1.2, "ring_pip": 1.2, "ring_dip": 0.8,
    "thumb_rot": 1.668, "thumb_cmc": -0.135, "thumb_mcp": 1.15, "thumb_ip": 0.02,
}  # fmt: skip
"""Two fingers across from the thumb, 40 mm apart, ring finger out of the way [rad]."""
PALM_DOWN = np.array([[0.0, 0, 1, 0], [0, 1, 0, 0], [-1, 0, 0, 0.5], [0, 0, 0, 1]])
"""The fingers point along the world's x, and gravity pulls the object out of the hand."""


@pytest.fixture(scope="module")
def hand() -> Embodiment:
    return load("dex16")


def at_the_tips(hand: Embodiment, q: np.ndarray) -> Contacts:
    tips = Kinematics(hand).fingertips(q)
    names = tuple(tip.name for tip in hand.fingertips)
    return Contacts(tips[:, :3, 3], tips[:, :3, 2], np.full(len(tips), MU), names, np.full(len(tips), RADIUS_M))


def pushing(forces: np.ndarray, torsion: np.ndarray) -> Grip:
    n = len(forces)
    return Grip(forces, torsion, np.zeros(n), True, np.zeros(6), 1.0, 0.0, "", np.zeros(0))


def test_torques_are_the_jacobians_transposed_times_the_forces(hand) -> None:
    rng = np.random.default_rng(0)
    q = np.clip(hand.home + 0.1 * rng.normal(size=16), *hand.position_limits.T)
    contacts, squeeze = at_the_tips(hand, q), Squeeze(hand)
    forces, torsion = rng.normal(size=(4, 3)), 0.01 * rng.normal(size=4)
    J = np.stack([Kinematics(hand).jacobians(q, tip.site) for tip in hand.fingertips])
    push = np.concatenate([forces, torsion[:, None] * contacts.normals], axis=1)
    np.testing.assert_allclose(squeeze.motors(q, contacts).jacobians, J, atol=1e-12)
    idle = squeeze.targets(q, contacts, pushing(0 * forces, 0 * torsion))
    loaded = squeeze.targets(q, contacts, pushing(forces, torsion))
    np.testing.assert_allclose(loaded.torques - idle.torques, np.einsum("nkj,nk->j", J, push), atol=1e-12)
    np.testing.assert_allclose(loaded.q - q, loaded.torques / 4.0, atol=1e-12)  # the servo's stiffness is 4 N·m/rad
    assert loaded.clipped == ()


def test_without_a_grip_the_targets_carry_the_fingers(hand) -> None:
    """The model's servos sag under the fingers' weight; their targets take it up, but for dry friction."""
    q = hand.home
    none = at_the_tips(hand, q)
    targets = Squeeze(hand).targets(q, none, pushing(np.zeros((4, 3)), np.zeros(4)))
    sag = np.abs(settle(hand, q, 1.5) - q).max()
    left = np.abs(settle(hand, targets.q, 1.5) - q).max()
    assert sag > 0.003
    assert left < 0.3 * sag


def test_which_way_gravity_acts_comes_from_the_scene(hand) -> None:
    q = np.array([PINCH[j] for j in hand.joints])
    nothing = pushing(np.zeros((4, 3)), np.zeros(4))
    upright = Squeeze(hand).targets(q, at_the_tips(hand, q), nothing).torques
    turned = compose(Robot(hand, PALM_DOWN)).model
    hanging = Squeeze(hand, turned).targets(q, at_the_tips(hand, q), nothing).torques
    assert np.abs(upright - hanging).max() > 0.02


def test_motors_and_stops_clip_and_are_named(hand) -> None:
    q = hand.home
    contacts, squeeze = at_the_tips(hand, q), Squeeze(hand)
    strong = squeeze.targets(q, contacts, pushing(50.0 * contacts.normals, np.zeros(4)))
    assert "index_mcp" in strong.clipped
    assert (np.abs(strong.torques) <= hand.effort_limits + 1e-12).all()
    lower, upper = hand.position_limits.T
    assert ((strong.q >= lower) & (strong.q <= upper)).all()
    # At its stop a joint cannot be told to go on.
    index = hand.joints.index("index_mcp")
    stopped = q.copy()
    stopped[index] = upper[index]
    there = squeeze.targets(stopped, at_the_tips(hand, stopped), pushing(2.0 * contacts.normals, np.zeros(4)))
    assert "index_mcp" in there.clipped
    assert there.torques[index] == pytest.approx(0, abs=1e-12)


def test_jaws_are_told_to_go_as_far_into_the_object_as_their_servo_yields() -> None:
    gripper = load("gripper@wrist")
    q = gripper.home.copy()
    tips = Kinematics(gripper).fingertips(q)
    contacts = Contacts(tips[:, :3, 3], tips[:, :3, 2], np.full(2, 0.5), ("right", "left"))
    targets = Squeeze(gripper).targets(q, contacts, pushing(10.0 * contacts.normals, np.zeros(2)))
    np.testing.assert_allclose(targets.q[-2:] - q[-2:], -10.0 / 4000.0, atol=1e-9)
    np.testing.assert_array_equal(targets.q[:6], q[:6])  # the arm is not the hand's business


def test_fingers_must_be_the_robots(hand) -> None:
    contacts = at_the_tips(hand, hand.home)
    with pytest.raises(UnknownName, match="index, middle, ring, thumb"):
        Squeeze(hand).motors(hand.home, replace(contacts, fingers=("index", "middle", "little", "thumb")))
    palm = replace(contacts, fingers=("index", "middle", "palm", "thumb"))
    assert (Squeeze(hand).motors(hand.home, palm).jacobians[2] == 0).all()  # nothing in the hand moves the palm
    with pytest.raises(InputError, match="which fingers"):
        Squeeze(hand).motors(hand.home, replace(contacts, fingers=()))
    with pytest.raises(InputError, match="16 finite"):
        Squeeze(hand).motors(np.zeros(3), contacts)


@dataclass
class Bench:
    """The hand, palm down, with a box between its fingers that something else still carries."""

    hand: Embodiment
    mass: float

    def __post_init__(self) -> None:
        robot = Robot(self.hand, PALM_DOWN, fingertip_friction=MU)
        box = Thing("box", Primitive("box", (0.0199, 0.03, 0.018)), self.mass, pose=(0.107, 0.0177, 0.395, 1, 0, 0, 0))
        cfg = SceneCfg(timestep_s=0.001, max_delay_s=0.0, noslip_iterations=5)
        self.model = compose(robot, box, cfg=cfg).model
        self.data = mujoco.MjData(self.model)
        self.squeeze = Squeeze(self.hand, self.model)
        self.q = [int(self.model.joint(j).qposadr[0]) for j in self.hand.joints]
        self.servos = [self.model.actuator(a).id for a in self.hand.actuators]
        self.body = self.model.body("box").id
        self.finger = {self.model.geom(g).id: tip.name for tip in self.hand.fingertips for g in tip.geoms}
        self.data.qpos[self.q] = [PINCH[j] for j in self.hand.joints]
        self.data.ctrl[self.servos] = self.data.qpos[self.q]

    def contacts(self) -> Contacts:
        """Where the pads touch the box, as the simulation knows it."""
        found = {}
        for contact in self.data.contact:
            for pad, sign in ((contact.geom1, 1.0), (contact.geom2, -1.0)):
                if int(pad) in self.finger:
                    found[self.finger[int(pad)]] = contact.pos.copy(), sign * contact.frame[:3]
        points, normals = (np.array(a) for a in zip(*found.values(), strict=True))
        n = len(found)
        return Contacts(points, normals, np.full(n, MU), tuple(found), np.full(n, RADIUS_M))

    def close(self) -> None:
        """Closes the fingers until all three touch."""
        closing = [0.03 * (j.endswith("mcp") and not j.startswith("ring")) for j in self.hand.joints]
        self.data.ctrl[self.servos] += closing
        self.step(0.1, carried=True)

    def step(self, duration_s: float, *, carried: bool) -> None:
        for _ in range(round(duration_s / 0.001)):
            self.data.xfrc_applied[self.body, 2] = 9.81 * self.mass if carried else 0.0
            mujoco.mj_step(self.model, self.data)

    def touch(self) -> np.ndarray:
        """What the fingers that hold feel [N]."""
        sites = {tip.name: tip.site for tip in self.hand.fingertips}
        return np.array([float(self.data.sensor(sites[f]).data[0]) for f in ("index", "middle", "thumb")])


def held(hand: Embodiment, mass: float, factor: float) -> tuple[Grip, np.ndarray, np.ndarray]:
    """Lets the hand take the box, pushing `factor` times as hard as it should.

    Returns the grip it should have, what the fingers feel at the end, and how far the box went.
    """
    bench = Bench(hand, mass)
    bench.close()
    for tick in range(40):
        contacts = bench.contacts()
        assert contacts.fingers == ("index", "middle", "thumb")
        com, q = bench.data.xipos[bench.body].copy(), bench.data.qpos[bench.q].copy()
        motors = bench.squeeze.motors(q, contacts)
        # Friction is believed to be a little less than it is.
        careful = replace(contacts, mu=0.93 * contacts.mu)
        grip = min_forces(careful, carrying_wrench(mass, com, com), centre=com, f_min=0.2, f_max=15.0, motors=motors)
        push = factor if tick >= 20 else 1.0
        sent = replace(grip, forces=push * grip.forces, torsion=push * grip.torsion)
        bench.data.ctrl[bench.servos] = bench.squeeze.targets(q, contacts, sent).q
        bench.step(0.01, carried=True)
    start = bench.data.xpos[bench.body].copy()
    bench.step(1.0, carried=False)
    return grip, bench.touch(), bench.data.xpos[bench.body] - start


def test_a_box_is_held_with_the_forces_that_were_wanted(hand) -> None:
    grip, felt, moved = held(hand, 0.15, 1.0)
    assert grip.feasible
    np.testing.assert_allclose(felt, grip.normal, rtol=0.15)
    assert np.linalg.norm(moved) < 0.002


def test_a_box_held_with_half_the_force_falls(hand) -> None:
    _, _, moved = held(hand, 0.15, 0.5)
    assert moved[2] < -0.05


def test_a_grip_that_is_ready_for_bumps_is_firmer(hand) -> None:
    bench = Bench(hand, 0.1)
    bench.close()
    contacts, com = bench.contacts(), bench.data.xipos[bench.body]
    present = carrying_wrench(0.1, com, com)
    ready = required_wrenches(0.1, com, com, acceleration=2.0)
    motors = bench.squeeze.motors(bench.data.qpos[bench.q], contacts)
    calm, firm = (
        hold_forces(contacts, present, wrenches, centre=com, f_max=15.0, motors=motors)
        for wrenches in (np.zeros((0, 6)), ready)
    )
    assert calm.feasible
    assert firm.feasible
    assert (firm.normal > 1.1 * calm.normal).all()
    assert (abs(firm.torques) < hand.effort_limits).all()
