from __future__ import annotations

from pathlib import Path

import pytest

from dexloop.audit.replaying import _find
from dexloop.core.artifact import Artifact, write_text, writing
from dexloop.core.artifacts import Episodes
from dexloop.core.errors import InputError


def episodes(path: Path, says: str) -> Artifact:
    with writing(path, Episodes) as draft:
        write_text(draft.folder / "trials.json", says)
    return Episodes.open(path)


def test_what_a_case_of_any_round_speaks_of_is_found_from_every_ledger(tmp_path: Path):
    """Places are told from the ledger in which a case was new, and its line is copied unchanged into later ones."""
    run = tmp_path / "run"
    rounds = [run / "round_0", run, run / "round_2"]
    made = [episodes(folder / "7_deploy", f"[{k}]") for k, folder in enumerate(rounds)]
    for folder in rounds:
        (folder / "8_audit").mkdir()
    for ledger in (folder / "8_audit" for folder in rounds):
        for known in made:
            found = _find(ledger, Episodes, {"path": "../7_deploy", "hash": known.hash}, "the episodes of case 1")
            assert found.path == known.path.resolve()
    with pytest.raises(InputError, match="is not the episodes of case 1: it was made anew"):
        _find(run / "8_audit", Episodes, {"path": "../7_deploy", "hash": "0"}, "the episodes of case 1")
    with pytest.raises(InputError, match="the episodes of case 1, is not there: keep a run's folders together"):
        _find(run / "8_audit", Episodes, {"path": "../9_deploy", "hash": "0"}, "the episodes of case 1")
