"""A twin whose geometry is given, until one is made from a scan: the object's shape and nothing that is hidden."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dexloop.core import se3
from dexloop.core.artifact import writing
from dexloop.core.artifacts import Twin
from dexloop.core.capture import Capture
from dexloop.lab.objects import make
from dexloop.sim.parts import Table, Thing
from dexloop.sim.saving import save
from dexloop.sim.scene import SceneCfg, compose

DENSITY_KG_M3 = 500.0
"""A first guess for whatever it is."""


def known_twin(capture: Capture, out: str | Path, *, replace: bool = False) -> Twin:
    """Writes the twin of the object in a Capture of the lab, from the object's shape and its rough place."""
    scene = next(iter(capture.recordings.values())).scene
    name = str(scene["object"])
    shape = make(name).shape
    pose = tuple(float(v) for v in se3.to_pose(np.asarray(scene["T_world_object_rough"], dtype=np.float64)))
    width, depth = scene["table_size_m"]
    volume = sum(_volume(part.vertices, part.faces) for part in shape.parts)
    thing = Thing(name, shape, DENSITY_KG_M3 * volume, pose=pose)
    composed = compose(Table(size_m=(width, depth)), thing, cfg=SceneCfg(max_delay_s=0.0))
    with writing(out, Twin, inputs={"capture": capture}, replace=replace) as draft:
        save(composed, draft.folder)
        draft.meta |= {"objects": [name], "geometry": "given"}
    return Twin.open(out)


def _volume(vertices: np.ndarray, faces: np.ndarray) -> float:
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)
