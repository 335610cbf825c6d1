"""What identify finds in the lab from a scan, pushes on video and joint signals: with no truth at all."""

from __future__ import annotations

from benchmarks.identify import score
from benchmarks.identify_video import LIMITS, SEED
from benchmarks.metric import Metric
from dexloop.identify.cfg import IdentifyCfg
from dexloop.lab.objects import OBJECTS


def run() -> list[Metric]:
    cfg = IdentifyCfg(from_video=True)
    return score("scan", [(name, SEED) for name in OBJECTS], cfg, LIMITS, video=True, scanned=True)
