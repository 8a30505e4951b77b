"""cancel-scheduled-message: rows of sequence numbers, grouped into requests (wire-facts.md, sections 1.1 and 4).

The service cancels all messages of a request or none, and refuses numbers of several partitions in one. So numbers are grouped by
partition, and of a request that is refused because one of them is not there, those that are there are found and asked for again.

The one rule: a row is ok if its message was scheduled and is not any more. One that is not there is failed; where another attempt of the
task may have cancelled it, that is no reason for the job to fail.

A request whose answer was lost is looked at. If any of its messages still stands, it was not carried out, and is sent again. If none does,
they are taken as cancelled: all of them would have had to be enqueued in that moment otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.client.peeking import SCHEDULED
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.connection.planning import PARTITION_SHIFT
from spark_sb_mgmt.errors import MessageNotFoundError, SbMgmtError
from spark_sb_mgmt.operations.schedule import cancel_scheduled_message
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options.objects import BatchedWriteOptions
from spark_sb_mgmt.spark.reading.message_batches import Wanted, message_batches
from spark_sb_mgmt.spark.writing.number_runs import Runs, numbers_in, runs_of
from spark_sb_mgmt.spark.writing.task_run import TaskRun
from spark_sb_mgmt.spark.writing.write_operation import FAILED, UNKNOWN, Receipt, Result, Step, TaskAttempt, WriteOperation, WriteTask
from spark_sb_mgmt.spark.writing.write_rows import RowProblem, row_problems

# How often a request whose answer was lost is sent again before its loss is told.
_MOST_LOST: Final = 5
# Up to so many runs of neighbours a look at all of them costs less than halving.
_MOST_RUNS: Final = 32
_PAGE: Final = 250
# Numbers of one request that undoes.
_AT_ONCE: Final = 1_000


class CancelScheduled(WriteOperation):
    """Cancels what `schedule-message` gave the numbers of."""

    options: BatchedWriteOptions

    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask:
        return CancelTask(entity, attempt, self.options.max_batch_messages)


class CancelTask(WriteTask):
    def __init__(self, entity: EntityClient, attempt: TaskAttempt, batch_size: int) -> None:
        self._entity = entity
        self._attempt = attempt
        self._batch_size = batch_size
        self._lost = 0

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        return row_problems(rows, table.CANCEL)

    def requests(self, rows: pa.RecordBatch) -> Iterator[Result]:
        numbers = _numbers(rows)
        if (numbers[1:] < numbers[:-1]).any():
            # Neighbours in one request: fewer ranges to look at where one of it is missing, and less for the service to search.
            rows = rows.take(pa.array(np.argsort(numbers, kind="stable")))
            numbers = _numbers(rows)
        partitions = numbers >> PARTITION_SHIFT
        for partition in np.unique(partitions):
            group = rows if (partitions == partition).all() else rows.filter(pa.array(partitions == partition))
            for start in range(0, group.num_rows, self._batch_size):
                yield _step(group.slice(start, self._batch_size))

    def answered(self, step: Step[None], outcome: Outcome[None]) -> Iterator[Result]:
        rows = step.rows
        if not isinstance(outcome, SbMgmtError):
            yield Receipt(rows)
        elif isinstance(outcome, MessageNotFoundError):
            yield from self._not_found(rows, outcome)
        elif outcome.may_have_taken_effect and self._lost < _MOST_LOST:
            self._lost += 1
            if _scheduled(self._entity, runs_of(_numbers(rows))):
                yield _step(rows)
            else:
                yield Receipt(rows, status_description="the answer was lost, and a look shows that it is not scheduled any more")
        else:
            yield self.failed(step, outcome)

    def _not_found(self, rows: pa.RecordBatch, error: MessageNotFoundError) -> Iterator[Result]:
        """Cancel those that are there, and tell of the others: found by a look where one is cheap, else by halving."""
        numbers = _numbers(rows)
        different = np.unique(numbers)
        if len(different) == 1:
            yield from self._missing(rows, error)
            return
        runs = runs_of(different)
        if len(runs) <= _MOST_RUNS:
            there = np.isin(numbers, _scheduled(self._entity, runs))
            if not there.all():
                yield from self._missing(rows.filter(pa.array(~there)), error)
                if there.any():
                    yield _step(rows.filter(pa.array(there)))
                return
        lower = numbers < different[len(different) // 2]
        yield _step(rows.filter(pa.array(lower)))
        yield _step(rows.filter(pa.array(~lower)))

    def _missing(self, rows: pa.RecordBatch, error: MessageNotFoundError) -> Iterator[Receipt]:
        if self._attempt.is_repeated:
            text = "it is not scheduled: an earlier attempt of this task cancelled it, or it was not there before"
            yield Receipt(rows, UNKNOWN, error.status, error.condition, text, fails=False)
        else:
            # The service names all numbers of the request that are missing, or none.
            text = "there is no scheduled message of this number: it was cancelled or enqueued already, or never there"
            yield Receipt(rows, FAILED, error.status, error.condition, text, is_explicable=True)


def cancel_runs(entity: EntityClient, runs: Runs) -> None:
    """Cancel all that is scheduled at these numbers; what is not there is passed over."""
    batches = (pa.RecordBatch.from_pydict({"sequence_number": numbers}) for numbers in numbers_in(runs, _AT_ONCE))
    # As a repeated attempt: that something is gone already is what is wanted.
    TaskRun(CancelTask(entity, TaskAttempt(number=1), _AT_ONCE), entity).run(batches)


def _scheduled(entity: EntityClient, runs: Runs) -> list[int]:
    pages = entity.peek_ranges(runs, min(_PAGE, max(end - start for start, end in runs)))
    batches = message_batches(pages, ["sequence_number"], entity.path, Wanted(states=(SCHEDULED,)))
    return [number for batch in batches for number in batch.column(0).to_pylist()]


def _step(rows: pa.RecordBatch) -> Step[Any]:
    return Step(cancel_scheduled_message(_numbers(rows)), rows)


def _numbers(rows: pa.RecordBatch) -> Any:
    return rows.column("sequence_number").to_numpy(zero_copy_only=False)
