import numpy as np
import pytest

from dexloop.core.status import Level
from dexloop.identify.unknowns import Unknown, model_unknown
from dexloop.identify.verdict import judge, status_of
from dexloop.sim.scene import Scene
from tests.identify.benches import Push, Toss, model_file

ASKED = ("object.mass", "table.friction")


@pytest.fixture
def unknowns(tmp_path) -> list[Unknown]:
    scene = Scene.open(model_file(tmp_path, Push(mass=0.5, friction=0.2)), max_delay_s=0.0)
    return [model_unknown(scene, name) for name in ASKED]


def covariance(sd: float, along: tuple[float, float], other: float) -> np.ndarray:
    """Returns one with a standard deviation along a direction, and another across it."""
    v = np.array(along) / np.hypot(*along)
    w = np.array([-v[1], v[0]])
    return sd**2 * np.outer(v, v) + other**2 * np.outer(w, w)


def test_what_is_known_alone_needs_no_combination(unknowns):
    verdict = judge(unknowns, np.log([0.25, 0.3]), 0.02**2 * np.eye(2))
    assert verdict.identifiable == {"object.mass": True, "table.friction": True}
    assert verdict.combinations == ()
    assert verdict.undetermined == ()


def test_a_product_is_named_and_valued(unknowns):
    verdict = judge(unknowns, np.log([0.25, 0.3]), covariance(0.02, (1.0, 1.0), 0.5))
    assert verdict.identifiable == {"object.mass": False, "table.friction": False}
    (found,) = verdict.combinations
    assert (found.words, found.unit) == ("object.mass × table.friction", "kg")
    assert found.value == pytest.approx(0.075)
    assert found.sd == pytest.approx(0.02 * np.sqrt(2.0))  # log(m mu) = log m + log mu
    assert found.interval == pytest.approx((0.075 * np.exp(-1.96 * found.sd), 0.075 * np.exp(1.96 * found.sd)))
    assert verdict.directions[0].words in ("object.mass × table.friction", "table.friction × object.mass")
    assert verdict.directions[0].share < 0.1 < verdict.directions[1].share


def test_a_quotient_is_named_and_valued(unknowns):
    (found,) = judge(unknowns, np.log([0.25, 0.5]), covariance(0.02, (1.0, -1.0), 0.5)).combinations
    assert found.words == "object.mass ÷ table.friction"
    assert found.value == pytest.approx(0.5)


def test_inertia_over_mass_is_what_a_toss_tells(tmp_path):
    scene = Scene.open(model_file(tmp_path, Toss()), max_delay_s=0.0)
    both = [model_unknown(scene, name) for name in ("object.mass", "object.inertia")]
    mean = np.concatenate([u.mean for u in both])
    free = np.r_[1.0, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0]  # as if the density changed
    (found,) = judge(both, mean, 0.01**2 * np.eye(7) + 0.3**2 * np.outer(free, free)).combinations
    assert (found.words, found.unit) == ("object.inertia ÷ object.mass", "m²")
    assert found.value == pytest.approx(Toss().inertia / Toss().mass, rel=1e-6)


def test_what_is_no_better_known_than_before_is_not_identifiable(unknowns):
    verdict = judge(unknowns, np.log([0.25, 0.3]), np.diag([u.sd[0] ** 2 for u in unknowns]))
    assert not any(verdict.identifiable.values())
    assert verdict.combinations == ()
    np.testing.assert_allclose([d.share for d in verdict.directions], 1.0)


def test_the_status_says_what_to_do(unknowns):
    slow = judge(unknowns, np.log([0.25, 0.3]), covariance(0.02, (1.0, 1.0), 0.5))
    pushed = status_of(slow, asked=ASKED, moved="pushed", lifted=False, notes=[])
    assert (pushed.level, pushed.code) == (Level.WARN, "not_identifiable")
    assert "only object.mass × table.friction = 0.075 kg ± 6 %" in pushed.message
    assert "Push faster" in pushed.action
    assert "lift it" in pushed.action
    free = status_of(slow, asked=ASKED, moved="free", lifted=False, notes=[])
    assert "without a measured force tells nothing of mass" in free.action


def test_a_good_result_with_a_flaw_is_a_warning(unknowns):
    good = judge(unknowns, np.log([0.25, 0.3]), 0.02**2 * np.eye(2))
    assert status_of(good, asked=ASKED, moved="pushed", lifted=False, notes=[]).level is Level.OK
    flawed = status_of(good, asked=ASKED, moved="pushed", lifted=False, notes=["the fit did not settle"])
    assert flawed.level is Level.WARN
    assert "did not settle" in flawed.message
