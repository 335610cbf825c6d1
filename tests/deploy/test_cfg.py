from __future__ import annotations

import pytest

from dexloop.core.errors import InputError
from dexloop.deploy.cfg import DeployCfg


@pytest.mark.parametrize(
    ("name", "value"),
    [("trials", 0), ("pilots", -1), ("around_m", 0.3), ("turn_rad", 4.0), ("hold_s", -0.1), ("shake_s", float("nan")),
     ("failures", 0)],
)  # fmt: skip
def test_values_out_of_range_are_refused_with_their_range(name: str, value: float):
    with pytest.raises(InputError, match=f"{name} is from .* to .*, not"):
        DeployCfg(**{name: value})


def test_what_is_in_range_is_taken():
    assert DeployCfg(trials=1, pilots=0, around_m=0.0, hold_s=0.0, shake_s=0.0).trials == 1
