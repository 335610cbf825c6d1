"""A friction mini-lab: train a policy at three frictions, try it at one that was held out, and write down the gap.

Takes about two minutes of one core, and about one with --quick: fewer demonstrations, epochs and worlds, shorter
trials, and none at a friction that was trained at. A policy that is there already is not trained again.

python examples/04_friction_mini_lab.py --out runs/friction
dexloop report runs/friction
"""

import argparse
from pathlib import Path

import numpy as np

from dexloop.audit import ledger
from dexloop.audit.cfg import AuditCfg
from dexloop.audit.stage import audit
from dexloop.capture import HumanVideo, capture
from dexloop.core.run import Run
from dexloop.core.stated import state_belief
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.demonstrate.stage import demonstrate
from dexloop.deploy.cfg import DeployCfg
from dexloop.deploy.stage import deploy
from dexloop.lab import Lab, LabCfg
from dexloop.lab.known_twin import known_twin
from dexloop.train.cfg import TrainCfg
from dexloop.train.stage import train

TRAINED = (0.5, 0.65, 0.8)
MASS_KG = 0.12

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", type=Path, default=Path("runs/friction"))
parser.add_argument("--held-out", type=float, default=0.2, help="friction of the fingertips in the lab")
parser.add_argument("--quick", action="store_true", help="do less of everything")
args = parser.parse_args()
held_out, quick = args.held_out, args.quick

# One thing at a time: the cube was weighed, and the motors are as their data sheet says. Only friction will differ.
lab = Lab(LabCfg(object="cube", seed=2, video=False, picture_px=(320, 240)))
truth = lab.truth()
lab = lab.otherwise(
    mass_kg=MASS_KG, inertia=truth.inertia * MASS_KG / truth.mass_kg, delay_s=0.0, clock_offset_s=0.0, effort_scale=1.0,
    actuator_gain=1.0, actuator_damping=1.0, joint_friction=1.0, joint_armature=1.0,
)  # fmt: skip

run = Run.create(args.out, options={"quick": quick})

# A film of a hand that takes the cube. The cube's shape is given here: a scan would take longer than all the rest.
film = run.ensure("capture", lambda path: capture(lab.rig(), [HumanVideo(fps=8.0)], path))
twin = run.ensure("twin", lambda path: known_twin(film, path))

# What is believed: the mass to 3 %, and each of the three frictions as likely as the others. From this belief are the
# worlds in which `audit` lets the policy try again, so that "simulation" is where it was trained.
mass = MASS_KG * np.exp(0.03 * np.random.default_rng(0).normal(size=300))
friction = np.resize(TRAINED, 300)
believed = {"object.mass": mass, "fingertip.friction": friction}
belief = state_belief(run.path / "belief", believed, why="weighed, and three frictions planned", replace=True)

# Demonstrations in worlds of the three frictions, and a policy that imitates them.
showing = DemonstrateCfg(
    tries=60, holds=1 if quick else 2, worlds=3, keep=0.5, frictions=TRAINED, episodes=15 if quick else 48
)
demos = run.ensure("demonstrate", lambda path: demonstrate(twin, belief, film, path, cfg=showing))
print(demos.status)
learning = TrainCfg(epochs=25 if quick else 40, batch=512, learning_rate=2e-3, hidden=128)
policy = run.ensure("train", lambda path: train(demos, path, cfg=learning))
print(policy.status)


def attempt(friction: float, folder: Path, number: int, before=None):
    """Tries the policy in the lab with fingertips of some friction, and lays that beside simulation."""
    there = lab.otherwise(finger_friction=friction)
    trials = DeployCfg(trials=1, hold_s=0.2 if quick else 1.0, shake_s=0.4 if quick else 1.0)
    episodes = deploy(policy, twin, belief, there.rig, folder / "7_deploy", cfg=trials, replace=True)
    cfg = AuditCfg(worlds=3 if quick else 6, bands=3 if quick else 6, round=number)
    known = {"finger friction in the lab": friction, "trained at": list(TRAINED)}
    return audit(
        episodes, policy, twin, belief, folder / "8_audit", cfg=cfg, before=before, changed=known, replace=True
    )


# First, to see that nothing else is wrong, at a friction that was trained at; then at the one that was held out.
control = None if quick else attempt(TRAINED[1], run.path, 1)
found = attempt(held_out, run.path / "round_2", 2, before=control)

# Reading a ledger checks that each line follows from the one before it: nothing was changed or left out.
for row in ledger.read(found.path):
    print(f"case {row['case']}, friction {row['changed']['finger friction in the lab']:g}: it {row['signature']}; "
          f"in simulation {100 * row['sim']['held']:.0f} % held")  # fmt: skip
    print(f"  first divergence: {row['first'] or 'none'}")
    for cause in row["causes"]:
        print(f"  suspect: {cause['says']} (explains {100 * cause['explains']:.0f} %)")
    print(f"  next: {' '.join([row['next']['do'], *row['next']['parameters']])}: {row['next']['why']}")
gap = found.header.meta["success"]
low, high = gap["interval"]
print(f"gap at friction {held_out:g}: {100 * gap['gap']:+.0f} points ({100 * low:+.0f} to {100 * high:+.0f})")
