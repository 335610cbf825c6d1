"""Push an object in the lab, and look at what the robot felt.

python examples/01_push_in_the_lab.py --out runs/example
"""

import argparse
from pathlib import Path

import numpy as np

from dexloop.capture import Push, capture
from dexloop.lab import Lab, LabCfg

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("runs/example"))
out = parser.parse_args().out

# A lab is an object, a robot and a seed. The seed hides the object's mass and friction, the motors' delay, ...
lab = Lab(LabCfg(object="spread_jar", robot="dex16@wrist", seed=5, video=False))

# One slow and one fast push, recorded as one capture.
made = capture(lab.rig(), [Push(speed_m_s=0.05), Push(speed_m_s=0.3)], out)
print(made.status)

for name, recording in made.recordings.items():
    touch = recording.stream("touch")  # times [s] on the robot's clock, force [N] of each fingertip
    contact = touch.value[:, 0] > 0.5
    pose = recording.stream("object_pose")  # x y z [m], qw qx qy qz, on the camera's clock
    way = np.linalg.norm(pose.value[-1, :3] - pose.value[0, :3])
    print(f"{name}: {np.median(touch.value[contact, 0]):.2f} N while touching, the jar went {1e3 * way:.0f} mm")

# The truth is for scoring. A stage of dexloop never sees it.
truth = lab.truth()
print(f"truth: friction times weight is {truth.table_friction * truth.mass_kg * 9.81:.2f} N")
