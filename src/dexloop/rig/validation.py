"""What every imported stream must hold to: numbers, rising times, unit quaternions, values that a bench can have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from dexloop.core.capture import KINDS, POSE_CHANNELS, WRENCH_CHANNELS, Stream, StreamInfo
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status

Place = Callable[[int, str], str]
"""Gives the place of a row and a channel (or "" for the whole row) in the source, such as "pose.csv, line 7"."""

MAX_LENGTH_M = 10.0
MAX_ANGLE_RAD = 4 * np.pi
MAX_SPEED = {"m": 30.0, "rad": 200.0}
"""Above these half of all steps cannot be a bench's: the unit is wrong [m/s, rad/s]."""
RATES_HZ = (2.0, 20_000.0)
"""Streams of a robot bench are inside this range, unless their description says otherwise."""


def check_channels(info: StreamInfo, place: str) -> None:
    """Checks the kind and that it has the channels that it must have.

    Raises:
        UnknownName: There is no such kind.
        InputError: A pose or a wrench has other channels than its kind says.
    """
    if info.kind not in KINDS:
        raise UnknownName("kind", info.kind, KINDS, f"It stands in {place}.")
    for kind, channels in (("pose", POSE_CHANNELS), ("wrench", WRENCH_CHANNELS)):
        if info.kind == kind and info.channels != channels:
            raise InputError(
                f"{place}: a {kind} has the {len(channels)} channels {', '.join(channels)}, not "
                f"{len(info.channels)} ({', '.join(info.channels)})"
            )


def check_stream(stream: Stream, place: Place, *, whole: str) -> tuple[Stream, tuple[Status, ...]]:
    """Checks one stream.

    Args:
        stream: In SI units.
        place: Where a row and channel stand in the source.
        whole: What the stream as a whole is called in messages, such as its file.

    Returns:
        The stream, its quaternions normalised, and what is odd about it though not wrong.

    Raises:
        InputError: The first thing that is wrong, with its place and what to do.
    """
    info, t, value = stream.info, stream.t, stream.value
    check_channels(info, whole)
    check_finite(t, value, info.channels, place)
    if len(t) < 2:
        raise InputError(f"{whole} has only {len(t)} sample: a stream needs at least two")
    check_times(t, place, whole=whole, rate_hz=info.rate_hz)
    notes: list[Status] = []
    if info.kind == "pose":
        value = value.copy()
        value[:, 3:] = _unit_quaternions(value[:, 3:], place)
        notes += _doubtful_order(value[:, 3:], info)
        _check_lengths(t, value[:, :3], info.channels[:3], place, whole)
    elif info.kind in ("joint_position", "joint_command"):
        _check_joints(t, value, info, place, whole)
    return replace(stream, value=value), tuple(notes)


def check_finite(
    t: Float[np.ndarray, " n"], value: Float[np.ndarray, "n c"], channels: tuple[str, ...], place: Place
) -> None:
    """Raises `InputError` at the first NaN or infinity."""
    table, names = np.column_stack([t, value]), ("t", *channels)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = bad[0]
        what = "NaN" if np.isnan(table[row, column]) else "infinity"
        raise InputError(
            f"{place(int(row), names[column])}: {what} is no measurement; leave out the samples where it is missing"
        )


def check_times(t: Float[np.ndarray, " n"], place: Place, *, whole: str, rate_hz: float | None = None) -> None:
    """Raises `InputError` if times do not rise, or if they must be in another unit than seconds."""
    step = np.diff(t)
    if (step <= 0).any():
        row = int(np.argmax(step <= 0)) + 1
        if step[row - 1] == 0:
            raise InputError(f"{place(row, 't')}: the time {t[row]:.9g} s comes twice; keep one sample of each time")
        raise InputError(
            f"{place(row, 't')}: the time goes backwards from {t[row - 1]:.9g} to {t[row]:.9g} s; "
            f"sort the samples, or split the file where the clock was set"
        )
    if not len(step):
        return
    rate = float(1.0 / np.median(step))
    low, high = RATES_HZ
    if rate_hz is not None:
        low, high = min(low, rate_hz / 2), max(high, rate_hz * 2)
    if rate < low:
        unit = next((u for u, f in (("ms", 1e3), ("us", 1e6), ("ns", 1e9)) if rate * f >= RATES_HZ[0]), "ns")
        raise InputError(
            f"{whole} would have {rate:.3g} samples a second: its times look like {_LONG[unit]}; "
            f'say time_unit = "{unit}", or rate_hz if it is truly that slow'
        )
    if rate > high:
        raise InputError(
            f"{whole} would have {rate:.3g} samples a second: its times look like seconds and not what time_unit "
            f"says; correct time_unit, or say rate_hz if it is truly that fast"
        )


_LONG = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def _unit_quaternions(q: Float[np.ndarray, "n 4"], place: Place) -> Float[np.ndarray, "n 4"]:
    norm = np.linalg.norm(q, axis=1)
    bad = np.abs(norm - 1.0) > 0.01
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{place(row, '')}: the quaternion ({', '.join(f'{v:.4g}' for v in q[row])}) has norm {norm[row]:.4g}, "
            f"not 1; check which columns hold qw, qx, qy, qz"
        )
    return q / norm[:, None]


def _doubtful_order(q: Float[np.ndarray, "n 4"], info: StreamInfo) -> list[Status]:
    """Warns of what is likely "no rotation", written x y z w and read w x y z: exactly a half turn in all samples."""
    if not np.array_equal(np.abs(q), np.broadcast_to([0.0, 0.0, 0.0, 1.0], q.shape)):
        return []
    return [
        Status(
            Level.WARN,
            "quaternion_order",
            f"every rotation of {info.name!r} is exactly a half turn about z (w x y z = 0 0 0 1)",
            'if it should be no rotation, the source is in x y z w order: say quaternion = "xyzw", or rename columns',
        )
    ]


def _check_lengths(
    t: np.ndarray, p: Float[np.ndarray, "n c"], channels: tuple[str, ...], place: Place, whole: str
) -> None:
    far = np.abs(p) > MAX_LENGTH_M
    if far.any():
        row, column = np.argwhere(far)[0]
        raise InputError(
            f"{place(int(row), channels[column])}: {p[row, column]:.6g} m is no place on a bench: "
            f'it looks like millimetres; say unit = "mm"'
        )
    speed = np.linalg.norm(np.diff(p, axis=0), axis=1) / np.diff(t)
    if np.median(speed) > MAX_SPEED["m"]:
        raise InputError(
            f"{whole} moves at {np.median(speed):.3g} m/s most of the time: it looks like millimetres (say "
            f'unit = "mm") or like times in another unit (say time_unit)'
        )


def _check_joints(t: np.ndarray, value: np.ndarray, info: StreamInfo, place: Place, whole: str) -> None:
    for column, (name, unit) in enumerate(zip(info.channels, info.units, strict=True)):
        q = value[:, column]
        if unit == "m":
            _check_lengths(t, q[:, None], (name,), place, whole)
            continue
        turned = np.abs(q) > MAX_ANGLE_RAD
        if turned.any():
            row = int(np.argmax(turned))
            raise InputError(
                f"{place(row, name)}: {q[row]:.6g} rad is more than two turns: it looks like degrees; "
                f'say unit = "deg" (or "m"/"mm" for a sliding joint)'
            )
        if np.median(np.abs(np.diff(q)) / np.diff(t)) > MAX_SPEED["rad"]:
            raise InputError(
                f'{whole}: joint {name!r} is too fast for radians: it looks like degrees (say unit = "deg") or '
                f"like times in another unit (say time_unit)"
            )


def check_overlap(spans: Iterable[tuple[str, str, Float[np.ndarray, " n"]]], place: str) -> None:
    """Raises `InputError` if two streams on one clock have no moment in common.

    Args:
        spans: Name, clock and times [s] of each stream and video.
        place: Of the recording.
    """
    by_clock: dict[str, list[tuple[str, float, float]]] = {}
    for name, clock, t in spans:
        by_clock.setdefault(clock, []).append((name, float(t[0]), float(t[-1])))
    for clock, found in by_clock.items():
        first, last = min(found, key=lambda s: s[2]), max(found, key=lambda s: s[1])
        if first[2] < last[1]:
            raise InputError(
                f"{place}: {first[0]!r} ({first[1]:.6g} to {first[2]:.6g} s) and {last[0]!r} ({last[1]:.6g} to "
                f"{last[2]:.6g} s) have no moment in common on clock {clock!r}; if they were stamped by different "
                f"clocks, give each its own clock"
            )


def check_joints_agree(streams: Iterable[Stream], robot_joints: tuple[str, ...], place: str) -> tuple[str, ...]:
    """Checks that all joint streams speak of the same joints and returns these.

    Args:
        streams: Of one recording.
        robot_joints: As the robot's description names them; empty if there is none.
        place: Of the recording.
    """
    joints, by = robot_joints, "the robot"
    for stream in streams:
        if not stream.info.kind.startswith("joint_"):
            continue
        if joints and set(stream.info.channels) != set(joints):
            missing = sorted(set(joints) - set(stream.info.channels))
            extra = sorted(set(stream.info.channels) - set(joints))
            raise InputError(
                f"{place}: stream {stream.info.name!r} has other joints than {by}: "
                + "; ".join(
                    f"{what} {', '.join(names)}" for what, names in (("without", missing), ("besides", extra)) if names
                )
                + "; give both the same joints"
            )
        if not joints:
            joints, by = stream.info.channels, f"stream {stream.info.name!r}"
    return joints
