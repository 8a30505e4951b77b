"""cancel-scheduled-message: rows of sequence numbers, grouped into requests (wire-facts.md, sections 1.1 and 4).

The service cancels all messages of a request or none, and refuses numbers of several partitions in one. So numbers are grouped by
partition, and of a request that is refused because one of them is not there, those that are there are found and asked for again.

The one rule: a row is ok if its message was scheduled and is not any more. One that is not there is failed; where another attempt of the
task may have cancelled it, that is no reason for the job to fail.

A request whose answer was lost is looked at. If any of its messages still stands, it was not carried out; those that stand are asked for
again. If none does, they are taken as cancelled: what the rows ask for is so. (That all of a request were gone before, and its answer lost
besides, is not to be told from it.)
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
from spark_sb_mgmt.errors import MESSAGE_NOT_FOUND, MessageNotFoundError, SbMgmtError
from spark_sb_mgmt.operations.envelope import NOT_FOUND
from spark_sb_mgmt.operations.schedule import cancel_scheduled_message
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options.objects import BatchedWriteOptions
from spark_sb_mgmt.spark.reading.message_batches import Wanted, message_batches
from spark_sb_mgmt.spark.writing.number_runs import Runs, numbers_in, runs_of
from spark_sb_mgmt.spark.writing.task_run import TaskRun
from spark_sb_mgmt.spark.writing.write_operation import FAILED, UNKNOWN, Receipt, Result, Step, TaskAttempt, WriteOperation, WriteTask
from spark_sb_mgmt.spark.writing.write_rows import RowProblem, row_problems

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
            yield from self._not_found(step)
        elif step.is_to_be_looked_for(outcome):
            there = np.isin(_numbers(rows), _scheduled(self._entity, runs_of(_numbers(rows))))
            if not there.any():
                yield Receipt(rows, status_description="the answer was lost, and a look shows that it is not scheduled any more")
                return
            if not there.all():
                yield self._missing(rows.filter(pa.array(~there)))
            yield _step(rows.filter(pa.array(there)), step.lost + 1)
        else:
            yield self.failed(step, outcome)

    def _not_found(self, step: Step[None]) -> Iterator[Result]:
        """Cancel those that are there, and tell of the others: found by a look where one is cheap, else by halving."""
        rows, lost = step.rows, step.lost
        numbers = _numbers(rows)
        different = np.unique(numbers)
        if len(different) == 1:
            yield self._missing(rows, lost)
            return
        runs = runs_of(different)
        if len(runs) <= _MOST_RUNS:
            there = np.isin(numbers, _scheduled(self._entity, runs))
            if not there.all():
                yield self._missing(rows.filter(pa.array(~there)), lost)
                if there.any():
                    yield _step(rows.filter(pa.array(there)), lost)
                return
        lower = numbers < different[len(different) // 2]
        yield _step(rows.filter(pa.array(lower)), lost)
        yield _step(rows.filter(pa.array(~lower)), lost)

    def _missing(self, rows: pa.RecordBatch, lost: int = 0) -> Receipt:
        if lost:
            # It stood when it was looked for.
            return Receipt(rows, status_description="the first answer was lost, and the request was carried out after a look")
        if self._attempt.is_repeated:
            text = "it is not scheduled: an earlier attempt of this task cancelled it, or it was not there before"
            return Receipt(rows, UNKNOWN, NOT_FOUND, MESSAGE_NOT_FOUND, text, fails=False)
        # The service names all numbers of the request that are missing, or none.
        text = "there is no scheduled message of this number: it was cancelled or enqueued already, or never there"
        return Receipt(rows, FAILED, NOT_FOUND, MESSAGE_NOT_FOUND, text, is_explicable=True)


def cancel_runs(entity: EntityClient, runs: Runs) -> None:
    """Cancel all that is scheduled at these numbers; what is not there is passed over."""
    batches = (pa.RecordBatch.from_pydict({"sequence_number": numbers}) for numbers in numbers_in(runs, _AT_ONCE))
    # As a repeated attempt: that something is gone already is what is wanted.
    TaskRun(CancelTask(entity, TaskAttempt(number=1), _AT_ONCE), entity).run(batches)


def _scheduled(entity: EntityClient, runs: Runs) -> list[int]:
    pages = entity.peek_ranges(runs, min(_PAGE, max(end - start for start, end in runs)))
    batches = message_batches(pages, ["sequence_number"], entity.path, Wanted(states=(SCHEDULED,)))
    return [number for batch in batches for number in batch.column(0).to_pylist()]


def _step(rows: pa.RecordBatch, lost: int = 0) -> Step[Any]:
    return Step(cancel_scheduled_message(_numbers(rows)), rows, lost=lost)


def _numbers(rows: pa.RecordBatch) -> Any:
    return rows.column("sequence_number").to_numpy(zero_copy_only=False)
