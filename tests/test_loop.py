"""What the loop decides between its stages; that it goes round as a whole is tested with the demo."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dexloop.core.artifact import load_arrays
from dexloop.core.run import Run
from dexloop.loop import TOLD, _guess
from dexloop.loop_cfg import LoopCfg
from dexloop.robots.pickup import Load
from dexloop.sim.believed import mean_of
from tests.lab_trials import write_belief


def test_a_guess_is_one_of_the_object_and_not_of_the_sensors(tmp_path: Path):
    rng = np.random.default_rng(0)
    rows = {
        "object.mass": 0.4,
        "clock.camera": 0.05,
        "actuator.gain": 0.9,
        "gain.joint_effort": 1.2,
        "bias.pose.x": 2e-3,
    }
    belief = write_belief(tmp_path / "belief", {k: v * np.exp(0.01 * rng.normal(size=60)) for k, v in rows.items()})
    guess = _guess(Run.create(tmp_path / "run"), belief, LoopCfg(guess_kg=0.3, guess_friction=0.6))
    assert guess.header.meta["labels"] == [*TOLD, "table.friction", "clock.camera", "gain.joint_effort", "bias.pose.x"]
    for label in ("clock.camera", "gain.joint_effort", "bias.pose.x"):
        assert mean_of(guess, label, otherwise=np.nan) == mean_of(belief, label, otherwise=np.nan)
    posterior, told = load_arrays(guess.path / "posterior.npz"), Load.of(guess)
    np.testing.assert_allclose(posterior["mean"], posterior["samples"].mean(axis=0))
    assert posterior["covariance"].shape == (6, 6)
    np.testing.assert_allclose([told.mass_kg, told.friction], [0.3, 0.6], rtol=0.1)
    assert set(guess.header.meta["parameters"]) == {*TOLD, "table.friction"}
