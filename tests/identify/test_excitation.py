from dataclasses import replace

import numpy as np
import pytest

from dexloop.identify.excitation import with_friction_law
from dexloop.identify.problem import Problem
from dexloop.identify.segments import cut
from dexloop.identify.solver import MODEL_SD, Estimate
from dexloop.identify.streams import match
from dexloop.identify.unknowns import model_unknown
from dexloop.sim.scene import Scene
from tests.identify.benches import Push, happen, model_file, pose_stream, ramp, robot_streams, strokes, write

BEFORE = 0.03
"""Relative standard deviation of everything that is put in."""
BOTH = ("object.mass", "table.friction")


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Scene:
    return Scene.open(model_file(tmp_path_factory.mktemp("model"), Push()), max_delay_s=0.0)


def assessed(scene, folder, command, names=BOTH, lift=0.0) -> tuple[Problem, Estimate, Estimate]:
    """Records a push and returns an estimate that is right and equally sure of everything, before and after."""
    motion = happen(Push(), command)
    recording = write(folder, {"push": [*robot_streams(motion), pose_stream(motion)]}).recording()
    segments = cut(scene, match(scene, recording), window_s=0.25)
    segments = [replace(s, qpos=s.qpos + lift * np.eye(len(s.qpos))[2]) for s in segments]
    problem = Problem(scene, [model_unknown(scene, n) for n in names], segments)
    size = len(problem.channels)
    before = Estimate(
        problem.start_theta(), tuple(np.zeros(len(s.local_sd)) for s in segments), np.ones(size), np.ones(size),
        information=np.eye(problem.size) / BEFORE**2,
    )  # fmt: skip
    return problem, before, with_friction_law(problem, before)


def product_sd(estimate: Estimate) -> float:
    return float(np.sqrt(estimate.covariance.sum()))


def test_a_slow_push_leaves_mass_and_friction_open_but_not_their_product(scene, tmp_path):
    _, before, after = assessed(scene, tmp_path, ramp(0.02, distance=0.03))
    sd = np.sqrt(np.diag(after.covariance))
    assert (sd > 0.1).all()
    assert product_sd(after) == pytest.approx(product_sd(before), rel=1e-6)


def test_a_quick_push_that_coasts_stays_as_sure_as_friction_itself(scene, tmp_path):
    _, before, after = assessed(scene, tmp_path, strokes())
    added = np.sqrt(np.diag(after.covariance - before.covariance))
    # What coasts brakes with µ g for longer than a knock lasts, so it knows friction as well as any model does.
    assert (added <= 1.05 * MODEL_SD).all()
    assert (added > 0.2 * MODEL_SD).all()


def test_what_leaves_the_table_tells_its_weight(scene, tmp_path):
    _, before, after = assessed(scene, tmp_path, ramp(0.02, distance=0.03), lift=0.01)
    np.testing.assert_allclose(after.covariance, before.covariance, rtol=1e-9)


def test_friction_that_is_known_leaves_nothing_open(scene, tmp_path):
    _, before, after = assessed(scene, tmp_path, ramp(0.02, distance=0.03), names=("object.mass",))
    assert after is before
