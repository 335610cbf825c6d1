"""What a policy learns from: what was seen, and what was right to do then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from dexloop.core.errors import InputError
from dexloop.policy.contract import Terms
from dexloop.policy.fields import POSE
from dexloop.policy.normalisation import Normalisation, Scaling
from dexloop.policy.observation import require_finite, require_points, rows

Array = np.ndarray

_SHORT_M, _TURN, _LIGHT_N, _BELIEF, _BRIEF_S = 1e-3, 0.01, 0.1, 0.05, 0.05
"""Smallest scales: of places [m], columns of a rotation, forces [N], of what is believed, and of times [s]."""
_OF_RANGE = 0.01
"""Smallest scale of a joint, as a part of its range."""


@dataclass(frozen=True, eq=False)
class Examples:
    """N moments of some episodes, of one or several objects."""

    observation: Mapping[str, Float[Array, "n _"]]
    """By field, as `Observation.fields` gives them."""
    palm: Float[Array, "n 9"]
    """Where the palm should be next, in the frame of the object where it stood at the start, by `encode_pose`."""
    hand: Float[Array, "n h"]
    """Targets of the hand's joints [rad or m]."""
    force: Float[Array, "n f"]
    """Normal force with which each finger should push [N]."""
    phase: Int[Array, " n"]
    """To be in next."""
    episode: Int[Array, " n"]
    """Which one it is from; any numbers."""
    points: Float[Array, "k 128 3"]
    """On the surfaces of k objects, each in its own frame [m]."""
    shape: Int[Array, " n"]
    """Which of these objects it is."""

    def __len__(self) -> int:
        return len(self.episode)

    def and_those(self, other: Examples) -> Examples:
        """Returns these and other examples of the same objects; episodes of the others count on from the last."""
        assert np.array_equal(self.points, other.points)
        observation = {k: np.concatenate([v, other.observation[k]]) for k, v in self.observation.items()}
        joined = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("palm", "hand", "force", "phase", "shape")
        }
        episode = np.concatenate([self.episode, other.episode - other.episode.min() + self.episode.max() + 1])
        return Examples(observation, episode=episode, points=self.points, **joined)

    def require(self, terms: Terms) -> None:
        """Checks that these are examples for a policy with these terms.

        Raises:
            InputError: A size is another, a number is not finite, a force is below zero, an index points nowhere, or
                there is only one episode.
        """
        n = len(rows(terms, self.observation))
        sizes = {field.name: (n, field.size) for field in terms.action} | dict.fromkeys(
            ("phase", "episode", "shape"), (n,)
        )
        for name, shape in sizes.items():
            value = np.asarray(getattr(self, name))
            if value.shape != shape:
                raise InputError(f"{name!r} of the examples is {list(value.shape)}, and should be {list(shape)}")
            require_finite(f"{name!r} of the examples", value)
        require_points(self.points)
        if (self.force < 0).any():
            raise InputError("a force of the examples is below zero: fingers push, they do not pull")
        for name, count in (("phase", len(terms.phases)), ("shape", len(self.points))):
            value = getattr(self, name)
            if n and not (value.min() >= 0 and value.max() < count):
                raise InputError(f"{name!r} of the examples must be from 0 to {count - 1}")
        if len(np.unique(self.episode)) < 2:
            raise InputError("examples must be of two episodes at least, for one is kept back: add demonstrations")


def normalisation_of(examples: Examples, terms: Terms, use: Int[Array, " m"]) -> Normalisation:
    """Returns mean and spread of all fields over some of the examples.

    What hardly varies among them gets the smallest scale that still means something: a slip of a millimetre, seen for
    the first time, shall not look like a thousand.

    Args:
        examples: All.
        terms: What they are for.
        use: Those that are trained on.
    """
    joints = _OF_RANGE * np.ptp(np.array(terms.hand_limits), axis=1)
    pose = np.array([_SHORT_M] * 3 + [_TURN] * (POSE - 3))
    seen = {
        "palm": pose, "object": pose, "slip": _SHORT_M, "q": joints, "push": joints, "touch": _LIGHT_N,
        "belief": _BELIEF, "clock": _BRIEF_S,
    }  # fmt: skip
    done = {"palm": pose, "hand": joints, "force": _LIGHT_N}

    def scaling(value: Array, least: Array | float) -> Scaling:
        spread = np.maximum(value[use].std(axis=0), least)
        return Scaling(tuple(value[use].mean(axis=0).tolist()), tuple(spread.tolist()))

    # A choice among phases is 0 or 1 as it is.
    choice = Scaling((0.0,) * len(terms.phases), (1.0,) * len(terms.phases))
    return Normalisation(
        {name: scaling(examples.observation[name], least) for name, least in seen.items()} | {"phase": choice},
        {name: scaling(getattr(examples, name), least) for name, least in done.items()} | {"phase": choice},
    )
