"""Receipts as rows of their file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.writing.receipts import ReceiptsDirectory, receipt_rows
from spark_sb_mgmt.spark.writing.write_operation import FAILED, Receipt
from spark_sb_mgmt.spark.writing.write_schema import WriteColumns

COLUMNS = WriteColumns(table.SETTLE, ("message_id", "sequence_number", "lock_token"), (), "name", pa.string())
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
    found = receipt_rows(Receipt(rows, columns=columns), COLUMNS)
    assert not memory(found.columns) & memory(ROWS.columns)
    assert found.column("row_key").to_pylist() == [None, "c"]
    assert found.column("message_id").to_pylist() == ["y", None]
    assert found.column("sequence_number").to_pylist() == ([7, 8] if columns else [None, 3])
    assert found.column("lock_token").to_pylist() == ["u", None]


@pytest.mark.parametrize(
    "columns",
    [
        WriteColumns(table.SCHEDULE, ("message_id",), (), "sequence_number", pa.int64()),
        WriteColumns(table.SCHEDULE, ("message_id", "sequence_number"), ("sequence_number",), None, None),
    ],
    ids=["row key", "property"],
)
def test_what_is_called_as_a_number_of_the_service_and_is_none_of_this_write_is_not_told_as_one(columns: WriteColumns) -> None:
    """Whoever cancels by receipts would cancel somebody else's message."""
    found = receipt_rows(Receipt(ROWS, FAILED), columns)
    assert found.column("message_id").to_pylist() == ["x", "y", None]
    assert found.column("sequence_number").to_pylist() == [None] * 3


def test_a_row_key_of_any_type_may_be_called_as_a_column_of_receipts_is() -> None:
    rows = pa.RecordBatch.from_pydict({"session_id": pa.array(["s"]), "sequence_number": pa.array(["abc"])})
    found = receipt_rows(Receipt(rows), WriteColumns(table.RENEW_SESSION_LOCK, ("session_id",), (), "sequence_number", pa.string()))
    assert found.column("row_key").to_pylist() == ["abc"]
    assert found.column("sequence_number").to_pylist() == [None]


@pytest.mark.parametrize("uri", ["file://{}", "file:{}", "FILE://{}", "{}"])
@pytest.mark.parametrize("name", ["plain", "with a space", "with%20percent"])
def test_a_local_uri_names_the_directory_as_it_stands(tmp_path: Path, uri: str, name: str) -> None:
    """As Spark's readers take it, which decode nothing in it."""
    directory = ReceiptsDirectory.of(uri.format(tmp_path / name), "job")
    assert directory.path == str(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_directory_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgumentError, match=r"option receiptsPath is '.*file/below', and no directory can be made there"):
        ReceiptsDirectory.of(f"file://{tmp_path}/file/below", "job")
