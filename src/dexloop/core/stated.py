"""A belief that somebody states: what was weighed on scales, or guessed, instead of identified from recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dexloop.core.artifact import save_arrays, writing
from dexloop.core.artifacts import Belief
from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status

OF_SENSORS = ("clock.", "gain.", "bias.")
"""What names of unknowns begin with that are no parameters of object or robot, but of how they are measured."""


def state_belief(
    out: str | Path,
    values: Mapping[str, Sequence[float] | np.ndarray],
    *,
    why: str = "this was stated, and not found from recordings",
    replace: bool = False,
) -> Belief:
    """Writes down what is believed without having measured it here.

    Args:
        out: Where the belief shall be.
        values: By parameter, such as "object.mass", values that are all as likely, as many of each parameter: the first
            of each belong together, and so on. What is known of sensors ("clock.camera") may be among them.
        why: Where it comes from, in a sentence: the belief's status says it.
        replace: Put it in the place of one that is there.

    Raises:
        InputError: There are no values, too few, not as many of each, or some are not finite.
    """
    if not values:
        raise InputError("a belief needs values of one parameter at least")
    counts = {name: len(some) for name, some in values.items()}
    if len(set(counts.values())) > 1 or min(counts.values()) < 2:
        said = ", ".join(f"{n} of {name}" for name, n in counts.items())
        raise InputError(f"a belief needs as many values of each parameter, and two at least; there are {said}")
    samples = np.stack([np.asarray(some, dtype=np.float64) for some in values.values()], axis=1)
    if not np.isfinite(samples).all():
        raise InputError("a value of the belief is not a finite number")
    mean, sd, (low, high) = samples.mean(axis=0), samples.std(axis=0), np.quantile(samples, [0.025, 0.975], axis=0)
    with writing(out, Belief, replace=replace) as draft:
        covariance = np.atleast_2d(np.cov(samples.T))
        save_arrays(draft.folder / "posterior.npz", mean=mean, covariance=covariance, samples=samples)
        draft.meta |= {
            "labels": list(values),
            "parameters": {
                name: {"mean": float(mean[k]), "sd": float(sd[k]), "interval": [float(low[k]), float(high[k])]}
                for k, name in enumerate(values)
                if not name.startswith(OF_SENSORS)
            },
        }
        draft.status = Status(Level.WARN, "stated", why, "Identify the object.")
    return Belief.open(out)
