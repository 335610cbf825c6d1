"""The type checker that the import hook in `conftest.py` puts on every function of the foundations."""

from __future__ import annotations

from collections.abc import Callable

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep673Exception

_CONF = BeartypeConf(is_pep484_tower=True)  # an int is a float, as everywhere in Python


def check(function: Callable) -> Callable:
    """Returns the function with its arguments and result checked by beartype.

    The hook decorates functions one by one, where beartype cannot know what `Self` stands for: such a method stays
    unchecked, instead of keeping `Self` out of the code.
    """
    try:
        return beartype(function, conf=_CONF)
    except BeartypeDecorHintPep673Exception:
        return function
