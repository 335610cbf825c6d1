"""Find mass and friction of a box from your own model and your own recording; takes about ten seconds.

The same from the command line, once the files are there:

    dexloop capture import runs/own/push --out runs/own/capture
    dexloop identify --model runs/own/scene.xml --capture runs/own/capture \
        --parameters object.mass,table.friction --json runs/own/out.json

python examples/03_identify_your_own_model.py --out runs/own
"""

import argparse
from pathlib import Path

import mujoco
import numpy as np

from dexloop.capture.importing import import_capture
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.stage import identify

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", type=Path, default=Path("runs/own"))
out = parser.parse_args().out

# A box on a table, and a ball on a slide that pushes it. The table's friction is that of the contact, whatever the box
# has, for its priority is higher: else MuJoCo takes the larger one of both, and the table's might change nothing.
SCENE = """
<mujoco>
  <option timestep="{step}" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <worldbody>
    <geom name="table" type="plane" size="1 1 0.1" friction="{friction} 0.005 0.0001" priority="1" {soft}/>
    <body name="box" pos="0 0 0.03">
      <freejoint/>
      <geom name="box" type="box" size="0.03 0.03 0.03" mass="{mass}" {soft}/>
    </body>
    <body name="pusher" pos="-0.05 0 0.03">
      <joint name="slide" type="slide" axis="1 0 0" damping="0.5"/>
      <geom name="tip" type="sphere" size="0.012" mass="0.15" contype="2" friction="0.3" priority="2" {soft}/>
    </body>
  </worldbody>
  <actuator><position name="slide" joint="slide" kp="600" kv="15"/></actuator>
</mujoco>"""
SOFT = 'solimp="0 0.95 0.001"'  # contacts set in softly: with MuJoCo's own 0.9 a sliding box hops
MASS_KG, FRICTION, AHEAD_S = 0.34, 0.42, 0.03

# 1. Your model. Its mass and friction are guesses.
out.mkdir(parents=True, exist_ok=True)
model_file = out / "scene.xml"
model_file.write_text(SCENE.format(step=0.002, mass=0.2, friction=0.6, soft=SOFT))

# 2. Your recording. Here a simulation with finer steps stands for the bench, with mass and friction planted in it.
model = mujoco.MjModel.from_xml_string(SCENE.format(step=0.0005, mass=MASS_KG, friction=FRICTION, soft=SOFT))
data = mujoco.MjData(model)
rng = np.random.default_rng(0)
mujoco.mj_step(model, data, nstep=1000)  # it comes to rest
robot, tracker = [], []
for k in range(3000):
    t = k * model.opt.timestep
    # A quick stroke after which the box coasts, then a slower one: the first tells the mass, the second the friction.
    data.ctrl[0] = np.clip(0.5 * (t - 0.25), 0.0, 0.06) + np.clip(0.25 * (t - 0.7), 0.0, 0.09)
    if k % 2 == 0:  # a thousand a second: what was sent more rarely is taken to be held from one to the next
        row = [data.ctrl[0], data.joint("slide").qpos[0], data.actuator("slide").force[0]]
        robot.append([t, *(row + rng.normal(0.0, [0.0, 2e-5, 0.02]))])
    if k % 20 == 0:
        # A tracker has noise, and a watch of its own, which is ahead of the robot's. It counts in millimetres.
        pose = data.body("box").xpos + rng.normal(0.0, 2e-4, 3)
        tracker.append([t + AHEAD_S, *(1e3 * pose), *data.body("box").xquat])
    mujoco.mj_step(model, data)

# 3. The folder, as docs/capture-format.md has it: a text file, and one CSV file for each sensor.
folder = out / "push"
folder.mkdir(exist_ok=True)
robot, tracker = np.array(robot), np.array(tracker)
for column, name in enumerate(("command", "position", "effort"), start=1):
    np.savetxt(folder / f"{name}.csv", robot[:, [0, column]], "%.6f", ",", header="t,slide", comments="")
np.savetxt(folder / "box.csv", tracker, "%.6f", ",", header="t,x,y,z,qw,qx,qy,qz", comments="")
(folder / "capture.toml").write_text("""
[streams.command]
kind = "joint_command"
unit = "m"
[streams.position]
kind = "joint_position"
unit = "m"
[streams.effort]
kind = "joint_effort"
unit = "N"
[streams.box]
kind = "pose"
unit = "mm"
about = "object"
clock = "tracker"
""")
capture = import_capture(folder, out / "capture", replace=True)
print(capture.status)

# 4. What do model and recording tell together?
asked = IdentifyCfg(parameters=("object.mass", "table.friction"))
belief = identify(model_file, capture, out / "belief", cfg=asked, replace=True)
print(belief.status)
for name, planted in (("object.mass", MASS_KG), ("table.friction", FRICTION)):
    row = belief.header.meta["parameters"][name]
    low, high = row["interval"]
    print(f"{name} [{row['unit']}]: {row['mean']:.3f} ({low:.3f} to {high:.3f}), planted {planted}")
clock = belief.header.meta["clocks"]["tracker"]
low, high = (1e3 * value for value in clock["interval_s"])
print(f"tracker's clock [ms]: {1e3 * clock['offset_s']:.1f} ({low:.1f} to {high:.1f}), planted {1e3 * AHEAD_S:.0f}")
