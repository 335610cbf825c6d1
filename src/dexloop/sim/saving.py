"""A scene as files: MJCF with its pictures beside it, and back as a part of another scene."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from dexloop.core.artifact import write_text
from dexloop.core.errors import InputError
from dexloop.sim.scene import Scene

ASSETS = "assets"


def save(scene: Scene, folder: Path) -> Path:
    """Writes `scene.xml` and `assets/` into a folder, and returns the file.

    Meshes are OBJ files beside it, pictures PNG files. Meshes keep every digit: MuJoCo finds an object's flat bottom
    only where its triangles lie in one plane to the last one, and an object that stands on half of its bottom rocks.
    """
    import PIL.Image

    spec = scene.spec.copy()
    (folder / ASSETS).mkdir(parents=True, exist_ok=True)
    for texture in spec.textures:
        if not len(texture.data):
            continue
        shape = (texture.height, texture.width, texture.nchannel)
        picture = np.frombuffer(bytes(texture.data), dtype=np.uint8).reshape(shape)
        PIL.Image.fromarray(picture).save(folder / ASSETS / f"{texture.name}.png")
        texture.data, texture.file = b"", f"{texture.name}.png"
    for mesh in spec.meshes:
        if len(mesh.uservert):
            write_text(folder / ASSETS / f"{mesh.name}.obj", _obj(mesh))
            mesh.file = f"{mesh.name}.obj"
            mesh.uservert, mesh.userface = np.zeros(0), np.zeros(0, dtype=np.int32)
            mesh.usertexcoord, mesh.userfacetexcoord = np.zeros(0), np.zeros(0, dtype=np.int32)
    here = str((folder / ASSETS).resolve())
    spec.meshdir = spec.texturedir = here  # MuJoCo looks there while it writes; in the file they stand relative to it
    spec.compile()
    file = folder / "scene.xml"
    write_text(file, spec.to_xml().replace(f"{here}/", ASSETS + "/").replace(here, ASSETS))
    return file


def _obj(mesh: mujoco.MjsMesh) -> str:
    """Returns a mesh as the text of an OBJ file, exact to the last digit of single precision."""
    vertices = np.asarray(mesh.uservert, dtype=np.float64).reshape(-1, 3)
    faces = np.asarray(mesh.userface).reshape(-1, 3) + 1
    lines = [f"v {x:.9g} {y:.9g} {z:.9g}" for x, y, z in vertices]
    if not len(mesh.usertexcoord):
        return "\n".join([*lines, *(f"f {a} {b} {c}" for a, b, c in faces)]) + "\n"
    uv = np.asarray(mesh.usertexcoord, dtype=np.float64).reshape(-1, 2)
    corners = np.asarray(mesh.userfacetexcoord).reshape(-1, 3) + 1
    lines += [f"vt {u:.9g} {1.0 - v:.9g}" for u, v in uv]  # OBJ's v runs upwards
    pairs = zip(faces.tolist(), corners.tolist(), strict=True)
    lines += ["f " + " ".join(f"{v}/{t}" for v, t in zip(f, t3, strict=True)) for f, t3 in pairs]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, eq=False)
class ModelFile:
    """A part of a scene that is an MJCF file, such as a twin's `scene.xml`."""

    path: Path

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Adds everything that is in the file, under the names it has there."""
        if not self.path.is_file():
            raise InputError(f"there is no model {self.path}")
        try:
            other = mujoco.MjSpec.from_file(str(self.path))
        except ValueError as error:
            raise InputError(f"{self.path} cannot be read: {error}") from error
        other.option = spec.option  # the whole decides how it is simulated
        for key in list(other.keys):  # a keyframe of a part does not fit the whole
            other.delete(key)
        for body in other.bodies[1:]:
            body.simple = False  # else MuJoCo takes for granted that centres of mass stay where they are compiled
        spec.attach(other, frame=spec.worldbody.add_frame(), prefix="")
