"""What the data determine, alone or only together, said in words; and what to do next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.core.status import Level, Status
from dexloop.identify.unknowns import Unknown
from dexloop.sim.transforms import LogCholesky

Array = np.ndarray

DETERMINED = 0.05
"""A ratio counts as determined if its standard deviation is below this: the 95 % interval is within ±10 %, which is
what a grasp needs to know of a weight."""
LEARNT = 0.4
"""Anything counts as determined only if its standard deviation fell below this fraction of what it was before."""
TOGETHER, WORTH_SAYING = 0.5, 0.1
"""Two count as determined together if that is known this much better than either alone, and to this relative standard
deviation: coarser than one alone must be, for it is all that there is to say, and its interval is said with it."""


@dataclass(frozen=True)
class Combination:
    """A product or quotient of two parameters that the data determine better than either."""

    words: str
    """Such as "object.mass × table.friction"."""
    value: float
    sd: float
    """Relative."""
    interval: tuple[float, float]
    """95 %."""
    unit: str


@dataclass(frozen=True)
class Direction:
    """An eigen-direction of the information, relative to what was known before."""

    words: str
    share: float
    """Standard deviation left along it, as a fraction of what it was before: 1 is nothing learnt."""


@dataclass(frozen=True)
class Verdict:
    """What is determined, parameter by parameter and together."""

    identifiable: dict[str, bool]
    """By label."""
    combinations: tuple[Combination, ...]
    directions: tuple[Direction, ...]
    """From the best to the least determined."""

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Labels of what the data cannot tell."""
        return tuple(label for label, yes in self.identifiable.items() if not yes)


def judge(
    unknowns: Sequence[Unknown],
    mean: Float[Array, " p"],
    covariance: Float[Array, "p p"],
) -> Verdict:
    """Judges an estimate of some unknowns, given in free coordinates."""
    labels = [label for u in unknowns for label in u.labels]
    sd, before = np.sqrt(np.diag(covariance)), np.concatenate([u.sd for u in unknowns])
    ratio = np.concatenate([np.full(u.size, u.is_ratio or isinstance(u.transform, LogCholesky)) for u in unknowns])
    known = (sd < LEARNT * before) & (~ratio | (sd < DETERMINED))
    identifiable = {label: bool(k) for label, k in zip(labels, known, strict=True)}
    return Verdict(
        identifiable, _combinations(unknowns, mean, covariance, known), _directions(labels, covariance, before)
    )


def _logs(unknowns: Sequence[Unknown], size: int) -> dict[str, tuple[Float[Array, " p"], str]]:
    """Returns what can be multiplied: the logarithm of each, as a direction in free coordinates, and its unit."""
    out, at = {}, 0
    for u in unknowns:
        v = np.zeros(size)
        if u.is_ratio:
            v[at] = 1.0
            out[u.name] = (v, u.unit)
        elif isinstance(u.transform, LogCholesky):
            v[at : at + 3] = 2.0 / 3.0  # an inertia grows with the square of the radii of gyration
            out[u.name] = (v, u.unit)
        at += u.size
    return out


def _combinations(
    unknowns: Sequence[Unknown], mean: Float[Array, " p"], covariance: Float[Array, "p p"], known: Float[Array, " p"]
) -> tuple[Combination, ...]:
    found = []
    logs = _logs(unknowns, len(mean))
    for (a, (va, unit_a)), (b, (vb, unit_b)) in itertools.combinations(logs.items(), 2):
        sds = [float(np.sqrt(v @ covariance @ v)) for v in (va, vb)]
        if max(sds) < DETERMINED:
            continue
        for sign, symbol in ((1.0, "×"), (-1.0, "÷")):
            v = va + sign * vb
            sd = float(np.sqrt(max(v @ covariance @ v, 0.0)))
            if sd < WORTH_SAYING and sd < TOGETHER * min(sds):
                first, second = (b, a) if symbol == "÷" and "inertia" in b else (a, b)
                v = -v if first == b else v
                value = float(np.exp(v @ mean))
                if isinstance(_named(unknowns, first).transform, LogCholesky):
                    value *= _inertia_scale(_named(unknowns, first), mean, unknowns)
                interval = (value * float(np.exp(-1.96 * sd)), value * float(np.exp(1.96 * sd)))
                unit = f"{unit_a if first == a else unit_b} {symbol} {unit_b if first == a else unit_a}"
                found.append(Combination(f"{first} {symbol} {second}", value, sd, interval, _tidy(unit)))
    return tuple(sorted(found, key=lambda c: c.sd))


def _named(unknowns: Sequence[Unknown], name: str) -> Unknown:
    return next(u for u in unknowns if u.name == name)


def _inertia_scale(u: Unknown, mean: Float[Array, " p"], unknowns: Sequence[Unknown]) -> float:
    """Returns the mean principal inertia over the geometric mean of squared radii, at the estimate."""
    at = 0
    for other in unknowns:
        if other.name == u.name:
            break
        at += other.size
    free = mean[at : at + 6]
    value = u.value(free)
    return float(np.mean(value[:3]) / np.exp(2.0 / 3.0 * free[:3].sum()))


def _tidy(unit: str) -> str:
    return {"kg × 1": "kg", "kg·m² ÷ kg": "m²", "1 × kg": "kg"}.get(unit, unit)


def _directions(
    labels: Sequence[str], covariance: Float[Array, "p p"], before: Float[Array, " p"]
) -> tuple[Direction, ...]:
    values, vectors = np.linalg.eigh(covariance / np.outer(before, before))
    out = []
    for value, v in zip(values, vectors.T, strict=True):
        order = np.argsort(-np.abs(v))
        main = [k for k in order if abs(v[k]) > 0.3][:3]
        words = str(labels[main[0]])
        for k in main[1:]:
            words += f" {'×' if v[k] * v[main[0]] > 0 else '÷'} {labels[k]}"
        out.append(Direction(words, float(np.sqrt(value))))
    return tuple(out)


def status_of(verdict: Verdict, *, asked: Sequence[str], moved: str, lifted: bool, notes: Sequence[str]) -> Status:
    """Says how good a result is and what to do next.

    Args:
        verdict: What is determined.
        asked: Names of the parameters that were asked for.
        moved: How the object moved: "pushed", "free" (nothing measured a force) or "none".
        lifted: Whether it was lifted too.
        notes: What went wrong on the way.
    """
    missing = [x for x in verdict.undetermined if any(x == a or x.startswith(a + ".") for a in asked)]
    if not missing:
        text = f"{_list(asked)} found"
        if notes:
            return Status(Level.WARN, "found", f"{text}, but {'; '.join(notes)}", "Look at the report before using it.")
        return Status(Level.OK, "found", text)
    together = "; ".join(
        f"only {c.words} = {c.value:.4g} {c.unit} ± {100 * 1.96 * c.sd:.0f} %"
        for c in verdict.combinations
        if any(m.split(".")[0:2] == part.split(".")[0:2] for m in missing for part in c.words.split(" ")[::2])
    )
    message = f"{_list(missing)} not identifiable from these recordings" + (f": {together}" if together else "")
    return Status(Level.WARN, "not_identifiable", message, _advice(missing, moved, lifted))


def _advice(missing: Sequence[str], moved: str, lifted: bool) -> str:
    if moved == "none":
        return "Record a motion in which the object moves: dexloop capture push."
    if "object.mass" in missing:
        if moved == "free":
            return "A motion without a measured force tells nothing of mass: push the object or lift it with the robot."
        return "Push faster and let it coast (--speed-m-s 0.5)" + ("." if lifted else ", or lift it.")
    if any("friction" in m for m in missing):
        return "Push so that the object slides, and let it coast."
    if any("com" in m or "inertia" in m for m in missing):
        return "Push beside the middle (--offset-m) and from another direction, so that the object turns."
    return "Run dexloop identify plan to see which motion would tell most."


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else "nothing"
