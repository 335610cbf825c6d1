"""A light bulb of the A60 shape with an E27 screw base."""

from __future__ import annotations

import numpy as np
from PIL import Image

from dexloop.lab.objects.body import assemble
from dexloop.lab.objects.ink import Print
from dexloop.lab.objects.mass import mixture, shell, solid
from dexloop.lab.objects.model import LabObject
from dexloop.lab.objects.patches import Loft, Section, convex_loft, loft

_GLOBE, _CENTRE = 0.030, 0.080  # radius and height of its centre [m]
_NECK, _RIM = 0.0145, 0.030  # radius and height of the glass where it enters the base [m]
_BASE = 0.0131  # mean radius of the thread [m]
_PITCH = 0.0036  # of the thread [m]


def make() -> LabObject:
    """Builds it: 60 mm wide, 110 mm long; it lies on globe and base."""
    # The glass tapers along the tangent from the neck's edge to the globe.
    reach, lean = np.hypot(_NECK, _CENTRE - _RIM), np.arctan2(_NECK, _CENTRE - _RIM)
    start = -np.pi / 2 + lean + np.arccos(_GLOBE / reach)
    turns = np.arange(0.0085, 0.0272, _PITCH / 6)
    thread = [_round(h, _BASE + 0.0006 * np.cos(2 * np.pi * (h - 0.0085) / _PITCH)) for h in turns]
    foot = [_round(0.0, 0.0045), _round(0.0012, 0.0052), _round(0.0022, 0.0056), _round(0.0075, 0.0122)]
    base = [*foot, *thread, _round(0.0285, 0.0136), _round(0.0297, 0.0139)]
    globe = [_on_globe(a) for a in np.linspace(start, np.radians(50), 22)]
    crown = [_on_globe(a) for a in np.radians([58, 66, 74, 82, 87])]
    body = loft([*base, _round(_RIM, _NECK), *globe, *crown], 72, bottom=2, top=len(base) + 1 + len(globe) - 1)
    flat = [_on_globe(a) for a in (start, *np.radians([-14, 14, 38, 60, 80]))]
    parts = [
        convex_loft([_round(_RIM, _NECK), *flat, _round(_CENTRE + _GLOBE, 0.001)], 20),
        convex_loft([_round(0.0082, _BASE), _round(_RIM, _BASE + 0.0004)], 20),
        convex_loft([_round(0.0, 0.0045), _round(0.0022, 0.0056), _round(0.0082, 0.0126)], 20),
    ]
    screw = loft(base, 32).whole
    glass = loft([_round(_RIM, _NECK), *globe, *crown], 32).whole
    return assemble(
        "light_bulb",
        "light bulb",
        [(body.side, _side(body, 1000)), (body.top, _stamp(300)), (body.bottom, _contact(80))],
        parts,
        mixture([(0.6, shell(glass.vertices, glass.faces)), (0.4, solid(screw.vertices, screw.faces))]),
        mass_kg=0.037,
        crush_force_n=45.0,
        down=(0.0, 0.9, -0.3),
    )


def _round(z: float, r: float) -> Section:
    return Section(z, r, r)


def _on_globe(latitude: float) -> Section:
    return _round(_CENTRE + _GLOBE * np.sin(latitude), _GLOBE * np.cos(latitude))


def _side(body: Loft, width: int) -> Image.Image:
    w, h = body.side_px(width)
    p = Print(w, h, "#f6f1df")
    rim = body.row(_RIM) * h
    p.box(0, rim, w, h - rim, "#a9abae")
    for i, y in enumerate(np.arange(rim + 8, h, 13)):
        p.box(0, float(y), w, 5, ["#77797d", "#d9dbde"][i % 2])
    p.box(0, body.row(0.0078) * h, w, h, "#1d1d20")
    rng = np.random.default_rng(20)
    for _ in range(120):  # scratches and solder on the metal
        x, y = rng.uniform(0, w), rng.uniform(rim, h)
        p.line([(x, y), (x + rng.uniform(-25, 25), y + rng.uniform(-8, 8))], ["#5b5d60", "#f0f0f0"][rng.integers(2)], 2)
    top = body.row(0.098) * h
    glass = rim - top
    # The glass is narrower towards base and crown, so type there is set wider to look right.
    p.box(0, top + 0.30 * glass, w, 0.05 * glass, "#d9531e")
    p.box(0, top + 0.93 * glass, w, 0.07 * glass, "#1d4e89")
    for k, (brand, sub, colour) in enumerate(
        (
            ("LUMARA", "SOFT WHITE", "#d9531e"),
            ("60 W", "806 lm  E27", "#1d4e89"),
            ("A60", "220-240 V  50 Hz", "#2b2b2b"),
        )
    ):
        x = (k + 0.5) * w / 3
        p.text(x, top + 0.14 * glass, brand, 66, colour, bold=0.05, fit=0.29 * w)
        p.text(x, top + 0.44 * glass, sub, 40, "#2b2b2b", bold=0.03, fit=0.29 * w)
    p.bar_code(0.03 * w, top + 0.54 * glass, 220, 82, "402571300060")
    p.star(0.43 * w, top + 0.68 * glass, 44, 26, 9, "#f2b632")
    p.text(0.43 * w, top + 0.68 * glass, "A+", 34, "#2b2b2b", bold=0.05)
    p.small_print(
        0.50 * w,
        top + 0.55 * glass,
        190,
        "Do not use with dimmers. For dry rooms only. Burns for 15 000 hours.",
        19,
        "#2b2b2b",
    )
    p.oval(0.79 * w, top + 0.68 * glass, 42, 42, None, line="#2e7d4f", width=6)
    p.line(
        [(0.79 * w - 20, top + 0.68 * glass), (0.79 * w - 4, top + 0.74 * glass), (0.79 * w + 22, top + 0.61 * glass)],
        "#2e7d4f",
        8,
    )
    p.small_print(0.86 * w, top + 0.55 * glass, 120, "Lot 7731 B Made in Bay 4 CE RoHS", 20, "#1d4e89")
    for i, x in enumerate(np.linspace(0, w, 30, endpoint=False)):
        p.text(float(x) + 12, top + 0.84 * glass, "LM60XQ7"[i % 7], 30, ["#1d4e89", "#d9531e"][i % 2])
    return p.finish(grain=3, seed=4)


def _stamp(d: int) -> Image.Image:
    p = Print(d, d, "#f6f1df")
    c = d / 2
    p.oval(c, c, 0.42 * d, 0.42 * d, None, line="#1d4e89", width=5)
    p.text(c, 0.30 * d, "LUMARA", 44, "#d9531e", bold=0.05)
    p.text(c, 0.48 * d, "60 W", 56, "#1d4e89", bold=0.05)
    p.text(c, 0.65 * d, "230 V  E27", 28, "#2b2b2b", bold=0.03)
    p.text(c, 0.77 * d, "2700 K", 24, "#2b2b2b")
    p.star(0.20 * d, 0.5 * d, 14, 6, 5, "#d9531e")
    return p.finish(grain=3, seed=5)


def _contact(d: int) -> Image.Image:
    p = Print(d, d, "#1d1d20")
    p.oval(d / 2, d / 2, 0.33 * d, 0.33 * d, "#b9a46a")
    p.line([(0.3 * d, 0.4 * d), (0.6 * d, 0.65 * d)], "#7d6a35", 3)
    return p.finish(grain=4, seed=6)
