"""Runs to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dexloop.core.artifact import save_arrays, writing
from dexloop.core.artifacts import Belief
from dexloop.core.run import Run
from tests.twin.small import small_twin


def run_with_twin(path: Path, *, splats: bool = True, belief: dict[str, Any] | None = None) -> Run:
    """Makes a run with a small twin and, if its parameters are given, a belief."""
    run = Run.create(path)
    small_twin(run.stage_path("twin"), splats=splats)
    if belief is not None:
        with writing(run.stage_path("identify"), Belief, inputs={}) as draft:
            save_arrays(draft.folder / "posterior.npz", mean=np.zeros(1))
            draft.meta["parameters"] = belief
    return run
