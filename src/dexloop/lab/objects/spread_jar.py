"""A glass jar of chocolate spread with a white lid."""

from __future__ import annotations

import numpy as np
from PIL import Image

from dexloop.lab.objects.body import assemble
from dexloop.lab.objects.ink import Print
from dexloop.lab.objects.mass import mixture, shell, solid
from dexloop.lab.objects.model import LabObject
from dexloop.lab.objects.patches import Loft, Section, convex_loft, cut, loft

_HEIGHT = 0.095
_LABEL = (0.010, 0.052)  # lower and upper edge of the label [m]
_LID_EDGE = 0.0725


def make() -> LabObject:
    """Builds it: 80 mm wide, 95 mm high."""
    glass = [(0.0, 0.0355), (0.0008, 0.0375), (0.0025, 0.0391), (0.0055, 0.0400), (0.055, 0.0400)]
    shoulder = [(0.0550 + 0.0125 * np.sin(a), 0.0335 + 0.0065 * np.cos(a)) for a in np.linspace(0.2, np.pi / 2, 7)]
    lid = [
        (_LID_EDGE - 0.0025, 0.0335), (_LID_EDGE - 0.0005, 0.0345), (_LID_EDGE, 0.0350), (_HEIGHT - 0.0025, 0.0350),
        (_HEIGHT - 0.0008, 0.0342), (_HEIGHT, 0.0325), (_HEIGHT, 0.0290), (_HEIGHT - 0.0006, 0.0284),
    ]  # fmt: skip
    sections = [Section(z, r, r) for z, r in [*glass, *shoulder, *lid]]
    body = loft(sections, 96, bottom=1, top=len(sections) - 3)
    pieces = [
        [(0.0, 0.0358), (0.0022, 0.0389), (0.0055, 0.0400), (0.0555, 0.0400), (0.0625, 0.0386), (0.0672, 0.0340)],
        [(0.0665, 0.0338), (_LID_EDGE, 0.0338)],
        [(_LID_EDGE - 0.0010, 0.0345), (_LID_EDGE, 0.0350), (_HEIGHT - 0.0022, 0.0350), (_HEIGHT, 0.0326)],
    ]
    whole, spread = body.whole, loft(cut(sections, 0.064), 48).whole
    return assemble(
        "spread_jar",
        "jar of chocolate spread",
        [(body.side, _side(body, 1000)), (body.top, _lid(330)), (body.bottom, _base(330))],
        [convex_loft([Section(z, r, r) for z, r in rows], 24) for rows in pieces],
        mixture([(0.42, shell(whole.vertices, whole.faces)), (0.58, solid(spread.vertices, spread.faces))]),
        mass_kg=0.414,
        crush_force_n=400.0,
    )


def _hazelnut(p: Print, x: float, y: float, r: float) -> None:
    p.oval(x, y, r, 0.9 * r, "#a8672c", line="#6b3b12", width=2)
    p.polygon([(x - 0.6 * r, y - 0.55 * r), (x, y - 1.25 * r), (x + 0.6 * r, y - 0.55 * r)], "#d9b07a")
    p.oval(x - 0.3 * r, y, 0.2 * r, 0.3 * r, "#cf9352")


def _side(body: Loft, width: int) -> Image.Image:
    w, h = body.side_px(width)
    p = Print(w, h, "#3a1c0c")
    rng = np.random.default_rng(30)
    for _ in range(260):  # spread seen through the glass: smears and air bubbles
        x, y = rng.uniform(0, w), rng.uniform(0, h)
        p.line(
            [(x, y), (x + rng.uniform(10, 60), y + rng.uniform(-9, 9))],
            ["#4d2611", "#2c1408", "#5c3018"][rng.integers(3)],
            4,
        )
    edge = body.row(_LID_EDGE - 0.001) * h
    p.box(0, 0, w, edge, "#f4f2ec")
    for i in range(80):  # knurls; every tenth one is marked, as lids are
        p.box(i * w / 80, 0.30 * edge, w / 220, 0.66 * edge, "#cfcabd" if i % 10 else "#b5522a")
    p.text(0.5 * w, 0.16 * edge, "TWIST  TO  OPEN", 17, "#b5522a", bold=0.03)
    p.text(0.15 * w, 0.16 * edge, "FRESH SEAL - BUTTON DOWN", 15, "#6d6a62")
    top, low = body.row(_LABEL[1]) * h, body.row(_LABEL[0]) * h
    tall = low - top
    p.box(0, top, w, tall, "#fbf4e4")
    p.box(0, top, w, 0.07 * tall, "#b5522a")
    p.box(0, low - 0.07 * tall, w, 0.07 * tall, "#2f6b3c")
    p.text(0.5 * w, top + 0.30 * tall, "Nocciolo", 88, "#b5261e", bold=0.05, fit=0.30 * w)
    p.text(0.5 * w, top + 0.54 * tall, "COCOA & HAZELNUT SPREAD", 26, "#3a1c0c", bold=0.03, fit=0.29 * w)
    for k, x in enumerate((0.38, 0.43, 0.57, 0.62)):
        _hazelnut(p, x * w, top + (0.76 + 0.03 * (k % 2)) * tall, 17 + 2 * k)
    p.box(0.465 * w, top + 0.66 * tall, 0.07 * w, 0.2 * tall, "#6b3b12", round=10)
    p.oval(0.5 * w, top + 0.67 * tall, 0.035 * w, 8, "#3a1c0c")
    p.text(0.5 * w, top + 0.79 * tall, "350 g", 20, "#fbf4e4", bold=0.03)
    p.bar_code(0.025 * w, top + 0.16 * tall, 0.16 * w, 0.56 * tall, "800441500350")
    p.small_print(
        0.20 * w,
        top + 0.13 * tall,
        0.14 * w,
        "Sugar, palm oil, hazelnuts (13 %), skimmed milk powder (8 %), cocoa (7 %), emulsifier, "
        "vanilla. Contains milk and nuts.",
        14,
        "#3a1c0c",
    )
    facts = [("Energy", "2252 kJ"), ("Fat", "30.9 g"), ("Sugars", "56.3 g"), ("Protein", "6.3 g"), ("Salt", "0.11 g")]
    p.table(0.68 * w, top + 0.16 * tall, 0.13 * w, facts, 15, "#3a1c0c")
    p.star(0.90 * w, top + 0.40 * tall, 58, 40, 14, "#f2b632")
    p.text(0.90 * w, top + 0.36 * tall, "NEW", 26, "#b5261e", bold=0.06)
    p.text(0.90 * w, top + 0.48 * tall, "recipe", 20, "#3a1c0c")
    p.small_print(0.84 * w, top + 0.73 * tall, 0.14 * w, "Best before: lid. Lot N 5582. Do not chill.", 14, "#2f6b3c")
    return p.finish(grain=3, seed=16)


def _lid(d: int) -> Image.Image:
    p = Print(d, d, "#f4f2ec")
    c = d / 2
    p.oval(c, c, 0.44 * d, 0.44 * d, None, line="#b5522a", width=6)
    p.text(c, 0.36 * d, "Nocciolo", 62, "#b5261e", bold=0.05, fit=0.66 * d)
    p.text(c, 0.52 * d, "BB 09 2027", 26, "#3a1c0c", bold=0.03)
    _hazelnut(p, 0.36 * d, 0.70 * d, 24)
    _hazelnut(p, 0.53 * d, 0.74 * d, 29)
    p.star(0.69 * d, 0.68 * d, 18, 8, 5, "#2f6b3c")
    return p.finish(grain=3, seed=17)


def _base(d: int) -> Image.Image:
    p = Print(d, d, "#3a1c0c")
    for r in (0.45, 0.40):
        p.oval(d / 2, d / 2, r * d, r * d, None, line="#5c3018", width=4)
    p.text(0.5 * d, 0.42 * d, "350 ml", 40, "#7a4a2a", bold=0.03)
    p.text(0.44 * d, 0.60 * d, "GL 70  7", 30, "#7a4a2a")
    return p.finish(grain=5, seed=18)
