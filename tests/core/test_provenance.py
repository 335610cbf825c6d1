from __future__ import annotations

import datetime
import json
import platform

import numpy as np

import dexloop
from dexloop.core.provenance import cpu_model, provenance


def test_versions_are_those_that_run() -> None:
    versions = provenance()["versions"]
    assert versions["numpy"] == np.__version__
    assert versions["python"] == platform.python_version()
    assert versions["dexloop"] == dexloop.__version__


def test_it_is_plain_json_with_a_utc_time() -> None:
    data = json.loads(json.dumps(provenance()))
    created = datetime.datetime.fromisoformat(data["created"])
    assert created.utcoffset() == datetime.timedelta(0)
    assert abs(datetime.datetime.now(datetime.UTC) - created) < datetime.timedelta(minutes=1)
    assert data["machine"]["cpu"] == cpu_model() != ""
    assert data["machine"]["cores"] >= 1
