"""What identify finds in the lab from video and joint signals: with known shapes, and with nothing but a scan."""

from __future__ import annotations

from benchmarks.identify import score
from benchmarks.metric import Metric
from dexloop.identify.cfg import IdentifyCfg
from dexloop.lab.objects import OBJECTS

SEEDS = (610,)
SCAN_SEEDS = (610,)
LIMITS = (0.05, 0.12)
"""Median and 90th percentile of the error of the mass."""


def run() -> list[Metric]:
    cfg = IdentifyCfg(from_video=True)
    known = [(name, seed) for seed in SEEDS for name in OBJECTS]
    scanned = [(name, seed) for seed in SCAN_SEEDS for name in OBJECTS]
    return score("video", known, cfg, LIMITS, video=True) + score(
        "scan", scanned, cfg, LIMITS, video=True, scanned=True
    )
