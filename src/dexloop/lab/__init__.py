"""The embedded reality: a bench with hidden truth behind the `Rig` protocol. Everything runs without hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dexloop.lab.cfg import LabCfg

if TYPE_CHECKING:
    from dexloop.lab.lab import Lab
    from dexloop.lab.truth import Truth

__all__ = ["Lab", "LabCfg", "Truth"]


def __getattr__(name: str) -> Any:
    """Loads the physics when it is first asked for, so that a command line can know `LabCfg` without it."""
    if name == "Lab":
        from dexloop.lab.lab import Lab

        return Lab
    if name == "Truth":
        from dexloop.lab.truth import Truth

        return Truth
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
