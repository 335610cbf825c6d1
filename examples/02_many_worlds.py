"""Simulate a thousand tins of different mass and friction at once, and see how far each coasts.

python examples/02_many_worlds.py
"""

import numpy as np

from dexloop.sim.parts import Primitive, Table, Thing
from dexloop.sim.scene import SceneCfg, compose
from dexloop.sim.world import World

tin = Thing("tin", Primitive("cylinder", (0.05, 0.025)), mass_kg=0.21, pose=(0, 0, 0.025, 1, 0, 0, 0))
# A slide comes out about half a step times its speed too short, so the step is what limits this comparison.
scene = compose(Table(size_m=(4.0, 1.0)), tin, cfg=SceneCfg(timestep_s=0.001))

# Parameters are known by name; every world has its own values.
n = 1000
world = World(scene, n, parameters=["object.mass", "table.friction"])
rng = np.random.default_rng(0)
friction = rng.uniform(0.2, 0.9, n)
world.set({"object.mass": rng.uniform(0.1, 0.4, n), "table.friction": friction})

# All start at 0.5 m/s and are rolled out in one call.
qvel = np.zeros(world.model.nv)
qvel[0] = 0.5
world.reset(qvel=qvel)
way = world.rollout(steps=800, record=["object.pose"]).require()["object.pose"][:, -1, 0]

# Coulomb: v²/(2 μ g), whatever the mass.
expected = 0.5**2 / (2 * friction * 9.81)
print(f"largest deviation from Coulomb: {100 * np.abs(way / expected - 1).max():.1f} %")
