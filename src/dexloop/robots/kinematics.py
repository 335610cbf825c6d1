"""Forward and inverse kinematics. Inverse kinematics is a sequence of small quadratic programs (mink) with restarts."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.robots.collision import Collisions, robot_bodies
from dexloop.robots.describe import dof_addresses, qpos_addresses
from dexloop.robots.embodiment import Embodiment


@functools.lru_cache(maxsize=16)
def compiled(embodiment: Embodiment) -> mujoco.MjModel:
    """Returns the robot's own model, compiled once. It is shared: read it, do not change it."""
    return embodiment.make_spec().compile()


class Kinematics:
    """Poses and Jacobians of a robot's sites, for one pose or a batch.

    Args:
        embodiment: The robot.
        model: A scene that holds it (names unchanged); the robot alone by default.
    """

    def __init__(self, embodiment: Embodiment, model: mujoco.MjModel | None = None):
        self.embodiment = embodiment
        self.model = model if model is not None else compiled(embodiment)
        self.data = mujoco.MjData(self.model)
        self._q = qpos_addresses(self.model, embodiment.joints)
        self._v = dof_addresses(self.model, embodiment.joints)

    def poses(self, q: Float[np.ndarray, "*b n"], site: str) -> Float[np.ndarray, "*b 4 4"]:
        """Returns T_world_site at joint values `q` [rad or m]."""
        at = self.site_id(site)
        flat = self._flat(q)
        T = np.zeros((len(flat), 4, 4))
        T[:, 3, 3] = 1.0
        for k, row in enumerate(flat):
            self.data.qpos[self._q] = row
            mujoco.mj_kinematics(self.model, self.data)
            T[k, :3, :3] = self.data.site_xmat[at].reshape(3, 3)
            T[k, :3, 3] = self.data.site_xpos[at]
        return T.reshape(*np.shape(q)[:-1], 4, 4)

    def jacobians(self, q: Float[np.ndarray, "*b n"], site: str) -> Float[np.ndarray, "*b 6 n"]:
        """Returns the Jacobian of a site at joint values `q`: its velocity [m/s], then angular velocity [rad/s], in
        world axes, by joint speed."""
        at = self.site_id(site)
        flat = self._flat(q)
        J = np.zeros((len(flat), 6, len(self._v)))
        full = np.zeros((6, self.model.nv))
        for k, row in enumerate(flat):
            self.data.qpos[self._q] = row
            mujoco.mj_kinematics(self.model, self.data)
            mujoco.mj_comPos(self.model, self.data)
            mujoco.mj_jacSite(self.model, self.data, full[:3], full[3:], at)
            J[k] = full[:, self._v]
        return J.reshape(*np.shape(q)[:-1], 6, len(self._v))

    def palm(self, q: Float[np.ndarray, "*b n"]) -> Float[np.ndarray, "*b 4 4"]:
        """Returns T_world_palm."""
        return self.poses(q, self.embodiment.palm)

    def fingertips(self, q: Float[np.ndarray, "*b n"]) -> Float[np.ndarray, "*b f 4 4"]:
        """Returns T_world_fingertip of every finger, in the embodiment's order."""
        return np.stack([self.poses(q, tip.site) for tip in self.embodiment.fingertips], axis=-3)

    def site_id(self, name: str) -> int:
        """Returns a site's number in the model."""
        at = mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_SITE, name)
        if at < 0:
            raise UnknownName("site", name, [self.model.site(s).name for s in range(self.model.nsite)])
        return at

    def _flat(self, q: Float[np.ndarray, "*b n"]) -> Float[np.ndarray, "m n"]:
        q = np.asarray(q, dtype=np.float64)
        if q.shape[-1] != len(self._q):
            raise InputError(f"{self.embodiment.name} has {len(self._q)} joints, not {q.shape[-1]}")
        return q.reshape(-1, q.shape[-1])


@dataclass(frozen=True)
class IkCfg:
    """How inverse kinematics is solved."""

    position_tolerance_m: float = 1e-4
    rotation_tolerance_rad: float = 1e-3
    max_iterations: int = 150
    """Per start."""
    restarts: int = 16
    """Further starts, the robot's home first and random poses after, where the first one fails."""
    seed: int = 0
    rotation_weight_m: float = 0.1
    """How many metres a radian counts for."""
    posture_cost: float = 1e-3
    """Pull towards the start, for joints that the targets leave free."""
    damping: float = 1e-2
    """Levenberg-Marquardt damping, in proportion to the squared error: keeps steps small near singular poses."""
    max_step: float = 0.3
    """Largest joint motion in one iteration [rad]; a quarter of it for slides [m]."""
    margin_m: float = 0.002
    """Least distance to keep where collisions are avoided."""


@dataclass(frozen=True, eq=False)
class IkResult:
    """The best pose that was found."""

    q: Float[np.ndarray, " n"]
    """[rad or m], inside the joint limits."""
    converged: bool
    position_error_m: float
    """Largest over the targets."""
    rotation_error_rad: float
    """Largest over the targets; 0 where none asks for a rotation."""
    status: Status


def solve_ik(
    embodiment: Embodiment,
    targets: Mapping[str, Float[np.ndarray, "..."]],
    q0: Float[np.ndarray, " n"] | None = None,
    *,
    joints: Sequence[str] | None = None,
    scene: mujoco.MjModel | None = None,
    qpos: Float[np.ndarray, " nq"] | None = None,
    avoid_collisions: bool = False,
    cfg: IkCfg = IkCfg(),  # noqa: B008 - frozen
) -> IkResult:
    """Finds joint values that put sites where they should be.

    Args:
        embodiment: The robot.
        targets: By site: T_world_site [4x4], or only a position [3] in metres.
        q0: Where to start; the robot's home by default. The answer stays close to it where the targets leave freedom.
        joints: The joints that may move; all by default. The others keep their value in `q0`.
        scene: A compiled scene that holds the robot, for collisions with what stands around it.
        qpos: Where the scene's other things are; its reference pose by default.
        avoid_collisions: Keep the robot `cfg.margin_m` away from itself and from the scene.
        cfg: Tolerances and effort.

    Returns:
        The pose, its remaining errors, and a status: `ik_converged`, `ik_unreachable` (with what is left) or
        `ik_collision`. The errors are measured on the pose that is returned.
    """
    solver = _Solver(embodiment, targets, joints, scene, qpos, avoid_collisions, cfg)
    start = embodiment.home if q0 is None else np.asarray(q0, dtype=np.float64)
    if start.shape != embodiment.home.shape:
        raise InputError(f"q0 has {start.size} values, but {embodiment.name} has {len(embodiment.joints)} joints")
    best: tuple[float, np.ndarray] | None = None
    tried = 0
    for seed in solver.seeds(start):
        tried += 1
        q = solver.descend(seed, start)
        score = solver.score(q)
        if best is None or score < best[0]:
            best = (score, q)
        if score <= 1.0:
            break
    assert best is not None
    return solver.result(best[1], tried)


class _Solver:
    """One problem: the tasks, the limits and the model they speak of."""

    def __init__(
        self,
        embodiment: Embodiment,
        targets: Mapping[str, np.ndarray],
        joints: Sequence[str] | None,
        scene: mujoco.MjModel | None,
        qpos: np.ndarray | None,
        avoid_collisions: bool,
        cfg: IkCfg,
    ):
        import mink

        if not targets:
            raise InputError("inverse kinematics needs at least one target: give {site: pose}")
        self.kinematics = Kinematics(embodiment, scene)
        self.cfg, self.embodiment = cfg, embodiment
        model = self.model = self.kinematics.model
        self.q_address = qpos_addresses(model, embodiment.joints)
        moving = embodiment.joints if joints is None else tuple(joints)
        for joint in moving:
            if joint not in embodiment.joints:
                raise UnknownName("joint", joint, embodiment.joints)
        self.moving = np.array([j in moving for j in embodiment.joints])
        self.targets = {site: _target(site, T) for site, T in targets.items()}
        self.tasks: list[Any] = []
        for site, (T, turned) in self.targets.items():
            self.kinematics.site_id(site)
            task = mink.FrameTask(
                site, "site", 1.0, cfg.rotation_weight_m if turned else 0.0, gain=1.0, lm_damping=cfg.damping
            )
            task.set_target(mink.SE3.from_matrix(T))
            self.tasks.append(task)
        self.posture = mink.PostureTask(model, cost=cfg.posture_cost)
        self.configuration = mink.Configuration(model, qpos)
        self.base = self.configuration.q
        speeds = np.where([u == "m" for u in embodiment.units], 0.25 * cfg.max_step, cfg.max_step)
        velocities = {j: float(s) for j, s in zip(embodiment.joints, speeds, strict=True)}
        self.limits: list[Any] = [mink.ConfigurationLimit(model, gain=0.95), mink.VelocityLimit(model, velocities)]
        self.collisions: Collisions | None = None
        if avoid_collisions:
            self.collisions = Collisions(model, embodiment.joints, qpos=qpos)
            pairs = [([a], [b]) for a, b in _pairs(model, embodiment.joints)]
            self.limits.append(
                mink.CollisionAvoidanceLimit(
                    model, pairs, gain=0.85, minimum_distance_from_collisions=cfg.margin_m,
                    collision_detection_distance=0.03 + cfg.margin_m,
                )
            )  # fmt: skip
        held = np.ones(model.nv, dtype=bool)
        held[dof_addresses(model, [j for j, m in zip(embodiment.joints, self.moving, strict=True) if m])] = False
        self.constraints: list[Any] = []
        if held.any():
            self.constraints.append(mink.DofFreezingTask(model, np.flatnonzero(held).tolist()))
        if model.neq and not held.any():
            self.tasks.append(mink.EqualityConstraintTask(model, cost=1.0))
        self._mink = mink

    def seeds(self, start: np.ndarray) -> Iterator[np.ndarray]:
        """Yields starts: the given one, home, then random ones; free of collisions where those matter."""
        e, rng = self.embodiment, np.random.default_rng(self.cfg.seed)
        low, high = np.clip(e.position_limits, -np.pi, np.pi).T
        first = np.clip(start, *e.position_limits.T)
        yield first
        found, tries = 0, 0
        while found < self.cfg.restarts and tries < 50 * self.cfg.restarts:
            random = e.home if tries == 0 else rng.uniform(low, high)
            tries += 1
            q = np.where(self.moving, random, first)
            if self.collisions is None or self.collisions.free(q):
                found += 1
                yield q

    def descend(self, seed: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """Walks from a start until the targets are met or nothing gets better."""
        cfg, mink = self.cfg, self._mink
        full = self.base.copy()
        full[self.q_address] = np.clip(rest, *self.embodiment.position_limits.T)
        self.posture.set_target(full)
        full[self.q_address] = seed
        self.configuration.update(full)
        best, best_score, stale = seed, self.score(seed), 0
        for _ in range(cfg.max_iterations):
            if best_score <= 1.0 or stale > 15:
                break
            # Close to the goal the pull towards the start would only stand in the way.
            tasks = [*self.tasks, self.posture] if best_score > 20.0 else self.tasks
            try:
                v = mink.solve_ik(
                    self.configuration, tasks, 1.0, "daqp", damping=1e-9, limits=self.limits,
                    constraints=self.constraints or None,
                )  # fmt: skip
            except mink.NoSolutionFound:
                break
            self.configuration.integrate_inplace(v, 1.0)
            q = np.clip(self.configuration.q[self.q_address], *self.embodiment.position_limits.T)
            score = self.score(q)
            stale = 0 if score < 0.98 * best_score else stale + 1
            if score < best_score:
                best, best_score = q, score
        return best

    def errors(self, q: np.ndarray) -> dict[str, tuple[float, float]]:
        """Returns the position [m] and rotation error [rad] of every target."""
        found = {}
        for site, (T, turned) in self.targets.items():
            here = self.kinematics.poses(q, site)
            turn = here[:3, :3].T @ T[:3, :3]
            angle = float(np.linalg.norm(se3.so3_log(se3.quat_from_matrix(turn)))) if turned else 0.0
            found[site] = (float(np.linalg.norm(here[:3, 3] - T[:3, 3])), angle)
        return found

    def score(self, q: np.ndarray) -> float:
        """Returns the largest error in units of its tolerance; a pose in collision never counts as solved."""
        worst = max(
            max(p / self.cfg.position_tolerance_m, r / self.cfg.rotation_tolerance_rad)
            for p, r in self.errors(q).values()
        )
        if worst <= 1.0 and self.collisions is not None and not self.collisions.free(q):
            return 1.0 + 1e6
        return worst

    def result(self, q: np.ndarray, tried: int) -> IkResult:
        errors = self.errors(q)
        position = max(p for p, _ in errors.values())
        rotation = max(r for _, r in errors.values())
        converged = self.score(q) <= 1.0
        if converged:
            status = Status(Level.OK, "ik_converged", f"all {len(errors)} targets met ({1e3 * position:.2f} mm)")
        elif self.collisions is not None and (touches := self.collisions.touches(q)):
            status = Status(
                Level.FAIL, "ik_collision", f"the best pose collides: {touches[0]}",
                "Move the target away from what is in the way, or start from another pose.",
            )  # fmt: skip
        else:
            site = max(errors, key=lambda s: errors[s][0] + self.cfg.rotation_weight_m * errors[s][1])
            p, r = errors[site]
            status = Status(
                Level.FAIL,
                "ik_unreachable",
                f"{site} stays {1e3 * p:.1f} mm and {np.degrees(r):.1f}° from its target after {tried} starts",
                "Move the target into reach, ask for fewer targets, or give positions without rotations.",
            )
        return IkResult(q, converged, position, rotation, status)


def _target(site: str, target: np.ndarray) -> tuple[np.ndarray, bool]:
    T = np.asarray(target, dtype=np.float64)
    if T.shape == (3,):
        return se3.from_rt(np.eye(3), T), False
    if T.shape == (4, 4) and np.isfinite(T).all() and np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-6):
        return T, True
    raise InputError(f"the target of {site!r} must be a 4x4 pose with a proper rotation, or a position of 3 numbers")


def _pairs(model: mujoco.MjModel, joints: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the pairs of geoms that MuJoCo would let touch and that the robot takes part in."""
    mine = robot_bodies(model, joints)
    excluded = {(int(s) >> 16, int(s) & 0xFFFF) for s in model.exclude_signature}
    geoms = [g for g in range(model.ngeom) if model.geom_contype[g] or model.geom_conaffinity[g]]
    pairs = []
    for k, a in enumerate(geoms):
        for b in geoms[k + 1 :]:
            bodies = int(model.geom_bodyid[a]), int(model.geom_bodyid[b])
            if not (mine[bodies[0]] or mine[bodies[1]]):
                continue
            if (min(bodies), max(bodies)) in excluded or (max(bodies), min(bodies)) in excluded:
                continue
            pairs.append((a, b))
    return pairs
