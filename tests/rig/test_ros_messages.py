"""The definitions, against bytes that were laid out by hand as CDR says."""

from __future__ import annotations

import struct

import pytest
from mcap.records import Schema
from mcap_ros2.decoder import DecoderFactory

from dexloop.rig.ros_messages import READABLE, definition, short_name

LITTLE_ENDIAN = b"\0\1\0\0"


def decode(datatype: str, body: bytes):
    schema = Schema(1, definition(datatype).encode(), "ros2msg", datatype)
    decoder = DecoderFactory().decoder_for("cdr", schema)
    assert decoder is not None
    return decoder(LITTLE_ENDIAN + body)


def header(frame: str) -> bytes:
    text = frame.encode() + b"\0"
    return struct.pack("<iII", 12, 500_000_000, len(text)) + text


def padded(data: bytes, to: int) -> bytes:
    return data + bytes(-len(data) % to)


def test_pose_stamped():
    body = padded(header("world"), 8) + struct.pack("<7d", 1, 2, 3, 0.1, 0.2, 0.3, 0.9)
    found = decode("geometry_msgs/msg/PoseStamped", body)
    assert (found.header.stamp.sec, found.header.stamp.nanosec, found.header.frame_id) == (12, 500_000_000, "world")
    assert (found.pose.position.x, found.pose.position.z) == (1, 3)
    assert (found.pose.orientation.x, found.pose.orientation.w) == (0.1, 0.9)


def test_image():
    body = padded(header("c"), 4) + struct.pack("<III", 1, 2, 5) + b"rgb8\0" + b"\0"
    body = padded(body, 4) + struct.pack("<II", 6, 6) + bytes(range(6))
    found = decode("sensor_msgs/msg/Image", body)
    assert (found.height, found.width, found.encoding, found.step) == (1, 2, "rgb8", 6)
    assert bytes(found.data) == bytes(range(6))


@pytest.mark.parametrize("datatype", READABLE)
def test_every_readable_type_has_a_whole_definition(datatype: str):
    text = definition(datatype)
    defined = {line[5:] for line in text.splitlines() if line.startswith("MSG: ")}
    used = {w for line in text.splitlines() for w in [line.split()[0].split("[")[0]] if "/" in w}
    assert used == defined
    assert short_name(datatype.replace("/", "/msg/")) == datatype
