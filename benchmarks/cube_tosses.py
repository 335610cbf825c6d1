"""Real data: tosses of the ContactNets cube (as republished by Dojo, MIT), as a capture and a model to fit.

`python -m benchmarks.cube_tosses` fits ten of them, predicts five others, and prints what it found.
The data are not part of dexloop: `DEXLOOP_CUBE_TOSSES` says where they are, else `../shared/data/cube_tosses`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dexloop.core import se3
from dexloop.core.artifact import writing
from dexloop.core.capture import POSE_CHANNELS, Capture, Stream, StreamInfo
from dexloop.core.errors import InputError
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.stage import Fit, solve, summary
from dexloop.rig.imported import ImportedRecording, save_recording
from dexloop.rig.layout import describe

HALF_WIDTH_M = 0.0524
RATE_HZ = 148.0
BOARD_Z_M = -0.0018
"""Of the board: where the lowest corners lie when the cube has come to rest."""
MASS, INERTIA = 0.37, 0.00081
"""Measured on scales [kg]; that of a cube of these outer dimensions and weight [kg m²]."""
FRICTION = (0.12, 0.21)
"""Where the friction with the board must lie: 0.15 to 0.18 were published."""
START = {"mass": 0.6, "inertia": 0.0018, "friction": 0.35}
"""A guess that is off by a factor of 1.6, 1.4 (inertia over mass) and 2."""
PARAMETERS = ("object.mass", "object.inertia", "table.friction")
WINDOW_S = 0.12
"""About from one impact to the next [s]: what comes after several depends on the start beyond reason."""
_TOSSES, _HELD_OUT = 10, 5


@dataclass(frozen=True)
class Found:
    """What a fit says of the cube."""

    fit: Fit
    friction: float
    friction_interval: tuple[float, float]
    inertia_per_mass: float
    """Mean principal inertia over mass [m²]."""
    mass_identifiable: bool
    held_out: dict[str, dict[str, float]]
    """Root mean square errors "before" and "after", by stream."""
    seconds: float


def folder() -> Path | None:
    """Returns where the data are; None if they are not here."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data" / "cube_tosses"
    found = Path(os.environ.get("DEXLOOP_CUBE_TOSSES", beside))
    return found if (found / "0.csv").is_file() else None


def model(
    path: Path,
    *,
    mass: float = START["mass"],
    inertia: float = START["inertia"],
    friction: float = START["friction"],
    timestep_s: float = 0.002,
) -> Path:
    """Writes the cube and the board as MJCF: mass [kg], inertia [kg m²]."""
    path.write_text(f"""
<mujoco>
  <option timestep="{timestep_s}" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <default><geom solref="-30000 -208" solimp="0 0.95 0.001 0.5 2"/></default>
  <worldbody>
    <geom name="table" type="plane" size="5 5 0.1" pos="0 0 {BOARD_Z_M}" priority="1"
          friction="{friction} 0.001 0.0001"/>
    <body name="cube" pos="0 0 0.5">
      <freejoint/>
      <inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia} {inertia} {inertia}"/>
      <geom name="cube" type="box" size="{HALF_WIDTH_M} {HALF_WIDTH_M} {HALF_WIDTH_M}"/>
    </body>
  </worldbody>
</mujoco>
""")
    return path


def read(source: Path, number: int) -> Stream:
    """Reads one toss: the cube's pose in metres, on the clock of the cameras."""
    rows = np.loadtxt(source / f"{number}.csv", delimiter=",")
    pose = rows[:, :7].copy()
    pose[:, :3] *= HALF_WIDTH_M
    pose[:, 3:] /= np.linalg.norm(pose[:, 3:], axis=1, keepdims=True)
    units = ("m",) * 3 + ("1",) * 4
    info = StreamInfo("pose", "pose", POSE_CHANNELS, units, "camera", RATE_HZ, about="object")
    return Stream(info, np.arange(len(pose)) / RATE_HZ, pose)


def recorded(source: Path, out: Path, numbers: Sequence[int]) -> Capture:
    """Writes some tosses as a capture, one recording each: "toss_0" and so on."""
    with writing(out, Capture) as draft:
        saved = []
        for k in numbers:
            found = ImportedRecording(f"toss_{k}", {}, {}, (read(source, k),), (), str(source / f"{k}.csv"))
            saved.append(save_recording(draft.folder / "recordings" / found.name, found, None))
        describe(draft, saved)
    return Capture.open(out)


def fitted(tosses: int = _TOSSES, held_out: int = _HELD_OUT, *, first: int = 0) -> Found:
    """Fits some tosses, from the first on, and predicts the ones after them.

    The contact's softness and the windows were chosen by looking at tosses 0 to 5, with the published values.

    Raises:
        InputError: The data are not here.
    """
    source = folder()
    if source is None:
        raise InputError("the tosses are not here: set DEXLOOP_CUBE_TOSSES to the folder with 0.csv")
    numbers = range(first, first + tosses + held_out)
    names = tuple(f"toss_{k}" for k in numbers[tosses:])
    cfg = IdentifyCfg(parameters=PARAMETERS, held_out=names, window_s=WINDOW_S)
    with tempfile.TemporaryDirectory() as place:
        capture = recorded(source, Path(place) / "capture", numbers)
        begin = time.perf_counter()
        fit = solve(model(Path(place) / "cube.xml"), capture, cfg=cfg)
        seconds = time.perf_counter() - begin
    said = summary(fit)
    values = {name: row["mean"] for name, row in said["parameters"].items()}
    inertia = float(np.mean([values[f"object.inertia.{axis}"] for axis in ("xx", "yy", "zz")]))
    low, high = said["parameters"]["table.friction"]["interval"]
    return Found(
        fit=fit,
        friction=values["table.friction"],
        friction_interval=(low, high),
        inertia_per_mass=inertia / values["object.mass"],
        mass_identifiable=said["parameters"]["object.mass"]["identifiable"],
        held_out=said["checks"]["held_out"],
        seconds=seconds,
    )


def inertia_by_impacts(numbers: Sequence[int] = range(40)) -> tuple[float, float]:
    """Returns inertia over mass [m²] without any simulator, by the balance of momentum where one corner strikes.

    What the board does to the cube passes through that corner r: r x Δv = (I / m) Δω, with Δv the change of velocity
    beyond that of gravity. Both sides have errors, so the slope is between those of the two regressions.
    """
    source = folder()
    if source is None:
        raise InputError("the tosses are not here: set DEXLOOP_CUBE_TOSSES to the folder with 0.csv")
    corners = HALF_WIDTH_M * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    gravity = np.array([0.0, 0.0, -9.81])
    turned, struck = [], []
    for number in numbers:
        pose = read(source, number).value
        R = se3.quat_to_matrix(pose[:, 3:])
        v = np.diff(pose[:, :3], axis=0) * RATE_HZ
        step = se3.quat_multiply(pose[1:, 3:], se3.quat_inverse(pose[:-1, 3:]))
        w = se3.so3_log(step) * RATE_HZ
        free = np.abs(np.diff(v, axis=0) * RATE_HZ - gravity).max(axis=1) < 4.0  # flies from one frame to the next
        for i in range(3, len(v) - 6):
            if not (free[i - 3 : i - 1].all() and free[i + 3 : i + 5].all()):
                continue
            dv = v[i + 3] - v[i - 1] - gravity * 4 / RATE_HZ
            reach = np.einsum("nij,kj->nki", R[i : i + 4], corners)
            low = reach[..., 2] + pose[i : i + 4, None, 2]
            at = int(low.min(axis=1).argmin())
            first, second = np.sort(low[at])[:2]
            if np.linalg.norm(dv) > 0.5 and second - first > 0.015:  # a blow, to one corner
                turned.append(w[i + 3] - w[i - 1])
                struck.append(np.cross(reach[at, low[at].argmin()], dv))
    A, B = np.array(turned), np.array(struck)
    return float((A * B).sum() / (A * A).sum()), float((B * B).sum() / (A * B).sum())


def _main() -> None:
    found = fitted()
    said = summary(found.fit)
    truth = INERTIA / MASS
    print(f"{_TOSSES} tosses, {_HELD_OUT} held out: {found.seconds:.1f} s; {said['text']}")
    low, high = found.friction_interval
    print(f"friction {found.friction:.3f} [{low:.3f}, {high:.3f}], asked for: within {FRICTION[0]} to {FRICTION[1]}")
    print(f"inertia/mass {found.inertia_per_mass:.5f} m², {100 * (found.inertia_per_mass / truth - 1):+.1f} % off")
    print("by the balance of momentum at impacts, without a simulator: {:.5f} to {:.5f}".format(*inertia_by_impacts()))
    print(f"mass identifiable: {found.mass_identifiable} (must be False)")
    for stream, after in found.held_out.get("after", {}).items():
        print(f"held out {stream}: {found.held_out['before'][stream]:.4g} before, {after:.4g} after")
    for row in said["combinations"]:
        print(f"{row['name']} = {row['value']:.4g} {row['unit']} [{row['interval'][0]:.4g}, {row['interval'][1]:.4g}]")


if __name__ == "__main__":
    _main()
