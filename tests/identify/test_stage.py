import json
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from dexloop.capture.importing import import_capture
from dexloop.core.artifact import load_arrays
from dexloop.core.artifacts import Belief
from dexloop.core.errors import InputError, NoEffect, UnknownName
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.stage import Fit, identify, solve, summary
from tests.identify.benches import (
    Push,
    Toss,
    happen,
    model_file,
    pose_stream,
    pushed,
    ramp,
    robot_streams,
    strokes,
    write,
)

BOTH = IdentifyCfg(parameters=("object.mass", "table.friction"))
TRUTH = Push()


def check(fit: Fit, *, mass: float = TRUTH.mass, friction: float = TRUTH.friction, within: float = 0.06) -> None:
    """Checks that mass and friction are right to a few percent, and inside their own 95 % intervals."""
    found = summary(fit)["parameters"]
    for name, truth in {"object.mass": mass, "table.friction": friction}.items():
        row = found[name]
        assert row["identifiable"], f"{name} was not found"
        assert row["mean"] == pytest.approx(truth, rel=within), name
        assert row["interval"][0] <= truth <= row["interval"][1], f"{name}: {row}"
        assert row["interval"][1] - row["interval"][0] < 0.4 * truth, f"{name} says nothing: {row}"


@pytest.mark.parametrize(("heavier", "rougher"), [(2.5, 0.5), (0.4, 2.0), (3.0, 2.5), (0.35, 0.4)])
def test_mass_and_friction_are_found_from_far_off(push_capture, tmp_path, heavier, rougher):
    start = Push(TRUTH.mass * heavier, TRUTH.friction * rougher)
    fit = solve(model_file(tmp_path, start), push_capture, cfg=BOTH)
    check(fit)
    assert summary(fit)["status"] == "ok"


@pytest.mark.parametrize("clock", ["camera", "robot"])
@pytest.mark.parametrize("late_s", [0.04, -0.04])
def test_a_clock_that_is_off_is_found_and_does_no_harm(push_model, tmp_path, late_s, clock):
    """Also where a stream claims to be on the robot's clock."""
    fit = solve(push_model, pushed(tmp_path, TRUTH, strokes(), late_s=late_s, clock=clock), cfg=BOTH)
    offset = summary(fit)["clocks"]["camera" if clock == "camera" else "pose"]
    assert offset["offset_s"] == pytest.approx(late_s, abs=0.003)
    check(fit)


@pytest.fixture(scope="module")
def slow(tmp_path_factory) -> Fit:
    folder = tmp_path_factory.mktemp("slow")
    capture = pushed(folder, TRUTH, ramp(0.02, start_s=0.1, distance=0.035, rest_s=0.1))
    return solve(model_file(folder, Push(mass=0.5, friction=0.2)), capture, cfg=BOTH)


def test_a_slow_push_tells_only_mass_times_friction(slow):
    said = summary(slow)
    assert said["parameters"]["object.mass"]["identifiable"] is False
    product = next(c for c in said["combinations"] if c["name"] == "object.mass × table.friction")
    assert product["value"] == pytest.approx(TRUTH.mass * TRUTH.friction, rel=0.05)
    assert product["interval"][0] <= TRUTH.mass * TRUTH.friction <= product["interval"][1]
    assert product["unit"] == "kg"


def test_what_cannot_be_told_says_what_to_do(slow):
    said = summary(slow)
    assert (said["status"], said["code"]) == ("warn", "not_identifiable")
    assert "object.mass" in said["text"]
    assert "only object.mass × table.friction" in said["text"]
    assert "faster" in said["action"]


def test_intervals_of_a_slow_push_hold_the_truth(slow):
    found = summary(slow)["parameters"]
    assert found["object.mass"]["interval"][0] <= TRUTH.mass <= found["object.mass"]["interval"][1]
    assert found["table.friction"]["interval"][0] <= TRUTH.friction <= found["table.friction"]["interval"][1]


def test_a_model_with_mujocos_own_contacts_is_found_too(tmp_path):
    """Its contacts set in at once, so that a sliding box hops: the motion is a matter of chance in small things."""

    def plain(xml: str) -> str:
        return xml.replace('solref="0.006 1" solimp="0 0.95 0.001 0.5 2"', "")

    class Plain(Push):
        def xml(self, timestep: float = 0.002) -> str:
            return plain(super().xml(timestep))

    capture = pushed(tmp_path, Plain(), strokes())
    fit = solve(model_file(tmp_path, Plain(mass=0.1, friction=0.5)), capture, cfg=BOTH)
    check(fit, within=0.12)


TOSS = Toss()
TOSSED = ("object.mass", "object.inertia", "table.friction")


@pytest.fixture(scope="module")
def toss(tmp_path_factory) -> Fit:
    rng = np.random.default_rng(3)
    folder, found = tmp_path_factory.mktemp("toss"), {}
    for k in range(4):
        turn = rng.standard_normal(4)
        velocity = np.r_[rng.uniform(-1.0, 1.0, 2), 0.0, rng.uniform(-6.0, 6.0, 3)]
        qpos = np.r_[0.0, 0.0, 0.25, turn / np.linalg.norm(turn)]
        motion = happen(TOSS, duration_s=0.7, qpos=qpos, velocity=velocity)
        found[f"toss{k}"] = [pose_stream(motion, rate_hz=150.0, seed=k)]
    model = model_file(folder, Toss(mass=1.0, inertia=1.4e-3, friction=0.35))
    return solve(model, write(folder, found), cfg=IdentifyCfg(parameters=TOSSED))


def test_a_free_toss_tells_nothing_of_mass(toss):
    said = summary(toss)
    assert said["parameters"]["object.mass"]["identifiable"] is False
    assert said["status"] == "warn"
    assert "push the object or lift it" in said["action"]


def test_a_free_toss_tells_friction(toss):
    row = summary(toss)["parameters"]["table.friction"]
    assert row["identifiable"]
    assert row["mean"] == pytest.approx(TOSS.friction, rel=0.1)
    assert row["interval"][0] <= TOSS.friction <= row["interval"][1]


def test_a_free_toss_tells_inertia_over_mass(toss):
    said = summary(toss)
    ratio = next(c for c in said["combinations"] if c["name"] == "object.inertia ÷ object.mass")
    assert ratio["value"] == pytest.approx(TOSS.inertia / TOSS.mass, rel=0.1)
    assert ratio["interval"][0] <= TOSS.inertia / TOSS.mass <= ratio["interval"][1]
    assert ratio["unit"] == "m²"


def test_a_toss_that_was_not_fitted_is_predicted_better_than_before(toss):
    ahead = summary(toss)["checks"]["held_out"]
    assert ahead["recordings"] == ["toss3"]
    assert all(ahead["after"][k] < ahead["before"][k] for k in ahead["after"]), ahead
    assert ahead["better"]


def test_a_belief_holds_what_was_found(push_model, push_capture, tmp_path):
    belief = identify(push_model, push_capture, tmp_path / "belief", cfg=replace(BOTH, samples=16))
    assert isinstance(belief, Belief)
    arrays = load_arrays(belief.path / "posterior.npz")
    labels = belief.header.meta["labels"]
    assert labels[:2] == ["object.mass", "table.friction"]
    assert arrays["covariance"].shape == (len(labels), len(labels))
    assert arrays["samples"].shape[1] == len(labels)
    said = json.loads((belief.path / "identify.json").read_text())
    row = said["parameters"]["object.mass"]
    low, high = np.percentile(arrays["samples"][:, 0], [2.5, 97.5])
    np.testing.assert_allclose([low, high], row["interval"], rtol=0.05)
    assert set(row) >= {"mean", "sd", "interval", "identifiable", "unit"}
    assert {"camera"} <= set(said["clocks"])


def test_a_folder_of_csv_files_is_enough(push_model, tmp_path):
    """As docs/capture-format.md says, with degrees of freedom named by the user and times in milliseconds."""
    motion = happen(TRUTH, strokes())
    source = tmp_path / "mine"
    source.mkdir()
    text = []
    for s in [*robot_streams(motion), pose_stream(motion)]:
        head = ",".join(["t", *s.info.channels])
        np.savetxt(source / f"{s.info.name}.csv", np.c_[1e3 * s.t, s.value], delimiter=",", header=head, comments="")
        unit = {"joint_effort": "N"}.get(s.info.name, "m")
        about = '\nabout = "object"' if s.info.kind == "pose" else ""
        text.append(
            f'[streams.{s.info.name}]\nkind = "{s.info.kind}"\nunit = "{unit}"\ntime_unit = "ms"\n'
            f'clock = "{s.info.clock}"{about}\n'
        )
    (source / "capture.toml").write_text("\n".join(text))
    check(solve(push_model, import_capture(source, tmp_path / "capture"), cfg=BOTH))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"parameters": ("object.mas",)}, UnknownName, r"object\.mas"),
        ({"parameters": ("mug.mass",)}, UnknownName, "mug"),
        ({"recordings": ("lift",)}, UnknownName, "unknown recording 'lift'.*push"),
        ({"held_out": ("lift",)}, UnknownName, "unknown recording 'lift'.*push"),
        ({"held_out": ("push",)}, InputError, "held out"),
        ({"priors": ("object.mass=heavy",)}, InputError, "NAME=MEAN:SD"),
        ({"priors": ("table.grip=1:1",)}, UnknownName, r"table\.grip"),
        ({"priors": ("object.mass=0.3:-1",)}, InputError, "impossible"),
    ],
)
def test_options_that_match_nothing_are_refused(push_model, push_capture, options, error, message):
    with pytest.raises(error, match=message):
        solve(push_model, push_capture, cfg=replace(BOTH, **options))


def test_a_parameter_without_effect_is_refused(push_capture, tmp_path):
    """MuJoCo takes the larger friction of two geoms of equal priority, so that of a smooth table changes nothing."""
    xml = Push().xml().replace('priority="1"', "")
    with pytest.raises(NoEffect, match=r"table\.friction changes nothing.*leave it out"):
        solve(model_file(tmp_path, xml), push_capture, cfg=BOTH)


def test_an_empty_capture_is_refused(push_model, tmp_path):
    with pytest.raises(InputError, match="no recording"):
        solve(push_model, write(tmp_path, {}), cfg=BOTH)


def test_a_robot_that_moves_alone_is_not_enough(push_model, tmp_path):
    alone = write(tmp_path, {"free": robot_streams(happen(Push(), 0.0 * ramp(0.3)))})
    with pytest.raises(InputError, match="no recording shows the object being moved"):
        solve(push_model, alone, cfg=BOTH)


def test_an_object_that_never_moves_is_told(push_model, tmp_path):
    """Nothing touches the box: neither its mass nor its friction shows."""
    motion = happen(Push(), ramp(0.1, distance=0.004, rest_s=0.3))
    capture = write(tmp_path, {"push": [*robot_streams(motion), pose_stream(motion)]})
    with pytest.raises((InputError, NoEffect), match=r"move|changes nothing"):
        solve(push_model, capture, cfg=BOTH)


@pytest.mark.parametrize("keep", [0, 2])
def test_a_recording_that_is_too_short_is_refused(push_model, tmp_path, keep):
    motion = happen(Push(), ramp(0.3))
    short = [replace(s, t=s.t[:keep], value=s.value[:keep]) for s in [*robot_streams(motion), pose_stream(motion)]]
    with pytest.raises(InputError, match=r"too short|no stream|no sample|empty"):
        solve(push_model, write(tmp_path, {"push": short}), cfg=BOTH)


def test_a_model_that_does_not_compile_is_refused(push_capture, tmp_path):
    bad = Push().xml().replace('mass="0.25"', 'mass="-1"')
    with pytest.raises(InputError, match=r"model\.xml"):
        solve(model_file(tmp_path, bad), push_capture, cfg=BOTH)
    with pytest.raises(InputError, match="there is no model"):
        solve(tmp_path / "nothing.xml", push_capture, cfg=BOTH)


def test_a_pose_in_another_frame_is_refused(push_model, tmp_path):
    motion = happen(Push(), strokes())
    pose = pose_stream(motion)
    high = replace(pose, value=pose.value + np.r_[0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0])
    with pytest.raises(InputError, match=r"does not rest where the recording says.*check the pose's frame"):
        solve(push_model, write(tmp_path, {"push": [*robot_streams(motion), high]}), cfg=BOTH)


def test_outliers_do_little_harm(push_model, tmp_path):
    """One pose in thirty is 20 mm off, as when a tracker slips for a frame."""
    motion = happen(TRUTH, strokes())
    pose = pose_stream(motion)
    value = pose.value.copy()
    value[5::30, 0] += 0.02
    check(solve(push_model, write(tmp_path, {"push": [*robot_streams(motion), replace(pose, value=value)]}), cfg=BOTH))


def test_the_benches_are_what_they_say():
    """A push of the bench itself follows F = m a + mu m g."""
    motion = happen(TRUTH, strokes())
    coast = (motion.t > 0.45) & (motion.t < 0.52)  # after the first stroke nothing touches the box
    slope = np.polyfit(motion.t[coast], motion.qvel[coast, 0], 1)[0]
    assert slope == pytest.approx(-TRUTH.friction * 9.81, rel=0.02)
    model = mujoco.MjModel.from_xml_string(TRUTH.xml())
    assert model.body("box").mass[0] == TRUTH.mass
