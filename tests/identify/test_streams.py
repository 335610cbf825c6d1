from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dexloop.core.capture import Stream
from dexloop.core.errors import InputError, UnknownName
from dexloop.identify.streams import match, pose_error
from dexloop.sim.scene import Scene
from tests.identify.benches import Push, happen, model_file, pose_stream, ramp, robot_streams, write

MOTION = happen(Push(), ramp(0.3, start_s=0.1, rest_s=0.2))


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Scene:
    return Scene.open(model_file(tmp_path_factory.mktemp("model"), Push()), max_delay_s=0.0)


def streams(**changes) -> list[Stream]:
    """Returns a push; a change is a function of the stream of that name."""
    out = [*robot_streams(MOTION), pose_stream(MOTION)]
    return [changes[s.info.name](s) if s.info.name in changes else s for s in out]


def matched(scene, folder, found):
    return match(scene, write(folder, {"push": found}).recording())


def test_each_stream_finds_its_place_in_the_model(scene, tmp_path):
    found = {m.stream: m for m in matched(scene, tmp_path, streams()).measured}
    assert set(found) == {"joint_position", "joint_effort", "pose"}
    assert (found["pose"].field, list(found["pose"].columns)) == ("qpos", [0, 1, 2, 3, 4, 5, 6])
    assert (found["joint_position"].field, list(found["joint_position"].columns)) == ("qpos", [7])
    assert (found["joint_effort"].field, list(found["joint_effort"].columns)) == ("qfrc_actuator", [6])
    assert found["pose"].clock == "clock.camera"
    assert found["joint_position"].clock == ""


def test_fast_noise_is_read_off_the_samples(scene, tmp_path):
    loud = pose_stream(MOTION, rate_hz=250.0, place_sd=1e-3, turn_sd=1e-2)
    found = {m.stream: m for m in matched(scene, tmp_path, [*robot_streams(MOTION), loud]).measured}
    np.testing.assert_allclose(found["pose"].noise, [1e-3] * 3 + [1e-2] * 3, rtol=0.35)


@pytest.mark.parametrize("stream", ["joint_command", "joint_effort", "pose"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_none_is_refused(scene, tmp_path, stream, bad):
    def spoil(s: Stream) -> Stream:
        value = s.value.copy()
        value[7, 0] = bad
        return replace(s, value=value)

    with pytest.raises(InputError, match=rf"'{stream}' of recording 'push'.*not finite.*sample 7: leave"):
        matched(scene, tmp_path, streams(**{stream: spoil}))


def test_times_that_do_not_increase_are_refused(scene, tmp_path):
    with pytest.raises(InputError, match=r"times of stream 'pose'.*do not increase"):
        matched(scene, tmp_path, streams(pose=lambda s: replace(s, t=np.r_[s.t[:-1], s.t[-2]])))


@pytest.mark.parametrize("late_s", [-30.0, 30.0])
def test_clocks_so_far_apart_that_nothing_overlaps_are_refused(scene, tmp_path, late_s):
    with pytest.raises(InputError, match=r"'pose' of recording 'push'.*clocks are 2\d\.\d+ s apart or more; shift"):
        matched(scene, tmp_path, streams(pose=lambda s: replace(s, t=s.t + late_s)))


def test_a_pose_of_an_object_that_is_not_there_is_refused(scene, tmp_path):
    with pytest.raises(UnknownName, match=r"'mug'.*there is box.*'pose' of recording 'push'"):
        matched(scene, tmp_path, streams(pose=lambda s: replace(s, info=replace(s.info, about="mug"))))


def test_a_pose_of_a_part_of_the_robot_is_refused(scene, tmp_path):
    with pytest.raises(UnknownName, match="pusher"):
        matched(scene, tmp_path, streams(pose=lambda s: replace(s, info=replace(s.info, about="pusher"))))


def test_a_recording_of_another_robot_is_refused(scene, tmp_path):
    def renamed(s: Stream) -> Stream:
        return replace(s, info=replace(s.info, channels=("elbow",)))

    capture = write(
        tmp_path, {"push": streams(joint_command=renamed, joint_position=renamed)}, robot={"name": "other_arm"}
    )
    with pytest.raises(InputError, match=r"different robot \(other_arm\).*no joint 'elbow', it has slide"):
        match(scene, capture.recording())


def test_commands_are_needed_where_there_are_actuators(scene, tmp_path):
    with pytest.raises(InputError, match=r"no joint_command, but the model has 1 actuators: record"):
        matched(scene, tmp_path, [pose_stream(MOTION)])


def test_two_streams_of_commands_are_refused(scene, tmp_path):
    first = robot_streams(MOTION)[0]
    second = replace(first, info=replace(first.info, name="again"))
    with pytest.raises(InputError, match=r"several streams of commands \(joint_command, again\): keep one"):
        matched(scene, tmp_path, [first, second])


def test_a_recording_without_anything_to_compare_is_refused(scene, tmp_path):
    with pytest.raises(InputError, match="no stream that the model could be compared with"):
        matched(scene, tmp_path, robot_streams(MOTION)[:1])


def test_a_motionless_channel_is_told_and_not_used(scene, tmp_path):
    found = matched(scene, tmp_path, streams(joint_effort=lambda s: replace(s, value=0.0 * s.value)))
    effort = next(m for m in found.measured if m.stream == "joint_effort")
    assert not effort.keep.any()
    assert any("joint_effort is motionless in slide" in note for note in found.notes)
    assert np.isfinite(effort.noise).all()
    assert (effort.noise > 0).all()


def test_saturated_numbers_are_told_and_not_used(scene, tmp_path):
    top = 0.5 * float(robot_streams(MOTION)[2].value.max())

    def cut_off(s: Stream) -> Stream:
        return replace(s, info=replace(s.info, limits=((-100.0, top),)), value=np.minimum(s.value, top))

    found = matched(scene, tmp_path, streams(joint_effort=cut_off))
    effort = next(m for m in found.measured if m.stream == "joint_effort")
    full = robot_streams(MOTION)[2].value >= top
    assert 3 < full.sum() < len(full)
    np.testing.assert_array_equal(effort.keep, ~full)
    assert any(f"saturated in slide: {full.sum()} numbers" in note for note in found.notes)


def test_a_stream_that_means_nothing_to_the_model_is_told(scene, tmp_path):
    first = robot_streams(MOTION)[2]
    scalar = replace(first, info=replace(first.info, name="heat", kind="scalar", units=("K",)))
    touch = replace(first, info=replace(first.info, name="pads", kind="touch"))
    notes = matched(scene, tmp_path, [*streams(), scalar, touch]).notes
    assert any("heat is not used" in n for n in notes)
    assert any("pads is not used: the model has no touch sensors called slide" in n for n in notes)


def test_pose_error_is_a_displacement_and_a_rotation_vector_in_world_axes():
    rng = np.random.default_rng(0)
    turn_a, turn_b = Rotation.random(50, rng=rng), Rotation.random(50, rng=rng)
    place_a, place_b = rng.standard_normal((2, 50, 3))
    a = np.concatenate([place_a, turn_a.as_quat(scalar_first=True)], axis=1)
    b = np.concatenate([place_b, -turn_b.as_quat(scalar_first=True)], axis=1)  # the same rotation, the other sign
    error = pose_error(a, b)
    np.testing.assert_allclose(error[:, :3], place_b - place_a)
    np.testing.assert_allclose(error[:, 3:], (turn_b * turn_a.inv()).as_rotvec(), atol=1e-12)
    np.testing.assert_allclose(pose_error(a, a), 0.0, atol=1e-7)
