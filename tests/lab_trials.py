"""Trials in the lab, small and quick: a planned motion stands in for a trained policy. For deploy and audit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dexloop.core.artifact import save_arrays, write_text, writing
from dexloop.core.artifacts import Belief, Episodes, Policy, Twin
from dexloop.core.capture import StreamInfo
from dexloop.deploy.cfg import DeployCfg
from dexloop.deploy.stage import deploy
from dexloop.lab import Lab, LabCfg
from dexloop.lab.judge import Judge
from dexloop.lab.known_twin import known_twin
from dexloop.lab.rig import LabRig
from dexloop.rig.protocol import Features, Samples
from dexloop.rig.recorder import Recorder
from dexloop.robots.pickup import Load, Pickup
from dexloop.robots.staging import open_scene
from tests.policy.played import BRISK, Player
from tests.robots.pinched import pinch

QUICK = DeployCfg(trials=2, hold_s=0.2, shake_s=0.4)
HALF_M = 0.03
"""Of the lab's cube, less a little: so the jaws press firmly, whatever stiffness their servos have [m]."""


@dataclass
class Bench:
    """A lab with all that a deployment needs, and a witness of what happens in it."""

    lab: Lab
    folder: Path
    twin: Twin
    policy: Policy
    belief: Belief
    player: Player
    rigs: dict[int, LabRig] = field(default_factory=dict)
    judges: dict[int, Judge] = field(default_factory=dict)
    verdicts: dict[int, str] = field(default_factory=dict)
    """By the lab's own judge, who sees the truth."""
    felt: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Slip [m] and grip [N], by the same judge."""
    connected: list[int] = field(default_factory=list)
    """Trials for which the robot was connected."""

    def rig_of(self, number: int) -> LabRig:
        """A rig for each trial, with noise of its own."""
        rig = self.rigs[number] = self.lab.rig(session=number)
        self.judges[number], connect = self.lab.judge(rig), rig.connect

        def counted() -> None:
            self.connected.append(number)
            connect()

        rig.connect = counted  # type: ignore[method-assign]
        return rig

    def witness(self, number: int, what: str) -> None:
        """Asks the judge."""
        if what == "gripped":
            self.judges[number].gripped()
        else:
            judge = self.judges[number]
            self.verdicts[number], self.felt[number] = judge.verdict(), (judge.slip_m, judge.grip_n)

    @contextlib.contextmanager
    def played(self) -> Iterator[None]:
        """While it lasts, policies are what the player plays."""
        with pytest.MonkeyPatch.context() as patch:
            for stage in ("deploy", "audit"):
                patch.setattr(f"dexloop.{stage}.stage.open_policy", lambda _policy: self.player)
            yield


@dataclass(frozen=True)
class LabTrials:
    """What was deployed once, for many tests."""

    bench: Bench
    episodes: Episodes
    verdicts: dict[int, str]
    felt: dict[int, tuple[float, float]]
    connected: tuple[list[int], list[int]]
    """Trials for which the robot was connected, by the deployment that was killed and by the one that went on."""
    left: list[str]
    """What the first one left behind."""


def write_belief(folder: Path, rows: dict[str, Sequence[float]]) -> Belief:
    """A belief that holds these samples."""
    samples = np.stack([np.asarray(v, dtype=np.float64) for v in rows.values()], axis=1)
    with writing(folder, Belief) as draft:
        save_arrays(draft.folder / "posterior.npz", mean=samples.mean(0), covariance=np.cov(samples.T), samples=samples)
        draft.meta |= {"labels": list(rows), "parameters": {k: {"mean": float(np.mean(v))} for k, v in rows.items()}}
    return Belief.open(folder)


def write_policy(folder: Path, player: Player) -> Policy:
    """What a policy's artefact says beside its weights."""
    with writing(folder, Policy) as draft:
        write_text(draft.folder / "weights.safetensors", "none: it is played")
        write_text(draft.folder / "contract.json", "{}")
        draft.meta |= {"start": player.start.to_json(), "objects": list(player.points)}
    return Policy.open(folder)


def make_bench(folder: Path, *, seed: int = 3) -> Bench:
    """The lab's cube before a gripper, of which nearly the truth is believed."""
    lab = Lab(LabCfg(object="cube", robot="gripper@wrist", seed=seed, video=False))
    rig, truth, rng = lab.rig(), lab.truth(), np.random.default_rng(1)
    stream = StreamInfo("x", "scalar", ("x",), ("m",), "robot")
    with Recorder(
        folder / "capture", Features("lab", rig.features.robot, (stream,), (), None, rig.features.scene)
    ) as r:
        r.start("nothing")
        r.append_samples("x", Samples(np.zeros(1), np.zeros((1, 1))))
    assert r.capture is not None
    twin = known_twin(r.capture, folder / "twin")
    true = {
        "object.mass": truth.mass_kg, "fingertip.friction": truth.finger_friction, "actuator.gain": truth.actuator_gain,
        "actuator.delay": truth.delay_s,
    }  # fmt: skip
    rows = {name: value * np.exp(0.03 * rng.normal(size=50)) for name, value in true.items()}
    rows |= {"clock.camera": truth.clock_offset_s + 1e-3 * rng.normal(size=50)}
    rows |= {"gain.joint_effort": truth.effort_scale * np.exp(0.005 * rng.normal(size=50))}
    belief = write_belief(folder / "belief", rows)
    robot, base, scene = open_scene(twin, rig.features.robot)
    rest = truth.T_world_object
    pickup = Pickup(robot, scene.model, pinch(HALF_M), rest, Load.of(belief), BRISK)
    player = Player(pickup, base, rest, "cube")
    return Bench(lab, folder, twin, write_policy(folder / "policy", player), belief, player)


class Killed(BaseException):
    """Stands in for a signal."""


def make_trials(folder: Path) -> LabTrials:
    """Deploys, is killed after the first trial, and goes on."""
    bench, out = make_bench(folder), folder / "episodes"

    def kill(_text: str, done: float) -> None:
        if done == 0.5:
            raise Killed

    def again(**more: Any) -> Episodes:
        return deploy(
            bench.policy, bench.twin, bench.belief, bench.rig_of, out, cfg=QUICK, witness=bench.witness, **more
        )

    with bench.played():
        with contextlib.suppress(Killed):
            again(progress=kill)
        first, left = list(bench.connected), sorted(p.name for p in (folder / "episodes.trials").iterdir())
        bench.connected.clear()
        episodes = again()
    return LabTrials(bench, episodes, dict(bench.verdicts), dict(bench.felt), (first, list(bench.connected)), left)
