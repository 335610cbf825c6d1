from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.demonstrate.chains import Chains, chains
from dexloop.demonstrate.descent import Points, place, place_with_slope
from dexloop.robots import Embodiment, Kinematics, import_robot
from dexloop.robots.kinematics import compiled

from .conftest import CATALOG, HOMEMADE

every = pytest.mark.parametrize("name", [*CATALOG, *HOMEMADE])


def _qpos(embodiment: Embodiment, c: Chains, x: np.ndarray) -> np.ndarray:
    """All joints of the model, followers that nothing drives too; the arm is at home."""
    model = compiled(embodiment)
    qpos = model.qpos0.copy()
    for joint, q in zip(embodiment.joints, embodiment.home, strict=True):
        qpos[model.joint(joint).qposadr[0]] = q
    for joint, q in zip(c.names, c.positions(x[None])[0], strict=True):
        qpos[model.joint(joint).qposadr[0]] = q
    return qpos


def _samples(c: Chains, n: int = 6) -> np.ndarray:
    return np.random.default_rng(0).uniform(c.lower, c.upper, (n, len(c.free)))


@every
def test_fingertips_are_where_mujoco_puts_them(robot, name: str):
    e = robot(name)
    c, model = chains(e), compiled(e)
    data = mujoco.MjData(model)
    # Not only the site itself, for a wrong rotation would not show in it.
    tips = np.repeat(np.arange(len(e.fingertips)), 2)
    offsets = np.tile([[0.0, 0.0, 0.0], [0.01, -0.02, 0.03]], (len(e.fingertips), 1))
    x = _samples(c)
    found = place(c.links, Points(tips, offsets), x)
    for k in range(len(x)):
        data.qpos[:] = _qpos(e, c, x[k])
        mujoco.mj_kinematics(model, data)
        palm = se3.from_rt(data.site(e.palm).xmat.reshape(3, 3), data.site(e.palm).xpos)
        sites = [data.site(e.fingertips[f].site) for f in tips]
        p = np.stack([s.xpos + s.xmat.reshape(3, 3) @ o for s, o in zip(sites, offsets, strict=True)])
        np.testing.assert_allclose(found[k], se3.transform(se3.inverse(palm), p), atol=1e-12)


@every
def test_slopes_are_those_of_finite_differences(robot, name: str):
    c = chains(robot(name))
    points = Points(np.arange(len(c.links.R_tip)), np.full((len(c.links.R_tip), 3), 0.01))
    x, h = _samples(c), 1e-6
    _, J = place_with_slope(c.links, points, x)
    for i in range(x.shape[1]):
        step = h * np.eye(x.shape[1])[i]
        slope = (place(c.links, points, x + step) - place(c.links, points, x - step)) / (2 * h)
        np.testing.assert_allclose(J[..., i], slope, atol=1e-9)


@pytest.mark.parametrize("name", ["dex16", "dex16@arm7", "leap_hand", "wonik_allegro", "five"])
def test_slopes_are_those_of_mujoco(robot, name: str):
    """Where nothing is coupled, MuJoCo's own Jacobian, turned into the palm's axes."""
    e = robot(name)
    c, kinematics = chains(e), Kinematics(e)
    x = _samples(c, 2)
    points = Points(np.arange(len(e.fingertips)), np.zeros((len(e.fingertips), 3)))
    _, J = place_with_slope(c.links, points, x)
    columns = [e.joints.index(j) for j in c.free]
    q = np.tile(e.home, (len(x), 1))
    q[:, columns] = x
    R = kinematics.palm(q)[:, :3, :3]
    for f, tip in enumerate(e.fingertips):
        expected = np.swapaxes(R, 1, 2) @ kinematics.jacobians(q, tip.site)[:, :3, columns]
        np.testing.assert_allclose(J[:, f], expected, atol=1e-12)


@pytest.mark.parametrize("name", ["gripper", "gripper@wrist", "coupled", "tendons"])
def test_coupled_joints_satisfy_mujocos_equalities(robot, name: str):
    e = robot(name)
    c, model = chains(e), compiled(e)
    data = mujoco.MjData(model)
    for x in _samples(c):
        data.qpos[:] = _qpos(e, c, x)
        mujoco.mj_forward(model, data)
        equality = data.efc_type[: data.nefc] == mujoco.mjtConstraint.mjCNSTR_EQUALITY
        assert equality.sum() == model.neq
        np.testing.assert_allclose(data.efc_pos[: data.nefc][equality], 0.0, atol=1e-12)


@every
def test_all_joints_keep_their_limits(robot, name: str):
    e = robot(name)
    c, model = chains(e), compiled(e)
    ends = np.concatenate([_samples(c, 20), c.lower[None], c.upper[None]])
    limits = np.array([e.position_limits[e.joints.index(j)] for j in c.joints])
    q = c.expand(ends)
    assert (q >= limits[:, 0] - 1e-9).all()
    assert (q <= limits[:, 1] + 1e-9).all()
    rows = c.positions(ends)
    ranges = np.array([model.joint(j).range for j in c.names])
    assert (rows >= ranges[:, 0] - 1e-9).all()
    assert (rows <= ranges[:, 1] + 1e-9).all()
    np.testing.assert_allclose(c.reduce(q), ends, atol=1e-12)


def test_only_free_joints_are_unknowns(robot):
    assert chains(robot("gripper")).free == ("left_jaw",)
    assert chains(robot("leap_hand")).free == robot("leap_hand").hand_joints
    coupled = chains(robot("coupled"))
    assert len(coupled.free) == 18
    assert not {"index4", "ring3", "ring4", "middle4"} & set(coupled.free)
    assert len(chains(robot("five_wrist")).free) == 24


def test_a_range_is_cut_where_a_follower_comes_to_its_end(robot):
    """middle3 = 1.25 middle4, and middle4 goes to 1.6: middle3, which is driven, could go to 2 but for its own 1.6."""
    c = chains(robot("coupled"))
    k = c.free.index("index3")  # index4 = 0.05 + 0.6 x + 0.15 x² stays below 1.6
    assert c.upper[k] == pytest.approx(1.6)
    ring = c.free.index("ring2")
    x = c.upper[ring]
    assert 0.9 * x + 0.05 * x**3 <= 1.6 + 1e-9
    assert 0.9 * (x + 2e-3) + 0.05 * (x + 2e-3) ** 3 > 1.6 or x == pytest.approx(1.6)


PASSIVE = """<mujoco><compiler angle="radian"/><worldbody><body name="base"><geom type="box" size="0.03 0.03 0.01"/>
  <body name="index_a" pos="0.02 0.02 0"><joint name="i1" axis="0 -1 0" range="-0.1 1.5"/>
    <geom type="capsule" fromto="0 0 0 0.03 0 0" size="0.005"/>
    <body name="index_b" pos="0.03 0 0"><joint name="i2" axis="0 -1 0" range="-0.1 1.5"/>
      <geom type="capsule" fromto="0 0 0 0.03 0 0" size="0.005"/></body></body>
  <body name="thumb_a" pos="0.02 -0.02 0"><joint name="t1" axis="0 -1 0" range="-0.1 1.5"/>
    <geom type="capsule" fromto="0 0 0 0.05 0 0" size="0.005"/></body>
  <body name="rod" pos="0.02 0.05 0"><joint name="r" axis="0 -1 0"/><geom size="0.004"/></body>
</body></worldbody>
<actuator><position joint="i1" kp="1"/><position joint="t1" kp="1"/></actuator>
<equality>{equality}</equality></mujoco>"""


def _passive(folder: Path, equality: str) -> Embodiment:
    path = folder / "passive.xml"
    path.write_text(PASSIVE.format(equality=equality))
    return import_robot(path)


def test_a_closed_loop_is_refused(tmp_path: Path):
    e = _passive(tmp_path, '<connect body1="index_b" body2="rod" anchor="0.01 0 0"/>')
    with pytest.raises(InputError, match=r"'i2', which only a closed loop moves: couple it"):
        chains(e)


def test_a_joint_that_nothing_moves_stays(tmp_path: Path):
    assert chains(_passive(tmp_path, "")).free == ("i1", "t1")


def test_a_curve_cannot_be_followed_backwards(tmp_path: Path):
    e = _passive(tmp_path, '<joint joint1="i1" joint2="i2" polycoef="0 1 0.2 0 0"/>')
    with pytest.raises(InputError, match="'i1' of passive follows, by a polynomial"):
        chains(e)


def test_limits_that_exclude_each_other_are_refused(tmp_path: Path):
    e = _passive(tmp_path, '<joint joint1="i2" joint2="i1" polycoef="5 1 0 0 0"/>')
    with pytest.raises(InputError, match="coupled to 'i1' have limits that exclude each other"):
        chains(e)
