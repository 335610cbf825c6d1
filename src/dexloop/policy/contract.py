"""The contract of a policy: for which robot, how often, from what to what, in which order and units.

It is checked before a policy moves anything. What it does not say, or says differently from the robot at hand, is an
error: a policy whose joints were sorted anew, or whose statistics were lost, moves a hand smoothly to a wrong place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Self

import numpy as np

from dexloop.core.errors import InputError
from dexloop.policy.fields import PHASES, Field, action_fields, observation_fields
from dexloop.policy.normalisation import Normalisation
from dexloop.rig.protocol import CommandInfo
from dexloop.robots.embodiment import Embodiment

SCHEMA = 2
"""Of a contract. What changes the meaning of a number in it, or of a weight, counts it up."""
_ROUNDING = 1e-6
"""By so much [rad, m, N·m, N; of a rate, as a part] numbers may differ that were written down somewhere else."""


@dataclass(frozen=True)
class Terms:
    """What is agreed before training."""

    embodiment: str
    """Name of the robot."""
    joints: tuple[str, ...]
    """In command order."""
    arm_joints: tuple[str, ...]
    hand_joints: tuple[str, ...]
    fingertips: tuple[str, ...]
    """Names of the fingers, in the order of touch and force."""
    units: tuple[str, ...]
    """"rad" or "m", one a joint."""
    rate_hz: float
    """How often it acts [1/s]."""
    observation: tuple[Field, ...]
    action: tuple[Field, ...]
    phases: tuple[str, ...]
    position_limits: tuple[tuple[float, float], ...]
    """[rad or m]"""
    effort_limits: tuple[float, ...]
    """[N·m or N]"""

    @staticmethod
    def of(embodiment: Embodiment, *, rate_hz: float) -> Terms:
        """Returns the terms of a robot.

        Raises:
            InputError: It has no hand, or a joint has no limit.
        """
        if not embodiment.fingertips or not embodiment.hand_joints:
            raise InputError(
                f"{embodiment.name} has no fingers to grasp with: mount a hand on it, such as dex16@{embodiment.name}"
            )
        h, f = len(embodiment.hand_joints), len(embodiment.fingertips)
        return Terms(
            embodiment.name,
            embodiment.joints,
            embodiment.arm_joints,
            embodiment.hand_joints,
            tuple(tip.name for tip in embodiment.fingertips),
            embodiment.units,
            float(rate_hz),
            observation_fields(h, f),
            action_fields(h, f),
            PHASES,
            tuple((float(low), float(high)) for low, high in embodiment.position_limits),
            tuple(map(float, embodiment.effort_limits)),
        )

    def __post_init__(self) -> None:
        n, h, f = len(self.joints), len(self.hand_joints), len(self.fingertips)
        if len(set(self.joints)) != n or not {*self.arm_joints, *self.hand_joints} <= set(self.joints):
            raise InputError("the joints of arm and hand must be among all joints, each of which is named once")
        if not len(self.units) == len(self.position_limits) == len(self.effort_limits) == n:
            raise InputError(f"units and limits must be given for each of the {n} joints")
        for joint, (low, high), effort in zip(self.joints, self.position_limits, self.effort_limits, strict=True):
            if not (np.isfinite([low, high, effort]).all() and low < high and effort > 0):
                raise InputError(f"joint {joint!r} has no limits of position and effort: give them in its robot.toml")
        if not (np.isfinite(self.rate_hz) and self.rate_hz > 0):
            raise InputError(f"a policy acts at a rate above zero, not at {self.rate_hz} Hz")
        if self.phases != PHASES:
            raise InputError(
                f"the phases are {', '.join(PHASES)}, not {', '.join(self.phases)}: train the policy again"
            )
        for kind, found, known in (
            ("observation", self.observation, observation_fields(h, f)),
            ("action", self.action, action_fields(h, f)),
        ):
            if [(x.name, x.size, x.unit) for x in found] != [(x.name, x.size, x.unit) for x in known]:
                raise InputError(
                    f"the {kind} is {_listed(found)}, but this dexloop makes {_listed(known)}: train the policy again"
                )

    @property
    def hand_limits(self) -> tuple[tuple[float, float], ...]:
        """Position limits of the hand's joints [rad or m]."""
        return tuple(self.position_limits[self.joints.index(joint)] for joint in self.hand_joints)

    def sealed(self, normalisation: Normalisation) -> Contract:
        """Returns the contract of a policy that was trained with this normalisation.

        Raises:
            InputError: A field has no usable normalisation.
        """
        return Contract(**_shallow(self), normalisation=normalisation)

    def check(self, embodiment: Embodiment) -> None:
        """Checks that a robot is the one of these terms; its limits may be wider.

        Raises:
            InputError: It is not, and in what it differs.
        """
        wrong = [] if embodiment.name == self.embodiment else [f"the policy is for {self.embodiment}"]
        wrong += self._of_joints(
            embodiment.joints, embodiment.units, embodiment.position_limits.tolist(), embodiment.effort_limits.tolist()
        )
        tips = tuple(tip.name for tip in embodiment.fingertips)
        for what, mine, theirs in (
            ("arm joints", self.arm_joints, embodiment.arm_joints),
            ("hand joints", self.hand_joints, embodiment.hand_joints),
            ("fingertips", self.fingertips, tips),
        ):
            if mine != theirs and (what == "fingertips" or set(self.joints) == set(embodiment.joints)):
                wrong.append(f"{what} are {', '.join(theirs) or 'none'}, in the policy {', '.join(mine) or 'none'}")
        _refuse(embodiment.name, wrong)

    def check_command(self, command: CommandInfo) -> None:
        """Checks that what a rig takes is what a policy with these terms gives; its limits may be wider, and it may
        take some whole number of commands for each of the policy's.

        Raises:
            InputError: It is not, and in what it differs.
        """
        wrong = self._of_joints(command.joints, command.units, command.position_limits, command.effort_limits)
        times = command.rate_hz / self.rate_hz
        if not (np.isfinite(times) and times > 0.5 and abs(times - round(times)) <= _ROUNDING * times):
            wrong.append(
                f"its rate is {command.rate_hz:g} Hz, which is no multiple of the policy's {self.rate_hz:g} Hz"
            )
        _refuse("the rig's command", wrong)

    def _of_joints(
        self,
        joints: Sequence[str],
        units: Sequence[str],
        position_limits: Sequence[Sequence[float]],
        effort_limits: Sequence[float],
    ) -> list[str]:
        """Says in what joints differ."""
        if not len(set(joints)) == len(joints) == len(units) == len(position_limits) == len(effort_limits):
            return [f"it has {len(joints)} joints, but not as many names, units and limits"]
        wrong = []
        missing = [joint for joint in self.joints if joint not in joints]
        strange = [joint for joint in joints if joint not in self.joints]
        if missing:
            wrong.append(f"joint missing: {', '.join(missing)}")
        if strange:
            wrong.append(f"joint that the policy does not know: {', '.join(strange)}")
        if not missing and not strange and tuple(joints) != self.joints:
            k = next(k for k, (mine, theirs) in enumerate(zip(self.joints, joints, strict=True)) if mine != theirs)
            wrong.append(f"joint order changed: number {k + 1} is {joints[k]}, in the policy {self.joints[k]}")
        agreed = zip(self.units, self.position_limits, self.effort_limits, strict=True)
        mine = dict(zip(self.joints, agreed, strict=True))
        for joint, unit, (low, high), effort in zip(joints, units, position_limits, effort_limits, strict=True):
            if joint not in mine:
                continue
            own_unit, (own_low, own_high), own_effort = mine[joint]
            if unit != own_unit:
                wrong.append(f"unit of {joint} is {unit}, in the policy {own_unit}")
            elif not (low <= own_low + _ROUNDING and high >= own_high - _ROUNDING):
                wrong.append(
                    f"limits of {joint} are narrower: {low:g} to {high:g}, in the policy {own_low:g} to {own_high:g}"
                )
            elif not effort >= own_effort - _ROUNDING:
                wrong.append(f"effort limit of {joint} is lower: {effort:g}, in the policy {own_effort:g}")
        return wrong


@dataclass(frozen=True)
class Contract(Terms):
    """What is agreed once a policy is trained."""

    normalisation: Normalisation

    def __post_init__(self) -> None:
        super().__post_init__()
        self.normalisation.require(self.observation, self.action)

    @property
    def hash(self) -> str:
        """SHA-256 of all that the contract says: normalisation, order of fields and of joints, and the rest."""
        return _hash(self._content())

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values, with the hash and the schema."""
        content = self._content()
        return {**content, "hash": _hash(content)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads what `to_json` wrote.

        Raises:
            InputError: It is of another schema, lacks something, was changed since, or cannot be used.
        """
        if not isinstance(data, Mapping):
            raise InputError("a policy's contract is damaged: it holds no names; train the policy again")
        if data.get("schema") != SCHEMA:
            raise InputError(
                f"a policy's contract is of schema {data.get('schema')}, and this dexloop reads {SCHEMA}: train the "
                "policy again, or use the dexloop that it was trained with"
            )
        wanted = {"schema", "hash", *(field.name for field in dataclass_fields(cls))}
        for name in sorted(wanted - data.keys()):
            raise InputError(f"a policy's contract has no {name}: train the policy again")
        for name in sorted(data.keys() - wanted):
            raise InputError(f"a policy's contract has {name!r}, which is not known: was it changed by hand?")
        said = {name: data[name] for name in data if name != "hash"}
        try:
            found = cls(
                str(said["embodiment"]),
                *(tuple(map(str, said[name])) for name in _NAMES),
                rate_hz=float(said["rate_hz"]),
                observation=tuple(Field(**field) for field in said["observation"]),
                action=tuple(Field(**field) for field in said["action"]),
                phases=tuple(map(str, said["phases"])),
                position_limits=tuple((float(low), float(high)) for low, high in said["position_limits"]),
                effort_limits=tuple(map(float, said["effort_limits"])),
                normalisation=Normalisation.from_json(said["normalisation"]),
            )
            same = found.hash == data["hash"]
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f"a policy's contract is damaged ({error}): train the policy again") from error
        if not same:
            raise InputError(
                "a policy's contract was changed after it was written, for its hash is another: joints, fields or "
                "normalisation are not those of the training; take the original, or train again"
            )
        return found

    def _content(self) -> dict[str, Any]:
        plain = {**_shallow(self), "normalisation": self.normalisation.to_json()}
        plain |= {kind: [asdict(field) for field in plain[kind]] for kind in ("observation", "action")}
        return json.loads(json.dumps({"schema": SCHEMA, **plain}, allow_nan=False))


_NAMES = ("joints", "arm_joints", "hand_joints", "fingertips", "units")


def _shallow(terms: Terms) -> dict[str, Any]:
    return {field.name: getattr(terms, field.name) for field in dataclass_fields(terms)}


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _listed(fields: Sequence[Field]) -> str:
    return ", ".join(f"{field.name} [{field.size} {field.unit}]" for field in fields)


def _refuse(name: str, wrong: Sequence[str]) -> None:
    if wrong:
        raise InputError(
            f"{name} does not fit the policy's contract: {'; '.join(wrong)}. Use the robot that it was trained for, "
            "or train again for this one"
        )
