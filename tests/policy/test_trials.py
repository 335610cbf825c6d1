from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from dexloop.core.artifact import write_text, writing
from dexloop.core.artifacts import Episodes
from dexloop.core.capture import StreamInfo
from dexloop.core.errors import InputError
from dexloop.policy.trials import Trial, finite, load_of, outcome_of, plain_load, trials_of
from dexloop.rig.protocol import Features, Samples
from dexloop.rig.recorder import Recorder
from dexloop.robots.outcome import MISSED, Outcome
from dexloop.robots.pickup import Load

LOAD = Load(0.2, 0.3, 0.5, (0.01, 0.0, -0.02))
MISS = Outcome(MISSED, 0.1, 0.0, 3.5, math.nan)
TRIAL = Trial(
    7, True, (0.01, -0.02, 0.3), np.eye(4).tolist(), np.eye(4).tolist(), plain_load(LOAD), {"begin": 1.5},
    finite(asdict(MISS)), [{"action": "slow"}],
)  # fmt: skip


def episodes(folder: Path, text: str) -> Episodes:
    stream = StreamInfo("x", "scalar", ("x",), ("m",), "robot")
    with writing(folder / "episodes", Episodes) as draft:
        write_text(draft.folder / "trials.json", text)
        with Recorder(draft.folder / "trials" / "07", Features("bench", {}, (stream,), (), None, {})) as recorder:
            recorder.start("trial_07")
            recorder.append_samples("x", Samples(np.zeros(1), np.zeros((1, 1))))
    return Episodes.open(folder / "episodes")


def test_trials_are_read_as_they_were_written_each_with_its_recording(tmp_path: Path):
    [(trial, capture)] = trials_of(episodes(tmp_path, json.dumps([asdict(TRIAL)], allow_nan=False)))
    assert replace(trial, load=TRIAL.load) == TRIAL
    assert list(capture.recordings) == ["trial_07"]
    assert load_of(trial.load) == load_of(TRIAL.load)


@pytest.mark.parametrize("text", ["[", "[{}]", '[{"number": 1}]', json.dumps([{**asdict(TRIAL), "more": 1}])])
def test_damaged_trials_are_an_error(tmp_path: Path, text: str):
    with pytest.raises(InputError, match=r"damaged.*deploy again"):
        trials_of(episodes(tmp_path, text))


def test_numbers_that_are_none_pass_through_json():
    said = json.loads(json.dumps(finite(asdict(MISS)), allow_nan=False))
    assert said["off_s"] is None
    found = outcome_of(said)
    assert math.isnan(found.off_s)
    assert (found.verdict, found.slip_m, found.peak_force_n) == (MISS.verdict, MISS.slip_m, MISS.peak_force_n)


def test_a_load_that_bears_anything_passes_through_json():
    assert LOAD.crush_n == math.inf
    found = load_of(json.loads(json.dumps(plain_load(LOAD), allow_nan=False)))
    assert found.crush_n >= 1e9
    assert (found.mass_kg, found.mass_high_kg, found.friction, found.com) == (0.2, 0.3, 0.5, LOAD.com)
    weak = Load(0.2, 0.3, 0.5, crush_n=12.0)
    assert load_of(plain_load(weak)) == weak
