"""Real tosses of a cube: what a free motion tells, and what it cannot."""

import numpy as np
import pytest

from benchmarks import cube_tosses
from dexloop.identify.stage import summary

pytestmark = pytest.mark.skipif(
    cube_tosses.folder() is None, reason="the tosses are not here: set DEXLOOP_CUBE_TOSSES to their folder"
)


@pytest.fixture(scope="module")
def found() -> cube_tosses.Found:
    return cube_tosses.fitted(tosses=4, held_out=2, first=6)  # none of those that the contact was chosen with


def test_the_tosses_are_in_metres_and_seconds():
    """What flies falls with 9.81 m/s²."""
    source = cube_tosses.folder()
    assert source is not None
    falls = []
    for number in range(10):
        toss = cube_tosses.read(source, number)
        corner = np.sqrt(3.0) * cube_tosses.HALF_WIDTH_M
        flight = int(np.argmax(toss.value[:, 2] < corner))  # until a corner could touch
        if flight > 8:
            falls.append(-2.0 * np.polyfit(toss.t[:flight], toss.value[:flight, 2], 2)[0])
    assert len(falls) > 3
    assert np.median(falls) == pytest.approx(9.81, rel=0.05)


def test_mass_is_not_identifiable(found):
    assert not found.mass_identifiable
    assert "object.mass" in summary(found.fit)["text"]


def test_friction_is_found_with_an_interval(found):
    low, high = cube_tosses.FRICTION
    assert low < found.friction < high
    assert 0.0 < found.friction_interval[1] - found.friction_interval[0] < 0.1
    assert found.friction_interval[0] < found.friction < found.friction_interval[1]


def test_tosses_that_were_not_fitted_are_predicted_better_than_before(found):
    assert found.held_out["recordings"] == ["toss_10", "toss_11"]
    for stream, after in found.held_out["after"].items():
        assert after < found.held_out["before"][stream], stream


@pytest.mark.xfail(strict=True, reason="impacts alone, also without a simulator, say 0.0033 m² and more, not 0.0022")
def test_inertia_over_mass_is_within_a_tenth_of_the_published_one(found):
    truth = cube_tosses.INERTIA / cube_tosses.MASS
    assert found.inertia_per_mass == pytest.approx(truth, rel=0.1)


def test_inertia_over_mass_agrees_with_what_impacts_say_without_a_simulator(found):
    low, high = cube_tosses.inertia_by_impacts()
    assert 0.8 * low < found.inertia_per_mass < 1.2 * high
    assert low > 1.3 * cube_tosses.INERTIA / cube_tosses.MASS  # which is why the test before this one fails
