"""The other artefacts of the loop, in flow order. Each names the files without which it is not written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dexloop.core.artifact import Artifact
from dexloop.core.capture import Capture


@dataclass(frozen=True)
class Twin(Artifact):
    """A digital twin: `scene.xml` (MJCF) with `assets/`; per object `splats.ply`, `mesh.obj`, `parts/*.obj`."""

    kind: ClassVar[str] = "twin"
    required: ClassVar[tuple[str, ...]] = ("scene.xml",)


@dataclass(frozen=True)
class Belief(Artifact):
    """A posterior over parameters: `posterior.npz` (`mean` [p], `covariance` [p, p], `samples` [s, p])."""

    kind: ClassVar[str] = "belief"
    required: ClassVar[tuple[str, ...]] = ("posterior.npz",)


@dataclass(frozen=True)
class Demos(Artifact):
    """Robot demonstrations that hold in physics: `demos.npz`, one array a signal, with episode boundaries."""

    kind: ClassVar[str] = "demos"
    required: ClassVar[tuple[str, ...]] = ("demos.npz",)


@dataclass(frozen=True)
class Dataset(Artifact):
    """Training data in a standard layout; `meta.format` says which."""

    kind: ClassVar[str] = "dataset"


@dataclass(frozen=True)
class Policy(Artifact):
    """A policy bundle: `weights.safetensors` and `contract.json`."""

    kind: ClassVar[str] = "policy"
    required: ClassVar[tuple[str, ...]] = ("weights.safetensors", "contract.json")


@dataclass(frozen=True)
class Episodes(Artifact):
    """Deployments: one recording a trial, laid out as in a `Capture`."""

    kind: ClassVar[str] = "episodes"


@dataclass(frozen=True)
class Ledger(Artifact):
    """The transfer ledger: append-only `ledger.jsonl`."""

    kind: ClassVar[str] = "ledger"
    required: ClassVar[tuple[str, ...]] = ("ledger.jsonl",)


STAGES: dict[str, type[Artifact]] = {
    "capture": Capture,
    "twin": Twin,
    "identify": Belief,
    "demonstrate": Demos,
    "scale": Dataset,
    "train": Policy,
    "deploy": Episodes,
    "audit": Ledger,
}
"""The stages in flow order and the artefact each gives."""
