from dataclasses import replace

import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.identify.segments import Segment, cut
from dexloop.identify.streams import match
from dexloop.sim.scene import Scene
from tests.identify.benches import (
    COMMAND_S,
    Push,
    Toss,
    happen,
    model_file,
    pose_stream,
    robot_streams,
    strokes,
    write,
)

PUSHED = happen(Push(), strokes())


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Scene:
    return Scene.open(model_file(tmp_path_factory.mktemp("model"), Push()), max_delay_s=0.0)


@pytest.fixture(scope="module")
def segment(scene, tmp_path_factory) -> Segment:
    streams = [*robot_streams(PUSHED), pose_stream(PUSHED)]
    recording = write(tmp_path_factory.mktemp("push"), {"push": streams}).recording()
    (found,) = cut(scene, match(scene, recording), window_s=0.25)
    return found


def test_what_begins_at_rest_is_one_piece_that_begins_at_rest(segment):
    (start,) = segment.starts
    assert not start.moving
    np.testing.assert_allclose(segment.qpos[:3], PUSHED.qpos[0, :3], atol=3e-4)
    np.testing.assert_allclose(segment.qvel, 0.0, atol=5e-3)
    assert segment.t0 < 0.25  # before the first touch
    assert segment.end > 1.15  # until the box has come to rest


def test_what_begins_in_motion_is_cut_into_windows_with_a_state_each(tmp_path):
    scene = Scene.open(model_file(tmp_path, Toss()), max_delay_s=0.0)
    velocity = [0.6, -0.3, 0.0, 2.0, -3.0, 1.0]
    motion = happen(Toss(), duration_s=0.6, qpos=[0, 0, 0.4, 1, 0, 0, 0], velocity=velocity)
    pose = pose_stream(motion, rate_hz=200.0, place_sd=2e-5, turn_sd=2e-4)
    pieces = cut(scene, match(scene, write(tmp_path, {"toss": [pose]}).recording()), window_s=0.2)
    assert len(pieces) == 3
    assert [p.starts[0].moving for p in pieces] == [True] * 3
    k = round(pieces[1].t0 / 0.0005)  # still in flight
    np.testing.assert_allclose(pieces[1].qpos[:3], motion.qpos[k, :3], atol=3e-4)
    np.testing.assert_allclose(pieces[1].qvel[:3], motion.qvel[k, :3], atol=0.06)
    np.testing.assert_allclose(pieces[1].qvel[3:], motion.qvel[k, 3:], atol=0.3)  # in the body's own axes


def test_a_start_is_displaced_by_its_coordinates(segment):
    local = np.array([[0.0, 0.0, 0.0], [1e-3, -2e-3, 0.1]])
    qpos, qvel = segment.state(local)
    np.testing.assert_allclose(qpos[1, :3] - qpos[0, :3], [1e-3, -2e-3, 0.0], atol=1e-12)
    turn = 2.0 * np.arctan2(qpos[:, 6], qpos[:, 3])
    assert turn[1] - turn[0] == pytest.approx(0.1, abs=1e-9)
    np.testing.assert_array_equal(qvel[0], qvel[1])


def test_commands_arrive_late_and_keep_their_mean(segment):
    command, late = segment.drive.command[:, 0], 0.012
    control = segment.control(np.array([0.0, late]), 1)
    assert control is not None
    t = segment.t0 + segment.timestep_s * np.arange(segment.steps)
    for row, delay in zip(control[:, :, 0], (0.0, late), strict=True):
        fine = t[:, None] - delay + np.linspace(-0.5, 0.5, 401)[None, :-1] * COMMAND_S
        sent = command[np.clip(np.floor(fine / COMMAND_S + 1e-9).astype(int), 0, len(command) - 1)]
        np.testing.assert_allclose(row, sent.mean(axis=1), atol=1e-5)


def test_control_changes_smoothly_with_the_delay(segment):
    delays = 0.0093 + np.array([-1e-5, 0.0, 1e-5])  # it bends where the edge of a mean meets a command
    below, middle, above = segment.control(delays, 1)
    np.testing.assert_allclose(middle, 0.5 * (below + above), atol=1e-7)


def test_a_drive_goes_evenly_between_commands_that_come_often(segment):
    """Commands of an even motion give an even motion, without a saw; rare ones are held."""
    t = segment.drive.t
    even = replace(segment, drive=replace(segment.drive, command=0.3 * t[:, None]))
    control = even.control(np.zeros(1), 1)[0, :, 0]
    assert np.ptp(np.diff(control[5:-5])) < 1e-9
    rare = replace(even, drive=replace(even.drive, t=t[::5], command=0.3 * t[::5, None]))
    assert np.median(np.diff(rare.control(np.zeros(1), 1)[0, :, 0])) == 0.0


def test_a_recording_that_is_too_short_is_refused(scene, tmp_path):
    short = [replace(s, t=s.t[:4], value=s.value[:4]) for s in [*robot_streams(PUSHED), pose_stream(PUSHED)]]
    with pytest.raises(InputError, match="'push' is too short: 16 ms"):
        cut(scene, match(scene, write(tmp_path, {"push": short}).recording()), window_s=0.25)


def test_the_beginning_of_a_push_keeps_what_comes_before_the_touch(segment):
    half = segment.beginning(0.5)
    assert (half.t0, half.name) == (segment.t0, segment.name)
    assert half.end == pytest.approx(segment.t0 + 0.3 + 0.5 * (segment.end - segment.t0 - 0.3), abs=2 * COMMAND_S)
    assert segment.beginning(1.0).steps == segment.steps
    assert 0.3 < segment.beginning(0.01).steps * segment.timestep_s < 0.32
