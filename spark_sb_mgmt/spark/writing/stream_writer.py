"""Micro-batches as jobs: the writer of `writeStream`, for every write operation (CONTRACT section 1.4).

The one rule: a micro-batch that is done again is the same job again. Spark repeats the last one where a query was stopped before it was
noted as done; its job has the id of the query and its own number, so that what the earlier run did is known by it. Scheduled messages of
the earlier run are taken back when the later one commits; receipts have the same names, and replace those that stand. Operations that can
be done only once say of a row for which there is nothing left to do that it is unknown, and no reason for the query to fail.

Spark makes a writer for each micro-batch, in any process, and another one to commit it; so what they know of each other stands in
messages.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.options.objects import WriteOptions
from spark_sb_mgmt.spark.writing.receipts import ReceiptsDirectory
from spark_sb_mgmt.spark.writing.write_operation import Job
from spark_sb_mgmt.spark.writing.write_schema import write_columns
from spark_sb_mgmt.spark.writing.writer import JobWriter, TaskMessage

_ARROW: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
_Messages = list[WriterCommitMessage | None]
_ROWS: Final = 10_000
# What was passed when a micro-batch was committed, by its job. Where this is lost with its process, the next one only looks at more.
_PASSED: dict[str, Any] = {}
_MOST_KEPT: Final = 64


class MicroBatches:
    """The micro-batches of one query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.columns = write_columns(schema, options)
        if options.receipts_path is not None:
            # Told now that it cannot be.
            ReceiptsDirectory.of(options.receipts_path, "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "a micro-batch is written by a task"
        query, number = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("streaming.sql.batchId")
        if query is None or number is None:
            raise InvalidArgumentError("writeStream", "is done by a task that does not know its query: use it as the sink of a query")
        return self._writer(Job(job_id(query, int(number)), time.time_ns() // 1_000_000, is_replayable=True)).write(iterator)

    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        job = _job_of(messages)
        if job is None:
            return
        writer = self._resumed(job)
        writer.commit(messages)
        while len(_PASSED) >= _MOST_KEPT:
            del _PASSED[next(iter(_PASSED))]
        with writer.opened() as entity:
            _PASSED[job.id] = writer.operation.passed(entity)

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        job = _job_of(messages)
        if job is None:
            # Nothing is known of any task. The query does this micro-batch again, and finds then what they left.
            return
        self._resumed(job).abort(messages)

    def _resumed(self, job: Job) -> JobWriter:
        writer = self._writer(job)
        with writer.opened() as entity:
            writer.operation.resume(entity, _PASSED.get(_before(job)))
        return writer

    def _writer(self, job: Job) -> JobWriter:
        return JobWriter(self.options, self.columns, job)


class StreamWriter(MicroBatches, _ARROW or DataSourceStreamWriter):  # type: ignore[misc]
    """With Arrow where this PySpark has that, since 4.1."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return super().write(iterator if _ARROW else batches_of(iterator, self.schema))


def job_id(query: str, number: int) -> str:
    """The same for every run of the query. Not the query's own id: that is nobody's business who reads the messages."""
    return f"{hashlib.sha256(query.encode()).hexdigest()[:32]}-{number}"


def batches_of(rows: Iterable[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.conversion import LocalDataToArrowConversion

    left = iter(rows)
    while some := list(islice(left, _ROWS)):
        yield from LocalDataToArrowConversion.convert(some, schema, False).to_batches()


def _before(job: Job) -> str:
    query, _, number = job.id.rpartition("-")
    return f"{query}-{int(number) - 1}"


def _job_of(messages: _Messages) -> Job | None:
    return next((message.job for message in messages if isinstance(message, TaskMessage)), None)
