"""Artefacts exist whole or not at all, and say when they were touched."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dexloop.core.artifact import (
    HEADER,
    Artifact,
    load_arrays,
    save_arrays,
    storage_errors,
    write_text,
    writing,
)
from dexloop.core.artifacts import Belief, Twin
from dexloop.core.errors import InputError, StorageError
from dexloop.core.status import Level, Status


def make(path: Path, text: str = "hello", *, meta: dict[str, Any] | None = None, **options: Any) -> Twin:
    with writing(path, Twin, **options) as draft:
        (draft.folder / "assets").mkdir()
        (draft.folder / "scene.xml").write_text(text)
        (draft.folder / "assets" / "mesh.obj").write_text("v 0 0 0\n")
        draft.meta.update(meta or {"size": 1.5})
    return Twin.open(path)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_what_was_written_is_read(tmp_path: Path) -> None:
    made_from = make(tmp_path / "first")
    path = tmp_path / "deep" / "below" / "twin"
    with writing(path, Twin, inputs={"capture": made_from}, seed=7) as draft:
        (draft.folder / "scene.xml").write_text("<mujoco/>")
        draft.meta["mean"] = np.array([1.0, 2.5])
        draft.meta["count"] = np.int64(3)
        draft.meta["file"] = Path("assets/mesh.obj")
        draft.status = Status(Level.WARN, "coarse", "the mesh is coarse", "Scan again.")
    twin = Twin.open(path)
    assert (path / "scene.xml").read_text() == "<mujoco/>"
    assert twin.header.meta == {"mean": [1.0, 2.5], "count": 3, "file": "assets/mesh.obj"}
    assert twin.status == Status(Level.WARN, "coarse", "the mesh is coarse", "Scan again.")
    assert (twin.header.kind, twin.header.version, twin.header.seed) == ("twin", Twin.version, 7)
    assert twin.header.inputs == {"capture": made_from.hash}
    assert list(twin.header.files) == ["scene.xml"]
    assert twin.header.provenance["versions"]["numpy"] == np.__version__
    assert names(path.parent) == ["twin"]
    twin.verify()


def test_the_hash_is_of_the_content_only(tmp_path: Path) -> None:
    first = make(tmp_path / "a")
    assert make(tmp_path / "b", seed=3).hash == first.hash
    assert make(tmp_path / "c", "other").hash != first.hash
    assert make(tmp_path / "d", meta={"size": 1.6}).hash != first.hash


def fail_half_way(path: Path, **options: Any) -> None:
    with writing(path, Twin, **options) as draft:
        (draft.folder / "scene.xml").write_text("half")
        raise RuntimeError("half way")


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way(tmp_path / "twin")
    assert names(tmp_path) == []


def test_an_exception_while_replacing_leaves_the_earlier_one(tmp_path: Path) -> None:
    before = make(tmp_path / "twin")
    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way(tmp_path / "twin", replace=True)
    after = Twin.open(tmp_path / "twin")
    after.verify()
    assert after.hash == before.hash
    assert names(tmp_path) == ["twin"]


def test_it_does_not_overwrite_unless_told_to(tmp_path: Path) -> None:
    make(tmp_path / "twin", "one")
    with pytest.raises(InputError, match=r"exists already.*--replace"):
        make(tmp_path / "twin", "two")
    assert (tmp_path / "twin" / "scene.xml").read_text() == "one"
    make(tmp_path / "twin", "two", replace=True)
    assert (tmp_path / "twin" / "scene.xml").read_text() == "two"
    assert names(tmp_path) == ["twin"]


def test_replacing_where_there_is_nothing_is_fine(tmp_path: Path) -> None:
    make(tmp_path / "twin", replace=True).verify()


def test_a_failed_swap_puts_the_earlier_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "twin", "one")
    rename = Path.rename

    def broken(self: Path, target: Path) -> Path:
        if ".writing-" in self.name:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(StorageError, match="Input/output"):
        make(tmp_path / "twin", "two", replace=True)
    monkeypatch.undo()
    assert (tmp_path / "twin" / "scene.xml").read_text() == "one"
    assert names(tmp_path) == ["twin"]


def killed(script: str, *arguments: Path) -> None:
    """Runs a Python script that prints a line when it is ready, then kills it without warning."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


WRITE_AND_HANG = """
    import sys, time
    from dexloop.core.artifact import writing
    from dexloop.core.artifacts import Twin
    with writing(sys.argv[1], Twin, replace=True) as draft:
        (draft.folder / "scene.xml").write_text("half")
        print("ready", flush=True)
        time.sleep(60)
"""

REPLACE_AND_HANG = """
    import sys, time
    from pathlib import Path
    from dexloop.core.artifact import writing
    from dexloop.core.artifacts import Twin
    rename = Path.rename
    def slow(self, target):
        if ".writing-" in self.name:
            print("ready", flush=True)
            time.sleep(60)
        return rename(self, target)
    Path.rename = slow
    with writing(sys.argv[1], Twin, replace=True) as draft:
        (draft.folder / "scene.xml").write_text("new")
"""


def test_a_killed_process_leaves_no_artefact_and_the_next_sweeps(tmp_path: Path) -> None:
    path = tmp_path / "twin"
    killed(WRITE_AND_HANG, path)
    assert not path.exists()
    assert len(names(tmp_path)) == 1, "the killed process should have left its draft"
    with pytest.raises(InputError, match="is no twin"):
        Twin.open(path)
    make(path).verify()
    assert names(tmp_path) == ["twin"]


def test_a_process_killed_while_replacing_leaves_the_earlier_one(tmp_path: Path) -> None:
    before = make(tmp_path / "twin")
    killed(WRITE_AND_HANG, tmp_path / "twin")
    after = Twin.open(tmp_path / "twin")
    after.verify()
    assert after.hash == before.hash


def test_a_process_killed_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    make(tmp_path / "twin", "one")
    killed(REPLACE_AND_HANG, tmp_path / "twin")
    assert not (tmp_path / "twin").exists()
    with pytest.raises(InputError, match="exists already"):  # the next write finds the earlier one put back
        make(tmp_path / "twin", "two")
    assert (tmp_path / "twin" / "scene.xml").read_text() == "one"
    assert names(tmp_path) == ["twin"]


def test_a_living_process_keeps_its_draft(tmp_path: Path) -> None:
    with writing(tmp_path / "twin", Twin) as slow:
        (slow.folder / "scene.xml").write_text("slow")
        make(tmp_path / "other")
        with writing(tmp_path / "twin", Twin, replace=True) as fast:
            (fast.folder / "scene.xml").write_text("fast")
        assert slow.folder.exists()


def test_a_name_with_wildcards_sweeps_its_own_leftovers_only(tmp_path: Path) -> None:
    gone = multiprocessing.get_context("spawn").Process()
    gone.start()
    gone.join()
    left, other = (tmp_path / f".{name}.writing-{gone.pid}-00000000" for name in ("run[1]", "run1"))
    left.mkdir()
    other.mkdir()
    make(tmp_path / "run[1]")
    assert not left.exists()
    assert other.exists()


@pytest.mark.parametrize(
    ("touch", "named"),
    [
        (lambda p: (p / "scene.xml").write_text("changed"), "scene.xml"),
        (lambda p: (p / "assets" / "mesh.obj").unlink(), "assets/mesh.obj"),
        (lambda p: (p / "extra.txt").write_text(""), "extra.txt"),
        (lambda p: (p / HEADER).write_text((p / HEADER).read_text().replace("1.5", "2.5")), HEADER),
    ],
    ids=["changed", "missing", "added", "meta"],
)
def test_verify_finds_what_was_touched(tmp_path: Path, touch: Any, named: str) -> None:
    path = make(tmp_path / "twin").path
    touch(path)
    with pytest.raises(InputError) as caught:
        Twin.open(path).verify()
    assert str(caught.value).endswith(f"was changed after it was written: {named}")


def edit(path: Path, **changes: Any) -> None:
    header = json.loads((path / HEADER).read_text())
    (path / HEADER).write_text(json.dumps({**header, **changes}))


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "twin").path
    edit(path, version=Twin.version + 1)
    with pytest.raises(InputError, match="upgrade dexloop"):
        Twin.open(path)


def test_an_older_version_is_read(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class NewerTwin(Twin):
        version: ClassVar[int] = 2

    assert NewerTwin.open(make(tmp_path / "twin").path).header.version == 1


def test_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "twin").path
    with pytest.raises(InputError, match="is a twin, not a belief"):
        Belief.open(path)
    assert Artifact.open(path).header.kind == "twin"  # any kind will do for the base class


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", "null", '{"kind": "twin"}', "\x00\x01"],
    ids=["empty", "cut", "list", "bare", "null", "partial", "binary"],
)
def test_a_damaged_header_is_refused(tmp_path: Path, text: str) -> None:
    path = make(tmp_path / "twin").path
    (path / HEADER).write_text(text)
    with pytest.raises(InputError, match=r"artifact\.json is damaged"):
        Twin.open(path)


@pytest.mark.parametrize(
    "changes",
    [{"version": "two"}, {"status": "ok"}, {"status": {"level": "great", "code": "", "message": ""}}, {"more": 1}],
)
def test_a_header_with_wrong_values_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = make(tmp_path / "twin").path
    edit(path, **changes)
    with pytest.raises(InputError, match=r"artifact\.json is damaged"):
        Twin.open(path)


def test_no_artefact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no twin: it has no artifact\.json"):
        Twin.open(tmp_path)
    with pytest.raises(InputError, match="is no twin"):
        Twin.open(tmp_path / "nowhere")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.nan, np.array([1.0, np.nan]), [{"deep": np.nan}]])
def test_nan_has_no_place_in_meta(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        make(tmp_path / "twin", meta={"mass": value})
    assert names(tmp_path) == []


def test_an_object_has_no_place_in_meta(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"set has no place in artifact\.json"):
        make(tmp_path / "twin", meta={"names": {1, 2}})
    assert names(tmp_path) == []


def test_arrays_round_trip(tmp_path: Path) -> None:
    arrays = {
        "t": np.linspace(0, 1, 5),
        "image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
        "empty": np.zeros((0, 3)),
        "names": np.array(["a", "bc"]),
    }
    save_arrays(tmp_path / "a.npz", **arrays)
    again = load_arrays(tmp_path / "a.npz")
    assert again.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)
        assert again[name].dtype == array.dtype


@pytest.mark.parametrize(
    "array",
    [np.array([{}, None], dtype=object), np.zeros(1, dtype=[("a", float), ("b", object)])],
    ids=["objects", "a field of objects"],
)
def test_object_arrays_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(TypeError, match="demo holds Python objects"):
        save_arrays(tmp_path / "a.npz", demo=array)
    assert names(tmp_path) == []


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    """Unpickling runs code: this one would make a file."""

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "owned",))

    np.savez(tmp_path / "a.npz", x=np.array([Evil()], dtype=object))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"a\.npz cannot be read"):
        load_arrays(tmp_path / "a.npz")
    assert not (tmp_path / "owned").exists()


def damage(file: Path, how: str) -> None:
    data = file.read_bytes()
    match how:
        case "missing":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case "text":
            file.write_text("t,x\n0,1\n")
        case "cut":
            file.write_bytes(data[: len(data) // 2])
        case "flipped":  # inside the compressed data
            file.write_bytes(data[:80] + bytes(b ^ 0xFF for b in data[80:120]) + data[120:])
        case "npy":
            with file.open("wb") as stream:
                np.save(stream, np.zeros(3))


@pytest.mark.parametrize("how", ["missing", "empty", "text", "cut", "flipped", "npy"])
def test_damaged_arrays_are_refused(tmp_path: Path, how: str) -> None:
    file = tmp_path / "a.npz"
    save_arrays(file, x=np.random.default_rng(0).normal(size=100))
    damage(file, how)
    with pytest.raises(InputError, match=r"a\.npz"):
        load_arrays(file)


def test_text_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.json"
    write_text(file, "one")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_text(file, "two")
    assert file.read_text() == "one"
    assert names(tmp_path) == ["run.json"]


@pytest.mark.parametrize(
    ("number", "text"), [(28, "the disk is full"), (122, "the disk is full"), (30, "cannot be"), (13, "cannot be")]
)
def test_storage_errors_are_translated(tmp_path: Path, number: int, text: str) -> None:
    with pytest.raises(StorageError, match=text), storage_errors(tmp_path / "twin"):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("error", [ConnectionResetError("robot"), TimeoutError("robot"), ValueError("x")])
def test_other_errors_pass_through(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)), storage_errors(tmp_path):
        raise error


@pytest.mark.parametrize("place", ["file/x", "n" * 300])
def test_an_impossible_place_is_a_clear_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        make(tmp_path / place)


@pytest.mark.parametrize("kind", ["file", "folder", "other artefact"])
def test_only_an_artefact_of_its_kind_is_replaced(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("precious")
    elif kind == "folder":
        place.mkdir()
        (place / "precious.txt").write_text("precious")
    else:
        with writing(place, Belief) as draft:
            (draft.folder / "posterior.npz").write_bytes(b"precious")
    before = sorted((p.relative_to(tmp_path), p.is_file() and p.read_bytes()) for p in tmp_path.rglob("*"))
    with pytest.raises(InputError, match="is no twin"):
        make(place, replace=True)
    assert before == sorted((p.relative_to(tmp_path), p.is_file() and p.read_bytes()) for p in tmp_path.rglob("*"))


def test_an_artefact_is_not_written_without_its_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a twin needs a file scene\.xml"), writing(tmp_path / "twin", Twin):
        pass
    assert names(tmp_path) == []


def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mounts a small tmpfs, which only root may."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], capture_output=True, check=False)
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "disk", "size=256k")


def fill(path: Path, writer: str) -> None:
    with writing(path, Twin) as draft:
        (draft.folder / "scene.xml").write_text("hello")
        match writer:
            case "bytes":
                (draft.folder / "mesh.obj").write_bytes(b"0" * 1_000_000)
            case "arrays":
                noise = np.random.default_rng(0).integers(0, 255, 1_000_000, dtype=np.uint8)
                save_arrays(draft.folder / "splats.npz", x=noise)
            case "header":
                draft.meta["long"] = "x" * 1_000_000


@pytest.mark.parametrize("writer", ["bytes", "arrays", "header"])
def test_a_full_disk_is_a_clear_error_and_earlier_artefacts_are_intact(small_disk: Path, writer: str) -> None:
    before = make(small_disk / "before")
    with pytest.raises(StorageError, match="the disk is full"):
        fill(small_disk / "twin", writer)
    before.verify()
    assert names(small_disk) == ["before"]
    make(small_disk / "after").verify()  # the space was given back


def test_a_read_only_disk_is_a_clear_error(small_disk: Path) -> None:
    before = make(small_disk / "before")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match="cannot be written: Read-only file system"):
        make(small_disk / "twin")
    with pytest.raises(StorageError, match="cannot be written"):
        make(small_disk / "before", "new", replace=True)
    before.verify()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into any folder; the read-only disk stands in for it")
def test_a_read_only_folder_is_a_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(StorageError, match="cannot be written: Permission denied"):
        make(folder / "twin")
