"""Artefacts on disk: a folder with `artifact.json` that exists whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from dexloop.core.errors import InputError, StorageError
from dexloop.core.provenance import provenance
from dexloop.core.status import Level, Status

HEADER = "artifact.json"
OK = Status(Level.OK, "ok", "complete")


@dataclass(frozen=True)
class Header:
    """The contents of `artifact.json`."""

    kind: str
    version: int
    """Of the schema; a reader refuses a newer one than it knows."""
    hash: str
    """SHA-256 over the names and hashes of all files and over `meta`."""
    files: Mapping[str, str]
    """SHA-256 of each file by its path in the folder."""
    meta: Mapping[str, Any]
    """What the artefact says of itself, in plain JSON."""
    status: Status
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the artefacts it was made from."""
    seed: int | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Versions, machine, time."""


@dataclass(frozen=True)
class Artifact:
    """A finished result: frozen header plus files in `path`. Subclasses name their kind and schema version."""

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 1
    required: ClassVar[tuple[str, ...]] = ()
    """Patterns of files without which it is not whole."""

    path: Path
    header: Header

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Opens an artefact that `writing` finished.

        Raises:
            InputError: There is none, it is of another kind, or it was written by a newer dexloop.
        """
        path = Path(path)
        file = path / HEADER
        if not file.is_file():
            raise InputError(f"{path} is no {cls.kind or 'artefact'}: it has no {HEADER}")
        try:
            raw = json.loads(file.read_text())
            header = Header(**{**raw, "version": int(raw["version"]), "status": Status.from_json(raw["status"])})
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file} is damaged ({error}); make the artefact again") from error
        if cls.kind and header.kind != cls.kind:
            raise InputError(f"{path} is a {header.kind}, not a {cls.kind}")
        if cls.kind and header.version > cls.version:
            raise InputError(
                f"{path} was written in version {header.version} of the {cls.kind} format, this dexloop reads "
                f"up to {cls.version}: upgrade dexloop"
            )
        return cls(path, header)

    @property
    def hash(self) -> str:
        """The content hash; two artefacts with the same hash hold the same data."""
        return self.header.hash

    @property
    def status(self) -> Status:
        """How good it is and what to do next."""
        return self.header.status

    def verify(self) -> None:
        """Checks every file, and what the header says, against the hashes.

        Raises:
            InputError: A file is missing, was added or was changed.
        """
        now = _hash_files(self.path)
        wrong = sorted(k for k in now.keys() | self.header.files.keys() if now.get(k) != self.header.files.get(k))
        if _hash_content(self.header.files, self.header.meta) != self.header.hash:
            wrong.append(HEADER)
        if wrong:
            raise InputError(f"{self.path} was changed after it was written: {', '.join(wrong)}")


@dataclass
class Draft:
    """An artefact being written: put files into `folder`, values into `meta`, and set `status`."""

    folder: Path
    meta: dict[str, Any] = field(default_factory=dict)
    status: Status = OK


@contextlib.contextmanager
def writing(
    path: str | Path,
    kind: type[Artifact],
    *,
    inputs: Mapping[str, Artifact] | None = None,
    seed: int | None = None,
    replace: bool = False,
) -> Iterator[Draft]:
    """Writes an artefact into a temporary folder beside `path` and renames it when the block ends without error.

    Args:
        path: Where the artefact shall be; its parents are made.
        kind: The artefact's class.
        inputs: The artefacts it is made from, by role.
        seed: Of the random numbers it was made with.
        replace: Put it in the place of one that is there; otherwise that is an error.

    Raises:
        InputError: `path` exists and `replace` is false, or it is something else than an artefact of this kind; or a
            file that the kind requires was not written.
        StorageError: The disk is full or not writable; nothing that was there has changed.
    """
    path = Path(path)
    with storage_errors(path):
        _sweep(path)
        require_free(path, kind, replace=replace)
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = _beside(path, "writing")
        folder.mkdir()
        try:
            draft = Draft(folder)
            yield draft
            _seal(draft, kind, inputs or {}, seed)
            _put_in_place(folder, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def require_free(path: Path, kind: type[Artifact], *, replace: bool) -> None:
    """Checks that an artefact may be written to a path.

    Raises:
        InputError: Something is there, and it is not an artefact of the kind that `replace` may take the place of.
    """
    with storage_errors(path):
        if not path.exists() and not path.is_symlink():
            return
    if not replace:
        raise InputError(f"{path} exists already: choose another place, or pass --replace")
    try:
        kind.open(path)
    except InputError as error:
        raise InputError(f"{path} is no {kind.kind}: only one may be replaced, choose another place") from error


def _seal(draft: Draft, kind: type[Artifact], inputs: Mapping[str, Artifact], seed: int | None) -> None:
    files = _hash_files(draft.folder)
    for pattern in kind.required:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in files):
            raise InputError(f"a {kind.kind} needs a file {pattern}, and none was written")
    meta = json.loads(json.dumps(draft.meta, default=_plain, allow_nan=False))
    header = {
        "kind": kind.kind,
        "version": kind.version,
        "hash": _hash_content(files, meta),
        "files": files,
        "meta": meta,
        "status": draft.status.to_json(),
        "inputs": {role: artifact.hash for role, artifact in inputs.items()},
        "seed": seed,
        "provenance": provenance(),
    }
    write_text(draft.folder / HEADER, json.dumps(header, indent=1))


def _put_in_place(folder: Path, path: Path) -> None:
    if path.exists():
        old = _beside(path, "replaced")
        path.rename(old)
        try:
            folder.rename(path)
        except OSError:
            old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        folder.rename(path)


def _beside(path: Path, deed: str) -> Path:
    return path.parent / f".{path.name}.{deed}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _sweep(path: Path) -> None:
    """Removes what a killed process left of an earlier try at the same path, and puts back what it had moved away."""
    for deed in ("replaced", "writing"):
        for left in path.parent.glob(f".{glob.escape(path.name)}.{deed}-*"):
            pid = left.name.rsplit("-", 2)[1]
            if not pid.isdigit() or _alive(int(pid)):
                continue
            if deed == "replaced" and not path.exists():  # killed between the two renames of a replacement
                left.rename(path)
            else:
                shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _hash_files(folder: Path) -> dict[str, str]:
    hashes = {}
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = file.relative_to(folder).as_posix()
        if name != HEADER:
            with file.open("rb") as stream:
                hashes[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return hashes


def _hash_content(files: Mapping[str, str], meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([files, meta], sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Turns numpy values, paths and statuses into plain JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Path):
        return value.as_posix()
    if hasattr(value, "to_json"):
        return value.to_json()
    raise TypeError(f"{type(value).__name__} has no place in {HEADER}")


def write_text(file: Path, text: str) -> None:
    """Writes a text file whole or not at all: temporary file, flush to disk, rename."""
    part = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}")
    try:
        with part.open("w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def save_arrays(file: Path, **arrays: np.ndarray) -> None:
    """Writes a compressed NPZ file. Objects are refused: nothing here is ever pickled."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"{name} holds Python objects, which an NPZ file here may not")
    np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def load_arrays(file: Path) -> dict[str, np.ndarray]:
    """Reads an NPZ file.

    Raises:
        InputError: It is missing, damaged, or holds pickled objects.
    """
    try:
        # Opened here, because numpy leaves the file open when it turns out to be damaged.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except (OSError, ValueError, EOFError, KeyError, TypeError) as error:  # TypeError: an NPY, not an NPZ file
        raise InputError(f"{file} cannot be read: {error}") from error
    except Exception as error:  # zipfile raises its own family for damaged archives
        if type(error).__module__ in ("zipfile", "zlib"):
            raise InputError(f"{file} is damaged: {error}") from error
        raise


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns what a disk can refuse (it is full, read-only, the name is too long) into one clear `StorageError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"the disk is full: {path} was not written, earlier artefacts are intact; free some space and go on"
            ) from error
        if isinstance(error, ConnectionError | TimeoutError):  # a robot's affair, not the disk's
            raise
        where = f" ({error.filename})" if error.filename else ""
        what = error.strerror or type(error).__name__
        raise StorageError(f"{path} cannot be written: {what}{where}; choose another place") from error
