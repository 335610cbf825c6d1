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

    Meshes stand in the file itself; pictures are PNG files beside it.
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
    here = str((folder / ASSETS).resolve())
    spec.texturedir = here  # MuJoCo looks for them while it writes; in the file they stand relative to it
    spec.compile()
    file = folder / "scene.xml"
    write_text(file, spec.to_xml().replace(f"{here}/", ASSETS + "/").replace(here, ASSETS))
    return file


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
