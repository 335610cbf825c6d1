"""What `World` costs over the bare engine, and `Renderer` over MuJoCo's, side by side in one run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import mujoco
import mujoco.batch
import numpy as np

from benchmarks.metric import Metric
from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.lab.objects import make
from dexloop.robots import load
from dexloop.sim.parts import FixedCamera, Light, Primitive, Robot, Table, Thing
from dexloop.sim.render import Renderer
from dexloop.sim.scene import Scene, SceneCfg, compose
from dexloop.sim.world import World

N, STEPS, ROUNDS, PICTURES = 64, 150, 12, 25
HAND = load("dex16@wrist")
PARAMETERS = ("object.mass", "table.friction")
CAMERA = Camera.from_fov("cam", 640, 480, 0.7, se3.look_at(np.array([0.5, -0.4, 0.4]), np.array([0.0, 0.0, 0.05])))


def run() -> list[Metric]:
    metrics = []
    for name, scene, home in (("pushed box", _box(), None), ("hand and object", _hand(), HAND.home)):
        print(f"stepping: {name}", file=sys.stderr)
        metrics += _stepping(name, scene, home)
    scene = _hand()
    for width, height in ((640, 480), (128, 128)):
        print(f"drawing: {width}x{height}", file=sys.stderr)
        metrics += _drawing(scene, width, height)
    return metrics


class _Finger:
    """A ball on a driven slide."""

    def add_to(self, spec: mujoco.MjSpec) -> None:
        body = spec.worldbody.add_body(name="finger", pos=[-0.08, 0, 0.03])
        body.add_joint(name="slide", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[1, 0, 0], damping=1.0, armature=0.05)
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.015, 0, 0], mass=0.2)
        spec.add_actuator(name="slide", target="slide", trntype=mujoco.mjtTrn.mjTRN_JOINT).set_to_position(
            kp=500, kv=20
        )


def _box() -> Scene:
    box = Thing("box", Primitive("box", (0.03, 0.03, 0.03)), 0.12, pose=(0, 0, 0.03, 1, 0, 0, 0))
    return compose(Table(), box, _Finger(), cfg=SceneCfg(max_delay_s=0.0))


def _hand() -> Scene:
    thing = make("cube")
    cube = Thing("cube", thing.shape, thing.mass_kg, pose=tuple(se3.to_pose(thing.T_rest).tolist()))
    parts = (Table(), cube, Robot(HAND), Light("lamp", (1, -1, 2)), FixedCamera(CAMERA))
    return compose(*parts, cfg=SceneCfg(max_delay_s=0.0))


def _stepping(name: str, scene: Scene, home: np.ndarray | None) -> list[Metric]:
    model, rng = scene.model, np.random.default_rng(0)
    mass, friction = rng.uniform(0.05, 0.4, N), rng.uniform(0.2, 0.8, N)
    start = home if home is not None else np.zeros(model.nu)
    control = start + np.cumsum(rng.normal(0, 2e-3, (N, STEPS, model.nu)), axis=1)
    world = World(scene, N, parameters=PARAMETERS)
    batch = mujoco.batch.Batch(model, nsim=N)
    body, table = model.body(scene.roles["object"].bodies[0]).id, model.geom("table").id
    start_qpos = model.qpos0.copy()
    start_qpos[[int(model.jnt_qposadr[j]) for j in scene.roles["joint"].joints]] = start
    record = ("object.pose", "joint.position", "joint.effort")

    def ours() -> np.ndarray:
        world.reset(qpos=start_qpos)
        world.set({"object.mass": mass, "table.friction": friction})
        out = world.rollout(control, record=record)
        return out["object.pose"]

    def bare() -> np.ndarray:
        batch.reset(stage=int(mujoco.mjtStage.mjSTAGE_NONE))
        batch.bind("qpos")[:] = start_qpos
        batch.expand("body_mass")[:, body] = mass
        batch.expand("body_inertia")[:, body] = model.body_inertia[body] * (mass / model.body_mass[body])[:, None]
        batch.expand("geom_friction")[:, table, 0] = friction
        batch.expand("pair_friction")[:, :, :2] = friction[:, None, None]
        batch.set_const()
        return batch.rollout(STEPS, control=control, record=("qpos", "qfrc_actuator"))["qpos"]

    adr = int(model.joint(model.body_jntadr[body]).qposadr[0])
    if not np.array_equal(ours(), bare()[..., adr : adr + 7]):
        raise AssertionError("the two do not simulate the same thing")
    a, b = _race(ours, bare)
    steps = N * STEPS
    return [
        Metric(f"{name}: World / bare batch", b / a, "1", "higher", 0.1, target=0.9, note=f"{steps / a:.0f} steps/s"),
        Metric(f"{name}: steps per second", steps / a, "1/s", "higher", float("inf"), note="this machine"),
    ]


def _drawing(scene: Scene, width: int, height: int) -> list[Metric]:
    model, data = World(scene).snapshot()
    with Renderer(model, width, height) as ours, mujoco.Renderer(model, height, width) as bare:

        def plain() -> np.ndarray:
            bare.update_scene(data, camera="cam")
            return bare.render()

        if not np.array_equal(ours.rgb(data, "cam"), plain()):
            raise AssertionError("the two do not draw the same picture")
        a, b = _race(
            lambda: [ours.rgb(data, "cam") for _ in range(PICTURES)], lambda: [plain() for _ in range(PICTURES)]
        )
        a, b = a / PICTURES, b / PICTURES
    name = f"drawing {width}x{height}"
    return [
        Metric(f"{name}: Renderer / bare", b / a, "1", "higher", 0.1, note=f"{1 / a:.0f} pictures/s"),
        Metric(f"{name}: pictures per second", 1 / a, "1/s", "higher", float("inf"), note="this machine"),
    ]


def _race(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Returns the best time of each [s], taken in turns so that a busy machine slows both."""
    best = [np.inf, np.inf]
    first(), second()
    for _ in range(ROUNDS):
        for k, action in enumerate((first, second)):
            start = time.perf_counter()
            action()
            best[k] = min(best[k], time.perf_counter() - start)
    return best[0], best[1]
