"""A run goes on where it stopped, and never with other settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dexloop.core.artifact import Artifact, writing
from dexloop.core.artifacts import STAGES, Belief, Twin
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.run import Run


def make_twin(path: Path) -> Twin:
    with writing(path, Twin) as draft:
        (draft.folder / "scene.xml").write_text("<mujoco/>")
    return Twin.open(path)


def fail(path: Path) -> Artifact:
    with writing(path, Belief) as draft:
        (draft.folder / "posterior.npz").write_bytes(b"half")
        raise RuntimeError("killed")


def test_a_new_run_writes_down_how_it_was_started(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "a" / "run", seed=5, options={"object": "cube", "speeds": (0.1, 0.2)})
    data = json.loads((run.path / "run.json").read_text())
    assert (data["seed"], data["options"]) == (5, {"object": "cube", "speeds": [0.1, 0.2]})
    assert {"created", "versions", "machine"} <= data.keys()
    assert Run.open(run.path) == run


def test_stages_are_numbered_in_flow_order(tmp_path: Path) -> None:
    run = Run.create(tmp_path)
    assert [run.stage_path(stage).name for stage in STAGES] == [
        "1_capture",
        "2_twin",
        "3_identify",
        "4_demonstrate",
        "5_scale",
        "6_train",
        "7_deploy",
        "8_audit",
    ]
    assert len({kind.kind for kind in STAGES.values()}) == len(STAGES)


@pytest.mark.parametrize("call", [Run.stage_path, Run.has, Run.load])
def test_an_unknown_stage_lists_the_stages(tmp_path: Path, call: object) -> None:
    run = Run.create(tmp_path)
    with pytest.raises(UnknownName, match=r"unknown stage 'twins' \(did you mean 'twin'\?\): there is capture, twin"):
        call(run, "twins")  # pyright: ignore[reportCallIssue]


def test_a_resumed_run_does_only_what_is_missing(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", seed=1, options={"speeds": (0.1, 0.2)})
    assert not run.has("twin")
    twin = run.ensure("twin", make_twin)
    with pytest.raises(RuntimeError, match="killed"):
        run.ensure("identify", fail)
    again = Run.create(tmp_path / "run", seed=1, options={"speeds": (0.1, 0.2)})
    assert again.has("twin")
    assert not again.has("identify")
    assert again.ensure("twin", fail) == twin  # not made a second time
    assert again.load("twin").hash == twin.hash
    with pytest.raises(RuntimeError, match="killed"):  # this one is missing, so it is tried again
        again.ensure("identify", fail)


@pytest.mark.parametrize(("seed", "options"), [(2, {"object": "cube"}), (1, {"object": "tin"}), (1, {})])
def test_a_run_does_not_go_on_with_other_settings(tmp_path: Path, seed: int, options: dict[str, str]) -> None:
    Run.create(tmp_path / "run", seed=1, options={"object": "cube"})
    with pytest.raises(InputError, match=r"started with seed 1 and \{'object': 'cube'\}.*another folder"):
        Run.create(tmp_path / "run", seed=seed, options=options)


def test_a_folder_of_other_things_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_text("")
    with pytest.raises(InputError, match="is not empty and is no run"):
        Run.create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="is a file"):
        Run.create(file)
    with pytest.raises(InputError, match="is no run"):
        Run.open(file)


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert Run.create(tmp_path).path == tmp_path


def test_a_run_killed_before_it_was_written_down_can_start_again(tmp_path: Path) -> None:
    (tmp_path / ".run.json.0123abcd").write_text('{"seed"')
    assert Run.open(Run.create(tmp_path, seed=3).path).seed == 3


def test_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no run: it has no run\.json"):
        Run.open(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null"])
def test_a_damaged_run_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json is damaged"):
        Run.create(tmp_path)


def test_loading_checks_the_kind(tmp_path: Path) -> None:
    run = Run.create(tmp_path)
    make_twin(run.stage_path("identify"))
    with pytest.raises(InputError, match="is a twin, not a belief"):
        run.load("identify")
