"""A can of potted meat: a box with round corners and a seam at both ends."""

from __future__ import annotations

import numpy as np
from PIL import Image

from dexloop.lab.objects.body import assemble
from dexloop.lab.objects.ink import Print
from dexloop.lab.objects.mass import mixture, shell, solid
from dexloop.lab.objects.model import LabObject
from dexloop.lab.objects.patches import Loft, Section, convex, cut, loft

_A, _B, _HEIGHT, _CORNER, _SEAM = 0.0485, 0.0250, 0.082, 0.019, 0.0012


def _section(z: float, grow: float) -> Section:
    return Section(z, _A + grow, _B + grow, corner=_CORNER + grow)


def make() -> LabObject:
    """Builds it: 99 x 52 x 82 mm."""
    profile = [
        (0.0, 0.0002), (0.0005, 0.0009), (0.0012, _SEAM), (0.0028, _SEAM), (0.0036, 0.0002), (0.0042, 0.0),
        (_HEIGHT - 0.0042, 0.0), (_HEIGHT - 0.0036, 0.0002), (_HEIGHT - 0.0028, _SEAM), (_HEIGHT - 0.0006, _SEAM),
        (_HEIGHT, 0.0006), (_HEIGHT, -0.0008), (_HEIGHT - 0.0008, -0.0018),
    ]  # fmt: skip
    sections = [_section(*row) for row in profile]
    body = loft(sections, 65, bottom=1, top=10)
    whole = body.whole

    def piece(*rows: tuple[float, float]) -> np.ndarray:
        return np.concatenate([_section(*row).points(33) for row in rows])

    parts = [
        convex(piece((0.003, 0.0001), (_HEIGHT - 0.003, 0.0001))),
        convex(piece((0.0, 0.0003), (0.0010, _SEAM), (0.0034, _SEAM - 0.0005))),
        convex(piece((_HEIGHT - 0.0034, _SEAM - 0.0005), (_HEIGHT - 0.0008, _SEAM), (_HEIGHT, 0.0004))),
    ]
    meat = loft(cut(sections, _HEIGHT - 0.006), 65).whole
    return assemble(
        "meat_can",
        "can of meat",
        [(body.side, _side(body, 1000)), (body.top, _lid(420, 220)), (body.bottom, _base(420, 220))],
        parts,
        mixture([(0.16, shell(whole.vertices, whole.faces)), (0.84, solid(meat.vertices, meat.faces))]),
        mass_kg=0.365,
        crush_force_n=300.0,
    )


def _side(body: Loft, width: int) -> Image.Image:
    w, h = body.side_px(width)
    p = Print(w, h, "#12407a")
    top, low = body.row(_HEIGHT - 0.0042) * h, body.row(0.0042) * h
    p.box(0, top, w, 0.13 * h, "#f2c230")
    p.box(0, low - 0.12 * h, w, 0.12 * h, "#c7262e")
    # The front spans a third of the way around, centred at half of it.
    p.oval(0.5 * w, 0.43 * h, 0.155 * w, 0.20 * h, "#fdf6e3", line="#f2c230", width=6)
    p.text(0.5 * w, 0.37 * h, "PORTLY'S", 62, "#c7262e", bold=0.05, fit=0.26 * w)
    p.text(0.5 * w, 0.49 * h, "LUNCHEON MEAT", 32, "#12407a", bold=0.04, fit=0.25 * w)
    p.text(0.5 * w, top + 0.065 * h, "THE ORIGINAL", 34, "#12407a", bold=0.05)
    _sandwich(p, 0.5 * w, 0.73 * h)
    p.text(0.42 * w, low - 0.055 * h, "340 g", 30, "#fdf6e3", bold=0.04)
    p.text(0.59 * w, low - 0.055 * h, "ready to eat", 28, "#fdf6e3", fit=150)
    # The right flank.
    p.text(0.75 * w, top + 0.065 * h, "NUTRITION", 28, "#12407a", bold=0.04)
    p.box(0.69 * w, 0.24 * h, 0.125 * w, 0.5 * h, "#fdf6e3", round=4)
    facts = [
        ("per 100 g", ""),
        ("Energy", "1180 kJ"),
        ("Fat", "24 g"),
        ("Carbs", "3.1 g"),
        ("Protein", "13 g"),
        ("Salt", "2.4 g"),
    ]
    p.table(0.697 * w, 0.27 * h, 0.11 * w, facts, 16, "#1c1c1c")
    p.text(0.75 * w, low - 0.055 * h, "Lot 22 K", 26, "#fdf6e3")
    # The left flank.
    p.text(0.25 * w, top + 0.065 * h, "HOW TO SERVE", 28, "#12407a", bold=0.04)
    p.small_print(
        0.19 * w,
        0.25 * h,
        0.125 * w,
        "1 Pull the ring. 2 Slice as thick as a thumb. 3 Fry till golden, or eat cold with mustard and rye bread.",
        21,
        "#fdf6e3",
    )
    p.star(0.25 * w, low - 0.06 * h, 24, 10, 6, "#f2c230")
    # The back, either side of the seam.
    p.bar_code(0.02 * w, 0.40 * h, 0.135 * w, 0.26 * h, "501298700340")
    p.text(0.09 * w, top + 0.065 * h, "KEEP COOL", 28, "#12407a", bold=0.04)
    p.text(0.09 * w, 0.29 * h, "Cut to 0 cm", 22, "#f2c230")
    p.text(0.91 * w, top + 0.065 * h, "INGREDIENTS", 28, "#12407a", bold=0.04)
    p.small_print(
        0.845 * w,
        0.25 * h,
        0.135 * w,
        "Pork (72 %), water, starch, salt, sugar, spices (mace, pepper, ginger), preservative. Once "
        "open keep in the fridge and use within 3 days. Packed for Portly & Sons, Quay 9.",
        17,
        "#fdf6e3",
    )
    p.box(0, 0, w, top, "#c9ccd0")
    p.box(0, low, w, h - low, "#c9ccd0")
    return p.finish(grain=3, seed=13)


def _sandwich(p: Print, x: float, y: float) -> None:
    for k, colour in enumerate(("#c98a4b", "#e79a92", "#6fae3f", "#e79a92", "#c98a4b")):
        shift = 6 * (k % 2)
        p.box(x - 100 + shift, y - 26 + 11 * k, 196, 12, colour, round=5, line="#5a2f12", width=1)
    for k in range(9):
        p.oval(x - 84 + 21 * k, y - 21, 4, 2, "#fdf6e3")


def _lid(w: int, h: int) -> Image.Image:
    p = Print(w, h, "#c3c6ca")
    p.box(16, 16, w - 32, h - 32, None, round=70, line="#9a9ea3", width=4)
    p.box(36, 34, w - 72, h - 68, None, round=56, line="#e4e6e8", width=3)
    p.oval(0.28 * w, 0.5 * h, 62, 40, "#d7dadd", line="#85898e", width=7)
    p.oval(0.25 * w, 0.5 * h, 30, 22, "#a5a9ae", line="#85898e", width=3)
    p.oval(0.44 * w, 0.5 * h, 9, 9, "#85898e")
    p.text(0.68 * w, 0.36 * h, "PULL RING UP", 26, "#55585c", bold=0.03)
    p.text(0.68 * w, 0.54 * h, "BEST BY 11 MAR 29", 22, "#1f2f7a", bold=0.03)
    p.text(0.68 * w, 0.68 * h, "P71 04:52", 22, "#1f2f7a", bold=0.03)
    return p.finish(grain=5, seed=14)


def _base(w: int, h: int) -> Image.Image:
    p = Print(w, h, "#b9bcc0")
    p.box(26, 26, w - 52, h - 52, None, round=66, line="#8d9196", width=5)
    p.text(0.5 * w, 0.40 * h, "PRS 340", 44, "#74787d", bold=0.04)
    p.text(0.42 * w, 0.64 * h, "steel - please recycle", 22, "#74787d")
    p.star(0.82 * w, 0.5 * h, 26, 12, 3, "#74787d")
    return p.finish(grain=6, seed=15)
