"""Outcomes of long trials, kept until the code changes: a benchmark that was stopped goes on where it was."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dexloop
from dexloop.core.artifact import write_text

FOLDER = Path("runs") / "benchmarks"


@functools.cache
def _code() -> str:
    """Returns a name for the source as it is: the package's, and that of the benchmarks, which score."""
    digest = hashlib.sha256()
    for source in (Path(dexloop.__file__).parent, Path(__file__).parent):
        for file in sorted(source.rglob("*.py")):
            digest.update(f"{file.relative_to(source)}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def kept(work: Callable[..., dict[str, Any]], *args: object) -> dict[str, Any]:
    """Calls `work`, unless its outcome with these arguments and this code is already there."""
    name = hashlib.sha256(f"{work.__module__}.{work.__qualname__}{args!r}".encode()).hexdigest()[:16]
    file = FOLDER / _code() / f"{name}.json"
    if file.exists():
        return json.loads(file.read_text())
    outcome = work(*args)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(outcome))
    return outcome
