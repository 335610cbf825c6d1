from __future__ import annotations

from pathlib import Path

import pytest

from dexloop.core.capture import StreamInfo
from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status
from dexloop.rig.layout import check_infos, check_name, link_or_copy, worst_first


@pytest.mark.parametrize("name", ["a", "joint_states.position", "7-up", "Cam.2"])
def test_names_that_files_can_have(name: str):
    assert check_name("stream", name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a b", ".hidden", "con:", "größe", "a."])
def test_names_that_files_cannot_have(name: str):
    with pytest.raises(InputError, match="place: stream name"):
        check_name("stream", name, place="place")


def test_no_name_twice():
    a, b = (StreamInfo(n, "touch", ("x",), ("N",), "c") for n in ("tip", "Tip"))
    with pytest.raises(InputError, match="two streams called 'Tip'"):
        check_infos([a, b], [])


def test_a_copy_stands_in_for_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a").write_text("x")
    link_or_copy(tmp_path / "a", tmp_path / "in" / "b")
    monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError(18, "another disk")))
    link_or_copy(tmp_path / "a", tmp_path / "in" / "c")
    assert (tmp_path / "in" / "b").read_text() == (tmp_path / "in" / "c").read_text() == "x"


def test_worst_first_keeps_the_order_among_equals():
    levels = [Level.OK, Level.WARN, Level.FAIL, Level.WARN]
    found = worst_first(Status(level, str(i), "") for i, level in enumerate(levels))
    assert [s.code for s in found] == ["2", "1", "3", "0"]
