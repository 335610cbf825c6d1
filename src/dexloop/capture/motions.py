"""Turns plans into joint motions for whatever robot the rig has."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.capture.bench import Bench
from dexloop.capture.plans import FreeMotion, Lift, Press, Push
from dexloop.capture.postures import is_gripper, pinch_sites, pinches, poke, squeeze
from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.robots.collision import Collisions
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.embodiment import Embodiment, Fingertip
from dexloop.robots.kinematics import IkCfg, Kinematics, compiled, solve_ik
from dexloop.robots.planning import plan as plan_path
from dexloop.robots.trajectory import through

Array = np.ndarray
CLEARANCE_M = 0.035
"""Between fingertip and object where a push begins."""
ABOVE_M = 0.12
"""How far above a push or a grasp the hand comes in."""
PITCH_RAD = 0.75
"""How far the pushing finger points below the horizontal."""
SPACING_M = 0.004
"""Between solved points along a straight line."""
_GRASPS = 15
HASTE = 0.4
"""Fraction of the speed limits used while nothing is measured."""
PRESS_PITCH_RAD, PRESS_LEAN_RAD = 1.4, 0.3
"""How far the pressing finger points below the horizontal, so that the table pushes along it and bends it little; and
how far a gripper leans aside, so that one jaw alone comes down."""
HOVER_M, PRESS_ABOVE_M = 0.06, 0.004
"""Above the table: where a press is planned from, and how far the fingertip is above it between two presses."""
BESIDE_M = 0.06
"""Between fingertip and object where the table is pressed."""
STRENGTH = 0.8
"""Fraction of the motors' strength that a press may take: they also carry the finger."""
BACK_M = 0.005
"""How far what meets the table too early is lifted before it is let go of."""
STOP_M_S2 = 12.0
"""How hard the finger brakes when it lets the object coast: harder than friction does."""


@dataclass(frozen=True, eq=False)
class Motion:
    """Position targets for every control period, in three parts; only the middle one is recorded."""

    approach: Float[Array, "a n"]
    action: Float[Array, "b n"]
    retreat: Float[Array, "c n"]
    markers: dict[str, float] = field(default_factory=dict)
    """Named moments [s after the action begins]."""
    put_down: PutDown | None = None


@dataclass(frozen=True, eq=False)
class PutDown:
    """How an object is put down that has slipped, and so meets the table before it should, or fell already."""

    lowering: range
    """Rows of the action in which it is lowered."""
    opening: range
    """And those in which it is let go of."""
    back: int
    """So many rows it is lifted again before that."""
    arm: tuple[int, ...]
    """Columns that carry the hand."""
    retreat: Float[Array, "d n"]
    """The way home from where it was held up, with the hand open."""

    def let_go(self, action: Float[Array, "b n"], row: int) -> Float[Array, "m n"]:
        """Returns what follows where it meets the table at a row, or is missed: lift it a little, let go of it there,
        and go back up with the hand open. Further down it would be pressed onto the table."""
        arm, first = list(self.arm), self.lowering.start
        there = max(row - self.back, first)
        opening = action[self.opening.start : self.opening.stop].copy()
        opening[:, arm] = action[there, arm]
        up = np.tile(opening[-1], (there - first + 1, 1))
        up[:, arm] = action[first : there + 1, arm][::-1]
        return np.vstack([action[there : row + 1][::-1], opening, up])


def plan_motion(plan: FreeMotion | Press | Push | Lift, bench: Bench, rate_hz: float) -> Motion:
    """Plans a motion from the robot's home and back to it.

    Raises:
        InputError: The robot cannot do it here; the message says what is in the way.
    """
    if isinstance(plan, FreeMotion):
        motion = _free(plan, bench, rate_hz)
    elif isinstance(plan, Press):
        motion = _press(plan, bench, rate_hz)
    elif isinstance(plan, Push):
        motion = _push(plan, bench, rate_hz)
    else:
        motion = _lift(plan, bench, rate_hz)
    _check_speed(bench, motion.action, rate_hz)
    return motion


def _push(plan: Push, bench: Bench, rate_hz: float) -> Motion:
    robot = bench.robot
    box = bench.object_at()
    if not 0.01 <= plan.height_m <= box.height_m:
        raise InputError(f"a push at {plan.height_m} m misses the object: choose from 0.01 to {box.height_m:.3f} m")
    ahead = np.array([np.cos(plan.direction_rad), np.sin(plan.direction_rad), 0.0])
    left = np.array([-ahead[1], ahead[0], 0.0])
    middle = np.array([*box.centre[:2], plan.height_m]) + plan.offset_m * left
    begin = middle - (box.reach(ahead) + CLEARANCE_M) * ahead
    run_up = 0.2 * CLEARANCE_M
    length = CLEARANCE_M + plan.distance_m
    q = poke(robot)
    tip = robot.fingertips[0].site
    R = _palm_turn(robot, ahead)
    line = _line(bench, q, tip, R, begin, begin + length * ahead)
    above = _reach(bench, line[0], tip, R, begin + ABOVE_M * np.array([0, 0, 1.0]))
    s, released = _push_profile(plan, length, run_up, rate_hz)
    action = _along(line, s / length)
    up = _reach(bench, action[-1], tip, R, begin + s[-1] * ahead + ABOVE_M * np.array([0, 0, 1.0]))
    approach = _through(bench, [robot.home, above, line[0]], rate_hz, ignore_object=False)
    retreat = _through(bench, [action[-1], up, robot.home], rate_hz, ignore_object=True)
    first = int(np.argmax(s >= CLEARANCE_M - 0.012)) / rate_hz
    return Motion(approach, action, retreat, {"contact_expected": first, "release": released})


def _push_profile(plan: Push, length: float, run_up: float, rate_hz: float) -> tuple[Float[Array, " n"], float]:
    """Returns the fingertip's way along the line [m] in each control period, and when it begins to brake [s].

    It gets up to the speed of touch within the run-up, meets the object at that speed, speeds up evenly over half of
    the way that is left, and goes on at full speed until it brakes.
    """
    v = plan.speed_m_s
    touch = min(plan.touch_m_s, v)
    brake = min(STOP_M_S2 if plan.release else v * v / 0.02, 40.0)
    pushed = length - CLEARANCE_M
    spurt = 0.5 * pushed if v > touch else 0.0
    full = max(pushed - spurt - 0.5 * v * v / brake, 0.0)
    times = [0.0, 2 * run_up / touch, (CLEARANCE_M - run_up) / touch, 2 * spurt / (v + touch), full / v, v / brake]
    speeds = [0.0, touch, touch, v, v, 0.0]
    moments = np.cumsum(times)
    t = np.arange(0, round((moments[-1] + plan.settle_s) * rate_hz) + 1) / rate_hz
    ways = np.concatenate([[0.0], np.cumsum(0.5 * np.add(speeds[1:], speeds[:-1]) * times[1:])])
    k = np.clip(np.searchsorted(moments, t, side="right") - 1, 0, len(times) - 2)
    tau = np.minimum(t - moments[k], np.array(times)[k + 1])
    begin, end = np.array(speeds)[k], np.array(speeds)[k + 1]
    slope = (end - begin) / np.maximum(np.array(times)[k + 1], 1e-9)
    s = ways[k] + begin * tau + 0.5 * slope * tau**2
    if plan.release:
        # Pull back 20 mm over 0.3 s, so that nothing but the table touches the object while it coasts.
        s = s - 0.02 * _minimum_jerk(np.clip((t - moments[-1]) / 0.3, 0, 1))
    return s, float(moments[-2])


def _press(plan: Press, bench: Bench, rate_hz: float) -> Motion:
    """Goes down to the table where a push would come from, and on below it, so that the servos give way.

    It goes along the line on which they would yield to a force from below, which leads aside as well: a finger that
    was sent straight down would slide on the table, or jam where it is rough.
    """
    robot = bench.robot
    ahead = np.array([np.cos(plan.direction_rad), np.sin(plan.direction_rad), 0.0])
    up = np.array([0.0, 0.0, 1.0])
    box, tip, R = bench.object_at(), robot.fingertips[0], _palm_turn(robot, ahead, PRESS_PITCH_RAD, PRESS_LEAN_RAD)
    place = (box.centre - (box.reach(ahead) + BESIDE_M) * ahead) * [1.0, 1.0, 0.0]
    high = _reach(bench, poke(robot), tip.site, R, place + HOVER_M * up)
    touching = place + (HOVER_M - _gap(bench, high, tip)) * up
    give = _give(bench, _reach(bench, high, tip.site, R, touching), tip)
    above_m, below_m = PRESS_ABOVE_M, plan.force_n * float(give[2])
    slant = give / give[2]
    line = _line(bench, high, tip.site, R, touching + above_m * slant, touching - below_m * slant)
    _check_press(bench, plan.force_n, line)
    above = _reach(bench, line[0], tip.site, R, touching + above_m * slant + ABOVE_M * up)
    still = round(plan.settle_s * rate_hz)
    ease = _minimum_jerk(np.linspace(0.0, 1.0, round(plan.press_s * rate_hz) + 1))[1:]
    ways = [np.zeros(1 + still)]
    for k in range(plan.presses):
        down = (above_m + below_m * (k + 1) / plan.presses) * ease
        ways += [down, np.full(still, down[-1]), down[-2::-1], np.zeros(1 + still)]
    action = _along(line, np.concatenate(ways) / (above_m + below_m))
    approach = _through(bench, [robot.home, above, line[0]], rate_hz, ignore_object=False)
    retreat = _through(bench, [line[0], above, robot.home], rate_hz, ignore_object=False)
    return Motion(approach, action, retreat)


def _gap(bench: Bench, q: Float[Array, " n"], tip: Fingertip) -> float:
    """Returns how far a fingertip is above the table [m]."""
    model = bench.scene.model
    data = mujoco.MjData(model)
    data.qpos[qpos_addresses(model, bench.robot.joints)] = q
    mujoco.mj_kinematics(model, data)
    table = model.geom("table").id
    return min(mujoco.mj_geomDistance(model, data, model.geom(g).id, table, 1.0, None) for g in tip.geoms)


def _give(bench: Bench, q: Float[Array, " n"], tip: Fingertip) -> Float[Array, "3"]:
    """Returns how a fingertip gives way to a force from below, by the servos' softness: J K^-1 J^T up [m/N]."""
    robot, model = bench.robot, compiled(bench.robot)
    servos = [model.actuator(a).id for a in robot.actuators]
    stiffness = model.actuator_gainprm[servos, 0] * model.actuator_gear[servos, 0] ** 2
    J = bench.T_world_base[:3, :3] @ Kinematics(robot).jacobians(q, tip.site)[:3]
    return (J / stiffness) @ J[2]


def _check_press(bench: Bench, force_n: float, line: Float[Array, "m n"]) -> None:
    """Refuses a press that is too strong for a motor, or in which anything but the fingertip touches anything.

    Raises:
        InputError: It says what is in the way.
    """
    robot = bench.robot
    J = Kinematics(robot).jacobians(line[0], robot.fingertips[0].site)[:3]
    share = np.abs(bench.T_world_base[2, :3] @ J) * force_n / robot.effort_limits
    if share.max() > STRENGTH:
        raise InputError(
            f"{robot.name} cannot press with {force_n:g} N: the motor of {robot.joints[int(share.argmax())]} is too "
            f"weak; press with {force_n * STRENGTH / share.max():.1f} N"
        )
    collisions = Collisions(bench.scene.model, robot.joints, ignore=[(robot.fingertips[0].body, "table")])
    touches = next((found for q in line if (found := collisions.touches(q))), None)
    if touches:
        raise InputError(f"{robot.name} cannot press a fingertip onto the table here: it would run {touches[0]}")


def _lift(plan: Lift, bench: Bench, rate_hz: float) -> Motion:
    robot = bench.robot
    box = bench.object_at()
    axis, width = box.narrow_axis()
    width = width if plan.grip_width_m is None else plan.grip_width_m
    height = plan.grip_height_m or max(0.6 * box.height_m, box.height_m - 0.04)
    if height > box.height_m:
        raise InputError(f"a grip at {height} m is above the object, which is {box.height_m:.3f} m high")
    grip = np.array([*box.centre[:2], height])
    # Where the object is narrower than its box, the box is no guide to what the hand would touch.
    opened = _straddle(bench, grip, axis, width, ignore_object=plan.grip_width_m is not None)
    closed = squeeze(robot, opened, 0.5 * width - plan.squeeze_m)
    T_world_palm = bench.T_world_base @ Kinematics(robot).palm(opened)
    up = np.array([0.0, 0.0, 1.0])
    higher = _highest(bench, opened, T_world_palm, ABOVE_M + 0.3 * box.height_m)
    raised = _carry(bench, closed, T_world_palm, plan.height_m * up)
    close = _ease(opened, closed, 0.5, rate_hz)
    lift = _ease(closed, raised, max(plan.height_m / 0.1, 0.4), rate_hz)
    hold = np.repeat(raised[None], round(plan.hold_s * rate_hz), axis=0)
    wait = np.repeat(closed[None], round(0.3 * rate_hz), axis=0)
    lower = _ease(raised, closed, max(plan.height_m / 0.05, 0.4), rate_hz)
    action = np.vstack([close, wait, lift, hold, lower, wait, close[::-1]])
    ends = np.cumsum([len(close) + len(wait), len(lift), len(hold)]) / rate_hz
    approach = _through(bench, [robot.home, higher, opened], rate_hz, ignore_object=True)
    retreat = _through(bench, [opened, higher, robot.home], rate_hz, ignore_object=True)
    arm, begin = [robot.joints.index(j) for j in robot.arm_joints], len(close) + len(wait) + len(lift) + len(hold)
    released = opened.copy()
    released[arm] = raised[arm]
    home = _through(bench, [released, robot.home], rate_hz, ignore_object=True)
    put_down = PutDown(
        range(begin, begin + len(lower)), range(len(action) - len(close), len(action)),
        round(len(lower) * BACK_M / plan.height_m), tuple(arm), home,
    )  # fmt: skip
    return Motion(
        approach, action, retreat, dict(zip(("lift", "hold", "lower"), ends.tolist(), strict=True)), put_down
    )  # fmt: skip


def _straddle(
    bench: Bench, grip: Float[Array, "3"], axis: Float[Array, "3"], width: float, *, ignore_object: bool
) -> Float[Array, " n"]:
    """Solves for the hand above the object, thumb and fingers on either side of it, palm down as far as it can."""
    robot = bench.robot
    kinematics, collisions = Kinematics(robot), _collisions(bench, ignore_object=ignore_object)
    reason = "it finds no posture"
    for hand in itertools.islice(pinches(robot, width), _GRASPS):
        T_palm = se3.inverse(kinematics.palm(hand))
        a, b = (se3.transform(T_palm, kinematics.poses(hand, site)[:3, 3]) for site in pinch_sites(robot))
        across = (a - b) / np.linalg.norm(a - b)
        for lean, sign in itertools.product((0.0, 0.5, 1.0), (1.0, -1.0)):
            wanted = np.array([np.sin(lean), 0.0, -np.cos(lean)])  # the palm looks down, or leans away from the base
            R = _frame(sign * axis, wanted) @ _frame(across, np.array([0.0, 0.0, 1.0])).T
            T_world_palm = se3.from_rt(R, grip - R @ (0.5 * (a + b)))
            target = se3.inverse(bench.T_world_base) @ T_world_palm
            found = solve_ik(robot, {robot.palm: target}, hand, joints=robot.arm_joints, cfg=IkCfg(restarts=2))
            touches = collisions.touches(found.q)
            if found.converged and not touches:
                return found.q
            reason = f"it would run {touches[0]}" if found.converged else found.status.message
    raise InputError(f"{robot.name} cannot pinch the object from above: {reason}; push it instead")


def _frame(first: Float[Array, "3"], near: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Returns axes of which the first is given and the second is as near to `near` as it can be."""
    second = near - (near @ first) * first
    second = second / np.linalg.norm(second)
    return np.stack([first, second, np.cross(first, second)], axis=-1)


def _carry(bench: Bench, q: Array, T_world_palm: Array, by: Array) -> Array:
    """Solves for the palm moved by a vector, with the hand as it is."""
    robot = bench.robot
    target = se3.inverse(bench.T_world_base) @ se3.from_rt(np.eye(3), by) @ T_world_palm
    found = solve_ik(robot, {robot.palm: target}, q, joints=robot.arm_joints)
    if not found.converged:
        raise InputError(f"{robot.name} cannot carry the object there: {found.status.message}")
    return found.q


def _highest(bench: Bench, q: Array, T_world_palm: Array, height_m: float) -> Array:
    """Solves for the palm as far straight above as the arm reaches, from where it comes down."""
    for part in (1.0, 0.75, 0.5):
        try:
            return _carry(bench, q, T_world_palm, np.array([0.0, 0.0, part * height_m]))
        except InputError as error:
            reason = error
    raise reason


def _free(plan: FreeMotion, bench: Bench, rate_hz: float) -> Motion:
    """Three sines a joint, each joint at its own frequencies, as large as speed, limits and free space allow."""
    robot = bench.robot
    rng = np.random.default_rng([31, plan.variation])
    n = len(robot.joints)
    t = np.arange(round(plan.duration_s * rate_hz) + 1) / rate_hz
    frequencies = 0.3 + (np.arange(3)[None, :] + rng.permutation(n)[:, None] / n) * 0.5  # [n, 3] Hz
    wave = np.sin(2 * np.pi * frequencies * t[:, None, None] + rng.uniform(0, 2 * np.pi, (n, 3))).sum(axis=-1)
    fade = _minimum_jerk(np.clip(t / 0.8, 0, 1)) * _minimum_jerk(np.clip((t[-1] - t) / 0.8, 0, 1))
    wave = wave * fade[:, None]
    wave = wave / np.abs(wave).max(axis=0)
    lower, upper = robot.position_limits.T
    room = np.minimum(upper - robot.home, robot.home - lower) * 0.8
    speed = np.abs(np.gradient(wave, 1 / rate_hz, axis=0)).max(axis=0)
    reach = np.where(np.array(robot.units) == "m", 0.15, 0.6)
    amplitude = plan.amplitude * np.minimum(np.minimum(room, 0.6 * robot.speed_limits / speed), reach)
    collisions = _collisions(bench)
    for shrink in (1.0, 0.7, 0.5, 0.3, 0.15):
        q = robot.home + shrink * amplitude * wave
        if all(collisions.free(row) for row in q[::10]):
            return Motion(robot.home[None], q, robot.home[None])
    raise InputError(
        f"{robot.name} has no room to move around its home: {collisions.touches(robot.home + amplitude)[0]}"
    )


def _palm_turn(
    robot: Embodiment, ahead: Float[Array, "3"], pitch: float = PITCH_RAD, lean: float = 0.0
) -> Float[Array, "3 3"]:
    """Returns how the palm is turned when the first finger points ahead and down; a gripper leans to its first jaw."""
    down = np.array([0.0, 0.0, -1.0])
    pointing = np.cos(pitch) * ahead + np.sin(pitch) * down
    facing = -np.sin(pitch) * ahead + np.cos(pitch) * down
    # A hand's fingers are its palm's x axis; a gripper points along its palm's z axis.
    x, z = (facing, pointing) if is_gripper(robot) else (pointing, facing)
    if is_gripper(robot):
        x = np.cross(z, facing) / np.linalg.norm(np.cross(z, facing))  # jaws side by side
        x, z = np.cos(lean) * x - np.sin(lean) * z, np.cos(lean) * z + np.sin(lean) * x
    return np.stack([x, np.cross(z, x), z], axis=-1)


def _line(bench: Bench, q: Array, tip: str, R: Array, begin: Array, end: Array) -> Float[Array, "m n"]:
    """Solves for a fingertip along a straight line, palm turned as given."""
    points = np.linspace(begin, end, max(int(np.linalg.norm(end - begin) / SPACING_M), 2) + 1)
    solved = []
    for point in points:
        q = _reach(bench, q, tip, R, point, jump=None if not solved else 0.25)
        solved.append(q)
    return np.stack(solved)


def _reach(bench: Bench, q: Array, tip: str, R: Array, point: Array, *, jump: float | None = None) -> Array:
    """Solves for one fingertip at a world point with the hand as it is in q."""
    robot = bench.robot
    kinematics = Kinematics(robot)
    T_palm_tip = se3.inverse(kinematics.palm(q)) @ kinematics.poses(q, tip)
    T_world_palm = se3.from_rt(R, point - R @ T_palm_tip[:3, 3])
    found = solve_ik(robot, {robot.palm: se3.inverse(bench.T_world_base) @ T_world_palm}, q, joints=robot.arm_joints)
    if not found.converged:
        raise InputError(
            f"{robot.name} cannot bring its finger to {point.round(3).tolist()} m: {found.status.message}; "
            f"push in another direction or put the object elsewhere"
        )
    if jump is not None and np.abs(found.q - q).max() > jump:
        raise InputError(
            f"{robot.name} would have to change its elbow in the middle of the push: choose another direction"
        )
    return found.q


def _through(bench: Bench, stations: Sequence[Array], rate_hz: float, *, ignore_object: bool) -> Float[Array, "m n"]:
    """Moves through joint positions at ease: straight where that is free, otherwise round what is in the way."""
    robot = bench.robot
    collisions = _collisions(bench, ignore_object=ignore_object)
    pieces = []
    for a, b in itertools.pairwise(stations):
        piece = through(robot, np.stack([a, b]), speed=HASTE, rate_hz=rate_hz).q
        if not all(collisions.free(row) for row in piece[::10]):
            found = plan_path(robot, a, b, scene=bench.scene.model, ignore=_ignored(bench, ignore_object))
            if found.path is None:
                raise InputError(f"{robot.name} finds no way there: {found.status.message}; {found.status.action}")
            piece = through(robot, found.path, speed=HASTE, rate_hz=rate_hz).q
        pieces.append(piece)
    return np.vstack(pieces)


def _collisions(bench: Bench, *, ignore_object: bool = False) -> Collisions:
    return Collisions(bench.scene.model, bench.robot.joints, ignore=_ignored(bench, ignore_object))


def _ignored(bench: Bench, ignore_object: bool) -> list[tuple[str, str]]:
    model = bench.scene.model
    return [(model.body(b).name, "object") for b in range(1, model.nbody)] if ignore_object else []


def _along(line: Float[Array, "m n"], s: Float[Array, " k"]) -> Float[Array, "k n"]:
    """Interpolates solved points at fractions s of the line."""
    x = np.clip(s, 0.0, 1.0) * (len(line) - 1)
    i = np.minimum(x.astype(int), len(line) - 2)
    return line[i] + (x - i)[:, None] * (line[i + 1] - line[i])


def _ease(a: Array, b: Array, duration_s: float, rate_hz: float) -> Float[Array, "m n"]:
    s = _minimum_jerk(np.linspace(0.0, 1.0, max(round(duration_s * rate_hz), 1) + 1))
    return a + s[:, None] * (b - a)


def _minimum_jerk(x: Array) -> Array:
    return x**3 * (10.0 - 15.0 * x + 6.0 * x * x)


def _check_speed(bench: Bench, q: Array, rate_hz: float) -> None:
    if len(q) < 2:
        return
    speed = np.abs(np.diff(q, axis=0)).max(axis=0) * rate_hz
    over = np.flatnonzero(speed > bench.robot.speed_limits * 1.02)
    if len(over):
        k = int(over[0])
        raise InputError(
            f"the motion needs {speed[k]:.2f} {bench.robot.units[k]}/s of joint {bench.robot.joints[k]}, whose limit "
            f"is {bench.robot.speed_limits[k]:.2f}: choose a slower one"
        )
