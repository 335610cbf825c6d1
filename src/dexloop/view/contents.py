"""What there is to see of a run: its twin's objects and cameras, and what is known of mass and friction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core.artifacts import Belief, Twin
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError
from dexloop.core.run import Run
from dexloop.sim.parameters import parameter
from dexloop.sim.scene import Scene
from dexloop.sim.shape import Shape, shape_of
from dexloop.vision.coupled import cameras_of
from dexloop.vision.splats import Splats, splats_of, surroundings_of


@dataclass(frozen=True)
class Known:
    """A parameter of the simulation, with what the twin and the belief say of it."""

    name: str
    """As `dexloop.sim.parameters` and beliefs call it, such as "object.mass"."""
    unit: str
    bounds: tuple[float, float]
    """What the simulation takes [unit]."""
    twin: float
    """The twin's value: a guess, until it is identified [unit]."""
    mean: float | None = None
    """The belief's, if there is one [unit]."""
    interval: tuple[float, float] | None = None
    """The belief's 95 % interval [unit]."""

    @property
    def best(self) -> float:
        """The belief's mean, or else the twin's value [unit]."""
        return self.twin if self.mean is None else self.mean

    @property
    def range(self) -> tuple[float, float]:
        """Wide enough for all that is said of it, in two digits [unit]."""
        said = [self.twin, self.best, *(self.interval or ())]
        low, high = (float(f"{v:.2g}") for v in (0.4 * min(said), 2.5 * max(said)))
        return max(low, self.bounds[0]), min(high, self.bounds[1])

    @property
    def words(self) -> str:
        """What is known, in one line."""
        unit = "" if self.unit == "1" else f" {self.unit}"
        twin = f"twin: {self.twin:.3g}{unit}"
        if self.interval is None:
            return f"{twin}; not identified"
        low, high = self.interval
        return f"{twin}; belief: {self.best:.3g}{unit}, 95 % interval {low:.3g} to {high:.3g}{unit}"


@dataclass(frozen=True, eq=False)
class ShownObject:
    """An object of the twin."""

    name: str
    shape: Shape
    splats: Splats | None
    """In the object's frame; None if it has a mesh only."""
    pose: Float[np.ndarray, "7"]
    """Where the twin has it: x y z [m], qw qx qy qz."""
    mass: Known


@dataclass(frozen=True, eq=False)
class Contents:
    """All that the page shows."""

    title: str
    scene: Scene
    objects: tuple[ShownObject, ...]
    cameras: tuple[Camera, ...]
    """Those of the scan."""
    friction: Known
    """Of objects on the table."""
    surroundings: Splats | None
    """Of what was around the objects; in the world's frame."""


def contents(run: Run) -> Contents:
    """Reads what there is to see of a run.

    Raises:
        InputError: The run has no twin.
    """
    if not run.has("twin"):
        raise InputError(f"{run.path} has no twin, so there is nothing to look at: make one with dexloop twin")
    twin = Twin.open(run.stage_path("twin"))
    belief = Belief.open(run.stage_path("identify")) if run.has("identify") else None
    scene = Scene.open(twin.path / "scene.xml", max_delay_s=0.0)
    splats = splats_of(twin)
    objects = []
    for name in twin.header.meta["objects"]:
        body = scene.model.body(name)
        # An only object is "object" in names of parameters, and so in beliefs.
        role = "object" if scene.roles.get("object") == scene.roles[name] else name
        mass = _known(scene, f"{role}.mass", belief)
        pose = np.concatenate([body.pos, body.quat])
        objects.append(ShownObject(name, shape_of(scene.model, body.id), splats.get(name), pose, mass))
    title = f"{run.path.resolve().name}: {', '.join(o.name for o in objects)}"
    friction = _known(scene, "table.friction", belief)
    return Contents(title, scene, tuple(objects), cameras_of(twin), friction, surroundings_of(twin))


def _known(scene: Scene, name: str, belief: Belief | None) -> Known:
    found = parameter(scene.model, scene.roles, name)
    known = Known(name, found.unit, found.bounds, float(found.nominal[0]))
    said = belief.header.meta.get("parameters", {}).get(name) if belief else None
    if said is None:
        return known
    low, high = said["interval"]
    return Known(name, found.unit, found.bounds, known.twin, float(said["mean"]), (float(low), float(high)))
