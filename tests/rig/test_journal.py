from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.rig.journal import Journal, RowFile, Syncer, journal_path, plain_json, read_rows


def test_rows_survive_a_torn_end(tmp_path: Path):
    rows = np.random.default_rng(0).normal(size=(7, 3))
    file = RowFile(tmp_path / "raw" / "a.f64", 3)
    file.append(rows[:4])
    file.append(rows[4:])
    assert np.array_equal(read_rows(tmp_path / "raw" / "a.f64", 3), rows)  # before it is closed
    assert (file.rows, file.last) == (7, rows[-1, 0])
    file.close()
    for torn in (1, 8, 23):
        os.truncate(tmp_path / "raw" / "a.f64", 7 * 24 - torn)
        assert np.array_equal(read_rows(tmp_path / "raw" / "a.f64", 3), rows[:6])
    assert read_rows(tmp_path / "none.f64", 3).shape == (0, 3)


def test_the_owner_is_known_while_it_lives(tmp_path: Path):
    journal = Journal.create(tmp_path / "c")
    assert journal.folder == journal_path(tmp_path / "c") == tmp_path / "c.recording"
    assert Journal.open(tmp_path / "c") == journal
    assert journal.owner() == os.getpid()
    with pytest.raises(InputError, match="is there already"):
        Journal.create(tmp_path / "c")
    journal.release()
    assert journal.owner() is None


def test_a_dead_owner_and_a_later_process_with_its_number(tmp_path: Path):
    journal = Journal.create(tmp_path / "c")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (journal.folder / "owner.json").write_text(json.dumps({"pid": gone.pid, "started": "1"}))
    assert journal.owner() is None
    (journal.folder / "owner.json").write_text(json.dumps({"pid": os.getpid(), "started": "1"}))
    assert journal.owner() is None


@pytest.mark.parametrize(("text", "words"), [("{", "damaged"), ('{"version": 9, "id": "x"}', "upgrade dexloop")])
def test_a_journal_that_cannot_be_read(tmp_path: Path, text: str, words: str):
    journal = Journal.create(tmp_path / "c")
    (journal.folder / "journal.json").write_text(text)
    with pytest.raises(InputError, match=words):
        Journal.open(tmp_path / "c")


def test_an_error_of_the_disk_is_handed_on(monkeypatch: pytest.MonkeyPatch):
    class Broken:
        def sync(self) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("dexloop.rig.journal.SYNC_S", 0.01)
    syncer = Syncer()
    syncer.raise_error()
    syncer.watch([Broken()])
    for _ in range(500):
        if syncer._error is not None:
            break
        syncer._stop.wait(0.01)
    with pytest.raises(OSError, match="No space left"):
        syncer.raise_error()
    syncer.close()


def test_descriptions_may_hold_numpy(tmp_path: Path):
    text = plain_json({"T": np.eye(2), "n": np.int64(3), "path": tmp_path / "x"})
    assert json.loads(text) == {"T": [[1, 0], [0, 1]], "n": 3, "path": (tmp_path / "x").as_posix()}
    with pytest.raises(TypeError, match="object has no place"):
        plain_json({"x": object()})
