"""Tables of numbers in CSV files: read fast, and when something is wrong read again to say in which line."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError

_BOMS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16", codecs.BOM_UTF32_LE: "UTF-32"}


@dataclass(frozen=True, eq=False)
class Table:
    """A CSV file's numbers."""

    path: Path
    columns: tuple[str, ...]
    data: Float[np.ndarray, "n c"]

    def place(self, row: int, column: str = "") -> str:
        """Returns where a number stands: file, line and column, as an editor counts them."""
        return f"{self.path}, line {_line_of(self.path, row)}" + (f", column {column!r}" if column else "")


def read_table(path: Path) -> Table:
    """Reads a CSV file: a line of column names, then lines of numbers, separated by commas.

    Raises:
        InputError: It is missing, empty, no text, or has a cell that is no number; file, line and column are named.
    """
    columns = _read_header(path)
    data = _read_fast(path, columns)
    if data is None:
        data = _read_exactly(path, columns)
    if not len(data):
        raise InputError(f"{path} has a header but no data: add at least two lines of numbers")
    return Table(path, columns, data)


def _read_header(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        raise InputError(f"{path} does not exist: check the file's name")
    with path.open("rb") as file:
        raw = file.read(1 << 16)
    if not raw.strip():
        raise InputError(f"{path} is empty: write a header line such as `t,x,y,z` and then lines of numbers")
    for bom, encoding in _BOMS.items():
        if raw.startswith(bom):
            raise InputError(f"{path} is {encoding} text: save it as UTF-8")
    if b"\0" in raw:
        raise InputError(f"{path} is binary data, not CSV text: export it as comma-separated text in UTF-8")
    line = raw.split(b"\n", 1)[0]
    try:
        header = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line 1 is not UTF-8 text ({error.reason}): save it as UTF-8") from error
    columns = tuple(name.strip().strip('"').strip() for name in header.split(","))
    if len(columns) == 1:
        for separator, name in ((";", "semicolons"), ("\t", "tabs"), (" ", "spaces")):
            if separator in header:
                raise InputError(f"{path}, line 1 is separated by {name}: separate columns by commas")
    if _is_number(columns[0]):
        raise InputError(f"{path}, line 1 has numbers: the first line must name the columns, such as `t,x,y,z`")
    twice = sorted({c for c in columns if columns.count(c) > 1})
    if twice:
        raise InputError(f"{path}, line 1 names column {twice[0]!r} twice: give each column its own name")
    return columns


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_fast(path: Path, columns: tuple[str, ...]) -> np.ndarray | None:
    """Reads with pyarrow; None if anything is wrong."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(column_names=list(columns), skip_rows=1),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.float64()), null_values=[], strings_can_be_null=False
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    data = np.empty((table.num_rows, len(columns)))
    for i, column in enumerate(table.columns):
        data[:, i] = column.to_numpy()
    return data


def _read_exactly(path: Path, columns: tuple[str, ...]) -> np.ndarray:
    """Reads line by line: slow, but it knows where it is, and it takes every way in which Python writes a number."""
    rows: list[list[float]] = []
    with path.open(encoding="utf-8-sig", newline=None) as file:
        try:
            for number, line in enumerate(file, start=1):
                if number > 1 and line.strip():
                    rows.append(_parse(f"{path}, line {number}", line, columns))
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not UTF-8 text after line {len(rows) + 1} ({error.reason}): save it as UTF-8"
            ) from error
    return np.array(rows, np.float64).reshape(len(rows), len(columns))


def _parse(place: str, line: str, columns: tuple[str, ...]) -> list[float]:
    cells = [cell.strip().strip('"') for cell in line.split(",")]
    if len(cells) != len(columns):
        raise InputError(
            f"{place} has {len(cells)} cells, the header names {len(columns)} columns: give each column one number, "
            f"with a decimal point and not a decimal comma"
        )
    row = []
    for name, cell in zip(columns, cells, strict=True):
        try:
            row.append(float(cell))
        except ValueError:
            what = f"{cell!r} is not a number" if cell else "the cell is empty"
            raise InputError(f"{place}, column {name!r}: {what}; write a number or leave the line out") from None
    return row


def _line_of(path: Path, row: int) -> int:
    """Returns the line of a row, counted from 1 with the header and with empty lines."""
    seen = -1
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number > 1 and line.strip():
                seen += 1
                if seen == row:
                    return number
    return row + 2
