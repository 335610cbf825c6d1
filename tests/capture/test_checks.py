"""Each fault is planted in a good recording, and found."""

import dataclasses

import numpy as np
import pytest

from dexloop.capture.checks import check
from dexloop.core.artifact import save_arrays
from dexloop.core.capture import POSE_CHANNELS, Recording, StreamInfo
from dexloop.core.status import Level

RNG = np.random.default_rng(0)
T = np.arange(500) / 250.0
EFFORT = StreamInfo("effort", "joint_effort", ("a", "b"), ("N·m", "N·m"), "robot", 250.0, limits=((-1.0, 1.0),) * 2)
POSE = StreamInfo("object_pose", "pose", POSE_CHANNELS, ("m",) * 3 + ("1",) * 4, "camera", 250.0, about="object")
PUSH = {"plan": "Push"}


def pose(way: float = 0.1) -> np.ndarray:
    value = np.zeros((len(T), 7))
    value[:, 0] = np.linspace(0, way, len(T))
    value[:, 3] = 1.0
    value[:, :3] += RNG.normal(0, 2e-4, (len(T), 3))
    return value


def recording(folder, streams, *, plan=None) -> Recording:
    (folder / "streams").mkdir(parents=True)
    for info, t, value in streams:
        save_arrays(folder / "streams" / f"{info.name}.npz", t=t, value=value)
    return Recording("r", folder, plan or {}, {}, {}, {s[0].name: s[0] for s in streams}, {})


def good_effort() -> np.ndarray:
    return RNG.normal(0, 0.1, (len(T), 2))


def codes(found) -> set[str]:
    return {s.code for s in found}


def test_a_good_recording_is_good(tmp_path):
    found = check(recording(tmp_path, [(EFFORT, T, good_effort()), (POSE, T, pose())], plan=PUSH))
    assert [s.level for s in found] == [Level.OK]


def changed(value, rows, columns, new):
    value = value.copy()
    value[rows, columns] = new
    return value


@pytest.mark.parametrize(
    ("code", "level", "t", "value"),
    [
        (
            "dropped_samples",
            Level.WARN,
            np.delete(T, slice(100, 130)),
            np.delete(good_effort(), slice(100, 130), axis=0),
        ),
        (
            "dropped_samples",
            Level.FAIL,
            np.delete(T, slice(100, 300)),
            np.delete(good_effort(), slice(100, 300), axis=0),
        ),
        ("clock_backwards", Level.FAIL, changed(T, slice(200, 210), ..., 0.1), good_effort()),
        ("clock_jump", Level.FAIL, np.where(np.arange(500) < 250, T, T + 5.0), good_effort()),
        ("saturated", Level.WARN, T, changed(good_effort(), slice(0, 50), 1, 1.0)),
        ("saturated", Level.WARN, T, changed(good_effort(), slice(0, 50), 0, -1.0)),
        ("dead_channel", Level.WARN, T, changed(good_effort(), slice(None), 1, 0.25)),
        ("not_finite", Level.FAIL, T, changed(good_effort(), 7, 1, np.nan)),
        ("units", Level.FAIL, T, changed(good_effort(), 7, 1, 1e5)),
        ("silent", Level.FAIL, T[:0], good_effort()[:0]),
    ],
)
def test_a_fault_is_found(tmp_path, code, level, t, value):
    found = check(recording(tmp_path, [(EFFORT, t, value)]))
    assert (code, level) in {(s.code, s.level) for s in found}
    assert all(s.action for s in found if s.level is not Level.OK), "it says what to do"


def test_the_worst_comes_first(tmp_path):
    value = changed(changed(good_effort(), slice(0, 50), 1, 1.0), 7, 0, 1e5)
    found = check(recording(tmp_path, [(EFFORT, T, value)]))
    assert [s.level for s in found] == [Level.FAIL, Level.WARN]


def test_a_push_that_moved_nothing(tmp_path):
    found = check(recording(tmp_path, [(POSE, T, pose(0.0))], plan=PUSH))
    assert codes(found) == {"motionless"}
    assert found[0].level is Level.FAIL


def test_a_still_object_is_no_fault_where_nobody_pushed(tmp_path):
    assert codes(check(recording(tmp_path, [(POSE, T, pose(0.0))], plan={"plan": "FreeMotion"}))) == {"ok"}


def test_a_lift_that_slipped(tmp_path):
    found = check(recording(tmp_path, [(POSE, T, pose())], plan={"plan": "Lift", "height_m": 0.06}))
    assert codes(found) == {"not_lifted"}


def test_quaternions_of_wrong_length(tmp_path):
    found = check(recording(tmp_path, [(POSE, T, changed(pose(), slice(None), 3, 0.7))]))
    assert codes(found) == {"quaternion"}


def test_an_irregular_stream_is_judged_by_its_own_rate(tmp_path):
    info = dataclasses.replace(EFFORT, rate_hz=None)
    t = np.sort(np.random.default_rng(1).uniform(0, 2, 500))
    assert "clock_jump" not in codes(check(recording(tmp_path, [(info, t, good_effort())])))
