"""Finds the benchmarks and runs them, one after the other, so that they do not disturb each other."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.metric import Metric
from dexloop.core.errors import UnknownName

_FRAMEWORK = ("baseline", "cube_tosses", "kept", "metric", "peers", "runner", "table")


@dataclass(frozen=True)
class Outcome:
    """What came of a number of benchmarks."""

    results: dict[str, list[Metric]] = field(default_factory=dict)
    """Metrics by benchmark, of those that ran to the end."""
    failures: dict[str, str] = field(default_factory=dict)
    """The traceback of those that did not."""


def discover(package: str = "benchmarks") -> list[str]:
    """Returns the names of the benchmarks: the package's modules but for the framework's own."""
    path = importlib.import_module(package).__path__
    found = [module.name for module in pkgutil.iter_modules(path)]
    return sorted(name for name in found if not name.startswith("_") and name not in _FRAMEWORK)


def choose(names: Iterable[str], available: list[str]) -> list[str]:
    """Returns the benchmarks that were asked for, all if none was.

    Raises:
        UnknownName: There is none of that name.
    """
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in available:
            raise UnknownName("benchmark", name, available)
    return chosen or available


def run(names: Iterable[str], package: str = "benchmarks") -> Outcome:
    """Runs benchmarks. One that raises is written down, and the others still run."""
    outcome = Outcome()
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        try:
            outcome.results[name] = _metrics(f"{package}.{name}")
        except Exception:
            outcome.failures[name] = traceback.format_exc()
            print(outcome.failures[name], file=sys.stderr, flush=True)
        else:
            print(f"{name} took {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    return outcome


def _metrics(module: str) -> list[Metric]:
    metrics = list(importlib.import_module(module).run())
    names = [metric.name for metric in metrics]
    if not names:
        raise ValueError(f"{module}.run() gave no metric")
    if len(set(names)) < len(names):
        raise ValueError(f"{module}.run() gave two metrics of one name: {', '.join(sorted(names))}")
    return metrics
