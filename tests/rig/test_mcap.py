from __future__ import annotations

import io
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
from mcap_ros2.writer import Writer
from PIL import Image

from dexloop.capture.importing import ImportCfg, import_capture
from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.rig.mcap import read_bag
from dexloop.rig.ros_messages import definition
from dexloop.vision.video import read_video

START = 1_700_000_000


def header(t: float, frame: str = "world") -> dict:
    whole = int(np.floor(t))
    return {"stamp": {"sec": whole, "nanosec": round((t - whole) * 1e9)}, "frame_id": frame}


def messages(delay: float = 0.004):
    """Yields topic, datatype, message and log time of a small bench; everything is known in closed form."""
    for i in range(50):
        t = START + i / 100
        state = {
            "header": header(t),
            "name": ["a", "b"],
            "position": [0.01 * i, 1.0],
            "velocity": [1.0, 0.0],
            "effort": [],
        }
        if i % 2:  # drivers may change the order
            state |= {"name": ["b", "a"], "position": [1.0, 0.01 * i], "velocity": [0.0, 1.0]}
        yield "/joint_states", "sensor_msgs/msg/JointState", state, t + delay
    for i in range(30):
        t = START + 0.1 + i / 60
        pose = {
            "position": {"x": 0.3, "y": 0.01 * i, "z": 0.0},
            "orientation": {"x": 0.0, "y": 0.0, "z": 0.6, "w": 0.8},
        }
        yield "/object/pose", "geometry_msgs/msg/PoseStamped", {"header": header(t), "pose": pose}, t + delay
        wrench = {"force": {"x": 1.0, "y": 2.0, "z": float(i)}, "torque": {"x": 0.1, "y": 0.2, "z": 0.3}}
        yield (
            "/wrist/wrench",
            "geometry_msgs/msg/WrenchStamped",
            {"header": header(t, "wrist"), "wrench": wrench},
            t + delay,
        )
        tf = {"translation": {"x": 0.0, "y": 0.0, "z": 0.01 * i}, "rotation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}}
        move = {"header": header(t, "base"), "child_frame_id": "palm", "transform": tf}
        yield "/tf", "tf2_msgs/msg/TFMessage", {"transforms": [move]}, t + delay
    yield "/tf_static", "tf2_msgs/msg/TFMessage", {"transforms": [{**move, "child_frame_id": "camera"}]}, START + 0.0
    k = [70.0, 0.0, 32.5, 0.0, 71.0, 24.5, 0.0, 0.0, 1.0]
    info = {
        "header": header(START), "height": 49, "width": 65, "distortion_model": "plumb_bob", "d": [0.1] * 5, "k": k,
        "r": [0.0] * 9, "p": [0.0] * 12, "binning_x": 0, "binning_y": 0,
        "roi": {"x_offset": 0, "y_offset": 0, "height": 0, "width": 0, "do_rectify": False},
    }  # fmt: skip
    yield "/cam/camera_info", "sensor_msgs/msg/CameraInfo", info, START + 0.0
    for i in range(10):
        t = START + i / 30
        blue = np.zeros((49, 65, 3), np.uint8)
        blue[..., 0] = 20 * i  # bgr8: the first channel is blue
        raw = np.zeros((49, 200), np.uint8)  # rows are padded
        raw[:, :195] = blue.reshape(49, 195)
        picture = {"header": header(t), "height": 49, "width": 65, "encoding": "bgr8", "is_bigendian": 0, "step": 200}
        yield "/cam/image_raw", "sensor_msgs/msg/Image", {**picture, "data": raw.tobytes()}, t + delay
        file = io.BytesIO()
        Image.fromarray(np.full((32, 32, 3), (200, 20 * i, 0), np.uint8)).save(file, "PNG")
        jpeg = {"header": header(t), "format": "png", "data": file.getvalue()}
        yield "/side/compressed", "sensor_msgs/msg/CompressedImage", jpeg, t + delay
        deep = {**picture, "encoding": "16UC1", "step": 130, "data": bytes(130 * 49)}
        yield "/depth/image", "sensor_msgs/msg/Image", deep, t + delay


def write_mcap(path: Path, items=None, finish: bool = True) -> Path:
    with path.open("wb") as file:
        writer = Writer(file)
        schemas = {}
        for topic, datatype, message, log_time in items if items is not None else messages():
            if datatype not in schemas:
                text = message.pop("__definition__", None) or definition(datatype)
                schemas[datatype] = writer.register_msgdef(datatype, text)
            writer.write_message(topic, schemas[datatype], message, log_time=round(log_time * 1e9))
        if items is None:
            chat = writer.register_msgdef("std_msgs/msg/String", "string data")
            writer.write_message("/chatter", chat, {"data": "hello"}, log_time=START * 10**9)
        if finish:
            writer.finish()
    return path


def test_a_bag_becomes_streams_and_videos(tmp_path: Path):
    capture = import_capture(write_mcap(tmp_path / "bench.mcap"), tmp_path / "out", cfg=ImportCfg(units={"b": "m"}))
    capture.verify()
    bench = capture.recording("bench")
    assert set(bench.streams) == {
        "joint_states.position", "joint_states.velocity", "object.pose", "wrist.wrench", "tf.palm",
    }  # fmt: skip
    joints = bench.stream("joint_states.position")
    assert joints.info.channels == ("a", "b")
    assert joints.info.units == ("rad", "m")
    assert bench.stream("joint_states.velocity").info.units == ("rad/s", "m/s")
    assert joints.value == pytest.approx(np.column_stack([0.01 * np.arange(50), np.ones(50)]))
    assert joints.t - START == pytest.approx(np.arange(50) / 100, abs=1e-6)
    pose = bench.stream("object.pose")
    assert pose.value[3] == pytest.approx([0.3, 0.03, 0, 0.8, 0, 0, 0.6])
    assert pose.info.about == "object"
    assert bench.stream("wrist.wrench").value[4] == pytest.approx([1, 2, 4, 0.1, 0.2, 0.3])
    assert bench.stream("wrist.wrench").info.about == "wrist"
    assert bench.stream("tf.palm").value[5, 2] == pytest.approx(0.05)
    assert bench.scene["tf_static"]["camera"]["parent"] == "base"
    assert bench.robot["joints"] == ["a", "b"]

    video = bench.video("cam.image_raw")
    pictures = read_video(video.path)
    assert pictures.shape == (10, 48, 64, 3)
    assert pictures[9].mean(axis=(0, 1)) == pytest.approx([0, 0, 180], abs=4)
    camera = video.info.camera
    assert (camera.fx, camera.fy, camera.cx, camera.cy) == (70, 71, 32.5, 24.5)
    assert video.t - START == pytest.approx(np.arange(10) / 30, abs=1e-6)
    assert read_video(bench.video("side.compressed").path)[5].mean(axis=(0, 1)) == pytest.approx([200, 100, 0], abs=4)


def test_each_topic_has_its_own_clock_and_its_lag_is_known(tmp_path: Path):
    found = read_bag(write_mcap(tmp_path / "bench.mcap"))
    clocks = {s.info.name: s.info.clock for s in found.streams}
    assert clocks["joint_states.position"] == clocks["joint_states.velocity"] == "joint_states"
    assert clocks["object.pose"] == "object.pose"
    assert found.scene["clocks"]["object.pose"]["log_minus_stamp_s"] == pytest.approx(0.004, abs=1e-5)


def test_nothing_is_dropped_silently(tmp_path: Path):
    found = read_bag(write_mcap(tmp_path / "bench.mcap"))
    said = {(n.code, n.message) for n in found.notes}
    codes = [c for c, _ in said]
    text = " ".join(m for _, m in said)
    assert "topic /chatter is left out: std_msgs/String" in text
    assert "topic /depth/image is left out: its encoding '16UC1'" in text
    assert "distorted" in codes
    assert "camera_guessed" in codes  # /side has no camera_info
    assert "'tf.palm' are in frame 'base'" in text


def states(count: int = 20, **changes):
    for i in range(count):
        t = START + i / 100
        message = {"header": header(t), "name": ["a"], "position": [0.1], "velocity": [], "effort": []}
        for key, change in changes.items():
            message[key] = change(i, t)
        yield "/js", "sensor_msgs/msg/JointState", message, t + 0.01


def test_log_time_stands_in_for_missing_stamps(tmp_path: Path):
    found = read_bag(write_mcap(tmp_path / "a.mcap", states(header=lambda i, t: header(0))))
    assert found.streams[0].t[0] - START == pytest.approx(0.01, abs=1e-6)
    assert "no_stamps" in [n.code for n in found.notes]


def test_repeated_and_late_stamps_are_left_out_and_counted(tmp_path: Path):
    found = read_bag(write_mcap(tmp_path / "a.mcap", states(header=lambda i, t: header(START + (i // 2) / 100))))
    assert len(found.streams[0].t) == 10
    assert any("10 of 20 messages on /js" in n.message for n in found.notes)


def test_two_robots_on_one_topic(tmp_path: Path):
    found = read_bag(write_mcap(tmp_path / "a.mcap", states(name=lambda i, t: ["a"] if i % 2 else ["gripper"])))
    assert {s.info.name: s.info.channels for s in found.streams} == {
        "js.position": ("gripper",), "js.2.position": ("a",),
    }  # fmt: skip
    assert found.robot["joints"] == ["gripper", "a"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"position": lambda i, t: [0.1, 0.2]}, r"topic /js: 1 joint names but 2 values of position"),
        ({"position": lambda i, t: [100.0 if i == 7 else 0.1]}, r"topic /js, message 7, 'a': 100 rad.*degrees"),
        ({"position": lambda i, t: [np.inf if i == 3 else 0.1]}, r"topic /js, message 3, 'a': infinity"),
    ],
)
def test_bad_messages(tmp_path: Path, changes: dict, words: str):
    with pytest.raises(InputError, match=words):
        read_bag(write_mcap(tmp_path / "a.mcap", states(**changes)))


def test_wrong_options(tmp_path: Path):
    path = write_mcap(tmp_path / "a.mcap", states())
    with pytest.raises(UnknownName, match="unknown joint 'c'"):
        read_bag(path, units={"c": "m"})
    with pytest.raises(UnknownName, match=r"'mm'.*rad, m"):
        read_bag(path, units={"a": "mm"})


@pytest.mark.parametrize("keep", [0, 5, 60, 0.5, 0.99])
def test_a_truncated_bag_is_one_clear_error(tmp_path: Path, keep: float):
    path = write_mcap(tmp_path / "a.mcap")
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(InputError, match=r"a\.mcap is (damaged|empty)"):
        import_capture(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_junk_is_no_bag(tmp_path: Path):
    for name, words in (("a.mcap", "damaged"), ("a.db3", "no intact ROS 2 bag")):
        (tmp_path / name).write_bytes(b"hello world " * 100)
        with pytest.raises(InputError, match=words):
            read_bag(tmp_path / name)


def write_db3(path: Path) -> Path:
    """Writes the SQLite layout of rosbag2 with the bytes that the MCAP writer made."""
    from mcap.reader import make_reader

    source = write_mcap(path.with_suffix(".tmp"))
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL, "
        "serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL)"
    )
    database.execute(
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL, "
        "data BLOB NOT NULL)"
    )
    ids: dict[str, int] = {}
    with source.open("rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            assert schema is not None
            if channel.topic not in ids:
                ids[channel.topic] = len(ids) + 1
                row = (ids[channel.topic], channel.topic, schema.name, "cdr", "")
                database.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?)", row)
            row = (ids[channel.topic], message.log_time, message.data)
            database.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)", row)
    database.commit()
    database.close()
    source.unlink()
    return path


METADATA = """rosbag2_bagfile_information:
  version: 5
  storage_identifier: {storage}
  relative_file_paths:
    - {name}
  topics_with_message_count: []
"""


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_rosbag2_folder(tmp_path: Path, storage: str):
    bag = tmp_path / "bag"
    bag.mkdir()
    name = "bag_0.mcap" if storage == "mcap" else "bag_0.db3"
    (bag / "metadata.yaml").write_text(METADATA.format(storage=storage, name=name))
    with pytest.raises(InputError, match=f"{name} does not exist"):
        import_capture(bag, tmp_path / "out")
    (write_mcap if storage == "mcap" else write_db3)(bag / name)
    recording = import_capture(bag, tmp_path / "out").recording("bag")
    assert len(recording.streams) == 5
    assert recording.stream("object.pose").value[3] == pytest.approx([0.3, 0.03, 0, 0.8, 0, 0, 0.6])
    assert len(recording.video("cam.image_raw").t) == 10
    assert any("/chatter" in c.message for c in recording.checks)


def test_a_compressed_bag_says_what_to_do(tmp_path: Path):
    (tmp_path / "metadata.yaml").write_text(METADATA.format(storage="sqlite3", name="a_0.db3.zstd"))
    with pytest.raises(InputError, match="zstd -d"):
        read_bag(tmp_path)


def test_without_the_optional_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_mcap(tmp_path / "a.mcap", states())
    monkeypatch.setitem(sys.modules, "mcap_ros2.decoder", None)
    with pytest.raises(MissingPart, match=r"pip install 'dexloop\[mcap\]'"):
        read_bag(path)
