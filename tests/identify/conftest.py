"""Recordings that several tests look at, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dexloop.core.capture import Capture
from tests.identify.benches import Push, model_file, pushed, strokes


@pytest.fixture(scope="session")
def push_capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """One push of a box of 0.25 kg with friction 0.3: a quick stroke with release, and a slower one."""
    return pushed(tmp_path_factory.mktemp("push"), Push(), strokes())


@pytest.fixture(scope="session")
def push_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same bench that takes the box to be twice as heavy and a third less rough."""
    return model_file(tmp_path_factory.mktemp("model"), Push(mass=0.5, friction=0.2))
