from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dexloop.core.errors import InputError
from dexloop.policy.contract import SCHEMA, Contract, Terms
from dexloop.policy.fields import PHASES
from dexloop.policy.normalisation import Normalisation, Scaling
from dexloop.rig.protocol import CommandInfo
from dexloop.robots import Embodiment, load


def command(robot: Embodiment, rate_hz: float = 50.0) -> CommandInfo:
    """What a rig with this robot takes."""
    return CommandInfo(
        robot.joints,
        robot.units,
        tuple(map(tuple, robot.position_limits.tolist())),
        tuple(robot.speed_limits.tolist()),
        tuple(robot.effort_limits.tolist()),
        tuple(robot.home.tolist()),
        rate_hz,
    )


def swapped(values: Any, a: int, b: int) -> Any:
    """The same with two of them exchanged."""
    order = list(range(len(values)))
    order[a], order[b] = b, a
    return values[order] if isinstance(values, np.ndarray) else tuple(values[k] for k in order)


def test_it_says_what_the_robot_is(contract: Contract, robot: Embodiment) -> None:
    assert contract.joints == robot.joints
    assert contract.fingertips == ("index", "middle", "ring", "thumb")
    sizes = {field.name: field.size for field in contract.observation}
    assert sizes == {
        "palm": 9, "object": 9, "slip": 3, "q": 16, "push": 16, "touch": 4, "belief": 4, "phase": 5, "clock": 1,
    }  # fmt: skip
    assert [(field.name, field.size) for field in contract.action] == [
        ("palm", 9), ("hand", 16), ("force", 4), ("phase", 5),
    ]  # fmt: skip
    hand = [robot.joints.index(joint) for joint in robot.hand_joints]
    np.testing.assert_array_equal(contract.hand_limits, robot.position_limits[hand])
    with pytest.raises(InputError, match="mount a hand"):
        Terms.of(load("arm7"), rate_hz=50.0)
    with pytest.raises(InputError, match="rate above zero"):
        Terms.of(robot, rate_hz=0.0)
    with pytest.raises(InputError, match=f"{robot.joints[2]!r} has no limits"):
        Terms.of(replace(robot, effort_limits=np.where(np.arange(22) == 2, np.inf, 1.0)), rate_hz=50.0)


def test_it_comes_back_from_json_as_it_was(contract: Contract) -> None:
    again = Contract.from_json(json.loads(json.dumps(contract.to_json())))
    assert again == contract
    assert again.hash == contract.hash


def test_the_hash_tells_order_and_normalisation(contract: Contract) -> None:
    turned = replace(contract, joints=swapped(contract.joints, 8, 9))
    assert turned.hash != contract.hash
    fingers = replace(contract, fingertips=swapped(contract.fingertips, 0, 1))
    assert fingers.hash != contract.hash
    one = contract.normalisation.action["force"]
    mean = (one.mean[0] + 1e-12, *one.mean[1:])
    action = {**contract.normalisation.action, "force": replace(one, mean=mean)}
    shifted = replace(contract, normalisation=replace(contract.normalisation, action=action))
    assert shifted.hash != contract.hash
    assert len({turned.hash, fingers.hash, shifted.hash}) == 3


def test_a_contract_changed_by_hand_is_refused(contract: Contract) -> None:
    written = contract.to_json()
    joints = written["joints"]
    for change in (
        {"joints": [joints[1], joints[0], *joints[2:]]},
        {"rate_hz": 25.0},
        {"hash": "0" * 64},
        {"fingertips": swapped(written["fingertips"], 0, 3)},
    ):
        with pytest.raises(InputError, match="its hash is another"):
            Contract.from_json({**written, **change})
    moved = json.loads(json.dumps(written))
    moved["normalisation"]["observation"]["touch"]["mean"][0] += 0.5
    with pytest.raises(InputError, match="its hash is another"):
        Contract.from_json(moved)


def test_what_is_missing_or_strange_is_refused(contract: Contract) -> None:
    written = contract.to_json()
    for name in written:
        if name != "schema":
            with pytest.raises(InputError, match=f"has no {name}: train"):
                Contract.from_json({k: v for k, v in written.items() if k != name})
    with pytest.raises(InputError, match="'speed', which is not known"):
        Contract.from_json({**written, "speed": 1})
    for schema in (SCHEMA + 1, None):
        with pytest.raises(InputError, match=f"schema {schema}"):
            Contract.from_json({**written, "schema": schema})
    for damage in (
        {"joints": 5},
        {"normalisation": []},
        {"position_limits": [[0.0]]},
        {"observation": [{"name": "q"}]},
    ):
        with pytest.raises(InputError, match="damaged"):
            Contract.from_json({**written, **damage})
    with pytest.raises(InputError, match="damaged"):
        Contract.from_json([])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["observation", "action"])
def test_normalisation_must_be_whole_finite_and_above_zero(contract: Contract, terms: Terms, kind: str) -> None:
    def with_palm(scaling: Scaling | None) -> Normalisation:
        fields = dict(getattr(contract.normalisation, kind))
        if scaling is None:
            del fields["palm"]
        else:
            fields["palm"] = scaling
        return replace(contract.normalisation, **{kind: fields})

    good = getattr(contract.normalisation, kind)["palm"]
    where = f"normalisation of {kind} 'palm'"
    with pytest.raises(InputError, match=f"{where} is missing"):
        terms.sealed(with_palm(None))
    with pytest.raises(InputError, match=f"{where} is not of size 9"):
        terms.sealed(with_palm(Scaling(good.mean[:8], good.scale)))
    for bad in (float("nan"), float("inf")):
        with pytest.raises(InputError, match=f"{where} holds a number that is not finite"):
            terms.sealed(with_palm(replace(good, mean=(*good.mean[:8], bad))))
        with pytest.raises(InputError, match=f"{where} holds a number that is not finite"):
            terms.sealed(with_palm(replace(good, scale=(*good.scale[:8], bad))))
    for bad in (0.0, -1.0):
        with pytest.raises(InputError, match=f"{where} has a scale that is not above zero"):
            terms.sealed(with_palm(replace(good, scale=(*good.scale[:8], bad))))
    extra = {**getattr(contract.normalisation, kind), "speed": good}
    with pytest.raises(InputError, match=f"{kind} 'speed' belongs to no field"):
        terms.sealed(replace(contract.normalisation, **{kind: extra}))


def test_other_fields_or_phases_than_this_dexloop_makes_are_refused(contract: Contract) -> None:
    with pytest.raises(InputError, match=r"observation is object \[9 m, 1\], palm"):
        replace(contract, observation=swapped(contract.observation, 0, 1))
    with pytest.raises(InputError, match="action is palm"):
        replace(contract, action=contract.action[:3])
    with pytest.raises(InputError, match="not come, close, lift"):
        replace(contract, phases=("come", "close", "lift"))
    assert contract.phases == PHASES


def test_its_own_robot_passes_and_wider_limits_too(contract: Contract, robot: Embodiment) -> None:
    contract.check(robot)
    contract.check_command(command(robot))
    wide = replace(robot, position_limits=robot.position_limits * 1.1, effort_limits=robot.effort_limits * 2)
    assert (wide.position_limits[:, 0] <= robot.position_limits[:, 0]).all()
    contract.check(wide)
    contract.check_command(command(wide))


def test_another_robot_is_told_in_what_it_differs(contract: Contract, robot: Embodiment) -> None:
    turned = replace(
        robot,
        joints=swapped(robot.joints, 8, 9),
        position_limits=swapped(robot.position_limits, 8, 9),
        effort_limits=swapped(robot.effort_limits, 8, 9),
    )
    told = f"joint order changed: number 9 is {robot.joints[9]}, in the policy {robot.joints[8]}"
    for check in (lambda: contract.check(turned), lambda: contract.check_command(command(turned))):
        with pytest.raises(InputError, match=told) as refused:
            check()
        assert "narrower" not in str(refused.value)  # limits are compared joint by joint, not place by place
    with pytest.raises(InputError, match="the policy is for dex16@wrist; joint missing") as refused:
        contract.check(load("gripper@wrist"))
    assert "joint that the policy does not know: " in str(refused.value)
    assert "fingertips are right, left, in the policy index, middle, ring, thumb" in str(refused.value)
    hands = replace(robot, hand_joints=swapped(robot.hand_joints, 0, 1))
    with pytest.raises(InputError, match="hand joints are"):
        contract.check(hands)
    with pytest.raises(InputError, match="the policy is for dex16@wrist"):
        contract.check(replace(robot, name="left16@wrist"))


def test_units_rate_and_narrower_limits_are_refused(contract: Contract, robot: Embodiment) -> None:
    joint = robot.joints[10]
    units = (*robot.units[:10], "m", *robot.units[11:])
    with pytest.raises(InputError, match=f"unit of {joint} is m, in the policy rad"):
        contract.check_command(replace(command(robot), units=units))
    contract.check_command(command(robot, rate_hz=250.0))
    for rate_hz in (125.0, 25.0, 0.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=f"rate is {rate_hz:g} Hz, which is no multiple of the policy's 50 Hz"):
            contract.check_command(command(robot, rate_hz=rate_hz))
    for column, step in ((0, 0.01), (1, -0.01)):
        limits = robot.position_limits.copy()
        limits[10, column] += step
        narrow = replace(robot, position_limits=limits)
        for check in (lambda r=narrow: contract.check(r), lambda r=narrow: contract.check_command(command(r))):
            with pytest.raises(InputError, match=f"limits of {joint} are narrower"):
                check()
    efforts = robot.effort_limits.copy()
    efforts[10] *= 0.5
    with pytest.raises(InputError, match=f"effort limit of {joint} is lower"):
        contract.check(replace(robot, effort_limits=efforts))
    short = replace(command(robot), units=robot.units[:-1])
    with pytest.raises(InputError, match="not as many names, units and limits"):
        contract.check_command(short)
    lost = command(robot)
    cut = {n: getattr(lost, n)[:-1] for n in ("joints", "units", "position_limits", "effort_limits")}
    with pytest.raises(InputError, match=f"joint missing: {robot.joints[-1]}\\."):
        contract.check_command(replace(lost, **cut))
