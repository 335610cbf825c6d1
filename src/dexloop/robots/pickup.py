"""Taking an object up: come, close, squeeze as hard as its weight asks for, lift, hold.

How hard is a matter of belief: contact forces carry the mass that is believed, are ready for the heaviest that is
likely and the least friction that is likely, and stay below what the object bears. Position servos make the forces:
their targets lie beyond the surface by torque over stiffness. Where fingertips feel less than they should before it is
lifted, and where it slips later, it is squeezed harder.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float, Int

from dexloop.core import se3
from dexloop.core.artifact import load_arrays
from dexloop.core.artifacts import Belief
from dexloop.core.errors import InputError
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.grip import Grip, Motors, carrying_wrench, hold_forces, required_wrenches
from dexloop.robots.hold import Hold
from dexloop.robots.kinematics import IkCfg, Kinematics, solve_ik
from dexloop.robots.squeeze import Squeeze

_HEAVY, _SLIPPERY = 0.975, 0.1
"""Quantiles of mass and friction that a grip is ready for."""
PHASES = ("come", "close", "squeeze", "lift", "hold")
"""In the order in which they follow each other."""


@dataclass(frozen=True)
class Load:
    """What is believed of an object that is to be held."""

    mass_kg: float
    mass_high_kg: float
    """Heaviest that is likely."""
    friction: float
    """Between it and the hand; the least that is likely."""
    com: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Centre of mass in the object's frame [m]."""
    crush_n: float = np.inf
    """Grip force that it bears [N]."""

    @staticmethod
    def of(belief: Belief, *, crush_n: float = np.inf) -> Load:
        """Returns what a belief says, on the safe side: the mass that is exceeded once in forty, and the friction that
        is fallen short of once in ten."""
        parameters = belief.header.meta["parameters"]
        labels = [str(label) for label in belief.header.meta["labels"]]
        for name in ("object.mass", "fingertip.friction"):
            if name not in labels:
                raise InputError(f"{belief.path} does not say {name}: identify it too")
        samples = load_arrays(belief.path / "posterior.npz")["samples"]
        mass, friction = (samples[:, labels.index(name)] for name in ("object.mass", "fingertip.friction"))
        com = tuple(float(parameters.get(f"object.com.{axis}", {"mean": 0.0})["mean"]) for axis in "xyz")
        middle = float(np.mean(mass))
        return Load(
            middle, max(float(np.quantile(mass, _HEAVY)), middle), float(np.quantile(friction, _SLIPPERY)),
            (com[0], com[1], com[2]), crush_n,
        )  # fmt: skip

    def __post_init__(self) -> None:
        if not (0.0 < self.mass_kg <= self.mass_high_kg < np.inf):
            raise InputError(f"masses of {self.mass_kg:g} kg, at most {self.mass_high_kg:g} kg, are no load")
        if not (0.0 < self.friction < np.inf and self.crush_n > 0.0):
            raise InputError(f"friction is {self.friction:g} and the crush limit {self.crush_n:g} N: both are above 0")


@dataclass(frozen=True)
class PickupCfg:
    """How an object is taken up."""

    back_m: float = 0.12
    """From how far the open hand comes [m]."""
    lift_m: float = 0.10
    """How high it goes [m]."""
    come_s: float = 1.2
    """How long each part takes [s]."""
    close_s: float = 0.8
    squeeze_s: float = 0.8
    lift_s: float = 1.5
    acceleration_m_s2: float = 3.0
    """That the grip is ready for [m/s²]."""
    safety: float = 1.3
    """Factor on all forces."""
    crush_share: float = 0.6
    """It is gripped with at most this share of what it bears."""
    harder_1_s: float = 7.5
    """How fast the squeeze grows while fingertips feel nothing of what they should, as a share [1/s]."""
    slip_m: float = 1e-3
    """What moves by less in the hand does not slip [m]."""
    firmer_1_m: float = 400.0
    """How much harder it is squeezed, as a share, for each metre that it slips further [1/m]."""
    firmest: float = 3.0
    """How many times harder at most."""


class Pickup:
    """One object taken up with one hold.

    Args:
        embodiment: The robot.
        model: A scene that holds it (names unchanged), for where it stands.
        hold: Where it touches.
        T_world_object: Where the object stands.
        load: What is believed of it.
        cfg: How.

    Raises:
        InputError: The arm does not get there.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        model: mujoco.MjModel,
        hold: Hold,
        T_world_object: Float[np.ndarray, "4 4"],
        load: Load,
        cfg: PickupCfg = PickupCfg(),  # noqa: B008 - frozen
    ):
        self.embodiment, self.hold, self.cfg = embodiment, hold, cfg
        self._kinematics = Kinematics(embodiment, model)
        alone = Kinematics(embodiment)
        self._T_base_world = alone.palm(embodiment.home) @ se3.inverse(self._kinematics.palm(embodiment.home))
        self._hand = [embodiment.joints.index(j) for j in embodiment.hand_joints]
        T = np.asarray(T_world_object) @ hold.T_object_palm
        self.touch = self._reach(T, self._with(embodiment.home, hold.q_touch))
        self.open = self._with(self.touch, hold.q_open)
        self.before = self._reach(se3.from_rt(np.eye(3), -cfg.back_m * T[:3, 2]) @ T, self.open)
        self.above = self._reach(se3.from_rt(np.eye(3), np.array([0.0, 0.0, cfg.lift_m])) @ T, self.touch)
        squeeze = Squeeze(embodiment, model)
        self.grip = grip(squeeze, hold, T_world_object, self.touch, load, cfg)
        tips = [tip.body for tip in embodiment.fingertips]
        self._tip_forces = np.zeros(len(tips))
        for link, force in zip(hold.links, self.grip.normal, strict=True):
            if link in tips:
                self._tip_forces[tips.index(link)] += force
        contacts = hold.contacts(T_world_object, load.friction)
        balanced_by = squeeze.motors(self.touch, contacts) if hold.kind == "pinch" else None
        self._firmest = _firmest(self.grip, load, cfg, balanced_by)
        self._push = squeeze.targets(self.touch, contacts, self.grip).q[self._hand] - hold.q_touch
        ends = np.cumsum([cfg.come_s, cfg.close_s, cfg.squeeze_s, cfg.lift_s])
        self.starts = np.concatenate([[0.0], ends])
        """When each phase begins [s]."""

    def phases(self, t: Float[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
        """Returns which of `PHASES` it is at each time [s]."""
        return np.searchsorted(self.starts, t, side="right") - 1

    def command(self, t: Float[np.ndarray, "*m"], firmness: Float[np.ndarray, "*#m"] | float = 1.0) -> np.ndarray:
        """Returns targets of all joints [rad or m].

        Args:
            t: Since it stood before the object, open [s].
            firmness: Factor on how hard it squeezes; see `firmness`.
        """
        t = np.asarray(t, dtype=np.float64)
        spans = np.diff(self.starts)
        come, close, squeeze, lift = (
            _ease((t - start) / span) for start, span in zip(self.starts[:-1], spans, strict=True)
        )
        q = self.before + come[..., None] * (self.open - self.before) + lift[..., None] * (self.above - self.touch)
        hand = self.hold.q_open + close[..., None] * (self.hold.q_touch - self.hold.q_open)
        q[..., self._hand] = hand + (squeeze * np.asarray(firmness))[..., None] * self._push
        return np.clip(q, *self.embodiment.position_limits.T)

    def pressed(self, t: float, touch_n: Float[np.ndarray, " f"], before: float, *, dt: float) -> float:
        """Returns how much harder to squeeze from now on, so that fingertips feel what they should: objects give way,
        and hands touch them elsewhere than planned. Before the squeeze and after it nothing changes.

        Args:
            t: Since it stood before the object, open [s].
            touch_n: What each fingertip feels [N].
            before: How much harder it was squeezed until now.
            dt: For how long [s].
        """
        begin, end = self.starts[2:4]
        planned, tips = float(self._tip_forces.sum()), self._tip_forces > 0.0
        if not (begin <= t < end and planned > 0.0):
            return before
        missing = _ease((t - begin) / (end - begin)) - float(np.asarray(touch_n)[tips].sum()) / planned
        return float(np.clip(before + self.cfg.harder_1_s * dt * missing, 1.0, self._firmest))

    def firmness(self, slip_m: Float[np.ndarray, "*m"], before: Float[np.ndarray, "*m"] | float = 1.0) -> np.ndarray:
        """Returns how much harder to squeeze what has slipped by so much; never less hard than before, and never so
        hard that it might be crushed."""
        more = 1.0 + self.cfg.firmer_1_m * np.maximum(np.asarray(slip_m) - self.cfg.slip_m, 0.0)
        return np.maximum(np.minimum(more, self._firmest), before)

    def finger_forces(self) -> Float[np.ndarray, " f"]:
        """Returns the normal force that each finger shall press with, thumb last [N]."""
        bodies = {tip.name: tip for tip in self.embodiment.fingertips}
        owner = fingers_of_bodies(self.embodiment)
        forces = dict.fromkeys(bodies, 0.0)
        for link, force in zip(self.hold.links, self.grip.normal, strict=True):
            if link in owner:
                forces[owner[link]] += float(force)
        return np.array(list(forces.values()))

    def _with(self, q: np.ndarray, hand: np.ndarray) -> np.ndarray:
        out = np.array(q, dtype=np.float64)
        out[self._hand] = hand
        return out

    def _reach(self, T_world_palm: np.ndarray, q: np.ndarray) -> np.ndarray:
        robot = self.embodiment
        target = self._T_base_world @ T_world_palm
        found = solve_ik(robot, {robot.palm: target}, q, joints=robot.arm_joints, cfg=IkCfg(restarts=4))
        if not found.converged:
            raise InputError(f"{robot.name} does not get to the object: {found.status.message}")
        return found.q


def grip(
    squeeze: Squeeze,
    hold: Hold,
    T_world_object: Float[np.ndarray, "4 4"],
    q: Float[np.ndarray, " n"],
    load: Load,
    cfg: PickupCfg = PickupCfg(),  # noqa: B008 - frozen
) -> Grip:
    """Returns the contact forces that hold a load, and are ready for it to be heavier and to be shaken."""
    contacts = hold.contacts(T_world_object, load.friction)
    centre = se3.transform(np.asarray(T_world_object), np.asarray(load.com))
    return hold_forces(
        contacts,
        carrying_wrench(load.mass_kg, centre, centre),
        required_wrenches(load.mass_high_kg, centre, centre, acceleration=cfg.acceleration_m_s2, safety=cfg.safety),
        centre=centre,
        # A grip is half of all normal forces: those of one side.
        f_max=2.0 * cfg.crush_share * load.crush_n / len(contacts),
        motors=squeeze.motors(q, contacts),
    )


def _firmest(grip: Grip, load: Load, cfg: PickupCfg, balanced_by: Motors | None) -> float:
    """Returns how much harder than planned an object may be squeezed.

    A pinch holds because its forces balance. Where one motor is at its limit and others go on they no longer do, and
    what is slippery is pressed out of the fingers. What lies in the palm stays there.
    """
    planned = 0.5 * float(grip.normal.sum())
    bears = cfg.crush_share * load.crush_n / planned if planned > 0 else np.inf
    return max(min(cfg.firmest, bears, _room(grip, balanced_by) if balanced_by else np.inf), 1.0)


def _room(grip: Grip, motors: Motors) -> float:
    """Returns how many times the planned torques the motors can do, all of them."""
    limit = np.where(grip.torques > 0.0, motors.high, -motors.low)
    share = np.abs(grip.torques) / np.maximum(limit, 1e-9)
    return 1.0 / max(float(share.max(initial=0.0)), 1e-9)


def fingers_of_bodies(robot: Embodiment) -> dict[str, str]:
    """Returns which finger each of the hand's bodies belongs to, by name; those of the palm belong to none."""
    model = Kinematics(robot).model
    palm = int(model.site_bodyid[model.site(robot.palm).id])
    found = {}
    for tip in robot.fingertips:
        body = model.body(tip.body).id
        while body not in (0, palm):
            found[model.body(body).name] = tip.name
            body = int(model.body_parentid[body])
    return found


def _ease(x: np.ndarray) -> np.ndarray:
    """Goes from 0 to 1 with no speed and no acceleration at both ends: 10 x³ - 15 x⁴ + 6 x⁵."""
    x = np.clip(x, 0.0, 1.0)
    return x**3 * (10.0 + x * (6.0 * x - 15.0))
