from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexloop.audit.ledger import FIRST, REQUIRED, appended, case, check, read
from dexloop.core.artifact import write_text, writing
from dexloop.core.artifacts import Ledger
from dexloop.core.errors import InputError, UnknownName

COUNT = 6


def row(k: int) -> dict[str, Any]:
    return {name: f"{name} {k} ×" for name in REQUIRED if name != "case"} | {"trial": k, "round": 1}


LINES = appended([], [row(k) for k in range(COUNT)])


def test_lines_are_numbered_and_each_carries_the_hash_of_the_one_before():
    rows = check(LINES)
    assert [r["case"] for r in rows] == list(range(1, COUNT + 1))
    assert [r["trial"] for r in rows] == list(range(COUNT))
    before = ["0" * 64] + [hashlib.sha256(line.encode()).hexdigest() for line in LINES[:-1]]
    assert [r["before"] for r in rows] == before
    assert before[0] == FIRST
    assert list(rows[0]) == [*REQUIRED, "before"]


@given(st.integers(0, COUNT), st.integers(0, COUNT))
def test_what_is_appended_in_parts_is_what_is_appended_at_once(a: int, b: int):
    a, b = sorted((a, b))
    some = appended([], [row(k) for k in range(a)])
    some = appended(some, [row(k) for k in range(a, b)])
    assert appended(some, [row(k) for k in range(b, COUNT)]) == LINES


@given(st.integers(0, COUNT - 2), st.data())
def test_a_changed_character_is_found(k: int, data: st.DataObject):
    """In any line but the last, which nothing follows yet."""
    at = data.draw(st.integers(0, len(LINES[k]) - 1))
    other = data.draw(st.sampled_from([c for c in '0a{}",: ×\u2028' if c != LINES[k][at]]))
    lines = [*LINES]
    lines[k] = lines[k][:at] + other + lines[k][at + 1 :]
    with pytest.raises(InputError):
        check(lines)


@given(st.integers(0, COUNT - 2))
def test_a_removed_line_is_found(k: int):
    with pytest.raises(InputError, match=f"line {k + 1} does not follow"):
        check(LINES[:k] + LINES[k + 1 :])


@given(st.integers(0, COUNT), st.integers(0, COUNT - 1), st.booleans())
def test_an_inserted_line_is_found(k: int, which: int, counted: bool):
    line = json.loads(LINES[which])
    if counted:  # a forger who knows how lines are numbered, and which hash comes before
        line |= {"case": k + 1, "before": hashlib.sha256(LINES[k - 1].encode()).hexdigest() if k else FIRST}
    lines = [*LINES[:k], json.dumps(line, ensure_ascii=False), *LINES[k:]]
    if counted and k == COUNT:
        return  # that is how one appends
    with pytest.raises(InputError):
        check(lines)


@given(st.permutations(range(COUNT)).filter(lambda p: p != list(range(COUNT))))
def test_another_order_is_found(order: list[int]):
    with pytest.raises(InputError):
        check([LINES[k] for k in order])


def test_a_ledger_that_is_not_whole_is_not_gone_on_with():
    with pytest.raises(InputError, match="line 1"):
        appended(LINES[1:], [row(9)])


@pytest.mark.parametrize("name", [name for name in REQUIRED if name != "case"])
def test_a_row_that_lacks_something_is_refused(name: str):
    lacking = row(1)
    del lacking[name]
    with pytest.raises(InputError, match=f"lacks {name}"):
        appended(LINES, [lacking])
    kept = json.loads(LINES[0])
    del kept[name]
    with pytest.raises(InputError, match=f"line 1, lacks {name}"):
        check([json.dumps(kept)])


@pytest.mark.parametrize("line", ["", "{", "[]", "3", "null", '"case"'])
def test_a_line_that_is_no_row_is_damaged(line: str):
    with pytest.raises(InputError, match="line 2"):
        check([LINES[0], line])


def test_it_is_read_from_its_file_or_its_folder(tmp_path: Path):
    file = tmp_path / "ledger.jsonl"
    file.write_text("\n".join(LINES) + "\n")
    assert read(file) == read(tmp_path) == check(LINES)
    strange = appended(LINES, [{**row(9), "next": "a\u2028b\x85c\nd"}])
    file.write_text("\n".join(strange) + "\n")
    assert read(file)[-1]["next"] == "a\u2028b\x85c\nd"
    with pytest.raises(InputError, match="holds no ledger"):
        read(tmp_path / "nowhere")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="holds no ledger"):
        read(tmp_path)


def test_in_an_artefact_the_last_line_is_covered_too(tmp_path: Path):
    with writing(tmp_path / "ledger", Ledger) as draft:
        write_text(draft.folder / "ledger.jsonl", "\n".join(LINES) + "\n")
    file = tmp_path / "ledger" / "ledger.jsonl"
    assert read(file) == read(file.parent) == check(LINES)
    changed = LINES[-1].replace('"trial": 5', '"trial": 6')
    for lines in ([*LINES[:-1], changed], LINES[:-1]):
        assert check(lines)
        file.write_text("\n".join(lines) + "\n")
        for path in (file, file.parent):
            with pytest.raises(InputError, match=r"was changed after it was written: ledger\.jsonl"):
                read(path)


def test_a_case_is_found_by_its_number_or_those_there_are_are_listed(tmp_path: Path):
    (tmp_path / "ledger.jsonl").write_text("\n".join(LINES[:3]) + "\n")
    assert case(tmp_path, 2)["trial"] == 1
    for number in (0, 4, -1):
        with pytest.raises(UnknownName, match="there is 1, 2, 3"):
            case(tmp_path, number)


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        appended([], [{**row(0), "gap": float("nan")}])
