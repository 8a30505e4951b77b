"""What a write operation is to the writer: requests made of rows, and what their answers mean (CONTRACT section 1.3).

The one rule: an operation knows its requests and nothing of Spark, files or the order of answers; the writer (`writer`) keeps requests in
flight, writes receipts and decides whether the job fails.

How to add an operation:

1. A module of its own with a subclass of `WriteTask`: what one attempt of one task does. `requests(rows)` is given a batch of rows that
   passed the checks of `write_rows`, and yields `Step`s: a request of `spark_sb_mgmt.operations` and the rows that it is about, cut out of
   the batch by `slice`, `take` or `filter`. `answered(step, outcome)` is given each step with its result or its SbMgmtError, and yields
   what follows: `Receipt`s for rows that are done with, further `Step`s for those that are not (halves of a request that was refused, the
   second of two requests). Every row of every step must end in exactly one receipt. `failed(step, error)` makes the usual receipt of an
   error that is about these rows.
2. A subclass of `WriteOperation`, whose `task` makes one. It is pickled with the writer, so it holds options and no connection. What the
   job as a whole has to do on the driver goes into `commit` and `abort`.
3. A line in `writer.OPERATIONS`.

Micro-batches of a stream are jobs too, and may be done again by a later run of their query: such attempts count as repeated.

What is given for free: requests wait for room among `pipelineDepth`, rows that are wrong are told before anything of their batch is sent,
memory is that of the batches in flight, receipts hold `row_key`, and `message_id`, `sequence_number` or `lock_token` where the rows have
such a column.

What an operation must do itself: a task may be tried again (`TaskAttempt.is_repeated`), and what an earlier attempt did then stands. A
stage that is run again does not say so: a row that finds itself done already is a failure that `is_explicable`, and the commit decides.
OutcomeUnknownError says that a request was sent and nobody knows whether it was carried out: find out by looking, and say `UNKNOWN` if that
does not tell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar

import pyarrow as pa

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import (
    AuthenticationError,
    DeadlineExceededError,
    EntityDisabledError,
    EntityNotFoundError,
    LocalProtocolError,
    OutcomeUnknownError,
    SbMgmtError,
    ServerBusyError,
    TransportError,
)
from spark_sb_mgmt.operations.envelope import OK as _OK
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.spark.reading.deferred import MOST_LOST
from spark_sb_mgmt.spark.writing.write_rows import RowProblem

T = TypeVar("T")

# What became of a row. Unknown: it cannot be told, also not by looking.
OK: Final = "ok"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"

# Errors that the next request would meet too: they end the task, so that Spark tries it again, and not each row for itself.
OF_THE_WHOLE: Final = (
    AuthenticationError,
    DeadlineExceededError,
    EntityDisabledError,
    EntityNotFoundError,
    ServerBusyError,
    TransportError,
)


@dataclass(frozen=True)
class Job:
    """One write of one DataFrame: an id that nobody else has, and when it was planned, in milliseconds since 1970.

    A micro-batch of a stream `is_replayable`: a query that was stopped in its midst does it again under the same id."""

    id: str
    started_ms: int
    is_replayable: bool = False


@dataclass(frozen=True)
class TaskAttempt:
    """Which attempt at which part of the job this is. `id` is its own among all attempts of all runs."""

    partition: int = 0
    number: int = 0
    id: str = "0"
    # Whether Spark may run a second attempt beside this one, and whether an earlier run of a query may have made one.
    is_speculative: bool = False
    is_replayable: bool = False
    # Spark's own number of it: one more than that of the attempt, of whatever task, that was started before it.
    started: int = 0

    @property
    def is_repeated(self) -> bool:
        """Whether an earlier attempt may have done some of this. A stage that is run again counts its attempts anew, so that False does not
        exclude it."""
        return self.number > 0 or self.is_replayable

    @property
    def may_not_be_first(self) -> bool:
        """Whether another attempt may have done some of this, before or beside this one."""
        return self.is_repeated or self.is_speculative


@dataclass(frozen=True)
class Step(Generic[T]):
    """One request, and the rows it is about. `note` is the operation's own; `lost` is how often it was asked for before and the answer was
    lost."""

    request: Request[T]
    rows: pa.RecordBatch
    note: Any = None
    lost: int = 0

    def is_to_be_looked_for(self, error: SbMgmtError) -> bool:
        """Whether nobody knows what became of the request, and there was not too much of that already."""
        return error.may_have_taken_effect and self.lost < MOST_LOST


@dataclass(frozen=True)
class Receipt:
    """What became of rows, for all of them the same but for `columns`: those of `write_schema.RECEIPT_COLUMNS` that differ, each with a
    value for every row. `fails` False: the row is not as it was asked for, and yet no reason for the job to fail. `is_explicable`: it
    fails, unless there were attempts that are lost, one of which may have done what the row asks for."""

    rows: pa.RecordBatch
    status: str = OK
    status_code: int | None = _OK
    error_condition: str | None = None
    status_description: str | None = None
    columns: Mapping[str, pa.Array | Sequence[Any]] = field(default_factory=dict)
    fails: bool = True
    is_explicable: bool = False

    @property
    def is_ok(self) -> bool:
        return self.status == OK


Result: TypeAlias = "Step[Any] | Receipt"


class WriteTask(ABC):
    """One attempt of one task: rows in, requests out, answers in, receipts out."""

    # Whether the first row that fails ends the task, and with it the job: where what was done can be undone, it is of no use to do more.
    stops_at_failure = False

    @abstractmethod
    def requests(self, rows: pa.RecordBatch) -> Iterator[Result]:
        """What is to be sent for these rows; receipts for rows for which nothing is. Asked for as there is room, so that nothing needs to
        be held back."""

    @abstractmethod
    def answered(self, step: Step[Any], outcome: Outcome[Any]) -> Iterator[Result]:
        """What follows from an answer."""

    @abstractmethod
    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        """What is wrong with rows, before any of their batch is sent: `write_rows.row_problems`, nearly always."""

    def last_requests(self) -> Iterator[Result]:
        """What is left to be sent when there are no more rows."""
        return iter(())

    def undo(self) -> None:  # noqa: B027 - nothing to undo is the usual case
        """Take back what this attempt did, because it failed. Not called in a worker that was killed. May raise why it could not."""

    def done(self) -> Any:
        """What the driver is to know of this attempt, if it is the one that counts; it has to pickle, and to stay small."""
        return None

    def failed(self, step: Step[Any], error: SbMgmtError) -> Receipt:
        """The receipt for rows whose request failed. Raises an error that is not about them."""
        if isinstance(error, OF_THE_WHOLE):
            raise error
        status = UNKNOWN if error.may_have_taken_effect else FAILED
        return failure(step.rows, error, status)


def failure(rows: pa.RecordBatch, error: SbMgmtError, status: str = FAILED) -> Receipt:
    """The receipt that says why."""
    if isinstance(error, (LocalProtocolError, OutcomeUnknownError)):
        text = str(error)
    else:
        text = str(error.description or error.args[0]) if error.args else str(error)
    return Receipt(rows, status, error.status, error.condition, text)


@dataclass(frozen=True)
class TaskDone:
    """A task whose result counts."""

    attempt: TaskAttempt
    # What `WriteTask.done` gave.
    done: Any


class WriteOperation(ABC):
    """An operation with its options, and what a whole job of it does on the driver."""

    def __init__(self, options: Any, job: Job) -> None:
        """`options` are those of its own kind (`options.objects`)."""
        self.options = options
        self.job = job

    @abstractmethod
    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask: ...

    def prepare(self, entity: EntityClient) -> None:  # noqa: B027 - as are these two
        """On the driver, before there are tasks; what it keeps on itself goes to them and to `commit` and `abort`."""

    def resume(self, entity: EntityClient, passed: Any) -> None:  # noqa: B027
        """In place of `prepare`, and in the process that commits, for a micro-batch. `passed` is what `passed` gave when the one before it
        was committed, None if that is not known."""

    def passed(self, entity: EntityClient) -> Any:
        """What the next micro-batch need not look at any more."""
        return None

    def commit(self, entity: EntityClient, tasks: Sequence[TaskDone]) -> Mapping[str, int]:
        """Every task succeeded. Raises where the job failed all the same; then `abort` follows. Answers with what receipts have to say
        otherwise: sequence numbers by message-id."""
        return {}

    def abort(self, entity: EntityClient, tasks: Sequence[TaskDone | None]) -> None:  # noqa: B027
        """The job failed; None for tasks whose result is not known. What can be undone is."""
