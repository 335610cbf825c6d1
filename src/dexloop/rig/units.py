"""Units that recorded data may come in, and how each becomes SI."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dexloop.core.errors import InputError, UnknownName


@dataclass(frozen=True)
class Unit:
    """A unit of measure: `value_si = factor * value`."""

    factor: float
    si: str
    """The SI unit that it becomes."""


_TURN = 2 * math.pi

UNITS: dict[str, Unit] = {
    "m": Unit(1.0, "m"),
    "cm": Unit(1e-2, "m"),
    "mm": Unit(1e-3, "m"),
    "um": Unit(1e-6, "m"),
    "in": Unit(0.0254, "m"),
    "rad": Unit(1.0, "rad"),
    "mrad": Unit(1e-3, "rad"),
    "deg": Unit(_TURN / 360, "rad"),
    "turn": Unit(_TURN, "rad"),
    "m/s": Unit(1.0, "m/s"),
    "cm/s": Unit(1e-2, "m/s"),
    "mm/s": Unit(1e-3, "m/s"),
    "rad/s": Unit(1.0, "rad/s"),
    "deg/s": Unit(_TURN / 360, "rad/s"),
    "rpm": Unit(_TURN / 60, "rad/s"),
    "m/s²": Unit(1.0, "m/s²"),
    "rad/s²": Unit(1.0, "rad/s²"),
    "N": Unit(1.0, "N"),
    "mN": Unit(1e-3, "N"),
    "kN": Unit(1e3, "N"),
    "gf": Unit(9.80665e-3, "N"),
    "kgf": Unit(9.80665, "N"),
    "lbf": Unit(4.4482216152605, "N"),
    "N·m": Unit(1.0, "N·m"),
    "N·cm": Unit(1e-2, "N·m"),
    "N·mm": Unit(1e-3, "N·m"),
    "mN·m": Unit(1e-3, "N·m"),
    "kgf·cm": Unit(9.80665e-2, "N·m"),
    "s": Unit(1.0, "s"),
    "ms": Unit(1e-3, "s"),
    "us": Unit(1e-6, "s"),
    "ns": Unit(1e-9, "s"),
    "A": Unit(1.0, "A"),
    "mA": Unit(1e-3, "A"),
    "V": Unit(1.0, "V"),
    "mV": Unit(1e-3, "V"),
    "W": Unit(1.0, "W"),
    "Pa": Unit(1.0, "Pa"),
    "kPa": Unit(1e3, "Pa"),
    "bar": Unit(1e5, "Pa"),
    "K": Unit(1.0, "K"),
    "kg": Unit(1.0, "kg"),
    "g": Unit(1e-3, "kg"),
    "Hz": Unit(1.0, "Hz"),
    "1": Unit(1.0, "1"),
    "%": Unit(1e-2, "1"),
}
"""Every unit by its name."""

_SPELLINGS = {
    "degree": "deg",
    "degrees": "deg",
    "°": "deg",
    "°/s": "deg/s",
    "radian": "rad",
    "radians": "rad",
    "metre": "m",
    "meter": "m",
    "meters": "m",
    "metres": "m",
    "µm": "um",
    "μm": "um",
    "µs": "us",
    "μs": "us",
    "sec": "s",
    "second": "s",
    "seconds": "s",
    "m/s^2": "m/s²",
    "m/s2": "m/s²",
    "rad/s^2": "rad/s²",
    "rad/s2": "rad/s²",
    "Nm": "N·m",
    "Ncm": "N·cm",
    "Nmm": "N·mm",
    "mNm": "mN·m",
    "kgfcm": "kgf·cm",
    "newton": "N",
    "": "1",
}

TIME_UNITS = ("s", "ms", "us", "ns")

KIND_UNITS: dict[str, tuple[str, ...]] = {
    "joint_position": ("rad", "m"),
    "joint_velocity": ("rad/s", "m/s"),
    "joint_effort": ("N·m", "N"),
    "joint_command": ("rad", "m"),
    "touch": ("N",),
}
"""The SI units that a channel of each kind may have; the first is taken where none is said."""


def unit(name: str, *, place: str = "") -> Unit:
    """Returns a unit by its name or a usual spelling of it ("Nm", "N*m" and "N m" are "N·m").

    Args:
        name: As it was written.
        place: Where it was written, for the message.

    Raises:
        UnknownName: There is none of that name.
    """
    plain = name.strip()
    plain = _SPELLINGS.get(plain, plain)
    for candidate in (plain, plain.replace("*", "·"), plain.replace(" ", "·"), plain.replace(".", "·")):
        if candidate in UNITS:
            return UNITS[candidate]
    raise UnknownName("unit", name, UNITS, place)


def unit_of_kind(name: str, kind: str, *, place: str) -> Unit:
    """Returns a unit and checks that a stream of this kind can be measured in it.

    Raises:
        UnknownName: There is no such unit.
        InputError: It measures something else, such as a force for a joint position.
    """
    found = unit(name, place=place)
    allowed = KIND_UNITS.get(kind)
    if allowed is not None and found.si not in allowed:
        fitting = [n for n, u in UNITS.items() if u.si in allowed]
        raise InputError(f"{place}: {name!r} is no unit of a {kind}; choose one of {', '.join(fitting)}")
    return found
