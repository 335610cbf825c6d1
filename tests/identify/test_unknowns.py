import numpy as np
import pytest

from dexloop.core.errors import InputError, NoEffect, UnknownName
from dexloop.identify.unknowns import DELAY, model_unknown, robot_names, standard_names, with_priors
from dexloop.sim.scene import Scene
from tests.identify.benches import Arm, Push, Toss, model_file


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Scene:
    return Scene.open(model_file(tmp_path_factory.mktemp("push"), Push()), max_delay_s=0.0)


def test_the_default_prior_is_about_the_models_own_value(scene):
    mass = model_unknown(scene, "object.mass")
    assert mass.value(mass.mean)[0] == pytest.approx(0.25)
    assert np.exp(1.96 * mass.sd[0]) == pytest.approx(7.0, rel=0.02)
    assert mass.describe_prior() == "0.25 kg, within a factor 7.1 (95 %)"


def test_an_inertia_has_six_components(scene):
    inertia = model_unknown(scene, "object.inertia")
    assert inertia.size == 6
    expected = 0.25 * 0.06**2 / 6.0  # of a solid cube: m s² / 6
    np.testing.assert_allclose(inertia.value(inertia.mean), [expected] * 3 + [0.0] * 3, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("object.weight", UnknownName, r"weight.*mass"),
        ("mug.mass", UnknownName, r"mug.*box"),
        ("mass", UnknownName, "mass"),
        ("camera.pose", (UnknownName, NoEffect), "camera"),
    ],
)
def test_names_that_mean_nothing_are_refused(scene, name, error, message):
    with pytest.raises(error, match=message):
        model_unknown(scene, name)


def test_a_delay_needs_actuators(tmp_path):
    with pytest.raises(NoEffect, match="no actuators"):
        model_unknown(Scene.open(model_file(tmp_path, Toss()), max_delay_s=0.0), DELAY)


def test_a_users_prior_takes_the_place_of_the_default(scene):
    (mass,) = with_priors([model_unknown(scene, "object.mass")], ["object.mass=0.4:0.02"])
    assert mass.value(mass.mean)[0] == pytest.approx(0.4)
    assert mass.sd[0] == pytest.approx(0.05)


@pytest.mark.parametrize("text", ["object.mass", "object.mass=0.4", "object.mass=0.4:0.1:2", "object.mass=a:b"])
def test_a_prior_that_is_written_otherwise_is_refused(scene, text):
    with pytest.raises(InputError, match="NAME=MEAN:SD"):
        with_priors([model_unknown(scene, "object.mass")], [text])


@pytest.mark.parametrize(
    "text", ["object.mass=-1:0.1", "object.mass=0.4:0", "object.mass=nan:0.1", "object.mass=1e9:1"]
)
def test_an_impossible_prior_is_refused(scene, text):
    with pytest.raises(InputError, match="impossible"):
        with_priors([model_unknown(scene, "object.mass")], [text])


def test_a_prior_of_several_numbers_is_refused(scene):
    with pytest.raises(InputError, match="6 components"):
        with_priors([model_unknown(scene, "object.inertia")], ["object.inertia=1:1"])


def test_what_is_asked_by_default_is_what_the_scene_has(scene, tmp_path):
    assert {"object.mass", "table.friction"} <= set(standard_names(scene))
    assert not any(name.startswith("fingertip") for name in standard_names(scene))
    arm = Scene.open(model_file(tmp_path, Arm()), max_delay_s=0.0)
    assert robot_names(arm) == ["actuator.gain", "actuator.damping", "joint.friction", "joint.armature", DELAY]
