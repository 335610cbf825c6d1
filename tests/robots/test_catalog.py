from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import pytest

from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.robots import load, names
from dexloop.robots.catalog import menagerie_file


@pytest.fixture(autouse=True)
def no_menagerie(monkeypatch) -> None:
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)


def test_everything_listed_loads() -> None:
    listed = [n for n in names() if importlib.util.find_spec("mujoco_menagerie") is None or "@" in n]
    assert {"dex16@wrist", "dex16@arm7", "gripper@wrist", "gripper@arm7"} <= set(listed)
    for name in listed:
        assert load(name).name == name


def test_every_load_gives_a_fresh_model() -> None:
    robot = load("gripper")
    robot.make_spec().body("left_jaw").name = "changed"
    assert robot.make_spec().body("left_jaw") is not None


def test_a_wrong_name_lists_the_right_ones() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'dex16'\?.*gripper, wrist, arm7"):
        load("dex61")
    with pytest.raises(UnknownName, match="'rist'"):
        load("dex16@rist")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"nowhere\.urdf"):
        load("nowhere.urdf")


def test_a_file_loads_by_path_and_mounts(claw: Path) -> None:
    assert load(str(claw)).name == "claw"
    assert load(f"{claw}@wrist").arm_joints[0] == "wrist_x"


@pytest.mark.skipif(importlib.util.find_spec("mujoco_menagerie") is not None, reason="mujoco-menagerie is installed")
@pytest.mark.parametrize("name", ["leap_hand", "menagerie:anything", "leap_hand@arm7"])
def test_without_menagerie_the_error_says_how_to_get_it(name: str) -> None:
    with pytest.raises(MissingPart, match=r"pip install dexloop\[menagerie\].*MENAGERIE_ROOT"):
        load(name)


def test_a_checkout_is_searched(tmp_path: Path, claw: Path, monkeypatch) -> None:
    folder = tmp_path / "root" / "some_hand"
    folder.mkdir(parents=True)
    for stem in ("scene_right", "right_hand", "left_hand", "a"):
        (folder / f"{stem}.xml").write_text(claw.read_text())
    monkeypatch.setenv("MENAGERIE_ROOT", str(folder.parent))
    assert "some_hand" in names()
    assert menagerie_file("some_hand") == folder / "right_hand.xml"
    assert menagerie_file("menagerie:some_hand/left_hand") == folder / "left_hand.xml"
    assert load("some_hand").name == "some_hand"
    with pytest.raises(UnknownName, match="there is a, left_hand, right_hand"):
        menagerie_file("some_hand/third_hand")
    with pytest.raises(UnknownName, match="has no folder 'other_hand'"):
        load("other_hand")


def test_the_package_is_used_where_there_is_no_checkout(claw: Path, monkeypatch) -> None:
    """A stand-in with the interface of mujoco-menagerie: names(), get(), and a robot's entry_names and xml()."""

    class Robot:
        entry_names = ("claw", "scene")
        default_model = "claw"

        def xml(self, entry: str) -> Path:
            return claw.with_name(f"{entry}.xml")

    module = types.ModuleType("mujoco_menagerie")
    module.__spec__ = importlib.util.spec_from_loader("mujoco_menagerie", None)
    module.names = lambda: ["my_claw"]  # type: ignore[attr-defined]
    module.get = lambda name: Robot()  # type: ignore[attr-defined]
    module.MenagerieError = RuntimeError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mujoco_menagerie", module)
    assert load("my_claw").name == "my_claw"
    with pytest.raises(UnknownName, match="file of my_claw"):
        load("my_claw/nothing")
    with pytest.raises(UnknownName, match="'their_claw'"):
        load("their_claw")
