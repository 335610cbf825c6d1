"""The command line: parses, calls a verb, prints where the result is."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, arg, subcommand

from dexloop import console
from dexloop.capture.plans import FreeMotion, HumanVideo, Lift, Push, Scan
from dexloop.core.errors import DexloopError, InputError
from dexloop.lab.cfg import LabCfg


@dataclass(frozen=True)
class _Command:
    json: bool = False
    """Print one JSON document instead of text."""


@dataclass(frozen=True)
class Doctor(_Command):
    """Say whether this machine is fit: versions, drawing, disk, and each optional part with how to get it."""

    def run(self) -> int:
        """Diagnoses."""
        from dexloop import doctor
        from dexloop.core.status import Level

        findings = doctor.diagnose()
        verdict = doctor.verdict(findings)
        if self.json:
            console.say_json(doctor.to_json(findings))
        else:
            rows = [(f.name, console.coloured(f.status), f.detail, f.status.action) for f in findings]
            console.show(rows, ("part", "state", "what there is", "what to do"))
            console.say(str(verdict))
        return 1 if verdict.level is Level.FAIL else 0


@dataclass(frozen=True)
class Robots(_Command):
    """List the robots, or look at one: joints, limits, fingertips, and what is wrong with it."""

    name: Positional[str | None] = None
    """A built-in robot, HAND@ARM, a Menagerie model, or the path of an .xml or .urdf file."""
    picture: Path | None = None
    """Draw the robot into this PNG file."""

    def run(self) -> int:
        """Lists or describes."""
        from dexloop.show import robots

        return robots(self.name, picture=self.picture, json=self.json)


@dataclass(frozen=True)
class LabCommand(_Command):
    """Look at the embedded lab: its objects, what its rig offers, a picture of it."""

    lab: OmitArgPrefixes[LabCfg] = field(default_factory=LabCfg)
    picture: Path | None = None
    """Take a picture with the lab's camera into this PNG file."""
    truth: bool = False
    """Print the hidden truth. For scoring only: nothing that measures may see it."""

    def run(self) -> int:
        """Describes."""
        from dexloop.show import lab

        return lab(self.lab, picture=self.picture, truth=self.truth, json=self.json)


@dataclass(frozen=True)
class _Record(_Command):
    out: Annotated[Path, arg(aliases=["-o"])] = Path("runs/capture")
    """Where the Capture shall be."""
    rig: str = "lab"
    """"lab", or MODULE:FUNCTION that gives a `dexloop.rig.Rig` for your robot."""
    lab: OmitArgPrefixes[LabCfg] = field(default_factory=LabCfg)
    repeat: int = 1
    """How many times."""
    replace: bool = False
    """Put the Capture in the place of one that is there."""

    def run(self) -> int:
        """Records."""
        from dexloop.capture.record import capture
        from dexloop.show import captured

        if self.repeat < 1:
            raise InputError(f"--repeat takes 1 or more, not {self.repeat}")
        plan: Any = self.plan  # type: ignore[attr-defined] - each command brings its own
        rig = make_rig(self.rig, self.lab)
        with console.progress(quiet=self.json) as tell:
            result = capture(rig, [plan] * self.repeat, self.out, replace=self.replace, progress=tell)
        return captured(result, json=self.json)


@dataclass(frozen=True)
class RecordScan(_Record):
    """Walk once around the object with a hand-held camera."""

    plan: OmitArgPrefixes[Scan] = field(default_factory=Scan)


@dataclass(frozen=True)
class RecordFreeMotion(_Record):
    """Move the robot alone, so that it can be calibrated."""

    plan: OmitArgPrefixes[FreeMotion] = field(default_factory=FreeMotion)


@dataclass(frozen=True)
class RecordPush(_Record):
    """Push the object with one fingertip."""

    plan: OmitArgPrefixes[Push] = field(default_factory=Push)


@dataclass(frozen=True)
class RecordLift(_Record):
    """Pinch the object, lift it, hold it and put it down."""

    plan: OmitArgPrefixes[Lift] = field(default_factory=Lift)


@dataclass(frozen=True)
class RecordHuman(_Record):
    """Film a human hand that grasps the object."""

    plan: OmitArgPrefixes[HumanVideo] = field(default_factory=HumanVideo)


@dataclass(frozen=True)
class Import(_Command):
    """Bring recordings from anywhere: folders of CSV and MP4, MCAP, ROS 2 bags, LeRobot datasets, videos."""

    sources: Positional[tuple[Path, ...]] = ()
    """Folders with capture.toml, .mcap files, bag folders, LeRobot dataset folders, or videos."""
    out: Annotated[Path, arg(aliases=["-o"])] = Path("runs/imported")
    """Where the Capture shall be."""
    units: tuple[str, ...] = ()
    """Units of joints that the data do not tell, as JOINT=UNIT (m for sliding joints), or one unit for all."""
    episodes: tuple[int, ...] = ()
    """Which episodes of a LeRobot dataset; all if none is given."""
    fps: float | None = None
    """Frame rate of a bare video, where the file does not know [1/s]."""
    fov_y_deg: float | None = None
    """Vertical field of view of a bare video's camera [degrees]."""
    intrinsics: tuple[float, float, float, float] | None = None
    """Of a bare video's camera: fx fy cx cy [px]."""
    replace: bool = False
    """Put the Capture in the place of one that is there."""

    def run(self) -> int:
        """Imports."""
        from dexloop.show import captured, imported

        return captured(imported(self), json=self.json)


@dataclass(frozen=True)
class Show(_Command):
    """Say what is in a Capture, and draw it. What a killed recorder left is made whole first."""

    path: Positional[Path] = Path("runs/capture")
    """The Capture's folder."""
    picture: Path | None = None
    """Draw the recordings into this PNG file."""

    def run(self) -> int:
        """Shows."""
        from dexloop.rig.recorder import open_capture
        from dexloop.show import captured

        return captured(open_capture(self.path), json=self.json, picture=self.picture)


CaptureVerbs = (
    Annotated[RecordPush, subcommand("push")]
    | Annotated[RecordLift, subcommand("lift")]
    | Annotated[RecordFreeMotion, subcommand("free-motion")]
    | Annotated[RecordScan, subcommand("scan")]
    | Annotated[RecordHuman, subcommand("human")]
    | Annotated[Import, subcommand("import")]
    | Annotated[Show, subcommand("show")]
)


@dataclass(frozen=True)
class CaptureCommand:
    """Record with a rig, bring recordings from elsewhere, or look at them."""

    verb: OmitSubcommandPrefixes[OmitArgPrefixes[CaptureVerbs]]

    def run(self) -> int:
        """Does what was asked."""
        return self.verb.run()


@dataclass(frozen=True)
class Replay(_Command):
    """Replay a simulated world that became unstable, from the file that was written then."""

    dump: Positional[Path] = Path("diverged.npz")
    """The file."""

    def run(self) -> int:
        """Replays."""
        from dexloop.sim.divergence import read_dump

        dump = read_dump(self.dump)
        step, data = dump.replay()
        found = {
            "reason": dump.reason, "parameters": dump.parameters, "step": step, "steps": dump.steps,
            "time_s": float(data.time), "again": step < dump.steps,
        }  # fmt: skip
        if self.json:
            console.say_json(found)
        else:
            console.say(f"{dump.reason}; with {dump.parameters}")
            console.say(
                f"unstable again at step {step} of {dump.steps}" if found["again"] else "it went well this time"
            )
        return 0


@dataclass(frozen=True)
class Demo(_Command):
    """Run every stage that exists, end to end, in the lab."""

    out: Annotated[Path, arg(aliases=["-o"])] = Path("runs/demo")
    """The run's folder; an unfinished run goes on where it was."""
    object: str = "meat_can"
    """One of the lab's objects."""
    seed: int = 7
    """Of the lab's hidden truth."""

    def run(self) -> int:
        """Runs the demo."""
        from dexloop.demo import demo

        with console.progress(quiet=self.json) as tell:
            summary = demo(self.out, object_name=self.object, seed=self.seed, progress=tell)
        if self.json:
            console.say_json(summary)
        else:
            console.show([(k, v) for k, v in summary.items()], ("", ""))
        return 0


Commands = (
    Annotated[Doctor, subcommand("doctor")]
    | Annotated[Demo, subcommand("demo")]
    | Annotated[Robots, subcommand("robots")]
    | Annotated[LabCommand, subcommand("lab")]
    | Annotated[CaptureCommand, subcommand("capture")]
    | Annotated[Replay, subcommand("replay-dump")]
)

_ABOUT = "From an object on a real table to a robot hand that grasps it there, through a measured simulation."


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
    except (ImportError, AttributeError) as error:
        raise InputError(f"--rig {spec}: {error}") from error
    if not isinstance(rig, Rig):
        raise InputError(f"--rig {spec} gave a {type(rig).__name__}, which lacks methods of dexloop.rig.protocol.Rig")
    return rig


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command line and ends the process.

    The exit code is 0 for well, 1 unfit, 2 bad input, 3 a failed trial, 4 a halt, 130 Ctrl-C.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    command = tyro.cli(Commands, prog="dexloop", description=_ABOUT, args=arguments, config=(OmitSubcommandPrefixes,))
    machine = "--json" in arguments
    try:
        code = command.run()
    except DexloopError as error:
        code = error.exit_code
        if machine:
            console.say_json({"error": str(error), "kind": type(error).__name__})
        else:
            console.complain(str(error))
    except KeyboardInterrupt:
        console.complain("stopped by the user; what was finished is kept")
        code = 130
    except BrokenPipeError:
        code = 0  # the reader of our output has gone, as `| head` does
    sys.exit(code)


if __name__ == "__main__":
    main()
