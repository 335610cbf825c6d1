"""A run is a folder: `1_capture … 8_audit` and `run.json`. A killed run goes on at the first missing artefact."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dexloop.core.artifact import HEADER, Artifact, storage_errors, write_text
from dexloop.core.artifacts import STAGES
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.provenance import provenance

_FILE = "run.json"


@dataclass(frozen=True)
class Run:
    """A folder of artefacts, one a stage."""

    path: Path
    seed: int
    options: Mapping[str, Any]
    """What the run was started with; a run that goes on must be started with the same."""

    @staticmethod
    def create(path: str | Path, *, seed: int = 0, options: Mapping[str, Any] | None = None) -> Run:
        """Starts a run, or goes on with the one that is there.

        Raises:
            InputError: The folder holds a run with another seed or other options, or something else entirely.
        """
        path = Path(path)
        options = dict(json.loads(json.dumps(dict(options or {}))))  # as it comes back from disk: tuples are lists
        if (path / _FILE).exists():
            run = Run.open(path)
            if run.seed != seed or dict(run.options) != options:
                raise InputError(
                    f"{path} holds a run started with seed {run.seed} and {dict(run.options)}, not seed {seed} and "
                    f"{options}: start it in another folder"
                )
            return run
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file: choose a folder")
        # A process killed at the very start leaves a part of run.json: that is no reason to refuse the folder.
        if path.exists() and any(not p.name.startswith(f".{_FILE}.") for p in path.iterdir()):
            raise InputError(f"{path} is not empty and is no run (it has no {_FILE}): choose another folder")
        with storage_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            write_text(path / _FILE, json.dumps({"seed": seed, "options": options, **provenance()}, indent=1))
        return Run(path, seed, options)

    @staticmethod
    def open(path: str | Path) -> Run:
        """Opens a run that was started before."""
        file = Path(path) / _FILE
        try:
            data = json.loads(file.read_text())
            return Run(file.parent, data["seed"], data["options"])
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InputError(f"{path} is no run: it has no {_FILE}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is damaged: {error}") from error

    def stage_path(self, stage: str) -> Path:
        """Returns the folder of a stage's artefact, such as `RUN/3_identify`."""
        if stage not in STAGES:
            raise UnknownName("stage", stage, STAGES)
        return self.path / f"{list(STAGES).index(stage) + 1}_{stage}"

    def beliefs(self) -> list[Path]:
        """Returns where its beliefs are, in the order in which a loop makes them: at first, after further pushes, and
        for each round after the first. A guess is none."""
        found = [self.stage_path("identify")]
        for kind in ("push_", "round_"):
            numbered = ((p.name.removeprefix(kind), p) for p in self.path.glob(f"{kind}*"))
            folders = sorted((int(number), p) for number, p in numbered if number.isdecimal() and int(number) > 0)
            found += [p / found[0].name for _, p in folders]
        return [p for p in found if (p / HEADER).is_file()]

    def has(self, stage: str) -> bool:
        """Whether the stage's artefact is there."""
        return (self.stage_path(stage) / HEADER).is_file()

    def load(self, stage: str) -> Artifact:
        """Opens a stage's artefact."""
        path = self.stage_path(stage)
        return STAGES[stage].open(path)

    def ensure(self, stage: str, make: Callable[[Path], Artifact]) -> Artifact:
        """Returns the stage's artefact, made by `make(folder)` if it is not there yet."""
        return self.load(stage) if self.has(stage) else make(self.stage_path(stage))
