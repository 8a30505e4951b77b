"""A write task without Spark: rows in, what became of each out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_sb_mgmt.client import EntityClient, ManagementClient
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.spark.options.parsing import write_options
from spark_sb_mgmt.spark.schema import spark_type
from spark_sb_mgmt.spark.writing.receipts import receipt_rows
from spark_sb_mgmt.spark.writing.task_run import TaskRun
from spark_sb_mgmt.spark.writing.write_operation import Job, Receipt, TaskAttempt, WriteTask
from spark_sb_mgmt.spark.writing.write_schema import WRITE_COLUMNS, write_columns
from spark_sb_mgmt.spark.writing.writer import OPERATIONS

JOB = Job("job", 4_102_444_800_000)


class Running:
    """One attempt of a task of an operation on an entity; `receipts` are rows as they would stand in the file."""

    def __init__(self, emulator: Emulator, entity: EntityClient, attempt: int, schema: pa.Schema, **options: str) -> None:
        given = {"connectionString": emulator.connection_string, "entityPath": entity.path, "receiptsPath": "unused", **options}
        self._options = write_options({"onError": "report", **given}, {})
        columns = StructType()
        for field in schema:
            columns = columns.add(field.name, spark_type(field.type))
        self._columns = write_columns(columns, self._options)
        self.task: WriteTask = OPERATIONS[self._options.operation](self._options, JOB).task(entity, TaskAttempt(number=attempt))
        self.receipts: list[dict[str, Any]] = []
        self._run = TaskRun(self.task, entity, self._options, self)  # type: ignore[arg-type]

    def add(self, receipt: Receipt) -> None:
        self.receipts += receipt_rows(receipt, self._columns).to_pylist()

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
        self._run.run(batches)
        return self.receipts

    @property
    def failures(self) -> int:
        return self._run.failures.count


@contextmanager
def running(
    emulator: Emulator, path: str, schema: pa.Schema, attempt: int = 0, client: dict[str, Any] | None = None, **options: str
) -> Iterator[Running]:
    with ManagementClient.from_connection_string(emulator.connection_string, **(client or {})) as opened, opened.entity(path) as entity:
        yield Running(emulator, entity, attempt, schema, **options)


def rows_of(operation: str, **columns: list[Any]) -> pa.RecordBatch:
    """Rows with the first of the types that the operation's columns may have; others as Arrow guesses."""
    known = WRITE_COLUMNS[operation]
    arrays = {name: pa.array(values, known[name][0]) if name in known else pa.array(values) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def written(
    emulator: Emulator,
    path: str,
    rows: pa.RecordBatch,
    operation: str,
    attempt: int = 0,
    client: dict[str, Any] | None = None,
    **options: str,
) -> list[dict[str, Any]]:
    """The receipts of a task of these rows."""
    with running(emulator, path, rows.schema, attempt, client, operation=operation, **options) as task:
        return task.run([rows])
