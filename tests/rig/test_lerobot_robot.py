from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dexloop.core.camera import Camera
from dexloop.core.errors import HaltError, InputError, SetupError, UnknownName
from dexloop.rig.lerobot_robot import LeRobotJoint, LeRobotRig
from dexloop.rig.protocol import Rig
from dexloop.rig.recorder import Recorder


class Stand:
    """Has the interface of LeRobot's `Robot`: keys, types and behaviour as its SO-101 follower."""

    name = "so101_follower"

    def __init__(self) -> None:
        self._connected = False
        self._calibrated = True
        self.position = {"pan.pos": 90.0, "slide.pos": 0.0, "gripper.pos": 25.0}
        self.picture = np.zeros((48, 64, 3), np.uint8)
        self.calls: list[str] = []

    @property
    def observation_features(self) -> dict[str, Any]:
        return {
            "gripper.pos": float,
            "pan.pos": float,
            "slide.pos": float,
            "pan.vel": float,
            "pan.effort": float,
            "battery": float,
            "front": (48, 64, 3),
        }

    @property
    def action_features(self) -> dict[str, Any]:
        return dict.fromkeys(self.position, float)

    @property
    def is_connected(self) -> bool:
        return self._connected

    @property
    def is_calibrated(self) -> bool:
        return self._calibrated

    def connect(self, calibrate: bool = True) -> None:
        assert not self._connected
        assert not calibrate, "calibrating moves the robot"
        self._connected = True

    def calibrate(self) -> None:
        raise AssertionError("calibrating moves the robot")

    def configure(self) -> None:
        pass

    def get_observation(self) -> dict[str, Any]:
        assert self._connected
        return {**self.position, "pan.vel": 180.0, "pan.effort": 0.3, "battery": 0.9, "front": self.picture}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        assert self._connected
        assert set(action) == set(self.position)
        self.position = {k: min(v, 120.0) for k, v in action.items()}
        return dict(self.position)

    def disconnect(self) -> None:
        assert self._connected
        self._connected = False


JOINTS = {
    "pan": LeRobotJoint("deg", (-math.pi, math.pi), 3.0, 2.0, 0.0),
    "slide": LeRobotJoint("-100..100", (0.0, 0.2), 0.5, 30.0, 0.1, slides=True),
    "gripper": LeRobotJoint("0..100", (-0.2, 1.8), 3.0, 1.0, 0.0),
}


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_features_while_disconnected(stand: Stand):
    rig = LeRobotRig(stand, joints=JOINTS, rate_hz=60, model="arm")
    assert isinstance(rig, Rig)
    features = rig.features
    assert not stand.is_connected
    assert features.robot == {"name": "arm", "joints": ["pan", "slide", "gripper"]}
    assert features.command is not None
    assert features.command.units == ("rad", "m", "rad")
    assert features.command.position_limits[1] == (0.0, 0.2)
    streams = {s.name: s for s in features.streams}
    assert streams["joint_position"].channels == ("gripper", "pan", "slide")
    assert streams["joint_position"].units == ("rad", "rad", "m")
    assert streams["joint_velocity"].units == ("rad/s",)
    assert streams["joint_effort"].units == ("N·m",)
    assert streams["state"].kind == "scalar"
    assert (features.videos[0].camera.width, features.videos[0].camera.height) == (64, 48)


def test_observations_are_in_si(stand: Stand):
    rig = LeRobotRig(stand, joints=JOINTS)
    rig.connect()
    before = rig.now()
    seen = rig.observe()
    position = dict(zip(("gripper", "pan", "slide"), seen.samples["joint_position"].value[0], strict=True))
    assert position == pytest.approx({"pan": math.pi / 2, "slide": 0.1, "gripper": 0.3})
    assert seen.samples["joint_velocity"].value[0] == pytest.approx([math.pi])
    assert seen.samples["joint_effort"].value[0] == pytest.approx([0.3])
    assert before <= seen.samples["joint_position"].t[0] <= rig.now()
    assert seen.frames["front"].image.shape == (1, 48, 64, 3)
    assert "front" not in rig.observe().frames  # the same picture again is not new
    stand.picture = stand.picture + 1
    assert rig.observe().frames["front"].image.max() == 1


def test_commands_arrive_in_the_robots_units_and_come_back_as_sent(stand: Stand):
    rig = LeRobotRig(stand, joints=JOINTS)
    rig.connect()
    rig.send(np.array([math.pi, 0.05, 1.8]))
    assert stand.position == pytest.approx({"pan.pos": 120, "slide.pos": -50, "gripper.pos": 100})
    command = rig.observe().samples["joint_command"]
    assert command.value[0] == pytest.approx([np.radians(120), 0.05, 1.8])  # the robot clipped the first
    assert "joint_command" not in rig.observe().samples
    for wrong in (np.zeros(2), np.array([0, np.inf, 0])):
        with pytest.raises(InputError, match="3 finite numbers"):
            rig.send(wrong)


def test_stop_holds_the_last_position(stand: Stand):
    rig = LeRobotRig(stand, joints=JOINTS)
    rig.connect()
    held = dict(stand.position)
    rig.observe()
    stand.position = {k: v + 5 for k, v in held.items()}
    rig.stop()
    assert stand.position == pytest.approx(held)
    with pytest.raises(HaltError, match="connect again"):
        rig.send(np.zeros(3))
    rig.disconnect()
    rig.disconnect()
    rig.connect()
    rig.send(np.zeros(3))


def test_a_robot_that_loses_its_mind_is_halted(stand: Stand):
    rig = LeRobotRig(stand, joints=JOINTS)
    rig.connect()
    stand.position["pan.pos"] = math.nan
    with pytest.raises(HaltError, match="joint_position"):
        rig.observe()


def test_an_uncalibrated_robot_is_not_moved(stand: Stand):
    stand._calibrated = False
    with pytest.raises(SetupError, match="lerobot-calibrate"):
        LeRobotRig(stand, joints=JOINTS).connect()
    assert not stand.is_connected


@pytest.mark.parametrize(
    ("joints", "cameras", "words"),
    [
        ({"pan": JOINTS["pan"]}, {}, r"unit slide, gripper is reported.*-100\.\.100"),
        ({**JOINTS, "pan": LeRobotJoint("N", (0, 1), 1, 1, 0)}, {}, r"unknown unit 'N'.*deg.*'pan'"),
        ({**JOINTS, "pan": LeRobotJoint("deg", (0, 1), 1, 1, 2)}, {}, r"home 2 must lie between"),
        ({**JOINTS, "elbow": JOINTS["pan"]}, {}, r"unknown joint 'elbow'.*pan, slide, gripper"),
        (JOINTS, {"back": Camera.from_fov("back", 64, 48, 1.0)}, r"unknown camera 'back'.*front"),
        (JOINTS, {"front": Camera.from_fov("front", 32, 24, 1.0)}, r"64 x 48 pixels, its calibration is for 32 x 24"),
    ],
)
def test_what_was_not_said_is_asked_for(stand: Stand, joints: dict, cameras: dict, words: str):
    with pytest.raises((InputError, UnknownName), match=words):
        LeRobotRig(stand, joints=joints, cameras=cameras)


def test_another_object_is_refused():
    with pytest.raises(InputError, match="list is no LeRobot robot: it has no observation_features"):
        LeRobotRig([], joints={})  # pyright: ignore[reportArgumentType]


def test_it_can_be_recorded(stand: Stand, tmp_path: Path):
    rig = LeRobotRig(stand, joints=JOINTS)
    rig.connect()
    with Recorder(tmp_path / "c", rig.features) as recorder:
        recorder.start("move")
        for i in range(5):
            stand.picture = np.full((48, 64, 3), 10 * i, np.uint8)
            rig.send(np.array([0.1 * i, 0.1, 0.5]))
            recorder.append(rig.observe())
    assert recorder.capture is not None
    move = recorder.capture.recording()
    assert move.stream("joint_command").value[:, 0] == pytest.approx(0.1 * np.arange(5))
    assert len(move.video("front").t) == 5
