"""Outcomes of long trials, kept until the code that they ran changes: a benchmark that was stopped goes on."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dexloop.core.artifact import write_text

FOLDER = Path("runs") / "benchmarks"
_OURS = ("dexloop", "benchmarks")


@functools.cache
def _code(module: str) -> str:
    """Returns a name for the source of a module and of all of ours that it imports, at whatever remove."""
    sources: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in sources:
            continue
        file = _file(name)
        sources[name] = file.read_bytes() if file else b""
        waiting += _imported(sources[name])
    digest = hashlib.sha256()
    for name in sorted(name for name in sources if sources[name]):
        digest.update(f"{name}\0".encode())
        digest.update(sources[name])
    return digest.hexdigest()[:12]


def _file(name: str) -> Path | None:
    """Returns where a module of ours is; None for what is none (a name that was imported out of one)."""
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin else None


def _imported(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] in _OURS:
                yield from (".".join(parts[:k]) for k in range(1, len(parts) + 1))


def kept(work: Callable[..., dict[str, Any]], *args: object) -> dict[str, Any]:
    """Calls `work`, unless its outcome with these arguments and this code is already there."""
    name = hashlib.sha256(f"{work.__module__}.{work.__qualname__}{args!r}".encode()).hexdigest()[:16]
    file = FOLDER / _code(work.__module__) / f"{name}.json"
    if file.exists():
        return json.loads(file.read_text())
    outcome = work(*args)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(outcome))
    return outcome
