"""What identify finds in the lab from video and joint signals, with known shapes; `identify_scan` has scans."""

from __future__ import annotations

from benchmarks.identify import score
from benchmarks.metric import Metric
from dexloop.identify.cfg import IdentifyCfg
from dexloop.lab.objects import OBJECTS

SEED = 610
LIMITS = (0.05, 0.12)
"""Median and 90th percentile of the error of the mass."""


def run() -> list[Metric]:
    return score("video", [(name, SEED) for name in OBJECTS], IdentifyCfg(from_video=True), LIMITS, video=True)
