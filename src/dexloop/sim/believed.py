"""Worlds as they may be: values of a scene's parameters, drawn from a belief."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core.artifact import load_arrays
from dexloop.core.artifacts import Belief
from dexloop.core.errors import InputError
from dexloop.core.stated import OF_SENSORS
from dexloop.sim.parameters import available
from dexloop.sim.scene import Scene

_DELAY = "actuator.delay"
_FINGERTIP, _OBJECT = "fingertip.friction", "object.friction"


@dataclass(frozen=True, eq=False)
class Draws:
    """Values of parameters in many worlds."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    """How many components each has."""
    values: Float[np.ndarray, "n p"]
    """Components of all parameters side by side."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, some: slice) -> Draws:
        return Draws(self.names, self.sizes, self.values[some])

    def by_name(self) -> dict[str, Float[np.ndarray, "n k"]]:
        """Returns values of each parameter, as `World.set` takes them."""
        pieces = np.split(self.values, np.cumsum(self.sizes)[:-1], axis=1)
        return dict(zip(self.names, pieces, strict=True))

    def with_values(self, name: str, values: Float[np.ndarray, " n"]) -> Draws:
        """Returns worlds in which one parameter of one component has other values; it is added where it was not."""
        if name not in self.names:
            return Draws((*self.names, name), (*self.sizes, 1), np.column_stack([self.values, values]))
        changed = self.values.copy()
        changed[:, sum(self.sizes[: self.names.index(name)])] = values
        return Draws(self.names, self.sizes, changed)

    @staticmethod
    def together(*parts: Draws) -> Draws:
        """Returns the worlds of all parts in one, in the last one's order of parameters; that one has them all.

        What another part lacks is 1 there, which is what factors are where nothing is known.
        """
        last = parts[-1]
        rows = []
        for part in parts:
            columns = part.by_name()
            rows.append(np.concatenate(
                [columns.get(k, np.ones((len(part), n))) for k, n in zip(last.names, last.sizes, strict=True)], axis=1
            ))  # fmt: skip
        return Draws(last.names, last.sizes, np.concatenate(rows))

    def with_hand_friction(self, values: Float[np.ndarray, " n"]) -> Draws:
        """Returns worlds in which the object slides on the whole hand as it does on a fingertip."""
        return self.with_values(_FINGERTIP, values).with_values(_OBJECT, values)


def mean_of(belief: Belief, label: str, *, otherwise: float) -> float:
    """Returns the mean of what a belief says of one number, or something else where it says nothing."""
    labels = [str(name) for name in belief.header.meta["labels"]]
    if label not in labels:
        return otherwise
    return float(np.mean(load_arrays(belief.path / "posterior.npz")["samples"][:, labels.index(label)]))


def middle(draws: Draws) -> Draws:
    """Returns one world in the middle of many: of each number the median."""
    return Draws(draws.names, draws.sizes, np.median(draws.values, axis=0)[None])


def draw(belief: Belief, scene: Scene, n: int, *, seed: int = 0) -> Draws:
    """Draws worlds from a belief.

    How the object slides on a palm or on a finger's link, which no push tells, is taken to be as on a fingertip.

    Args:
        belief: Of an object and a robot.
        scene: Holds both.
        n: How many.
        seed: Of the choice.

    Raises:
        InputError: The belief speaks of something else.
    """
    labels = [str(label) for label in belief.header.meta["labels"]]
    samples = load_arrays(belief.path / "posterior.npz")["samples"]
    known = set(available(scene.model, scene.roles))
    names: list[str] = []
    sizes: list[int] = []
    columns: list[int] = []
    for k, label in enumerate(labels):
        if label.startswith(OF_SENSORS) or (label == _DELAY and not scene.model.nhistory):
            continue
        name = label if label in known else label.rpartition(".")[0]
        if name not in known:
            raise InputError(f"{belief.path} speaks of {label}, which this scene lacks: identify with its model")
        if names[-1:] == [name]:
            sizes[-1] += 1
        else:
            names.append(name)
            sizes.append(1)
        columns.append(k)
    chosen = np.random.default_rng(seed).integers(0, len(samples), n)
    draws = Draws(tuple(names), tuple(sizes), samples[chosen][:, columns])
    if _FINGERTIP in labels and _OBJECT not in labels:
        return draws.with_hand_friction(samples[chosen, labels.index(_FINGERTIP)])
    return draws
