import numpy as np
import pytest

from dexloop.capture import FreeMotion, HumanVideo, Lift, Press, Push, Scan, capture
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError
from dexloop.core.status import Level
from dexloop.lab import Lab, LabCfg
from dexloop.rig.replay import ReplayRig

QUICK = LabCfg(object="cube", seed=4, video=False)


def test_a_capture_holds_what_was_asked_for(lab_capture):
    assert list(lab_capture.recordings) == ["scan", "free_motion", "push", "lift", "human"]
    lab_capture.verify()
    push = lab_capture.recording("push")
    assert push.plan["plan"] == "Push"
    assert push.plan["speed_m_s"] == 0.25
    assert push.robot["name"] == "dex16@wrist"
    assert set(push.markers) == {"contact_expected", "release"}
    assert lab_capture.status.level is not Level.FAIL


def test_a_robot_that_moves_alone_is_not_filmed(lab_capture, tmp_path):
    filmed = {r.name for r in lab_capture.recordings.values() if r.videos}
    assert filmed == {"scan", "push", "lift", "human"}
    press = capture(Lab(LabCfg(object="cube", seed=4, picture_px=(160, 120))).rig(), Press(presses=1), tmp_path / "c")
    assert not press.recording("press").videos
    assert press.recording("press").stream("touch").value.max() > 1.0


def test_the_push_moved_the_object_and_the_fingertip_felt_it(lab_capture):
    push = lab_capture.recording("push")
    way = push.stream("object_pose").value[-1, 0] - push.stream("object_pose").value[0, 0]
    assert 0.05 < way < 0.3
    touch = push.stream("touch")
    before = touch.t < push.markers["contact_expected"] - 0.1
    assert touch.value[before, 0].max() < 0.5
    assert touch.value[:, 0].max() > 0.5
    assert touch.value[:, 1:].max() < 0.5, "only the first finger touches"


def test_streams_are_regular_and_begin_together(lab_capture):
    for name in ("free_motion", "push", "lift"):
        recording = lab_capture.recording(name)
        for info in recording.streams.values():
            t = recording.stream(info.name).t
            assert np.median(np.diff(t)) == pytest.approx(1 / info.rate_hz, rel=0.25)
        starts = [recording.stream(s).t[0] for s in recording.streams if recording.streams[s].clock == "robot"]
        assert np.ptp(starts) < 0.01


def test_the_object_is_put_back_before_each_push(tmp_path):
    made = capture(Lab(QUICK).rig(), [Push(settle_s=0.1)] * 2, tmp_path / "c")
    first, second = (made.recording(f"push_{k}").stream("object_pose").value[:10, :3].mean(axis=0) for k in (1, 2))
    np.testing.assert_allclose(first, second, atol=0.004)


@pytest.mark.parametrize("name", ["spread_jar", "meat_can"])
def test_what_slips_in_the_hand_or_out_of_it_is_not_pressed_onto_the_table(tmp_path, name):
    """The jar slips by 20 mm, the can falls: on the way down the hand pressed both with more than sensors bear."""
    recorded = capture(Lab(LabCfg(object=name, seed=202, video=False)).rig(), Lift(), tmp_path / "c")
    touch = recorded.recording("lift").stream("touch")
    assert touch.value.max() < 0.6 * touch.info.limits[0][1]
    assert "rose" in recorded.status.message or name == "spread_jar"


def test_a_plan_that_cannot_be_done_moves_nothing(tmp_path):
    rig = Lab(QUICK).rig()
    with pytest.raises(InputError, match="misses the object"):
        capture(rig, [Push(), Push(height_m=0.9)], tmp_path / "c")
    assert rig.now() == 0.0
    assert not any(tmp_path.iterdir())


def test_nothing_to_record(tmp_path):
    with pytest.raises(InputError, match="nothing to record"):
        capture(Lab(QUICK).rig(), [], tmp_path / "c")


def test_ctrl_c_keeps_what_was_recorded_and_stops_the_robot(tmp_path):
    rig = Lab(QUICK).rig()
    stopped = []
    stop, send = rig.stop, rig.send
    count = [0]

    def interrupted(target):
        count[0] += 1
        if count[0] == 300:
            raise KeyboardInterrupt
        send(target)

    rig.send, rig.stop = interrupted, lambda: (stopped.append(True), stop())
    with pytest.raises(KeyboardInterrupt):
        capture(rig, FreeMotion(duration_s=3.0), tmp_path / "c")
    assert stopped
    kept = Capture.open(tmp_path / "c")
    assert kept.status.code == "interrupted"
    assert len(kept.recording().stream("joint_position").t) > 200


def test_progress_is_told(tmp_path):
    told = []
    capture(Lab(QUICK).rig(), FreeMotion(duration_s=1.0), tmp_path / "c", progress=lambda *a: told.append(a))
    assert ("free_motion", 1.0) in told
    assert all(0.0 <= done <= 1.0 for _, done in told)


def test_a_rig_without_a_person_says_how_to_bring_a_film(lab_capture, tmp_path):
    rig = ReplayRig(lab_capture, "push")
    for plan in (Scan(), HumanVideo()):
        with pytest.raises(InputError, match="capture import"):
            capture(rig, plan, tmp_path / "c")
