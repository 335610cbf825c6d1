"""The journal: where a recorder writes while it records, so that nothing but the last moment can be lost.

Beside the Capture `NAME` that shall come to be lies the folder `NAME.recording` with

    journal.json                an id
    owner.json                  who records: the process and when that process started; gone once it has let go
    000/recording.json          the first recording as far as it is known beforehand, in the JSON of `Recording`
    000/raw/STREAM.f64          rows of float64, `t` and then the channels, appended as they come
    000/raw/CAMERA.times.f64    the time of each frame
    000/videos/CAMERA.mp4       fragmented MP4
    000/finished.json           the same with checks and markers, once all its NPZ files are written
    001/...                     the next recording

Rows and fragments go to the operating system at once, so a killed process loses none of them, and are forced onto the
disk twice a second, so a power cut loses no more than that.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core.artifact import write_text
from dexloop.core.errors import InputError

_HEADER = "journal.json"
_OWNER = "owner.json"
RECORDING = "recording.json"
FINISHED = "finished.json"
SYNC_S = 0.5
"""How often what was written is forced onto the disk [s]."""


def journal_path(path: Path) -> Path:
    """Returns the journal's folder of the Capture at `path`."""
    return path.with_name(f"{path.name}.recording")


@dataclass(frozen=True)
class Journal:
    """A journal on disk."""

    folder: Path
    id: str

    @staticmethod
    def create(path: Path) -> Journal:
        """Starts the journal of a Capture, owned by this process.

        Raises:
            InputError: There is one already: another process records there, or one was killed.
        """
        folder = journal_path(path)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            raise InputError(
                f"{folder} is there already: another recording into {path} is going on or was interrupted; "
                f"`dexloop capture show {path}` saves what there is, or delete that folder"
            ) from None
        journal = Journal(folder, uuid.uuid4().hex)
        pid = os.getpid()
        write_text(folder / _OWNER, json.dumps({"pid": pid, "started": _process_start(pid)}))
        write_text(folder / _HEADER, json.dumps({"version": 1, "id": journal.id}))
        return journal

    @staticmethod
    def open(path: Path) -> Journal:
        """Opens the journal of a Capture.

        Raises:
            InputError: It is damaged or was written by a newer dexloop.
        """
        folder = journal_path(path)
        try:
            data = json.loads((folder / _HEADER).read_text())
            version, found = data["version"], Journal(folder, data["id"])
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{folder} is damaged ({error}): no recording can be recovered from it") from error
        if version > 1:
            raise InputError(f"{folder} was written by a newer dexloop: upgrade dexloop")
        return found

    def release(self) -> None:
        """Says that nobody records here any more, though this process lives on. Needs no room on the disk."""
        (self.folder / _OWNER).unlink(missing_ok=True)

    def owner(self) -> int | None:
        """Returns the number of the process that still records, or None."""
        data = read_json(self.folder / _OWNER)
        if data is None:
            return None
        try:
            os.kill(data["pid"], 0)
        except ProcessLookupError:
            return None
        except OSError:
            return data["pid"]
        # Numbers of processes are used again: a later process is told by when it started.
        return data["pid"] if _process_start(data["pid"]) == data["started"] else None

    def recordings(self) -> list[Path]:
        """Returns the folders of the recordings in the order they were begun."""
        return sorted(p.parent for p in self.folder.glob(f"[0-9][0-9][0-9]/{RECORDING}"))


def _process_start(pid: int) -> str:
    """Returns the kernel's start time of a process, or nothing where the system does not tell."""
    try:
        # The second field is the command in brackets and may hold spaces; the start time is the 20th behind it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


class RowFile:
    """Rows of float64 that are appended to a file."""

    def __init__(self, path: Path, columns: int):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.columns, self.rows = columns, 0
        self.last = float("nan")
        """The first column of the last row: its time [s]."""
        self._file = io.FileIO(path, "w")

    def append(self, rows: Float[np.ndarray, "n c"]) -> None:
        """Hands the rows to the operating system."""
        data = memoryview(np.ascontiguousarray(rows, np.float64).tobytes())
        while len(data):
            data = data[self._file.write(data) :]
        if len(rows):
            self.rows, self.last = self.rows + len(rows), float(rows[-1, 0])

    def sync(self) -> None:
        """Forces what was appended onto the disk."""
        if not self._file.closed:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        self._file.close()


def read_rows(path: Path, columns: int) -> Float[np.ndarray, "n c"]:
    """Reads what `RowFile` appended; the beginning of a row that was cut off is left out."""
    if not path.is_file():
        return np.zeros((0, columns))
    whole = path.stat().st_size // (8 * columns)
    return np.fromfile(path, np.float64, count=whole * columns).reshape(whole, columns)


class Syncer:
    """Forces files onto the disk twice a second, on a thread of its own: a robot must not wait for a disk."""

    def __init__(self):
        self._files: list[Any] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="dexloop-recorder-sync", daemon=True)
        self._thread.start()

    def watch(self, files: list[Any]) -> None:
        """Sets the files to force onto the disk from now on, each with `sync()`."""
        with self._lock:
            self._files = files

    def raise_error(self) -> None:
        """Raises what the disk answered to the last attempt."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(SYNC_S):
            with self._lock:
                try:
                    for file in self._files:
                        file.sync()
                except OSError as error:
                    self._error = error
                except ValueError:  # closed between the question and the call
                    continue


def read_json(file: Path) -> dict[str, Any] | None:
    """Reads a JSON file of the journal, or None if it is not there or not whole."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(file.read_text())
    return None


def plain_json(data: Any) -> str:
    """Returns JSON of a recording's description, whose mappings may hold numpy values and paths."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
        if isinstance(value, Path):
            return value.as_posix()
        raise TypeError(f"{type(value).__name__} has no place in a recording's description")

    return json.dumps(data, default=plain, allow_nan=False)
