"""An oval squeeze bottle of tomato ketchup."""

from __future__ import annotations

import numpy as np
from PIL import Image

from dexloop.lab.objects.body import assemble
from dexloop.lab.objects.ink import Print
from dexloop.lab.objects.mass import mixture, shell, solid
from dexloop.lab.objects.model import LabObject
from dexloop.lab.objects.patches import Loft, Section, convex_loft, cut, loft

_LABEL = (0.020, 0.118)  # lower and upper edge of the label [m]
_CAP_EDGE = 0.158

_BODY = [
    (0.0, 0.0385, 0.0260), (0.0010, 0.0405, 0.0280), (0.0030, 0.0422, 0.0294), (0.0070, 0.0430, 0.0300),
    (0.0600, 0.0430, 0.0300), (0.1180, 0.0425, 0.0297), (0.1270, 0.0405, 0.0288), (0.1350, 0.0365, 0.0268),
    (0.1420, 0.0310, 0.0242), (0.1480, 0.0245, 0.0210), (0.1520, 0.0190, 0.0180),
]  # fmt: skip
"""Height, half width, half depth [m]."""
_NECK = [(0.1545, 0.0165), (_CAP_EDGE - 0.0003, 0.0165)]
_CAP = [
    (_CAP_EDGE, 0.0190), (0.1660, 0.0190), (0.1685, 0.0180), (0.1755, 0.0115), (0.1860, 0.0075), (0.1890, 0.0068),
    (0.1900, 0.0055),
]  # fmt: skip
"""Height, radius [m]."""


def _oval(z: float, a: float, b: float) -> Section:
    # The corners of the superellipse grow round towards the neck.
    return Section(z, a, b, power=2.0 + 0.6 * min(1.0, max(0.0, (0.152 - z) / 0.03)))


def make() -> LabObject:
    """Builds it: 86 x 60 x 190 mm."""
    sections = [_oval(*row) for row in _BODY] + [Section(z, r, r) for z, r in [*_NECK, *_CAP]]
    body = loft(sections, 80, bottom=1)
    parts = [
        convex_loft([_oval(*_BODY[i]) for i in (0, 2, 3, 5, 6, 7, 9, 10)], 28),
        convex_loft([Section(z, 0.0166, 0.0166) for z in (0.1515, _CAP_EDGE + 0.0005)], 16),
        convex_loft([Section(z, r, r) for z, r in (_CAP[0], (0.1665, 0.0190), (0.1755, 0.0117))], 20),
        convex_loft([Section(z, r, r) for z, r in (_CAP[3], (0.1860, 0.0075), (0.1900, 0.0058))], 16),
    ]
    whole, ketchup = body.whole, loft(cut(sections, 0.130), 48).whole
    return assemble(
        "ketchup_bottle",
        "ketchup bottle",
        [(body.side, _side(body, 1000)), (body.bottom, _base(170, 118)), (body.top, _nozzle(60))],
        parts,
        mixture([(0.07, shell(whole.vertices, whole.faces)), (0.93, solid(ketchup.vertices, ketchup.faces))]),
        mass_kg=0.726,
        crush_force_n=90.0,
    )


def _tomato(p: Print, x: float, y: float, r: float) -> None:
    p.oval(x, y, r, 0.86 * r, "#d8321f", line="#8f1a10", width=3)
    p.oval(x - 0.4 * r, y - 0.3 * r, 0.22 * r, 0.14 * r, "#f58b72")
    p.star(x, y - 0.72 * r, 0.55 * r, 0.16 * r, 5, "#3f8a36")


def _side(body: Loft, width: int) -> Image.Image:
    w, h = body.side_px(width)
    p = Print(w, h, "#b01c12")
    rng = np.random.default_rng(40)
    for _ in range(160):  # streaks of ketchup on the inside of the plastic
        x, y = rng.uniform(0, w), rng.uniform(0, h)
        p.line(
            [(x, y), (x + rng.uniform(-8, 8), y + rng.uniform(15, 70))],
            ["#8f130b", "#c92c1e", "#a01810"][rng.integers(3)],
            5,
        )
    edge = body.row(_CAP_EDGE) * h
    p.box(0, 0, w, edge, "#f7f5ef")
    for i in range(40):
        p.box(i * w / 40, 0.74 * edge, w / 120, 0.24 * edge, "#d5d0c4" if i % 8 else "#2f7d3a")
    p.box(0, 0.66 * edge, w, 0.03 * edge, "#2f7d3a")
    p.text(0.5 * w, 0.5 * edge, "flip", 34, "#2f7d3a", bold=0.03)
    top, low = body.row(_LABEL[1]) * h, body.row(_LABEL[0]) * h
    tall = low - top
    p.box(0, top, w, tall, "#fdf8ea")
    p.box(0, top, w, 0.06 * tall, "#2f7d3a")
    p.box(0, low - 0.09 * tall, w, 0.09 * tall, "#2f7d3a")
    # The front.
    p.box(0.33 * w, top + 0.09 * tall, 0.34 * w, 0.25 * tall, "#c81d1d", round=24)
    p.text(0.5 * w, top + 0.215 * tall, "REDVALE", 84, "#fdf8ea", bold=0.04, fit=0.31 * w)
    p.text(0.5 * w, top + 0.41 * tall, "TOMATO KETCHUP", 46, "#2b2b2b", bold=0.04, fit=0.33 * w)
    _tomato(p, 0.43 * w, top + 0.63 * tall, 58)
    _tomato(p, 0.57 * w, top + 0.60 * tall, 66)
    _tomato(p, 0.50 * w, top + 0.74 * tall, 50)
    p.text(0.5 * w, low - 0.045 * tall, "650 g  no thickeners", 30, "#fdf8ea", bold=0.02)
    p.star(0.355 * w, top + 0.52 * tall, 46, 32, 12, "#f2b632")
    p.text(0.355 * w, top + 0.52 * tall, "148 g*", 20, "#2b2b2b", bold=0.03)
    # The back, either side of the seam.
    p.bar_code(0.02 * w, top + 0.12 * tall, 0.2 * w, 0.24 * tall, "871522900650")
    p.text(0.12 * w, top + 0.43 * tall, "INGREDIENTS", 28, "#c81d1d", bold=0.04)
    p.small_print(
        0.02 * w,
        top + 0.48 * tall,
        0.22 * w,
        "Tomatoes (148 g per 100 g ketchup), spirit vinegar, sugar, salt, spice and herb extracts "
        "(contain celery), spice. Shake well. Keep in the fridge after opening and use within 8 "
        "weeks.",
        18,
        "#2b2b2b",
    )
    p.text(0.12 * w, low - 0.045 * tall, "BB 04 2028  L7", 26, "#fdf8ea")
    p.text(0.87 * w, top + 0.13 * tall, "NUTRITION", 30, "#c81d1d", bold=0.04)
    facts = [
        ("per 100 g", ""),
        ("Energy", "435 kJ"),
        ("Fat", "0.1 g"),
        ("Carbs", "23.2 g"),
        ("Sugars", "22.8 g"),
        ("Protein", "1.2 g"),
        ("Salt", "1.8 g"),
    ]
    p.table(0.765 * w, top + 0.20 * tall, 0.21 * w, facts, 22, "#2b2b2b")
    p.text(0.87 * w, top + 0.70 * tall, "Try it with", 26, "#2f7d3a")
    p.text(0.87 * w, top + 0.79 * tall, "CHIPS & EGGS", 32, "#c81d1d", bold=0.04, fit=0.2 * w)
    p.text(0.87 * w, low - 0.045 * tall, "please recycle", 26, "#fdf8ea")
    return p.finish(grain=3, seed=19)


def _base(w: int, h: int) -> Image.Image:
    p = Print(w, h, "#a01810")
    p.oval(w / 2, h / 2, 0.42 * w, 0.40 * h, None, line="#c92c1e", width=4)
    p.text(0.5 * w, 0.42 * h, "1 PET", 30, "#e0604f", bold=0.04)
    p.text(0.45 * w, 0.66 * h, "RV 650", 20, "#e0604f")
    return p.finish(grain=5, seed=20)


def _nozzle(d: int) -> Image.Image:
    p = Print(d, d, "#f7f5ef")
    p.oval(d / 2, d / 2, 0.25 * d, 0.25 * d, "#8f130b")
    p.box(0.46 * d, 0, 0.08 * d, 0.25 * d, "#2f7d3a")
    return p.finish(grain=3, seed=21)
