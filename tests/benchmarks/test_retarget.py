from __future__ import annotations

import mujoco
import numpy as np
import pytest

from benchmarks import retarget
from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.demonstrate.retarget import Retargeter
from dexloop.robots import Kinematics, load


def test_the_hand_written_as_urdf_is_the_same_hand():
    """Read back by MuJoCo, in a random posture."""
    hand = load("dex16")
    retargeter = Retargeter(hand)
    spec = mujoco.MjSpec.from_string(retarget.to_urdf(retargeter))
    spec.compiler.boundmass = spec.compiler.boundinertia = 1e-6  # it holds no masses
    spec.compiler.fusestatic = False
    model = spec.compile()
    data = mujoco.MjData(model)
    q = np.random.default_rng(0).uniform(*hand.position_limits.T)
    for joint, value in zip(hand.joints, q, strict=True):
        data.joint(joint).qpos = value
    mujoco.mj_kinematics(model, data)
    kinematics = Kinematics(hand)
    for f, tip in enumerate(hand.fingertips):
        T = se3.inverse(kinematics.palm(q)) @ kinematics.poses(q, tip.site)
        end = se3.transform(T, np.array([0.0, 0.0, -0.0124]))  # behind the pad, on the bone
        np.testing.assert_allclose(data.body(f"end{f}").xpos, end, atol=1e-9)
    ranges = np.array([model.joint(j).range for j in hand.joints])
    np.testing.assert_allclose(ranges, hand.position_limits)


def test_joints_that_urdf_would_lose_are_refused():
    with pytest.raises(InputError, match="gripper has joints that this writer does not know"):
        retarget.to_urdf(Retargeter(load("gripper")))


def test_without_the_peer_nothing_is_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(retarget, "find_peer", lambda: False)
    assert retarget.peer_metrics(np.zeros((1, 21, 3))) == []
    assert "skipped: dex-retargeting is not here" in capsys.readouterr().err


def test_a_video_that_is_not_there_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("DEXLOOP_HAND_VIDEO", str(tmp_path))
    with pytest.raises(InputError, match="set DEXLOOP_HAND_VIDEO"):
        retarget.video_landmarks()
