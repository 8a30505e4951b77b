"""Rows that go together, and rows that are in each other's way.

The one rule: pure, and every row that is given is in exactly one group. Values are compared as a whole column at a time; only maps, for
which Arrow has no comparison, are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_sb_mgmt.spark.writing.write_rows import RowProblem

Codes = npt.NDArray[np.int64]


def codes_of(columns: Sequence[pa.Array], rows: int) -> Codes:
    """A number for each row, the same for rows that are equal in all these columns; null equals null."""
    codes = np.zeros(rows, np.int64)
    for column in columns:
        own = _codes(column)
        # Made small again after each column, so that the product of the next two fits.
        _, codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)
    return codes.astype(np.int64, copy=False)


def _codes(column: pa.Array) -> Codes:
    if pa.types.is_nested(column.type):
        known: dict[str, int] = {}
        return np.array([known.setdefault(repr(value), len(known)) for value in column.to_pylist()], np.int64)
    indices: Codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return indices


def groups(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows in groups that are equal in these columns, as far as there are such columns; in their order within each."""
    codes = codes_of([rows.column(name) for name in names if name in rows.schema.names], rows.num_rows)
    if not codes.any():
        yield rows
        return
    order = np.argsort(codes, kind="stable")
    together = rows.take(pa.array(order))
    cuts = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist(), rows.num_rows]
    for start, end in pairwise(cuts):
        yield together.slice(start, end - start)


def parts(rows: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The rows in equal parts of one row at least, as many parts as `most`."""
    size = max(1, -(-rows.num_rows // most))
    return pieces(rows, size)


def pieces(rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """The rows in pieces of `size`, the last what is left."""
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def repeated(rows: pa.RecordBatch, name: str, column: pa.Array, why: str) -> list[RowProblem]:
    """The rows whose value stands in an earlier row too, which is a mistake: `why`."""
    codes = codes_of([column], rows.num_rows)
    first = np.unique(codes, return_index=True)[1]
    later = np.ones(rows.num_rows, bool)
    later[first] = False
    # Null is another mistake, which is told by itself.
    later &= column.is_valid().to_numpy(zero_copy_only=False)
    return [RowProblem(row, f"{name} {shown(column[row])} stands in an earlier row too: {why}") for row in np.flatnonzero(later).tolist()]


def shown(value: pa.Scalar) -> str:
    text: Any = value.as_py()
    return f"{text!r:.60}" if isinstance(text, str) else str(text)


def one_for_each_row(*found: Sequence[RowProblem]) -> list[RowProblem]:
    """Several lists as one, ascending; of several problems of a row the first."""
    merged: dict[int, RowProblem] = {}
    for problems in found:
        for problem in problems:
            merged.setdefault(problem.row, problem)
    return [merged[row] for row in sorted(merged)]
