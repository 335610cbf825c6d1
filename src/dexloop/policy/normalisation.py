"""Mean and scale of each field: what turns its numbers into such of size one, which is all that a network sees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError
from dexloop.policy.fields import Field


@dataclass(frozen=True)
class Scaling:
    """Of one field: `(x - mean) / scale` is what the network sees."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    """Above zero."""


@dataclass(frozen=True)
class Normalisation:
    """Of all fields, by name."""

    observation: Mapping[str, Scaling]
    action: Mapping[str, Scaling]

    def require(self, observation: Sequence[Field], action: Sequence[Field]) -> None:
        """Checks that every field has its numbers, all of which can be used.

        Raises:
            InputError: A field has none, a name belongs to no field, a size is another, a number is not finite, or a
                scale is not above zero.
        """
        for kind, fields, found in (("observation", observation, self.observation), ("action", action, self.action)):
            for name in found.keys() - {field.name for field in fields}:
                raise InputError(f"the normalisation of {kind} {name!r} belongs to no field: train the policy again")
            for field in fields:
                where = f"the normalisation of {kind} {field.name!r}"
                if field.name not in found:
                    raise InputError(f"{where} is missing: train the policy again")
                scaling = found[field.name]
                if not len(scaling.mean) == len(scaling.scale) == field.size:
                    raise InputError(f"{where} is not of size {field.size}: train the policy again")
                if not all(map(math.isfinite, (*scaling.mean, *scaling.scale))):
                    raise InputError(f"{where} holds a number that is not finite: train the policy again")
                if min(scaling.scale) <= 0:
                    raise InputError(f"{where} has a scale that is not above zero: train the policy again")

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {
            kind: {name: {"mean": list(s.mean), "scale": list(s.scale)} for name, s in scalings.items()}
            for kind, scalings in (("observation", self.observation), ("action", self.action))
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Normalisation:
        """Reads what `to_json` wrote."""

        def read(scalings: Mapping[str, Any]) -> dict[str, Scaling]:
            return {
                name: Scaling(tuple(map(float, s["mean"])), tuple(map(float, s["scale"])))
                for name, s in scalings.items()
            }

        return Normalisation(read(data["observation"]), read(data["action"]))


def joined(
    fields: Sequence[Field], scalings: Mapping[str, Scaling]
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Returns mean and scale of all fields behind each other."""
    mean = np.concatenate([scalings[field.name].mean for field in fields])
    return mean, np.concatenate([scalings[field.name].scale for field in fields])
