"""An outcome is kept as long as the code that it came from is the same, and no longer."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from benchmarks import kept


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package of two modules and a bystander, where results are kept beside it."""
    folder = tmp_path / "trialpackage"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "inner.py").write_text("FACTOR = 2\n")
    (folder / "aside.py").write_text("")
    (folder / "work.py").write_text(
        "from trialpackage.inner import FACTOR\ncalls = []\n"
        "def double(x):\n    calls.append(x)\n    return {'value': FACTOR * x}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(kept, "_OURS", ("trialpackage",))
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "kept")
    kept._code.cache_clear()
    yield folder
    kept._code.cache_clear()


def test_an_outcome_is_kept_until_code_that_it_ran_changes(ours: Path):
    work = importlib.import_module("trialpackage.work")
    assert kept.kept(work.double, 3) == kept.kept(work.double, 3) == {"value": 6}
    assert work.calls == [3]
    kept.kept(work.double, 4)
    assert work.calls == [3, 4]
    (ours / "aside.py").write_text("ANYTHING = 1\n")
    kept._code.cache_clear()
    kept.kept(work.double, 3)
    assert work.calls == [3, 4]
    (ours / "inner.py").write_text("FACTOR = 2.0\n")
    kept._code.cache_clear()
    kept.kept(work.double, 3)
    assert work.calls == [3, 4, 3]
