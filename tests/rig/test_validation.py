"""Both sides of each threshold; the messages are tested with the import."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexloop.core import se3
from dexloop.core.capture import POSE_CHANNELS, Stream, StreamInfo
from dexloop.core.errors import InputError
from dexloop.rig.validation import check_overlap, check_stream, check_times


def place(row: int, channel: str) -> str:
    return f"row {row} {channel}"


def pose_stream(t: np.ndarray, pose: np.ndarray) -> Stream:
    info = StreamInfo("p", "pose", POSE_CHANNELS, ("m",) * 3 + ("1",) * 4, "c")
    return Stream(info, t, pose)


def joint_stream(t: np.ndarray, q: np.ndarray) -> Stream:
    return Stream(StreamInfo("q", "joint_position", ("a",), ("rad",), "c"), t, q[:, None])


@given(st.integers(0, 1000), st.floats(30, 2000), st.floats(0.01, 2.0))
def test_a_hand_moving_things_about_is_never_refused(seed: int, rate: float, speed: float):
    rng = np.random.default_rng(seed)
    t = 1.7e9 + np.arange(200) / rate
    p = np.cumsum(rng.normal(size=(200, 3)) * speed / rate, axis=0)
    q = se3.so3_exp(rng.normal(size=(200, 3)))
    found, notes = check_stream(pose_stream(t, np.column_stack([p, q])), place, whole="p")
    assert np.allclose(found.value[:, 3:], q)
    assert notes == ()


def test_quaternions_a_little_off_are_normalised_and_more_is_refused():
    t = np.arange(5) / 100
    pose = np.tile([0, 0, 0, 1.004, 0, 0, 0], (5, 1))
    found, _ = check_stream(pose_stream(t, pose), place, whole="p")
    assert found.value[:, 3].tolist() == [1.0] * 5
    pose[3, 3] = 1.02
    with pytest.raises(InputError, match="row 3 : the quaternion"):
        check_stream(pose_stream(t, pose), place, whole="p")


@pytest.mark.parametrize(("turn", "fine"), [(2 * np.pi, True), (12.5, True), (12.6, False), (90.0, False)])
def test_two_turns(turn: float, fine: bool):
    stream = joint_stream(np.arange(100) / 100, np.linspace(0, turn, 100))
    if fine:
        check_stream(stream, place, whole="q")
    else:
        with pytest.raises(InputError, match="degrees"):
            check_stream(stream, place, whole="q")


def test_noise_of_an_encoder_is_no_speed():
    q = np.random.default_rng(0).normal(0, 0.01, 1000)
    check_stream(joint_stream(np.arange(1000) / 1000, q), place, whole="q")


@pytest.mark.parametrize(
    ("step", "unit"), [(1 / 1000, ""), (1 / 5, ""), (4.0, "ms"), (33.3, "ms"), (4e3, "us"), (33e6, "ns"), (1e6, "ns")]
)
def test_the_unit_of_times_is_guessed_right(step: float, unit: str):
    t = np.arange(50) * step
    if not unit:
        check_times(t, place, whole="f")
        return
    with pytest.raises(InputError, match=f'time_unit = "{unit}"'):
        check_times(t, place, whole="f")


def test_overlap_is_asked_of_one_clock_only():
    early, late, both = np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([0.5, 2.5])
    check_overlap([("a", "x", early), ("b", "y", late)], "here")
    check_overlap([("a", "x", early), ("c", "x", both)], "here")
    with pytest.raises(InputError, match=r"here: 'a' .*'b'"):
        check_overlap([("a", "x", early), ("c", "x", both), ("b", "x", late)], "here")
