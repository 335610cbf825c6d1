"""Taking an object up in many simulated worlds at once: what holds there, and what was seen meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.pickup import Pickup
from dexloop.sim.believed import Draws
from dexloop.sim.scene import Scene
from dexloop.sim.world import World

RATE_HZ = 50.0
"""How often slip is looked at, and signals are noted [1/s]."""
HOLD_S, SHAKE_S = 1.0, 1.0
SHAKE_M, SHAKE_HZ = 0.02, (1.5, 2.0, 2.5)
"""How far and how often the arm's first three joints shake, if they slide, in the end."""
SLIP_M = 0.01
"""What moves farther in the hand has slipped [m]."""
LIFTED = 0.5
"""It was lifted if it rose by this share of what the palm did."""
_SEEN_S = 0.06
"""Slip is a mean over this time, for trackers are noisy [s]."""
HELD, SLIPPED, DROPPED, MISSED, DIVERGED = "held", "slipped", "dropped", "missed", "diverged"


@dataclass(frozen=True, eq=False)
class Replayed:
    """What happened in n worlds, at `RATE_HZ`."""

    outcome: tuple[str, ...]
    """"held", or why it was not."""
    slip_m: Float[np.ndarray, " n"]
    """Farthest that the object moved in the palm's frame after the squeeze [m]."""
    t: Float[np.ndarray, " m"]
    """[s]"""
    phase: Int[np.ndarray, "n m"]
    position: Float[np.ndarray, "n m j"]
    """Of all joints [rad or m]."""
    command: Float[np.ndarray, "n m j"]
    touch: Float[np.ndarray, "n m f"]
    """[N]"""
    T_world_object: Float[np.ndarray, "n m 4 4"]
    T_world_palm: Float[np.ndarray, "n m 4 4"]
    firmness: Float[np.ndarray, "n m"]

    @property
    def held(self) -> Bool[np.ndarray, " n"]:
        """Whether each world's object was held to the end."""
        return np.array([o == HELD for o in self.outcome])


def replay(
    scene: Scene,
    thing: str,
    pickups: Sequence[Pickup],
    T_world_object: Float[np.ndarray, "n 4 4"],
    draws: Draws,
    *,
    feedback: bool = True,
    shake: bool = True,
    progress: Callable[[float], None] = lambda _done: None,
) -> Replayed:
    """Takes an object up and holds it, in one world for each pickup.

    Args:
        scene: Robot, object and table.
        thing: The object's name.
        pickups: One a world, all of one robot and with the same timing.
        T_world_object: Where the object stands in each.
        draws: Parameters of each.
        feedback: Whether what slips is squeezed harder.
        shake: Whether it is shaken in the end, or held still for as long.
        progress: Told which share is done.

    Raises:
        InputError: Numbers of worlds that do not agree, or pickups that take different times.
    """
    n = len(pickups)
    if len(T_world_object) != n or len(draws) != n:
        raise InputError(f"{n} pickups need as many poses and draws, not {len(T_world_object)} and {len(draws)}")
    starts = pickups[0].starts
    if any(not np.array_equal(p.starts, starts) for p in pickups):
        raise InputError("pickups that are replayed together need the same timing")
    bench = _Worlds(scene, thing, pickups, np.asarray(T_world_object), draws, shake=shake)
    ticks = round((starts[-1] + HOLD_S + SHAKE_S) / bench.dt)
    after, few = round(starts[3] / bench.dt), max(round(_SEEN_S / bench.dt), 1)
    firm, rows = np.ones(n), []
    for k in range(ticks):
        rows.append((*bench.step(k * bench.dt, firm), firm))
        if feedback and k >= after:
            seen = np.stack([_in_palm(row) for row in rows[after - few :]])
            slip = np.linalg.norm(seen[-few:].mean(axis=0) - seen[:few].mean(axis=0), axis=1)
            firm = np.array([float(p.firmness(s, f)) for p, s, f in zip(pickups, slip, firm, strict=True)])
        progress((k + 1) / ticks)
    position, command, touch, objects, palms, firmness = (
        np.stack(column, axis=1) for column in zip(*rows, strict=True)
    )
    seen = (se3.inverse(palms) @ objects)[:, :, :3, 3]
    slip_m = np.linalg.norm(seen[:, after:] - seen[:, after - few : after].mean(axis=1)[:, None], axis=2).max(axis=1)
    t = bench.dt * (1.0 + np.arange(ticks))
    outcome = [_outcome(objects[i], palms[i], slip_m[i], after, i in bench.diverged) for i in range(n)]
    phase = np.tile(pickups[0].phases(t), (n, 1))
    return Replayed(tuple(outcome), slip_m, t, phase, position, command, touch, objects, palms, firmness)


def _in_palm(row: tuple[np.ndarray, ...]) -> Float[np.ndarray, "n 3"]:
    return (se3.inverse(row[4]) @ row[3])[:, :3, 3]


class _Worlds:
    """Worlds with a hand before an object in each."""

    def __init__(
        self,
        scene: Scene,
        thing: str,
        pickups: Sequence[Pickup],
        T_world_object: np.ndarray,
        draws: Draws,
        *,
        shake: bool,
    ):
        robot, model = pickups[0].embodiment, scene.model
        self.pickups, self.robot = pickups, robot
        self.world = World(scene, len(pickups), parameters=draws.names)
        self.world.set(draws.by_name())
        self._joints, self._free = qpos_addresses(model, robot.joints), int(model.joint(f"{thing}.free").qposadr[0])
        self._servos = [model.actuator(a).id for a in robot.actuators]
        qpos = np.tile(model.qpos0, (len(pickups), 1))
        qpos[:, self._joints] = [p.before for p in pickups]
        qpos[:, self._free : self._free + 7] = se3.to_pose(T_world_object)
        ctrl = np.zeros((len(pickups), model.nu))
        ctrl[:, self._servos] = qpos[:, self._joints]
        self.world.reset(qpos=qpos, ctrl=ctrl)
        steps = max(round(1.0 / (RATE_HZ * model.opt.timestep)), 1)
        self.dt = steps * float(model.opt.timestep)
        self._fine = (np.arange(steps) + 1.0) / steps * self.dt
        slides = [k for k, j in enumerate(robot.arm_joints[:3]) if robot.units[robot.joints.index(j)] == "m"]
        self._shaken = slides if shake else []
        self._kinematics = Kinematics(robot, model)
        self.diverged: Mapping[int, str] = {}

    def step(self, t: float, firm: Float[np.ndarray, " n"]) -> tuple[np.ndarray, ...]:
        """Advances all worlds, and returns joint positions, commands, touch, and the poses of objects and palms."""
        model, late = self.world.model, np.maximum(t + self._fine - self.pickups[0].starts[-1] - HOLD_S, 0.0)
        targets = np.stack([p.command(t + self._fine, f) for p, f in zip(self.pickups, firm, strict=True)])
        for k in self._shaken:
            targets[:, :, k] += SHAKE_M * np.sin(2 * np.pi * SHAKE_HZ[k] * late)
        control = np.zeros((len(targets), len(self._fine), model.nu))
        control[:, :, self._servos] = np.clip(targets, *self.robot.position_limits.T)
        out = self.world.rollout(control, record=("qpos", "fingertip.touch"))
        self.diverged = out.diverged
        qpos = np.where(np.isnan(out["qpos"][:, -1]), model.qpos0, out["qpos"][:, -1])
        position, pose = qpos[:, self._joints], qpos[:, self._free : self._free + 7]
        touch = np.nan_to_num(out["fingertip.touch"][:, -1])
        return position, targets[:, -1], touch, se3.from_pose(pose), self._kinematics.palm(position)


def _outcome(thing: np.ndarray, palm: np.ndarray, slip_m: float, after: int, diverged: bool) -> str:
    if diverged:
        return DIVERGED
    height, raised = thing[:, 2, 3], palm[-1, 2, 3] - palm[after, 2, 3]
    if height[-1] - height[after] < LIFTED * raised:
        return DROPPED if height.max() - height[after] > LIFTED * raised else MISSED
    return HELD if slip_m <= SLIP_M else SLIPPED
