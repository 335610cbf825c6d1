"""What a person at a terminal sees: progress, tables, and one clear line when something is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dexloop.core.status import Level, Status


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The reader has gone, as `| head` does: that is no error, and nothing may be written at the end either."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)


stdout = _Console(soft_wrap=True)
stderr = _Console(stderr=True, soft_wrap=True)

COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@contextlib.contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, float], None]]:
    """Shows a bar for what is going on; without a terminal, a line for each new thing.

    Yields:
        A function to be told what is going on and how much of it is done, from 0 to 1.
    """
    if quiet:
        yield lambda _text, _done: None
    elif not stderr.is_terminal:
        yield _lines()
    else:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(), TextColumn("{task.description:<28}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
        )  # fmt: skip
        tasks: dict[str, Any] = {}
        with Progress(*columns, console=stderr) as bars:

            def tell(text: str, done: float) -> None:
                if text not in tasks:
                    tasks[text] = bars.add_task(text, total=1.0)
                bars.update(tasks[text], completed=done)

            yield tell


def _lines() -> Callable[[str, float], None]:
    seen: set[str] = set()

    def tell(text: str, _done: float) -> None:
        if text not in seen:
            seen.add(text)
            print(text, file=sys.stderr, flush=True)

    return tell


def show(rows: Sequence[Sequence[object]], headings: Sequence[str], title: str = "") -> None:
    """Prints a table."""
    table = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, str) and cell.startswith("[") else escape(str(cell)) for cell in row))
    stdout.print(table)


def coloured(status: Status) -> str:
    """Returns a status level as coloured text."""
    return f"[{COLOURS[status.level]}]{status.level.value}[/]"


def say(text: str) -> None:
    """Prints a line for people."""
    stdout.print(escape(text))


def say_json(data: object) -> None:
    """Prints one JSON document for machines."""
    print(json.dumps(data, indent=1, allow_nan=False, default=str))


def warn(message: str) -> None:
    """Prints what is not as it should be, while the work goes on."""
    stderr.print(f"[yellow]note:[/] {escape(message)}")


def complain(message: str) -> None:
    """Prints what is wrong."""
    stderr.print(f"[red]error:[/] {escape(message)}")
