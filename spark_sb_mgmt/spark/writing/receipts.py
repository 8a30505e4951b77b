"""Receipts: what became of each row, as Parquet (CONTRACT section 1.3, `receiptsPath`).

The one rule: what stands in the directory is true. A task writes its part to a place beside, which readers of Parquet pass over, as its
rows are done; only the commit of the whole job moves the parts where they are seen, and an abort leaves none behind.

The directory is a local path that the driver and all executors share, or a URI that pyarrow.fs knows (`s3://`, `gs://`, `abfs://`,
`hdfs://`, `file://`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.writing.write_operation import Receipt, TaskAttempt
from spark_sb_mgmt.spark.writing.write_schema import WriteColumns

# Rows that are gathered before they are written: a row group.
_ROW_GROUP: Final = 20_000
# Readers of directories pass over names that begin so.
_HIDDEN: Final = "_"
# Of more than one letter: that would be a drive of Windows.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_FILE: Final = re.compile(r"(?i)file:(//)?(?P<path>/.*)")
# What a receipt has of its row, where the row has it.
_OF_THE_ROW: Final = ("message_id", "sequence_number", "lock_token")
# What most rows have the same of.
_OF_MANY_ROWS: Final = ("status", "status_code", "error_condition", "status_description", "expiration")


@dataclass(frozen=True)
class ReceiptsDirectory:
    """Where the receipts of one job go. Made on the driver; it pickles."""

    path: str
    job: str

    @classmethod
    def of(cls, given: str, job: str) -> ReceiptsDirectory:
        """The directory of option `receiptsPath`, relative to where the driver runs. Raises if nothing can be written there."""
        # Of a file's URI the path as it stands, spaces and all: as Spark reads it, which decodes nothing either.
        local = _FILE.match(given)
        path = local.group("path") if local else given if _SCHEME.match(given) else os.path.abspath(given)
        directory = cls(path, job)
        try:
            directory._make()
        except (OSError, ValueError, ImportError) as problem:
            # The path may have a key in it, and so may what is said about it.
            kind = path.partition(":")[0] + ":..." if _SCHEME.match(path) else path
            raise InvalidArgumentError(
                "option receiptsPath",
                f"is {kind!r:.200}, and no directory can be made there ({type(problem).__name__}): it must be a local path that driver and "
                f"executors share, or a URI that pyarrow.fs knows, such as s3://, gs://, abfs:// or hdfs://",
            ) from None
        return directory

    def part(self, attempt: TaskAttempt) -> str:
        """The name of a task attempt's part; where it is published, the attempt is left out."""
        return f"part-{attempt.partition:05d}-{attempt.id}.parquet"

    def writer(self, attempt: TaskAttempt, columns: WriteColumns) -> ReceiptsWriter:
        return ReceiptsWriter(self, self.part(attempt), columns)

    def publish(self, parts: Iterable[TaskAttempt], corrected: Mapping[str, int] | None = None) -> None:
        """Move the parts of these attempts where they are seen. `corrected`: sequence numbers by message-id that are others than a task
        knew."""
        files, staged = self._open(), self._staged
        for attempt in parts:
            source = f"{staged}/{self.part(attempt)}"
            if files.get_file_info(source).type is fs.FileType.NotFound:
                raise InvalidArgumentError(
                    "option receiptsPath",
                    "names a directory where the driver does not see what an executor wrote: it must be one for all of them, such as on a "
                    "shared file system",
                )
            if corrected:
                _correct(files, source, corrected)
            files.move(source, self._published(attempt))
        self._clear(files)

    def discard(self, parts: Iterable[TaskAttempt] = ()) -> None:
        """Leave nothing behind, neither staged nor, of these attempts, published."""
        files = self._open()
        for attempt in parts:
            if files.get_file_info(self._published(attempt)).type is not fs.FileType.NotFound:
                files.delete_file(self._published(attempt))
        self._clear(files)

    def open_output(self, part: str) -> tuple[fs.FileSystem, str]:
        """File system and path for a part that is being written."""
        files = self._open()
        files.create_dir(self._staged, recursive=True)
        return files, f"{self._staged}/{part}"

    def _make(self) -> None:
        files, base = fs.FileSystem.from_uri(self.path)
        files.create_dir(base, recursive=True)

    def _open(self) -> fs.FileSystem:
        return fs.FileSystem.from_uri(self.path)[0]

    @property
    def _base(self) -> str:
        return str(fs.FileSystem.from_uri(self.path)[1]).rstrip("/")

    @property
    def _staged(self) -> str:
        return f"{self._base}/{_HIDDEN}sbmgmt-{self.job}"

    def _published(self, attempt: TaskAttempt) -> str:
        return f"{self._base}/part-{attempt.partition:05d}-{self.job}.parquet"

    def _clear(self, files: fs.FileSystem) -> None:
        if files.get_file_info(self._staged).type is not fs.FileType.NotFound:
            files.delete_dir(self._staged)

    def __repr__(self) -> str:
        # An URI may have a key in it.
        return f"ReceiptsDirectory(job={self.job!r})"


class ReceiptsWriter:
    """The part of one attempt. A context manager: closed with its end, deleted where it is left by an error."""

    def __init__(self, directory: ReceiptsDirectory, part: str, columns: WriteColumns) -> None:
        self._schema = columns.receipts
        self._columns = columns
        self._files, self._path = directory.open_output(part)
        # A compression that every build of Arrow and every Spark has; dictionaries are for what comes again from row to row.
        repeated = [name for name in self._schema.names if name in _OF_MANY_ROWS]
        self._writer = pq.ParquetWriter(self._path, self._schema, filesystem=self._files, compression="snappy", use_dictionary=repeated)
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, receipt: Receipt) -> None:
        batch = receipt_rows(receipt, self._columns)
        self._gathered.append(batch)
        self._rows += batch.num_rows
        if self._rows >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            self._writer.write_table(pa.Table.from_batches(self._gathered, self._schema))
        self._gathered, self._rows = [], 0

    def __enter__(self) -> ReceiptsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self._flush()
            self._writer.close()
            return
        self._writer.close()
        self._files.delete_file(self._path)


def receipt_rows(receipt: Receipt, columns: WriteColumns) -> pa.RecordBatch:
    """A receipt as rows of the receipts' schema."""
    schema, count = columns.receipts, receipt.rows.num_rows
    same = {
        "status": receipt.status,
        "status_code": receipt.status_code,
        "error_condition": receipt.error_condition,
        "status_description": receipt.status_description,
    }
    arrays = []
    for field in schema:
        name = field.name
        if name == "row_key":
            array = _own(receipt.rows.column(columns.row_key))
        elif name in receipt.columns:
            array = receipt.columns[name]
            array = _own(array) if isinstance(array, pa.Array) else array
        elif name in _OF_THE_ROW and name in columns.sent and name not in columns.property_columns:
            # A row key or a property may be called so too, and says nothing of what the service knows the row by.
            array = _own(receipt.rows.column(name))
        else:
            array = pa.repeat(pa.scalar(same.get(name), field.type), count)
        arrays.append(_as(array, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as(array: Any, kind: pa.DataType) -> pa.Array:
    if not isinstance(array, pa.Array):
        return pa.array(array, kind)
    return array if array.type.equals(kind) else pc.cast(array, kind)


def _own(column: pa.Array) -> pa.Array:
    """A copy: a column that came with rows keeps all of their batch in memory, bodies too, until the receipts are written."""
    return column.take(pa.array(np.arange(len(column))))


def _correct(files: fs.FileSystem, path: str, numbers: Mapping[str, int]) -> None:
    with files.open_input_file(path) as source:
        table = pq.read_table(source)
    known = [numbers.get(key) for key in table.column("message_id").to_pylist()]
    if not any(number is not None for number in known):
        return
    column = pc.coalesce(pa.array(known, pa.int64()), table.column("sequence_number").combine_chunks())
    at = table.schema.get_field_index("sequence_number")
    corrected = table.set_column(at, table.schema.field(at), column)
    pq.write_table(corrected, path, filesystem=files, compression="snappy")
