"""A wooden building block with six printed faces."""

from __future__ import annotations

import numpy as np
from PIL import Image

from dexloop.lab.objects.body import assemble
from dexloop.lab.objects.ink import Print
from dexloop.lab.objects.mass import solid
from dexloop.lab.objects.model import LabObject
from dexloop.lab.objects.patches import FACES, convex, merge, rounded_box

_HALF = 0.0325
_RADIUS = 0.003
_PX = 320


def make() -> LabObject:
    """Builds it: 65 mm, round edges of 3 mm."""
    patches = rounded_box([_HALF] * 3, _RADIUS)
    body = merge(list(patches.values()))
    return assemble(
        "cube",
        "building block",
        [(patches[face], _face(i)) for i, face in enumerate(FACES)],
        [convex(_hull_points())],
        solid(body.vertices, body.faces),
        mass_kg=0.120,
        crush_force_n=None,
    )


def _hull_points() -> np.ndarray:
    """Seven points on each corner's eighth of a sphere: the ends of the flat faces, the edges' middles, the tip."""
    signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
    steps = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]], dtype=float)
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    return np.concatenate([s * (_HALF - _RADIUS + _RADIUS * steps) for s in signs])


def _face(i: int) -> Image.Image:
    paper, frame, ink = [
        ("#f4e3b5", "#c8342c", "#7a1712"),
        ("#cfe3f5", "#1f5fa8", "#0d2f5c"),
        ("#d9efc9", "#3b8a3e", "#174a1c"),
        ("#fbd5dc", "#b8327c", "#5f123d"),
        ("#fff3a8", "#e08a14", "#7c4306"),
        ("#e3d8f2", "#6a3fa0", "#331a58"),
    ][i]
    p = Print(_PX, _PX, paper)
    p.box(12, 12, _PX - 24, _PX - 24, None, round=26, line=frame, width=13)
    rng = np.random.default_rng(100 + i)
    for _ in range(46):  # confetti between frame and figure, different on each face
        x, y = rng.uniform(34, _PX - 34, 2)
        if abs(x - 160) < 88 and abs(y - 150) < 96:
            continue
        colour = [frame, ink, "#ffffff", "#2b2b2b"][rng.integers(4)]
        if rng.random() < 0.5:
            r = float(rng.uniform(3, 7))
            p.oval(x, y, r, r, colour)
        else:
            p.star(x, y, float(rng.uniform(6, 11)), 3.5, 5, colour)
    _figure(p, i, frame, ink)
    p.text(160, 272, ["ANCHOR", "BOAT", "TREE", "HOUSE", "SUN", "MOON"][i], 36, ink, bold=0.05)
    return p.finish(grain=4, seed=i)


def _figure(p: Print, i: int, frame: str, ink: str) -> None:
    x, y = 160, 150
    if i == 0:
        p.oval(x, y - 68, 18, 18, None, line=frame, width=10)
        p.line([(x, y - 52), (x, y + 66)], frame, 16)
        p.line([(x - 42, y - 22), (x + 42, y - 22)], frame, 14)
        p.line([(x - 72, y + 14), (x - 52, y + 52), (x, y + 72), (x + 52, y + 52), (x + 72, y + 14)], frame, 14)
    elif i == 1:
        p.polygon([(x - 78, y + 34), (x + 78, y + 34), (x + 48, y + 74), (x - 52, y + 74)], frame)
        p.polygon([(x + 4, y - 84), (x + 4, y + 22), (x + 66, y + 22)], ink)
        p.polygon([(x - 8, y - 64), (x - 8, y + 22), (x - 58, y + 22)], "#ffffff")
    elif i == 2:
        p.box(x - 11, y + 30, 22, 50, "#7a4a1e")
        for k, w in enumerate((34, 52, 70)):
            p.polygon([(x, y - 86 + 34 * k), (x - w, y - 20 + 32 * k), (x + w, y - 20 + 32 * k)], [ink, frame, ink][k])
    elif i == 3:
        p.box(x - 58, y - 10, 116, 86, frame)
        p.polygon([(x - 76, y - 10), (x, y - 84), (x + 76, y - 10)], ink)
        p.box(x - 12, y + 24, 30, 52, "#fff3a8")
        p.box(x - 46, y + 8, 26, 26, "#cfe3f5")
    elif i == 4:
        p.star(x, y, 88, 56, 13, frame)
        p.oval(x, y, 50, 50, "#fff3a8", line=ink, width=5)
        p.oval(x - 17, y - 10, 6, 9, ink)
        p.oval(x + 17, y - 10, 6, 9, ink)
        p.line([(x - 24, y + 14), (x - 10, y + 26), (x + 12, y + 26), (x + 26, y + 12)], ink, 5)
    else:
        p.oval(x - 6, y, 76, 76, frame)
        p.oval(x + 28, y - 16, 62, 62, "#e3d8f2")
        p.star(x + 34, y - 22, 26, 10, 5, ink)
        p.star(x + 6, y + 30, 15, 6, 5, ink)
