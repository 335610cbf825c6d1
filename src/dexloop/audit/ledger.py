"""The transfer ledger: an append-only file of what was tried, predicted and found, one JSON object a line.

Each line carries the hash of the one before it, so that a line which was changed, left out or put in later shows. The
last line, which none follows, is covered by the hash of the artefact that the file is in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dexloop.core.artifact import HEADER
from dexloop.core.artifacts import Ledger
from dexloop.core.errors import InputError, UnknownName

FIRST = "0" * 64
REQUIRED = (
    "case", "round", "trial", "object", "robot", "inputs", "told", "trained_on", "real", "sim", "gap", "divergence",
    "first", "signature", "gate", "causes", "changed", "verdict", "next",
)  # fmt: skip
"""What every line says, in this order."""


def appended(lines: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the ledger's lines with new rows behind them.

    Args:
        lines: Of the ledger so far.
        rows: New ones, without case number and hashes.

    Raises:
        InputError: The ledger so far is not whole, or a row lacks something.
    """
    check(lines)
    out = list(lines)
    for row in rows:
        before = _hash(out[-1]) if out else FIRST
        data = {"case": len(out) + 1, **row, "before": before}
        missing = [name for name in REQUIRED if name not in data]
        if missing:
            raise InputError(f"a row of the ledger lacks {', '.join(missing)}")
        out.append(
            json.dumps({name: data[name] for name in (*REQUIRED, "before")}, ensure_ascii=False, allow_nan=False)
        )
    return out


def check(lines: Sequence[str], *, name: str = "the ledger") -> list[dict[str, Any]]:
    """Reads a ledger and checks that it is whole.

    Raises:
        InputError: A line is damaged, or was changed after it was written.
    """
    rows, before = [], FIRST
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{name}, line {number}, is damaged: {error}") from error
        if not isinstance(row, dict):
            raise InputError(f"{name}, line {number}, is damaged: it holds no names")
        missing = [key for key in (*REQUIRED, "before") if key not in row]
        if missing:
            raise InputError(f"{name}, line {number}, lacks {', '.join(missing)}")
        if row["case"] != number or row["before"] != before:
            raise InputError(f"{name} is not as it was written: line {number} does not follow the one before it")
        before = _hash(line)
        rows.append(row)
    return rows


def read(path: Path) -> list[dict[str, Any]]:
    """Reads a ledger from its file, or from the folder of an artefact, and checks it.

    Raises:
        InputError: There is none, or it is not whole.
    """
    rows = check(lines_of(path), name=str(path))
    folder = path if path.is_dir() else path.parent
    if (folder / HEADER).is_file():
        Ledger.open(folder).verify()
    return rows


def lines_of(path: Path) -> list[str]:
    """Returns the lines of a ledger's file, or of that in the folder of an artefact, as they are.

    Raises:
        InputError: There is none.
    """
    file = path / "ledger.jsonl" if path.is_dir() else path
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} holds no ledger: {error}") from error
    # Not `splitlines`, which also splits where JSON does not: at a line separator within a text.
    return text.removesuffix("\n").split("\n") if text else []


def case(path: Path, number: int) -> dict[str, Any]:
    """Returns one row of a ledger.

    Raises:
        UnknownName: There is no such case.
    """
    rows = read(path)
    if not 1 <= number <= len(rows):
        raise UnknownName("case", str(number), [str(row["case"]) for row in rows])
    return rows[number - 1]


def _hash(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()
