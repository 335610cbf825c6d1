"""A benchmark's result is data: a value with unit, direction, tolerance and, where one was asked for, a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Metric:
    """One measured figure.

    Raises:
        ValueError: The direction is unknown or the tolerance is negative.
    """

    name: str
    """Unique within its benchmark, such as "pushed_box.steps_ratio"."""
    value: float
    unit: str
    """SI, or "1" for a ratio."""
    direction: Literal["higher", "lower"]
    """Which way is better."""
    tolerance: float
    """How far the value may fall behind the baseline, as a part of the baseline, before the gate fails.
    `math.inf` for a figure that depends on the machine too much to be gated."""
    target: float | None = None
    """The figure that was asked for, if any."""
    note: str = ""
    """What the reader should know: the size of the scene, the number of repeats."""

    def __post_init__(self) -> None:
        if self.direction not in ("higher", "lower"):
            raise ValueError(f"{self.name}: direction is 'higher' or 'lower', not {self.direction!r}")
        if not self.tolerance >= 0:
            raise ValueError(f"{self.name}: tolerance is a part of the baseline, at least 0, not {self.tolerance}")

    @property
    def finite(self) -> bool:
        """Whether there is a figure at all; what is not finite passes no gate and meets no target."""
        return math.isfinite(self.value)

    @property
    def misses_target(self) -> bool:
        """Whether there is a target and the value falls short of it."""
        return self.target is not None and not (self.finite and self._lead(self.target) >= 0)

    def steps_back_from(self, baseline: float) -> bool:
        """Whether the value is worse than the baseline by more than the tolerance."""
        if not self.finite:
            return True
        if math.isinf(self.tolerance):
            return False
        return self._lead(baseline) < -self.tolerance * abs(baseline)

    def leads_from(self, baseline: float) -> bool:
        """Whether the value is better than the baseline by more than the tolerance."""
        return self.finite and self._lead(baseline) > self.tolerance * abs(baseline)

    def _lead(self, other: float) -> float:
        """Returns by how much the value is better than `other`; negative if it is worse."""
        return self.value - other if self.direction == "higher" else other - self.value

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; a figure or tolerance that is not finite is null."""
        return {
            "name": self.name,
            "value": self.value if self.finite else None,
            "unit": self.unit,
            "direction": self.direction,
            "tolerance": self.tolerance if math.isfinite(self.tolerance) else None,
            "target": self.target,
            "note": self.note,
        }
