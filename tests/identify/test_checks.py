import numpy as np
import pytest

from dexloop.core.errors import NoEffect
from dexloop.identify.checks import effects, sampled
from dexloop.identify.problem import Problem
from dexloop.identify.segments import cut
from dexloop.identify.solver import Solver
from dexloop.identify.streams import match
from dexloop.identify.unknowns import model_unknown
from dexloop.sim.scene import Scene
from tests.identify.benches import Push, happen, model_file, pose_stream, ramp, robot_streams, write

MOTION = happen(Push(), ramp(0.4, start_s=0.15, distance=0.04, rest_s=0.25))


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    streams = [*robot_streams(MOTION), pose_stream(MOTION)]
    return write(tmp_path_factory.mktemp("push"), {"push": streams}).recording()


def tried(recording, folder, xml, names, *, strict: bool):
    scene = Scene.open(model_file(folder, xml), max_delay_s=0.0)
    unknowns, notes = [model_unknown(scene, n) for n in names], []
    segments = cut(scene, match(scene, recording), window_s=0.25)
    kept, left = effects(scene, unknowns, segments, names, strict=strict, notes=notes)
    return kept, [u.name for u in left], notes


# MuJoCo takes the larger friction of two geoms of equal priority: that of a table smoother than the box has no effect.
SMOOTHER = Push().xml().replace('priority="1"', "")


def test_what_matters_stays(recording, tmp_path):
    names = ("object.mass", "table.friction")
    kept, left, notes = tried(recording, tmp_path, Push(), names, strict=True)
    assert (kept, left, notes) == (names, list(names), [])


def test_what_was_asked_for_and_changes_nothing_is_an_error(recording, tmp_path):
    with pytest.raises(NoEffect, match=r"^table\.friction changes nothing in these recordings: leave it out"):
        tried(recording, tmp_path, SMOOTHER, ("object.mass", "table.friction"), strict=True)


def test_what_was_not_asked_for_by_name_is_left_out_with_a_note(recording, tmp_path):
    kept, left, notes = tried(recording, tmp_path, SMOOTHER, ("object.mass", "table.friction"), strict=False)
    assert kept == ("object.mass",)
    assert left == ["object.mass"]
    assert notes == ["table.friction changes nothing in these recordings: left out"]


def test_a_gaussian_that_is_right_is_found_fair(recording, tmp_path):
    """Draws from a covariance of the cost's own curvature cost as much as they should; far too wide ones do not."""
    scene = Scene.open(model_file(tmp_path, Push()), max_delay_s=0.0)
    unknowns = [model_unknown(scene, n) for n in ("object.mass", "table.friction")]
    solver = Solver(Problem(scene, unknowns, cut(scene, match(scene, recording), window_s=0.25)))
    found = solver.finish(solver.descend(solver.start()))
    draws, figures = sampled(solver, found, seed=0)
    assert 0.0 < figures["effective_share"] <= 1.0
    assert figures["gaussian_is_fair"] == (draws is None)
    if draws is not None:
        assert np.isfinite(draws).all()
        assert (draws >= solver.lower).all()
        assert (draws <= solver.upper).all()
