from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.core.run import Run
from dexloop.view.contents import contents
from tests.twin.small import MASS_KG, POSE
from tests.view.runs import run_with_twin


def test_a_run_without_a_twin_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no twin"):
        contents(Run.create(tmp_path / "run"))


def test_a_twin_is_read_whole(tmp_path: Path) -> None:
    found = contents(run_with_twin(tmp_path / "pushes"))
    (block,) = found.objects
    assert found.title == "pushes: block"
    assert block.name == "block"
    assert block.splats is not None
    assert len(block.splats) == 400
    np.testing.assert_allclose(block.pose, POSE, atol=1e-6)
    np.testing.assert_allclose(np.ptp(block.shape.visual.vertices, axis=0), [0.06, 0.04, 0.08], atol=1e-6)
    assert len(block.shape.parts) == 1
    assert [(c.width, c.height, c.fx, c.cx) for c in found.cameras] == [(160, 120, 200.0, 79.5)] * 2
    assert block.mass.twin == pytest.approx(MASS_KG)
    assert (block.mass.mean, block.mass.interval) == (None, None)
    assert block.mass.words == "twin: 0.1 kg; not identified"


def test_a_belief_stands_beside_the_twins_guess(tmp_path: Path) -> None:
    belief = {"object.mass": {"mean": 0.21, "interval": [0.2, 0.22]}}
    found = contents(run_with_twin(tmp_path / "run", splats=False, belief=belief))
    mass, friction = found.objects[0].mass, found.friction
    assert (mass.twin, mass.best, mass.interval) == (pytest.approx(MASS_KG), 0.21, (0.2, 0.22))
    assert mass.words == "twin: 0.1 kg; belief: 0.21 kg, 95 % interval 0.2 to 0.22 kg"
    low, high = mass.range
    assert low < mass.twin < mass.interval[1] < high
    assert friction.best == friction.twin == 0.5
    assert friction.words == "twin: 0.5; not identified"
