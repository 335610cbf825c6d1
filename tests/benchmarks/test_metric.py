from __future__ import annotations

import json
import math
from typing import Any

import pytest

from benchmarks.metric import Metric


def metric(value: float, direction: Any = "higher", tolerance: float = 0.1, target: float | None = None) -> Metric:
    return Metric("m", value, "1", direction, tolerance, target)


@pytest.mark.parametrize(
    ("value", "direction", "baseline", "back"),
    [
        (91.0, "higher", 100.0, False),
        (89.0, "higher", 100.0, True),
        (500.0, "higher", 100.0, False),
        (109.0, "lower", 100.0, False),
        (111.0, "lower", 100.0, True),
        (1.0, "lower", 100.0, False),
        (-109.0, "higher", -100.0, False),  # the tolerance is a part of the size, whatever the sign
        (-111.0, "higher", -100.0, True),
        (0.0, "lower", 0.0, False),
        (1e-9, "lower", 0.0, True),
        (math.nan, "higher", 100.0, True),
        (math.inf, "higher", 100.0, True),
    ],
)
def test_step_back(value: float, direction: str, baseline: float, back: bool) -> None:
    assert metric(value, direction).steps_back_from(baseline) is back


def test_better_means_beyond_the_tolerance() -> None:
    assert metric(111.0).leads_from(100.0)
    assert not metric(109.0).leads_from(100.0)
    assert metric(89.0, "lower").leads_from(100.0)
    assert not metric(math.nan).leads_from(100.0)


def test_an_infinite_tolerance_is_never_gated() -> None:
    assert not metric(1e-9, tolerance=math.inf).steps_back_from(100.0)
    assert not metric(1.0, "lower", tolerance=math.inf).steps_back_from(0.0)
    assert metric(math.nan, tolerance=math.inf).steps_back_from(100.0)  # but no figure at all is


@pytest.mark.parametrize(
    ("value", "direction", "target", "missed"),
    [
        (0.9, "higher", 0.9, False),
        (0.89, "higher", 0.9, True),  # a target has no tolerance
        (0.9, "lower", 0.9, False),
        (0.91, "lower", 0.9, True),
        (math.nan, "higher", 0.9, True),
        (0.1, "higher", None, False),
    ],
)
def test_target(value: float, direction: str, target: float | None, missed: bool) -> None:
    assert metric(value, direction, target=target).misses_target is missed


def test_a_wrong_definition_is_refused() -> None:
    with pytest.raises(ValueError, match="direction is 'higher' or 'lower', not 'up'"):
        metric(1.0, "up")
    with pytest.raises(ValueError, match="at least 0"):
        metric(1.0, tolerance=-0.1)
    with pytest.raises(ValueError, match="at least 0"):
        metric(1.0, tolerance=math.nan)


def test_json_has_no_nan() -> None:
    data = json.loads(json.dumps(metric(math.nan, tolerance=math.inf).to_json(), allow_nan=False))
    assert (data["value"], data["tolerance"]) == (None, None)
