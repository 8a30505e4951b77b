"""The writer that Spark knows: one for all operations, which differ in `write_operation` (CONTRACT sections 1.3 and 3, DESIGN section 5).

The one rule: every row is accounted for. A task ends with a receipt for each of its rows, or with an error; the job succeeds only if the
driver has seen that every row was done, or with `onError=report` that it stands in the receipts with the reason.

A row that fails by its own fault does not fail its task: Spark would try it again, to fail again, and an operation that cannot be repeated
would then find its own effects in the way. The task says so in its commit message instead, and `commit` fails the job. Where all that was
done can be undone, it does fail, so that the job ends now.

The writer is made on the driver and pickled: to the tasks, and to the process that commits or aborts. What `write` changes on itself is
seen by nobody.
"""

from __future__ import annotations

import logging
import secrets
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.errors import InvalidArgumentError, RowsFailedError, scrub
from spark_sb_mgmt.spark.connections import open_entity
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options.objects import WriteOptions
from spark_sb_mgmt.spark.reading.read_errors import explained
from spark_sb_mgmt.spark.writing.cancel_writer import CancelScheduled
from spark_sb_mgmt.spark.writing.purge_writer import PurgeMessages
from spark_sb_mgmt.spark.writing.receipts import ReceiptsDirectory
from spark_sb_mgmt.spark.writing.renew_writer import RenewLocks, RenewSessionLocks
from spark_sb_mgmt.spark.writing.rules_writer import AddRules, RemoveRules
from spark_sb_mgmt.spark.writing.schedule_writer import ScheduleMessages
from spark_sb_mgmt.spark.writing.settle_writer import SettleMessages
from spark_sb_mgmt.spark.writing.state_writer import SetSessionStates
from spark_sb_mgmt.spark.writing.task_run import MOST_NAMED, Failures, TaskRun
from spark_sb_mgmt.spark.writing.write_operation import Job, TaskAttempt, TaskDone, WriteOperation, WriteTask
from spark_sb_mgmt.spark.writing.write_rows import plain_batch
from spark_sb_mgmt.spark.writing.write_schema import WriteColumns, write_columns

_LOG: Final = logging.getLogger(__name__)

OPERATIONS: Final[dict[str, type[WriteOperation]]] = {
    table.SCHEDULE: ScheduleMessages,
    table.CANCEL: CancelScheduled,
    table.SETTLE: SettleMessages,
    table.RENEW_LOCK: RenewLocks,
    table.RENEW_SESSION_LOCK: RenewSessionLocks,
    table.SET_SESSION_STATE: SetSessionStates,
    table.ADD_RULE: AddRules,
    table.REMOVE_RULE: RemoveRules,
    table.PURGE: PurgeMessages,
}


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver. `done` is its operation's; `kept` is how many of its rows were done and are not undone."""

    job: Job
    attempt: TaskAttempt
    failures: Failures
    done: Any
    kept: int = 0


class JobWriter:
    """What one job does in its tasks and on the driver: the frame of batches and of micro-batches."""

    def __init__(self, options: WriteOptions, columns: WriteColumns, job: Job) -> None:
        self.options = options
        self.columns = columns
        self.job = job
        self.receipts = None if options.receipts_path is None else ReceiptsDirectory.of(options.receipts_path, job.id)
        self.operation = OPERATIONS[options.operation](options, job)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        attempt = this_attempt(self.job)
        with ExitStack() as stack:
            entity = stack.enter_context(self.opened())
            receipts = None if self.receipts is None else stack.enter_context(self.receipts.writer(attempt, self.columns))
            task = self.operation.task(entity, attempt)
            running = TaskRun(task, entity, self.options, receipts)
            try:
                running.run(plain_batch(batch, self.options.operation) for batch in _with_rows(iterator))
            except Exception as problem:
                _undo(task, str(problem))
                raise
            if running.has_failed:
                _undo(task, running.failures.named[0])
                if task.stops_at_failure:
                    # Now, and not when all others are done, of which nothing would stand either.
                    raise job_error([running.failures], self.options)
            # What stops at a failure is undone after it.
            kept = 0 if task.stops_at_failure else running.rows - running.failures.count
            return TaskMessage(self.job, attempt, running.failures, task.done(), kept)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        tasks = [message for message in messages if isinstance(message, TaskMessage)]
        failures = [task.failures for task in tasks if task.failures.count]
        if failures and self.options.on_error == "fail":
            error = job_error(failures, self.options, sum(task.kept for task in tasks))
            if not attempts_may_be_lost(tasks) or any(each.count > each.explicable for each in failures):
                raise error
            _LOG.warning("attempts of tasks were lost, which may have done this, so that the job does not fail: %s", error)
        with self.opened() as entity:
            corrected = self.operation.commit(entity, [TaskDone(task.attempt, task.done) for task in tasks])
        if self.receipts is not None:
            self.receipts.publish([task.attempt for task in tasks], corrected)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        tasks = [message if isinstance(message, TaskMessage) else None for message in messages]
        try:
            with self.opened() as entity:
                self.operation.abort(entity, [None if task is None else TaskDone(task.attempt, task.done) for task in tasks])
        finally:
            if self.receipts is not None:
                self.receipts.discard([task.attempt for task in tasks if task is not None])

    @contextmanager
    def opened(self) -> Iterator[EntityClient]:
        """The entity, errors about it in the words of the options."""
        options = self.options
        with explained(options.operation, options.entity), open_entity(options.connection, options.entity) as entity:
            yield entity


class ManagementWriter(JobWriter, DataSourceArrowWriter):
    """One write of one DataFrame."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, write_columns(schema, options), Job(uuid.uuid4().hex, time.time_ns() // 1_000_000))
        with self.opened() as entity:
            self.operation.prepare(entity)


def check_mode(overwrite: bool, method: str = "mode") -> None:
    """Raise for any mode but append, which is the only one that Spark does not tell from overwrite itself. `method` is how it was set."""
    if overwrite:
        given = "overwrite" if method == "mode" else "complete"
        raise InvalidArgumentError(
            f'{method}("{given}")',
            f'would have to empty the entity first: use {method}("append"). To empty it, write operation batch-delete-messages before',
        )


def _with_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows without columns, which only a purge may have, come as a batch without either, however many they are. It stands for one row."""
    for batch in batches:
        yield batch if batch.num_columns else pa.RecordBatch.from_pydict({"row": pa.nulls(1)})


def this_attempt(job: Job) -> TaskAttempt:
    """Which attempt of which task runs here; outside of Spark, the first and only one."""
    context = TaskContext.get()
    if context is None:
        return TaskAttempt(is_replayable=job.is_replayable)
    # Spark hands a session's settings, the application's among them, to tasks as local properties.
    speculative = context.getLocalProperty("spark.speculation") == "true"
    # Spark counts its attempts anew in each application, and a query may be done again by another.
    own = f"{context.taskAttemptId()}-{secrets.token_hex(4)}"
    return TaskAttempt(context.partitionId(), context.attemptNumber(), own, speculative, job.is_replayable, context.taskAttemptId())


def attempts_may_be_lost(tasks: Sequence[TaskMessage]) -> bool:
    """Whether there were other attempts than those that count. Spark numbers all that it starts, so that a gap shows one; it may also have
    been of another job meanwhile. Not seen is, without speculation, a stage that ran again before any of its tasks had ended."""
    if any(task.attempt.may_not_be_first for task in tasks):
        return True
    started = [task.attempt.started for task in tasks]
    return max(started) - min(started) + 1 > len(started)


def job_error(failures: Sequence[Failures], options: WriteOptions, kept: int = 0) -> RowsFailedError:
    """The one error of a job whose rows failed; `kept` others were done."""
    count = sum(each.count for each in failures)
    named = [name for each in failures for name in each.named][:MOST_NAMED]
    return RowsFailedError(count, named, kept, operation=options.operation, entity=options.entity)


def _undo(task: WriteTask, reason: str) -> None:
    """Why the task fails is what the user is to see; that something is left then is for `abort`, which looks again."""
    try:
        task.undo()
    except Exception as another:
        _LOG.warning("what this attempt did is not undone yet (%s); it failed by: %s", another, scrub(reason))
