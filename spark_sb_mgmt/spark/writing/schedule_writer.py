"""schedule-message: all rows of a job, each once, or none (CONTRACT section 3, DESIGN section 5).

What one attempt of a task does stands here; what the job does about attempts that were lost, in `schedule_job`.

The one rule: what is not known is looked for, never sent again blindly. Every message carries a stamp (`job_stamp`) that says which row
it is; after a request without an answer the entity is looked at for its rows. Only if they do not turn up they are sent again; and then
the job looks once more when it commits, in case the first request was carried out after all.

An attempt that fails takes back what it scheduled before it says so. What it cannot take back, the job does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.connection.planning import partition_id
from spark_sb_mgmt.errors import (
    ArgumentError,
    AuthenticationError,
    EncodeError,
    InvalidArgumentError,
    MessageSizeExceededError,
    RequestTooLargeError,
    SbMgmtError,
)
from spark_sb_mgmt.operations.schedule import schedule_entries
from spark_sb_mgmt.spark.options.objects import ScheduleOptions
from spark_sb_mgmt.spark.writing import job_stamp
from spark_sb_mgmt.spark.writing.cancel_writer import cancel_runs
from spark_sb_mgmt.spark.writing.number_runs import KnownNumbers, Numbers, Runs, above, runs_of, without
from spark_sb_mgmt.spark.writing.schedule_job import ScheduledByTask, ScheduleJob
from spark_sb_mgmt.spark.writing.schedule_rows import (
    ENVELOPE_BYTES,
    Entries,
    Places,
    RowEncoder,
    check_time,
    pieces,
    problem_of,
    requests_of,
)
from spark_sb_mgmt.spark.writing.write_operation import (
    FAILED,
    UNKNOWN,
    Job,
    Receipt,
    Result,
    Step,
    TaskAttempt,
    TaskDone,
    WriteOperation,
    WriteTask,
)
from spark_sb_mgmt.spark.writing.write_rows import RowProblem

# When to look for the messages of a request whose answer was lost, in seconds after the loss: the service may still be at it.
LOOKS_S: Final = (0.0, 0.3, 1.3)
# A batch is not to be larger, also where an entity takes messages that are (wire-facts.md, section 4).
BATCH_BYTES: Final = 1024 * 1024
# Of these the service says that one message of the request is in the way, not which.
_OF_ONE_MESSAGE: Final = (ArgumentError, MessageSizeExceededError)


class ScheduleMessages(WriteOperation):
    """Schedules rows as messages."""

    options: ScheduleOptions

    def __init__(self, options: ScheduleOptions, job: Job) -> None:
        super().__init__(options, job)
        check_time(options, job)
        self.work = ScheduleJob(job)

    def prepare(self, entity: EntityClient) -> None:
        self.work.prepare(entity)

    def resume(self, entity: EntityClient, passed: Any) -> None:
        self.work.resume(passed)

    def passed(self, entity: EntityClient) -> Any:
        return self.work.passed(entity)

    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask:
        return ScheduleTask(entity, attempt, self.options, self.job, self.work.highest or {})

    def commit(self, entity: EntityClient, tasks: Sequence[TaskDone]) -> Mapping[str, int]:
        return self.work.commit(entity, tasks)

    def abort(self, entity: EntityClient, tasks: Sequence[TaskDone | None]) -> None:
        self.work.abort(entity, tasks)


@dataclass(frozen=True)
class _Sent:
    """What a step's rows were when they were sent: `passed` are the highest numbers that were known by then, for each partition; `losses`
    is how often answers had been lost."""

    places: Places
    ids: pa.Array
    passed: dict[int, int]
    losses: int


class ScheduleTask(WriteTask):
    stops_at_failure = True

    def __init__(
        self,
        entity: EntityClient,
        attempt: TaskAttempt,
        options: ScheduleOptions,
        job: Job,
        highest: Mapping[int, int],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entity = entity
        self._options = options
        self._encoder = RowEncoder(options, job, attempt)
        self._prefix = job_stamp.attempt_prefix(job.id, attempt)
        self._start = dict(highest)
        # Numbers only grow, so whatever is sent from now on is above what was answered already.
        self._passed = dict(highest)
        self._sleep = sleep
        self._clock = clock
        self._losses = 0
        self._lost_at = 0.0
        self._known = KnownNumbers()
        self._place = 0
        self._is_uncertain = False

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        return self._encoder.problems(rows)

    def requests(self, rows: pa.RecordBatch) -> Iterator[Result]:
        timed = self._encoder.timed(rows)
        for _, piece in pieces(timed, self._options.max_batch_messages):
            places = np.arange(self._place, self._place + piece.num_rows)
            self._place += piece.num_rows
            yield from self._steps(piece, places, self._options.max_batch_messages)

    def answered(self, step: Step[Numbers], outcome: Outcome[Numbers]) -> Iterator[Result]:
        if not isinstance(outcome, SbMgmtError):
            yield self._scheduled(step.rows, step.note.ids, outcome)
        elif outcome.may_have_taken_effect:
            yield from self._look_for(step, outcome)
        elif isinstance(outcome, _OF_ONE_MESSAGE) and step.rows.num_rows > 1:
            yield from self._steps(step.rows, step.note.places, -(-step.rows.num_rows // 2))
        else:
            yield self.failed(step, outcome)

    def undo(self) -> None:
        runs, self._known, exact = self._known.runs, KnownNumbers(), self._known.is_exact
        if exact:
            cancel_runs(self._entity, runs)
        if self._is_uncertain or not exact:
            found = runs_of([message.sequence_number for message in self._own_in(above(self._start))])
            cancel_runs(self._entity, found)

    def done(self) -> ScheduledByTask:
        return ScheduledByTask(self._known.runs, self._known.is_exact, self._is_uncertain)

    def _steps(self, rows: pa.RecordBatch, places: Places, most: int, lost: int = 0) -> Iterator[Result]:
        """Requests for these rows; receipts for those that no request can carry."""
        entries: Entries | None = None
        while rows.num_rows and entries is None:
            try:
                entries = self._encoder.encoded(rows, places)
            except (EncodeError, InvalidArgumentError) as problem:
                if problem.row is None:
                    raise
                yield Receipt(rows.slice(problem.row, 1), FAILED, None, None, problem_of(problem))
                others = np.arange(rows.num_rows) != problem.row
                rows, places = rows.filter(pa.array(others)), places[others]
        if entries is None:
            return
        limit = self._limit()
        for request in requests_of(entries, most, self._options.max_batch_bytes or min(limit or BATCH_BYTES, BATCH_BYTES)):
            if limit is not None and request.encoded.cut(0, 1).size + ENVELOPE_BYTES > limit:
                yield self._too_large(request, limit)
            else:
                note = _Sent(request.places, request.ids, dict(self._passed), self._losses)
                yield Step(schedule_entries(request.encoded), request.rows, note, lost)

    def _limit(self) -> int | None:
        """Bytes of a request with one message: what the link takes, or less if that was asked for."""
        limits = [limit for limit in (self._entity.max_message_size, self._options.max_batch_bytes) if limit is not None]
        return min(limits, default=None)

    def _too_large(self, request: Entries, limit: int) -> Receipt:
        error = RequestTooLargeError(request.encoded.cut(0, 1).size + ENVELOPE_BYTES, limit)
        taken = "option maxBatchBytes allows" if limit == self._options.max_batch_bytes else "the entity takes"
        return Receipt(request.rows, FAILED, None, None, f"its message has {error.size} bytes with all that goes along, {taken} {limit}")

    def _scheduled(self, rows: pa.RecordBatch, ids: pa.Array, numbers: Numbers) -> Receipt:
        self._known.add(numbers)
        for number in (int(numbers.min()), int(numbers.max())):
            self._passed[partition_id(number)] = max(number, self._passed.get(partition_id(number), 0))
        return Receipt(rows, columns={"sequence_number": numbers, "message_id": ids})

    def _look_for(self, step: Step[Numbers], error: SbMgmtError) -> Iterator[Result]:
        rows, sent = step.rows, step.note
        try:
            found = self._found(sent)
        except AuthenticationError:
            # Whoever may only send cannot look.
            self._is_uncertain = True
            yield Receipt(rows, UNKNOWN, error.status, error.condition, f"{error} (the key has no right to look: give it Listen)")
            return
        here = np.isin(sent.places, list(found))
        if here.any():
            # All of a request or none; but what is not found now is not sent again either.
            numbers = np.array([found[place] for place in sent.places[here].tolist()], np.int64)
            yield self._scheduled(rows.filter(pa.array(here)), sent.ids.filter(pa.array(here)), numbers)
            if not here.all():
                self._is_uncertain = True
                yield Receipt(rows.filter(pa.array(~here)), UNKNOWN, error.status, error.condition, str(error))
            return
        self._is_uncertain = True
        if step.is_to_be_looked_for(error):
            yield from self._steps(rows, sent.places, rows.num_rows, step.lost + 1)
        else:
            yield self.failed(step, error)

    def _found(self, sent: _Sent) -> dict[int, int]:
        """Which of the rows stand in the entity, and where."""
        wanted = set(sent.places.tolist())
        looks: Sequence[float] = LOOKS_S
        if sent.losses == self._losses:
            self._losses, self._lost_at = self._losses + 1, self._clock()
        else:
            # It was lost with one beside it, and is not waited for anew.
            looks = LOOKS_S[-1:]
        for after in looks:
            self._sleep(max(0.0, self._lost_at + after - self._clock()))
            known = self._known.runs if self._known.is_exact else []
            found = {message.row: message.sequence_number for message in self._own_in(without(above(sent.passed), known))}
            found = {row: number for row, number in found.items() if row in wanted}
            if found:
                return found
        return {}

    def _own_in(self, ranges: Runs) -> list[job_stamp.Stamped]:
        return list(job_stamp.stamped(self._entity, self._prefix, ranges))
