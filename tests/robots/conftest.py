"""Robots that several tests share, and small models written out in full."""

from __future__ import annotations

import os
from pathlib import Path

import mujoco
import numpy as np
import pytest

from dexloop.robots import Embodiment, load

FINGER = """
<body name="{name}_a" pos="{x} {y} 0.05">
  <inertial pos="0 0 0.02" mass="0.03" diaginertia="1e-5 1e-5 2e-6"/>
  <joint name="{name}_1" axis="0 1 0" range="{low} {high}" damping="0.01" armature="0.0005"/>
  <geom type="capsule" fromto="0 0 0.008 0 0 0.032" size="0.007"/>
  <body name="{name}_b" pos="0 0 0.04">
    <inertial pos="0 0 0.015" mass="0.02" diaginertia="5e-6 5e-6 1e-6"/>
    <joint name="{name}_2" axis="0 1 0" range="{low} {high}" damping="0.01" armature="0.0005"/>
    <geom type="capsule" fromto="0 0 0.006 0 0 0.03" size="0.006"/>
  </body>
</body>
"""
"""Two phalanges along z that bend about y."""


@pytest.fixture(scope="session")
def menagerie(repository: Path) -> Path:
    """A checkout of MuJoCo Menagerie with the two hands."""
    root = Path(os.environ.get("MENAGERIE_ROOT") or repository.parent / "shared" / "menagerie")
    if not (root / "leap_hand" / "right_hand.xml").is_file():
        pytest.skip(f"no MuJoCo Menagerie at {root}: set MENAGERIE_ROOT to a checkout")
    return root


@pytest.fixture(scope="session")
def hand_on_arm() -> Embodiment:
    return load("dex16@arm7")


@pytest.fixture(scope="session")
def hand_on_wrist() -> Embodiment:
    return load("dex16@wrist")


@pytest.fixture
def claw(tmp_path: Path) -> Path:
    """An MJCF hand of two fingers and a thumb on a palm, amid a floor, a light, a camera and a loose ball."""
    fingers = (
        FINGER.format(name="index", x=-0.02, y=0.02, low=-0.2, high=1.5)
        + FINGER.format(name="middle", x=-0.02, y=-0.02, low=-0.2, high=1.5)
        + FINGER.format(name="thumb", x=0.03, y=0, low=-1.5, high=0.2)
    )
    path = tmp_path / "claw.xml"
    path.write_text(f"""
<mujoco model="claw">
  <compiler angle="radian"/>
  <option timestep="0.001" cone="elliptic" impratio="50"/>
  <worldbody>
    <light pos="0 0 1"/><camera name="eye" pos="0 0 1"/>
    <geom name="floor" type="plane" size="1 1 0.1"/>
    <body name="ball" pos="0.5 0 0.1"><freejoint/><geom size="0.02"/></body>
    <body name="base" pos="0 0 0.2">
      <geom name="palm_box" type="box" size="0.04 0.04 0.02" pos="0 0 0.015" mass="0.2"/>{fingers}
    </body>
  </worldbody>
  <contact>
    {"".join(f'<exclude body1="base" body2="{f}_a"/>' for f in ("index", "middle", "thumb"))}
  </contact>
  <actuator>
    <motor name="m1" joint="index_1" gear="2" ctrlrange="-0.3 0.3"/>
    <position joint="index_2" kp="2" kv="0.05"/>
    <position name="m3" joint="middle_1" kp="2" kv="0.05" forcerange="-0.4 0.4"/>
    <position name="m4" joint="middle_2" kp="2" kv="0.05" forcerange="-0.4 0.4"/>
    <position name="t1" joint="thumb_1" kp="2" kv="0.05" forcerange="-0.4 0.4"/>
    <position name="t2" joint="thumb_2" kp="2" kv="0.05" forcerange="-0.4 0.4"/>
  </actuator>
</mujoco>""")
    return path


@pytest.fixture
def urdf_arm(tmp_path: Path) -> Path:
    """A URDF arm of two links with a parallel gripper, and not a single actuator."""
    inertia = '<inertia ixx="0.002" iyy="0.002" izz="0.001" ixy="0" ixz="0" iyz="0"/>'

    def link(name: str, box: str, at: str, mass: float) -> str:
        geometry = f'<origin xyz="{at}"/><geometry><box size="{box}"/></geometry>'
        return (
            f'<link name="{name}"><inertial><origin xyz="{at}"/><mass value="{mass}"/>{inertia}</inertial>'
            f"<collision>{geometry}</collision></link>"
        )

    def joint(name: str, kind: str, parent: str, child: str, at: str, axis: str, limits: tuple, **more: float) -> str:
        stated = "".join(f' {key}="{value}"' for key, value in more.items())
        return (
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/><origin xyz="{at}"/>'
            f'<axis xyz="{axis}"/><limit lower="{limits[0]}" upper="{limits[1]}"{stated}/></joint>'
        )

    path = tmp_path / "arm.urdf"
    path.write_text(
        '<robot name="arm">'
        + link("base", "0.1 0.1 0.1", "0 0 0.05", 2)
        + link("upper", "0.06 0.06 0.26", "0 0 0.15", 1)
        + link("fore", "0.06 0.06 0.2", "0 0 0.12", 1)
        + link("jaw_l", "0.01 0.02 0.05", "0.005 0 0.035", 0.05)
        + link("jaw_r", "0.01 0.02 0.05", "-0.005 0 0.035", 0.05)
        + joint("turn", "revolute", "base", "upper", "0 0 0.13", "0 0 1", (-2, 2), effort=30, velocity=2.5)
        + joint("bend", "revolute", "upper", "fore", "0 0 0.3", "0 1 0", (-1.5, 1.5), effort=20, velocity=0)
        + joint("left", "prismatic", "fore", "jaw_l", "0 0 0.23", "1 0 0", (0, 0.03), effort=15, velocity=0.1)
        + joint("right", "prismatic", "fore", "jaw_r", "0 0 0.23", "-1 0 0", (0, 0.03), effort=0, velocity=0)
        + "</robot>"
    )  # fmt: skip
    return path


def settle(embodiment: Embodiment, q: np.ndarray, duration_s: float) -> np.ndarray:
    """Simulates the robot alone, told to hold `q`, and returns where its joints are after a while."""
    spec = embodiment.make_spec()
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model = spec.compile()
    data = mujoco.MjData(model)
    for joint, actuator, value in zip(embodiment.joints, embodiment.actuators, q, strict=True):
        data.joint(joint).qpos = value
        data.actuator(actuator).ctrl = value
    while data.time < duration_s:
        mujoco.mj_step(model, data)
    return np.array([data.joint(j).qpos[0] for j in embodiment.joints])
