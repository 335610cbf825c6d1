"""A replay: a recording behind the `Rig` protocol, played back in its own time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from dexloop.core.capture import Capture, Recording, Stream, Video
from dexloop.core.errors import HaltError, InputError
from dexloop.rig.protocol import CommandInfo, Features, Frames, Observation, Samples
from dexloop.vision.video import Picture, read_frames


class ReplayRig:
    """Plays one recording of a Capture.

    Time is simulated: `sleep` moves it on, `observe` gives what the recording holds up to now, with the stamps it was
    recorded with. Where all clocks of the recording overlap, now is read on them as if they agreed, and starts at the
    first sample. Clocks that have nothing in common are each started at their own first sample, and now counts from 0.

    A replay cannot be steered: `send` checks a target as a robot would and keeps it in `sent`, but what is observed is
    what was recorded.

    Args:
        capture: To play.
        recording: The recording's name; may be left out if there is only one.
    """

    def __init__(self, capture: Capture, recording: str | None = None):
        self._recording = capture.recording(recording)
        self.sent: list[tuple[float, Float[np.ndarray, " joints"]]] = []
        """Time [s] and target [rad or m] of every `send` since `connect`."""
        self._streams = [self._recording.stream(n) for n in self._recording.streams]
        self._videos = [self._recording.video(n) for n in self._recording.videos]
        self._zero, self._start, self._end = _timeline([*self._streams, *self._videos])
        self._features = _features(self._recording, self._streams)
        self._connected = False
        self._stopped = False
        self._now = self._start
        self._given: dict[str, int] = {}
        self._pictures: dict[str, Iterator[Picture]] = {}

    @property
    def features(self) -> Features:
        """What was recorded. The command's limits are infinite where the recording does not tell them."""
        return self._features

    @property
    def finished(self) -> bool:
        """Whether everything has been played."""
        return self._now >= self._end

    def connect(self) -> None:
        """Goes to the beginning."""
        self._connected, self._stopped = True, False
        self._now = self._start
        self.sent.clear()
        self._given = {s.info.name: 0 for s in self._streams} | {f"video/{v.info.name}": 0 for v in self._videos}
        self._pictures = {v.info.name: read_frames(v.path) for v in self._videos}

    def disconnect(self) -> None:
        """Ends the replay."""
        self._connected = False
        self._pictures.clear()

    def now(self) -> float:
        """Returns the simulated time [s]."""
        return self._now

    def sleep(self, duration_s: float) -> None:
        """Moves the simulated time on."""
        if not (math.isfinite(duration_s) and duration_s >= 0):
            raise InputError(f"a replay cannot sleep for {duration_s} s: time only goes forward")
        self._now += duration_s

    def observe(self) -> Observation:
        """Returns what was recorded between the last call and now."""
        self._must_be_connected()
        samples: dict[str, Samples] = {}
        for stream in self._streams:
            a, b = self._advance(stream.info.name, stream.info.clock, stream.t)
            if b > a:
                samples[stream.info.name] = Samples(stream.t[a:b], stream.value[a:b])
        frames: dict[str, Frames] = {}
        for video in self._videos:
            a, b = self._advance(f"video/{video.info.name}", video.info.clock, video.t)
            if b > a:
                pictures = [next(self._pictures[video.info.name]) for _ in range(b - a)]
                frames[video.info.name] = Frames(video.t[a:b], np.stack(pictures))
        return Observation(samples, frames)

    def send(self, target: Float[np.ndarray, " joints"]) -> None:
        """Keeps the target in `sent`; nothing moves by it."""
        self._must_be_connected()
        if self._stopped:
            raise HaltError("the replay was stopped: connect again before sending commands")
        command = self._features.command
        if command is None:
            raise InputError(f"recording {self._recording.name!r} has no robot: nothing can be sent")
        target = np.array(target, np.float64)
        if target.shape != (len(command.joints),) or not np.isfinite(target).all():
            raise InputError(f"a target is {len(command.joints)} finite numbers, not {target}")
        self.sent.append((self._now, target))

    def stop(self) -> None:
        """Refuses further commands until it is connected again; the recording plays on."""
        self._stopped = True

    def _advance(self, key: str, clock: str, t: Float[np.ndarray, " n"]) -> tuple[int, int]:
        begin = self._given[key]
        # A microsecond of grace: many short sleeps must not lose the last sample to rounding.
        end = int(np.searchsorted(t, self._now - self._start + self._zero[clock] + 1e-6, side="right"))
        self._given[key] = max(begin, end)
        return begin, self._given[key]

    def _must_be_connected(self) -> None:
        if not self._connected:
            raise InputError("the replay is not connected: call connect() first")


def _timeline(parts: list[Stream | Video]) -> tuple[dict[str, float], float, float]:
    """Returns where each clock begins, and the first and last simulated moment [s]."""
    spans: dict[str, tuple[float, float]] = {}
    for part in parts:
        low, high = spans.get(part.info.clock, (math.inf, -math.inf))
        spans[part.info.clock] = (min(low, float(part.t[0])), max(high, float(part.t[-1])))
    first = min(low for low, _ in spans.values())
    if max(low for low, _ in spans.values()) <= min(high for _, high in spans.values()):
        return dict.fromkeys(spans, first), first, max(high for _, high in spans.values())
    return {c: low for c, (low, _) in spans.items()}, 0.0, max(high - low for low, high in spans.values())


def _features(recording: Recording, streams: list[Stream]) -> Features:
    return Features(
        name=f"replay of {recording.name}",
        robot=recording.robot,
        streams=tuple(recording.streams.values()),
        videos=tuple(recording.videos.values()),
        command=_command(streams),
        scene=recording.scene,
    )


def _command(streams: list[Stream]) -> CommandInfo | None:
    by_kind = {s.info.kind: s for s in reversed(streams)}
    source = by_kind.get("joint_command") or by_kind.get("joint_position")
    if source is None:
        return None
    info, count = source.info, len(source.info.channels)
    rate = info.rate_hz or (1.0 / float(np.median(np.diff(source.t))) if len(source.t) > 1 else 1.0)
    return CommandInfo(
        joints=info.channels,
        units=info.units,
        position_limits=info.limits or ((-math.inf, math.inf),) * count,
        speed_limits=(math.inf,) * count,
        effort_limits=(math.inf,) * count,
        home=tuple(float(v) for v in source.value[0]),
        rate_hz=rate,
    )
