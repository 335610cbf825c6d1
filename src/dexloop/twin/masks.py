"""Where the objects are in each picture of a scan, from geometry and colour alone.

The table is flat and was seen from all sides, so what it looks like is known wherever the object did not hide it for
good: a pixel that disagrees with the table behind it shows something that stands on it. All pictures together carve
the object out of space (visual hull); from then on it is known where to look and which colours the object has, and
each outline is found by weighing both kinds of evidence, smoothed along the picture's own edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt8

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status
from dexloop.twin.cameras import look_at_point
from dexloop.vision.views import View

_OUTLINE_PX = 2
"""How far beyond its mask another object may hide this one [px]."""
_TEXELS = 560
"""Across the table's picture."""
_TABLE_VIEWS = 30
"""Pictures that the table's picture is made of."""
_UNSTEADY = 14.0
"""Grey levels by which pictures differ about a place on the table that they do not really show."""
_SURE, _NOISE = 16.0, 8.0
"""Grey levels by which a pixel differs from the table that it shows: undecided, and for one unit of evidence more."""
_CELLS = 72
"""Along each side of the first hull."""
_FINE_CELLS = 110
"""Along the longest side of an object's own hull."""
_FILLED, _CARVED = 0.85, 0.96
"""Part of the pictures that must show the object where a cell is: while outlines are rough, and once they are fine."""
_AGREED = 0.92
"""The same for what stays of an outline in the end."""
_POSSIBLE = 0.6
"""The same for a cell that may belong to the object: many colours of it look like the table behind it."""
_UNIFORM = -3.0 * float(np.log(256.0))
"""Logarithm of the density of colours, if all are equally likely."""
_CLUTTER = 0.1
"""How often something else than the table is behind an object, where the table should be."""
_SMALLEST_M = 0.012
"""What is smaller is dirt."""
_REACH = 0.6
"""How far from what the cameras look at objects are searched, over the cameras' distance."""


@dataclass(frozen=True, eq=False)
class SeenObject:
    """An object as a scan shows it, before there is a mesh."""

    name: str
    masks: tuple[Bool[np.ndarray, "h w"], ...]
    """Where it is seen, view by view."""
    points: Float[np.ndarray, "p 3"]
    """On the surface of its visual hull, inside of which it lies [m]."""
    normals: Float[np.ndarray, "p 3"]
    """Of the hull, outwards."""
    colours: UInt8[np.ndarray, "p 3"]
    cell_m: float
    """Distance of neighbouring points [m]."""
    T_world_box: Float[np.ndarray, "4 4"]
    """Middle and directions of an upright box around it."""
    size_m: Float[np.ndarray, "3"]
    """Of the box [m]."""
    agreement: float
    """Intersection over union of masks and the hull's outline, median [1]."""


@dataclass(frozen=True, eq=False)
class Objects:
    """The objects on the table, largest first."""

    objects: tuple[SeenObject, ...]
    statuses: tuple[Status, ...]


def find_objects(views: Sequence[View], *, most: int = 8) -> Objects:
    """Finds what stands on the table (the plane z = 0) and where each picture shows it.

    Args:
        views: Located pictures from all sides.
        most: Objects at most; smaller ones are left out, and said so.

    Raises:
        InputError: Nothing stands on the table where the cameras look, or it moved.
    """
    table = _Table(views)
    some = [views[k] for k in np.unique(np.linspace(0, len(views) - 1, _TABLE_VIEWS).astype(int))]
    first = [_smooth(table.evidence(v), v, 2) for v in some]
    grid = _Grid.around(table.centre, _REACH * table.reach, _CELLS)
    filled = grid.inside(some, first, _FILLED, slack_m=0.5 * grid.cell_m)
    parts = _components(filled, grid)
    if not parts:
        raise InputError(
            "nothing was found standing on the table where the cameras look: keep the object in the middle of every "
            "picture, on a table with a print (a map, a newspaper) that differs from it in colour, and film again"
        )
    statuses: list[Status] = []
    if len(parts) > most:
        statuses.append(Status(Level.WARN, "many_objects", f"{len(parts)} things stand on the table, {most} are used"))
    # Once it is known where objects hide the table, its picture is made again without them.
    standing = grid.surface(np.any([p for _, p in parts], axis=0))
    table = _Table(views, [_grown(standing.draw(v), 2) for v in views])
    loose = grid.inside(some, first, _POSSIBLE, slack_m=0.5 * grid.cell_m)
    parts = parts[:most]
    surfaces = [grid.surface(filled) for _, filled in parts]
    order = [_from_near(v, [s.points.mean(axis=0) for s in surfaces]) for v in views]
    objects = []
    for k, part in enumerate(parts):
        # What stands in front of it tells nothing about it.
        covered = [_covered(v, surfaces, o[: o.index(k)]) for v, o in zip(views, order, strict=True)]
        objects.append(_outline(f"object{k}" if k else "object", views, table, part, loose, covered))
    objects = _apart(objects, order)
    strange = _unexplained(views, table, objects)
    for thing, part in zip(objects, strange, strict=True):
        statuses.extend(_verdict(thing, views, part))
    return Objects(tuple(objects), tuple(statuses))


def with_masks(
    views: Sequence[View],
    masks: Sequence[Bool[np.ndarray, "h w"]],
    others: Sequence[Sequence[Bool[np.ndarray, "h w"]]] = (),
) -> tuple[View, ...]:
    """Returns the views with their masks; masks of other objects tell where this one may be hidden."""
    own = [replace(v, mask=m) for v, m in zip(views, masks, strict=True)]
    if not others:
        return tuple(own)
    near = np.ones((2 * _OUTLINE_PX + 1,) * 2, np.uint8)
    hidden = [cv2.dilate(np.logical_or.reduce(each).astype(np.uint8), near) > 0 for each in zip(*others, strict=True)]
    return tuple(replace(v, unknown=h & ~m) for v, m, h in zip(own, masks, hidden, strict=True))


def read_masks(folder: str | Path, views: Sequence[View]) -> tuple[View, ...]:
    """Reads masks that somebody else made: one picture for each view, of its name, white where the object is.

    Raises:
        InputError: One is missing, has another shape, or all are empty.
    """
    folder = Path(folder)
    masks = []
    for view in views:
        file = next((f for f in (folder / f"{view.name}.png", folder / f"{view.name}.jpg.png") if f.is_file()), None)
        found = None if file is None else cv2.imread(str(file), cv2.IMREAD_UNCHANGED)
        if found is None:
            raise InputError(f"{folder} has no readable mask {view.name}.png: give one for each picture used")
        one = found if found.ndim == 2 else found[..., 3] if found.shape[2] == 4 else found.max(axis=2)
        h, w = view.rgb.shape[:2]
        if abs(one.shape[1] * h / (one.shape[0] * w) - 1) > 0.01:
            raise InputError(
                f"{file} is {one.shape[1]} x {one.shape[0]} px, of another shape than its picture ({w} x {h} px): "
                f"give masks of the pictures themselves"
            )
        masks.append(cv2.resize(one, (w, h), interpolation=cv2.INTER_NEAREST) > (0 if one.max() <= 1 else 127))
    if not any(m.any() for m in masks):
        raise InputError(f"all masks in {folder} are empty: white is where the object is")
    return with_masks(views, masks)


def object_from_masks(views: Sequence[View], *, name: str = "object") -> SeenObject:
    """Returns the object that the views' own masks show.

    Raises:
        InputError: A view has no mask, or no place in space lies in all of them.
    """
    masks = [v.mask for v in views if v.mask is not None]
    if len(masks) != len(views):
        raise InputError("not all pictures have a mask: give one for each")
    place = look_at_point(views)
    reach = float(np.median([np.linalg.norm(v.T_world_camera[:3, 3] - place) for v in views]))
    grid = _Grid.around(np.array([*place[:2], 0.0]), _REACH * reach, _CELLS)
    fields = [np.where(m, 1.0, -1.0).astype(np.float32) for m in masks]
    parts = _components(grid.inside(views, fields, _FILLED, slack_m=0.5 * grid.cell_m), grid)
    if not parts:
        raise InputError("the masks show no common object: they must belong to these pictures, and it may not move")
    return _solid(name, views, masks, fields, _Grid.around_part(parts[0]))


class _Table:
    """What the table looks like: the median of what pictures show at each place of the plane z = 0."""

    def __init__(self, views: Sequence[View], hidden: Sequence[Bool[np.ndarray, "h w"]] | None = None):
        target = look_at_point(views)
        self.reach = float(np.median([np.linalg.norm(v.T_world_camera[:3, 3] - target) for v in views]))
        self.centre = np.array([target[0], target[1], 0.0])
        half, n = 0.95 * self.reach, _TEXELS
        texel = 2 * half / n
        self._plane = np.array([[texel, 0, target[0] - half], [0, -texel, target[1] + half], [0, 0, 1.0]])
        chosen = np.unique(np.linspace(0, len(views) - 1, _TABLE_VIEWS).astype(int))
        some = [views[k] for k in chosen]
        seen = np.zeros((n, n, 3, len(some)), np.uint8)
        here = np.zeros((n, n, len(some)), bool)
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        for k, view in enumerate(some):
            H = self._to_picture(view)
            seen[..., k] = cv2.warpPerspective(view.rgb, H, (n, n), flags=flags)
            whole = np.full(view.rgb.shape[:2], 255, np.uint8)
            if hidden is not None:
                whole[hidden[chosen[k]]] = 0
            here[..., k] = (cv2.warpPerspective(whole, H, (n, n), flags=flags) > 250) & self._below(view)
        times = here.sum(axis=-1)
        self._colour = _median(seen, here)
        away = np.abs(seen.astype(np.int16) - self._colour[..., None]).astype(np.uint8)
        unsteady = _median(away, here).max(axis=-1)
        # A place that hardly any picture shows, or that every picture shows differently, is not known.
        soft = cv2.medianBlur(unsteady, 5)
        self._known = ((times >= 4) & (soft < _UNSTEADY)).astype(np.uint8)

    def _to_picture(self, view: View) -> Float[np.ndarray, "3 3"]:
        T = se3.inverse(view.T_world_camera)
        return view.camera.K @ T[:3][:, [0, 1, 3]] @ self._plane

    def _below(self, view: View) -> Bool[np.ndarray, "n n"]:
        """Places in front of the camera: a homography also maps what is behind it."""
        column, row = np.meshgrid(np.arange(_TEXELS), np.arange(_TEXELS))
        z = (se3.inverse(view.T_world_camera)[2, [0, 1, 3]] @ self._plane) @ np.stack(
            [column.ravel(), row.ravel(), np.ones(column.size)]
        )
        return (z > 0).reshape(column.shape)

    def evidence(self, view: View) -> Float32[np.ndarray, "h w"]:
        """Returns how much a pixel speaks for something on the table (more than 0) or for the table; 0 if unknown."""
        low, high, known = self._behind(view)
        picture = view.rgb.astype(np.int16)
        off = np.maximum(np.maximum(low - picture, picture - high), 0).max(axis=-1)
        return np.where(known, np.clip((off - _SURE) / _NOISE, -2.0, 4.0), 0.0).astype(np.float32)

    def density(self, view: View) -> _Behind:
        """Returns how likely each pixel's colour is if it shows the table.

        The density is one over the volume of colours that the table has around there, and falls off beyond them.
        """
        low, high, known = self._behind(view)
        picture = view.rgb.astype(np.int16)
        off = np.maximum(np.maximum(low - picture, picture - high), 0).astype(np.float32)
        volume = np.log((high - low).astype(np.float32) + 2 * _NOISE)
        size = (view.camera.width, view.camera.height)
        all_of_it = np.full(self._known.shape, 255, np.uint8)
        H = np.linalg.inv(self._to_picture(view))
        reach = cv2.warpPerspective(all_of_it, H, size, flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP) > 0
        return _Behind(-(off / _NOISE + volume).sum(axis=-1), known, reach & _looks_down(view) & ~known)

    def _behind(self, view: View) -> tuple[Int[np.ndarray, "h w 3"], Int[np.ndarray, "h w 3"], Bool[np.ndarray, "h w"]]:
        """Returns the darkest and brightest colour of the table around each pixel, and where it is known.

        Around, because half a pixel of error at an edge of the print is no disagreement.
        """
        size = (view.camera.width, view.camera.height)
        H = np.linalg.inv(self._to_picture(view))
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        drawn = cv2.warpPerspective(self._colour, H, size, flags=flags).astype(np.int16)
        known = cv2.warpPerspective(self._known * 255, H, size, flags=flags) > 250
        known &= _looks_down(view)
        around = np.ones((3, 3), np.uint8)
        return cv2.erode(drawn, around), cv2.dilate(drawn, around), known


def _looks_down(view: View) -> Bool[np.ndarray, "h w"]:
    """Returns the pixels below the horizon."""
    u, v = np.meshgrid(np.arange(view.camera.width), np.arange(view.camera.height))
    R, K = view.T_world_camera[:3, :3], view.camera
    return (R[2, 0] * (u - K.cx) / K.fx + R[2, 1] * (v - K.cy) / K.fy + R[2, 2]) < 0


@dataclass(frozen=True, eq=False)
class _Behind:
    """What is known of what is behind each pixel."""

    table: Float32[np.ndarray, "h w"]
    """Logarithm of the density of its colour, if it shows the table."""
    known: Bool[np.ndarray, "h w"]
    """Where that is known."""
    hidden: Bool[np.ndarray, "h w"]
    """Where the table is behind, but was never seen; elsewhere is floor and wall."""


def _median(value: UInt8[np.ndarray, "*n k"], here: Bool[np.ndarray, "..."]) -> UInt8[np.ndarray, "*n"]:
    """Median over the last axis of those that are here; 0 where none is."""
    few = here[..., None, :] if here.ndim < value.ndim else here
    order = np.sort(np.where(few, value, 255), axis=-1)
    middle = np.maximum(few.sum(axis=-1) - 1, 0) // 2
    middle = np.broadcast_to(middle, value.shape[:-1])[..., None]
    return np.take_along_axis(order, middle, axis=-1)[..., 0]


def _smooth(evidence: Float32[np.ndarray, "h w"], view: View, radius: int) -> Float32[np.ndarray, "h w"]:
    """Averages evidence within regions of one colour (guided filter, He et al. 2010)."""
    return cv2.ximgproc.guidedFilter(view.rgb, evidence, radius, 80.0)  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class _Grid:
    """Cells in space."""

    low: Float[np.ndarray, "3"]
    """Middle of the first cell [m]."""
    cell_m: float
    shape: tuple[int, int, int]

    @staticmethod
    def around(centre: Float[np.ndarray, "3"], half_m: float, cells: int) -> _Grid:
        """Returns a grid that stands on the table, three quarters as high as it is wide."""
        cell = 2 * half_m / cells
        low = centre + np.array([cell / 2 - half_m, cell / 2 - half_m, cell / 2])
        return _Grid(low, cell, (cells, cells, cells * 3 // 4))

    @staticmethod
    def around_part(part: tuple[_Grid, Bool[np.ndarray, "x y z"]]) -> _Grid:
        """Returns a finer grid around filled cells."""
        grid, filled = part
        p = grid.points()[np.flatnonzero(filled.ravel())]
        low, high = p.min(axis=0) - 2.5 * grid.cell_m, p.max(axis=0) + 2.5 * grid.cell_m
        low[2] = 0.0
        cell = float((high - low).max()) / _FINE_CELLS
        shape = tuple(int(n) for n in np.ceil((high - low) / cell).astype(int))
        return _Grid(low + cell / 2, cell, (shape[0], shape[1], shape[2]))

    def points(self) -> Float[np.ndarray, "n 3"]:
        """Middles of all cells [m]."""
        axes = [self.low[k] + self.cell_m * np.arange(self.shape[k]) for k in range(3)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)

    def at(self, other: _Grid, filled: Bool[np.ndarray, "x y z"]) -> Bool[np.ndarray, "a b c"]:
        """Returns which cells lie in filled cells of another grid."""
        axes = [
            np.rint((self.low[k] - other.low[k] + self.cell_m * np.arange(self.shape[k])) / other.cell_m).astype(int)
            for k in range(3)
        ]
        within = [(a >= 0) & (a < n) for a, n in zip(axes, other.shape, strict=True)]
        found = filled[np.ix_(*(np.clip(a, 0, n - 1) for a, n in zip(axes, other.shape, strict=True)))]
        return found & within[0][:, None, None] & within[1][None, :, None] & within[2][None, None, :]

    def inside(
        self,
        views: Sequence[View],
        fields: Sequence[Float32[np.ndarray, "h w"]],
        part: float,
        *,
        slack_m: float = 0.0,
        among: Bool[np.ndarray, "x y z"] | None = None,
    ) -> Bool[np.ndarray, "x y z"]:
        """Returns the cells that are seen as the object in at least a part of the pictures that know.

        Args:
            views: Pictures.
            fields: For each, more than 0 where the object is, less where it is not, 0 where nobody knows.
            part: Of the pictures that must agree.
            slack_m: Length at the object over which a field is averaged first [m].
            among: Cells that are asked; others are empty.
        """
        chosen = np.arange(int(np.prod(self.shape))) if among is None else np.flatnonzero(among.ravel())
        p = self.points()[chosen].astype(np.float32)
        middle = self.low + 0.5 * self.cell_m * np.array(self.shape)
        yes, no = np.zeros(len(p), np.int32), np.zeros(len(p), np.int32)
        # From one side of the scan to the other, so that most empty cells are refuted by the first few pictures.
        for k in np.argsort(np.arange(len(views)) * 0.618 % 1.0):
            view, one = views[k], fields[k]
            distance = float(np.linalg.norm(view.T_world_camera[:3, 3] - middle))
            width = round(slack_m * view.camera.fx / distance)
            spread = cv2.blur(one, (2 * width + 1, 2 * width + 1)) if width else one
            P = (view.camera.K @ se3.inverse(view.T_world_camera)[:3]).astype(np.float32)
            q = p @ P[:, :3].T + P[:, 3]
            z = np.maximum(q[:, 2], 1e-3)
            u, v = np.rint(q[:, 0] / z).astype(np.int32), np.rint(q[:, 1] / z).astype(np.int32)
            ok = (q[:, 2] > 1e-3) & (u >= 0) & (v >= 0) & (u < view.camera.width) & (v < view.camera.height)
            value = np.where(ok, spread[np.where(ok, v, 0), np.where(ok, u, 0)], 0.0)
            yes += value > 0.05
            no += value < -0.05
            left = no <= (1.0 - part) * len(views)
            if left.sum() < 0.7 * len(left):
                p, yes, no, chosen = p[left], yes[left], no[left], chosen[left]
        enough = yes + no >= max(5, 0.25 * len(views))
        out = np.zeros(int(np.prod(self.shape)), bool)
        out[chosen] = enough & (yes >= part * (yes + no))
        return out.reshape(self.shape)

    def surface(self, filled: Bool[np.ndarray, "x y z"]) -> _Cells:
        """Returns the filled cells that have an empty neighbour."""
        from scipy.ndimage import binary_erosion

        index = np.flatnonzero((filled & ~np.asarray(binary_erosion(filled), bool)).ravel())
        return _Cells(self.points()[index], self.cell_m, index)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Some cells of a grid."""

    points: Float[np.ndarray, "n 3"]
    cell_m: float
    index: Int[np.ndarray, " n"]
    """Their numbers in the grid."""

    def draw(self, view: View) -> Bool[np.ndarray, "h w"]:
        """Returns their outline in a picture."""
        out = np.zeros(view.rgb.shape[:2], np.uint8)
        p = se3.transform(se3.inverse(view.T_world_camera), self.points)
        uv = view.camera.project(p)
        xy = np.rint(uv[np.isfinite(uv).all(axis=1)]).astype(int)
        inside = (xy >= 0).all(axis=1) & (xy < [view.camera.width, view.camera.height]).all(axis=1)
        if not inside.any():
            return out > 0
        out[xy[inside, 1], xy[inside, 0]] = 255
        # A cell covers as many pixels as it is wide; the square that is drawn for it has an odd width.
        width = float(np.median(view.camera.fx * self.cell_m / np.abs(p[:, 2])))
        square = np.ones((2 * round((width - 1) / 2) + 1,) * 2, np.uint8)
        closed = np.ones((2 * int(np.ceil(width)) + 1,) * 2, np.uint8)
        return cv2.morphologyEx(cv2.dilate(out, square), cv2.MORPH_CLOSE, closed) > 0


def _components(filled: Bool[np.ndarray, "x y z"], grid: _Grid) -> list[tuple[_Grid, Bool[np.ndarray, "x y z"]]]:
    """Returns connected filled cells that stand on the table, largest first."""
    from scipy.ndimage import find_objects as boxes
    from scipy.ndimage import label

    labels = np.zeros(filled.shape, np.int32)
    label(filled, output=labels)
    sizes = np.bincount(labels.ravel())
    found = []
    for k, box in enumerate(boxes(labels), start=1):
        extent = [(s.stop - s.start) * grid.cell_m for s in box]
        if box[2].start <= 2 and np.median(extent) >= _SMALLEST_M and sizes[k] >= 8:
            found.append((int(sizes[k]), k))
    return [(grid, labels == k) for _, k in sorted(found, reverse=True)]


def _outline(
    name: str,
    views: Sequence[View],
    table: _Table,
    part: tuple[_Grid, Bool[np.ndarray, "x y z"]],
    loose: Bool[np.ndarray, "x y z"],
    covered: Sequence[Bool[np.ndarray, "h w"]],
) -> SeenObject:
    """Finds an object's outline in every picture.

    Args:
        name: Of the object.
        views: The pictures.
        table: What is behind it.
        part: Its rough hull.
        loose: Cells that may also belong to it.
        covered: Where something else may be in front of it.
    """
    from scipy.ndimage import binary_dilation, binary_erosion, binary_propagation

    grid, filled = part
    reach = np.asarray(binary_dilation(filled, iterations=6), bool) & loose
    wide = np.asarray(binary_dilation(filled, iterations=2), bool)
    wide |= np.asarray(binary_propagation(filled, mask=reach), bool)
    core = np.asarray(binary_erosion(filled, border_value=1), bool)
    around, middle = grid.surface(wide), grid.surface(core if core.any() else filled)
    crops = [_Crop.of(v, around.draw(v)) for v in views]
    close = [c.view for c in crops]
    near, front = [around.draw(v) for v in close], [c.cut(m) for c, m in zip(crops, covered, strict=True)]
    inner = [middle.draw(v) & ~f for v, f in zip(close, front, strict=True)]
    tables = [table.density(v) for v in close]
    fine = _Grid.around_part((grid, wide))
    among = fine.at(grid, wide)
    masks: list[np.ndarray] = []
    votes: list[np.ndarray] = []
    for turn in range(3):
        speaks = _colour_evidence(close, near, inner, tables)
        plain = [_smooth(s, view, 3) for s, view in zip(speaks, close, strict=True)]
        if turn:
            # First it may still grow to where some pictures missed it; in the end most must agree.
            limit = _POSSIBLE if turn == 1 else _FILLED
            sure = fine.surface(fine.inside(close, votes, _CARVED, among=among))
            possible = fine.surface(fine.inside(close, votes, limit, among=among))
            for k, view in enumerate(close):
                speaks[k] += 3.0 * _grown(sure.draw(view), -3) - 8.0 * ~_grown(possible.draw(view), 2)
        masks = [
            _connected((_smooth(s, view, 3) > 0) & n, i)
            for s, view, n, i in zip(speaks, close, near, inner, strict=True)
        ]
        inner = [_grown(m, -2) & ~f for m, f in zip(masks, front, strict=True)]
        # A colour that the table has as well votes neither for the object nor against it.
        votes = [
            np.where(f, 0.0, np.where(m, 1.0, np.where(p < -1.0, -1.0, 0.0))).astype(np.float32)
            for m, p, f in zip(masks, plain, front, strict=True)
        ]
    # What leaked into the table in one picture is refuted by the others.
    fields = _fields(masks, front)
    solid = fine.surface(fine.inside(close, fields, _AGREED, among=among))
    masks = [m & _grown(solid.draw(v), 1) for m, v in zip(masks, close, strict=True)]
    fields = _fields(masks, front)
    seen = _solid(name, close, masks, fields, fine, among)
    return replace(seen, masks=tuple(c.pasted(m) for c, m in zip(crops, masks, strict=True)))


def _fields(
    masks: Sequence[Bool[np.ndarray, "h w"]], unknown: Sequence[Bool[np.ndarray, "h w"]]
) -> list[Float32[np.ndarray, "h w"]]:
    """Returns 1 in the mask, -1 outside and 0 where nothing is known."""
    return [np.where(u, 0.0, np.where(m, 1.0, -1.0)).astype(np.float32) for m, u in zip(masks, unknown, strict=True)]


@dataclass(frozen=True, eq=False)
class _Crop:
    """The part of a picture around an object."""

    view: View
    corner: tuple[int, int]
    """Its first column and row in the whole picture."""
    whole: tuple[int, int]
    """Rows and columns of that."""

    @staticmethod
    def of(view: View, mask: Bool[np.ndarray, "h w"], margin_px: int = 40) -> _Crop:
        h, w = mask.shape
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        if not len(rows):  # out of the picture: a corner of it that shows nothing
            rows, columns = np.array([0]), np.array([0])
        top, left = max(int(rows[0]) - margin_px, 0), max(int(columns[0]) - margin_px, 0)
        bottom, right = min(int(rows[-1]) + margin_px, h), min(int(columns[-1]) + margin_px, w)
        c = view.camera
        camera = replace(c, width=right - left, height=bottom - top, cx=c.cx - left, cy=c.cy - top)
        rgb = np.ascontiguousarray(view.rgb[top:bottom, left:right])
        return _Crop(View(view.name, camera, view.T_world_camera, rgb), (left, top), (h, w))

    def cut(self, mask: Bool[np.ndarray, "H W"]) -> Bool[np.ndarray, "h w"]:
        left, top = self.corner
        return mask[top : top + self.view.camera.height, left : left + self.view.camera.width]

    def pasted(self, mask: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "H W"]:
        out = np.zeros(self.whole, bool)
        left, top = self.corner
        out[top : top + mask.shape[0], left : left + mask.shape[1]] = mask
        return out


def _grown(mask: Bool[np.ndarray, "h w"], px: int) -> Bool[np.ndarray, "h w"]:
    """Returns the mask with its edge moved outwards by some pixels, or inwards if negative."""
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * abs(px) + 1,) * 2)
    return (cv2.dilate if px > 0 else cv2.erode)(mask.astype(np.uint8), disc) > 0


def _connected(mask: Bool[np.ndarray, "h w"], core: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """Keeps what hangs together with the core, and fills small holes."""
    _, label = cv2.connectedComponents(mask.astype(np.uint8), connectivity=4)
    keep = np.unique(label[core & mask])
    count, hole, stats, _ = cv2.connectedComponentsWithStats(
        (~np.isin(label, keep[keep > 0])).astype(np.uint8), connectivity=4
    )
    small = np.flatnonzero(stats[:, cv2.CC_STAT_AREA] < 40)
    kept = np.isin(label, keep[keep > 0])
    return kept | np.isin(hole, small[small > 0]) if count > 1 else kept


def _colour_evidence(
    views: Sequence[View],
    near: Sequence[Bool[np.ndarray, "h w"]],
    inner: Sequence[Bool[np.ndarray, "h w"]],
    tables: Sequence[_Behind],
) -> list[Float32[np.ndarray, "h w"]]:
    """Returns log p(colour | object) - log p(colour | what is behind), from -4 to 4.

    The object's colours are those of the inner pixels of all pictures. Behind is the table where it is known, and
    elsewhere (floor, wall, other objects) whatever colours that picture shows beside the object.
    """
    bins = [_bins(v.rgb) for v in views]
    own = np.log(_histogram([b[m] for b, m in zip(bins, inner, strict=True)]))
    out = []
    for b, n, at in zip(bins, near, tables, strict=True):
        on, off = ~n & at.known, ~n & ~at.known
        around = _histogram([b[on if on.sum() > 200 else ~n]])
        beyond = _histogram([b[off if off.sum() > 200 else ~n]])
        strange = on & (at.table < _UNIFORM)
        other = np.log(_histogram([b[strange]]))[b] if strange.sum() > 100 else _UNIFORM
        table = np.logaddexp(at.table + np.log(1 - _CLUTTER), other + np.log(_CLUTTER))
        unseen = np.where(at.hidden, np.log(0.5 * (around + beyond))[b], np.log(beyond)[b])
        behind = np.where(at.known, table, unseen)
        out.append(np.clip(own[b] - behind, -4.0, 4.0).astype(np.float32))
    return out


def _bins(rgb: UInt8[np.ndarray, "h w 3"]) -> Int[np.ndarray, "h w"]:
    c = (rgb >> 3).astype(np.int32)
    return (c[..., 0] << 10) + (c[..., 1] << 5) + c[..., 2]


def _histogram(bins: Sequence[Int[np.ndarray, " n"]]) -> Float[np.ndarray, " m"]:
    """Returns the density of colours (a grey level cubed), in 32 steps of red, green and blue, smoothed."""
    from scipy.ndimage import gaussian_filter

    counts = np.bincount(np.concatenate(list(bins)), minlength=1 << 15).reshape(32, 32, 32).astype(np.float64)
    soft = gaussian_filter(counts, 0.8, mode="nearest").ravel()
    return (soft / max(soft.sum(), 1.0) + 2e-5) / 8.0**3


def _solid(
    name: str,
    views: Sequence[View],
    masks: Sequence[Bool[np.ndarray, "h w"]],
    fields: Sequence[Float32[np.ndarray, "h w"]],
    grid: _Grid,
    among: Bool[np.ndarray, "x y z"] | None = None,
) -> SeenObject:
    """Carves the hull of masks, and describes it."""
    from scipy.ndimage import gaussian_filter

    filled = grid.inside(views, fields, _CARVED, among=among)
    parts = _components(filled, grid)
    if not parts:
        raise InputError(
            "the pictures contradict each other about where the object is: it, or something beside it, moved during "
            "the scan. Film again without touching anything"
        )
    filled = parts[0][1]
    surface = grid.surface(filled)
    points, index = surface.points, surface.index
    solid = np.asarray(gaussian_filter(np.pad(filled.astype(np.float32), 2), 1.5, mode="constant"))
    slope = np.stack(list(np.gradient(solid)), axis=-1)[2:-2, 2:-2, 2:-2].reshape(-1, 3)[index]
    normals = -slope / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), 1e-9)
    overlaps = [iou(surface.draw(v) & (f != 0), m & (f != 0)) for v, m, f in zip(views, masks, fields, strict=True)]
    T, size = _box(points, grid.cell_m)
    colours = surface_colours(views, masks, points, normals)
    return SeenObject(name, tuple(masks), points, normals, colours, grid.cell_m, T, size, float(np.median(overlaps)))


def iou(a: Bool[np.ndarray, "h w"], b: Bool[np.ndarray, "h w"]) -> float:
    """Returns intersection over union; 1 if both are empty."""
    union = np.count_nonzero(a | b)
    return np.count_nonzero(a & b) / union if union else 1.0


def _box(points: Float[np.ndarray, "p 3"], cell_m: float) -> tuple[Float[np.ndarray, "4 4"], Float[np.ndarray, "3"]]:
    """Returns the smallest upright box around points."""
    (x, y), (a, b), turn = cv2.minAreaRect(points[:, :2].astype(np.float32))
    top = float(points[:, 2].max()) + cell_m / 2
    R = se3.quat_to_matrix(se3.so3_exp(np.array([0.0, 0.0, np.radians(turn)])))
    return se3.from_rt(R, np.array([x, y, top / 2])), np.array([a + cell_m, b + cell_m, top])


def surface_colours(
    views: Sequence[View],
    masks: Sequence[Bool[np.ndarray, "h w"]],
    points: Float[np.ndarray, "p 3"],
    normals: Float[np.ndarray, "p 3"],
) -> UInt8[np.ndarray, "p 3"]:
    """Returns the mean colour from the pictures that look at each point from the front."""
    total, weight = np.zeros((len(points), 3)), np.full(len(points), 1e-6)
    for view, mask in zip(views, masks, strict=True):
        xy, ok = view.pixels(points)
        ray = view.T_world_camera[:3, 3] - points
        facing = np.sum(normals * ray, axis=1) / np.linalg.norm(ray, axis=1)
        u, v = np.where(ok, xy[:, 0], 0), np.where(ok, xy[:, 1], 0)
        w = np.where(ok & mask[v, u], np.maximum(facing, 0.0) ** 4, 0.0)
        total += w[:, None] * view.rgb[v, u]
        weight += w
    colours = total / weight[:, None]
    unseen = weight < 1e-3  # the side it stands on
    colours[unseen] = np.median(colours[~unseen], axis=0) if not unseen.all() else 128.0
    return colours.round().astype(np.uint8)


def _from_near(view: View, middles: Sequence[Float[np.ndarray, "3"]]) -> list[int]:
    """Returns the numbers of things on the table, from the nearest to the camera to the farthest."""
    eye = view.T_world_camera[:2, 3]
    return [int(k) for k in np.argsort([np.linalg.norm(m[:2] - eye) for m in middles])]


def _covered(view: View, surfaces: Sequence[_Cells], nearer: Sequence[int]) -> Bool[np.ndarray, "h w"]:
    out = np.zeros(view.rgb.shape[:2], bool)
    for k in nearer:
        out |= surfaces[k].draw(view)
    return out


def _apart(objects: Sequence[SeenObject], order: Sequence[Sequence[int]]) -> list[SeenObject]:
    """Gives a pixel that two objects claim to the nearer one: the other is behind it."""
    masks = [list(o.masks) for o in objects]
    for v, near_first in enumerate(order):
        taken = np.zeros_like(masks[0][v])
        for k in near_first:
            masks[k][v] = masks[k][v] & ~taken
            taken = taken | masks[k][v]
    return [replace(o, masks=tuple(m)) for o, m in zip(objects, masks, strict=True)]


def _unexplained(views: Sequence[View], table: _Table, objects: Sequence[SeenObject]) -> list[float]:
    """Returns, for each object, how much around it is neither table nor object, over its own area, on average."""
    total = np.zeros((len(objects), len(views)))
    for v, view in enumerate(views):
        odd = cv2.morphologyEx((table.evidence(view) > 1.0).astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
        odd[_grown(np.any([o.masks[v] for o in objects], axis=0), 4)] = 0
        for k, thing in enumerate(objects):
            area = max(np.count_nonzero(thing.masks[v]), 100)
            total[k, v] = np.count_nonzero(odd & _grown(thing.masks[v], round(0.7 * np.sqrt(area)))) / area
    return [float(t) for t in total.mean(axis=1)]


def _verdict(thing: SeenObject, views: Sequence[View], strange: float) -> list[Status]:
    """Says what is wrong with an object; `strange` is what `_unexplained` found around it."""
    found = []
    if strange > 0.5:
        raise InputError(
            f"something around {thing.name} is neither it nor the table ({strange:.0%} of its own size): it moved "
            f"during the scan, or something passed through it. Film again without touching anything"
        )
    if thing.agreement < 0.9 or strange > 0.15:
        found.append(
            Status(
                Level.WARN,
                "object_moved",
                f"{thing.name} is not the same in all pictures ({thing.agreement:.0%} of its outlines fit one solid, "
                f"{strange:.0%} of its size around it is unexplained)",
                "film again without touching the object: it seems to have moved",
            )
        )
    cut = [v.name for v, m in zip(views, thing.masks, strict=True) if _at_border(m)]
    if len(cut) > 0.2 * len(views):
        found.append(
            Status(
                Level.WARN,
                "object_cut",
                f"{thing.name} reaches out of {len(cut)} of {len(views)} pictures",
                "keep the whole object in the picture while walking around it",
            )
        )
    return found


def _at_border(mask: Bool[np.ndarray, "h w"]) -> bool:
    return bool(mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any())
