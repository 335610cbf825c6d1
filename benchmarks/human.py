"""How often MediaPipe finds the lab's human demonstrator: films of all eight objects."""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.metric import Metric
from dexloop.lab import Lab, LabCfg
from dexloop.lab.objects import OBJECTS
from dexloop.vision.hands import detect_hands

SEEDS = (0, 1, 2, 3, 4, 5)
FPS = 10.0


def run() -> list[Metric]:
    metrics, shares = [], []
    for name in OBJECTS:
        print(f"filming {name}", file=sys.stderr)
        found = []
        for seed in SEEDS:
            rig = Lab(LabCfg(object=name, seed=seed)).rig()
            _, frames = rig.operator.demonstrate(duration_s=3.0, fps=FPS)
            found.append(detect_hands([f.image[0] for f in frames], FPS).share_found)
        shares += found
        metrics.append(
            Metric(
                f"{name}: frames with the hand",
                float(np.mean(found)),
                "1",
                "higher",
                0.1,
                target=0.9,
                note=f"worst of {len(SEEDS)} seeds {min(found):.2f}",
            )
        )
    metrics.append(Metric("all objects: frames with the hand", float(np.mean(shares)), "1", "higher", 0.05))
    return metrics
