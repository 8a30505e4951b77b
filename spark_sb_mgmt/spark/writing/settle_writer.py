"""update-disposition: rows settled by their lock tokens, or by the numbers of deferred messages, which are locked first (wire-facts.md,
sections 1.1 and 1.2).

Rows with one disposition go in one request. The service settles all of a request or none, and does not say which was in the way; so one
that is refused is asked for again in parts, until the rows in the way stand alone.

The one rule: a row is ok if its message was settled as it says. A lock token settles once, so a request whose answer was lost can do no
harm twice; still it is looked at first. By its number a message that was completed or dead-lettered is seen to be gone; otherwise its lock
is renewed, which only a lock does that was not used. What does not tell is unknown, and fails the job as any row does that may not be
settled.

A task that is tried again finds the messages gone that an earlier attempt completed or dead-lettered by number: these are unknown too, but
what the row wants is so, and the job does not fail. By lock token nothing can be seen, so there it does. `abandoned` by number leaves the
message where it was, and a second attempt abandons it once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import (
    ArgumentError,
    MessageLockLostError,
    NotSupportedError,
    QuotaExceededError,
    SbMgmtError,
    SessionLockLostError,
)
from spark_sb_mgmt.operations.settle import renew_lock
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options.objects import SettleOptions
from spark_sb_mgmt.spark.reading.deferred import Patience
from spark_sb_mgmt.spark.writing.dispositions import Disposition, by_disposition, disposition_problems
from spark_sb_mgmt.spark.writing.row_groups import one_for_each_row, parts, pieces, repeated
from spark_sb_mgmt.spark.writing.settle_locks import RowLocks, is_locked, tokens_of
from spark_sb_mgmt.spark.writing.write_operation import (
    OF_THE_WHOLE,
    UNKNOWN,
    Receipt,
    Result,
    Step,
    TaskAttempt,
    WriteOperation,
    WriteTask,
    failure,
)
from spark_sb_mgmt.spark.writing.write_rows import RowProblem, row_problems

# A request that is refused is asked for again in so many parts: as many as are in flight by default, and fewer round trips than halving.
PARTS: Final = 8
# The way out where a lock token came too late.
_TOO_LATE: Final = "Settle sooner after the lock was taken, or by sequence_number, which locks and settles in one step"
LOCK_LOST: Final = (MessageLockLostError, SessionLockLostError)
# Refusals of what is asked for, whatever the message: to ask for each alone would only repeat them.
_OF_ALL_ROWS: Final = (ArgumentError, NotSupportedError, QuotaExceededError)


class SettleMessages(WriteOperation):
    """Completes, abandons, dead-letters or defers messages."""

    options: SettleOptions

    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask:
        return SettleTask(entity, attempt, self.options.max_batch_messages, self.options.disposition_status)


class SettleTask(WriteTask):
    def __init__(
        self,
        entity: EntityClient,
        attempt: TaskAttempt,
        batch_size: int,
        disposition_status: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._entity = entity
        self._attempt = attempt
        self._batch_size = batch_size
        self._status = disposition_status
        self._locks = RowLocks(entity, attempt, batch_size, disposition_status, patience)

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        key = "sequence_number" if "sequence_number" in rows.schema.names else "lock_token"
        return one_for_each_row(
            row_problems(rows, table.SETTLE, disposition_status=self._status),
            repeated(rows, key, rows.column(key), "a message is settled once, so drop the duplicates before"),
            disposition_problems(rows, self._status),
        )

    def requests(self, rows: pa.RecordBatch) -> Iterator[Result]:
        if "sequence_number" not in rows.schema.names:
            yield from self._steps(rows)
            return
        for result in self._locks.take(rows):
            if isinstance(result, Receipt):
                yield result
            else:
                yield from self._steps(result)

    def _steps(self, rows: pa.RecordBatch) -> Iterator[Result]:
        for disposition, group in by_disposition(rows, self._status):
            for piece in pieces(group, self._batch_size):
                yield _step(piece, disposition)

    def answered(self, step: Step[None], outcome: Outcome[None]) -> Iterator[Result]:
        rows = step.rows
        if not isinstance(outcome, SbMgmtError):
            self._locks.ended(rows)
            yield Receipt(rows)
        elif step.is_to_be_looked_for(outcome):
            yield from self._find_out(step)
        elif rows.num_rows > 1 and _may_be_of_some(outcome):
            for part in parts(rows, PARTS):
                yield _step(part, step.note, step.lost)
        elif isinstance(outcome, LOCK_LOST):
            self._locks.ended(rows)
            yield self._lock_lost(step, outcome)
        else:
            receipt = self.failed(step, outcome)
            if not outcome.may_have_taken_effect:
                self._locks.give_back(rows)
            yield receipt

    def _lock_lost(self, step: Step[None], error: SbMgmtError) -> Receipt:
        """What is said of a row whose lock is no more."""
        rows = step.rows
        if step.lost and is_locked(rows) and step.note.removes and self._locks.gone(rows).all():
            return Receipt(rows, status_description="the first answer was lost, and a look shows that its message is gone")
        if step.lost:
            text = "the first answer was lost; its lock is gone, because it was settled then or because the lock ended"
        elif self._attempt.may_not_be_first and not is_locked(rows):
            text = "its lock is gone, because another attempt of this task settled it or because the lock ended"
        else:
            said = failure(rows, error)
            return said if is_locked(rows) else replace(said, status_description=f"{said.status_description} {_TOO_LATE}")
        return Receipt(rows, UNKNOWN, error.status, error.condition, text)

    def _find_out(self, step: Step[None]) -> Iterator[Result]:
        """Look what became of a request whose answer was lost. What was certainly not settled is asked for again."""
        rows, lost = step.rows, step.lost + 1
        if is_locked(rows) and step.note.removes:
            gone = self._locks.gone(rows)
            if gone.any():
                settled = rows.filter(pa.array(gone))
                self._locks.ended(settled)
                yield Receipt(settled, status_description="the answer was lost, and a look shows that its message is gone")
            if not gone.all():
                yield _step(rows.filter(pa.array(~gone)), step.note, lost)
            return
        locked = self._still_locked(rows)
        if locked.any():
            yield _step(rows.filter(pa.array(locked)), step.note, lost)
        if not locked.all():
            text = "the answer was lost; its lock does not hold, because it was settled or because the lock ended"
            yield Receipt(rows.filter(pa.array(~locked)), UNKNOWN, None, None, text)

    def _still_locked(self, rows: pa.RecordBatch) -> Any:
        """Which locks can be renewed: a mask."""
        locked = np.zeros(rows.num_rows, bool)
        for position, outcome in self._entity.pipeline(renew_lock([token]) for token in tokens_of(rows)):
            if isinstance(outcome, OF_THE_WHOLE):
                raise outcome
            locked[position] = not isinstance(outcome, SbMgmtError)
        return locked

    def undo(self) -> None:
        """What was settled stays so; locks that are left are given back."""
        self._locks.release()


def _may_be_of_some(error: SbMgmtError) -> bool:
    """Whether some of several rows may be in the way of the others."""
    return not error.may_have_taken_effect and not isinstance(error, (*OF_THE_WHOLE, *_OF_ALL_ROWS))


def _step(rows: pa.RecordBatch, disposition: Disposition, lost: int = 0) -> Step[None]:
    return Step(disposition.request(tokens_of(rows)), rows, disposition, lost)
