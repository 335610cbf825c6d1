"""Examples out of demonstrations: what was seen at each moment, and what was done at the next."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.policy.contract import Terms
from dexloop.policy.fields import PHASES
from dexloop.policy.observation import Past, encode_loads, encode_pose, observe
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics
from dexloop.robots.pickup import Load
from dexloop.train.examples import Examples

_LIFT = PHASES.index("lift")
_NEEDED = (
    "episode", "t", "phase", "position", "command", "touch", "force", "object", "palm", "start", "mass_kg",
    "mass_high_kg", "friction",
)  # fmt: skip


def examples_of(
    demos: dict[str, np.ndarray],
    robot: Embodiment,
    terms: Terms,
    T_world_base: Float[np.ndarray, "4 4"],
    points: Float[np.ndarray, "128 3"],
) -> Examples:
    """Returns examples of all episodes.

    Args:
        demos: As the stage `demonstrate` stores them.
        robot: Of the demonstrations.
        terms: What the policy is for.
        T_world_base: Where the robot stood.
        points: On the object's surface [m].

    Raises:
        InputError: Something is missing.
    """
    missing = [name for name in _NEEDED if name not in demos]
    if missing:
        raise InputError(f"the demonstrations lack {', '.join(missing)}: demonstrate again, with --replace")
    episode = demos["episode"].astype(int)
    now = np.flatnonzero(episode[1:] == episode[:-1])
    after = now + 1
    own = episode[now]
    told = zip(demos["mass_kg"], demos["mass_high_kg"], demos["friction"], strict=True)
    belief = encode_loads([Load(float(m), float(high), float(mu)) for m, high, mu in told])[own]
    palm, thing = se3.from_pose(demos["palm"]), se3.from_pose(demos["object"])
    seen = observe(
        terms, _past(demos, episode, palm, thing, now), t_s=demos["t"][now], q=demos["position"][now],
        command=demos["command"][now], touch=demos["touch"][now], T_world_palm=palm[now], T_world_object=thing[now],
        belief=belief, points=points,
    )  # fmt: skip
    told = np.asarray(T_world_base) @ Kinematics(robot).palm(demos["command"][after])
    hand = [robot.joints.index(j) for j in robot.hand_joints]
    return Examples(
        seen.fields(),
        encode_pose(se3.inverse(se3.from_pose(demos["start"]))[own] @ told),
        demos["command"][after][:, hand],
        demos["force"][after],
        demos["phase"][after].astype(int),
        own,
        points[None],
        np.zeros(len(now), dtype=int),
    )


def _past(
    demos: dict[str, np.ndarray], episode: np.ndarray, palm: np.ndarray, thing: np.ndarray, now: np.ndarray
) -> Past:
    """Writes down since when which phase goes on, and where the object was in the palm when the lift began."""
    phase, t = demos["phase"].astype(int), demos["t"]
    new = np.r_[True, (phase[1:] != phase[:-1]) | (episode[1:] != episode[:-1])]
    # A phase begins when it is chosen, which is at the moment before its first one.
    chosen = np.arange(len(t)) - np.r_[False, episode[1:] == episode[:-1]]
    since = t[np.maximum.accumulate(np.where(new, chosen, 0))]
    place = se3.transform(se3.inverse(palm), thing[:, :3, 3])
    begins = np.flatnonzero((phase == _LIFT) & new)
    lifted = np.full((int(episode.max()) + 1, 3), np.nan)
    lifted[episode[begins]] = place[chosen[begins]]
    before = np.where((phase < _LIFT)[:, None], np.nan, lifted[episode])
    return Past(se3.from_pose(demos["start"])[episode][now], phase[now], since[now], before[now])
