"""A round tin of butter cookies."""

from __future__ import annotations

import numpy as np
from PIL import Image

from dexloop.lab.objects.body import assemble
from dexloop.lab.objects.ink import Print
from dexloop.lab.objects.mass import mixture, shell, solid
from dexloop.lab.objects.model import LabObject
from dexloop.lab.objects.patches import Loft, Section, convex_loft, cut, loft

_HEIGHT, _BODY, _LID, _EDGE = 0.048, 0.0480, 0.0492, 0.030  # height, radii, lower edge of the lid [m]


def make() -> LabObject:
    """Builds it: 98 mm wide, 48 mm high, with a lid that overlaps by 1.2 mm."""
    profile = [
        (0.0, _BODY - 0.0012), (0.0004, _BODY - 0.0004), (0.0012, _BODY), (_EDGE, _BODY), (_EDGE, _LID),
        (_HEIGHT - 0.0015, _LID), (_HEIGHT - 0.0004, _LID - 0.0004), (_HEIGHT, _LID - 0.0015),
        (_HEIGHT, _LID - 0.0035), (_HEIGHT - 0.0005, _LID - 0.0045),
    ]  # fmt: skip
    sections = [Section(z, r, r) for z, r in profile]
    body = loft(sections, 96, bottom=0, top=7)
    whole = body.whole
    parts = [
        convex_loft([Section(z, r, r) for z, r in ((0.0, _BODY - 0.001), (0.001, _BODY), (_EDGE, _BODY))], 32),
        convex_loft(
            [Section(z, r, r) for z, r in ((_EDGE, _LID), (_HEIGHT - 0.0011, _LID), (_HEIGHT, _LID - 0.001))], 32
        ),
    ]
    cookies = loft(cut(sections, 0.028), 48).whole
    return assemble(
        "cookie_tin",
        "cookie tin",
        [(body.side, _side(body, 1000)), (body.top, _lid(500)), (body.bottom, _base(400))],
        parts,
        mixture([(0.4, shell(whole.vertices, whole.faces)), (0.6, solid(cookies.vertices, cookies.faces))]),
        mass_kg=0.210,
        crush_force_n=180.0,
    )


def _biscuit(p: Print, x: float, y: float, r: float, kind: int) -> None:
    p.oval(x, y, r, r, "#d79a4b", line="#9a5f22", width=2)
    if kind == 0:
        for a in np.linspace(0, 2 * np.pi, 9):
            p.oval(x + 0.6 * r * np.cos(a), y + 0.6 * r * np.sin(a), 0.13 * r, 0.13 * r, "#5a2f12")
    elif kind == 1:
        p.oval(x, y, 0.42 * r, 0.42 * r, "#1c3560")
        p.star(x, y, 0.95 * r, 0.8 * r, 12, "#e6b566")
        p.oval(x, y, 0.38 * r, 0.38 * r, "#a8324a")
    else:
        for k in (-0.45, -0.1, 0.25, 0.55):
            p.line([(x - 0.8 * r, y + k * r), (x + 0.8 * r, y + (k - 0.2) * r)], "#5a2f12", 0.09 * r + 1)


def _side(body: Loft, width: int) -> Image.Image:
    w, h = body.side_px(width)
    p = Print(w, h, "#1c3560")
    edge = body.row(_EDGE - 1e-5) * h
    p.box(0, 0, w, edge, "#24457c")
    for i, x in enumerate(np.arange(0, w, 25)):
        p.star(float(x) + 12, 0.5 * edge, 11, 4, 4 + i % 4, "#e3c56b")
        p.box(float(x), edge - 6, 13, 5, ["#e3c56b", "#b8324a"][i % 2])
    names = ("Harbour & Pine", "BUTTER COOKIES", "since 1921", "Danish style", "FIVE KINDS", "crisp and fine")
    for i, name in enumerate(names):
        x = (i + 0.5) * w / len(names)
        p.box(x - 76, edge + 12, 152, 40, "#f5ead0" if i % 2 else "#b8324a", round=12, line="#e3c56b", width=3)
        p.text(x, edge + 32, name, 26, "#1c3560" if i % 2 else "#f5ead0", bold=0.02, fit=138)
        _biscuit(p, x - 46, edge + 80, 24, i % 3)
        _biscuit(p, x + 8, edge + 84, 22, (i + 1) % 3)
        p.star(x + 56, edge + 80, 20 - 2 * i, 8, 5 + i, "#e3c56b")
    return p.finish(grain=3, seed=10)


def _lid(d: int) -> Image.Image:
    p = Print(d, d, "#1c3560")
    c = d / 2
    p.oval(c, c, 0.46 * d, 0.46 * d, None, line="#e3c56b", width=7)
    for i, a in enumerate(np.linspace(0, 2 * np.pi, 40, endpoint=False)):
        p.oval(c + 0.425 * d * np.cos(a), c + 0.425 * d * np.sin(a), 3.0 + i % 4, 3.0 + i % 4, "#e3c56b")
    p.polygon([(0.14 * d, 0.36 * d), (0.5 * d, 0.10 * d), (0.86 * d, 0.36 * d)], "#3f6fa8")
    p.polygon([(0.30 * d, 0.36 * d), (0.42 * d, 0.20 * d), (0.54 * d, 0.36 * d)], "#2e7d4f")
    p.polygon([(0.50 * d, 0.36 * d), (0.60 * d, 0.23 * d), (0.70 * d, 0.36 * d)], "#1f5b38")
    p.oval(0.72 * d, 0.25 * d, 16, 16, "#f2d16b")
    p.box(0.09 * d, 0.36 * d, 0.82 * d, 0.22 * d, "#f5ead0", round=16, line="#b8324a", width=4)
    p.text(c, 0.425 * d, "Harbour & Pine", 52, "#b8324a", bold=0.03, fit=0.74 * d)
    p.text(c, 0.525 * d, "BUTTER COOKIES", 36, "#1c3560", bold=0.04, fit=0.70 * d)
    for k, (x, y, r) in enumerate(
        ((0.27, 0.69, 44), (0.47, 0.74, 52), (0.69, 0.69, 46), (0.36, 0.85, 32), (0.60, 0.87, 30))
    ):
        _biscuit(p, x * d, y * d, r, k % 3)
    p.text(0.79 * d, 0.80 * d, "150 g", 25, "#f5ead0", bold=0.03)
    return p.finish(grain=3, seed=11)


def _base(d: int) -> Image.Image:
    p = Print(d, d, "#b9bcc0")
    for r in (0.46, 0.43, 0.36):
        p.oval(d / 2, d / 2, r * d, r * d, None, line="#8d9196", width=3)
    p.bar_code(0.24 * d, 0.18 * d, 0.52 * d, 0.2 * d, "570123400150")
    p.small_print(
        0.2 * d,
        0.42 * d,
        0.6 * d,
        "Wheat flour, butter (28 %), sugar, coconut, currants, raising agent, salt. May contain "
        "nuts. Best before: see side. Store cool and dry.",
        15,
        "#2b2b2b",
    )
    p.text(0.5 * d, 0.74 * d, "L 0417 H", 26, "#2b2b2b")
    return p.finish(grain=6, seed=12)
