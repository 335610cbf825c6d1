"""Commands of the loop's second half: what touches a robot, and what comes of it."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import OmitArgPrefixes, Positional, arg

from dexloop.audit.cfg import AuditCfg
from dexloop.core.errors import InputError
from dexloop.deploy.cfg import DeployCfg
from dexloop.lab.cfg import LabCfg
from dexloop.loop_cfg import LoopCfg


@dataclass(frozen=True)
class Command:
    """What all commands share."""

    json: bool = False
    """Print one JSON document instead of text."""

    draws: ClassVar[bool] = True
    """Whether it may need OpenGL."""


@dataclass(frozen=True)
class _AtRig(Command):
    run_folder: Annotated[Positional[Path], arg(metavar="RUN")] = Path("runs/demo")
    """The run's folder."""
    rig: str = "lab"
    """"lab", or MODULE:FUNCTION that gives a `dexloop.rig.Rig` (see docs/rig.md)."""
    lab: OmitArgPrefixes[LabCfg] = field(default_factory=LabCfg)


@dataclass(frozen=True)
class Deploy(_AtRig):
    """Try a run's policy on a rig, behind the safety gate, and record everything.

    The first trial is a pilot with half the speed limits. A killed deployment goes on with the first trial that is not
    complete.
    """

    replace: bool = False
    """Put the episodes in the place of some that are there."""
    cfg: OmitArgPrefixes[DeployCfg] = field(default_factory=DeployCfg)

    def run(self) -> int:
        """Deploys."""
        from dexloop.show_trials import deployed

        return deployed(self)


@dataclass(frozen=True)
class Audit(Command):
    """Lay a run's trials beside simulated ones: gaps, where they first part, why, and what to do next."""

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")] = Path("runs/demo")
    """The run's folder."""
    replace: bool = False
    """Put the ledger in the place of one that is there."""
    cfg: OmitArgPrefixes[AuditCfg] = field(default_factory=AuditCfg)

    def run(self) -> int:
        """Audits."""
        from dexloop.show_trials import audited

        return audited(self)


@dataclass(frozen=True)
class Loop(_AtRig):
    """Go round: record, twin, identify, demonstrate, train, deploy, audit, and again where the ledger says so.

    Stops when simulation and reality agree, or the budget of real trials is spent. A killed loop goes on where it was.
    """

    cfg: OmitArgPrefixes[LoopCfg] = field(default_factory=LoopCfg)

    def run(self) -> int:
        """Loops."""
        from dexloop.show_trials import looped

        return looped(self)


@dataclass(frozen=True)
class ReplayCase(Command):
    """Do one case of a transfer ledger again in the twin, with the commands that were sent."""

    ledger: Positional[Path] = Path("runs/demo/8_audit")
    """The ledger's folder."""
    case: int = 1
    """Its number."""
    film: Path | None = None
    """Film it into this MP4 file, reality on the left and the twin on the right."""
    picture: Path | None = None
    """Draw both into this PNG file."""

    def run(self) -> int:
        """Replays."""
        from dexloop.show_trials import replayed

        return replayed(self)


@dataclass(frozen=True)
class Report(Command):
    """Write the report of a run again: one HTML file that opens anywhere, offline, and data.json for machines."""

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")] = Path("runs/demo")
    """The run's folder."""

    draws: ClassVar[bool] = False

    def run(self) -> int:
        """Writes it."""
        from dexloop.show_trials import reported

        return reported(self)


def make_rig(spec: str, lab: LabCfg) -> Any:
    """Returns the lab's rig, or the one that MODULE:FUNCTION gives.

    Raises:
        InputError: There is no such function, or it gives no rig.
    """
    if spec == "lab":
        from dexloop.lab.lab import Lab

        return Lab(lab).rig()
    from dexloop.rig.protocol import Rig

    module, colon, function = spec.partition(":")
    if not colon:
        raise InputError(f"--rig takes 'lab' or MODULE:FUNCTION, not {spec!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        rig = getattr(importlib.import_module(module), function)()
    except Exception as error:  # it is the user's code: whatever it raises is an answer
        raise InputError(f"--rig {spec} failed: {type(error).__name__}: {error}") from error
    if not isinstance(rig, Rig):
        raise InputError(f"--rig {spec} gave a {type(rig).__name__}, which lacks methods of dexloop.rig.protocol.Rig")
    return rig
