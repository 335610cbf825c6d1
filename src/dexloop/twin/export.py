"""A twin's objects as files that others read: MJCF, URDF, USD, GLB and OBJ; and poses in which they rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.artifact import write_text
from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.sim.parts import Table, Thing
from dexloop.sim.saving import save
from dexloop.sim.scene import SceneCfg, compose
from dexloop.sim.shape import Mesh, Shape
from dexloop.twin.mesh import solid

Z_TO_Y_UP = np.array([[1.0, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]])
"""What glTF calls up is y."""

_PAUSE_S = 0.02
"""While objects settle they are stopped this often [s]: they sink and tilt, but gain no speed to roll away."""
_SETTLE_S, _WATCH_S = 1.5, 0.5
"""How long they settle, and are then watched [s]."""
_TIPPED_RAD = np.radians(20.0)


@dataclass(frozen=True, eq=False)
class Settled:
    """An object in a pose in which it rests, and how far that is from where it was seen."""

    thing: Thing
    moved_m: float
    """From the pose given [m]."""
    turned_rad: float
    """From the pose given [rad]."""
    drift_m: float
    """How far it goes in half a second when simulated from its new pose [m]."""
    note: str
    """What to know about it; empty if all is well."""


def settle(things: Sequence[Thing], table: Table) -> tuple[Settled, ...]:
    """Finds poses in which objects stand on the table without being in one another, and stay when simulated.

    Args:
        things: Objects near the poses in which they were seen, standing on the table z = 0.
        table: What they stand on.

    Raises:
        InputError: Two objects stand in one another so that they cannot be pushed apart.
    """
    placed = [_on_table(thing) for thing in things]
    scene = compose(table, *placed, cfg=SceneCfg(max_delay_s=0.0))
    model, data = scene.model, mujoco.MjData(scene.model)
    where = [int(model.joint(f"{thing.name}.free").qposadr[0]) for thing in things]
    _push_apart(model, data, where, [thing.name for thing in things])
    steps = round(_PAUSE_S / model.opt.timestep)
    for _ in range(round(_SETTLE_S / _PAUSE_S)):
        mujoco.mj_step(model, data, steps)
        data.qvel[:] = 0.0
    rest = [data.qpos[a : a + 7].copy() for a in where]
    drift = np.zeros(len(things))
    for _ in range(round(_WATCH_S / _PAUSE_S)):
        mujoco.mj_step(model, data, steps)
        now = [data.qpos[a : a + 3] for a in where]
        drift = np.maximum(drift, [np.linalg.norm(p - r[:3]) for p, r in zip(now, rest, strict=True)])
    return tuple(_settled(t, r, float(d)) for t, r, d in zip(things, rest, drift, strict=True))


def _settled(thing: Thing, rest: Float[np.ndarray, "7"], drift_m: float) -> Settled:
    before, rest = np.asarray(thing.pose), np.r_[rest[:3], rest[3:] / np.linalg.norm(rest[3:])]
    turn = float(np.linalg.norm(se3.so3_log(se3.quat_multiply(se3.quat_inverse(before[3:]), rest[3:]))))
    notes = []
    if turn > _TIPPED_RAD:
        notes.append(f"{thing.name} does not stand as it was seen and turned by {np.degrees(turn):.0f} degrees")
    if drift_m > 0.002:
        notes.append(f"{thing.name} does not come to rest")
    pose = tuple(float(v) for v in rest)
    moved = float(np.linalg.norm(rest[:3] - before[:3]))
    return Settled(replace(thing, pose=pose), moved, turn, drift_m, "; ".join(notes))


def _on_table(thing: Thing) -> Thing:
    """Puts the lowest point of what collides onto the table."""
    if not isinstance(thing.shape, Shape):
        return thing
    T = se3.from_pose(np.asarray(thing.pose))
    low = min(float(se3.transform(T, part.vertices)[:, 2].min()) for part in thing.shape.parts)
    x, y, z, *turn = thing.pose
    return replace(thing, pose=(x, y, z - low, *turn))


def _push_apart(model: mujoco.MjModel, data: mujoco.MjData, where: list[int], names: list[str]) -> None:
    """Moves objects that are in one another apart, along the table."""
    bodies = {int(model.body(name).id): k for k, name in enumerate(names)}
    deep = []
    for _ in range(50):
        mujoco.mj_forward(model, data)
        deep = [
            (bodies[a], bodies[b], -c.dist)
            for c in data.contact
            if c.dist < 0
            and (a := int(model.geom_bodyid[c.geom[0]])) in bodies
            and (b := int(model.geom_bodyid[c.geom[1]])) in bodies
        ]
        if not deep:
            return
        a, b, depth = max(deep, key=lambda pair: pair[2])
        apart = data.qpos[where[b] : where[b] + 2] - data.qpos[where[a] : where[a] + 2]
        length = float(np.linalg.norm(apart))
        apart = np.array([1.0, 0.0]) if length < 1e-6 else apart / length
        data.qpos[where[a] : where[a] + 2] -= (0.5 * depth + 1e-4) * apart
        data.qpos[where[b] : where[b] + 2] += (0.5 * depth + 1e-4) * apart
    a, b, depth = deep[0]
    raise InputError(
        f"{names[a]} and {names[b]} stand in one another by {depth * 1e3:.1f} mm: check their masks, or scan them apart"
    )


def weighed(thing: Thing) -> Thing:
    """Returns the object with centre of mass and inertia written out, those of the uniform solid if it has none."""
    if thing.com is not None and thing.inertia is not None:
        return thing
    found = solid(_shape(thing).visual)
    x, y, z = (float(v) for v in found.com)
    return replace(thing, com=(x, y, z), inertia=found.inertia * (thing.mass_kg / found.volume_m3))


def write_mjcf(things: Sequence[Thing], folder: Path, *, table: Table) -> Path:
    """Writes `scene.xml` with `assets/`: the objects on their table. Returns the file."""
    return save(compose(table, *map(weighed, things), cfg=SceneCfg(max_delay_s=0.0)), folder)


def write_obj(thing: Thing, folder: Path) -> Path:
    """Writes `NAME.obj`, with `NAME.mtl` and `NAME.png` if it has a texture; z is up, metres. Returns the file."""
    import PIL.Image

    shape, name = _shape(thing), thing.name
    folder.mkdir(parents=True, exist_ok=True)
    textured = shape.texture is not None and shape.visual.uv is not None
    if textured:
        assert shape.texture is not None
        PIL.Image.fromarray(shape.texture).save(folder / f"{name}.png")
        write_text(folder / f"{name}.mtl", f"newmtl {name}\nKa 1 1 1\nKd 1 1 1\nKs 0.1 0.1 0.1\nmap_Kd {name}.png\n")
    write_text(folder / f"{name}.obj", _obj(shape.visual, name if textured else None))
    return folder / f"{name}.obj"


def _obj(mesh: Mesh, material: str | None) -> str:
    lines = [f"mtllib {material}.mtl\nusemtl {material}"] if material else []
    lines += [f"v {x:.7g} {y:.7g} {z:.7g}" for x, y, z in mesh.vertices.tolist()]
    if material and mesh.uv is not None:
        lines += [f"vt {u:.7g} {v:.7g}" for u, v in mesh.uv.tolist()]
        lines += [f"f {a}/{a} {b}/{b} {c}/{c}" for a, b, c in (mesh.faces + 1).tolist()]
    else:
        lines += [f"f {a} {b} {c}" for a, b, c in (mesh.faces + 1).tolist()]
    return "\n".join(lines) + "\n"


def write_urdf(thing: Thing, folder: Path) -> Path:
    """Writes `NAME.urdf`, one link with inertia, with its OBJ files beside it. Returns the file."""
    thing = weighed(thing)
    assert thing.com is not None
    assert thing.inertia is not None
    shape, name = _shape(thing), thing.name
    write_obj(thing, folder)
    robot = ElementTree.Element("robot", name=name)
    # What MuJoCo alone reads: without it, a root link becomes part of the world, without its mass and its looks.
    ours = {"fusestatic": "false", "discardvisual": "false", "strippath": "false"}
    ElementTree.SubElement(ElementTree.SubElement(robot, "mujoco"), "compiler", ours)
    link = ElementTree.SubElement(robot, "link", name=name)
    inertial = ElementTree.SubElement(link, "inertial")
    ElementTree.SubElement(inertial, "origin", xyz=" ".join(f"{v:.9g}" for v in thing.com), rpy="0 0 0")
    ElementTree.SubElement(inertial, "mass", value=f"{thing.mass_kg:.9g}")
    terms = {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1), "iyz": (1, 2), "izz": (2, 2)}
    ElementTree.SubElement(inertial, "inertia", {k: f"{thing.inertia[at]:.9g}" for k, at in terms.items()})
    _urdf_geometry(ElementTree.SubElement(link, "visual"), f"{name}.obj")
    for k, part in enumerate(shape.parts):
        write_text(folder / f"{name}_part{k}.obj", _obj(part, None))
        _urdf_geometry(ElementTree.SubElement(link, "collision", name=f"{name}.{k}"), f"{name}_part{k}.obj")
    ElementTree.indent(robot)
    file = folder / f"{name}.urdf"
    write_text(file, '<?xml version="1.0"?>\n' + ElementTree.tostring(robot, encoding="unicode") + "\n")
    return file


def _urdf_geometry(element: ElementTree.Element, mesh: str) -> None:
    ElementTree.SubElement(element, "origin", xyz="0 0 0", rpy="0 0 0")
    ElementTree.SubElement(ElementTree.SubElement(element, "geometry"), "mesh", filename=mesh)


def write_glb(thing: Thing, folder: Path) -> Path:
    """Writes `NAME.glb` with its texture inside; y is up, as in all glTF. Returns the file."""
    import PIL.Image
    import trimesh
    from trimesh.visual import TextureVisuals
    from trimesh.visual.material import PBRMaterial

    shape = _shape(thing)
    folder.mkdir(parents=True, exist_ok=True)
    visual = None
    if shape.texture is not None and shape.visual.uv is not None:
        picture = PIL.Image.fromarray(shape.texture)
        material = PBRMaterial(baseColorTexture=picture, metallicFactor=0.0, roughnessFactor=0.8)
        visual = TextureVisuals(uv=shape.visual.uv, material=material)
    mesh = trimesh.Trimesh(shape.visual.vertices, shape.visual.faces, visual=visual, process=False)
    scene = trimesh.Scene()
    scene.add_geometry(mesh, node_name=thing.name, geom_name=thing.name, transform=Z_TO_Y_UP)
    file = folder / f"{thing.name}.glb"
    scene.export(file)
    return file


def write_usd(thing: Thing, folder: Path) -> Path:
    """Writes `NAME.usda`: a rigid body with mass, its textured mesh, and its convex parts for collisions.

    Raises:
        MissingPart: `usd-core` is not installed.
    """
    usd = _usd()
    Gf, UsdGeom, UsdPhysics = usd.Gf, usd.UsdGeom, usd.UsdPhysics
    thing = weighed(thing)
    assert thing.com is not None
    assert thing.inertia is not None
    shape, name = _shape(thing), thing.name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.usda"
    file.unlink(missing_ok=True)  # USD does not write over a file
    stage = usd.Usd.Stage.CreateNew(str(file))
    UsdGeom.SetStageUpAxis(stage, UsdGeom.Tokens.z)
    UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    body = UsdGeom.Xform.Define(stage, f"/{name}")
    stage.SetDefaultPrim(body.GetPrim())
    x, y, z, qw, qx, qy, qz = (float(v) for v in thing.pose)
    body.AddTranslateOp().Set(Gf.Vec3d(x, y, z))
    body.AddOrientOp().Set(Gf.Quatf(qw, qx, qy, qz))
    UsdPhysics.RigidBodyAPI.Apply(body.GetPrim())
    mass = UsdPhysics.MassAPI.Apply(body.GetPrim())
    principal, axes = np.linalg.eigh(thing.inertia)
    axes[:, 2] *= np.sign(np.linalg.det(axes))  # a rotation, not a reflection
    w, i, j, k = (float(v) for v in se3.quat_from_matrix(axes))
    mass.CreateMassAttr(float(thing.mass_kg))
    mass.CreateCenterOfMassAttr(Gf.Vec3f(*(float(v) for v in thing.com)))
    mass.CreateDiagonalInertiaAttr(Gf.Vec3f(*(float(v) for v in principal)))
    mass.CreatePrincipalAxesAttr(Gf.Quatf(w, i, j, k))
    _usd_visual(stage, f"/{name}", shape, folder / f"{name}.png")
    for n, part in enumerate(shape.parts):
        mesh = _usd_mesh(stage, f"/{name}/part{n}", part)
        mesh.CreatePurposeAttr(UsdGeom.Tokens.guide)
        UsdPhysics.CollisionAPI.Apply(mesh.GetPrim())
        UsdPhysics.MeshCollisionAPI.Apply(mesh.GetPrim()).CreateApproximationAttr(UsdPhysics.Tokens.convexHull)
    stage.GetRootLayer().Save()
    return file


def _usd() -> Any:
    """Returns the modules of USD, which come without types."""
    try:
        from pxr import Gf, Sdf, Usd, UsdGeom, UsdPhysics, UsdShade, Vt
    except ImportError as error:
        raise MissingPart("USD needs usd-core: pip install 'dexloop[usd]'") from error
    return SimpleNamespace(Gf=Gf, Sdf=Sdf, Usd=Usd, UsdGeom=UsdGeom, UsdPhysics=UsdPhysics, UsdShade=UsdShade, Vt=Vt)


def _usd_mesh(stage: Any, path: str, mesh: Mesh) -> Any:
    usd = _usd()
    UsdGeom, Vt = usd.UsdGeom, usd.Vt

    made = UsdGeom.Mesh.Define(stage, path)
    made.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(mesh.vertices.astype(np.float32)))
    made.CreateFaceVertexCountsAttr(Vt.IntArray.FromNumpy(np.full(len(mesh.faces), 3, np.int32)))
    made.CreateFaceVertexIndicesAttr(Vt.IntArray.FromNumpy(mesh.faces.ravel().astype(np.int32)))
    made.CreateSubdivisionSchemeAttr(UsdGeom.Tokens.none)
    box = np.stack([mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)])
    made.CreateExtentAttr(Vt.Vec3fArray.FromNumpy(box.astype(np.float32)))
    return made


def _usd_visual(stage: Any, path: str, shape: Shape, picture: Path) -> None:
    """Adds the visual mesh with a preview surface that reads its texture through the coordinates `st`."""
    import PIL.Image

    usd = _usd()
    Sdf, UsdGeom, UsdShade, Vt = usd.Sdf, usd.UsdGeom, usd.UsdShade, usd.Vt

    mesh = _usd_mesh(stage, f"{path}/visual", shape.visual)
    if shape.texture is None or shape.visual.uv is None:
        return
    PIL.Image.fromarray(shape.texture).save(picture)
    kinds = Sdf.ValueTypeNames
    st = UsdGeom.PrimvarsAPI(mesh).CreatePrimvar("st", kinds.TexCoord2fArray, UsdGeom.Tokens.vertex)
    st.Set(Vt.Vec2fArray.FromNumpy(shape.visual.uv.astype(np.float32)))
    material = UsdShade.Material.Define(stage, f"{path}/material")
    surface = UsdShade.Shader.Define(stage, f"{path}/material/surface")
    surface.CreateIdAttr("UsdPreviewSurface")
    surface.CreateInput("roughness", kinds.Float).Set(0.8)
    reader = UsdShade.Shader.Define(stage, f"{path}/material/coordinates")
    reader.CreateIdAttr("UsdPrimvarReader_float2")
    reader.CreateInput("varname", kinds.String).Set("st")
    texture = UsdShade.Shader.Define(stage, f"{path}/material/texture")
    texture.CreateIdAttr("UsdUVTexture")
    texture.CreateInput("file", kinds.Asset).Set(f"./{picture.name}")
    texture.CreateInput("st", kinds.Float2).ConnectToSource(reader.CreateOutput("result", kinds.Float2))
    colour = texture.CreateOutput("rgb", kinds.Float3)
    surface.CreateInput("diffuseColor", kinds.Color3f).ConnectToSource(colour)
    material.CreateSurfaceOutput().ConnectToSource(surface.CreateOutput("surface", kinds.Token))
    UsdShade.MaterialBindingAPI.Apply(mesh.GetPrim()).Bind(material)


WRITERS: dict[str, Callable[[Thing, Path], Path]] = {
    "urdf": write_urdf,
    "usd": write_usd,
    "glb": write_glb,
    "obj": write_obj,
}
"""How one object is written, by format. A whole scene is MJCF: `write_mjcf`."""


def export(thing: Thing, folder: Path, formats: Sequence[str]) -> dict[str, Path]:
    """Writes one object in several formats, each in a folder of its own name. Returns the files.

    Raises:
        UnknownName: There is no such format.
        MissingPart: A format needs a library that is not installed.
    """
    for name in formats:
        if name not in WRITERS:
            raise UnknownName("format", name, WRITERS)
    return {name: WRITERS[name](thing, folder / name) for name in formats}


def _shape(thing: Thing) -> Shape:
    if not isinstance(thing.shape, Shape):
        raise InputError(f"{thing.name} is a {thing.shape.kind} without a mesh: only scanned shapes are written")
    return thing.shape
