"""Meshes that a simulation can use: read, mended, smoothed, simplified, measured and checked.

A mesh brought by a user may have holes, turned faces, doubled vertices, several shells or no consistent surface at all.
What is nearly closed is mended face by face; anything else is made anew as the surface where its winding number
(Jacobson et al. 2013; with far faces taken together as in Barill et al. 2018) is one half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numba
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.shape import Mesh
from dexloop.vision.cores import on_all_cores

UNITS = {"m": 1.0, "cm": 0.01, "mm": 0.001, "in": 0.0254}
"""Lengths in metres."""
FORMATS = (".obj", ".stl", ".ply", ".glb", ".gltf", ".off")

_Y_TO_Z_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
"""What glTF calls up is y."""
_WELD = 1e-6
"""Vertices closer than this share of the mesh's size are one."""
_DUST = 1e-3
"""Shells with less than this share of the largest one's box are crumbs."""
_MOST_CROSSING = 0.01
"""With more than this share of faces crossing others, a closed mesh is made anew."""
_REMESH_CELLS = 96
"""Voxels along the longest side of a mesh that is made anew."""
_THIN_M = 0.0015
"""Walls thinner than this are passed through by contacts at usual time steps [m]."""
_RAYS = 500
"""How many places' thickness is measured."""


@dataclass(frozen=True, eq=False)
class Brought:
    """A mesh from a user's file, in metres."""

    mesh: Mesh
    texture: UInt8[np.ndarray, "h w 3"] | None
    """RGB, if the file has one."""
    unit: str
    """Of the file: one of `UNITS`."""
    guessed: bool
    """Whether the unit is a guess from the size."""


@dataclass(frozen=True, eq=False)
class Mended:
    """A closed mesh, and what was done to close it."""

    mesh: Mesh
    notes: tuple[str, ...]
    """One sentence for each thing that was done; empty if nothing was."""


@dataclass(frozen=True, eq=False)
class Solid:
    """A uniform solid of density 1 kg/m³."""

    volume_m3: float
    com: Float[np.ndarray, "3"]
    """Centre of mass [m]."""
    inertia: Float[np.ndarray, "3 3"]
    """About the centre of mass, for 1 kg/m³ [kg·m²]."""


@dataclass(frozen=True)
class Fitness:
    """Numbers that say whether a mesh can be simulated."""

    faces: int
    watertight: bool
    """Every edge has two faces."""
    winding_consistent: bool
    """Neighbouring faces look to the same side."""
    outward: bool
    """The volume is positive."""
    shells: int
    euler: int
    """Vertices - edges + faces: 2 for each shell without handles, 2 less for each handle."""
    crossing_faces: int
    """Faces that cut through others."""
    thinnest_m: float
    """Thickness that 99 of 100 places have at least [m]."""
    volume_m3: float
    volume_over_hull: float
    """1 for a convex object."""
    size_m: tuple[float, float, float]
    problems: tuple[str, ...]
    """What makes it unfit, one sentence each."""

    @property
    def fit(self) -> bool:
        """Whether it can be simulated as it is."""
        return not self.problems


@dataclass(frozen=True)
class Agreement:
    """How near two surfaces are."""

    chamfer_m: float
    """Mean distance from either surface to the other [m]."""
    f_score: float
    """Harmonic mean of the shares of either surface within `within_m` of the other."""
    within_m: float
    volume_error: float
    """Of the first against the second: 0.01 is one percent too large."""


def read(path: str | Path, *, unit: str | None = None) -> Brought:
    """Reads a mesh file of any state and turns its lengths into metres; z is up (in glTF it was y).

    Args:
        path: OBJ, STL, PLY, GLB or OFF.
        unit: One of `UNITS`; None guesses it from the size, which is right for things that fit a hand.

    Raises:
        InputError: It is missing, broken, without triangles, or of a size that fits no unit.
    """
    import trimesh

    path = Path(path)
    if unit is not None and unit not in UNITS:
        raise UnknownName("unit", unit, UNITS)
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path.name} is not a mesh that can be read: convert it to one of {', '.join(FORMATS)}")
    if not path.is_file():
        raise InputError(f"there is no mesh {path}")
    try:
        scene = trimesh.load_scene(path)
        meshes = [m for m in scene.dump() if isinstance(m, trimesh.Trimesh) and len(m.faces)]
        whole = meshes[0] if len(meshes) == 1 else trimesh.util.concatenate(meshes) if meshes else None
    except Exception as error:  # each reader fails in its own way
        raise InputError(f"{path.name} cannot be read ({error}): export it again where it comes from") from error
    if whole is None or not isinstance(whole, trimesh.Trimesh):
        raise InputError(f"{path.name} has no triangles: if it is a point cloud, reconstruct a surface first")
    vertices = np.asarray(whole.vertices, dtype=np.float64)
    if not np.isfinite(vertices).all():
        raise InputError(f"{path.name} has vertices that are not finite numbers: export it again")
    if path.suffix.lower() in (".glb", ".gltf"):
        vertices = vertices @ _Y_TO_Z_UP.T
    size = float(np.ptp(vertices, axis=0).max())
    found = unit or _guess_unit(path, size)
    uv, texture = _texture(whole)
    mesh = Mesh(vertices * UNITS[found], np.asarray(whole.faces, dtype=np.int64), uv)
    return Brought(mesh, texture, found, unit is None)


def _guess_unit(path: Path, size: float) -> str:
    """Takes the object for one of 1 cm to 1 m."""
    for unit, low, high in (("m", 0.01, 1.0), ("cm", 1.0, 20.0), ("mm", 20.0, 1000.0)):
        if low <= size < high:
            return unit
    raise InputError(f"{path.name} is {size:.3g} long in a unit that cannot be guessed: give it (m, cm, mm or in)")


def _texture(whole: object) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns texture coordinates and picture of a trimesh, if it has both."""
    visual = getattr(whole, "visual", None)
    uv, material = getattr(visual, "uv", None), getattr(visual, "material", None)
    picture = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
    if uv is None or picture is None:
        return None, None
    return np.asarray(uv, dtype=np.float64), np.asarray(picture.convert("RGB"))


def mend(mesh: Mesh) -> Mended:
    """Makes a closed, manifold mesh with faces outwards out of one in any state; texture coordinates are dropped.

    Raises:
        InputError: It encloses no volume.
    """
    notes: list[str] = []
    vertices, faces = _weld(mesh, notes)
    faces, shell = _orient(vertices, faces, notes)
    faces = _without_crumbs(vertices, faces, shell, notes)
    closed = _closed(vertices, faces, notes)
    if closed is None:
        closed = _remesh(Mesh(vertices, faces), notes)
    return Mended(closed, tuple(notes))


def _weld(mesh: Mesh, notes: list[str]) -> tuple[Float[np.ndarray, "v 3"], Int[np.ndarray, "f 3"]]:
    """Merges vertices at one place and drops faces without area and second copies of faces."""
    if not len(mesh.faces) or not np.isfinite(mesh.vertices).all():
        raise InputError("the mesh has no faces, or vertices that are not finite numbers: export it again")
    size = float(np.ptp(mesh.vertices, axis=0).max())
    if size <= 0:
        raise InputError("all vertices of the mesh are in one place: it encloses no volume")
    places = np.round(mesh.vertices / (_WELD * size))
    _, first, which = np.unique(places, axis=0, return_index=True, return_inverse=True)
    vertices, faces = mesh.vertices[first], which.ravel()[mesh.faces]
    distinct = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
    faces = faces[distinct]
    _, once = np.unique(np.sort(faces, axis=1), axis=0, return_index=True)
    if len(once) < len(faces):
        notes.append(f"{len(faces) - len(once)} faces that were there twice are dropped")
    faces = _without_fins(faces[np.sort(once)], notes)
    if not len(faces):
        raise InputError("no face of the mesh has an area: it encloses no volume")
    used, index = np.unique(faces, return_inverse=True)
    return vertices[used], index.reshape(-1, 3)


def _without_fins(faces: Int[np.ndarray, "f 3"], notes: list[str]) -> Int[np.ndarray, "f 3"]:
    """Drops faces that stick out of a surface: one edge is open, at another they are the third."""
    before = len(faces)
    while len(faces):
        edges, owner = _edges(faces)
        _, which, count = np.unique(_keys(edges), return_inverse=True, return_counts=True)
        at = count[which]
        is_open, is_third = np.zeros(len(faces), bool), np.zeros(len(faces), bool)
        is_open[owner[at == 1]], is_third[owner[at > 2]] = True, True
        if not (is_open & is_third).any():
            break
        faces = faces[~(is_open & is_third)]
    if len(faces) < before:
        notes.append(f"{before - len(faces)} faces that stuck out of the surface are dropped")
    return faces


def _keys(edges: Int[np.ndarray, "e 2"]) -> Int[np.ndarray, " e"]:
    """One number for each undirected edge: sorting those is much faster than sorting pairs."""
    return edges.min(axis=1) * (int(edges.max()) + 1) + edges.max(axis=1)


def _edges(faces: Int[np.ndarray, "f 3"]) -> tuple[Int[np.ndarray, "e 2"], Int[np.ndarray, " e"]]:
    """Returns the three directed edges of each face, and which face each is of."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    return edges, np.tile(np.arange(len(faces)), 3)


def _neighbours(faces: Int[np.ndarray, "f 3"]) -> tuple[Int[np.ndarray, "p 2"], Bool[np.ndarray, " p"]]:
    """Returns pairs of faces that are the only two at an edge, and whether both run along it in the same direction."""
    edges, owner = _edges(faces)
    key = _keys(edges)
    order = np.argsort(key, kind="stable")
    _, start, count = np.unique(key[order], return_index=True, return_counts=True)
    a, b = order[start[count == 2]], order[start[count == 2] + 1]
    return np.stack([owner[a], owner[b]], axis=1), edges[a, 0] == edges[b, 0]


def _orient(
    vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"], notes: list[str]
) -> tuple[Int[np.ndarray, "f 3"], Int[np.ndarray, " f"]]:
    """Turns faces so that neighbours agree and each shell looks outwards; returns also the shell of each face."""
    pairs, same = _neighbours(faces)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    order = np.argsort(both[:, 0], kind="stable")
    start = np.searchsorted(both[order, 0], np.arange(len(faces) + 1))
    turn, shell = _spread(len(faces), start, both[order, 1], np.tile(same, 2)[order])
    # The fewer of a shell's faces count as turned; then a whole shell is, if its volume is negative.
    turned = np.bincount(shell, turn) > 0.5 * np.bincount(shell)
    turn ^= turned[shell]
    out = np.where(turn[:, None], faces[:, ::-1], faces)
    middle = np.stack([np.bincount(shell, vertices[faces].mean(axis=1)[:, k]) for k in range(3)], axis=1)
    middle /= np.bincount(shell)[:, None]
    a, b, c = np.moveaxis(vertices[out] - middle[shell][:, None], 1, 0)
    inside_out = np.bincount(shell, np.einsum("ij,ij->i", a, np.cross(b, c))) < 0
    if turn.any():
        notes.append(f"{int(turn.sum())} faces that looked the other way than their neighbours are turned")
    if inside_out.any():
        notes.append(f"{int(inside_out.sum())} shells were inside out and are turned")
    return np.where(inside_out[shell][:, None], out[:, ::-1], out), shell


@numba.njit(cache=True)
def _spread(count, start, neighbour, same):
    """Walks over neighbouring faces: whether each must be turned to agree with the first of its shell; its shell."""
    turn, shell = np.zeros(count, np.bool_), np.full(count, -1, np.int64)
    stack = np.empty(count, np.int64)
    shells = 0
    for first in range(count):
        if shell[first] >= 0:
            continue
        shell[first], stack[0], height = shells, first, 1
        while height > 0:
            height -= 1
            face = stack[height]
            for n in range(start[face], start[face + 1]):
                other = neighbour[n]
                if shell[other] < 0:
                    shell[other], turn[other] = shells, turn[face] ^ same[n]
                    stack[height] = other
                    height += 1
        shells += 1
    return turn, shell


def _without_crumbs(
    vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"], shell: Int[np.ndarray, " f"], notes: list[str]
) -> Int[np.ndarray, "f 3"]:
    tri, count = vertices[faces], int(shell.max()) + 1
    low, high = np.full((count, 3), np.inf), np.full((count, 3), -np.inf)
    np.minimum.at(low, shell, tri.min(axis=1))
    np.maximum.at(high, shell, tri.max(axis=1))
    size = np.linalg.norm(high - low, axis=1) ** 3
    keep = size >= _DUST * size.max()
    if not keep.all():
        notes.append(f"{int((~keep).sum())} crumbs are dropped")
    return faces[keep[shell]]


def _closed(vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"], notes: list[str]) -> Mesh | None:
    """Closes holes and unites shells; None if the surface is too broken for that."""
    import manifold3d

    found: list[str] = []
    filled = _fill(vertices, faces, found)
    if filled is None:
        return None
    # Crumbs went, and holes are closed: what hangs together now is a shell.
    shell = _spread_shells(filled.faces)
    solids, size = [], float(np.prod(np.ptp(filled.vertices, axis=0)))
    for k in range(int(shell.max()) + 1):
        part = filled.faces[shell == k]
        if len(_crossing(filled.vertices, part)) > _MOST_CROSSING * len(part):
            return None
        used, index = np.unique(part, return_inverse=True)
        whole = manifold3d.Manifold(manifold3d.Mesh64(filled.vertices[used], index.reshape(-1, 3).astype(np.uint64)))
        if whole.status() != manifold3d.Error.NoError:
            return None
        if whole.volume() > _DUST**2 * size:
            solids.append(whole)
    if not solids:
        return None
    if len(solids) <= int(shell.max()):
        found.append(f"{int(shell.max()) + 1 - len(solids)} shells without volume are dropped")
    elif len(solids) == 1:
        notes += found
        return filled
    union = manifold3d.Manifold.batch_boolean(solids, manifold3d.OpType.Add)
    result = union.to_mesh64()
    pieces = len(union.decompose())
    if pieces < len(solids):
        found.append(f"{len(solids)} shells that overlap or contain each other are united to {pieces}")
    notes += found
    return Mesh(np.array(result.vert_properties[:, :3]), np.array(result.tri_verts).astype(np.int64))


def _spread_shells(faces: Int[np.ndarray, "f 3"]) -> Int[np.ndarray, " f"]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs, _ = _neighbours(faces)
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(faces),) * 2)
    return connected_components(links, directed=False)[1].astype(np.int64)


def _fill(vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"], notes: list[str]) -> Mesh | None:
    """Closes each hole with a fan around the middle of its rim; None if an edge has more than two faces."""
    edges, _ = _edges(faces)
    n = len(vertices) + 1
    key, back = edges[:, 0] * n + edges[:, 1], edges[:, 1] * n + edges[:, 0]
    if len(np.unique(key)) < len(key):
        return None
    rim = edges[~np.isin(key, back)]
    out_v, out_f = [vertices], [faces]
    for loop in _loops(rim[:, ::-1]):  # a hole is walked against its faces
        around = np.array(loop)
        centre = sum(len(v) for v in out_v)
        out_v.append(vertices[around].mean(axis=0)[None])
        out_f.append(np.stack([around, np.roll(around, -1), np.full(len(around), centre)], axis=1))
        wide = 2.0 * float(np.linalg.norm(vertices[around] - out_v[-1], axis=1).max())
        notes.append(f"a hole of {wide * 1e3:.1f} mm is closed")
    return Mesh(np.concatenate(out_v), np.concatenate(out_f))


def _loops(rim: Int[np.ndarray, "e 2"]) -> list[list[int]]:
    """Joins directed edges to loops that pass through each of their vertices once, where holes touch as well."""
    following: dict[int, list[int]] = {}
    for a, b in rim.tolist():
        following.setdefault(a, []).append(b)
    loops = []
    while following:
        path = [next(iter(following))]
        while path[-1] in following:
            ends = following[path[-1]]
            at = ends.pop()
            if not ends:
                del following[path[-1]]
            if at in path:
                loops.append(path[path.index(at) :])
                path = path[: path.index(at)]
            path.append(at)
    return loops


def _remesh(mesh: Mesh, notes: list[str]) -> Mesh:
    """Makes the surface anew where the winding number is one half."""
    from scipy import ndimage
    from skimage.measure import marching_cubes

    low, high = mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)
    voxel = float((high - low).max()) / _REMESH_CELLS
    low = low - 2 * voxel
    coarse = np.ceil((high - low) / (4 * voxel)).astype(int) + 2
    winding = np.asarray(ndimage.zoom(_winding_grid(low, 4 * voxel, coarse, mesh), 4, order=1))
    # Far from the surface the winding number hardly changes; near it, and where it is not clear, it is found exactly.
    step = (coarse - 1) * 4 * voxel / (np.array(winding.shape) - 1)
    near = np.zeros(winding.shape, bool)
    near[tuple(np.round((sample(mesh, 200_000)[0] - low) / step).astype(int).T)] = True
    near = np.asarray(ndimage.binary_dilation(near, iterations=2), dtype=bool) | (np.abs(winding - 0.5) < 0.4)
    winding[near] = _winding(low + np.argwhere(near) * step, mesh)
    labels, count = cast(tuple[np.ndarray, int], ndimage.label(winding > 0.5))
    sizes = np.bincount(labels.ravel())[1:]
    if count == 0 or sizes.max() < 8:
        raise InputError(
            "the mesh encloses no volume, as if it were a sheet or its faces looked both ways: give its walls "
            "thickness, or make its normals consistent, in a mesh editor"
        )
    kept = np.isin(labels, 1 + np.flatnonzero(sizes >= _DUST * sizes.max()))
    winding = np.where((winding > 0.5) & ~kept, 0.0, winding)
    # A winding number steps by one at the surface: blurred over a voxel it has a slope to interpolate on.
    soft = ndimage.gaussian_filter(np.clip(winding, 0.0, 1.0), 0.7)
    vertices, faces, _, _ = marching_cubes(soft, 0.5, spacing=tuple(step))
    notes.append(f"it was too broken to mend, and is made anew to {voxel * 1e3:.2g} mm")
    return Mesh(vertices.astype(np.float64) + low, faces[:, ::-1].astype(np.int64))


def _winding_grid(
    low: Float[np.ndarray, "3"], step: float, shape: Int[np.ndarray, "3"], mesh: Mesh
) -> Float[np.ndarray, "x y z"]:
    return _winding(low + step * np.argwhere(np.ones(shape, bool)), mesh).reshape(shape)


def _winding(points: Float[np.ndarray, "n 3"], mesh: Mesh) -> Float[np.ndarray, " n"]:
    """Returns how often the surface goes around each point."""
    tri = mesh.vertices[mesh.faces]
    low, high = mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)
    cell = float((high - low).max()) / 12.0
    box = ((tri.mean(axis=1) - low) / cell).astype(np.int64)
    order = np.lexsort(box.T)
    _, start = np.unique(box[order], axis=0, return_index=True)
    start = np.r_[np.sort(start), len(order)]
    tri = tri[order]
    area = 0.5 * np.cross(tri[:, 1] - tri[:, 0], tri[:, 2] - tri[:, 0])
    size = np.linalg.norm(area, axis=1) + 1e-30
    weights = np.add.reduceat(size, start[:-1])
    middle = np.add.reduceat(size[:, None] * tri.mean(axis=1), start[:-1]) / weights[:, None]
    whole = np.add.reduceat(area, start[:-1])
    reach = np.linalg.norm(tri - np.repeat(middle, np.diff(start), axis=0)[:, None], axis=-1).max(axis=1)
    total = np.empty(len(points))
    on_all_cores(_sum_winding, points, tri, start, middle, whole, np.maximum.reduceat(reach, start[:-1]), total)
    return total


@numba.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _sum_winding(points, tri, start, middle, whole, reach, out, thread, threads):
    """Σ solid angles / 4π; a group of faces farther away than twice its size counts as one dipole."""
    for i in range(thread, len(points), threads):
        total = 0.0
        px, py, pz = points[i]
        for g in range(len(middle)):
            x, y, z = middle[g, 0] - px, middle[g, 1] - py, middle[g, 2] - pz
            r2 = x * x + y * y + z * z
            if r2 > (2.0 * reach[g]) ** 2:
                total += (x * whole[g, 0] + y * whole[g, 1] + z * whole[g, 2]) / (r2 * np.sqrt(r2))
                continue
            for f in range(start[g], start[g + 1]):
                ax, ay, az = tri[f, 0, 0] - px, tri[f, 0, 1] - py, tri[f, 0, 2] - pz
                bx, by, bz = tri[f, 1, 0] - px, tri[f, 1, 1] - py, tri[f, 1, 2] - pz
                cx, cy, cz = tri[f, 2, 0] - px, tri[f, 2, 1] - py, tri[f, 2, 2] - pz
                la = np.sqrt(ax * ax + ay * ay + az * az)
                lb = np.sqrt(bx * bx + by * by + bz * bz)
                lc = np.sqrt(cx * cx + cy * cy + cz * cz)
                det = (
                    ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx)
                )  # fmt: skip
                dot = (
                    la * lb * lc + (ax * bx + ay * by + az * bz) * lc
                    + (bx * cx + by * cy + bz * cz) * la + (cx * ax + cy * ay + cz * az) * lb
                )  # fmt: skip
                total += 2.0 * np.arctan2(det, dot)
        out[i] = total / (4.0 * np.pi)


def smooth(mesh: Mesh, *, rounds: int = 10, flat: Bool[np.ndarray, " v"] | None = None) -> Mesh:
    """Takes noise off without shrinking (Taubin 1995): each round pulls vertices to their neighbours, then back.

    Args:
        mesh: Closed.
        rounds: How often.
        flat: Vertices that keep their height z, such as those on the table.
    """
    from scipy.sparse import coo_array

    edges, _ = _edges(mesh.faces)
    n = len(mesh.vertices)
    links = coo_array((np.ones(2 * len(edges)), np.concatenate([edges, edges[:, ::-1]]).T), shape=(n, n)).tocsr()
    links.data[:] = 1.0
    degree = np.maximum(np.asarray(links.sum(axis=1)).ravel(), 1.0)[:, None]
    vertices = mesh.vertices.copy()
    for _ in range(rounds):
        for pull in (0.5, -0.53):
            vertices += pull * (links @ vertices / degree - vertices)
            if flat is not None:
                vertices[flat, 2] = mesh.vertices[flat, 2]
    return replace(mesh, vertices=vertices)


def simplify(mesh: Mesh, most_faces: int) -> Mesh:
    """Reduces a closed mesh to at most so many faces; it stays closed.

    Quadric errors (Garland and Heckbert 1997) say which edges go. Where the result is not closed, as may happen at thin
    walls, edges go by a tolerance instead, which is doubled until few enough are left.

    Raises:
        InputError: It cannot be done with so few.
    """
    import fast_simplification
    import manifold3d

    if len(mesh.faces) <= most_faces:
        return mesh
    points, faces, *_ = fast_simplification.simplify(mesh.vertices, mesh.faces, target_count=most_faces)
    mended = mend(Mesh(np.asarray(points, dtype=np.float64), np.asarray(faces, dtype=np.int64))).mesh
    if len(mended.faces) <= 1.2 * most_faces:
        return mended
    whole = manifold3d.Manifold(manifold3d.Mesh64(mesh.vertices, mesh.faces.astype(np.uint64)))
    size = float(np.ptp(mesh.vertices, axis=0).max())
    for tolerance in size * np.geomspace(2.0**-14, 2.0**-5, 10):
        less = whole.simplify(tolerance)
        if 0 < less.num_tri() <= 1.2 * most_faces:
            found = less.to_mesh64()
            return Mesh(np.array(found.vert_properties[:, :3]), np.array(found.tri_verts).astype(np.int64))
    raise InputError(f"the mesh does not stay closed with {most_faces} faces: allow more")


def solid(mesh: Mesh) -> Solid:
    """Returns volume, centre of mass and inertia of a closed mesh filled evenly."""
    import trimesh

    found = trimesh.triangles.mass_properties(mesh.vertices[mesh.faces], density=1.0, skip_inertia=False)
    return Solid(float(found.volume), np.asarray(found.center_mass), np.asarray(found.inertia))


def check(mesh: Mesh) -> Fitness:
    """Measures whether a mesh is fit for simulation."""
    vertices, faces = _weld(mesh, [])
    edges, _ = _edges(faces)
    unique, count = np.unique(_keys(edges), return_counts=True)
    _, same = _neighbours(faces)
    watertight = bool((count == 2).all())
    consistent = not same.any()
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    volume = float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)
    shells = int(_spread_shells(faces).max()) + 1
    crossing = len(_crossing(vertices, faces))
    thin = _thinnest(vertices, faces) if watertight and consistent and volume > 0 else 0.0
    problems = []
    if not watertight:
        single, many = int((count == 1).sum()), int((count > 2).sum())
        problems.append(f"{single} edges are open and {many} have three faces or more")
    if not consistent:
        problems.append(f"{int(same.sum())} pairs of neighbouring faces look to opposite sides")
    if volume <= 0:
        problems.append("its faces look inwards, or it encloses no volume")
    if crossing > _MOST_CROSSING * len(faces):
        problems.append(f"{crossing} of {len(faces)} faces cut through others")
    if watertight and volume > 0 and thin < _THIN_M:
        problems.append(f"it has walls of {thin * 1e3:.2g} mm: contacts may pass through")
    x, y, z = (float(v) for v in np.ptp(vertices, axis=0))
    return Fitness(
        faces=len(faces),
        watertight=watertight,
        winding_consistent=consistent,
        outward=volume > 0,
        shells=shells,
        euler=len(vertices) - len(unique) + len(faces),
        crossing_faces=crossing,
        thinnest_m=thin,
        volume_m3=volume,
        volume_over_hull=volume / _hull_volume(vertices),
        size_m=(x, y, z),
        problems=tuple(problems),
    )


def _hull_volume(vertices: Float[np.ndarray, "v 3"]) -> float:
    from scipy.spatial import ConvexHull, QhullError

    try:
        return float(ConvexHull(vertices).volume)
    except QhullError:
        return np.inf  # flat


def _crossing(vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"]) -> Int[np.ndarray, " n"]:
    """Returns the faces that cut through others with which they share no vertex."""
    tri = vertices[faces]
    low, high = tri.min(axis=1), tri.max(axis=1)
    axes = np.roll(np.arange(3), -int(np.argmax(np.ptp(vertices, axis=0))))  # sweep along the longest side
    order = np.argsort(low[:, axes[0]], kind="stable")
    cut = _find_crossing(tri[order], faces[order], low[order][:, axes], high[order][:, axes])
    return np.sort(order[cut])


@numba.njit(cache=True)
def _find_crossing(tri, faces, low, high):
    """Sweeps along the boxes' first axis; where they overlap, tests each edge of one triangle against the other."""
    cut = np.zeros(len(tri), np.bool_)
    for i in range(len(tri)):
        for j in range(i + 1, len(tri)):
            if low[j, 0] > high[i, 0]:
                break
            if low[j, 1] > high[i, 1] or low[i, 1] > high[j, 1] or low[j, 2] > high[i, 2] or low[i, 2] > high[j, 2]:
                continue
            shared = False
            for a in range(3):
                for b in range(3):
                    shared |= faces[i, a] == faces[j, b]
            if shared or (cut[i] and cut[j]):
                continue
            for a in range(3):
                if _pierces(tri[i, a], tri[i, (a + 1) % 3], tri[j]) or _pierces(tri[j, a], tri[j, (a + 1) % 3], tri[i]):
                    cut[i] = cut[j] = True
                    break
    return cut


@numba.njit(cache=True)
def _pierces(p, q, t):
    """Whether the open segment pq goes through the inside of a triangle."""
    share = _hit(p, q - p, t)
    return 1e-9 < share < 1.0 - 1e-9


@numba.njit(cache=True)
def _hit(origin, direction, t):
    """Where a ray meets a triangle, in lengths of its direction; -1 if it does not (Möller and Trumbore 1997)."""
    e, f = t[1] - t[0], t[2] - t[0]
    px = direction[1] * f[2] - direction[2] * f[1]
    py = direction[2] * f[0] - direction[0] * f[2]
    pz = direction[0] * f[1] - direction[1] * f[0]
    det = e[0] * px + e[1] * py + e[2] * pz
    if abs(det) < 1e-300:
        return -1.0
    sx, sy, sz = origin[0] - t[0, 0], origin[1] - t[0, 1], origin[2] - t[0, 2]
    u = (sx * px + sy * py + sz * pz) / det
    if u < 0.0 or u > 1.0:
        return -1.0
    qx, qy, qz = sy * e[2] - sz * e[1], sz * e[0] - sx * e[2], sx * e[1] - sy * e[0]
    v = (direction[0] * qx + direction[1] * qy + direction[2] * qz) / det
    if v < 0.0 or u + v > 1.0:
        return -1.0
    return (f[0] * qx + f[1] * qy + f[2] * qz) / det


def _thinnest(vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"]) -> float:
    points, owner = sample(Mesh(vertices, faces), _RAYS)
    tri = vertices[faces]
    normal = np.cross(tri[:, 1] - tri[:, 0], tri[:, 2] - tri[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-30
    through = np.empty(len(points))
    on_all_cores(_thickness, points, -normal[owner], owner, tri, through)
    return float(np.percentile(through, 1.0))


@numba.njit(nogil=True, cache=True)
def _thickness(points, inward, owner, tri, out, thread, threads):
    """How far it is from points on the surface straight through to the other side [m]."""
    for i in range(thread, len(points), threads):
        best = np.inf
        for f in range(len(tri)):
            if f != owner[i]:
                d = _hit(points[i], inward[i], tri[f])
                if 1e-7 < d < best:
                    best = d
        out[i] = best


def sample(mesh: Mesh, count: int, *, seed: int = 0) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, " n"]]:
    """Returns points spread evenly over the surface at random, and the face of each."""
    rng = np.random.default_rng(seed)
    tri = mesh.vertices[mesh.faces]
    area = np.linalg.norm(np.cross(tri[:, 1] - tri[:, 0], tri[:, 2] - tri[:, 0]), axis=1)
    owner = rng.choice(len(tri), count, p=area / area.sum())
    return np.einsum("nk,nki->ni", rng.dirichlet([1.0, 1.0, 1.0], count), tri[owner]), owner


def compare(mesh: Mesh, other: Mesh, *, within_m: float = 0.003, count: int = 30_000) -> Agreement:
    """Measures how near a surface is to another, at points spread over both."""
    there, back = _distances(mesh, other, count), _distances(other, mesh, count)
    precision, recall = float(np.mean(there < within_m)), float(np.mean(back < within_m))
    return Agreement(
        chamfer_m=0.5 * float(there.mean() + back.mean()),
        f_score=2 * precision * recall / max(precision + recall, 1e-12),
        within_m=within_m,
        volume_error=solid(mesh).volume_m3 / solid(other).volume_m3 - 1.0,
    )


def _distances(mesh: Mesh, other: Mesh, count: int) -> Float[np.ndarray, " n"]:
    """Distances of points on a mesh to another's faces, of which those near its nearest samples are tried."""
    import trimesh
    from scipy.spatial import KDTree

    points, _ = sample(mesh, count)
    tri = other.vertices[other.faces]
    spread, owner = sample(other, 2 * count, seed=1)
    # Large faces are near their samples, small ones near their middle.
    targets, owner = np.concatenate([spread, tri.mean(axis=1)]), np.concatenate([owner, np.arange(len(tri))])
    nearest = np.asarray(KDTree(targets).query(points, k=4)[1])
    options = [trimesh.triangles.closest_point(tri[owner[nearest[:, k]]], points) for k in range(4)]
    return np.min([np.linalg.norm(points - p, axis=1) for p in options], axis=0)
