"""Runs with trials and a ledger in them, for the report."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from dexloop.audit.ledger import appended
from dexloop.audit.predict import CHANNELS
from dexloop.core.artifact import save_arrays, write_text, writing
from dexloop.core.artifacts import Episodes, Ledger
from dexloop.core.run import Run

SIZES = {"pose": 3, "slip": 1, "force": 2, "effort": 4, "joints": 4}


def row(trial: int, *, number: int = 1, signature: str = "held", parted: bool = False) -> dict[str, Any]:
    """One line of a ledger."""
    gap = {"unit": "m", "real": 0.002, "sim": 0.001, "gap": -0.001, "interval": [-0.002, 0.001]}
    first = {"channel": "force", "component": 0, "t": 0.5, "real": 3.0, "low": 1.0, "high": 2.0, "sigmas": 7.0}
    cause = {"parameter": "object.mass", "value": 1.4, "unit": "×", "says": "object.mass is 1.40 times <what>",
             "explains": 0.6}  # fmt: skip
    return {
        "round": number, "trial": trial, "object": "cube", "robot": "gripper@wrist", "inputs": {}, "told": {},
        "trained_on": {}, "real": {}, "sim": {"held": 0.75, "worlds": 4, "verdicts": {}},
        "gap": {"slip_m": gap, "peak_force_n": {**gap, "unit": "N"}, "off_s": None},
        "divergence": [first] if parted else [], "first": "force" if parted else "", "signature": signature, "gate": [],
        "causes": [cause] if parted else [], "changed": {}, "verdict": "diverges" if parted else "agrees",
        "next": {"do": "re-identify" if parted else "nothing", "parameters": [], "motion": None, "why": "so"},
    }  # fmt: skip


def traces() -> dict[str, np.ndarray]:
    """Channels of one trial."""
    t = 0.02 * np.arange(100)
    out: dict[str, np.ndarray] = {"t": t}
    for name in CHANNELS:
        wave = np.sin(3 * t)[:, None] * np.ones(SIZES[name])
        out |= {f"{name}.real": wave + 0.1, f"{name}.middle": wave, f"{name}.sd": np.full_like(wave, 0.05)}
    return out


def run_with_trials(folder: Path, episodes: Episodes, rows: list[dict[str, Any]]) -> Run:
    """A run that was deployed and audited."""
    run = Run.create(folder, seed=3, options={"object": "cube"})
    shutil.copytree(episodes.path, run.stage_path("deploy"))
    with writing(run.stage_path("audit"), Ledger) as draft:
        write_text(draft.folder / "ledger.jsonl", "\n".join(appended([], rows)) + "\n")
        (draft.folder / "traces").mkdir()
        for entry in rows:
            save_arrays(draft.folder / "traces" / f"{entry['trial']:02d}.npz", **traces())
        success = {"sim": 0.75, "real": 0.5, "gap": 0.25, "interval": [-0.2, 0.6]}
        draft.meta |= {"new": len(rows), "success": success, "next": rows[-1]["next"], "round": 1}
    write_text(folder / "decisions.jsonl", '{"what": "round 1", "why": "a <b>reason</b>"}\n')
    return run
