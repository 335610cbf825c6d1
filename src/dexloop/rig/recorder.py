"""The recorder: what a rig observes goes to disk as it comes, and becomes a `Capture` at the end."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dexloop.core.artifact import HEADER, require_free, storage_errors, write_text
from dexloop.core.capture import Capture, Recording, StreamInfo, VideoInfo
from dexloop.core.errors import InputError, StorageError, UnknownName
from dexloop.rig import journal as journals
from dexloop.rig.journal import Journal, RowFile, Syncer, plain_json
from dexloop.rig.layout import (
    check_infos,
    check_name,
    video_file,
)
from dexloop.rig.protocol import Features, Frames, Observation, Samples
from dexloop.rig.sealing import Checks, finalise, interrupted, read_recording, seal
from dexloop.vision.video import VideoWriter


class Recorder:
    """Records one motion after another into one `Capture`.

    ```python
    with Recorder("runs/push", rig.features) as recorder:
        recorder.start("push", plan={"plan": "Push"})
        while moving:
            recorder.append(rig.observe())
        recorder.finish_recording(checks, markers={"release": 1.2})
    capture = recorder.capture
    ```

    While it records everything lies in the journal `PATH.recording`; see `dexloop.rig.journal`. Leaving the block
    writes the Capture, also after Ctrl-C or an error: then the recording under way is kept as far as it came, with a
    status that says so. After SIGKILL or a full disk the journal remains and `open_capture` makes the Capture of it.

    Args:
        path: Where the Capture shall be.
        features: Of the rig: the streams, videos, robot and scene of every recording, unless `start` says otherwise.
        replace: Put it in the place of a Capture that is there, once it is complete.
        seed: Of the random numbers behind the recording, if there were any.

    Raises:
        InputError: There is a Capture or a journal at the path already.
        StorageError: The disk is full or not writable.
    """

    def __init__(self, path: str | Path, features: Features, *, replace: bool = False, seed: int | None = None):
        self.path, self.features = Path(path), features
        self.capture: Capture | None = None
        """The result, once the recorder is closed."""
        require_free(self.path, Capture, replace=replace)
        check_infos(features.streams, features.videos)
        self._replace, self._seed = replace, seed
        self._current: _Open | None = None
        self._names: set[str] = set()
        with storage_errors(self.path):
            self._journal = Journal.create(self.path)
        self._syncer = Syncer()
        self._failed = False

    def start(
        self,
        name: str,
        *,
        plan: Mapping[str, Any] | None = None,
        streams: Sequence[StreamInfo] | None = None,
        videos: Sequence[VideoInfo] | None = None,
        scene: Mapping[str, Any] | None = None,
    ) -> None:
        """Begins a recording; one that is under way must be finished first.

        Args:
            name: Of the recording; also its folder's name.
            plan: What is carried out, in plain JSON values.
            streams: Instead of the rig's; empty for none.
            videos: Instead of the rig's, such as an operator's hand-held camera.
            scene: Instead of the rig's.
        """
        if self._current is not None:
            raise InputError(f"recording {self._current.recording.name!r} is under way: finish it first")
        check_name("recording", name)
        if name.lower() in self._names:
            raise InputError(f"there is a recording called {name!r} in {self.path} already: give each its own name")
        streams = tuple(self.features.streams if streams is None else streams)
        videos = tuple(self.features.videos if videos is None else videos)
        check_infos(streams, videos)
        recording = Recording(
            name=name,
            folder=self._journal.folder / f"{len(self._names):03d}",
            plan=dict(plan or {}),
            robot=dict(self.features.robot),
            scene=dict(self.features.scene if scene is None else scene),
            streams={s.name: s for s in streams},
            videos={v.name: v for v in videos},
        )
        with self._storage():
            self._current = _Open(recording)
        self._names.add(name.lower())
        self._syncer.watch(self._current.files)

    def append(self, observation: Observation) -> None:
        """Writes everything that was observed."""
        for name, samples in observation.samples.items():
            self.append_samples(name, samples)
        for name, frames in observation.frames.items():
            self.append_frames(name, frames)

    def append_samples(self, stream: str, samples: Samples) -> None:
        """Writes new samples of one stream.

        Raises:
            UnknownName: The recording has no such stream.
            StorageError: The disk is full; what was written before is kept in the journal.
        """
        current = self._under_way()
        if stream not in current.rows:
            raise UnknownName("stream", stream, current.rows, "The recorder was given a sample of it.")
        rows = np.column_stack([samples.t, samples.value])
        if rows.shape[1] != current.rows[stream].columns:
            raise InputError(
                f"stream {stream!r} has {current.rows[stream].columns - 1} channels, not {rows.shape[1] - 1}"
            )
        with self._storage():
            current.rows[stream].append(rows)
            self._syncer.raise_error()

    def append_frames(self, camera: str, frames: Frames) -> None:
        """Writes new pictures of one camera.

        Raises:
            UnknownName: The recording has no such camera.
            StorageError: The disk is full; what was written before is kept in the journal.
        """
        current = self._under_way()
        if camera not in current.videos:
            raise UnknownName("camera", camera, current.videos, "The recorder was given a picture of it.")
        for picture in frames.image:
            current.videos[camera].check(picture)
        for t, picture in zip(frames.t, frames.image, strict=True):
            with self._storage():
                # The time goes first: whatever cuts this short, there are never pictures without a time.
                current.times[camera].append(np.array([[t]], np.float64))
                current.videos[camera].write(picture)
                self._syncer.raise_error()

    def finish_recording(self, checks: Checks = (), markers: Mapping[str, float] | None = None) -> Recording:
        """Ends the recording under way.

        Args:
            checks: What was found wrong or right with it, or a function that looks at the finished recording.
            markers: Named moments [s on the robot's clock].

        Returns:
            The recording, readable; its files are still in the journal.
        """
        current = self._under_way()
        with self._storage():
            self._syncer.watch([])
            current.close()
            recording = seal(current.recording, checks, markers or {})
        self._current = None
        return recording

    def close(self) -> Capture:
        """Ends the recording under way, writes the Capture and removes the journal.

        Raises:
            InputError: Nothing was recorded.
            StorageError: The disk is full; the journal is kept, `open_capture` goes on from it.
        """
        if self.capture is not None:
            return self.capture
        if self._failed:
            raise StorageError(
                f"the disk failed while {self.path} was recorded: see `dexloop capture show {self.path}`"
            )
        if self._current is not None:
            self.finish_recording()
        self._syncer.close()
        with self._storage():
            self.capture = finalise(self.path, self._journal, replace=self._replace, seed=self._seed)
        return self.capture

    def interrupt(self, reason: str) -> None:
        """Ends the recording under way as far as it came, with a status that says why ("stopped by the user")."""
        if self._current is not None:
            self.finish_recording(lambda recording: (interrupted(recording, reason),))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._failed:
            return
        if error is None:
            self.close()
        else:
            self._close_after(error)

    def _close_after(self, error: BaseException) -> None:
        """Keeps what there is. The error that ended the block goes on its way, so nothing may be raised here."""
        what = "stopped by the user" if isinstance(error, KeyboardInterrupt) else f"stopped by {type(error).__name__}"
        try:
            self.interrupt(what)
            if self._names:
                self.close()
            else:
                self._let_go()
                shutil.rmtree(self._journal.folder, ignore_errors=True)
        except Exception as later:
            self._let_go()
            error.add_note(f"what was recorded stays in {self._journal.folder}: {later}")

    def _let_go(self) -> None:
        self._syncer.close()
        if self._current is not None:
            self._current.abandon()
            self._current = None
        self._journal.release()

    def _under_way(self) -> _Open:
        if self._current is None:
            raise InputError("nothing is being recorded: call start() first")
        return self._current

    @contextlib.contextmanager
    def _storage(self) -> Iterator[None]:
        try:
            with storage_errors(self.path):
                yield
        except StorageError as error:
            self._failed = True
            self._let_go()
            raise StorageError(
                f"{str(error).partition(':')[0]}: recording into {self.path} stopped. What was recorded is kept in "
                f"{self._journal.folder}, earlier artefacts are intact; free some space, then "
                f"`dexloop capture show {self.path}`"
            ) from error


def open_capture(path: str | Path) -> Capture:
    """Opens a Capture; one whose recorder was killed is first made of the journal that it left.

    Raises:
        InputError: There is neither, or another process is still recording.
        StorageError: The disk is too full to write the Capture; the journal is kept.
    """
    path = Path(path)
    folder = journals.journal_path(path)
    if (path / HEADER).is_file():
        capture = Capture.open(path)
        # The recorder was killed between the last two steps: the Capture is in place, its journal not yet away.
        if folder.is_dir() and Journal.open(path).id == capture.header.meta.get("journal"):
            shutil.rmtree(folder, ignore_errors=True)
        return capture
    if not folder.is_dir():
        return Capture.open(path)
    journal = Journal.open(path)
    if (pid := journal.owner()) is not None:
        raise InputError(f"{path} is still being recorded by process {pid}: wait for it to end, or stop it")
    with storage_errors(path):
        for recording in journal.recordings():
            if not (recording / journals.FINISHED).exists():
                begun = read_recording(recording, journals.RECORDING)
                seal(begun, lambda r: (interrupted(r, "cut off when its process ended"),), {})
        return finalise(path, journal, replace=False, seed=None)


class _Open:
    """A recording that is being written."""

    def __init__(self, recording: Recording):
        self.recording = recording
        folder = recording.folder
        folder.mkdir()
        self.rows: dict[str, RowFile] = {}
        self.times: dict[str, RowFile] = {}
        self.videos: dict[str, VideoWriter] = {}
        try:
            self._make(recording, folder)
        except BaseException:
            self.abandon()
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _make(self, recording: Recording, folder: Path) -> None:
        write_text(folder / journals.RECORDING, plain_json(recording.to_json()))
        raw = folder / "raw"
        for name, info in recording.streams.items():
            self.rows[name] = RowFile(raw / f"{name}.f64", 1 + len(info.channels))
        for name, info in recording.videos.items():
            self.times[name] = RowFile(raw / f"{name}.times.f64", 1)
            self.videos[name] = VideoWriter(video_file(folder, name), info.camera.width, info.camera.height, info.fps)

    @property
    def files(self) -> list[Any]:
        """Everything that can be forced onto the disk."""
        return [*self.rows.values(), *self.times.values(), *self.videos.values()]

    def close(self) -> None:
        for file in self.files:
            file.close()

    def abandon(self) -> None:
        for file in [*self.rows.values(), *self.times.values()]:
            file.close()
        for video in self.videos.values():
            video.abandon()
