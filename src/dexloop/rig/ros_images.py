"""Pictures out of ROS image messages."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np

from dexloop.core.errors import InputError
from dexloop.vision.video import Picture

# Channels in memory, and which of them are red, green and blue.
_ENCODINGS: dict[str, tuple[int, tuple[int, int, int]]] = {
    "rgb8": (3, (0, 1, 2)),
    "bgr8": (3, (2, 1, 0)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "mono8": (1, (0, 0, 0)),
    "8UC1": (1, (0, 0, 0)),
    "8UC3": (3, (2, 1, 0)),
}


def cannot_decode(message: SimpleNamespace) -> str:
    """Returns why this image cannot become a picture of a video, or nothing if it can."""
    if hasattr(message, "encoding"):
        return "" if message.encoding in _ENCODINGS else f"its encoding {message.encoding!r} is no 8-bit colour picture"
    return "it holds depth, not colour" if "compressedDepth" in message.format else ""


def decode(message: SimpleNamespace, place: str) -> Picture:
    """Returns the RGB picture of a `sensor_msgs/Image` or `CompressedImage`, cut to an even width and height.

    Raises:
        InputError: The data do not fit the size, or the file in it is damaged.
    """
    picture = _raw(message, place) if hasattr(message, "encoding") else _compressed(message, place)
    height, width = picture.shape[0] // 2 * 2, picture.shape[1] // 2 * 2
    return np.ascontiguousarray(picture[:height, :width])


def _raw(message: SimpleNamespace, place: str) -> Picture:
    channels, rgb = _ENCODINGS[message.encoding]
    data = np.frombuffer(bytes(message.data), np.uint8)
    if message.step < message.width * channels or len(data) < message.step * message.height:
        raise InputError(
            f"{place}: {len(data)} bytes are too few for a picture of {message.width} x {message.height} "
            f"{message.encoding}; record it again"
        )
    rows = data[: message.step * message.height].reshape(message.height, message.step)
    return rows[:, : message.width * channels].reshape(message.height, message.width, channels)[..., list(rgb)]


def _compressed(message: SimpleNamespace, place: str) -> Picture:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(bytes(message.data))) as image:
            return np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"{place}: a compressed picture is damaged ({error}); record it again") from error
