"""How long the parts of a stage took."""

from __future__ import annotations

import time


class Laps:
    """Seconds by part; a part that comes again is added up."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Counts the time since the last lap to a part."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now
