from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.demonstrate.chains import chains
from dexloop.demonstrate.descent import place
from dexloop.demonstrate.fingers import BONE_M, Fingers, _assign, fingers_of
from dexloop.robots import Embodiment

JAWS = ("index", "thumb")


def _fingers(e: Embodiment) -> Fingers:
    return fingers_of(e, chains(e), JAWS)


@pytest.mark.parametrize("name", ["dex16", "leap_hand", "wonik_allegro"])
def test_names_tell_which_finger_is_which(robot, name: str):
    found = _fingers(robot(name))
    assert found.human == {"index": "index", "middle": "middle", "ring": "ring", "thumb": "thumb"}
    assert found.right is True
    assert not found.gripper


def test_anatomy_tells_where_names_do_not(robot):
    expected = dict(zip(("finger1", "finger2", "finger3", "finger4", "finger5"),
                        ("index", "middle", "ring", "little", "thumb"), strict=True))  # fmt: skip
    for name, right in (("five", True), ("five_wrist", True), ("left", False)):
        found = _fingers(robot(name))
        assert found.human == expected
        assert found.right is right


def test_a_gripper_has_jaws(robot):
    found = _fingers(robot("gripper"))
    assert found.gripper
    assert found.human == {"right": "index", "left": "thumb"}
    assert found.right is None


def _hand(*across: float) -> np.ndarray:
    """Roots of fingers at some y, the thumb's last."""
    return np.array([[0.0, y, 0.0] for y in across])


def test_fingers_without_a_name_take_what_is_left():
    roots = _hand(0.02, -0.02, 0.0, -0.05)
    assert _assign(("x", "y", "ring", "z"), roots, roots) == (
        {"x": "middle", "y": "index", "ring": "ring", "z": "thumb"},
        True,
    )
    assert _assign(("x", "y", "z"), _hand(-0.02, 0.02, 0.05), _hand(-0.02, 0.02, 0.05)) == (
        {"x": "middle", "y": "index", "z": "thumb"},
        False,
    )


def test_a_thumb_in_the_middle_makes_no_side_unless_names_do():
    roots = _hand(-0.02, 0.02, 0.0)
    assert _assign(("x", "y", "z"), roots, roots)[1] is None
    assert _assign(("index", "middle", "thumb"), roots, roots)[1] is True
    assert _assign(("middle", "index", "thumb"), roots, roots)[1] is False


def test_knuckles_are_where_fingers_bend_in_their_own_plane(robot):
    e = robot("dex16")
    found = _fingers(e)
    # From the builtin's own measures: abduction at 104 mm, the bending joint 12 mm on; the palm's site is at 66 mm.
    np.testing.assert_allclose(found.knuckles[1], [0.108 + 0.012 - 0.066, 0.0, -0.014], atol=1e-9)
    np.testing.assert_allclose(found.lengths[1], 0.050 + 0.034 + 0.018, atol=1e-9)
    # The metacarpal joint of the homemade hand's last finger is no knuckle: it does not bend it.
    five = _fingers(robot("five"))
    np.testing.assert_allclose(five.lengths[:4], 0.098, atol=5e-3)
    # LEAP's joint frames stand beside the fingers, which all point the same way.
    leap = _fingers(robot("leap_hand"))
    along = leap.R_palm_hand[:, 0]
    ends = place(chains(robot("leap_hand")).links, leap.points, np.zeros((1, 16)))[0, leap.ends]
    directions = (ends - leap.knuckles)[:3] / leap.lengths[:3, None]
    assert (directions @ along > np.cos(0.02)).all()


@pytest.mark.parametrize("name", ["dex16", "leap_hand", "wonik_allegro", "five"])
def test_bones_lie_behind_the_pads_and_point_along_the_finger(robot, name: str):
    e = robot(name)
    c, found = chains(e), _fingers(e)
    x = np.clip(np.zeros((1, len(c.free))), c.lower, c.upper)
    at = place(c.links, found.points, x)[0]
    depth = np.linalg.norm(at[found.pads] - at[found.ends], axis=1)
    assert (depth > 0.003).all()
    assert (depth < 0.03).all()
    bones = at[found.ends] - at[found.backs]
    np.testing.assert_allclose(np.linalg.norm(bones, axis=1), BONE_M)
    fingers = at[found.ends] - found.knuckles
    cosine = np.sum(bones * fingers, axis=1) / BONE_M / np.linalg.norm(fingers, axis=1)
    assert (cosine[:-1] > np.cos(0.15)).all()


def test_too_many_fingers_are_refused(robot):
    e = robot("dex16")
    many = dataclasses.replace(e, fingertips=e.fingertips * 2)
    with pytest.raises(InputError, match="dex16 has 8 fingers, more than a human hand can drive"):
        _fingers(many)


def test_a_finger_without_a_joint_is_refused(robot):
    e = robot("dex16")
    stiff = dataclasses.replace(e.fingertips[0], name="stiff", body="palm", site="flange")
    with pytest.raises(InputError, match="no joint moves finger 'stiff' of dex16"):
        _fingers(dataclasses.replace(e, fingertips=(stiff, *e.fingertips[1:])))
