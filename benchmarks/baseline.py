"""The committed baseline, and the verdict on a measurement against it."""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.metric import Metric
from dexloop.core.artifact import write_text
from dexloop.core.errors import InputError
from dexloop.core.provenance import provenance

FILE = Path(__file__).with_name("baseline.json")


class Verdict(enum.StrEnum):
    """How a metric stands to its baseline."""

    SAME = "same"
    BETTER = "better"
    STEP_BACK = "step back"
    NEW = "new"
    """There is no baseline for it yet; `--update-baseline` makes one."""
    VANISHED = "vanished"
    """The baseline has it and the benchmark no longer gives it."""

    @property
    def passes(self) -> bool:
        """Whether the gate lets it through."""
        return self not in (Verdict.STEP_BACK, Verdict.VANISHED)


@dataclass(frozen=True)
class Entry:
    """What the baseline knows of one metric."""

    value: float
    unit: str
    machine: str
    """Where it was measured: processor and number of cores."""


@dataclass(frozen=True)
class Line:
    """One metric, measured now, in the baseline, or both."""

    name: str
    """`BENCHMARK.METRIC`."""
    metric: Metric | None
    """None if it vanished."""
    baseline: Entry | None
    """None if it is new."""

    @property
    def verdict(self) -> Verdict:
        """How the metric stands to its baseline. A changed unit is a step back: the two cannot be compared."""
        if self.metric is None:
            return Verdict.VANISHED
        if self.baseline is None:
            return Verdict.NEW if self.metric.finite else Verdict.STEP_BACK
        if self.metric.unit != self.baseline.unit or self.metric.steps_back_from(self.baseline.value):
            return Verdict.STEP_BACK
        return Verdict.BETTER if self.metric.leads_from(self.baseline.value) else Verdict.SAME

    @property
    def misses_target(self) -> bool:
        """Whether a figure that was asked for is not reached."""
        return self.metric is not None and self.metric.misses_target

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {
            **(self.metric.to_json() if self.metric else {}),
            "name": self.name,
            "baseline": self.baseline.value if self.baseline else None,
            "verdict": self.verdict.value,
            "misses_target": self.misses_target,
        }


def this_machine() -> str:
    """Returns processor and number of cores: figures from two machines compare only roughly."""
    machine = provenance()["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}"


def read(file: Path = FILE) -> dict[str, Entry]:
    """Reads the baseline, by `BENCHMARK.METRIC`; empty if there is none yet.

    Raises:
        InputError: The file is damaged.
    """
    if not file.exists():
        return {}
    try:
        return {name: Entry(**entry) for name, entry in json.loads(file.read_text())["metrics"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "restore it, or remove it and make it again with --update-baseline"
        raise InputError(f"{file} is damaged ({error!r}); {hint}") from error


def compare(
    results: Mapping[str, list[Metric]], baseline: Mapping[str, Entry], *, gone: Collection[str] = ()
) -> list[Line]:
    """Puts measurements beside the baseline.

    Args:
        results: Metrics by benchmark, of those that ran to the end.
        baseline: What `read` gave.
        gone: Benchmarks that no longer exist; all their metrics have vanished.
    """
    now = {f"{benchmark}.{metric.name}": metric for benchmark, metrics in results.items() for metric in metrics}
    lines = [Line(name, metric, baseline.get(name)) for name, metric in now.items()]
    asked = results.keys() | set(gone)
    vanished = [name for name in baseline if name not in now and name.split(".", 1)[0] in asked]
    return lines + [Line(name, None, baseline[name]) for name in vanished]


def update(lines: Collection[Line], file: Path = FILE) -> None:
    """Writes what was measured into the baseline; metrics of benchmarks that did not run stay as they were.

    Raises:
        InputError: A value is not finite; nothing was written.
    """
    entries = read(file)
    for line in lines:
        if line.metric is None:
            del entries[line.name]
        elif not line.metric.finite:
            raise InputError(f"{line.name} is {line.metric.value}, which is no baseline; mend the benchmark first")
        else:
            entries[line.name] = Entry(line.metric.value, line.metric.unit, this_machine())
    metrics = {name: vars(entry) for name, entry in sorted(entries.items())}
    write_text(file, json.dumps({"metrics": metrics}, indent=1, ensure_ascii=False) + "\n")
