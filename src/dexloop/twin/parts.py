"""Convex parts that together fill an object: what collides. Made by CoACD (Wei et al. 2022) and cached."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError
from dexloop.sim.shape import Mesh
from dexloop.twin.mesh import sample, simplify

if TYPE_CHECKING:
    import manifold3d

_CONCAVITY_M = 0.0025
"""A part may bridge a hollow as deep as this [m] ..."""
_LEAST_CONCAVITY, _MOST_CONCAVITY = 0.04, 0.1
"""... but in shares of half the object's size, not less nor more than this: finer takes minutes and dozens of parts."""
_FACES = 1500
"""Of the mesh that is cut: details finer than this only cost time and parts."""
_MOST_VERTICES = 128
"""Of one part: MuJoCo's contacts take time with each. With half of them a finger meets a can's round corner at an angle
that is wrong by up to 19°, and what is identified from such a push is wrong by a third."""
_FLAT_M, _FLOOR_M, _FOOT = 1e-4, 3e-3, 0.05
"""If this share of an object's outline from above is flat at its lowest point, parts are flat there too: what is within
`_FLOOR_M` of the floor is put on it [m]. No camera sees an edge well that stands on a table, and scans round it off; on
a foot of many small facets an object rocks."""
_ALMOST_CONVEX = 0.95
"""An object is one part if it fills this share of its hull, and has no hollow deeper than `_CONCAVITY_M`."""


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Convex parts and how well they fill the object."""

    parts: tuple[Mesh, ...]
    volume_over_mesh: float
    """Volume of their union over the mesh's."""
    overlap: float
    """Volume in both the union and the mesh, over that in either: 1 if they are the same."""
    concavity_m: float
    """How deep the surface of the object lies inside its parts [m]; see `concavity`."""
    note: str
    """How they were made, if not as usual; else empty."""


def convex_parts(mesh: Mesh, *, most_parts: int = 16, seed: int = 0, cache: Path | None = None) -> Decomposition:
    """Cuts a closed mesh into few convex parts.

    Args:
        mesh: Closed, faces outwards.
        most_parts: How many there may be.
        seed: Of CoACD's search.
        cache: Folder in which results are kept; None for the user's cache.

    Raises:
        InputError: The mesh is not closed.
    """
    whole = _manifold(mesh)
    if whole is None or whole.volume() <= 0:
        raise InputError("only a closed mesh can be cut into convex parts: mend it first (dexloop.twin.mesh.mend)")
    hull = _hull(mesh.vertices)
    note = ""
    parts: tuple[Mesh, ...] = (hull,)
    full = whole.volume() > _ALMOST_CONVEX * _manifold_volume(hull)
    if not (full and concavity(parts, mesh) < _CONCAVITY_M):
        threshold = float(np.clip(2 * _CONCAVITY_M / _size(mesh), _LEAST_CONCAVITY, _MOST_CONCAVITY))
        file = _cache_file(mesh, threshold, most_parts, seed, cache)
        parts = _remembered(file)
        if not parts:
            parts, note = _coacd(mesh, threshold, most_parts, seed)
            parts = parts or (hull,)
            if not note:
                _remember(file, parts)
    return _judge(_standing(parts, mesh), mesh, note)


def _standing(parts: tuple[Mesh, ...], mesh: Mesh) -> tuple[Mesh, ...]:
    """Gives parts a flat foot where the object has one."""
    a, b, c = np.moveaxis(mesh.vertices[mesh.faces], 1, 0)
    floor = float(mesh.vertices[:, 2].min())
    flat = np.max(mesh.vertices[mesh.faces][..., 2], axis=1) < floor + _FLAT_M
    foot = 0.5 * float(np.linalg.norm(np.cross(b - a, c - a)[flat], axis=1).sum())
    if foot < _FOOT * float(np.prod(np.ptp(mesh.vertices[:, :2], axis=0))):
        return parts
    out = []
    for part in parts:
        vertices = part.vertices.copy()
        vertices[vertices[:, 2] < floor + _FLOOR_M, 2] = floor
        out.append(_hull(vertices) if np.ptp(vertices[:, 2]) > 0 else part)
    return tuple(out)


def _coacd(mesh: Mesh, threshold: float, most_parts: int, seed: int) -> tuple[tuple[Mesh, ...], str]:
    """Returns the parts, none if CoACD is missing or fails, and then why."""
    try:
        import coacd

        coarse = simplify(mesh, _FACES)
        coacd.set_log_level("off")
        found = coacd.run_coacd(
            coacd.Mesh(coarse.vertices, coarse.faces), threshold=threshold, max_convex_hull=most_parts,
            preprocess_mode="off", mcts_nodes=15, mcts_iterations=60, seed=seed,
        )  # fmt: skip
    except (ImportError, OSError, RuntimeError, InputError) as error:
        return (), f"one convex hull stands for the object, because CoACD failed ({error})"
    parts = tuple(_hull(np.asarray(v)) for v, _ in found if len(v) >= 4)
    return (parts, "") if parts else ((), "one convex hull stands for the object, because CoACD found no parts")


def _hull(points: Float[np.ndarray, "n 3"]) -> Mesh:
    """Returns the convex hull of points, with at most `_MOST_VERTICES` vertices."""
    import trimesh

    hull = trimesh.convex.convex_hull(points)
    if len(hull.vertices) > _MOST_VERTICES:
        hull = trimesh.convex.convex_hull(_spread(np.asarray(hull.vertices)))
    return Mesh(np.array(hull.vertices, dtype=np.float64), np.array(hull.faces, dtype=np.int64))


def _spread(vertices: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "k 3"]:
    """Chooses vertices whose hull comes nearest to that of all: always the one that sticks out of it farthest."""
    directions = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [-1, 1, 1], [1, -1, 1], [1, 1, -1]])
    along = vertices @ directions.T
    chosen = list(dict.fromkeys([*along.argmax(axis=0).tolist(), *along.argmin(axis=0).tolist()]))
    from scipy.spatial import ConvexHull

    hull = ConvexHull(vertices[chosen], incremental=True)
    while len(chosen) < _MOST_VERTICES:
        out = (vertices @ hull.equations[:, :3].T + hull.equations[:, 3]).max(axis=1)
        farthest = int(np.argmax(out))
        if out[farthest] < 1e-6:
            break
        chosen.append(farthest)
        hull.add_points(vertices[farthest][None])
    return vertices[chosen]


def _manifold(mesh: Mesh) -> manifold3d.Manifold | None:
    import manifold3d

    whole = manifold3d.Manifold(manifold3d.Mesh64(mesh.vertices, mesh.faces.astype(np.uint64)))
    return whole if whole.status() == manifold3d.Error.NoError else None


def _manifold_volume(mesh: Mesh) -> float:
    whole = _manifold(mesh)
    return 0.0 if whole is None else float(whole.volume())


def _judge(parts: tuple[Mesh, ...], mesh: Mesh, note: str) -> Decomposition:
    """Measures the parts against the mesh."""
    import manifold3d

    whole = _manifold(mesh)
    assert whole is not None
    solids = [m for m in map(_manifold, parts) if m is not None]
    union = manifold3d.Manifold.batch_boolean(solids, manifold3d.OpType.Add)
    common = float((union ^ whole).volume())
    return Decomposition(
        parts=parts,
        volume_over_mesh=float(union.volume() / whole.volume()),
        overlap=common / float(union.volume() + whole.volume() - common),
        concavity_m=concavity(parts, mesh),
        note=note,
    )


def concavity(parts: Sequence[Mesh], mesh: Mesh) -> float:
    """Returns how deep the object's surface lies inside its parts [m]: what 99 of 100 places have at most."""
    points, _ = sample(mesh, 4000)
    depth = np.max([_inside(part, points) for part in parts], axis=0)
    return float(max(np.percentile(depth, 99.0), 0.0))


def _inside(part: Mesh, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, " n"]:
    """Returns how deep points lie inside a convex part [m]; negative outside."""
    a, b, c = np.moveaxis(part.vertices[part.faces], 1, 0)
    normals = np.cross(b - a, c - a)
    length = np.linalg.norm(normals, axis=1)
    flat = length > 1e-14
    normals = normals[flat] / length[flat, None]
    return (np.sum(normals * a[flat], axis=1) - points @ normals.T).min(axis=1)


def _size(mesh: Mesh) -> float:
    return float(np.ptp(mesh.vertices, axis=0).max())


def _cache_file(mesh: Mesh, threshold: float, most_parts: int, seed: int, cache: Path | None) -> Path:
    import importlib.metadata

    import platformdirs

    try:
        version = importlib.metadata.version("coacd")
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    key = hashlib.sha256(f"{threshold:.6g} {most_parts} {seed} {version} {_MOST_VERTICES}".encode())
    key.update(np.ascontiguousarray(mesh.vertices).tobytes() + np.ascontiguousarray(mesh.faces).tobytes())
    folder = cache or Path(platformdirs.user_cache_dir("dexloop")) / "parts"
    return folder / f"{key.hexdigest()[:24]}.npz"


def _remembered(file: Path) -> tuple[Mesh, ...]:
    try:
        with np.load(file, allow_pickle=False) as data:
            return tuple(Mesh(data[f"v{k}"], data[f"f{k}"]) for k in range(int(data["count"])))
    except (OSError, ValueError, KeyError):
        return ()


def _remember(file: Path, parts: tuple[Mesh, ...]) -> None:
    arrays: dict[str, Any] = {"count": np.array(len(parts))}
    for k, part in enumerate(parts):
        arrays |= {f"v{k}": part.vertices, f"f{k}": part.faces}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{uuid.uuid4().hex[:8]}.npz")
        np.savez_compressed(draft, **arrays)
        draft.rename(file)
    except OSError:
        pass  # a machine without a cache cuts again next time
