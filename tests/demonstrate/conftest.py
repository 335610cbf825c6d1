"""Robot hands of many kinds, and a human hand whose gestures are given by joint angles."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.lab.human_hand import LANDMARKS, hand_spec
from dexloop.robots import Embodiment, Overrides, import_robot, load

CATALOG = ("dex16", "gripper", "dex16@arm7", "gripper@wrist", "leap_hand", "wonik_allegro")
HOMEMADE = ("five", "five_wrist", "left", "coupled", "tendons")
HANDS = ("dex16", "leap_hand", "wonik_allegro", "five", "coupled")
"""With a thumb, all right."""


def _finger(name: str, at: str, lengths: tuple[float, ...], *, side: float = 1.0, meta: bool = False) -> str:
    """A finger along x that bends down to +z; `meta` puts one more joint before its knuckle."""
    spread = f'<joint name="{name}1" axis="0 0 {side}" range="-0.35 0.35"/>'
    bones = ""
    for k, length in reversed(list(enumerate(lengths))):
        place = at if k == 0 and not meta else "0.06 0 0" if k == 0 else f"{lengths[k - 1]} 0 0"
        bones = f"""<body name="{name}_{k}" pos="{place}">{spread if k == 0 else ""}
            <joint name="{name}{k + 2}" axis="0 -1 0" range="-0.1 1.6"/>
            <geom type="capsule" fromto="0 0 0 {length} 0 0" size="0.008"/>{bones}</body>"""
    if not meta:
        return bones
    return f"""<body name="{name}_meta" pos="{at}"><joint name="{name}0" axis="0.82 0 {0.57 * side}" range="0 0.7"/>
        <geom type="capsule" fromto="0 0 0 0.06 0 0" size="0.009"/>{bones}</body>"""


def _hand(*, right: bool = True, extra: str = "", names: tuple[str, ...] = ("a", "b", "c", "d", "e")) -> str:
    """A hand of 24 joints: two in the wrist, five in the thumb, four in a finger, and one more before the last.

    Its palm faces +z, its fingers point along +x; a right hand has its thumb at -y. Names tell nothing.
    """
    s = 1.0 if right else -1.0
    a, b, c, d, e = names
    fingers = (
        _finger(a, f"0.095 {-0.033 * s} 0", (0.045, 0.025, 0.024), side=s)
        + _finger(b, f"0.099 {-0.011 * s} 0", (0.045, 0.025, 0.024), side=s)
        + _finger(c, f"0.095 {0.011 * s} 0", (0.045, 0.025, 0.024), side=s)
        + _finger(d, f"0.03 {0.033 * s} 0", (0.045, 0.025, 0.024), side=s, meta=True)
    )
    thumb = f"""<body name="{e}_0" pos="0.03 {-0.034 * s} 0.009" euler="0 0 {-0.8 * s}">
      <joint name="{e}0" axis="1 0 0" range="-1.05 1.05"/><geom size="0.012"/>
      <body name="{e}_1"><joint name="{e}1" axis="0 {-s} {0.6}" range="-0.2 1.2"/>
        <geom type="capsule" fromto="0 0 0 0.038 0 0" size="0.01"/>
        <body name="{e}_2" pos="0.038 0 0"><joint name="{e}2" axis="0 -1 0" range="-0.2 0.7"/>
          <joint name="{e}3" axis="0 0 {s}" range="-0.2 0.7" pos="0.002 0 0.001"/>
          <geom type="capsule" fromto="0 0 0 0.032 0 0" size="0.009"/>
          <body name="{e}_3" pos="0.032 0 0"><joint name="{e}4" axis="0 -0.7 {0.7 * s}" range="-0.2 1.5"/>
            <geom type="capsule" fromto="0 0 0 0.026 0 0" size="0.008"/></body></body></body></body>"""
    return f"""<mujoco model="hand"><compiler angle="radian"/>
    <default><joint damping="0.01" armature="0.001"/><geom density="500"/></default>
    <worldbody><body name="forearm"><geom type="box" size="0.05 0.03 0.02" pos="-0.06 0 0"/>
      <body name="wrist"><joint name="w1" axis="0 1 0" range="-0.5 0.2"/><geom size="0.02"/>
      <body name="palm_body" pos="0.02 0 0"><joint name="w2" axis="0 0 1" range="-0.6 0.5"/>
        <geom type="box" size="0.045 0.04 0.009" pos="0.045 0 0"/>{fingers}{thumb}
      </body></body></body></worldbody>{extra}</mujoco>"""


COUPLED = """<equality>
  <joint joint1="index4" joint2="index3" polycoef="0.05 0.6 0.15 0 0"/>
  <joint joint1="middle3" joint2="middle4" polycoef="0 1.25 0 0 0"/>
  <joint joint1="ring4" joint2="ring3" polycoef="0 0.7 0 0 0"/>
  <joint joint1="ring3" joint2="ring2" polycoef="0 0.9 0 0.05 0"/>
</equality>"""
"""A curved one, one from the driven joint on, and a chain of two."""
TENDONS = """<tendon><fixed name="t1"><joint joint="index4" coef="1"/><joint joint="index3" coef="-0.8"/></fixed>
  <fixed name="t2"><joint joint="ring4" coef="2"/></fixed><fixed name="t3"><joint joint="ring3" coef="1"/></fixed>
</tendon><equality><tendon tendon1="t1"/><tendon tendon1="t2" tendon2="t3" polycoef="0.02 0.9 0 0 0"/></equality>"""
NAMES = ("index", "middle", "ring", "little", "thumb")


def _driven(passive: tuple[str, ...]) -> str:
    """Motors for every joint but some, and none in the wrist."""
    fingers = [f"{f}{k}" for f in NAMES[:4] for k in (1, 2, 3, 4)] + ["little0"] + [f"thumb{k}" for k in range(5)]
    motors = "".join(f'<position joint="{j}" kp="1"/>' for j in fingers if j not in passive)
    return f"<actuator>{motors}</actuator>"


@functools.cache
def homemade(name: str, folder: Path) -> Embodiment:
    texts = {
        "five": _hand(),
        "five_wrist": _hand(),
        "left": _hand(right=False),
        "coupled": _hand(extra=COUPLED + _driven(("index4", "middle4", "ring3", "ring4")), names=NAMES),
        "tendons": _hand(extra=TENDONS + _driven(("index4", "ring4")), names=NAMES),
    }
    path = folder / f"{name}.xml"
    path.write_text(texts[name])
    if name != "five_wrist":
        return import_robot(path)
    plain = import_robot(path)
    return import_robot(path, overrides=Overrides(arm_joints=(), hand_joints=plain.joints))


@pytest.fixture(scope="session")
def robot(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Embodiment]:
    """Gives a robot by name: of the catalogue, or homemade."""
    folder = tmp_path_factory.mktemp("robots")
    menagerie = Path(os.environ.get("MENAGERIE_ROOT") or repository.parent / "shared" / "menagerie")

    @functools.cache
    def give(name: str) -> Embodiment:
        if name in HOMEMADE:
            return homemade(name, folder)
        if name in ("leap_hand", "wonik_allegro"):
            file = menagerie / name / "right_hand.xml"
            if not file.is_file():
                pytest.skip(f"no MuJoCo Menagerie at {menagerie}: set MENAGERIE_ROOT to a checkout")
            return import_robot(file, name=name)
        return load(name)

    return give


@functools.cache
def _human_model() -> mujoco.MjModel:
    return hand_spec().compile()


def gesture(angles: dict[str, float], T_world_wrist: np.ndarray | None = None) -> np.ndarray:
    """Returns the 21 landmarks of a human right hand with some joint angles [rad]; all others are zero."""
    model = _human_model()
    data = mujoco.MjData(model)
    pose = np.eye(4) if T_world_wrist is None else T_world_wrist
    data.joint("palm").qpos = se3.to_pose(pose)
    for joint, angle in angles.items():
        data.joint(joint).qpos = angle
    mujoco.mj_kinematics(model, data)
    return np.stack([data.site(name).xpos for name in LANDMARKS])


FINGER_NAMES = ("index", "middle", "ring", "little")
FIST = {f"{f}_{k}": a for f in FINGER_NAMES for k, a in ((1, 1.3), (2, 1.5), (3, 0.8))}
PINCH = {"thumb_oppose": 0.95, "thumb_spread": -0.05, "thumb_1": 0.1, "thumb_2": 0.3, "thumb_3": 0.3,
         "index_1": 0.80, "index_2": 0.75, "index_3": 0.45}  # fmt: skip


@pytest.fixture(scope="session")
def motion() -> np.ndarray:
    """Landmarks of a right hand that goes from open to a fist, back, and to a pinch, while it moves about [m]."""
    frames = []
    for k, share in enumerate([*np.linspace(0, 1, 20), *np.linspace(1, 0, 20)]):
        T = se3.exp(np.array([0.01 * k, 0.1, -0.003 * k, 0.02 * k, 0.3, -0.01 * k]))
        frames.append(gesture({j: share * a for j, a in FIST.items()}, T))
    frames += [gesture({j: share * a for j, a in PINCH.items()}, T) for share in np.linspace(0, 1, 20)]
    return np.stack(frames)
