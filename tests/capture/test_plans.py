import pytest

from dexloop.capture.plans import FreeMotion, HumanVideo, Lift, Press, Push, Scan, describe
from dexloop.core.errors import InputError


def test_a_plan_is_described_in_plain_json():
    assert describe(Scan(duration_s=2.0)) == {"plan": "Scan", "duration_s": 2.0, "fps": 10.0}


@pytest.mark.parametrize(
    ("plan", "values", "words"),
    [
        (Push, {"speed_m_s": 5.0}, "speed_m_s is from 0.005 to 0.8, not 5"),
        (Push, {"speed_m_s": 0.0}, "not 0"),
        (Push, {"speed_m_s": float("nan")}, "not nan"),
        (Push, {"distance_m": -1.0}, "distance_m"),
        (FreeMotion, {"amplitude": 3.0}, "amplitude"),
        (FreeMotion, {"duration_s": -1.0}, "duration_s"),
        (Press, {"force_n": 100.0}, "force_n is from 0.5 to 20, not 100"),
        (Press, {"presses": 0}, "presses"),
        (Press, {"press_s": 0.0}, "press_s"),
        (Lift, {"squeeze_m": 5.0}, "squeeze_m"),
        (Scan, {"duration_s": 0.0}, "duration_s"),
        (HumanVideo, {"fps": 0.0}, "fps"),
    ],
)
def test_an_impossible_plan_says_what_is_possible(plan, values, words):
    with pytest.raises(InputError, match=words):
        plan(**values)
