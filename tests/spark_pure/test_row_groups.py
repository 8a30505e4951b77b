"""Rows in groups: each in exactly one, with its equals, as a plain comparison of rows has it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.spark.writing.row_groups import codes_of, groups, one_for_each_row, parts, pieces, repeated
from spark_sb_mgmt.spark.writing.write_rows import RowProblem

TEXT_MAP = pa.map_(pa.string(), pa.string())
cells = st.tuples(
    st.sampled_from([None, "a", "b", ""]),
    st.sampled_from([None, 0, 7]),
    st.sampled_from([None, [], [("k", "v")], [("k", None)], [("k", "v"), ("l", "v")]]),
)


def batch(rows: list[Any]) -> pa.RecordBatch:
    texts, numbers, maps = zip(*rows, strict=True) if rows else ((), (), ())
    arrays = [pa.array(texts, pa.string()), pa.array(numbers, pa.int64()), pa.array(maps, TEXT_MAP), pa.array(range(len(rows)))]
    return pa.RecordBatch.from_arrays(arrays, ["text", "number", "map", "at"])


@given(st.lists(cells, max_size=12), st.sets(st.sampled_from(["text", "number", "map", "not there"])))
def test_a_group_has_all_rows_that_are_equal_and_no_others(rows: list[Any], names: set[str]) -> None:
    of = {"text": 0, "number": 1, "map": 2}
    expected: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        expected.setdefault(repr([row[of[name]] for name in sorted(names & of.keys())]), []).append(at)
    found = [group.column("at").to_pylist() for group in groups(batch(rows), sorted(names)) if group.num_rows]
    assert sorted(found) == sorted(expected.values())


@given(st.lists(cells, max_size=12))
def test_a_repeated_value_is_told_of_every_row_but_its_first(rows: list[Any]) -> None:
    texts = [text for text, _, _ in rows]
    problems = repeated(batch(rows), "text", batch(rows).column("text"), "why")
    assert [problem.row for problem in problems] == [at for at, text in enumerate(texts) if text is not None and text in texts[:at]]
    assert all(problem.problem == f"text {texts[problem.row]!r} stands in an earlier row too: why" for problem in problems)


@given(st.integers(1, 50), st.integers(1, 9))
def test_parts_are_at_most_so_many_and_none_is_empty(count: int, most: int) -> None:
    found = [part.column("at").to_pylist() for part in parts(batch([("a", 1, None)] * count), most)]
    assert [at for part in found for at in part] == list(range(count))
    assert len(found) <= most
    assert all(found)


def test_two_rows_come_apart() -> None:
    """Or a request that is refused would be asked for again as it is."""
    assert [part.num_rows for part in parts(batch([("a", 1, None)] * 2), 8)] == [1, 1]


def test_pieces() -> None:
    assert [piece.num_rows for piece in pieces(batch([("a", 1, None)] * 7), 3)] == [3, 3, 1]
    assert list(pieces(batch([]), 3)) == []


def test_many_values_in_many_columns_are_still_told_apart() -> None:
    """The product of what each column has is more than 64 bits."""
    columns = [pa.array([(row * 7919) % (1000 + at) for row in range(1000)]) for at in range(9)]
    assert len(set(codes_of(columns, 1000).tolist())) == 1000


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([[], []], []),
        ([[RowProblem(3, "a")], [RowProblem(1, "b"), RowProblem(3, "c")]], [RowProblem(1, "b"), RowProblem(3, "a")]),
    ],
)
def test_one_problem_for_each_row(lists: list[list[RowProblem]], expected: list[RowProblem]) -> None:
    assert one_for_each_row(*lists) == expected
