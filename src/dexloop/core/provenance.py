"""What an artefact was made with: versions and machine, for the reader who wants to make it again."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

_PACKAGES = ("dexloop", "numpy", "mujoco", "scipy", "torch", "jax")


@functools.cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def cpu_model() -> str:
    """Returns the processor's name as the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def provenance() -> dict[str, Any]:
    """Returns versions, machine and the time [UTC, ISO 8601]. It promises no bitwise reproducibility."""
    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "system": platform.system()},
    }
