"""A thick wooden letter A."""

from __future__ import annotations

import numpy as np
from PIL import Image

from dexloop.lab.objects.body import assemble
from dexloop.lab.objects.ink import Print
from dexloop.lab.objects.mass import solid
from dexloop.lab.objects.model import LabObject
from dexloop.lab.objects.patches import convex, merge, slab

_HEIGHT, _DEPTH, _BEVEL = 0.095, 0.030, 0.0012
_FOOT, _TOP, _LEG = 0.043, 0.016, 0.020  # half width at the foot and at the top, width of a leg [m]
_BAR = (0.024, 0.042)  # lower and upper edge of the cross bar [m]


def make() -> LabObject:
    """Builds it: 95 mm high, 30 mm thick, of two legs, a cross bar and a cap."""

    def outer(z: float) -> float:
        return _FOOT + (_TOP - _FOOT) * z / _HEIGHT

    def inner(z: float) -> float:
        return outer(z) - _LEG

    apex = _HEIGHT * (_FOOT - _LEG) / (_FOOT - _TOP) - 0.012  # below where the inner edges meet: a blunt hole
    left = [(-outer(z), z) for z in (0.0, apex, _HEIGHT)] + [(-inner(z), z) for z in (0.0, *_BAR, apex)]
    points = np.array(left + [(-x, z) for x, z in left])
    # Numbers: 0-2 left outside, 3-6 left inside, 7-9 right outside, 10-13 right inside.
    cells = [
        (0, 3, 4, 5, 6, 1),
        (7, 8, 13, 12, 11, 10),
        (4, 11, 12, 5),
        (2, 1, 6, 13, 8, 9),
    ]
    body = slab(points, cells, _DEPTH, _BEVEL)
    whole = merge([body.front, body.back, body.rim])
    px = 5.6e3
    face = (int(2 * _FOOT * px), int(_HEIGHT * px))
    return assemble(
        "letter_a",
        "letter A",
        [(body.front, _front(*face)), (body.back, _back(*face)), (body.rim, _rim(1000, 330))],
        [convex(c) for c in body.cells],
        solid(whole.vertices, whole.faces),
        mass_kg=0.134,
        crush_force_n=None,
    )


def _front(w: int, h: int) -> Image.Image:
    p = Print(w, h, "#16407c")
    rng = np.random.default_rng(7)
    for _ in range(150):  # a night sky over a circus
        x, y = rng.uniform(0, w), rng.uniform(0, h)
        p.star(
            x,
            y,
            float(rng.uniform(6, 17)),
            4,
            int(rng.integers(4, 7)),
            ["#f7e08a", "#ffffff", "#58b4e5", "#f08a5d"][rng.integers(4)],
        )
    for k in range(9):
        x = k * w / 9
        p.polygon(
            [(x, h), (x + w / 9, h), (x + w / 9, 0.86 * h), (x + w / 18, 0.83 * h), (x, 0.86 * h)],
            ["#c8202a", "#f4efe1"][k % 2],
        )
    _words(
        p,
        (
            ("apple", 0.15, 0.94),
            ("ant", 0.85, 0.94),
            ("acorn", 0.5, 0.66),
            ("A a", 0.5, 0.15),
            ("arc", 0.21, 0.76),
            ("ape", 0.71, 0.40),
        ),
        "#2b2b2b",
        30,
    )
    return p.finish(grain=4, seed=1)


def _back(w: int, h: int) -> Image.Image:
    p = Print(w, h, "#b3202c")
    rng = np.random.default_rng(8)
    for _ in range(90):
        x, y, r = rng.uniform(0, w), rng.uniform(0, h), float(rng.uniform(6, 20))
        p.oval(x, y, r, r, ["#f2d16b", "#7a0f18", "#f4efe1", "#e8743b"][rng.integers(4)])
    _words(
        p,
        (
            ("No. 1", 0.15, 0.93),
            ("OF 26", 0.85, 0.93),
            ("LINDEN TOYS", 0.5, 0.66),
            ("BEECH", 0.5, 0.15),
            ("95 mm", 0.68, 0.42),
        ),
        "#7a0f18",
        26,
    )
    return p.finish(grain=4, seed=2)


def _words(p: Print, words: tuple[tuple[str, float, float], ...], ink: str, size: float) -> None:
    for word, x, y in words:
        p.box(x * p.width - 58, y * p.height - 20, 116, 40, "#fff4d2", round=8, line=ink, width=2)
        p.text(x * p.width, y * p.height, word, size, ink, bold=0.03, fit=104)


def _rim(w: int, h: int) -> Image.Image:
    """Bare beech with its grain, and a stamp here and there."""
    p = Print(w, h, "#d8b384")
    rng = np.random.default_rng(9)
    for _ in range(260):
        x, y, length = rng.uniform(0, w), rng.uniform(0, h), float(rng.uniform(30, 160))
        shade = int(rng.uniform(110, 200))
        p.line([(x, y), (x + length, y + rng.uniform(-4, 4))], (shade, int(shade * 0.76), int(shade * 0.5)), 1.6)
    for _ in range(60):
        p.oval(rng.uniform(0, w), rng.uniform(0, h), 3.5, 2.2, "#8a5c30")
    for i, x in enumerate(range(70, w, 150)):
        p.text(x, 82, f"LINDEN TOYS  {i + 1}", 19, "#6b3f17", bold=0.02)
        p.text(x, 250, "ABCDEFGH"[i], 40, "#8c2f1f", bold=0.06)
    return p.finish(grain=5, seed=3)
