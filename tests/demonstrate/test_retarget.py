from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level
from dexloop.demonstrate import skeleton
from dexloop.demonstrate.chains import chains
from dexloop.demonstrate.retarget import RetargetCfg, Retargeted, Retargeter
from dexloop.robots import Embodiment, Kinematics, load
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.kinematics import compiled

from .conftest import FINGER_NAMES, FIST, HANDS, PINCH, gesture

T_ANY = se3.exp(np.array([0.3, -0.2, 0.9, 1.1, -0.7, 0.4]))
every = pytest.mark.parametrize("name", HANDS)
FLEXION = {
    "dex16": ("{f}_mcp", "{f}_pip", "{f}_dip"),
    "leap_hand": ("{s}f_mcp", "{s}f_pip", "{s}f_dip"),
    "wonik_allegro": ("{a}fj1", "{a}fj2", "{a}fj3"),
    "five": ("{h}2", "{h}3", "{h}4"),
    "coupled": ("{f}2", "{f}3"),
}
SHORT = {"index": ("i", "f", "a"), "middle": ("m", "m", "b"), "ring": ("r", "r", "c")}


def bend(name: str, found: Retargeted, finger: str) -> np.ndarray:
    """How much a finger is bent, all its flexion joints together [rad]."""
    s, a, h = SHORT[finger]
    joints = [j.format(f=finger, s=s, a=a, h=h) for j in FLEXION[name]]
    known = [j for j in joints if j in found.joints]
    return found.q[:, [found.joints.index(j) for j in known]].sum(axis=1)


def pads_in_world(e: Embodiment, q: np.ndarray, T_world_palm: np.ndarray) -> np.ndarray:
    """Where MuJoCo puts the pads of a hand whose palm is at a place; joints that only follow others are set too."""
    c, model = chains(e), compiled(e)
    data = mujoco.MjData(model)
    pads = np.zeros((len(q), len(e.fingertips), 3))
    for k, row in enumerate(c.positions(c.reduce(q))):
        data.qpos[qpos_addresses(model, e.joints)] = e.home
        data.qpos[qpos_addresses(model, c.names)] = row
        mujoco.mj_kinematics(model, data)
        palm = data.site(e.palm)
        local = [palm.xmat.reshape(3, 3).T @ (data.site(tip.site).xpos - palm.xpos) for tip in e.fingertips]
        pads[k] = se3.transform(T_world_palm[k], np.stack(local))
    return pads


@every
def test_open_stays_open_and_a_fist_becomes_a_fist(robot, name: str):
    frames = np.stack([gesture({k: s * a for k, a in FIST.items()}) for s in np.linspace(0, 1, 15)])
    found = Retargeter(robot(name)).retarget(frames)
    for finger in SHORT:
        bent = bend(name, found, finger)
        assert abs(bent[0]) < 0.45
        assert bent[-1] > (1.0 if name == "coupled" else 2.0)  # followers are not counted
        assert (np.diff(bent) > -0.05).all()
    assert found.status.level is Level.OK


@every
def test_only_the_finger_that_bends_is_bent(robot, name: str):
    frames = np.stack([gesture({"middle_1": s * 1.2, "middle_2": s * 1.2, "middle_3": 0.6 * s}) for s in (0, 0.5, 1)])
    found = Retargeter(robot(name)).retarget(frames)
    moved = {f: bend(name, found, f)[-1] - bend(name, found, f)[0] for f in SHORT}
    assert moved["middle"] > 1.4
    assert abs(moved["index"]) < 0.25
    assert abs(moved["ring"]) < 0.25


@every
def test_joints_keep_their_limits(robot, name: str, motion: np.ndarray):
    e = robot(name)
    found = Retargeter(e).retarget(motion)
    limits = np.array([e.position_limits[e.joints.index(j)] for j in found.joints])
    assert (found.q >= limits[:, 0] - 1e-9).all()
    assert (found.q <= limits[:, 1] + 1e-9).all()
    assert found.q.shape == (len(motion), len(e.hand_joints))
    assert np.isfinite(found.q).all()


@every
def test_a_pinch_keeps_its_true_distance(robot, name: str, motion: np.ndarray):
    """Landmarks lie 8 mm below the skin, so that pads are 16 mm closer; robots of any size close as far."""
    e = robot(name)
    found = Retargeter(e).retarget(motion)
    pads = pads_in_world(e, found.q, found.T_world_palm)
    index = list(found.fingers.values()).index("index")
    wanted = np.linalg.norm(motion[-1, 4] - motion[-1, 8]) - 0.016
    assert 0.005 < wanted < 0.02
    assert np.linalg.norm(pads[-1, index] - pads[-1, -1]) == pytest.approx(wanted, abs=0.0025)
    free = Retargeter(e, RetargetCfg(pinch_weight=0.2)).retarget(motion)
    loose = pads_in_world(e, free.q, free.T_world_palm)
    without = abs(np.linalg.norm(loose[-1, index] - loose[-1, -1]) - wanted)
    assert without > abs(np.linalg.norm(pads[-1, index] - pads[-1, -1]) - wanted)


@every
def test_the_palm_goes_along_and_the_gesture_does_not_care(robot, name: str, motion: np.ndarray):
    retargeter = Retargeter(robot(name))
    here = retargeter.retarget(motion)
    there = retargeter.retarget(se3.transform(T_ANY, motion))
    np.testing.assert_allclose(there.q, here.q, atol=5e-3)  # straight fingers leave their joints some freedom
    np.testing.assert_allclose(there.T_world_palm, T_ANY @ here.T_world_palm, atol=1e-4)
    np.testing.assert_allclose(there.residual_m, here.residual_m, atol=1e-4)


def test_a_childs_hand_makes_the_same_gesture(robot):
    """But for pairs of fingertips, which keep their true distance when they are close."""
    frames = np.stack([gesture({k: s * a for k, a in FIST.items()}) for s in (0.0, 0.3, 0.6)])
    retargeter = Retargeter(robot("dex16"), RetargetCfg(pair_weight=0.0, pinch_weight=0.0))
    adult, child = retargeter.retarget(frames), retargeter.retarget(0.7 * frames)
    np.testing.assert_allclose(child.q, adult.q, atol=1e-5)
    assert child.scale == pytest.approx(adult.scale / 0.7)


@every
def test_the_palm_looks_where_the_humans_does(robot, name: str):
    """The site's z leaves the palm, and its x runs along the fingers, within what the site itself is off."""
    found = Retargeter(robot(name)).retarget(gesture({}, T_ANY)[None])
    T = found.T_world_palm[0]
    assert np.arccos(-T[:3, 2] @ T_ANY[:3, 2]) < np.radians(5)
    assert np.arccos(T[:3, 0] @ T_ANY[:3, 0]) < np.radians(10)


@pytest.mark.parametrize("name", ["dex16", "leap_hand", "wonik_allegro", "five", "gripper"])
def test_fingertips_are_where_the_humans_were(robot, name: str, motion: np.ndarray):
    """In the middle between thumb and fingers; the distance left is that of pads from bones."""
    e = robot(name)
    found = Retargeter(e).retarget(motion)
    pads = pads_in_world(e, found.q, found.T_world_palm)
    human = np.stack([skeleton.tip(motion, finger) for finger in found.fingers.values()], axis=1)
    middle = 0.5 * (pads[:, :-1].mean(axis=1) + pads[:, -1])
    wanted = 0.5 * (human[:, :-1].mean(axis=1) + human[:, -1])
    assert np.linalg.norm(middle - wanted, axis=1).max() < (1e-4 if name == "gripper" else 0.016)


@pytest.mark.parametrize("name", ["dex16", "left"])
def test_a_hand_of_the_other_side_is_mirrored(robot, name: str, motion: np.ndarray):
    """The mirror image of a right hand, said to be left, makes a right robot hand do the same."""
    retargeter = Retargeter(robot(name))
    robot_right = name == "dex16"
    same = motion if robot_right else motion * [1.0, -1.0, 1.0]
    plain = retargeter.retarget(same, right=robot_right)
    assert not plain.mirrored
    turned = retargeter.retarget(same * [-1.0, 1.0, 1.0], right=not robot_right)
    assert turned.mirrored
    sides = "human's left hand was mirrored, for the robot's is a right one"
    assert (sides if robot_right else "human's right hand was mirrored") in turned.status.message
    np.testing.assert_allclose(turned.q, plain.q, atol=1e-5)
    # The palm faces where the left hand's does.
    T = skeleton.palm(same * [-1.0, 1.0, 1.0], right=not robot_right)
    assert (np.sum(turned.T_world_palm[:, :3, 2] * T[:, :3, 2], axis=1) > np.cos(0.1)).all()


def test_a_wrong_side_shows_in_the_fingertips(robot, motion: np.ndarray):
    retargeter = Retargeter(robot("dex16"))
    assert (
        retargeter.retarget(motion, right=False).residual_m.mean() > 2 * retargeter.retarget(motion).residual_m.mean()
    )


def test_a_gripper_opens_as_far_as_two_fingers(robot, motion: np.ndarray):
    found = Retargeter(robot("gripper")).retarget(motion)
    gap = np.linalg.norm(motion[:, 4] - motion[:, 8], axis=1) - 0.016
    assert (gap > 0.08).any()
    np.testing.assert_allclose(found.q.sum(axis=1), np.clip(gap, 0.0, 0.08), atol=1e-4)
    np.testing.assert_allclose(found.q[:, 0], found.q[:, 1], atol=1e-12)  # geared together
    assert found.fingers == {"right": "index", "left": "thumb"}
    assert found.status.level is Level.OK
    line = motion[-1, 4] - motion[-1, 8]
    assert found.T_world_palm[-1, :3, 0] @ line > 0.85 * np.linalg.norm(line)
    other = Retargeter(robot("gripper"), RetargetCfg(jaws=("middle", "thumb"))).retarget(motion)
    assert other.fingers["right"] == "middle"
    assert not np.allclose(other.q, found.q, atol=1e-3)


def test_a_wrist_of_the_hands_own_stays_at_home(robot, motion: np.ndarray):
    e = robot("five_wrist")
    found = Retargeter(e).retarget(motion)
    wrist = [found.joints.index(j) for j in ("w1", "w2")]
    assert found.q.shape[1] == 24
    np.testing.assert_allclose(found.q[:, wrist], np.tile(e.home[wrist], (len(motion), 1)), atol=1e-4)
    without = Retargeter(robot("five")).retarget(motion)
    np.testing.assert_allclose(np.delete(found.q, wrist, axis=1), without.q, atol=2e-2)


def test_a_mounted_hand_does_as_the_bare_one(robot, motion: np.ndarray):
    bare, mounted = (Retargeter(robot(name)).retarget(motion) for name in ("dex16", "dex16@arm7"))
    np.testing.assert_allclose(mounted.q, bare.q, atol=1e-6)
    np.testing.assert_allclose(mounted.T_world_palm, bare.T_world_palm, atol=1e-6)


def test_trembling_is_damped(robot):
    rng = np.random.default_rng(0)
    still = np.tile(gesture({k: 0.4 * a for k, a in FIST.items()}), (40, 1, 1))
    shaky = still + rng.normal(0.0, 2e-3, still.shape)
    e = robot("dex16")
    rough = Retargeter(e, RetargetCfg(smooth_m=1e-4)).retarget(shaky).q
    smooth = Retargeter(e, RetargetCfg(smooth_m=0.03)).retarget(shaky).q
    assert np.abs(np.diff(smooth, axis=0)).mean() < 0.5 * np.abs(np.diff(rough, axis=0)).mean()


def test_residuals_are_of_the_vectors(robot, motion: np.ndarray):
    """Written out once more for one finger: from its knuckle, as long as the robot's is longer."""
    e = robot("dex16")
    retargeter = Retargeter(e)
    found = retargeter.retarget(motion)
    T = skeleton.palm(motion, right=True)
    local = se3.transform(se3.inverse(T)[:, None], motion)
    human = skeleton.lengths(motion)["middle"]
    target = retargeter.fingers.knuckles[1] + 0.102 / human * (local[:, 12] - local[:, 9])
    pads = pads_in_world(e, found.q, np.tile(np.eye(4), (len(motion), 1, 1)))[:, 1]
    tips = Kinematics(e).fingertips(found.q)[:, 1]
    palm = Kinematics(e).palm(found.q)
    bone = pads - 0.0124 * (np.swapaxes(palm[:, :3, :3], 1, 2) @ tips[:, :3, 2:])[..., 0]
    np.testing.assert_allclose(np.linalg.norm(bone - target, axis=1), found.residual_m[:, 1], atol=1e-9)


@pytest.mark.parametrize("name", ["dex16", "leap_hand", "five", "gripper"])
def test_reach_puts_pads_where_they_are_asked_for(robot, name: str, motion: np.ndarray):
    """Places that the robot can take: its own pads in another posture, nearby."""
    e = robot(name)
    retargeter = Retargeter(e)
    given = retargeter.retarget(motion[:20])
    rng = np.random.default_rng(1)
    c = retargeter.chains
    x = c.reduce(given.q) + 0.1 * (c.upper - c.lower) * rng.uniform(-1, 1, len(c.free))
    other = c.expand(np.clip(x, c.lower, c.upper))
    goal = pads_in_world(e, other, given.T_world_palm)
    finger = e.fingertips[0].name
    found = retargeter.reach({finger: goal[:, 0]}, given.q, given.T_world_palm)
    pads = pads_in_world(e, found.q, found.T_world_palm)
    np.testing.assert_allclose(pads[:, 0], goal[:, 0], atol=2e-4)
    np.testing.assert_allclose(found.error_m[:, 0], np.linalg.norm(pads[:, 0] - goal[:, 0], axis=1), atol=1e-9)
    assert np.isnan(found.error_m[:, 1:]).all()
    np.testing.assert_array_equal(found.T_world_palm, given.T_world_palm)
    if name != "gripper":  # joints of other fingers have no reason to move
        mine = {j for j, moved in zip(c.joints, np.abs(found.q - given.q).max(axis=0), strict=True) if moved > 1e-4}
        assert len(mine) <= 5


def test_reach_takes_targets_for_some_frames(robot, motion: np.ndarray):
    e = robot("dex16")
    retargeter = Retargeter(e)
    given = retargeter.retarget(motion[:10])
    goal = pads_in_world(e, given.q, given.T_world_palm)[:, 3] + [0.0, 0.0, 0.004]
    goal[:6] = np.nan
    found = retargeter.reach({"thumb": goal}, given.q, given.T_world_palm)
    np.testing.assert_allclose(found.q[:6], given.q[:6], atol=1e-6)
    assert found.error_m[6:, 3].max() < 2e-4
    assert np.isnan(found.error_m[:6, 3]).all()


def test_reach_moves_the_palm_where_fingers_are_too_short(robot, motion: np.ndarray):
    e = robot("dex16")
    retargeter = Retargeter(e)
    given = retargeter.retarget(motion[:8])
    shift = 0.08 * given.T_world_palm[:, :3, 0]
    goal = pads_in_world(e, given.q, given.T_world_palm) + shift[:, None]
    targets = {tip.name: goal[:, k] for k, tip in enumerate(e.fingertips)}
    stuck = retargeter.reach(targets, given.q, given.T_world_palm)
    assert stuck.error_m.mean() > 0.02
    free = retargeter.reach(targets, given.q, given.T_world_palm, palm_m_rad=(0.1, 0.3))
    assert free.error_m.max() < 1e-3
    np.testing.assert_allclose(pads_in_world(e, free.q, free.T_world_palm), goal, atol=1e-3)
    little = retargeter.reach(targets, given.q, given.T_world_palm, palm_m_rad=(0.01, 0.05))
    moved = se3.inverse(given.T_world_palm) @ little.T_world_palm
    assert np.abs(moved[:, :3, 3]).max() <= 0.01 + 1e-9


def test_reach_says_what_it_cannot_use(robot, motion: np.ndarray):
    retargeter = Retargeter(robot("dex16"))
    given = retargeter.retarget(motion[:4])
    goal = np.zeros((4, 3))
    with pytest.raises(UnknownName, match="unknown finger 'pinky': there is index, middle, ring, thumb"):
        retargeter.reach({"pinky": goal}, given.q, given.T_world_palm)
    with pytest.raises(InputError, match=r"targets of 'index' are \(3, 3\), but the motion has 4 frames"):
        retargeter.reach({"index": goal[:3]}, given.q, given.T_world_palm)
    with pytest.raises(InputError, match="no fingertip has a target"):
        retargeter.reach({"index": goal * np.nan}, given.q, given.T_world_palm)
    with pytest.raises(InputError, match="give n x 16 and n x 4 x 4"):
        retargeter.reach({"index": goal}, given.q[:, :3], given.T_world_palm)


def test_what_cannot_be_followed_is_refused(robot, motion: np.ndarray):
    with pytest.raises(InputError, match=r"arm7 has no fingertips: mount a hand on it, such as dex16@arm7"):
        Retargeter(load("arm7"))
    e = robot("dex16")
    with pytest.raises(InputError, match="has one fingertip"):
        Retargeter(dataclasses.replace(e, fingertips=e.fingertips[:1]))
    with pytest.raises(UnknownName, match="unknown human finger 'pinky'"):
        Retargeter(e, RetargetCfg(jaws=("pinky", "thumb")))
    retargeter = Retargeter(e)
    with pytest.raises(InputError, match="landmarks are n x 21 x 3"):
        retargeter.retarget(motion[:, :20])
    gone = motion.copy()
    gone[[2, 5]] = np.nan
    with pytest.raises(InputError, match="no hand in frames 2, 5 of 60"):
        retargeter.retarget(gone)


def test_a_gesture_out_of_reach_is_said_to_be(robot):
    """Fingers bent far backwards: no robot hand can follow."""
    backwards = {f"{f}_{k}": -1.2 for f in FINGER_NAMES for k in (1, 2)}
    found = Retargeter(robot("dex16")).retarget(gesture(backwards)[None])
    assert found.status.level is Level.WARN
    assert found.status.code == "far_off"


def test_a_pinch_begins_smoothly(robot):
    """Targets and weights of a pair have no jump while thumb and finger close."""
    frames = np.stack([gesture({j: s * a for j, a in PINCH.items()}) for s in np.linspace(0.5, 1.0, 400)])
    retargeter = Retargeter(robot("leap_hand"))
    local = se3.transform(se3.inverse(skeleton.palm(frames, right=True))[:, None], frames)
    _, wishes = retargeter.wishes(local)
    pair = 4  # after four fingertips, the index with the thumb
    assert wishes.weight[0, pair] == pytest.approx(0.2)
    assert wishes.weight[-1, pair] == pytest.approx(20.0)
    assert np.abs(np.diff(wishes.weight[:, pair])).max() < 1.0
    assert np.linalg.norm(np.diff(wishes.target[:, pair], axis=0), axis=1).max() < 2e-3
