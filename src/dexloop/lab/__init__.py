"""The embedded reality: a bench with hidden truth behind the `Rig` protocol. Everything runs without hardware."""

from dexloop.lab.lab import Lab, LabCfg
from dexloop.lab.truth import Truth

__all__ = ["Lab", "LabCfg", "Truth"]
