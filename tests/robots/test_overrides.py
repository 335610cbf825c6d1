from __future__ import annotations

from pathlib import Path

import pytest

from dexloop.core.errors import InputError, UnknownName
from dexloop.robots.overrides import Overrides, Place, TipOverride


def read(tmp_path: Path, text: str) -> Overrides:
    path = tmp_path / "robot.toml"
    path.write_text(text)
    return Overrides.read(path)


def test_everything_can_be_said(tmp_path: Path) -> None:
    known = read(
        tmp_path,
        """
arm_joints = ["a"]
hand_joints = ["b", "c"]
palm = { body = "p", pos = [0, 0, 1], quat = [0, 1, 0, 0] }
mount = "here"
speed_limits = 2
effort_limits = { b = 0.5 }
home = { a = 1 }
[[fingertips]]
name = "thumb"
body = "t"
geoms = ["g"]
""",
    )
    assert known == Overrides(
        arm_joints=("a",),
        hand_joints=("b", "c"),
        fingertips=(TipOverride("thumb", "t", geoms=("g",)),),
        palm=Place("p", (0, 0, 1), (0, 1, 0, 0)),
        mount="here",
        home={"a": 1.0},
        speed_limits=2.0,
        effort_limits={"b": 0.5},
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("palm = [", "is not TOML"),
        ("palm = { pos = [0, 0, 0] }", "with at least `body`"),
        ('palm = { body = "p", pos = [0, 0] }', "pos of palm must be 3 numbers"),
        ('palm = { body = "p", colour = "red" }', "palm has no 'colour'"),
        ("speed_limits = 0", "must be above zero"),
        ("effort_limits = { a = -1 }", "must be above zero"),
        ('home = { a = "x" }', "could not convert"),
    ],
)
def test_each_mistake_is_one_clear_message(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_an_unknown_key_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'fingertips'"):
        read(tmp_path, "fingertip = 1")


def test_the_file_of_that_stem_comes_before_the_folders(tmp_path: Path) -> None:
    model = tmp_path / "left.xml"
    assert Overrides.beside(model) == Overrides()
    (tmp_path / "robot.toml").write_text("speed_limits = 1")
    assert Overrides.beside(model).speed_limits == 1.0
    (tmp_path / "left.robot.toml").write_text("speed_limits = 2")
    assert Overrides.beside(model).speed_limits == 2.0
