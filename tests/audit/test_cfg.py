from __future__ import annotations

import pytest

from dexloop.audit.cfg import AuditCfg
from dexloop.core.errors import InputError


@pytest.mark.parametrize(("name", "value"), [("worlds", 0), ("bands", 2), ("target", 1.5), ("round", -1)])
def test_values_out_of_range_are_refused_with_their_range(name: str, value: float):
    with pytest.raises(InputError, match=f"{name} is from .* to .*, not"):
        AuditCfg(**{name: value})


def test_what_is_in_range_is_taken():
    assert AuditCfg(worlds=1, bands=3, target=0.0, round=0).bands == 3
