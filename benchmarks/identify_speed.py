"""How long a fit takes, against mujoco.sysid and MJX on the same problem in the same run, and how that grows."""

from __future__ import annotations

import numpy as np

from benchmarks import peers
from benchmarks.identify import MOTIONS, trial
from benchmarks.metric import Metric
from dexloop.identify.cfg import IdentifyCfg


def run() -> list[Metric]:
    return _seconds() + _speed() + _growth()


def _seconds() -> list[Metric]:
    """The whole of a fit, calibration of the robot included, with all cores."""
    fit, _ = trial("meat_can", 100, MOTIONS, IdentifyCfg())
    parts = ", ".join(f"{name} {s:.0f}" for name, s in fit.seconds.items())
    return [Metric("three motions: seconds a fit", sum(fit.seconds.values()), "s", "lower", 1.0, note=parts)]


def _speed() -> list[Metric]:
    """One push, 4 parameters, 750 steps: against mujoco.sysid and MJX in the same run."""
    shared = peers.problem()
    ours = peers.run_solver(shared)
    sysid = peers.run_sysid(shared)
    mjx = peers.run_mjx(shared)
    return [
        Metric("speed: whole fit against mujoco.sysid", sysid.total_s / ours.total_s, "x", "higher", 0.5, 10.0,
               f"{ours.total_s:.2f} s to cost {ours.cost:.0f}, sysid {sysid.total_s:.2f} s to {sysid.cost:.0f}"),
        Metric("speed: a Jacobian against MJX", mjx.jacobian_s / ours.jacobian_s, "x", "higher", 0.5, 20.0,
               f"{1e3 * ours.jacobian_s:.0f} ms, MJX {1e3 * mjx.jacobian_s:.0f} ms without compiling"),
        Metric("speed: a Jacobian against mujoco.sysid", sysid.jacobian_s / ours.jacobian_s, "x", "higher", 0.5),
    ]  # fmt: skip


def _growth() -> list[Metric]:
    """How the cost of a Jacobian grows: an exponent of one is linear."""
    metrics = []
    for what, curve in peers.growth().items():
        (n0, t0), (n1, t1) = curve[0], curve[-1]
        note = ", ".join(f"{n}: {1e3 * t:.0f} ms" for n, t in curve)
        exponent = float(np.log(t1 / t0) / np.log(n1 / n0))
        metrics.append(Metric(f"growth: exponent of {what}", exponent, "1", "lower", 0.3, 1.1, note))
    return metrics
