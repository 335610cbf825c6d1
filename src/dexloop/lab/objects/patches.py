"""Closed surfaces out of printed patches: lofts, slabs and rounded boxes.

A patch is a piece of surface with its own print. Neighbouring patches share their border points exactly, so that the
patches of one body close it once equal points are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from dexloop.sim.shape import Mesh


@dataclass(frozen=True, eq=False)
class Patch:
    """Triangles, counter-clockwise from outside, and where on their print they lie."""

    vertices: Float[np.ndarray, "v 3"]
    """[m]"""
    faces: Int[np.ndarray, "f 3"]
    uv: Float[np.ndarray, "v 2"]
    """Within the print: (0, 0) is its lower left corner."""

    def moved(self, R: Float[np.ndarray, "3 3"], p: Sequence[float]) -> Patch:
        """Returns the patch rotated, then shifted [m]."""
        return Patch(self.vertices @ R.T + np.asarray(p), self.faces, self.uv)


@dataclass(frozen=True)
class Section:
    """A horizontal cross-section: an ellipse, a superellipse, or a rectangle with round corners."""

    z: float
    """Height [m]."""
    a: float
    """Half width along x [m]."""
    b: float
    """Half depth along y [m]."""
    power: float = 2.0
    """|x/a|^power + |y/b|^power = 1."""
    corner: float | None = None
    """Corner radius [m]; makes it a rectangle."""

    def points(self, n: int, *, equal_area: bool = False) -> Float[np.ndarray, "n 3"]:
        """Returns n points, counter-clockwise from above, starting at the back (+y); n = 4k (+ 1 for a rectangle).

        Args:
            n: How many points.
            equal_area: Push the points outwards so that the polygon of an ellipse has the ellipse's area.
        """
        if self.corner is None:
            phi = np.pi / 2 + 2 * np.pi * np.arange(n) / n
            grow = np.sqrt(2 * np.pi / n / np.sin(2 * np.pi / n)) if equal_area else 1.0
            c, s = np.cos(phi), np.sin(phi)
            x = self.a * np.sign(c) * np.abs(c) ** (2 / self.power)
            y = self.b * np.sign(s) * np.abs(s) ** (2 / self.power)
            return np.stack([grow * x, grow * y, np.full(n, self.z)], axis=1)
        arc = np.linspace(0.0, np.pi / 2, (n - 1) // 4)
        corners = [(-1, 1, np.pi / 2), (-1, -1, np.pi), (1, -1, 1.5 * np.pi), (1, 1, 0.0)]
        xy = [[0.0, self.b]]
        for sx, sy, start in corners:
            centre = np.array([sx * (self.a - self.corner), sy * (self.b - self.corner)])
            xy.extend(centre + self.corner * np.stack([np.cos(start + arc), np.sin(start + arc)], axis=1))
        return np.column_stack([np.array(xy), np.full(len(xy), self.z)])


@dataclass(frozen=True, eq=False)
class Loft:
    """The three patches of a lofted body."""

    bottom: Patch
    side: Patch
    top: Patch
    around_m: float
    """Length of the widest section: the width of the side's print."""
    along_m: float
    """Length of the profile: the height of the side's print."""

    @property
    def whole(self) -> Patch:
        """All of it in one."""
        return merge([self.bottom, self.side, self.top])

    def side_px(self, width: int) -> tuple[int, int]:
        """Returns width and height of a side print with square pixels."""
        return width, round(width * self.along_m / self.around_m)

    def row(self, z: float) -> float:
        """Returns how far down the side's print the height z [m] lies, 0 at its top to 1."""
        order = np.argsort(self.side.vertices[:, 2], kind="stable")
        return 1.0 - float(np.interp(z, self.side.vertices[order, 2], self.side.uv[order, 1]))


def loft(sections: Sequence[Section], n: int = 96, *, bottom: int = 0, top: int = -1) -> Loft:
    """Lofts a closed body through sections from the bottom up.

    Args:
        sections: Cross-sections in the order of the profile (heights may turn back, as in a rim).
        n: Points around; 4k, and 4k + 1 for rectangles.
        bottom: Sections up to this one belong to the bottom print, which is laid on from below without stretching.
        top: Sections from this one belong to the top print.
    """
    rings = np.stack([s.points(n) for s in sections])
    top = top % len(sections)
    around = np.concatenate([rings, rings[:, :1]], axis=1)  # the seam column appears twice, at u = 0 and u = 1
    widest = around[np.argmax([s.a + s.b for s in sections])]
    u = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(widest, axis=0), axis=1))])
    profile = np.linalg.norm(np.diff(around[bottom : top + 1], axis=0), axis=2).mean(axis=1)
    v = np.concatenate([[0.0], np.cumsum(profile)])
    uv = np.stack(np.broadcast_arrays(u[None] / u[-1], v[:, None] / v[-1]), axis=-1)
    k = top - bottom + 1
    side = Patch(around[bottom : top + 1].reshape(-1, 3), _grid(k, n + 1), uv.reshape(-1, 2))
    low, high = _disc(rings[: bottom + 1][::-1], up=False), _disc(rings[top:], up=True)
    return Loft(low, side, high, around_m=float(u[-1]), along_m=float(v[-1]))


def _disc(rings: Float[np.ndarray, "k n 3"], *, up: bool) -> Patch:
    """Closes an outer ring through inner rings to its centre, with a print seen from straight above or below."""
    k, n = rings.shape[:2]
    centre = rings[-1].mean(axis=0)
    grid = _grid(k, n, wrap=True)
    last = (k - 1) * n + np.arange(n)
    fan = np.stack([last, np.roll(last, -1), np.full(n, k * n)], axis=1)
    vertices = np.concatenate([rings.reshape(-1, 3), centre[None]])
    low, size = rings[0, :, :2].min(axis=0), np.ptp(rings[0, :, :2], axis=0)
    uv = (vertices[:, :2] - low) / size
    faces = np.concatenate([grid, fan])
    if up:
        return Patch(vertices, faces, np.clip(uv, 0.0, 1.0))
    return Patch(vertices, faces[:, ::-1], np.clip(uv * [-1.0, 1.0] + [1.0, 0.0], 0.0, 1.0))


def _grid(rows: int, cols: int, *, wrap: bool = False) -> Int[np.ndarray, "f 3"]:
    """Two triangles for each cell of a grid of points stored row by row; rows go up, columns to the right."""
    index = np.arange(rows * cols).reshape(rows, cols)
    right = np.roll(index, -1, axis=1)
    if not wrap:
        index, right = index[:, :-1], right[:, :-1]
    a, b, c, d = index[:-1].ravel(), right[:-1].ravel(), right[1:].ravel(), index[1:].ravel()
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])


@dataclass(frozen=True, eq=False)
class Slab:
    """A flat figure with bevelled edges, standing in the xz plane; its front is -y."""

    front: Patch
    back: Patch
    rim: Patch
    cells: tuple[Float[np.ndarray, "n 3"], ...]
    """Corner points of the convex pieces [m]."""


def slab(points: Float[np.ndarray, "n 2"], cells: Sequence[Sequence[int]], depth: float, bevel: float) -> Slab:
    """Extrudes a figure made of convex cells.

    Args:
        points: Corners (x, z) [m].
        cells: Convex polygons, counter-clockwise, as corner numbers; neighbours share whole edges.
        depth: Thickness along y [m].
        bevel: How much is taken off the rim's edges [m].
    """
    edges = {(c[i - 1], c[i]) for c in cells for i in range(len(c))}
    following = {a: b for a, b in edges if (b, a) not in edges}
    inset = points.copy()
    for a, b in following.items():
        c = following[b]
        n1, n2 = (_left(points[b] - points[a]), _left(points[c] - points[b]))
        inset[b] = points[b] + bevel * (n1 + n2) / (1.0 + n1 @ n2)
    h = depth / 2
    flat = np.concatenate([[(c[0], c[i], c[i + 1]) for i in range(1, len(c) - 1)] for c in cells])
    low, size = points.min(axis=0), np.ptp(points, axis=0)
    uv = (inset - low) / size
    front = Patch(_at(inset, -h), flat, uv)
    back = Patch(_at(inset, h), flat[:, ::-1], uv * [-1.0, 1.0] + [1.0, 0.0])
    strips: list[Patch] = []
    loops = _loops(following)
    lengths = [np.linalg.norm(np.diff(points[[*loop, loop[0]]], axis=0), axis=1) for loop in loops]
    longest = max(x.sum() for x in lengths)
    for i, (loop, step) in enumerate(zip(loops, lengths, strict=True)):
        ring = [*loop, loop[0]]
        along = np.concatenate([[0.0], np.cumsum(step)]) / longest
        # Bands from the back to the front: bevel, wall, bevel.
        levels = [_at(inset[ring], h), _at(points[ring], h - bevel), _at(points[ring], bevel - h), _at(inset[ring], -h)]
        across = np.array([0.0, bevel, depth - bevel, depth]) / depth
        band = [np.stack([along, np.full(len(ring), (i + a) / len(loops))], axis=1) for a in across]
        strips.append(Patch(np.concatenate(levels), _grid(4, len(ring)), np.concatenate(band)))
    rim = merge(strips)
    bands = [(inset, -h), (points, bevel - h), (points, h - bevel), (inset, h)]
    solids = tuple(np.concatenate([_at(corners[list(cell)], y) for corners, y in bands]) for cell in cells)
    return Slab(front, back, rim, solids)


def _left(edge: Float[np.ndarray, "2"]) -> Float[np.ndarray, "2"]:
    return np.array([-edge[1], edge[0]]) / np.linalg.norm(edge)


def _at(xz: Float[np.ndarray, "n 2"], y: float) -> Float[np.ndarray, "n 3"]:
    return np.stack([xz[:, 0], np.full(len(xz), y), xz[:, 1]], axis=1)


def _loops(following: dict[int, int]) -> list[list[int]]:
    left = dict(following)
    loops = []
    while left:
        start = min(left)
        loop, at = [start], left.pop(start)
        while at != start:
            loop.append(at)
            at = left.pop(at)
        loops.append(loop)
    return loops


FACES = ("front", "right", "back", "left", "top", "bottom")


def rounded_box(half: Sequence[float], radius: float, arc: int = 6) -> dict[str, Patch]:
    """Returns the six patches of a box with round edges, each with a print that reads upright.

    Args:
        half: Half extents [m].
        radius: Of edges and corners [m].
        arc: Steps on an eighth of a turn.
    """
    h = np.asarray(half, dtype=np.float64)
    # Outward normal, print's right, print's up of each face.
    frames = {
        "front": ((0, -1, 0), (1, 0, 0), (0, 0, 1)),
        "right": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        "back": ((0, 1, 0), (-1, 0, 0), (0, 0, 1)),
        "left": ((-1, 0, 0), (0, -1, 0), (0, 0, 1)),
        "top": ((0, 0, 1), (1, 0, 0), (0, 1, 0)),
        "bottom": ((0, 0, -1), (1, 0, 0), (0, -1, 0)),
    }
    tan = np.tan(np.linspace(0.0, np.pi / 4, arc + 1))
    out = {}
    for name, axes in frames.items():
        normal, right, up = (np.array(x, dtype=np.float64) for x in axes)
        flat = np.array([abs(right @ h), abs(up @ h), abs(normal @ h)]) - radius

        def coordinate(inner: float) -> np.ndarray:
            return np.concatenate([-inner - radius * tan[::-1], inner + radius * tan])

        s, t = np.meshgrid(coordinate(flat[0]), coordinate(flat[1]))
        p = np.stack([s, t, np.full_like(s, flat[2] + radius)], axis=-1).reshape(-1, 3)
        core = np.clip(p, -flat, flat)
        p = core + radius * (p - core) / np.linalg.norm(p - core, axis=1, keepdims=True)
        world = p @ np.stack([right, up, normal])
        uv = p[:, :2] / (2 * (flat[:2] + radius * np.sin(np.pi / 4))) + 0.5
        out[name] = Patch(world, _grid(s.shape[0], s.shape[1]), np.clip(uv, 0.0, 1.0))
    return out


def merge(patches: Sequence[Patch]) -> Patch:
    """Returns several patches as one that shares one print."""
    offsets = np.cumsum([0, *(len(p.vertices) for p in patches)])
    faces = np.concatenate([p.faces + o for p, o in zip(patches, offsets, strict=False)])
    return Patch(np.concatenate([p.vertices for p in patches]), faces, np.concatenate([p.uv for p in patches]))


def convex(points: Float[np.ndarray, "n 3"]) -> Mesh:
    """Returns the convex hull of points as a mesh."""
    import trimesh

    hull = trimesh.convex.convex_hull(np.asarray(points))
    return Mesh(np.array(hull.vertices, dtype=np.float64), np.array(hull.faces, dtype=np.int64))


def cut(sections: Sequence[Section], z: float) -> list[Section]:
    """Returns the sections below a level z [m], closed by one at the level: what a bottle's contents fill."""
    i = next(i for i, s in enumerate(sections) if s.z > z)
    below, above = sections[i - 1], sections[i]
    f = (z - below.z) / (above.z - below.z)
    mid = Section(z, below.a + f * (above.a - below.a), below.b + f * (above.b - below.b), below.power, below.corner)
    return [*sections[:i], mid]


def convex_loft(sections: Sequence[Section], n: int = 24) -> Mesh:
    """Returns the convex hull of sections, each as a polygon of its own area."""
    return convex(np.concatenate([s.points(n, equal_area=True) for s in sections]))
