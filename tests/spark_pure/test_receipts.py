"""Receipts as rows of their file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_sb_mgmt.spark.writing.receipts import receipt_rows
from spark_sb_mgmt.spark.writing.write_operation import Receipt
from spark_sb_mgmt.spark.writing.write_schema import RECEIPT_COLUMNS

SCHEMA = pa.schema([pa.field("row_key", pa.string()), *RECEIPT_COLUMNS])
ROWS = pa.RecordBatch.from_pydict(
    {
        "name": pa.array(["a", None, "c"]),
        "message_id": pa.array(["x", "y", None]),
        "sequence_number": pa.array([1, None, 3]),
        "lock_token": pa.array(["t", "u", None]),
        "body": pa.array([bytes(1000)] * 3),
    }
)


def memory(columns: list[pa.Array]) -> set[int]:
    return {buffer.address for column in columns for buffer in column.buffers() if buffer is not None and buffer.size}


@pytest.mark.parametrize("columns", [{}, {"message_id": ROWS.column("message_id").slice(1), "sequence_number": np.array([7, 8])}])
def test_receipts_that_wait_to_be_written_do_not_keep_the_bodies_of_their_rows(columns: dict[str, Any]) -> None:
    rows = ROWS.slice(1)
    found = receipt_rows(Receipt(rows, columns=columns), SCHEMA, "name")
    assert not memory(found.columns) & memory(ROWS.columns)
    assert found.column("row_key").to_pylist() == [None, "c"]
    assert found.column("message_id").to_pylist() == ["y", None]
    assert found.column("sequence_number").to_pylist() == ([7, 8] if columns else [None, 3])
    assert found.column("lock_token").to_pylist() == ["u", None]
