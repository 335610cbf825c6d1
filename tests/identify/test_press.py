"""Presses of the lab, whose robot is as its model says, so that nothing but the press has to be looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dexloop.capture import FreeMotion, Press, capture
from dexloop.core.errors import InputError
from dexloop.identify import stage
from dexloop.identify.calibrate import Calibration
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.press import SOFTNESS, Pressed, is_press, pressed
from dexloop.identify.solver import Solver
from dexloop.identify.stage import open_scene, solve, summary
from dexloop.identify.unknowns import DELAY, PRIOR_SD, model_unknown, robot_names
from dexloop.lab import Lab, LabCfg
from dexloop.lab.known_twin import known_twin
from dexloop.sim.scene import Scene
from tests.identify.benches import Push as Bench
from tests.identify.benches import happen, pose_stream, robot_streams, strokes, write

AS_DESCRIBED = {
    "actuator_gain": 1.0, "actuator_damping": 1.0, "joint_friction": 1.0, "joint_armature": 1.0, "delay_s": 0.00175,
}  # fmt: skip
LOWER_M = 3e-4
SHORT = Press(presses=2, settle_s=0.1)
BOTH = IdentifyCfg(parameters=("object.mass", "table.friction"))


@pytest.fixture(scope="module", params=[1, 6])
def lab(request):
    return Lab(LabCfg(object="cube", seed=request.param, video=False)).otherwise(**AS_DESCRIBED)


@pytest.fixture(scope="module")
def recorded(lab, tmp_path_factory):
    plans = [FreeMotion(duration_s=0.5), SHORT]
    return capture(lab.rig(), plans, tmp_path_factory.mktemp("press") / "capture")


@pytest.fixture(scope="module")
def twin(recorded, tmp_path_factory):
    return known_twin(recorded, tmp_path_factory.mktemp("twin") / "twin")


@pytest.fixture(scope="module")
def scene(recorded, twin) -> Scene:
    """A model whose table is a little too low, as no robot knows better; what does not move in it is held fast."""
    made = open_scene(twin, list(recorded.recordings.values()), IdentifyCfg())
    made = stage.freeze(made, stage._still_joints(made, [recorded.recording("press")]))
    made.model.geom_pos[made.model.geom("table").id, 2] -= LOWER_M
    return made


@pytest.fixture(scope="module")
def calibration(scene) -> Calibration:
    """As good as one gets."""
    unknowns = [model_unknown(scene, name) for name in robot_names(scene)]
    sd = np.array([1e-4 if u.name == DELAY else 0.02 for u in unknowns])
    known = [replace(u, mean=np.zeros(1), sd=sd[k : k + 1]) for k, u in enumerate(unknowns)]
    return Calibration(tuple(known), np.zeros(len(sd)), np.diag(sd**2), None, None)


def _pressed(recorded, scene, calibration) -> Pressed:
    press = recorded.recording("press")
    there = {scene.model.joint(j).name for j in range(scene.model.njnt)}
    return pressed(scene, [press], calibration, held=set(press.stream("joint_position").info.channels) - there)


@pytest.fixture(scope="module")
def found(recorded, scene, calibration) -> Pressed:
    return _pressed(recorded, scene, calibration)


def test_what_was_planted_is_found_though_the_table_is_not_where_it_should_be(found, lab):
    (told,) = found.unknowns
    truth = np.log(lab.truth().fingertip_softness_s ** -2)
    mean, sd = float(told.mean[0]), float(told.sd[0])
    assert mean - 1.96 * sd <= truth <= mean + 1.96 * sd
    assert sd < 0.1 * PRIOR_SD["stiffness"]
    assert float(found.before.sd[0]) == PRIOR_SD["stiffness"]
    height = found.estimate.theta[found.solver.problem.where("table.height").start]
    assert height == pytest.approx(LOWER_M, abs=3e-5)
    assert any(SOFTNESS in note and "press" in note for note in found.notes)


def test_a_press_that_is_too_gentle_is_not_used_and_says_how_hard_it_should_be(
    found, recorded, scene, calibration, monkeypatch
):
    monkeypatch.setattr("dexloop.identify.press._over_softness", lambda _: found.estimate)
    monkeypatch.setattr(Solver, "descend", lambda _, estimate, **__: estimate)
    monkeypatch.setattr("dexloop.identify.press._felt_n", lambda _: 0.5)
    said = _pressed(recorded, scene, calibration)
    assert said.unknowns == ()
    assert any("felt 0.5 N, press with" in note for note in said.notes)


def test_a_press_is_gentle_and_leaves_the_object_alone(recorded):
    press = recorded.recording("press")
    assert is_press(press)
    assert not is_press(recorded.recording("free_motion"))
    assert 4.0 < press.stream("touch").value.max() < 15.0
    pose = press.stream("object_pose").value
    assert np.linalg.norm(np.median(pose[-20:, :3], axis=0) - np.median(pose[:20, :3], axis=0)) < 1e-3


def test_a_robot_and_a_press_are_not_enough(recorded, twin, monkeypatch):
    monkeypatch.setattr(stage, "calibrate", lambda *_, **__: None)
    with pytest.raises(InputError, match="no recording shows the object being moved"):
        solve(twin, recorded)


@pytest.mark.parametrize(("least", "message"), [(None, "has no touch"), (0.0, "no fingertip touches the table")])
def test_a_press_that_tells_nothing_is_refused(recorded, scene, calibration, monkeypatch, least, message):
    real = stage.match

    def without(*args, **kwargs):
        matched = real(*args, **kwargs)
        kept = [replace(m, value=least * m.value) if m.kind == "touch" and least is not None else m for m in
                matched.measured if m.kind != "touch" or least is not None]  # fmt: skip
        return replace(matched, measured=tuple(kept))

    monkeypatch.setattr("dexloop.identify.press.match", without)
    with pytest.raises(InputError, match=message):
        _pressed(recorded, scene, calibration)


def test_a_model_without_fingertips_is_refused(push_model, tmp_path, monkeypatch):
    motion = happen(Bench(), strokes())
    streams = [*robot_streams(motion), pose_stream(motion)]
    both = write(tmp_path, {"press": streams, "push": streams})
    monkeypatch.setattr(stage, "is_press", lambda r: r.name == "press")
    with pytest.raises(InputError, match="has no fingertips"):
        solve(push_model, both, cfg=BOTH)


def test_what_a_press_told_is_a_prior_that_pushes_keep(push_model, tmp_path, monkeypatch):
    """With a stand-in for softness that a small bench has: the friction of its table."""
    motion = happen(Bench(), strokes())
    both = write(tmp_path, {"press": robot_streams(motion), "push": [*robot_streams(motion), pose_stream(motion)]})
    before = model_unknown(Scene.open(push_model), "table.friction")
    told = replace(before, mean=np.log([0.3]), sd=np.array([0.03]))
    monkeypatch.setattr(stage, "is_press", lambda r: r.name == "press")
    monkeypatch.setattr(stage, "_pressed", lambda *_: Pressed((told,), before, ("a press told it",), None, None))
    monkeypatch.setattr(stage, "is_free_motion", lambda _: False)
    said = summary(solve(push_model, both, cfg=replace(BOTH, samples=16)))
    row = said["parameters"]["table.friction"]
    assert row["mean"] == pytest.approx(0.3, rel=0.03)
    assert row["sd"] < 0.04 * 0.3
    assert row["identifiable"], "against what was known before anything was recorded"
    assert said["parameters"]["object.mass"]["mean"] == pytest.approx(Bench().mass, rel=0.06)
    assert "a press told it" in said["notes"]
