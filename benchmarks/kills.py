"""A loop that is killed twenty times, at moments that it does not choose: it goes on, and its ledger is the same.

The loop runs in the lab with little effort in each stage, once undisturbed, and once killed by SIGKILL after a random
time, again and again. What it had finished must not be done again, nothing may be left half-written, and the ledger,
the decisions and the trials must be those of the loop that nobody disturbed.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.metric import Metric

KILLS = 20
OBJECT, SEED = "cube", 1200
TIMELESS = ("ledger.jsonl", "trials.json", "decisions.jsonl")
"""Files that must be the same; others hold times of day and how long things took."""


def run() -> list[Metric]:
    with tempfile.TemporaryDirectory() as folder:
        quiet, killed = Path(folder) / "quiet", Path(folder) / "killed"
        begin = time.monotonic()
        subprocess.run(_command(quiet), check=True)
        takes = time.monotonic() - begin
        print(f"undisturbed: {takes:.0f} s", file=sys.stderr, flush=True)
        kills, again = _disturbed(killed, takes)
        names = sorted(str(p.relative_to(quiet)) for p in quiet.rglob("*") if p.name in TIMELESS)
        other = [name for name in names if _text(quiet / name) != _text(killed / name)]
        lines = len((killed / "8_audit" / "ledger.jsonl").read_text().splitlines())
        left = [
            p.name for p in killed.rglob("*") if ".writing-" in p.name or p.name.endswith((".recording", ".trials"))
        ]  # fmt: skip
    print(f"compared: {', '.join(names)}", file=sys.stderr, flush=True)
    return [
        Metric("kills survived", float(kills), "1", "higher", 0.0, float(KILLS), f"loop of {takes:.0f} s undisturbed"),
        Metric("files unlike those of an undisturbed loop", float(len(other)), "1", "lower", 0.0, 0.0,
               ", ".join(other) or f"of {len(names)}; {lines} lines in the ledger"),
        Metric("left half-written", float(len(left)), "1", "lower", 0.0, 0.0, ", ".join(left)),
        Metric("finished artefacts made again", float(again), "1", "lower", 0.0, 0.0),
    ]  # fmt: skip


def _text(file: Path) -> str:
    """Returns what a file says, without hashes of artefacts, which hold when they were made."""
    if not file.is_file():
        return "missing"
    rows = (
        [json.loads(line) for line in file.read_text().splitlines()]
        if file.suffix == ".jsonl"
        else json.loads(file.read_text())
    )
    for row in rows:
        for name in ("inputs", "before"):
            row.pop(name, None)
    return json.dumps(rows, sort_keys=True)


def _disturbed(out: Path, takes: float) -> tuple[int, int]:
    """Runs the loop, killing it at random moments; returns how often, and how many finished stages began again."""
    rng, kills, again = np.random.default_rng(SEED), 0, 0
    done: dict[str, int] = {}
    patience = 2.0 * takes / KILLS
    while True:
        process = subprocess.Popen(_command(out))
        # Each run begins with some seconds of imports, in which there is nothing to kill.
        wait = float(rng.uniform(4.0, 10.0 + patience)) if kills < KILLS else None
        try:
            code = process.wait(wait)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            now = {str(p): p.stat().st_ino for p in out.rglob("artifact.json") if ".writing-" not in str(p)}
            again += sum(now.get(path, inode) != inode for path, inode in done.items() if Path(path).exists())
            # A stage that takes longer than any of them would never end.
            patience = patience if set(now) - set(done) else 1.5 * patience
            done |= now
            print(f"kill {kills}: {len(done)} artefacts so far", file=sys.stderr, flush=True)
            continue
        if code:
            raise RuntimeError(f"the loop ended with {code} after {kills} kills")
        if kills >= KILLS:
            return kills, again
        # It was done before it had been killed often enough: the last stages once more.
        for name in ("8_audit", "7_deploy"):
            for path in out.rglob(f"{name}/artifact.json"):
                done.pop(str(path), None)
        _forget(out)


def _forget(out: Path) -> None:
    """Takes the last round away, as if it had not been done yet."""
    for name in ("8_audit", "7_deploy"):
        shutil.rmtree(out / name, ignore_errors=True)
    decisions = out / "decisions.jsonl"
    kept = [
        line for line in decisions.read_text().splitlines() if '"round 1"' not in line and "after round" not in line
    ]
    decisions.write_text("".join(line + "\n" for line in kept))


def _command(out: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.kills", str(out)]


def _worker(out: Path) -> None:
    from dexloop import loop
    from dexloop.audit.cfg import AuditCfg
    from dexloop.capture.plans import HumanVideo, Push
    from dexloop.core.run import Run
    from dexloop.demo import LabPlace
    from dexloop.demonstrate.cfg import DemonstrateCfg
    from dexloop.deploy.cfg import DeployCfg
    from dexloop.identify.cfg import IdentifyCfg
    from dexloop.lab.known_twin import known_twin
    from dexloop.loop_cfg import LoopCfg
    from dexloop.train.cfg import TrainCfg

    loop.twin = lambda recorded, path, **_: known_twin(recorded, path)  # type: ignore[assignment]
    cfgs = loop.Cfgs(
        identify=IdentifyCfg(parameters=("object.mass", "table.friction", "fingertip.friction"), samples=8),
        demonstrate=DemonstrateCfg(tries=80, holds=2, worlds=2, episodes=8, keep=0.5),
        train=TrainCfg(epochs=10, rounds=0),
        deploy=DeployCfg(hold_s=0.3, shake_s=0.4, pilots=0),
        audit=AuditCfg(worlds=2, bands=3),
    )
    plans = (Push(speed_m_s=0.3, distance_m=0.05, settle_s=0.2), HumanVideo(fps=15.0))
    run = Run.create(out, seed=SEED, options={"object": OBJECT})
    loop.loop(
        run, LabPlace(OBJECT, SEED, nice=False), cfg=LoopCfg(rounds=1, trials=2, pushes=0), cfgs=cfgs, plans=plans
    )  # fmt: skip


if __name__ == "__main__":
    _worker(Path(sys.argv[1]))
