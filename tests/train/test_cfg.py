from __future__ import annotations

import pytest

from dexloop.core.errors import InputError
from dexloop.train.cfg import TrainCfg


@pytest.mark.parametrize(
    ("name", "value"),
    [("epochs", 0), ("batch", 0), ("learning_rate", 0.0), ("hidden", 1), ("noise", -0.1), ("kept_back", 0.0)],
)
def test_what_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name} is from"):
        TrainCfg(**{name: value})
