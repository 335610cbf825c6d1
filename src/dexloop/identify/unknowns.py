"""What is to be found: parameters of the model and nuisances of the recording, each with a weak prior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError, NoEffect, UnknownName
from dexloop.sim.parameters import Parameter, available, parameter
from dexloop.sim.scene import Scene
from dexloop.sim.transforms import Identity, Log, LogCholesky, Transform

Array = np.ndarray

DELAY = "actuator.delay"
MAX_DELAY_S = 0.15
MAX_CLOCK_S = 0.3
"""How far two clocks may be apart [s]."""

PRIOR_SD: Mapping[str, float] = {
    "mass": 1.0,
    "friction": 0.7,
    "torsion": 1.0,
    "stiffness": 1.5,
    "damping": 0.7,
    "grip": 1.0,
    "armature": 0.7,
    "gain": 0.5,
    "stiction": 0.1,
    "stribeck": 0.5,
}
"""Default prior: the logarithm is normal about the model's own value, with this standard deviation. A mass is thus
taken to be within a factor of 7 of the model's (95 %), a friction within a factor of 4."""
STICTION = 1.1
"""Friction holds what is at rest a little more than what slides."""
COM_SD = 0.1
"""Of the centre of mass, as a fraction of the object's size."""
INERTIA_SD = 0.25
"""Of the log-Cholesky coordinates of an inertia."""
DELAY_S = (0.015, 0.02)
"""Mean and standard deviation of the delay from command to motor, where the model says nothing [s]."""
HEIGHT_SD_M = 2e-3
"""Of the table, as the robot's own joints would tell it [m]."""
CLOCK_SD_S = 0.1
"""Between clocks of different names [s]."""
SAME_CLOCK_SD_S = 0.02
"""Between streams that claim to be on one clock: a driver may stamp late [s]."""


@dataclass(frozen=True, eq=False)
class Unknown:
    """One or a few numbers to be found, in unconstrained ("free") coordinates."""

    name: str
    """A parameter of the world ("object.mass"), or "clock.NAME", "gain.STREAM", "bias.STREAM"."""
    labels: tuple[str, ...]
    """One for each component."""
    unit: str
    transform: Transform
    mean: Float[Array, " k"]
    """Of the prior, in free coordinates."""
    sd: Float[Array, " k"]
    lower: Float[Array, " k"]
    """Bounds, in free coordinates."""
    upper: Float[Array, " k"]
    step: Float[Array, " k"]
    """First step of finite differences, in free coordinates."""
    parameter: Parameter | None = field(default=None, repr=False)
    """Where the world keeps it; None for what needs no simulation (clocks, gains, biases) and for the delay."""

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.labels)

    @property
    def simulated(self) -> bool:
        """Whether another value needs another simulation."""
        return self.parameter is not None or self.name == DELAY

    @property
    def leading(self) -> bool:
        """Whether it is looked for from the beginning: much of the motion depends on it."""
        return self.name.rpartition(".")[2] not in ("com", "inertia", "torsion", "grip", "stribeck")

    @property
    def is_ratio(self) -> bool:
        """Whether its free coordinate is a logarithm, so that its standard deviation is a relative one."""
        return isinstance(self.transform, Log)

    def value(self, free: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
        """Returns physical values."""
        value = self.transform.to_value(free)
        return value if self.parameter is None else np.clip(value, *self.parameter.bounds)

    def describe_prior(self) -> str:
        """Says the prior in words."""
        if self.is_ratio:
            unit = "" if self.unit == "1" else f" {self.unit}"
            return f"{_show(self.value(self.mean))}{unit}, within a factor {_show(np.exp(1.96 * self.sd))} (95 %)"
        if isinstance(self.transform, LogCholesky):
            return f"about the model's own, {100 * float(self.sd[0]):.0f} % in each radius of gyration"
        return f"{_show(self.mean)} ± {_show(1.96 * self.sd)} {self.unit} (95 %)"


def model_unknown(scene: Scene, name: str) -> Unknown:
    """Returns a parameter of the world with its default prior.

    Raises:
        UnknownName: There is no such parameter.
        NoEffect: The model has nothing that it could change.
    """
    if name == DELAY:
        return _delay(scene)
    p = parameter(scene.model, scene.roles, name)
    if p.quantity.on == "cameras":
        raise NoEffect(f"{name} has no effect on motion: a camera is calibrated from pictures")
    kind, nominal = p.quantity.name, p.nominal
    if isinstance(p.transform, LogCholesky):
        free = p.transform.to_free(nominal)
        sd, step = np.full(6, INERTIA_SD), np.full(6, 0.05)
        lower, upper = free - 3.0, free + 3.0
        labels = tuple(f"{name}.{axis}" for axis in ("xx", "yy", "zz", "xy", "xz", "yz"))
    elif isinstance(p.transform, Log):
        nominal = np.clip(nominal, p.bounds[0] * 1.001, p.bounds[1] * 0.999)
        free = np.log(STICTION) * np.ones(1) if kind == "stiction" else np.log(nominal)
        sd, step = np.full(p.size, PRIOR_SD[kind]), np.full(p.size, 0.05)
        lower, upper = np.full(p.size, np.log(p.bounds[0])), np.full(p.size, np.log(p.bounds[1]))
        labels = (name,)
    else:
        size = _extent(scene.model, p.selection.bodies[0])
        free, sd = nominal.copy(), COM_SD * size
        step, lower, upper = 0.1 * sd, nominal - 0.5 * size, nominal + 0.5 * size
        labels = tuple(f"{name}.{axis}" for axis in "xyz")
    return Unknown(name, labels, p.unit, p.transform, free, sd, lower, upper, step, parameter=p)


def _delay(scene: Scene) -> Unknown:
    if not scene.model.nu:
        raise NoEffect(f"{DELAY} has no effect: the model has no actuators")
    mean = float(scene.model.actuator_delay.max()) or DELAY_S[0]
    return _plain(DELAY, "s", mean, DELAY_S[1], (0.0, MAX_DELAY_S), 1e-3)


def height_unknown(scene: Scene) -> Unknown:
    """Returns how much higher the table is than the model says [m]."""
    plain = _plain("table.height", "m", 0.0, HEIGHT_SD_M, (-0.02, 0.02), 5e-5)
    return replace(plain, parameter=parameter(scene.model, scene.roles, "table.height"))


def clock_unknown(name: str, *, same: bool) -> Unknown:
    """Returns the offset of a clock (or of a stream on the robot's own clock) from the robot's clock [s]."""
    sd = SAME_CLOCK_SD_S if same else CLOCK_SD_S
    return _plain(f"clock.{name}", "s", 0.0, sd, (-MAX_CLOCK_S, MAX_CLOCK_S), 1e-3)


def gain_unknown(stream: str, sd: float) -> Unknown:
    """Returns the ratio of reported to true values of a stream, the same for all its channels."""
    name, one = f"gain.{stream}", np.ones(1)
    return Unknown(name, (name,), "1", Log(), 0.0 * one, sd * one, -1.0 * one, one, 1e-2 * one)


def bias_unknown(stream: str, channels: Sequence[str], unit: str, sd: Float[Array, " k"]) -> Unknown:
    """Returns a constant error of a stream: reported minus true."""
    labels = tuple(f"bias.{stream}.{c}" for c in channels)
    zero = np.zeros(len(labels))
    return Unknown(f"bias.{stream}", labels, unit, Identity(), zero, sd, -10 * sd, 10 * sd, 0.1 * sd)


def _plain(name: str, unit: str, mean: float, sd: float, bounds: tuple[float, float], step: float) -> Unknown:
    one = np.ones(1)
    return Unknown(name, (name,), unit, Identity(), mean * one, sd * one, bounds[0] * one, bounds[1] * one, step * one)


def with_priors(unknowns: Sequence[Unknown], given: Sequence[str]) -> list[Unknown]:
    """Puts the user's priors in the place of the default ones.

    Args:
        unknowns: What is to be found.
        given: As "NAME=MEAN:SD" in the parameter's unit.

    Raises:
        InputError: It is written otherwise, or is impossible.
        UnknownName: Nothing of that name is to be found.
    """
    out = {u.name: u for u in unknowns}
    for text in given:
        name, _, numbers = text.partition("=")
        try:
            mean, sd = (float(v) for v in numbers.split(":"))
        except ValueError:
            raise InputError(f"a prior is written NAME=MEAN:SD, as in object.mass=0.4:0.1, not {text!r}") from None
        if name not in out:
            raise UnknownName("parameter with a prior", name, out)
        u = out[name]
        if u.size != 1:
            raise InputError(f"{name} has {u.size} components: a prior can be given for single numbers only")
        lower, upper = float(u.value(u.lower)[0]), float(u.value(u.upper)[0])
        if not (sd > 0 and lower <= mean <= upper):
            raise InputError(f"the prior {text!r} is impossible: {name} is from {lower:g} to {upper:g}, and SD above 0")
        free = np.array([np.log(mean) if u.is_ratio else mean])
        out[name] = replace(u, mean=free, sd=np.array([sd / mean if u.is_ratio else sd]))
    return list(out.values())


def standard_names(scene: Scene) -> list[str]:
    """Lists what is asked of an object where nobody says otherwise, as far as the scene has it."""
    wanted = (
        "object.mass", "object.com", "table.friction", "table.stiction", "table.stribeck", "fingertip.friction",
        "fingertip.stiffness",
    )  # fmt: skip
    there = available(scene.model, scene.roles)
    return [name for name in wanted if name in there]


def robot_names(scene: Scene) -> list[str]:
    """Lists what is calibrated of a robot from its own free motion, as far as the scene has it."""
    found = []
    for name in ("actuator.gain", "actuator.damping", "joint.friction", "joint.armature", DELAY):
        try:
            found.append(model_unknown(scene, name).name)
        except (NoEffect, UnknownName):
            continue
    return found


def _extent(model: mujoco.MjModel, body: int) -> Float[Array, "3"]:
    """Returns the size of a body's geoms along its axes [m]."""
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for g in np.flatnonzero(model.geom_bodyid == body):
        R = np.zeros(9)
        mujoco.mju_quat2Mat(R, model.geom_quat[g])
        centre, half = model.geom_aabb[g, :3], model.geom_aabb[g, 3:]
        middle = model.geom_pos[g] + R.reshape(3, 3) @ centre
        reach = np.abs(R.reshape(3, 3)) @ half
        low, high = np.minimum(low, middle - reach), np.maximum(high, middle + reach)
    if not np.isfinite(low).all():
        return np.full(3, 0.1)
    return np.maximum(high - low, 1e-3)


def _show(values: Float[Array, " k"]) -> str:
    return ", ".join(f"{v:.3g}" for v in np.where(np.abs(values) < 1e-9, 0.0, values))
