from __future__ import annotations

import math

import pytest

from dexloop.core.capture import KINDS
from dexloop.core.errors import InputError, UnknownName
from dexloop.rig.units import KIND_UNITS, UNITS, unit, unit_of_kind


@pytest.mark.parametrize(
    ("name", "value", "si", "expected"),
    [
        ("mm", 250.0, "m", 0.25),
        ("in", 10.0, "m", 0.254),
        ("deg", 180.0, "rad", math.pi),
        ("rpm", 60.0, "rad/s", 2 * math.pi),
        ("kgf", 1.0, "N", 9.80665),
        ("lbf", 1.0, "N", 4.44822),
        ("Nmm", 1000.0, "N·m", 1.0),
        ("N*mm", 1000.0, "N·m", 1.0),
        ("N mm", 1000.0, "N·m", 1.0),
        ("kgf*cm", 1.0, "N·m", 0.0980665),
        ("µs", 1e6, "s", 1.0),
        ("ns", 1e9, "s", 1.0),
        (" degrees ", 360.0, "rad", 2 * math.pi),
        ("%", 50.0, "1", 0.5),
    ],
)
def test_conversions(name: str, value: float, si: str, expected: float):
    found = unit(name)
    assert found.si == si
    assert value * found.factor == pytest.approx(expected, rel=1e-5)


def test_every_si_unit_is_itself():
    for found in UNITS.values():
        assert UNITS[found.si].factor == 1.0
        assert UNITS[found.si].si == found.si


def test_each_kind_of_one_unit_has_its_units():
    assert set(KIND_UNITS) | {"pose", "wrench", "scalar"} == set(KINDS)
    assert all(u in UNITS for units in KIND_UNITS.values() for u in units)


def test_wrong_units_are_told():
    with pytest.raises(UnknownName, match=r"unknown unit 'metre/s'.*mm/s.*here"):
        unit("metre/s", place="It stands here.")
    with pytest.raises(InputError, match=r"here: 'mm' is no unit of a touch; choose one of N, mN"):
        unit_of_kind("mm", "touch", place="here")
