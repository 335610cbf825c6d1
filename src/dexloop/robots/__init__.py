"""Embodiments: built-in hands and arms, import of MJCF, URDF and Menagerie models, kinematics and planning."""

from dexloop.robots.catalog import load as load
from dexloop.robots.catalog import names as names
from dexloop.robots.collision import Collisions as Collisions
from dexloop.robots.collision import Touch as Touch
from dexloop.robots.conformance import check as check
from dexloop.robots.embodiment import Embodiment as Embodiment
from dexloop.robots.embodiment import Fingertip as Fingertip
from dexloop.robots.importing import import_robot as import_robot
from dexloop.robots.kinematics import IkCfg as IkCfg
from dexloop.robots.kinematics import IkResult as IkResult
from dexloop.robots.kinematics import Kinematics as Kinematics
from dexloop.robots.kinematics import solve_ik as solve_ik
from dexloop.robots.mount import mount as mount
from dexloop.robots.overrides import Overrides as Overrides
from dexloop.robots.planning import Plan as Plan
from dexloop.robots.planning import PlanCfg as PlanCfg
from dexloop.robots.planning import plan as plan
from dexloop.robots.trajectory import Motion as Motion
from dexloop.robots.trajectory import Trajectory as Trajectory
from dexloop.robots.trajectory import straight as straight
from dexloop.robots.trajectory import through as through

__all__ = [
    "Collisions",
    "Embodiment",
    "Fingertip",
    "IkCfg",
    "IkResult",
    "Kinematics",
    "Motion",
    "Overrides",
    "Plan",
    "PlanCfg",
    "Touch",
    "Trajectory",
    "check",
    "import_robot",
    "load",
    "mount",
    "names",
    "plan",
    "solve_ik",
    "straight",
    "through",
]
