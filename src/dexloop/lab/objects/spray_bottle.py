"""A spray bottle of window cleaner with trigger and nozzle."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from PIL import Image

from dexloop.lab.objects.body import assemble
from dexloop.lab.objects.ink import Print
from dexloop.lab.objects.mass import mixture, shell, solid
from dexloop.lab.objects.model import LabObject
from dexloop.lab.objects.patches import Loft, Section, convex, convex_loft, cut, loft, slab

_LABEL = (0.016, 0.124)  # lower and upper edge of the label [m]
_COLLAR = 0.176  # its lower edge [m]
_BODY = [
    (0.0, 0.0390, 0.0240), (0.0010, 0.0410, 0.0262), (0.0030, 0.0424, 0.0274), (0.0070, 0.0430, 0.0280),
    (0.1250, 0.0430, 0.0280), (0.1320, 0.0418, 0.0275), (0.1390, 0.0385, 0.0262),
]  # fmt: skip
_SHOULDER = [
    (0.1460, 0.0335, 0.0240), (0.1530, 0.0275, 0.0212), (0.1590, 0.0222, 0.0186), (0.1650, 0.0176, 0.0162),
    (0.1710, 0.0146, 0.0143), (_COLLAR - 0.0004, 0.0138, 0.0138),
]  # fmt: skip
"""Height, half width, half depth [m]."""
_HEAD = np.array(
    [(-0.016, 0.194), (0.016, 0.194), (0.040, 0.204),
     (0.040, 0.224), (0.030, 0.230), (-0.020, 0.230), (-0.032, 0.222), (-0.030, 0.208)]
)  # fmt: skip
_TRIGGER = np.array(
    [(0.022, 0.1965), (0.034, 0.2015), (0.032, 0.180), (0.024, 0.180),
     (0.037, 0.162), (0.030, 0.164), (0.045, 0.155), (0.040, 0.153)]
)  # fmt: skip
"""Corners (x, z) in the bottle's plane [m]."""


def _oval(z: float, a: float, b: float) -> Section:
    return Section(z, a, b, power=2.0 + 0.9 * min(1.0, max(0.0, (0.165 - z) / 0.04)))


def make() -> LabObject:
    """Builds it: 230 mm tall; the nozzle points along +x."""
    body_rows, collar = [*_BODY, *_SHOULDER], [(_COLLAR, 0.0156), (0.1935, 0.0156), (0.194, 0.0151)]
    sections = [_oval(*row) for row in body_rows] + [Section(z, r, r) for z, r in collar]
    body = loft(sections, 80, bottom=1)
    head = slab(_HEAD, [tuple(range(8))], 0.024, 0.003)
    trigger = slab(_TRIGGER, [(0, 3, 2, 1), (3, 5, 4, 2), (5, 7, 6, 4)], 0.014, 0.002)
    to_x = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    tip = [Section(0.0, 0.0072, 0.0072), Section(0.0085, 0.0066, 0.0066), Section(0.010, 0.0052, 0.0052)]
    at = (0.040, 0.0, 0.214)
    nozzle = loft(tip, 32)
    parts = [
        convex_loft([_oval(*_BODY[i]) for i in (0, 2, 3, 4, 5, 6)] + [_oval(*_SHOULDER[0])], 28),
        *(convex_loft([_oval(*low), _oval(*high)], 20) for low, high in pairwise(_SHOULDER)),
        convex_loft([Section(z, r, r) for z, r in (collar[0], (0.194, 0.0155))], 20),
        *(convex(c) for c in (*head.cells, *trigger.cells)),
        convex(np.concatenate([s.points(12, equal_area=True) for s in tip]) @ to_x.T + at),
    ]
    shells = [body.whole, loft(cut(sections, 0.115), 48).whole]
    bottle, liquid = shell(shells[0].vertices, shells[0].faces), solid(shells[1].vertices, shells[1].faces)
    top = parts[-5]
    white, dark = "#eef0f2", "#1f5fb0"
    return assemble(
        "spray_bottle",
        "spray bottle",
        [
            (body.side, _side(body, 700)),
            (body.bottom, _plain(200, 130, "#3f9bd6", "HDPE 2")),
            (body.top, _plain(90, 90, white, "")),
            (head.front, _head(290, 145, left=True)),
            (head.back, _head(290, 145, left=False)),
            (head.rim, _plain(560, 84, white, "ON  -  STREAM  -  OFF  -  SPRAY")),
            (trigger.front, _plain(80, 170, dark, "")),
            (trigger.back, _plain(80, 170, dark, "II")),
            (trigger.rim, _plain(330, 44, dark, "SQUEEZE HERE   SQUEEZE")),
            (nozzle.side.moved(to_x, at), _plain(160, 40, "#e8862a", "OFF  STREAM  SPRAY")),
            (nozzle.top.moved(to_x, at), _plain(64, 64, "#e8862a", "o")),
            (nozzle.bottom.moved(to_x, at), _plain(64, 64, "#e8862a", "")),
        ],
        parts,
        mixture([(0.06, bottle), (0.86, liquid), (0.08, solid(top.vertices, top.faces))]),
        mass_kg=0.548,
        crush_force_n=110.0,
    )


def _side(body: Loft, width: int) -> Image.Image:
    w, h = body.side_px(width)
    p = Print(w, h, "#3f9bd6")
    rng = np.random.default_rng(50)
    for _ in range(150):  # bubbles and droplets in the clear plastic
        x, y, r = rng.uniform(0, w), rng.uniform(0, h), float(rng.uniform(2, 8))
        p.oval(x, y, r, r, ["#7cc0ea", "#2d83bd", "#c7e6f7"][rng.integers(3)])
    collar = body.row(_COLLAR) * h
    p.box(0, 0, w, collar, "#eef0f2")
    for i in range(36):
        p.box(i * w / 36, 0, w / 110, collar, "#c6cacf" if i % 9 else "#e8862a")
    top, low = body.row(_LABEL[1]) * h, body.row(_LABEL[0]) * h
    tall = low - top
    p.box(0, top, w, tall, "#fbfcfd")
    p.box(0, top, w, 0.05 * tall, "#e8862a")
    p.box(0, low - 0.07 * tall, w, 0.07 * tall, "#0f3d78")
    p.box(0.335 * w, top + 0.09 * tall, 0.33 * w, 0.24 * tall, "#0f3d78", round=20)
    p.text(0.5 * w, top + 0.21 * tall, "VITREX", 70, "#ffffff", bold=0.05, fit=0.29 * w)
    p.text(0.5 * w, top + 0.39 * tall, "WINDOW CLEANER", 32, "#e8862a", bold=0.05, fit=0.32 * w)
    p.text(0.5 * w, top + 0.47 * tall, "streak-free shine", 26, "#0f3d78", fit=0.3 * w)
    # A window, one half of it wiped clean.
    x, y, s = 0.41 * w, top + 0.53 * tall, 0.18 * w
    p.box(x, y, s, s, "#8fd0f2", line="#0f3d78", width=5)
    p.polygon([(x + 4, y + s - 4), (x + s - 4, y + 4), (x + 4, y + 4)], "#d8c8a0")
    p.line([(x + s / 2, y), (x + s / 2, y + s)], "#0f3d78", 5)
    p.line([(x, y + s / 2), (x + s, y + s / 2)], "#0f3d78", 5)
    p.star(x + 0.75 * s, y + 0.75 * s, 20, 7, 4, "#ffffff")
    p.text(0.5 * w, low - 0.035 * tall, "500 ml", 26, "#ffffff", bold=0.03)
    p.bar_code(0.03 * w, top + 0.12 * tall, 0.22 * w, 0.2 * tall, "730882100500")
    p.text(0.14 * w, top + 0.39 * tall, "HOW TO USE", 24, "#0f3d78", bold=0.04)
    p.small_print(
        0.03 * w,
        top + 0.43 * tall,
        0.24 * w,
        "Turn the nozzle to SPRAY. Hold 20 cm from the glass, spray, wipe with a dry cloth in "
        "circles. Not for screens.",
        17,
        "#2b2b2b",
    )
    p.text(0.14 * w, low - 0.035 * tall, "Lot V 9034", 22, "#ffffff")
    p.box(0.77 * w, top + 0.09 * tall, 0.17 * w, 0.17 * w, "#ffffff", line="#c8202a", width=5)
    p.text(0.855 * w, top + 0.09 * tall + 0.085 * w, "!", 84, "#1c1c1c", bold=0.06)
    p.text(0.855 * w, top + 0.44 * tall, "WARNING", 28, "#c8202a", bold=0.05)
    p.small_print(
        0.73 * w,
        top + 0.49 * tall,
        0.25 * w,
        "Irritates eyes. Keep out of reach of children. Rinse with water. Contains: ethanol, "
        "tensides under 5 %, perfume (lemon). UFI: 7X20-K0RD.",
        17,
        "#2b2b2b",
    )
    p.text(0.855 * w, low - 0.035 * tall, "refill me", 22, "#ffffff")
    return p.finish(grain=3, seed=22)


def _head(w: int, h: int, *, left: bool) -> Image.Image:
    p = Print(w, h, "#eef0f2")
    p.box(0, 0.12 * h, w, 0.12 * h, "#1f5fb0")
    p.text(0.5 * w, 0.45 * h, "VITREX", 44, "#1f5fb0", bold=0.05)
    p.text(0.5 * w, 0.72 * h, "PRO-SPRAY 2" if left else "PATENT 88-413", 22, "#e8862a", bold=0.04)
    return p.finish(grain=3, seed=23 + left)


def _plain(w: int, h: int, colour: str, words: str) -> Image.Image:
    p = Print(w, h, colour)
    rng = np.random.default_rng(w * h)
    for _ in range(w * h // 900):
        x, y = rng.uniform(0, w), rng.uniform(0, h)
        p.line([(x, y), (x + rng.uniform(-14, 14), y + rng.uniform(-5, 5))], ["#9aa0a6", "#ffffff"][rng.integers(2)], 1)
    if words:
        p.text(w / 2, h / 2, words, min(0.6 * h, 34), "#30343a", bold=0.04, fit=0.9 * w)
    return p.finish(grain=4, seed=w + h)
