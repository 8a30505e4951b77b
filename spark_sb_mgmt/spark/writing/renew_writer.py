"""renew-lock and renew-session-lock: locks that go on, each receipt with the new end of its own (wire-facts.md, section 1.1).

The service renews all message locks of a request or none; a request that is refused is asked for again in parts, until what is in the way
stands alone.

The one rule: a row is ok if its lock holds until the `expiration` of its receipt. To renew once more changes nothing else, so lost answers
and repeated tasks are no matter.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import SbMgmtError, SessionLockLostError
from spark_sb_mgmt.operations.sessions import renew_session_lock
from spark_sb_mgmt.operations.settle import renew_lock
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options.objects import BatchedWriteOptions
from spark_sb_mgmt.spark.writing.row_groups import parts, pieces
from spark_sb_mgmt.spark.writing.settle_writer import LOCK_LOST, PARTS
from spark_sb_mgmt.spark.writing.write_operation import Receipt, Result, Step, TaskAttempt, WriteOperation, WriteTask
from spark_sb_mgmt.spark.writing.write_rows import RowProblem, row_problems

NOT_HELD: Final = "nobody has this session locked: whoever receives from it must hold it, and only as long as he does"


class RenewLocks(WriteOperation):
    """Renews the locks of messages."""

    options: BatchedWriteOptions

    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask:
        return RenewLockTask(self.options.max_batch_messages)


class RenewLockTask(WriteTask):
    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        return row_problems(rows, table.RENEW_LOCK)

    def requests(self, rows: pa.RecordBatch) -> Iterator[Result]:
        return map(_renewal, pieces(rows, self._batch_size))

    def answered(self, step: Step[list[datetime]], outcome: Outcome[list[datetime]]) -> Iterator[Result]:
        rows = step.rows
        if not isinstance(outcome, SbMgmtError):
            until = dict(zip(_tokens(rows), outcome, strict=True))
            yield Receipt(rows, columns={"expiration": [until[token] for token in rows.column("lock_token").to_pylist()]})
        elif isinstance(outcome, LOCK_LOST) and rows.num_rows > 1:
            yield from map(_renewal, parts(rows, PARTS))
        else:
            yield self.failed(step, outcome)


def _renewal(rows: pa.RecordBatch) -> Step[list[datetime]]:
    return Step(renew_lock(_tokens(rows)), rows)


def _tokens(rows: pa.RecordBatch) -> list[str]:
    """Each once: the answer has an expiration for each."""
    return list(dict.fromkeys(rows.column("lock_token").to_pylist()))


class SessionTask(WriteTask):
    """A task whose rows are about one session each."""

    operation: str

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        return row_problems(rows, self.operation)

    def requests(self, rows: pa.RecordBatch) -> Iterator[Result]:
        return map(self.step, pieces(rows, 1))

    @abstractmethod
    def step(self, row: pa.RecordBatch) -> Step[Any]: ...

    def failed(self, step: Step[Any], error: SbMgmtError) -> Receipt:
        receipt = super().failed(step, error)
        if isinstance(error, SessionLockLostError):
            return replace(receipt, status_description=f"{NOT_HELD}. The service says: {receipt.status_description}")
        return receipt


class RenewSessionLocks(WriteOperation):
    """Renews the locks of sessions."""

    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask:
        return RenewSessionLockTask()


class RenewSessionLockTask(SessionTask):
    operation = table.RENEW_SESSION_LOCK

    def step(self, row: pa.RecordBatch) -> Step[datetime]:
        return Step(renew_session_lock(row.column("session_id")[0].as_py()), row)

    def answered(self, step: Step[datetime], outcome: Outcome[datetime]) -> Iterator[Result]:
        yield (self.failed(step, outcome) if isinstance(outcome, SbMgmtError) else Receipt(step.rows, columns={"expiration": [outcome]}))
