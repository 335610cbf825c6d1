from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.capture import POSE_CHANNELS, Recording, StreamInfo
from dexloop.core.errors import InputError, UnknownName
from dexloop.rig.protocol import Features, Samples
from dexloop.rig.recorder import Recorder
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.traces import RATE_HZ, traces
from tests.robots.pinched import ROBOT, T_WORLD_BASE

J, LATE_S, BEGIN_S = len(ROBOT.joints), 0.03, 5.0
SPEED = np.array([0.02, -0.03, 0.05, 0.0, 0.0, 0.1, 0.002, 0.002])
"""Of all joints, and so of the palm [m/s and rad/s]."""
THROWN = np.array([0.1, -0.2, 0.3])
TURN = np.array([0.0, 0.2, 1.0])
"""Of the object [m/s and rad/s]."""
T_TRACK_OBJECT = se3.exp(np.array([0.01, 0.0, -0.02, 0.3, 0.0, 0.1]))


def joints(t: np.ndarray) -> np.ndarray:
    return ROBOT.home + SPEED * (t - BEGIN_S)[:, None]


def tracked(t: np.ndarray) -> np.ndarray:
    R = se3.quat_to_matrix(se3.so3_exp(TURN * (t - BEGIN_S)[:, None]))
    return se3.from_rt(R, np.array([0.1, 0.0, 0.05]) + THROWN * (t - BEGIN_S)[:, None])


def recorded(folder: Path, *, leave_out: tuple[str, ...] = (), **change: Any) -> Recording:
    """Two seconds in which everything moves evenly, each stream at a rate and a phase of its own."""
    fast, slow, command = (np.arange(BEGIN_S + shift, BEGIN_S + 2.0, dt) for shift, dt in ((0.0013, 0.004),
                                                                                         (0.007, 1 / 60),
                                                                                         (0.0, 0.004)))  # fmt: skip
    pose = se3.to_pose(tracked(slow))
    pose[::2, 3:] *= -1.0  # the same turn, written otherwise
    data = {
        "joint_position": (fast, joints(fast)), "joint_command": (command, joints(command)),
        "joint_effort": (fast, np.outer(fast - BEGIN_S, np.ones(J))),
        "touch": (fast, np.stack([fast - BEGIN_S, np.full_like(fast, 2.0)], axis=1)),
        "object_pose": (slow + LATE_S, pose), **change,
    }  # fmt: skip
    names, units = {"touch": ("left", "right"), "object_pose": POSE_CHANNELS}, {"touch": "N"}
    streams = tuple(
        StreamInfo(
            name, "pose" if name == "object_pose" else name, names.get(name, ROBOT.joints),
            ("m",) * 3 + ("1",) * 4 if name == "object_pose" else (units.get(name, "rad"),) * value.shape[1],
            "camera" if name == "object_pose" else "robot",
        )
        for name, (_, value) in data.items() if name not in leave_out
    )  # fmt: skip
    about = {"name": ROBOT.name, "joints": list(ROBOT.joints), "T_world_base": T_WORLD_BASE.tolist()}
    with Recorder(folder / "capture", Features("bench", about, streams, (), None, {})) as recorder:
        recorder.start("trial")
        for name in (s.name for s in streams):
            recorder.append_samples(name, Samples(*data[name]))
    assert recorder.capture is not None
    return recorder.capture.recording()


def test_what_moves_evenly_comes_out_where_it_was_at_each_moment(tmp_path: Path):
    found = traces(recorded(tmp_path), ROBOT, T_TRACK_OBJECT, pose_late_s=LATE_S)
    t = BEGIN_S + found.t
    np.testing.assert_allclose(np.diff(found.t), 1 / RATE_HZ)
    assert found.t[0] == pytest.approx(1 / RATE_HZ)
    assert found.t[-1] > 1.9
    np.testing.assert_allclose(found.position, joints(t), atol=1e-9)
    np.testing.assert_allclose(found.command, joints(t), atol=1e-9)  # a command comes just then
    np.testing.assert_allclose(found.T_world_palm, T_WORLD_BASE @ Kinematics(ROBOT).palm(joints(t)), atol=1e-9)
    seen = slice(2, -1)  # the tracker begins later, and nothing is known before
    wanted = (tracked(t) @ T_TRACK_OBJECT)[seen]
    np.testing.assert_allclose(found.T_world_object[seen], wanted, atol=2e-5)  # a turn between poses is nearly even


def test_forces_are_means_over_the_period_before(tmp_path: Path):
    found = traces(recorded(tmp_path), ROBOT, np.eye(4), pose_late_s=LATE_S)
    # Five samples, 4 ms apart, the last of them 2.7 ms before the moment: on average 10.7 ms before it.
    np.testing.assert_allclose(found.touch[1:, 1], found.t[1:] - 0.0107, atol=1e-9)
    np.testing.assert_allclose(found.effort[1:, 3], found.t[1:] - 0.0107, atol=1e-9)
    np.testing.assert_allclose(found.touch[:, 0], 2.0)  # right, left: as the robot has them


def test_channels_are_those_that_are_named_and_samples_that_are_no_numbers_are_left_out(tmp_path: Path):
    whole = recorded(tmp_path / "a")
    wanted = traces(whole, ROBOT, np.eye(4), pose_late_s=LATE_S)
    turned = {k: replace(s, channels=s.channels[::-1]) if k in ("joint_position", "touch") else s
              for k, s in whole.streams.items()}  # fmt: skip
    backwards = traces(replace(whole, streams=turned), ROBOT, np.eye(4), pose_late_s=LATE_S)
    np.testing.assert_array_equal(backwards.position, wanted.position[:, ::-1])
    np.testing.assert_array_equal(backwards.touch, wanted.touch[:, ::-1])
    with pytest.raises(UnknownName, match="wrist_x"):
        strange = replace(whole.streams["joint_position"], channels=tuple(f"j{k}" for k in range(J)))
        traces(replace(whole, streams={**whole.streams, "joint_position": strange}), ROBOT, np.eye(4))
    gaps = {
        name: (s.t, s.value.copy()) for name in ("object_pose", "touch", "joint_effort") for s in [whole.stream(name)]
    }
    for _, value in gaps.values():
        value[40] = np.nan
    gaps["joint_effort"][1][:, 2] = np.nan  # a joint that does not tell it
    found = traces(recorded(tmp_path / "b", **gaps), ROBOT, np.eye(4), pose_late_s=LATE_S)
    np.testing.assert_allclose(found.T_world_object, wanted.T_world_object, atol=2e-4)
    np.testing.assert_allclose(found.touch, wanted.touch, atol=3e-3)
    assert np.isnan(found.effort[:, 2]).all()
    assert np.isfinite(np.delete(found.effort, 2, axis=1)).all()


def test_a_command_holds_until_the_next_one(tmp_path: Path):
    when = BEGIN_S + np.array([0.0, 0.101, 0.5, 1.9])
    said = ROBOT.home + np.arange(4)[:, None]
    found = traces(recorded(tmp_path, joint_command=(when, said)), ROBOT, np.eye(4), pose_late_s=LATE_S)
    wanted = np.searchsorted(when - BEGIN_S, found.t + 1e-6, side="right") - 1
    np.testing.assert_array_equal(found.command[:, 0] - ROBOT.home[0], wanted)


def test_efforts_that_nobody_measured_are_no_numbers(tmp_path: Path):
    found = traces(recorded(tmp_path, leave_out=("joint_effort",)), ROBOT, np.eye(4), pose_late_s=LATE_S)
    assert np.isnan(found.effort).all()
    assert np.isfinite(found.touch).all()


def test_streams_that_are_missing_or_do_not_meet_are_errors(tmp_path: Path):
    with pytest.raises(UnknownName, match="touch"):
        traces(recorded(tmp_path / "a", leave_out=("touch",)), ROBOT, np.eye(4))
    short = BEGIN_S + np.array([0.0, 0.03])
    with pytest.raises(InputError, match=r"0\.03 s of motion"):
        traces(recorded(tmp_path / "b", joint_command=(short, joints(short))), ROBOT, np.eye(4))
    with pytest.raises(InputError, match="saw nothing while the robot moved"):
        traces(recorded(tmp_path / "c"), ROBOT, np.eye(4), pose_late_s=100.0)
