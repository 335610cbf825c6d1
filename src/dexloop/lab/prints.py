"""What is printed on the lab's table: a desk mat with the map of a town, and the marker board on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core import se3
from dexloop.lab.objects.ink import Print
from dexloop.vision.board import Board

SIZE_M = (0.9, 0.7)
"""Width and depth of the mat [m]."""

_MARGIN_M = 0.012  # white paper around the board, which the detector needs
_PAPER, _STREET, _WATER, _PARK, _INK = "#efe9da", "#ffffff", "#9cc7df", "#b9d59b", "#3b3a36"
_ROOFS = ("#c98b6b", "#b7654d", "#d8b98a", "#9a8f83", "#c7c0b2", "#8c6f5a", "#a9a4a0", "#d9a679", "#7f8b93", "#b9945f")
_NAMES = (
    "Mill Lane", "Harbour Street", "Old Market", "Rope Walk", "Quarry Road", "Lark Rise", "Chapel Hill", "Weaver Row",
    "Fennel Court", "Station Square", "Kiln Street", "Heron Bank", "Orchard Way", "Bell Yard", "Salt Quay",
    "Tinker Lane", "North Gate", "Willow Green", "Copper Alley", "Ferry Steps", "Hop Garden", "Castle Mound",
    "Sand Pit", "Ivy Close",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Mat:
    """A printed mat. Its frame: origin in the middle, x right, y up the print, z out of it."""

    texture: UInt8[np.ndarray, "h w 3"]
    """RGB; row 0 is the far edge (+y)."""
    size_m: tuple[float, float]
    T_mat_board: Float[np.ndarray, "4 4"]


@cache
def mat_texture(
    board: Board, *, board_at: tuple[float, float] = (-0.28, 0.22), px_per_m: float = 2200.0, seed: int = 0
) -> Mat:
    """Prints the mat.

    Args:
        board: Printed at its true size.
        board_at: Where its middle lies on the mat [m]; the default leaves the middle of the mat free.
        px_per_m: Resolution.
        seed: Of the town: another seed, another map.
    """
    w, h = (round(s * px_per_m) for s in SIZE_M)
    m = px_per_m / 1000.0  # pixels in a millimetre
    rng = np.random.default_rng(seed)
    p = Print(w, h, _PAPER)
    _town(p, rng, m)
    _furniture(p, m)
    texture = np.array(p.finish(grain=3.0, seed=seed))
    tile = board.image(px_per_m)
    x = round((board_at[0] + SIZE_M[0] / 2) * px_per_m - tile.shape[1] / 2)
    y = round((SIZE_M[1] / 2 - board_at[1]) * px_per_m - tile.shape[0] / 2)
    edge = round(_MARGIN_M * px_per_m)
    if min(x, y) < edge or x + tile.shape[1] + edge > w or y + tile.shape[0] + edge > h:
        raise ValueError(f"the board {board.size_m} m at {board_at} m does not lie on the mat of {SIZE_M} m")
    texture[y - edge : y + tile.shape[0] + edge, x - edge : x + tile.shape[1] + edge] = 250
    texture[y : y + tile.shape[0], x : x + tile.shape[1]] = np.where(tile > 127, 250, 12)[..., None]
    # Whole pixels decide where the board really is.
    middle = [(x + tile.shape[1] / 2) / px_per_m - SIZE_M[0] / 2, SIZE_M[1] / 2 - (y + tile.shape[0] / 2) / px_per_m]
    return Mat(texture, SIZE_M, se3.from_rt(np.eye(3), np.array([*middle, 0.0])))


def _town(p: Print, rng: np.random.Generator, m: float) -> None:
    """Blocks between bent streets, each block with its own houses; a river and parks."""
    cols, rows = 19, 15
    gx, gy = np.meshgrid(np.linspace(-0.03, 1.03, cols + 1), np.linspace(-0.03, 1.03, rows + 1))
    gx = (gx + 0.014 * np.sin(7 * gy + 1.3) + rng.uniform(-0.012, 0.012, gx.shape)) * p.width
    gy = (gy + 0.016 * np.sin(5 * gx / p.width + 0.4) + rng.uniform(-0.014, 0.014, gy.shape)) * p.height
    p.box(0, 0, p.width, p.height, _STREET)
    for j in range(rows):
        for i in range(cols):
            corners = np.array([[gx[a, b], gy[a, b]] for a, b in ((j, i), (j, i + 1), (j + 1, i + 1), (j + 1, i))])
            _block(p, rng, corners, m)
    river = [(t * p.width, (0.86 - 0.22 * t + 0.035 * np.sin(9 * t)) * p.height) for t in np.linspace(-0.02, 1.02, 60)]
    p.line(river, "#6f9fbd", 25 * m)
    p.line(river, _WATER, 22 * m)
    for _ in range(140):  # ripples and boats
        t = rng.uniform(0, 1)
        x, y = t * p.width, (0.86 - 0.22 * t + 0.035 * np.sin(9 * t)) * p.height + rng.uniform(-8, 8) * m
        p.line([(x, y), (x + 4 * m, y - 1 * m)], ["#ffffff", "#5d8fb0", "#a0522d"][rng.integers(3)], 0.8 * m)
    for t in (0.13, 0.37, 0.61, 0.88):
        x, y = t * p.width, (0.86 - 0.22 * t + 0.035 * np.sin(9 * t)) * p.height
        p.line([(x - 5 * m, y - 17 * m), (x + 4 * m, y + 17 * m)], "#8d8d86", 6 * m)
        p.line([(x - 5 * m, y - 17 * m), (x + 4 * m, y + 17 * m)], _STREET, 4 * m)
    for k, name in enumerate(_NAMES):
        x = (0.06 + 0.88 * ((k * 0.618) % 1.0)) * p.width
        y = (0.05 + 0.9 * (k + 0.5) / len(_NAMES)) * p.height
        p.text(x, y, name, 6.2 * m, _INK, bold=0.12, outline="#ffffff")


def _block(p: Print, rng: np.random.Generator, corners: np.ndarray, m: float) -> None:
    middle = corners.mean(axis=0)
    inner = middle + (corners - middle) * (1 - 2.6 * m / np.linalg.norm(corners - middle, axis=1, keepdims=True))
    kind = rng.random()
    ground = _PARK if kind < 0.13 else ("#e3dcc8", "#e9dfcf", "#dcd6cb", "#ece4d0")[rng.integers(4)]
    p.polygon([(x, y) for x, y in inner], ground)

    def at(s: float, t: float) -> np.ndarray:
        top = inner[0] + s * (inner[1] - inner[0])
        return top + t * (inner[3] + s * (inner[2] - inner[3]) - top)

    if kind < 0.13:
        for _ in range(26):
            x, y = at(*rng.uniform(0.06, 0.94, 2))
            r = float(rng.uniform(1.0, 3.2)) * m
            p.oval(x, y, r, r, ["#5f8f4a", "#7aa65a", "#4c7a3d", "#8fb86a"][rng.integers(4)])
        return
    nx, ny = rng.integers(2, 5), rng.integers(2, 4)
    for a in range(nx):
        for b in range(ny):
            if rng.random() < 0.13:
                continue
            s0, t0 = (a + rng.uniform(0.08, 0.22)) / nx, (b + rng.uniform(0.08, 0.25)) / ny
            s1, t1 = (a + rng.uniform(0.7, 0.94)) / nx, (b + rng.uniform(0.65, 0.94)) / ny
            roof = _ROOFS[rng.integers(len(_ROOFS))]
            q = [at(s0, t0), at(s1, t0), at(s1, t1), at(s0, t1)]
            shade = [(x + 0.8 * m, y + 0.8 * m) for x, y in q]
            p.polygon(shade, "#8a8475")
            p.polygon([(x, y) for x, y in q], roof)
            if rng.random() < 0.6:  # a ridge
                (x0, y0), (x1, y1) = at(s0, (t0 + t1) / 2), at(s1, (t0 + t1) / 2)
                p.line([(x0, y0), (x1, y1)], "#5f4a3d", 0.5 * m)


def _furniture(p: Print, m: float) -> None:
    """Frame, title, compass and scale, as on any map."""
    p.box(4 * m, 4 * m, p.width - 8 * m, p.height - 8 * m, None, line="#7b2d26", width=2.2 * m)
    p.box(7.5 * m, 7.5 * m, p.width - 15 * m, p.height - 15 * m, None, line=_INK, width=0.6 * m)
    x, y = p.width - 210 * m, p.height - 62 * m
    p.box(x, y, 190 * m, 44 * m, "#fbf6e6", round=3 * m, line="#7b2d26", width=1.2 * m)
    p.text(x + 95 * m, y + 15 * m, "PLAN OF THORNBY QUAY", 15 * m, "#7b2d26", bold=0.03, fit=174 * m)
    p.text(x + 95 * m, y + 28 * m, "surveyed for the Harbour Board, sheet 7", 7 * m, _INK)
    for k in range(8):
        p.box(
            x + (35 + 15 * k) * m, y + 36 * m, 15 * m, 2.4 * m, _INK if k % 2 else "#ffffff", line=_INK, width=0.3 * m
        )
    cx, cy = p.width - 60 * m, 62 * m
    p.oval(cx, cy, 34 * m, 34 * m, "#fbf6e6", line="#7b2d26", width=1.2 * m)
    p.star(cx, cy, 31 * m, 7 * m, 8, "#b8926a")
    p.star(cx, cy, 27 * m, 6 * m, 4, "#7b2d26")
    p.polygon([(cx - 5 * m, cy), (cx + 5 * m, cy), (cx, cy - 31 * m)], _INK)
    p.text(cx + 9 * m, cy - 24 * m, "N", 11 * m, _INK, bold=0.05)
