from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexloop.core.errors import InputError
from dexloop.rig.csv_table import _read_exactly, _read_fast, read_table

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_both_readers_give_every_number_exactly(tmp_path_factory: pytest.TempPathFactory, rows: list):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text("t,a,b\n" + "\n".join(",".join(map(repr, row)) for row in rows))
    fast = _read_fast(path, ("t", "a", "b"))
    assert fast is not None
    assert np.array_equal(fast, np.array(rows))
    assert np.array_equal(_read_exactly(path, ("t", "a", "b")), np.array(rows))


def test_a_place_counts_lines_as_an_editor_does(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("t,a\n0,1\n\n\n1,2\n\n2,3\n")
    table = read_table(path)
    assert table.data[:, 1].tolist() == [1, 2, 3]
    assert [table.place(row) for row in range(3)] == [f"{path}, line {n}" for n in (2, 5, 7)]
    assert table.place(1, "a").endswith("line 5, column 'a'")


def test_the_first_fault_is_named(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("t,a\n" + "\n".join(f"{i},1" for i in range(70_000)) + "\n70000,x\n70001,y\n")
    with pytest.raises(InputError, match="line 70002, column 'a': 'x'"):
        read_table(path)


def test_a_letter_that_is_no_utf8_further_down(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"t,a\n0,1\n1,\xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read_table(path)
