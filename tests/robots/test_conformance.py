"""Plants one fault at a time in a sound robot and looks for its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import mujoco
import numpy as np
import pytest

from dexloop.core.status import Level
from dexloop.robots import Embodiment, check, load
from dexloop.robots.embodiment import Fingertip

Spec = mujoco.MjSpec


def edited(robot: Embodiment, edit: Callable[[Spec], object], **changes: object) -> Embodiment:
    """The robot with a change in its model, and others in its description."""

    def make_spec() -> Spec:
        spec = robot.make_spec()
        edit(spec)
        return spec

    return dataclasses.replace(robot, make_spec=make_spec, **changes)  # type: ignore[arg-type]


def with_value(robot: Embodiment, field: str, index: object, value: float) -> dict[str, np.ndarray]:
    array = np.array(getattr(robot, field))
    array[index] = value
    return {field: array}


def heavy(spec: Spec) -> None:
    spec.geom("index_pad").mass = 300


def light(spec: Spec) -> None:
    for geom in spec.body("thumb_distal").geoms:
        geom.mass = 1e-9


def motor(spec: Spec) -> None:
    spec.actuator("index_mcp").set_to_motor()


def elsewhere(spec: Spec) -> None:
    spec.actuator("index_mcp").target = "index_pip"


def unlimited(spec: Spec) -> None:
    spec.joint("index_mcp").limited = False
    spec.actuator("index_mcp").ctrllimited = False


def unlimited_force(spec: Spec) -> None:
    spec.actuator("index_mcp").forcelimited = False


def no_force(spec: Spec) -> None:
    spec.actuator("index_mcp").gear = [0, 0, 0, 0, 0, 0]


def numb(spec: Spec) -> None:
    spec.delete(spec.sensor("thumb_tip"))


def loose(spec: Spec) -> None:
    spec.body("thumb_distal").add_joint(name="rattle", axis=[1, 0, 0])


def no_site(spec: Spec) -> None:
    spec.delete(spec.sensor("thumb_tip"))
    spec.delete(spec.site("thumb_tip"))


def thousandfold(spec: Spec) -> None:
    """Millimetres for metres: everything that has a length."""
    for body in spec.bodies[1:]:
        body.pos = body.pos * 1000
    for site in spec.sites:
        site.pos = site.pos * 1000


def broken(spec: Spec) -> None:
    spec.add_exclude(bodyname1="nobody", bodyname2="palm")


def nothing(spec: Spec) -> None:
    pass


HAND = load("dex16")
MCP = HAND.joints.index("index_mcp")
COLLIDING = HAND.home.copy()
COLLIDING[[HAND.joints.index(j) for j in ("index_abd", "middle_abd", "index_mcp", "middle_mcp")]] = (
    -0.35,
    0.35,
    0.5,
    0.5,
)

FAULTS: dict[str, tuple[str, Embodiment]] = {
    "heavy": ("mass_too_large", edited(HAND, heavy)),
    "light": ("mass_too_small", edited(HAND, light)),
    "motor": ("not_position_servo", edited(HAND, motor)),
    "elsewhere": ("actuator_elsewhere", edited(HAND, elsewhere)),
    "unlimited": ("joint_unlimited", edited(HAND, unlimited)),
    "endless": ("joint_unlimited", edited(HAND, nothing, **with_value(HAND, "position_limits", (MCP, 1), np.inf))),
    "degrees": ("units_suspicious", edited(HAND, nothing, **with_value(HAND, "position_limits", (MCP, 1), 90.0))),
    "unlimited force": ("unlimited_effort", edited(HAND, unlimited_force)),
    "no force": ("no_effort", edited(HAND, no_force)),
    "no speed": ("speed_limit", edited(HAND, nothing, **with_value(HAND, "speed_limits", MCP, 0.0))),
    "home outside": ("home_outside_limits", edited(HAND, nothing, **with_value(HAND, "home", MCP, 3.0))),
    "home NaN": ("home_outside_limits", edited(HAND, nothing, **with_value(HAND, "home", MCP, np.nan))),
    "home collides": ("home_collides", edited(HAND, nothing, home=COLLIDING)),
    "short home": ("wrong_shape", edited(HAND, nothing, home=HAND.home[:3])),
    "no site": ("missing_fingertip_site", edited(HAND, no_site)),
    "no body": ("missing_fingertip_body", edited(HAND, nothing, fingertips=(
        *HAND.fingertips[:3], Fingertip("thumb", "nobody", "thumb_tip", ("thumb_pad",))))),
    "no geom": ("missing_fingertip_geom", edited(HAND, nothing, fingertips=(
        *HAND.fingertips[:3], Fingertip("thumb", "thumb_distal", "thumb_tip", ())))),
    "same place": ("fingertips_coincide", edited(HAND, nothing, fingertips=(
        *HAND.fingertips[:3], Fingertip("thumb", "index_distal", "index_tip", ("index_pad",))))),
    "no palm": ("missing_palm", edited(HAND, nothing, palm="")),
    "wrong palm": ("missing_site", edited(HAND, nothing, palm="plam")),
    "numb": ("no_touch_sensor", edited(HAND, numb)),
    "loose": ("passive_joints", edited(HAND, loose)),
    "no actuator": ("missing_actuator", edited(HAND, nothing, actuators=("nope", *HAND.actuators[1:]))),
    "no joint": ("missing_joint", edited(HAND, nothing, joints=("nope", *HAND.joints[1:]),
                                         hand_joints=("nope", *HAND.joints[1:]))),
    "twice": ("duplicate_name", edited(HAND, nothing, joints=(HAND.joints[1], *HAND.joints[1:]),
                                       hand_joints=(HAND.joints[1], *HAND.joints[1:]))),
    "order": ("joint_order", edited(HAND, nothing, hand_joints=HAND.joints[::-1])),
    "millimetres": ("units_suspicious", edited(HAND, thousandfold)),
    "one finger": ("few_fingertips", edited(HAND, nothing, fingertips=HAND.fingertips[:1])),
    "broken": ("model_broken", edited(HAND, broken)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_found(fault: str) -> None:
    code, robot = FAULTS[fault]
    found = check(robot)
    assert code in [s.code for s in found], [str(s) for s in found]
    for status in found:
        assert status.message
        assert status.action.endswith((".", "?"))
        assert status.level in (Level.WARN, Level.FAIL)


def test_a_sound_robot_has_no_faults() -> None:
    assert check(HAND) == []


def test_the_worst_comes_first() -> None:
    robot = edited(HAND, lambda spec: (numb(spec), motor(spec)))
    assert [s.level for s in check(robot)] == [Level.FAIL, Level.WARN]


def test_an_impossible_inertia_is_found() -> None:
    """MuJoCo refuses such a body when it compiles; values written into a model later it does not check."""

    class Tampered:
        def compile(self) -> mujoco.MjModel:
            model = HAND.make_spec().compile()
            model.body("index_distal").inertia = [1e-6, 1e-6, 9e-6]
            return model

    found = check(dataclasses.replace(HAND, make_spec=Tampered))  # type: ignore[arg-type]
    assert [s.code for s in found] == ["inertia_impossible"]
    assert "'index_distal': 9e-06 > 1e-06 + 1e-06" in found[0].message


def test_fingers_that_never_meet_cannot_pinch() -> None:
    def far(spec: Spec) -> None:
        spec.body("thumb_base").pos = [0.0, 0.3, 0.03]

    assert [s.code for s in check(edited(HAND, far))] == ["cannot_pinch"]
