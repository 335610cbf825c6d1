"""What holds for every test: the GL backend, shape checks on the foundations, and hypothesis's profile."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# MuJoCo chooses its GL backend when it is imported, so this comes before any import that could bring it in.
if sys.platform.startswith("linux"):
    os.environ.setdefault("MUJOCO_GL", "egl")

from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

import tests.shape_check  # noqa: F401 - the hook below finds it by name

# Shapes and types in signatures are checked on every call and in every dataclass while tests run. The hook works on
# modules imported after it, so nothing of dexloop may be imported above.
install_import_hook(["dexloop.core", "dexloop.sim"], "tests.shape_check.check")

# No deadline: the machine may be busy, and a slow example is not a wrong one. CI repeats the same examples each time.
settings.register_profile("dexloop", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dexloop"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dexloop")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def lab_capture(tmp_path_factory: pytest.TempPathFactory):
    """A capture of the lab with everything in it, filmed small: made once, read by many."""
    from dexloop.capture import FreeMotion, HumanVideo, Lift, Push, Scan, capture
    from dexloop.lab import Lab, LabCfg

    lab = Lab(LabCfg(object="cube", seed=4, picture_px=(160, 120)))
    plans = [
        Scan(duration_s=2.0, fps=4.0),
        FreeMotion(duration_s=1.5),
        Push(speed_m_s=0.25),
        Lift(hold_s=0.3),
        HumanVideo(duration_s=1.5, fps=8.0),
    ]
    return capture(lab.rig(), plans, tmp_path_factory.mktemp("lab") / "capture")


@pytest.fixture(scope="session")
def lab_trials(tmp_path_factory: pytest.TempPathFactory):
    """Two trials in the lab, of which the first was complete when the deployment was killed: read by many."""
    from tests.lab_trials import make_trials

    return make_trials(tmp_path_factory.mktemp("trials"))
