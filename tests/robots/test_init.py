from __future__ import annotations

import subprocess
import sys

import dexloop.robots

PUBLIC = {
    "Collisions", "Embodiment", "Fingertip", "IkCfg", "IkResult", "Kinematics", "Motion", "Overrides", "Plan",
    "PlanCfg", "Touch", "Trajectory", "check", "import_robot", "load", "mount", "names", "plan", "solve_ik",
    "straight", "through",
}  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert set(dexloop.robots.__all__) == PUBLIC
    assert all(hasattr(dexloop.robots, name) for name in PUBLIC)


def test_loading_a_robot_does_not_load_solvers() -> None:
    script = (
        "import sys, dexloop.robots as r; r.load('dex16@wrist'); print({'mink', 'ompl', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
