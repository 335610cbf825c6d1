"""The command line: parses, calls a verb, prints where the result is."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, arg, subcommand

import dexloop
from dexloop import console
from dexloop.capture.plans import FreeMotion, HumanVideo, Lift, Press, Push, Scan
from dexloop.commands import Audit, Command, Deploy, Loop, ReplayCase, Report, make_rig
from dexloop.core.errors import DexloopError, InputError
from dexloop.demonstrate.cfg import DemonstrateCfg
from dexloop.identify.cfg import IdentifyCfg
from dexloop.lab.cfg import LabCfg
from dexloop.sim import gl
from dexloop.train.cfg import TrainCfg
from dexloop.twin.cfg import TwinCfg


@dataclass(frozen=True)
class Doctor(Command):
    """Say whether this machine is fit: versions, drawing, disk, and each optional part with how to get it."""

    draws: ClassVar[bool] = False  # it looks for itself

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
class Robots(Command):
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
class LabCommand(Command):
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
class _Record(Command):
    out: Annotated[Path, arg(aliases=["-o"])] = Path("runs/capture")
    """Where the Capture shall be."""
    rig: str = "lab"
    """"lab", or MODULE:FUNCTION that gives a `dexloop.rig.Rig` (see docs/rig.md)."""
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
class RecordPress(_Record):
    """Press a fingertip onto the table, so that its softness is known."""

    plan: OmitArgPrefixes[Press] = field(default_factory=Press)


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
class Import(Command):
    """Bring recordings from anywhere: folders of CSV and MP4, MCAP, ROS 2 bags, LeRobot datasets, videos."""

    draws: ClassVar[bool] = False

    sources: Positional[tuple[Path, ...]] = ()
    """Folders with capture.toml, .mcap files, bag folders, LeRobot dataset folders, or videos."""
    out: Annotated[Path, arg(aliases=["-o"])] = Path("runs/imported")
    """Where the Capture shall be."""
    units: tuple[str, ...] = ()
    """Units that the data do not tell, as NAME=UNIT: observation.state=deg of a dataset, JOINT=m of a bag."""
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
class Show(Command):
    """Say what is in a Capture, check that nobody changed it, draw it; what a killed recorder left is made whole."""

    draws: ClassVar[bool] = False

    path: Positional[Path] = Path("runs/capture")
    """The Capture's folder."""
    picture: Path | None = None
    """Draw the recordings into this PNG file."""

    def run(self) -> int:
        """Shows."""
        from dexloop.rig.recorder import open_capture
        from dexloop.show import captured

        capture = open_capture(self.path)
        capture.verify()
        return captured(capture, json=self.json, picture=self.picture)


CaptureVerbs = (
    Annotated[RecordPush, subcommand("push")]
    | Annotated[RecordLift, subcommand("lift")]
    | Annotated[RecordFreeMotion, subcommand("free-motion")]
    | Annotated[RecordPress, subcommand("press")]
    | Annotated[RecordScan, subcommand("scan")]
    | Annotated[RecordHuman, subcommand("human")]
    | Annotated[Import, subcommand("import")]
    | Annotated[Show, subcommand("show")]
)


@dataclass(frozen=True)
class CaptureCommand:
    """Record with a rig, bring recordings from elsewhere, or look at them."""

    verb: OmitSubcommandPrefixes[OmitArgPrefixes[CaptureVerbs]]

    @property
    def draws(self) -> bool:
        """Whether it may need OpenGL."""
        return self.verb.draws

    def run(self) -> int:
        """Does what was asked."""
        return self.verb.run()


@dataclass(frozen=True)
class TwinCommand(Command):
    """Make a digital twin that looks right and collides right: of a scan, or of a mesh that you bring.

    `dexloop twin RUN` takes the run's scan and writes the run's twin. With --capture it needs no run; with --mesh, no
    scan.
    """

    run_folder: Annotated[Positional[Path | None], arg(metavar="RUN")] = None
    """The run's folder."""
    capture: Path | None = None
    """A Capture with a scan, instead of the run's."""
    mesh: Path | None = None
    """An OBJ, STL, PLY or GLB file, whatever its state, instead of a scan."""
    unit: str | None = None
    """Of the mesh: m, cm, mm or in; guessed from its size if you do not say."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Where the twin shall be; by default in the run, or beside the capture or the mesh."""
    replace: bool = False
    """Put the twin in the place of one that is there."""
    cfg: OmitArgPrefixes[TwinCfg] = field(default_factory=TwinCfg)

    def run(self) -> int:
        """Makes it."""
        from dexloop.show import twinned

        return twinned(self)


@dataclass(frozen=True)
class Identify:
    """Find mass, friction and the rest from recorded motion: of a run, or of any MJCF model and any Capture.

    `dexloop identify RUN` takes the run's twin and capture and writes the run's belief. With --model and --capture it
    needs no run. `dexloop identify plan RUN` says which motion would tell most next.
    """

    run_folder: Annotated[Positional[tuple[str, ...]], arg(metavar="[plan] RUN")] = ()
    """The run's folder; `plan` before it asks for the next motion instead."""
    model: Path | None = None
    """Any MJCF file with the object, what it lies on and what moves it, instead of a run's twin."""
    capture: Path | None = None
    """A Capture, instead of the run's."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Where the belief shall be; by default in the run, or beside the capture."""
    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write the result as JSON into this file; - prints it."""
    replace: bool = False
    """Put the belief in the place of one that is there."""
    cfg: OmitArgPrefixes[IdentifyCfg] = field(default_factory=IdentifyCfg)

    draws: ClassVar[bool] = True

    def run(self) -> int:
        """Identifies, or plans."""
        from dexloop.show import identified, planned

        if self.run_folder[:1] == ("plan",):
            return planned(self)
        return identified(self)


@dataclass(frozen=True)
class Demonstrate(Command):
    """Turn a film of a human hand that takes the object into robot demonstrations that hold in simulation.

    `dexloop demonstrate RUN` takes the run's twin, belief and capture, and writes the run's demonstrations.
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")] = Path("runs/demo")
    """The run's folder."""
    capture: Path | None = None
    """A Capture with the film and a recording of the robot, instead of the run's."""
    replace: bool = False
    """Put the demonstrations in the place of some that are there."""
    cfg: OmitArgPrefixes[DemonstrateCfg] = field(default_factory=DemonstrateCfg)

    def run(self) -> int:
        """Demonstrates."""
        from dexloop.show import demonstrated

        return demonstrated(self)


@dataclass(frozen=True)
class Train(Command):
    """Train a policy on a run's demonstrations: it knows how hard to squeeze, because it is told the mass."""

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")] = Path("runs/demo")
    """The run's folder."""
    replace: bool = False
    """Put the policy in the place of one that is there."""
    cfg: OmitArgPrefixes[TrainCfg] = field(default_factory=TrainCfg)

    draws: ClassVar[bool] = False

    def run(self) -> int:
        """Trains."""
        from dexloop.show import trained

        return trained(self)


@dataclass(frozen=True)
class Replay(Command):
    """Replay a simulated world that became unstable, from the file that was written then."""

    draws: ClassVar[bool] = False

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
class Demo(Command):
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


@dataclass(frozen=True)
class View(Command):
    """Look at a run's twin in the browser: splats, mesh, convex parts, cameras. Move it, and play how it falls."""

    draws: ClassVar[bool] = False  # the browser does

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")] = Path("runs/demo")
    """The run's folder."""
    port: int = 8080
    """Where the page is; the next free port if this one is taken, any free one for 0."""
    host: str = "127.0.0.1"
    """The address to listen at: this machine alone, or 0.0.0.0 for all who can reach it."""
    open: bool = True
    """Open the page in the browser."""

    def run(self) -> int:
        """Serves the page until Ctrl-C."""
        from dexloop.show import viewed

        return viewed(self)


Commands = (
    Annotated[Doctor, subcommand("doctor")]
    | Annotated[Demo, subcommand("demo")]
    | Annotated[Robots, subcommand("robots")]
    | Annotated[LabCommand, subcommand("lab")]
    | Annotated[CaptureCommand, subcommand("capture")]
    | Annotated[TwinCommand, subcommand("twin")]
    | Annotated[Identify, subcommand("identify")]
    | Annotated[Demonstrate, subcommand("demonstrate")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Deploy, subcommand("deploy")]
    | Annotated[Audit, subcommand("audit")]
    | Annotated[Loop, subcommand("loop")]
    | Annotated[ReplayCase, subcommand("replay")]
    | Annotated[Report, subcommand("report")]
    | Annotated[View, subcommand("view")]
    | Annotated[Replay, subcommand("replay-dump")]
)

_ABOUT = "From an object on a real table to a robot hand that grasps it there, through a measured simulation."


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command line and ends the process.

    The exit code is 0 for well, 1 unfit or an error of ours, 2 bad input, 3 a failed trial, 4 a halt, 130 Ctrl-C.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    machine = _wants_json(arguments)
    if arguments == ["--version"]:
        console.say(f"dexloop {dexloop.__version__}")
        sys.exit(0)
    try:
        code = _parsed(arguments, machine).run()
        sys.stdout.flush()
    except DexloopError as error:
        code = error.exit_code
        _fail(machine, str(error), type(error).__name__)
    except KeyboardInterrupt:
        code = 130
        _fail(machine, "stopped by the user; what was finished is kept", "KeyboardInterrupt")
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does; nothing may be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if os.environ.get("DEXLOOP_DEBUG"):
            raise
        code = 1
        _fail(
            machine,
            f"{type(error).__name__}: {error}. This is a mistake of dexloop's; DEXLOOP_DEBUG=1 shows where it happened",
            type(error).__name__,
        )
    sys.exit(code)


def _wants_json(arguments: list[str]) -> bool:
    """Whether standard output is for a machine: not if --json names a file."""
    if "--json" not in arguments:
        return False
    following = arguments[arguments.index("--json") + 1 :][:1]
    return arguments[:1] != ["identify"] or following in ([], ["-"])


def _parsed(arguments: list[str], machine: bool) -> Any:
    """Parses the command line and chooses how to draw. With --json a wrong command line is answered in JSON too."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint if machine else sys.stderr):
            command = tyro.cli(
                Commands, prog="dexloop", description=_ABOUT, args=arguments, config=(OmitSubcommandPrefixes,)
            )
    except SystemExit as ended:
        if machine and ended.code not in (0, None):
            words = " ".join(complaint.getvalue().translate(_FRAMES).split())
            console.say_json({"error": words, "kind": "UsageError"})
        raise
    if command.draws:
        found = gl.choose()
        if found.backend is None or "instead" in found.message:
            console.warn(found.message)
    return command


_FRAMES = {ord(c): " " for c in "─│╭╮╰╯"}


def _fail(machine: bool, message: str, kind: str) -> None:
    if machine:
        console.say_json({"error": message, "kind": kind})
    else:
        console.complain(message)


if __name__ == "__main__":
    main()
