from dataclasses import replace

import numpy as np
import pytest

from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.fitting import UNEXPLAINED, humbled
from dexloop.identify.stage import solve, summary
from tests.identify.benches import Push, happen, pose_stream, robot_streams, strokes, write

BOTH = IdentifyCfg(parameters=("object.mass", "table.friction"))
KICKED_S = 1.0


def test_what_no_model_explains_late_in_a_push_is_left_out_and_said(push_model, tmp_path):
    """Something kicks the box aside near the end of one of two pushes."""
    motion = happen(Push(), strokes())
    kicked = pose_stream(motion, seed=1)
    late = np.maximum(kicked.t - KICKED_S, 0.0)
    kicked.value[:, 1] += np.minimum(0.4 * late, 0.1)
    streams = {"good": [*robot_streams(motion), pose_stream(motion)], "kicked": [*robot_streams(motion), kicked]}
    fit = solve(push_model, write(tmp_path, streams), cfg=BOTH)
    ends = {s.recording: s.end for s in fit.problem.segments}
    assert ends["kicked"] < KICKED_S + 0.1
    assert ends["good"] > 1.15
    assert [n for n in fit.notes if n.startswith("of kicked only the first")]
    assert not [n for n in fit.notes if n.startswith("of good")]
    found = summary(fit)["parameters"]
    for name, truth in {"object.mass": Push().mass, "table.friction": Push().friction}.items():
        assert found[name]["mean"] == pytest.approx(truth, rel=0.06), name
        assert found[name]["interval"][0] < truth < found[name]["interval"][1], name


def test_a_push_that_is_explained_is_used_whole(push_model, push_capture):
    fit = solve(push_model, push_capture, cfg=BOTH)
    (segment,) = fit.problem.segments
    assert segment.end > 1.15
    assert not [n for n in fit.notes if "only the first" in n]
    assert fit.solver.misfits(fit.estimate)["push"] < 1.5


def test_a_motion_that_is_not_explained_tells_hardly_anything(push_model, push_capture):
    fit = solve(push_model, push_capture, cfg=BOTH)
    assert humbled(fit.solver, fit.estimate) is fit.estimate, "this one is explained"
    lost = replace(fit.estimate, theta=fit.estimate.theta + np.array([3.0, *np.zeros(len(fit.estimate.theta) - 1)]))
    worst = max(fit.solver.misfits(lost).values())
    assert worst > UNEXPLAINED
    sd, wide = (np.sqrt(np.diag(e.covariance))[0] for e in (fit.estimate, humbled(fit.solver, lost)))
    prior = fit.problem.prior_sd[0]
    assert 0.5 * worst / UNEXPLAINED * sd < wide or wide > 0.5 * prior
    assert wide <= prior * (1 + 1e-9), "it knows no less than before"
