"""Hand postures for measuring, found for any hand by looking at where its fingers can go."""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.collision import Collisions
from dexloop.robots.embodiment import Embodiment, Fingertip
from dexloop.robots.kinematics import Kinematics, compiled, solve_ik

_TRIES = 400
_PAIRS = 4000


def is_gripper(robot: Embodiment) -> bool:
    """Whether the hand is a pair of sliding jaws."""
    units = dict(zip(robot.joints, robot.units, strict=True))
    return all(units[j] == "m" for j in robot.hand_joints)


def finger_joints(robot: Embodiment) -> dict[str, tuple[int, ...]]:
    """Returns, for each fingertip, the positions in `robot.joints` of the hand joints that move it."""
    jacobians = Kinematics(robot)
    found = {}
    for tip in robot.fingertips:
        J = jacobians.jacobians(robot.home, tip.site)
        moves = np.abs(J).max(axis=0) > 1e-9
        found[tip.name] = tuple(k for k, j in enumerate(robot.joints) if moves[k] and j in robot.hand_joints)
    return found


def poke(robot: Embodiment) -> Float[np.ndarray, " n"]:
    """Returns the robot's home with the first finger stretched out and the others drawn in; closed jaws for a gripper.

    Raises:
        InputError: No such posture is free of collisions.
    """
    q = robot.home.copy()
    lower, upper = robot.position_limits.T
    hand = [k for k, j in enumerate(robot.joints) if j in robot.hand_joints]
    if is_gripper(robot):
        return _closed(robot, q, hand)
    fingers = finger_joints(robot)
    first = robot.fingertips[0]
    rng = np.random.default_rng(0)
    q = _best(robot, q, fingers[first.name], lambda reach: -reach[-1, 0] + abs(reach[-1, 1] - reach[0, 1]), rng)
    for tip in robot.fingertips[1:]:
        # Drawn in: nothing of the finger far ahead (x) or far out of the palm (z).
        q = _best(robot, q, fingers[tip.name], lambda reach: float((reach[:, 0] + reach[:, 2]).max()), rng)
    if touches := Collisions(compiled(robot), robot.joints).touches(q):
        raise InputError(f"{robot.name} found no posture for poking: {touches[0]}")
    return np.clip(q, lower, upper)


def _best(robot: Embodiment, q: np.ndarray, joints: tuple[int, ...], cost, rng: np.random.Generator) -> np.ndarray:
    """Tries postures of one finger and keeps the best that touches nothing."""
    model = compiled(robot)
    collisions = Collisions(model, robot.joints)
    data = mujoco.MjData(model)
    address = [int(model.joint(j).qposadr[0]) for j in robot.joints]
    bodies = [int(model.jnt_bodyid[model.joint(robot.joints[k]).id]) for k in joints]
    palm = model.site(robot.palm).id
    lower, upper = robot.position_limits[list(joints)].T
    tries = [q[list(joints)], np.clip(np.zeros(len(joints)), lower, upper), lower, upper]
    tries += list(rng.uniform(lower, upper, (_TRIES, len(joints))))
    scored = []
    for values in tries:
        trial = q.copy()
        trial[list(joints)] = values
        data.qpos[address] = trial
        mujoco.mj_kinematics(model, data)
        T_palm = se3.inverse(se3.from_rt(data.site_xmat[palm].reshape(3, 3), data.site_xpos[palm]))
        ends = np.stack([data.xipos[b] for b in bodies])
        scored.append((float(cost(se3.transform(T_palm, ends))), trial))
    for _, trial in sorted(scored, key=lambda pair: pair[0]):
        if collisions.free(trial):
            return trial
    return q


def _closed(robot: Embodiment, q: np.ndarray, hand: list[int]) -> np.ndarray:
    """Returns the jaws closed but for a hundredth of their way, so that they do not touch."""
    jacobians = Kinematics(robot)
    ends = []
    for bound in robot.position_limits.T:
        trial = q.copy()
        trial[hand] = bound[hand]
        tips = jacobians.fingertips(trial)[:, :3, 3]
        ends.append((float(np.linalg.norm(tips[0] - tips[-1])), trial))
    (_, closed), (_, opened) = sorted(ends, key=lambda pair: pair[0])
    return closed + 0.01 * (opened - closed)


def pinch_sites(robot: Embodiment) -> tuple[str, str]:
    """Returns the sites of the fingertips that pinch: a middle finger (or a jaw) and the thumb (or the other jaw)."""
    finger, thumb = _pinching(robot)
    return finger.site, thumb.site


def _pinching(robot: Embodiment) -> tuple[Fingertip, Fingertip]:
    tips = robot.fingertips
    return tips[min(1, len(tips) - 2)], tips[len(tips) - 1]


def pinches(robot: Embodiment, width_m: float) -> Iterator[Float[np.ndarray, " n"]]:
    """Yields the robot's home with fingers and thumb opened a little wider than an object, pads facing each other.

    The best comes first, and each is unlike the ones before.

    Raises:
        InputError: They do not open that wide.
    """
    names = [tip.name for tip in _pinching(robot)]
    fingers = finger_joints(robot)
    rng = np.random.default_rng(1)
    (qa, pa, na), (qb, pb, nb) = (_sampled(robot, name, fingers[name], rng) for name in names)
    gap = pa[:, None] - pb[None]
    distance = np.linalg.norm(gap, axis=-1)
    axis = gap / np.maximum(distance, 1e-9)[..., None]
    facing = np.einsum("ijk,jk->ij", axis, nb) - np.einsum("ijk,ik->ij", axis, na)
    # Pads that face each other, level with the palm, and far enough out of it that it stays clear of the object.
    reach = np.minimum(pa[:, None, 2], pb[None, :, 2])
    score = 2.0 * facing - 2.0 * axis[..., 2] ** 2 + 15.0 * reach
    score[(distance < width_m + 0.008) | (distance > width_m + 0.035)] = -np.inf
    if not np.isfinite(score).any():
        raise InputError(
            f"{robot.name} does not open wide enough for {1e3 * width_m:.0f} mm: it reaches "
            f"{1e3 * distance.max():.0f} mm; push the object instead, or turn its narrow side to the robot"
        )
    collisions = Collisions(compiled(robot), robot.joints)
    used: list[np.ndarray] = []
    for flat in np.argsort(score, axis=None)[::-1][:_PAIRS]:
        i, j = np.unravel_index(flat, score.shape)
        tips = np.concatenate([pa[i], pb[j]])
        if not np.isfinite(score[i, j]) or any(np.abs(tips - other).max() < 0.012 for other in used):
            continue
        q = robot.home.copy()
        q[list(fingers[names[1]])] = qb[j]
        q = _together(robot, q, qa[i])
        used.append(tips)
        if collisions.free(q):
            yield q


def _together(robot: Embodiment, q: np.ndarray, finger: np.ndarray) -> np.ndarray:
    """Bends the pinching finger, and its neighbours along with it where they are built alike."""
    q = q.copy()
    for name, joints in list(finger_joints(robot).items())[:-1]:
        if len(joints) == len(finger) and name != robot.fingertips[-1].name:
            q[list(joints)] = finger
    return np.clip(q, *robot.position_limits.T)


def squeeze(robot: Embodiment, opened: Float[np.ndarray, " n"], half_m: float) -> Float[np.ndarray, " n"]:
    """Moves the pinching fingertips towards the point between them, to `half_m` from it or as near as they get."""
    kinematics = Kinematics(robot)
    sites = pinch_sites(robot)
    a, b = (kinematics.poses(opened, site)[:3, 3] for site in sites)
    middle, across = 0.5 * (a + b), (a - b) / np.linalg.norm(a - b)
    best = opened
    for half in np.linspace(0.5 * float(np.linalg.norm(a - b)), max(half_m, 0.0), 6)[1:]:
        targets = {sites[0]: middle + half * across, sites[1]: middle - half * across}
        found = solve_ik(robot, targets, best, joints=robot.hand_joints)
        if found.position_error_m > 0.01:
            break
        best = found.q
    if len(robot.fingertips) < 3:
        return best
    return _together(robot, best, best[list(finger_joints(robot)[robot.fingertips[1].name])])


def _sampled(
    robot: Embodiment, name: str, joints: tuple[int, ...], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns random postures of a finger [m, k], its tip [m, 3] and its pad's normal [m, 3] in the palm's frame."""
    lower, upper = robot.position_limits[list(joints)].T
    values = rng.uniform(lower, upper, (900, len(joints)))
    q = np.tile(robot.home, (len(values), 1))
    q[:, list(joints)] = values
    kinematics = Kinematics(robot)
    site = next(tip.site for tip in robot.fingertips if tip.name == name)
    T = se3.inverse(kinematics.palm(q)) @ kinematics.poses(q, site)
    return values, T[:, :3, 3], T[:, :3, 2]
