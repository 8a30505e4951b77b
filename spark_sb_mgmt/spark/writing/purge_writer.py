"""batch-delete-messages: the messages of an entity, or of the sessions that rows name, deleted unread (CONTRACT section 1.3).

The one rule: a row is the order, and its receipt says how many messages went. All tasks and attempts use one time, `enqueuedBefore` or when
the job was planned on the driver, so that none chases what comes meanwhile, and a repeated task goes on where the first was.

With column `session_id` each task deletes the sessions of its rows, several at once. Without it the entity as a whole is deleted by each
task that has a row, once for all its rows: one task, of one row (`spark.range(1)`), is enough; several share the work, each counts what it
deleted itself, and a DataFrame without rows deletes nothing.

The service does so for no partitioned entity, and leaves locked and scheduled messages alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import ArgumentError, SbMgmtError
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options.objects import PurgeOptions, bound_ms
from spark_sb_mgmt.spark.writing.purge import Limit, Purge
from spark_sb_mgmt.spark.writing.row_groups import groups
from spark_sb_mgmt.spark.writing.sessions import no_sessions
from spark_sb_mgmt.spark.writing.write_operation import FAILED, Job, Receipt, Result, Step, TaskAttempt, WriteOperation, WriteTask
from spark_sb_mgmt.spark.writing.write_rows import RowProblem, row_problems

_NO_SESSIONS: Final = "has no sessions: leave column session_id out, which deletes the messages of the whole entity"
_PARTITIONED: Final = (
    "is partitioned, and the service deletes no batches there: receive its messages and complete them, or recreate the entity"
)


class PurgeMessages(WriteOperation):
    """Deletes messages unread."""

    options: PurgeOptions

    def __init__(self, options: PurgeOptions, job: Job) -> None:
        super().__init__(options, job)
        # The millisecond in which the job starts is part of the time before.
        self.before_ms = bound_ms(options.enqueued_before) if options.enqueued_before is not None else job.started_ms + 1

    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask:
        assert self.before_ms is not None, "a time was given or taken"
        return PurgeTask(entity, attempt, self.options.max_batch_messages, self.before_ms)


@dataclass(frozen=True)
class _Asked:
    """For how many messages a request asks; None: it is the look at the end."""

    purge: Purge
    count: int | None


class PurgeTask(WriteTask):
    def __init__(self, entity: EntityClient, attempt: TaskAttempt, batch_size: int, before_ms: int) -> None:
        self._entity = entity
        self._attempt = attempt
        self._before_ms = before_ms
        self._limit = Limit(batch_size)
        # What became of the whole entity, once it is done.
        self._whole: Purge | SbMgmtError | None = None
        self._no_sessions: SbMgmtError | None = None
        self._checked = False

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        return row_problems(rows, table.PURGE)

    def requests(self, rows: pa.RecordBatch) -> Iterator[Result]:
        if "session_id" not in rows.schema.names:
            yield from self._whole_entity(rows)
            return
        self._check_sessions()
        if self._no_sessions is not None:
            yield Receipt(rows, FAILED, self._no_sessions.status, self._no_sessions.condition, f"{self._entity.path!r} {_NO_SESSIONS}")
            return
        for group in groups(rows, ["session_id"]):
            yield _step(Purge(self._limit, self._before_ms, group.column("session_id")[0].as_py()), group)

    def _check_sessions(self) -> None:
        """Whether the service would take a session's id for what it is: it must not delete all where a part was meant."""
        if not self._checked:
            self._no_sessions = no_sessions(self._entity)
            self._checked = True

    def _whole_entity(self, rows: pa.RecordBatch) -> Iterator[Receipt]:
        if self._whole is None:
            purge = Purge(self._limit, self._before_ms)
            try:
                purge.run(self._entity)
            except SbMgmtError as problem:
                self._whole = problem
                yield self._refused(rows, problem)
                return
            self._whole = purge
            yield from self._done(rows, purge)
        elif isinstance(self._whole, Purge):
            yield Receipt(rows, status_description="the whole entity: this task did it with its first row")
        else:
            yield self._refused(rows, self._whole)

    def answered(self, step: Step[Any], outcome: Outcome[Any]) -> Iterator[Result]:
        purge, count = step.note.purge, step.note.count
        try:
            if count is None:
                if isinstance(outcome, SbMgmtError):
                    raise outcome
                purge.seen(outcome)
                yield from self._done(step.rows, purge)
            else:
                purge.answered(count, outcome)
                yield Step(purge.look(), step.rows, _Asked(purge, None)) if purge.is_over else _step(purge, step.rows)
        except SbMgmtError as problem:
            yield self._refused(step.rows, problem)

    def _done(self, rows: pa.RecordBatch, purge: Purge) -> Iterator[Receipt]:
        """The count stands once, with the first of the rows that asked for the same."""
        text = str(purge)
        if self._attempt.may_not_be_first:
            text += "; another attempt of this task may have deleted more"
        yield Receipt(rows.slice(0, 1), status_description=text)
        if rows.num_rows > 1:
            yield Receipt(rows.slice(1), status_description="asked for in an earlier row of this task too, which has the count")

    def _refused(self, rows: pa.RecordBatch, error: SbMgmtError) -> Receipt:
        receipt = self.failed(_step(Purge(self._limit, self._before_ms), rows), error)
        if isinstance(error, ArgumentError) and any(self._entity.partition_ids()):
            text = f"{self._entity.path!r} {_PARTITIONED}"
            return Receipt(rows, FAILED, error.status, error.condition, text)
        return receipt


def _step(purge: Purge, rows: pa.RecordBatch) -> Step[int]:
    count, request = purge.next_request()
    return Step(request, rows, _Asked(purge, count))
