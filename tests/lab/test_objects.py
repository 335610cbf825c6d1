from __future__ import annotations

import mujoco
import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.stats import qmc

from dexloop.core import se3
from dexloop.core.errors import UnknownName
from dexloop.lab.objects import OBJECTS, LabObject, make
from dexloop.lab.objects.ink import ean13
from dexloop.lab.objects.mass import mixture, shell, solid
from dexloop.lab.objects.patches import rounded_box
from dexloop.sim.parts import Table, Thing
from dexloop.sim.scene import compose
from dexloop.sim.shape import Mesh

GRAMS_AND_MM = {
    "light_bulb": (37, (60, 60, 110)),
    "cube": (120, (65, 65, 65)),
    "letter_a": (134, (86, 30, 95)),
    "cookie_tin": (210, (98, 98, 48)),
    "meat_can": (365, (99, 52, 82)),
    "spread_jar": (414, (80, 80, 95)),
    "spray_bottle": (548, (93, 56, 230)),
    "ketchup_bottle": (726, (86, 60, 190)),
}

every = pytest.mark.parametrize("name", OBJECTS)


def test_the_eight_objects_lightest_first():
    assert tuple(GRAMS_AND_MM) == OBJECTS
    assert make("cube") is make("cube")
    with pytest.raises(UnknownName, match=r"did you mean 'ketchup_bottle'.*spray_bottle"):
        make("ketchup")


@every
def test_size_and_mass_are_those_of_the_real_thing(name: str):
    thing, (grams, mm) = make(name), GRAMS_AND_MM[name]
    vertices = thing.shape.visual.vertices
    np.testing.assert_allclose(np.ptp(vertices, axis=0) * 1e3, mm, atol=1.0)
    np.testing.assert_allclose(vertices.max(axis=0), -vertices.min(axis=0), atol=1e-9)
    assert thing.mass_kg * 1e3 == pytest.approx(grams)
    assert thing.crush_force_n is None or thing.crush_force_n > 3 * thing.mass_kg * 9.81


@every
def test_surface_is_closed_and_faces_outwards(name: str):
    mesh = make(name).shape.visual
    _, merged = np.unique(np.round(mesh.vertices, 8), axis=0, return_inverse=True)
    faces = merged.ravel()[mesh.faces]
    assert np.all((faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0]))
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    there, times = np.unique(edges, axis=0, return_counts=True)
    back = {(b, a) for a, b in there.tolist()}
    assert times.max() == 1
    assert back == set(map(tuple, there.tolist()))
    assert _volume(mesh) > 0


@every
def test_parts_are_convex_and_fill_the_visual_shape(name: str):
    shape = make(name).shape
    assert len(shape.parts) <= 14
    for part in shape.parts:
        assert _outside(part, part.vertices).max() < 1e-6
        assert _volume(part) > 0
    low, high = shape.visual.vertices.min(axis=0), shape.visual.vertices.max(axis=0)
    points = qmc.scale(qmc.Sobol(3, rng=0).random_base2(16), low, high)
    union = float(np.mean(_depth(shape.parts, points) <= 0) * np.prod(high - low))
    assert union == pytest.approx(_volume(shape.visual), rel=0.025)


@every
def test_parts_follow_the_surface_to_a_millimetre(name: str):
    shape = make(name).shape
    assert _depth(shape.parts, shape.visual.vertices).max() < 1.1e-3
    surface = cKDTree(_samples(make(name), 150_000)[0])
    corners = np.concatenate([p.vertices for p in shape.parts])
    proud = corners[~_inside(shape.visual, corners)]
    assert surface.query(proud)[0].max() < 1.3e-3  # 0.5 mm of it is the spacing of the samples


@every
def test_stands_still_on_a_table(name: str):
    thing = make(name)
    scene = compose(Table(), _thing(thing))
    data = mujoco.MjData(scene.model)
    start = data.qpos.copy()
    while data.time < 2.0:
        mujoco.mj_step(scene.model, data)
    assert np.linalg.norm(data.qpos[:3] - start[:3]) < 1e-3
    assert np.linalg.norm(se3.so3_log(se3.quat_multiply(se3.quat_inverse(start[3:]), data.qpos[3:]))) < np.radians(0.5)
    assert np.linalg.norm(data.qvel[:3]) < 1e-3


@every
def test_mass_is_spread_as_a_body_can(name: str):
    thing = make(name)
    I = thing.inertia_per_kg  # noqa: E741
    np.testing.assert_allclose(I, I.T, atol=1e-12)
    small, middle, large = np.linalg.eigvalsh(I)
    assert small > 0
    assert large <= small + middle
    vertices = thing.shape.visual.vertices
    assert np.all(np.abs(thing.com) < 0.5 * vertices.max(axis=0) + 1e-9)
    # No point of the object is farther away than the corner of its box, and some mass must lie off the middle.
    assert np.sqrt(large) < np.linalg.norm(vertices.max(axis=0))
    assert np.sqrt(small) > 0.2 * vertices.max(axis=0).min()


@every
def test_print_is_rich_and_has_no_symmetry(name: str):
    thing = make(name)
    uv, texture = thing.shape.visual.uv, thing.shape.texture
    assert uv is not None
    assert texture is not None
    assert uv.min() >= 0.0
    assert uv.max() <= 1.0
    assert texture.shape == (1024, 1024, 3)
    # Half a turn about the vertical axis never shows the same print: a pose can be told from a picture.
    points, colours = _samples(thing, 40_000)
    gap, other = cKDTree(points).query(points * np.array([-1.0, -1.0, 1.0]))
    difference = np.abs(colours - colours[other]).max(axis=1)[gap < 2e-3]
    assert len(difference) > 8_000
    assert np.mean(difference > 40) > 0.15


def test_prints_differ():
    prints = [np.asarray(make(name).shape.texture, dtype=np.int16) for name in OBJECTS]
    for i, a in enumerate(prints):
        for b in prints[i + 1 :]:
            assert np.abs(a - b).mean() > 10


def test_front_print_reads_from_left_to_right():
    """On the front (-y), u grows with x and v with z: nothing is mirrored or upside down."""
    for name in ("cube", "letter_a", "cookie_tin", "meat_can", "spread_jar", "spray_bottle", "ketchup_bottle"):
        mesh = make(name).shape.visual
        assert mesh.uv is not None
        tri, uv = mesh.vertices[mesh.faces], mesh.uv[mesh.faces]
        normal = np.cross(tri[:, 1] - tri[:, 0], tri[:, 2] - tri[:, 0])
        area = np.linalg.norm(normal, axis=1)
        front = (normal[:, 1] < -0.9 * area) & (area > 1e-7)
        edges, moves = np.diff(tri[front], axis=1), np.diff(uv[front], axis=1)
        xz = np.linalg.pinv(edges[:, :, [0, 2]]) @ moves  # d(u, v) / d(x, z)
        upright = (xz[:, 0, 0] > 0) & (xz[:, 1, 1] > 0)
        assert area[front][upright].sum() > 0.97 * area[front].sum(), name


def test_bar_code_has_the_check_digit_of_a_known_number():
    modules, digits = ean13("400638133393")
    assert digits == "4006381333931"  # the worked example of the standard
    assert len(modules) == 95
    assert modules.startswith("1010001101")  # guard, then 0 in the odd code


def test_solid_shell_and_mixture_against_formulas():
    half = np.array([0.02, 0.03, 0.05])
    box = list(rounded_box(half, 1e-6).values())
    vertices = np.concatenate([p.vertices for p in box]) + np.array([0.1, 0.0, 0.0])
    offsets = np.cumsum([0, *(len(p.vertices) for p in box[:-1])])
    faces = np.concatenate([p.faces + o for p, o in zip(box, offsets, strict=True)])
    found = solid(vertices, faces)
    x, y, z = (2 * half) ** 2
    np.testing.assert_allclose(found.com, [0.1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(found.inertia, np.diag([y + z, x + z, x + y]) / 12, rtol=1e-3, atol=1e-12)
    cube = list(rounded_box([0.05] * 3, 1e-6).values())
    offsets = np.cumsum([0, *(len(p.vertices) for p in cube[:-1])])
    faces = np.concatenate([p.faces + o for p, o in zip(cube, offsets, strict=True)])
    hollow = shell(np.concatenate([p.vertices for p in cube]), faces)
    np.testing.assert_allclose(hollow.inertia, np.eye(3) * 5 / 18 * 0.1**2, rtol=1e-3, atol=1e-12)
    both = mixture([(0.5, found), (0.5, hollow)])
    np.testing.assert_allclose(both.com, [0.05, 0, 0], atol=1e-9)
    apart = 0.05**2 * np.diag([0.0, 1.0, 1.0])
    np.testing.assert_allclose(both.inertia, 0.5 * (found.inertia + hollow.inertia) + apart, atol=1e-9)


def _thing(thing: LabObject) -> Thing:
    return Thing(
        thing.name,
        thing.shape,
        thing.mass_kg,
        tuple(se3.to_pose(thing.T_rest)),
        tuple(thing.com),
        thing.inertia_per_kg * thing.mass_kg,
    )


def _samples(thing: LabObject, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points spread over the surface and their colours."""
    mesh, texture, rng = thing.shape.visual, thing.shape.texture, np.random.default_rng(0)
    assert mesh.uv is not None
    assert texture is not None
    tri = mesh.vertices[mesh.faces]
    area = np.linalg.norm(np.cross(tri[:, 1] - tri[:, 0], tri[:, 2] - tri[:, 0]), axis=1)
    chosen, weights = rng.choice(len(tri), n, p=area / area.sum()), rng.dirichlet([1, 1, 1], n)
    points = np.einsum("nk,nki->ni", weights, tri[chosen])
    u, v = np.einsum("nk,nki->in", weights, mesh.uv[mesh.faces][chosen])
    h, w = texture.shape[:2]
    row, column = np.clip(((1 - v) * h).astype(int), 0, h - 1), np.clip((u * w).astype(int), 0, w - 1)
    return points, texture[row, column].astype(float)


def _volume(mesh: Mesh) -> float:
    a, b, c = np.moveaxis(mesh.vertices[mesh.faces], 1, 0)
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


def _outside(part: Mesh, points: np.ndarray) -> np.ndarray:
    """How far each point lies outside the planes of a convex mesh [m]; negative inside."""
    a, b, c = np.moveaxis(part.vertices[part.faces], 1, 0)
    normals = np.cross(b - a, c - a)
    area = np.linalg.norm(normals, axis=1)
    keep = area > 1e-12
    normals = normals[keep] / area[keep, None]
    planes = np.unique(np.round(np.column_stack([normals, np.sum(normals * a[keep], axis=1)]), 9), axis=0)
    out = np.full(len(points), -np.inf)
    for plane in planes:
        np.maximum(out, points @ plane[:3] - plane[3], out=out)
    return out


def _depth(parts: tuple[Mesh, ...], points: np.ndarray) -> np.ndarray:
    out = np.full(len(points), np.inf)
    for part in parts:
        low, high = part.vertices.min(axis=0) - 2e-3, part.vertices.max(axis=0) + 2e-3
        near = np.all((points > low) & (points < high), axis=1)
        out[near] = np.minimum(out[near], _outside(part, points[near]))
    return out


def _inside(mesh: Mesh, points: np.ndarray) -> np.ndarray:
    """Whether points lie inside, by the winding number."""
    total = np.zeros(len(points))
    for i, point in enumerate(points):
        a, b, c = np.moveaxis(mesh.vertices[mesh.faces] - point, 1, 0)
        la, lb, lc = (np.linalg.norm(x, axis=1) for x in (a, b, c))
        det = np.einsum("ij,ij->i", a, np.cross(b, c))
        dot = la * lb * lc + (a * b).sum(1) * lc + (b * c).sum(1) * la + (c * a).sum(1) * lb
        total[i] = 2 * np.arctan2(det, dot).sum() / (4 * np.pi)
    return total > 0.5
