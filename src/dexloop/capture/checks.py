"""Whether a recording can be used: what was dropped, stuck, saturated or of the wrong size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dexloop.core import se3
from dexloop.core.capture import Recording, Stream
from dexloop.core.status import Level, Status

MOVES = ("Push", "Lift")
"""Plans in which the object has to move."""
LARGEST = {"rad": 60.0, "m": 10.0, "rad/s": 200.0, "m/s": 50.0, "N": 5e3, "N·m": 5e3}
"""Absolute values beyond these are no SI units, whatever the file says."""


def check(recording: Recording) -> tuple[Status, ...]:
    """Looks at a finished recording.

    Returns:
        What was found, worst first; one status "ok" if nothing was.
    """
    found = list(_object_moved(recording))  # what the recording was made for comes first
    found += [status for name in recording.streams for status in _stream(recording.stream(name))]
    found += [status for name in recording.videos for status in _times(name, recording.video(name).t, "frames")]
    if not found:
        return (Status(Level.OK, "ok", f"{recording.name}: nothing wrong in {recording.duration_s:.1f} s"),)
    order = [Level.FAIL, Level.WARN, Level.OK]
    return tuple(sorted(found, key=lambda s: order.index(s.level)))


def _stream(stream: Stream) -> Iterator[Status]:
    name = stream.info.name
    yield from _times(name, stream.t, "samples", stream.info.rate_hz)
    if len(stream.t) == 0:
        return
    if not np.isfinite(stream.value).all():
        row = int(np.argwhere(~np.isfinite(stream.value))[0, 0])
        yield Status(
            Level.FAIL, "not_finite", f"{name} is not a number at t = {stream.t[row]:.3f} s", "Look at the sensor."
        )
        return
    yield from _sizes(stream)
    yield from _saturation(stream)
    yield from _dead_channels(stream)


def _times(name: str, t: np.ndarray, what: str, rate_hz: float | None = None) -> Iterator[Status]:
    if len(t) < 2:
        yield Status(Level.FAIL, "silent", f"{name} has {len(t)} {what}", "Check that it is connected and switched on.")
        return
    steps = np.diff(t)
    if (steps <= 0).any():
        at = int(np.argmax(steps <= 0))
        yield Status(
            Level.FAIL, "clock_backwards", f"{name}: the clock goes back by {-steps[at]:.4f} s at t = {t[at]:.3f} s",
            "Record again with a clock that nobody sets meanwhile.",
        )  # fmt: skip
        return
    period = 1.0 / rate_hz if rate_hz else float(np.median(steps))
    dropped = int(np.round(steps / period - 1.0).clip(min=0).sum())
    if dropped:
        part = dropped / (dropped + len(t))
        longest = int(np.argmax(steps))
        yield Status(
            Level.FAIL if part > 0.2 else Level.WARN,
            "dropped_frames" if what == "frames" else "dropped_samples",
            f"{name}: {dropped} {what} are missing ({100 * part:.1f} %), the longest gap is {steps[longest]:.3f} s at "
            f"t = {t[longest]:.3f} s",
            "Record less at once, or on a faster disk.",
        )
    if steps.max() > max(50 * period, 1.0):
        at = int(np.argmax(steps))
        yield Status(
            Level.FAIL, "clock_jump", f"{name}: the clock jumps by {steps[at]:.2f} s at t = {t[at]:.3f} s",
            "Cut the recording there, or record again.",
        )  # fmt: skip


def _sizes(stream: Stream) -> Iterator[Status]:
    info = stream.info
    for k, unit in enumerate(info.units):
        largest = float(np.abs(stream.value[:, k]).max())
        if largest > LARGEST.get(unit, np.inf):
            yield Status(
                Level.FAIL, "units", f"{info.name}.{info.channels[k]} reaches {largest:g} {unit}",
                "Look at the unit: millimetres or degrees?",
            )  # fmt: skip
            return
    if info.kind == "pose":
        norm = np.linalg.norm(stream.value[:, 3:], axis=1)
        if np.abs(norm - 1.0).max() > 0.02:
            yield Status(
                Level.FAIL, "quaternion", f"{info.name}: a quaternion has length {norm[np.abs(norm - 1).argmax()]:.3f}",
                "Give unit quaternions as w, x, y, z.",
            )  # fmt: skip


def _saturation(stream: Stream) -> Iterator[Status]:
    limits = stream.info.limits
    if limits is None or stream.info.kind == "joint_command":
        return
    for k, (lower, upper) in enumerate(limits):
        span = upper - lower
        # A force that cannot be negative rests at its lower bound; that is no saturation.
        low = (stream.value[:, k] <= lower + 1e-6 * span) if lower < 0 else np.zeros(len(stream.t), dtype=bool)
        part = float(np.mean(low | (stream.value[:, k] >= upper - 1e-6 * span)))
        if part > 0.01:
            yield Status(
                Level.WARN, "saturated",
                f"{stream.info.name}.{stream.info.channels[k]} is at its limit {100 * part:.0f} % of the time",
                "What it would have said beyond is lost: move slower, or with less force.",
            )  # fmt: skip


def _dead_channels(stream: Stream) -> Iterator[Status]:
    if stream.info.kind not in ("joint_position", "joint_velocity", "joint_effort", "wrench"):
        return
    dead = [c for c, spread in zip(stream.info.channels, np.ptp(stream.value, axis=0), strict=True) if spread == 0.0]
    if dead and len(stream.t) > 10:
        yield Status(
            Level.WARN, "dead_channel", f"{stream.info.name}: {', '.join(dead)} never changes by a single bit",
            "A real sensor has noise: check the cable, or leave the channel out.",
        )  # fmt: skip


def _object_moved(recording: Recording) -> Iterator[Status]:
    if recording.plan.get("plan") not in MOVES:
        return
    pushed = recording.plan["plan"] == "Push"
    for stream in recording.of_kind("pose"):
        if stream.info.about != "object" or len(stream.t) < 10:
            continue
        n = max(len(stream.t) // 20, 3)
        first, last = np.median(stream.value[:n], axis=0), np.median(stream.value[-n:], axis=0)
        path = np.linalg.norm(stream.value[:, :3] - first[:3], axis=1)
        turned = np.linalg.norm(se3.so3_log(se3.quat_multiply(se3.quat_inverse(first[3:]), last[3:])))
        if np.quantile(path, 0.98) < 0.004 and turned < 0.05:
            yield Status(
                Level.FAIL, "motionless", f"{recording.name}: the object moved {1e3 * np.quantile(path, 0.98):.1f} mm",
                "Say more exactly where it is" + (", or push lower and further." if pushed else ", or squeeze more."),
            )  # fmt: skip
        elif (
            recording.plan["plan"] == "Lift" and stream.value[:, 2].max() - first[2] < 0.3 * recording.plan["height_m"]
        ):
            yield Status(
                Level.FAIL, "not_lifted", f"{recording.name}: the object rose "
                f"{1e3 * (stream.value[:, 2].max() - first[2]):.0f} mm of {1e3 * recording.plan['height_m']:.0f} mm",
                "It slipped: squeeze more, or push it instead.",
            )  # fmt: skip
