from __future__ import annotations

import mujoco
import numpy as np

from dexloop.core import se3
from dexloop.robots.anatomy import dissect


def test_a_claw_has_two_fingers_and_a_thumb_that_close_on_each_other(claw) -> None:
    spec = mujoco.MjSpec.from_file(str(claw))
    spec.delete(spec.body("ball"))
    spec.delete(spec.geom("floor"))
    for body in spec.bodies[1:]:
        for k, geom in enumerate(body.geoms):
            geom.name = geom.name or f"{body.name}{k}"
    model = spec.compile()
    joints = [model.joint(j).name for j in range(model.njnt)]
    parts = dissect(model, joints)
    assert parts.arm_joints == ()
    assert parts.end_body == "base"
    assert [tip.name for tip in parts.tips] == ["index", "middle", "thumb"]
    assert [tip.body for tip in parts.tips] == ["index_b", "middle_b", "thumb_b"]
    index, _, thumb = parts.tips
    # Straight fingers along z: 0.2 (base) + 0.05 + 0.04 + 0.036 high at the end, pads 6 mm towards each other.
    assert index.T_world_site[2, 3] < 0.326
    assert index.T_world_site[2, 3] > 0.305
    np.testing.assert_allclose(index.T_world_site[:2, 3], [-0.02 + 0.006, 0.02], atol=5e-4)
    np.testing.assert_allclose(index.T_world_site[:3, 2], [1, 0, 0], atol=1e-3)
    np.testing.assert_allclose(thumb.T_world_site[:3, 2], [-1, 0, 0], atol=1e-3)
    np.testing.assert_allclose(index.T_world_site[:3, 0], [0, 0, 1], atol=0.05)
    assert parts.T_world_palm is not None
    R = parts.T_world_palm[:3, :3]
    np.testing.assert_allclose(R[:, 0], [0, 0, 1], atol=2e-3)  # along the fingers
    np.testing.assert_allclose(R[:, 2], [1, 0, 0], atol=2e-3)  # the way they bend
    np.testing.assert_allclose(parts.T_world_mount[:3, 2], R[:, 0], atol=1e-12)
    np.testing.assert_allclose(parts.T_world_mount[2, 3], 0.2 - 0.005, atol=2e-4)  # the back of the palm


def test_the_thumb_is_told_by_where_it_faces_when_nothing_is_called_thumb(claw) -> None:
    text = claw.read_text().replace("thumb", "opposer").replace("index", "aa").replace("middle", "bb")
    model = mujoco.MjModel.from_xml_string(text)
    joints = [model.joint(j).name for j in range(model.njnt) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE]
    assert dissect(model, joints).tips[-1].body == "opposer_b"


def test_a_chain_is_an_arm_with_a_face_at_its_end() -> None:
    model = mujoco.MjModel.from_xml_string("""<mujoco><compiler angle="radian"/><worldbody>
<body name="a"><joint name="1" axis="0 0 1" range="-1 1"/><geom type="box" size=".1 .1 .1"/>
<body name="b" pos="0 0 0.2"><joint name="2" axis="0 1 0" range="-1 1"/>
<geom type="box" size=".05 .05 .1" pos="0 0 .1"/>
<body name="c" pos="0 0 0.3"><joint name="3" axis="0 0 -1" range="-1 1"/><geom type="box" size=".03 .03 .02"/>
</body></body></body></worldbody></mujoco>""")
    parts = dissect(model, ["1", "2", "3"])
    assert parts.arm_joints == ("1", "2", "3")
    assert parts.tips == ()
    assert parts.T_world_palm is None
    np.testing.assert_allclose(parts.T_world_mount[:3, 3], [0, 0, 0.52], atol=1e-12)
    assert parts.T_world_mount[2, 2] == 1
    np.testing.assert_allclose(np.linalg.det(parts.T_world_mount[:3, :3]), 1)
    np.testing.assert_allclose(se3.inverse(parts.T_world_mount) @ parts.T_world_mount, np.eye(4), atol=1e-12)
