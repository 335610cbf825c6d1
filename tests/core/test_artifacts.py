from __future__ import annotations

import inspect

from dexloop.core import artifacts, capture
from dexloop.core.artifact import Artifact
from dexloop.core.artifacts import STAGES


def test_every_artefact_belongs_to_a_stage() -> None:
    found = {
        kind
        for module in (artifacts, capture)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Artifact) and kind is not Artifact
    }
    assert found == set(STAGES.values())


def test_kinds_are_their_classes_names() -> None:
    """The kind is written into files: renaming a class must not rename it unnoticed."""
    assert {stage: kind.kind for stage, kind in STAGES.items()} == {
        "capture": "capture",
        "twin": "twin",
        "identify": "belief",
        "demonstrate": "demos",
        "scale": "dataset",
        "train": "policy",
        "deploy": "episodes",
        "audit": "ledger",
    }
