"""`python -m benchmarks [NAME…] [--json FILE] [--gate] [--target] [--list] [--update-baseline]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import baseline, runner
from benchmarks.table import table
from dexloop.core.artifact import write_text
from dexloop.core.errors import DexloopError
from dexloop.core.provenance import provenance


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures dexloop, against a baseline.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; all if none is named")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--target", action="store_true", help="fail where a figure that was asked for is missed")
    parser.add_argument("--baseline", type=Path, default=baseline.FILE, metavar="FILE", help="another baseline")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--gate", action="store_true", help="fail on a step back beyond tolerance")
    either.add_argument("--update-baseline", action="store_true", help="make these figures the baseline")
    return parser


def main(argv: Sequence[str] | None = None, *, package: str = "benchmarks") -> int:
    """Runs benchmarks and returns the exit code: 0, 1 for a failure or a figure that may not pass, 2 for bad input."""
    options = _parser().parse_args(argv)
    try:
        return _main(options, package)
    except DexloopError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _main(options: argparse.Namespace, package: str) -> int:
    available = runner.discover(package)
    if options.list:
        print("\n".join(available))
        return 0
    chosen = runner.choose(options.names, available)
    known = baseline.read(options.baseline)
    outcome = runner.run(chosen, package)
    # Whole benchmarks can vanish too, which shows only when all were asked for.
    gone = () if options.names else {name.split(".", 1)[0] for name in known} - set(available)
    lines = baseline.compare(outcome.results, known, gone=gone)
    _print(lines)
    if options.json:
        report = {**provenance(), "metrics": [line.to_json() for line in lines], "failures": outcome.failures}
        write_text(options.json, json.dumps(report, indent=1, ensure_ascii=False))
    if options.update_baseline:
        baseline.update(lines, options.baseline)

    reasons = [f"{name} raised an error" for name in outcome.failures]
    if options.gate and not known:
        reasons.append(f"there is no baseline {options.baseline}: make one with --update-baseline")
    if options.gate:
        reasons += [f"{line.name}: {line.verdict}" for line in lines if not line.verdict.passes]
    if options.target:
        reasons += [f"{line.name}: target missed" for line in lines if line.misses_target]
    for reason in reasons:
        print(f"failed: {reason}", file=sys.stderr)
    return 1 if reasons else 0


def _print(lines: Sequence[baseline.Line]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)  # a log has no width; 80 would cut the numbers
    console.print(table(lines))
    elsewhere = {line.baseline.machine for line in lines if line.baseline} - {baseline.this_machine()}
    if elsewhere:
        console.print(
            f"The baseline was measured elsewhere ({'; '.join(sorted(elsewhere))}): ratios compare, times do not.",
            highlight=False,
        )


if __name__ == "__main__":
    sys.exit(main())
