"""A tool that follows a measured path, and pushes as the real one did.

MuJoCo's mocap bodies jump from pose to pose and have no velocity in contacts: one that pushes must first sink in. So
the tool becomes a heavy free body, held by a stiff weld to a mocap body without geoms, and that one is moved ahead of
the path by what the weld lags behind. The weld accelerates the tool by

    a = (u - x) / T² - 2 v / T        with its time constant T [s] and the pose u of the mocap body,

which is solved for u, step by step as MuJoCo integrates: the tool is then on the path exactly, not only after a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from jaxtyping import Float
from scipy.interpolate import BSpline, make_smoothing_spline

from dexloop.core import se3
from dexloop.core.errors import InputError, UnknownName
from dexloop.sim.roles import Roles, Selection, is_free, roles_of
from dexloop.sim.scene import Scene
from dexloop.sim.signals import add_wrench_sensor

Array = np.ndarray

_ARMATURE = 10.0
"""Of the tool, in each direction [kg, kg·m²]: much more than what it pushes, so that contacts are as stiff as against
something that stands."""
_IMPEDANCE = 0.9999
"""Of the weld, the highest that MuJoCo has: a ten-thousandth of what contacts do to the tool is left."""
_OVERRUN_S = 0.1
"""A path is continued for so long before its start and after its end [s]: clocks differ by less."""


@dataclass(frozen=True, eq=False)
class ToolPath:
    """A smooth path through measured poses."""

    spline: BSpline
    """Of x y z [m], qw qx qy qz over time [s]; natural cubic."""
    start_s: float
    end_s: float

    @staticmethod
    def fit(times_s: Float[Array, " n"], poses: Float[Array, "n 7"]) -> ToolPath:
        """Fits a smoothing spline. How smooth is found by cross-validation, for positions and rotations apart.

        Args:
            times_s: When each pose was measured [s], in order; the steps need not be equal.
            poses: T_world_tool as x y z [m], qw qx qy qz.

        Raises:
            InputError: There are fewer than 5 poses, time does not go forward, or a number makes no sense.
        """
        if len(times_s) < 5:
            raise InputError(f"a tool's path needs at least 5 measured poses, not {len(times_s)}")
        if not (np.isfinite(times_s).all() and np.isfinite(poses).all()):
            raise InputError("the tool's path holds a value that is not a finite number: leave those samples out")
        if not (np.diff(times_s) > 0).all():
            bad = int(np.argmin(np.diff(times_s) > 0)) + 1
            raise InputError(
                f"the tool's path goes back in time, or stands, at sample {bad}: sort it, and keep one of two"
            )
        norms = np.linalg.norm(poses[:, 3:], axis=1)
        if (np.abs(norms - 1) > 0.01).any():
            bad = int(np.argmax(np.abs(norms - 1)))
            raise InputError(f"the quaternion of the tool at sample {bad} has length {norms[bad]:.3g}, not 1")
        # q and -q are one rotation: a spline needs them on one side.
        turned = np.cumprod(np.r_[1.0, np.where((poses[1:, 3:] * poses[:-1, 3:]).sum(axis=1) < 0, -1.0, 1.0)])
        columns = np.concatenate([poses[:, :3], poses[:, 3:] * (turned / norms)[:, None]], axis=1)
        return ToolPath(_smooth(times_s, columns), float(times_s[0]), float(times_s[-1]))

    def at(self, times_s: Float[Array, "*n"]) -> Float[Array, "*n 7"]:
        """Returns the poses at any times [s], continued at the speed of its ends for up to 0.1 s.

        Raises:
            InputError: A time is further out.
        """
        low, high = float(np.min(times_s)), float(np.max(times_s))
        if low < self.start_s - _OVERRUN_S or high > self.end_s + _OVERRUN_S:
            raise InputError(
                f"the tool was measured from {self.start_s:.3f} s to {self.end_s:.3f} s, its path is asked for from "
                f"{low:.3f} s to {high:.3f} s: simulate less, or record the tool for longer"
            )
        inside = np.clip(times_s, self.start_s, self.end_s)
        poses = self.spline(inside)
        beyond = times_s != inside
        if beyond.any():
            poses[beyond] += self.spline(inside[beyond], nu=1) * (times_s - inside)[beyond][..., None]
        poses[..., 3:] /= np.linalg.norm(poses[..., 3:], axis=-1, keepdims=True)
        return poses


def _smooth(times: Float[Array, " n"], columns: Float[Array, "n 7"]) -> BSpline:
    """Fits splines of several cut-off frequencies and keeps those with the least generalised cross-validation error.

    A smoothing spline of weight L passes 1 / (1 + L dt w⁴) of an oscillation w [rad/s] sampled every dt: half at its
    cut-off. Its effective number of parameters, the trace of what maps data to fit, is estimated by smoothing noise.
    """
    dt = float(np.median(np.diff(times)))
    probes = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(times), 8))
    data = np.concatenate([columns, probes], axis=1)
    fits, errors = [], []
    for cutoff in 2 * np.pi * np.geomspace(2.0, 1.0 / dt, 12):
        fit = make_smoothing_spline(times, data, lam=1.0 / (dt * cutoff**4))
        rest = data - fit(times)
        squares = np.mean(rest[:, :7] ** 2, axis=0) / np.mean(probes * rest[:, 7:]) ** 2
        fits.append(fit)
        errors.append([squares[:3].sum(), squares[3:].sum()])
    position, rotation = (fits[k].c for k in np.argmin(errors, axis=0))
    return BSpline(fits[0].t, np.concatenate([position[:, :3], rotation[:, 3:7]], axis=1), 3)


@dataclass(frozen=True, eq=False)
class Following:
    """What a world needs to let a tool follow a path: the state to start from, and what to move."""

    pose: Float[Array, "*n 7"]
    """Of the tool at the start, for its part of qpos."""
    velocity: Float[Array, "*n 6"]
    """Linear in world axes [m/s], angular in tool axes [rad/s], for its part of qvel."""
    moving: Mapping[str, Float[Array, "*n t 7"]]
    """For `World.rollout`."""


@dataclass(frozen=True, eq=False)
class Guided:
    """A scene with a tool in it that follows measured paths."""

    scene: Scene
    body: str
    """The tool. Its net contact wrench is the signal "BODY.wrench"."""
    target: str
    """The mocap body that it is welded to."""
    qpos: slice
    """Where its pose is in qpos."""
    qvel: slice
    """Where its velocity is in qvel."""
    time_constant_s: float
    """Of the weld [s]."""

    def follow(self, path: ToolPath, start_s: float | Float[Array, " n"], steps: int) -> Following:
        """Plans to be on the path after every step.

        Args:
            path: The measured path.
            start_s: Time on the path's clock when the simulation starts [s]; several for a world each.
            steps: How many steps of the scene's timestep.

        Raises:
            InputError: The path is too short.
        """
        h, T = self.scene.model.opt.timestep, self.time_constant_s
        poses = path.at(np.asarray(start_s, dtype=np.float64)[..., None] + h * np.arange(-1, steps + 1))
        x, q = poses[..., :3], poses[..., 3:]
        # MuJoCo steps as v' = v + h a, x' = x + h v': the velocity is that of the step before.
        v = np.diff(x, axis=-2) / h
        w = se3.so3_log(se3.quat_multiply(se3.quat_inverse(q[..., :-1, :]), q[..., 1:, :])) / h
        ahead = T**2 * np.diff(v, axis=-2) / h + 2 * T * v[..., :-1, :]
        turn = T**2 * np.diff(w, axis=-2) / h + 2 * T * w[..., :-1, :]
        # The weld measures a rotation by the sine of half its angle, and its rate accordingly.
        tangent = np.linalg.norm(turn, axis=-1, keepdims=True) / 2
        angle = turn * np.where(tangent > 1e-9, np.arctan(tangent) / np.maximum(tangent, 1e-9), 1.0)
        u = x[..., 1:-1, :] + ahead
        r = se3.quat_multiply(q[..., 1:-1, :], se3.so3_exp(angle))
        return Following(
            poses[..., 1, :],
            np.concatenate([v[..., 0, :], w[..., 0, :]], axis=-1),
            {self.target: np.concatenate([u, r], axis=-1)},
        )


def guide(scene: Scene, body: str) -> Guided:
    """Lets a body follow measured paths; it then touches only what can move, like any mocap body.

    Args:
        scene: Any scene; it is not changed.
        body: A mocap body, a body without joints, or a free body, directly in the world.

    Raises:
        UnknownName: There is no such body.
        InputError: It is held or moved by something else.
    """
    names = [scene.model.body(b).name for b in range(1, scene.model.nbody)]
    if body not in names or not body:
        raise UnknownName("body", body, sorted(n for n in names if n))
    _require_guidable(scene.model, body)
    spec = scene.spec.copy()
    for key in list(spec.keys):  # keyframes do not fit the longer state
        spec.delete(key)
    tool, target = spec.body(body), f"{body}.target"
    place = scene.model.body(body)
    tool.mocap = False
    tool.gravcomp = 1.0
    if not tool.joints:
        tool.add_freejoint(name=f"{body}.free")
    if place.mass[0] == 0:  # what moves needs a mass
        tool.explicitinertial, tool.mass, tool.inertia = True, 1.0, [1e-3, 1e-3, 1e-3]
    joint = tool.joints[0]
    joint.armature, joint.damping, joint.frictionloss = _ARMATURE, [0.0, 0.0, 0.0], 0.0
    spec.worldbody.add_body(name=target, mocap=True, pos=place.pos, quat=place.quat)
    time_constant = 2 * spec.option.timestep  # the stiffest that MuJoCo lets a constraint be
    spec.add_equality(
        name=target, type=mujoco.mjtEq.mjEQ_WELD, objtype=mujoco.mjtObj.mjOBJ_BODY, name1=target, name2=body,
        data=[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0], solref=[time_constant, 1.0],
        solimp=[_IMPEDANCE, _IMPEDANCE, 0.001, 0.5, 2.0],
    )  # fmt: skip
    _part_from_standing(spec, scene.model, body)
    add_wrench_sensor(spec, body)
    try:
        model = spec.compile()
    except ValueError as error:
        raise InputError(f"the scene cannot be compiled with {body} guided: {error}") from error
    adr = int(model.body_jntadr[model.body(body).id])
    qpos, qvel = int(model.jnt_qposadr[adr]), int(model.jnt_dofadr[adr])
    # MuJoCo's solver stops at a share of the model's inertia, and the tool's would make it stop early.
    others = model.dof_M0.sum() - model.dof_M0[qvel : qvel + 6].sum()
    if others > 0:
        spec.option.tolerance = model.opt.tolerance = model.opt.tolerance * others / model.dof_M0.sum()
    guided = Scene(spec, model, _roles(scene, model, body))
    return Guided(guided, body, target, slice(qpos, qpos + 7), slice(qvel, qvel + 6), time_constant)


def _require_guidable(model: mujoco.MjModel, body: str) -> None:
    b = model.body(body).id
    if model.body_jntnum[b] and not is_free(model, b):
        raise InputError(f"{body} is moved by its joints: give their commands instead, or take the joints away")
    if model.body_parentid[b] != 0:
        raise InputError(f"{body} is part of {model.body(model.body_parentid[b]).name}: put it directly into the world")
    for e in range(model.neq):
        if model.eq_objtype[e] == mujoco.mjtObj.mjOBJ_BODY and b in (model.eq_obj1id[e], model.eq_obj2id[e]):
            raise InputError(f"{body} is held by the equality {model.eq(e).name or e}: take that away")
    if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        raise InputError(f"{body} cannot be guided with the integrator RK4: choose implicitfast")


def _part_from_standing(spec: mujoco.MjSpec, model: mujoco.MjModel, body: str) -> None:
    """Keeps the tool from touching what stands or is moved by hand: the path was measured, nothing is to be solved."""
    mine = _subtree(model, model.body(body).id)
    standing = [
        b
        for b in range(model.nbody)
        if b not in mine and model.body_geomnum[b]
        if model.body_weldid[b] == 0 or model.body_mocapid[model.body_weldid[b]] >= 0 or _is_guided(model, b)
    ]
    for b in {*standing, *mine}:  # an exclusion goes by name
        spec.bodies[b].name = spec.bodies[b].name or f"{body}.beside{b}"
    for a in standing:
        for b in mine:
            spec.add_exclude(bodyname1=spec.bodies[a].name, bodyname2=spec.bodies[b].name)
    for pair in list(spec.pairs):
        ends = {int(model.geom(name).bodyid[0]) for name in (pair.geomname1, pair.geomname2)}
        if ends & set(standing) and ends & set(mine):
            spec.delete(pair)


def _subtree(model: mujoco.MjModel, body: int) -> list[int]:
    found = [body]
    for b in range(body + 1, model.nbody):
        if model.body_parentid[b] in found:
            found.append(b)
    return found


def _is_guided(model: mujoco.MjModel, body: int) -> bool:
    name = f"{model.body(body).name}.target"
    return mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_EQUALITY, name) >= 0


def _roles(before: Scene, model: mujoco.MjModel, body: str) -> Roles:
    """Carries the roles over: the tool is no object, and its new joint may have come before others."""
    tool = model.body(body).id
    joints = np.bincount(model.body_rootid[model.jnt_bodyid], minlength=model.nbody)
    free = [b for b in range(1, model.nbody) if is_free(model, b) and joints[b] == 1 and not _is_guided(model, b)]
    roles = roles_of(model, things=[model.body(b).name for b in free if model.body(b).name])
    roles = {name: s for name, s in roles.items() if "." not in name or name in before.roles}
    if not free:
        roles.pop("object", None)
    if before.roles.get("object", Selection()).bodies not in ((), (tool,)):
        roles["object"] = before.roles["object"]
    added, first = model.njnt - before.model.njnt, int(model.body_jntadr[tool])
    for name in ("fingertip", "joint", "actuator"):  # what a robot's embodiment said
        if name in before.roles:
            s = before.roles[name]
            roles[name] = replace(s, joints=tuple(j + added * (j >= first) for j in s.joints))
    return roles
