"""Eight household objects, made by procedural geometry and print."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from dexloop.core.errors import UnknownName
from dexloop.lab.objects import (
    cookie_tin,
    cube,
    ketchup_bottle,
    letter_a,
    light_bulb,
    meat_can,
    spray_bottle,
    spread_jar,
)
from dexloop.lab.objects.model import LabObject

_MAKERS: dict[str, Callable[[], LabObject]] = {
    "light_bulb": light_bulb.make,
    "cube": cube.make,
    "letter_a": letter_a.make,
    "cookie_tin": cookie_tin.make,
    "meat_can": meat_can.make,
    "spread_jar": spread_jar.make,
    "spray_bottle": spray_bottle.make,
    "ketchup_bottle": ketchup_bottle.make,
}

OBJECTS: tuple[str, ...] = tuple(_MAKERS)
"""Their names, lightest first."""


@cache
def make(name: str) -> LabObject:
    """Returns one of the eight objects.

    Args:
        name: One of `OBJECTS`.
    """
    if name not in _MAKERS:
        raise UnknownName("object", name, OBJECTS)
    return _MAKERS[name]()


__all__ = ["OBJECTS", "LabObject", "make"]
