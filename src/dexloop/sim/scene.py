"""A scene: parts put together with MjSpec and compiled once, with the roles that parameters and signals speak of."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mujoco

from dexloop.core.errors import InputError
from dexloop.sim.parts import Light, Part, Robot, Table, Thing
from dexloop.sim.roles import Roles, roles_of


@dataclass(frozen=True)
class SceneCfg:
    """How a scene is simulated and drawn."""

    timestep_s: float = 0.002
    elliptic_cones: bool = True
    """Elliptic friction cones slip in the true direction; pyramids are faster."""
    impratio: float = 10.0
    """Ratio of frictional to normal impedance: higher creeps less."""
    noslip_iterations: int = 0
    """3 to 10 for grasps that must hold for long."""
    max_delay_s: float = 0.06
    """Longest `actuator.delay` that a world of this scene can have [s]; 0 saves its buffers."""
    shadows: bool = False
    """Draw shadows: about five times slower without a GPU."""
    samples: int = 0
    """Multisampling of edges when drawing; 4 looks better, 0 is about twice as fast without a GPU."""
    max_picture_px: tuple[int, int] = (1280, 960)
    """Largest picture that can be drawn [px]."""


@dataclass(frozen=True, eq=False)
class Scene:
    """A compiled scene."""

    spec: mujoco.MjSpec
    model: mujoco.MjModel
    roles: Roles

    @staticmethod
    def open(path: str | Path, *, max_delay_s: float = 0.06) -> Scene:
        """Reads any MJCF file; roles are inferred from its names and joints.

        Args:
            path: The file.
            max_delay_s: Longest `actuator.delay` that a world of this scene can have [s]; 0 adds no buffers.
        """
        path = Path(path)
        if not path.is_file():
            raise InputError(f"there is no model {path}")
        try:
            spec = mujoco.MjSpec.from_file(str(path))
            for body in spec.bodies[1:]:
                body.simple = False  # else MuJoCo takes for granted that centres of mass stay where they are compiled
            _remember_commands(spec, max_delay_s)
            model = spec.compile()
        except ValueError as error:
            raise InputError(f"{path} cannot be compiled: {error}") from error
        return Scene(spec, model, roles_of(model))


def compose(*parts: Part, cfg: SceneCfg = SceneCfg()) -> Scene:  # noqa: B008 - frozen
    """Puts parts together and compiles them.

    Raises:
        InputError: MuJoCo refuses the result (two parts of one name, a mesh without volume).
    """
    spec = mujoco.MjSpec()
    option = spec.option
    option.timestep = cfg.timestep_s
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC if cfg.elliptic_cones else mujoco.mjtCone.mjCONE_PYRAMIDAL
    option.impratio = cfg.impratio
    option.noslip_iterations = cfg.noslip_iterations
    spec.visual.quality.shadowsize = 2048 if cfg.shadows else 0
    spec.visual.quality.offsamples = cfg.samples
    spec.visual.global_.offwidth, spec.visual.global_.offheight = cfg.max_picture_px
    spec.visual.map.znear, spec.visual.map.zfar = 0.01, 20.0
    spec.stat.extent, spec.stat.center = 1.0, [0.0, 0.0, 0.1]
    lit = any(isinstance(part, Light) for part in parts)
    spec.visual.headlight.ambient = [0.42, 0.42, 0.42]
    # A lamp on the viewer's head shows anything, but nothing keeps its colour when the camera moves.
    spec.visual.headlight.diffuse = [0.0 if lit else 0.4] * 3
    spec.visual.headlight.specular = [0.0, 0.0, 0.0]
    try:
        with _names_without_prefix():
            for part in parts:
                part.add_to(spec)
            for table in (part for part in parts if isinstance(part, Table)):
                for part in parts:
                    if isinstance(part, Thing):
                        _lay_on_table(spec, part, table.grip_1_s)
            _remember_commands(spec, cfg.max_delay_s)
            model = spec.compile()
    except ValueError as error:
        raise InputError(f"the scene cannot be compiled: {error}") from error
    things = tuple(part.name for part in parts if isinstance(part, Thing))
    robots = tuple(part.embodiment for part in parts if isinstance(part, Robot))
    return Scene(spec, model, roles_of(model, things=things, robots=robots))


def _remember_commands(spec: mujoco.MjSpec, max_delay_s: float) -> None:
    """Gives actuators a buffer of past commands, which a delay looks back into."""
    if max_delay_s > 0:
        for actuator in spec.actuators:
            actuator.nsample = max(int(actuator.nsample), int(max_delay_s / spec.option.timestep) + 3)
            actuator.interp = 2  # cubic: motion changes smoothly with the delay, so that it can be identified


def _lay_on_table(spec: mujoco.MjSpec, thing: Thing, grip_1_s: float) -> None:
    """Names the contacts of an object with the table, so that they can have a grip of their own (`table.grip`)."""
    table = spec.geom("table")
    slide, torsion, roll = table.friction
    for geom in spec.body(thing.name).geoms:
        if geom.contype or geom.conaffinity:
            spec.add_pair(
                name=f"{geom.name}/table",
                geomname1=geom.name,
                geomname2="table",
                condim=4,
                friction=[slide, slide, torsion, roll, roll],
                solref=table.solref,
                solimp=table.solimp,
                solreffriction=[-1e-9, -grip_1_s],
            )


@contextlib.contextmanager
def _names_without_prefix() -> Iterator[None]:
    """Keeps MuJoCo from warning that a robot's names got no prefix: they are meant to stay as they are."""

    def tell(message: str) -> None:
        if "empty prefix" not in message:
            warnings.warn(message, stacklevel=2)

    previous = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(tell)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Attaching a spec with an empty prefix")
            yield
    finally:
        mujoco.set_mju_user_warning(previous)
