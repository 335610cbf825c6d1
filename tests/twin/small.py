"""A small twin for tests: a box with splats on its faces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh

from dexloop.core.artifact import save_arrays, writing
from dexloop.core.artifacts import Twin
from dexloop.core.se3 import look_at
from dexloop.sim.parts import Table, Thing
from dexloop.sim.shape import Mesh, Shape
from dexloop.twin.export import write_mjcf, write_obj
from dexloop.vision.splats import Splats

SIDES_M = (0.06, 0.04, 0.08)
MASS_KG = 0.1
POSE = (0.0, 0.0, 0.04, 1.0, 0.0, 0.0, 0.0)


def surface_splats(*, count: int = 400, degree: int = 1) -> Splats:
    """Opaque splats all over the box, red where x is high and green where y is high."""
    box = trimesh.creation.box(SIDES_M)
    points, _ = trimesh.sample.sample_surface(box, count, seed=0)
    points = np.asarray(points, dtype=np.float64)
    colours = np.clip(0.5 + points / np.array(SIDES_M), 0.0, 1.0)
    cloud = Splats.from_points(points, colours, degree=degree)
    return Splats(cloud.means, np.full((count, 3), np.log(0.003)), cloud.quats, np.full(count, 4.0), cloud.sh)


def small_twin(folder: Path, *, splats: bool = True) -> Twin:
    """Writes a twin of the box "block" on its table, seen by two cameras, laid out as the stage does."""
    box = trimesh.creation.box(SIDES_M)
    mesh = Mesh(np.asarray(box.vertices), np.asarray(box.faces))
    thing = Thing("block", Shape(mesh, None, (mesh,)), MASS_KG, pose=POSE)
    eyes, middle = (np.array([0.3, -0.3, 0.3]), np.array([-0.3, -0.3, 0.25])), np.array([0.0, 0.0, 0.04])
    K = np.array([[200.0, 0.0, 79.5], [0.0, 200.0, 59.5], [0.0, 0.0, 1.0]])
    with writing(folder, Twin, inputs={}) as draft:
        write_mjcf([thing], draft.folder, table=Table())
        write_obj(thing, draft.folder / "objects" / "block")
        if splats:
            surface_splats().save(draft.folder / "objects" / "block" / "splats.ply")
            surface_splats().save(draft.folder / "surroundings.ply")
            draft.meta["surroundings"] = {"splats": len(surface_splats()), "psnr_db": 30.0}
        save_arrays(
            draft.folder / "cameras.npz",
            T_world_camera=np.stack([look_at(eye, middle) for eye in eyes]),
            K=np.stack([K, K]),
            size_px=np.array([[160, 120], [160, 120]]),
        )
        draft.meta |= {"objects": ["block"], "geometry": "scanned"}
    return Twin.open(folder)
