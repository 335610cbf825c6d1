from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.rig.ros_images import cannot_decode, decode


def image(encoding: str, pixel: list[int], step: int = 0) -> SimpleNamespace:
    row = bytes(pixel * 4)
    return SimpleNamespace(
        encoding=encoding, width=4, height=2, step=step or len(row), data=2 * (row + bytes(max(0, step - len(row))))
    )


@pytest.mark.parametrize(
    ("encoding", "pixel", "rgb"),
    [
        ("rgb8", [1, 2, 3], [1, 2, 3]),
        ("bgr8", [1, 2, 3], [3, 2, 1]),
        ("rgba8", [1, 2, 3, 9], [1, 2, 3]),
        ("bgra8", [1, 2, 3, 9], [3, 2, 1]),
        ("mono8", [7], [7, 7, 7]),
    ],
)
def test_encodings(encoding: str, pixel: list[int], rgb: list[int]):
    for step in (0, 20):
        assert np.array_equal(decode(image(encoding, pixel, step), "here"), np.tile(rgb, (2, 4, 1)))


def test_an_odd_size_is_cut():
    message = SimpleNamespace(encoding="mono8", width=5, height=3, step=5, data=bytes(range(15)))
    assert decode(message, "here")[..., 0].tolist() == [[0, 1, 2, 3], [5, 6, 7, 8]]


def test_what_cannot_be_a_picture():
    assert cannot_decode(image("rgb8", [1, 2, 3])) == ""
    assert "32FC1" in cannot_decode(image("32FC1", [1, 2, 3]))
    assert "depth" in cannot_decode(SimpleNamespace(format="16UC1; compressedDepth png", data=b""))
    short = image("rgb8", [1, 2, 3])
    short.data = short.data[:-1]
    with pytest.raises(InputError, match="here: 23 bytes are too few"):
        decode(short, "here")
    with pytest.raises(InputError, match="here: a compressed picture is damaged"):
        decode(SimpleNamespace(format="jpeg", data=b"\xff\xd8junk"), "here")
