"""What a job of schedule-message does as a whole: look for what lost attempts left behind, and take it back (CONTRACT section 3).

An attempt that is killed has no chance to cancel what it scheduled, and Spark does not say that there was one: a stage that runs again
counts its attempts from 0. So nothing is concluded from attempt numbers. Before the job starts, the highest sequence number of the entity
is found; what the job scheduled stands above it. When the job commits, every number above it that no task accounts for is looked at.
Where nobody else sends to the entity there is none, and the look is one round trip; where others do, it reads past what they sent.

The one rule: a message with the job's stamp that no task accounts for is cancelled, and the job succeeds only if that worked.

- A look ends the matter, unless attempts may still be running: with speculation, after an attempt that was repeated, or where a task was
  lost. Then it is repeated until nothing turned up for as long as Spark takes to kill a worker.
- With duplicate detection the service drops a repeated attempt's message where the lost one's has the same id. Then the lost one's is the
  row's message: it stays, and the receipts are corrected.
- A micro-batch of a stream has the same id each time it is done, so that what an earlier run of the query left is found as what a lost
  attempt left. Where the end of the micro-batch before it is not known, which is so once for each start of a query, the whole entity is
  looked at.
- A lost attempt's message that is enqueued already cannot be taken back. The job fails then, and says so: schedule for a time after its
  end.

Not guaranteed: an executor that lost its driver and goes on for longer than this waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.client.peeking import SCHEDULED
from spark_sb_mgmt.connection.planning import partition_id
from spark_sb_mgmt.errors import AuthenticationError, SbMgmtError
from spark_sb_mgmt.spark.reading.deferred import Patience, shown
from spark_sb_mgmt.spark.reading.message_batches import message_batches
from spark_sb_mgmt.spark.writing import job_stamp
from spark_sb_mgmt.spark.writing.cancel_writer import cancel_runs
from spark_sb_mgmt.spark.writing.job_stamp import Stamped
from spark_sb_mgmt.spark.writing.number_runs import Runs, above, joined, runs_of, without
from spark_sb_mgmt.spark.writing.write_operation import Job, TaskDone

_LOG: Final = logging.getLogger(__name__)
# Spark kills a Python worker two seconds after its task was to end (spark.python.task.killTimeout); a request may be under way then.
QUIET_S: Final = 3.5
_PAGE: Final = 250
# Messages that are taken back at once.
_MOST_AT_ONCE: Final = 50_000


@dataclass(frozen=True)
class ScheduledByTask:
    """The numbers that an attempt scheduled: exactly those of `runs`, or some of them. `is_uncertain`: it may have scheduled more than it
    knows of."""

    runs: Runs
    is_exact: bool
    is_uncertain: bool


@dataclass(frozen=True)
class _Look:
    """How messages that are left are looked for: whether attempts may still be running, whether one that is found says that they are, which
    messages are meant, and which of those that were found are to stay, by their numbers."""

    waits: bool
    waits_for_more: bool
    counts: Callable[[Stamped], bool] = lambda one: True
    keep: Callable[[Sequence[Stamped]], Iterable[int]] = lambda left: ()


class ScheduleJob:
    """One job, on the driver. `highest` are the numbers up to which nothing is the job's, for each partition of the entity."""

    def __init__(self, job: Job) -> None:
        self._prefix = job_stamp.job_prefix(job.id)
        self._is_replayable = job.is_replayable
        self.highest: dict[int, int] | None = None
        self.patience = Patience(seconds=QUIET_S, interval_s=0.5)

    def prepare(self, entity: EntityClient) -> None:
        try:
            self.highest = self.passed(entity)
        except AuthenticationError:
            _LOG.info("the key has no right to peek at %s (Listen): what a lost task attempt may leave there cannot be found", entity.path)

    def resume(self, passed: Mapping[int, int] | None) -> None:
        """Whatever is not known to have been passed is looked at."""
        self.highest = dict(passed or {})

    def passed(self, entity: EntityClient) -> dict[int, int]:
        return {partition_id(extent.highest): extent.highest for extent in entity.extents()}

    def commit(self, entity: EntityClient, tasks: Sequence[TaskDone]) -> Mapping[str, int]:
        """Exactly one message of each row stands when this returns. Answers with the numbers of those rows whose message is a lost
        attempt's, by message-id."""
        doubtful = any(task.attempt.number > 0 or task.attempt.is_speculative or task.done.is_uncertain for task in tasks)
        if self.highest is None:
            if doubtful:
                raise AuthenticationError(
                    "a task was tried again, or may have scheduled more than it knows of, and the key has no right to look for that: give "
                    "its policy Listen besides Send, or see to it that tasks are not repeated"
                )
            return {}
        exact = joined(run for task in tasks if task.done.is_exact for run in task.done.runs)
        ranges = without(above(self.highest), exact)
        # Of these attempts a message at an unknown number may be one that counts.
        inexact = {task.attempt.id for task in tasks if not task.done.is_exact}
        kept: dict[str, int] = {}

        def keep(left: Sequence[Stamped]) -> Iterable[int]:
            staying = _instead_of_dropped(entity, left, exact)
            kept.update({one.message_id: one.sequence_number for one in staying if one.message_id is not None})
            return [one.sequence_number for one in staying]

        def counts(one: Stamped) -> bool:
            return one.attempt not in inexact and not _is_enqueued_row(one, tasks)

        stayed = self._take_back(entity, ranges, _Look(doubtful, True, counts, keep))
        self._tell_enqueued(stayed.difference(kept.values()))
        return kept

    def abort(self, entity: EntityClient, tasks: Sequence[TaskDone | None]) -> None:
        """Nothing of the job stands when this returns."""
        known = [task for task in tasks if task is not None]
        for task in known:
            if task.done.is_exact:
                cancel_runs(entity, joined(task.done.runs))
        if self.highest is None:
            if len(known) < len(tasks) or any(not task.done.is_exact or task.done.is_uncertain for task in known):
                raise AuthenticationError("the key has no right to look for what lost task attempts scheduled: give its policy Listen")
            return
        may_be_running = len(known) < len(tasks) or any(task.attempt.number > 0 or task.attempt.is_speculative for task in known)
        self._tell_enqueued(self._take_back(entity, above(self.highest), _Look(may_be_running, may_be_running)))

    def _take_back(self, entity: EntityClient, ranges: Runs, look: _Look) -> set[int]:
        """Cancel the messages of the job that nobody accounts for. Answers with the numbers of those that stay: kept, or enqueued."""
        stayed: set[int] = set()
        until = self.patience.clock() + (self.patience.seconds if look.waits else 0.0)
        while True:
            left = self._left(entity, ranges, look.counts, stayed)
            if left:
                stayed.update(look.keep(left))
                self._cancel(entity, [one for one in left if one.sequence_number not in stayed], stayed)
                if look.waits_for_more:
                    until = max(until, self.patience.clock() + self.patience.seconds)
            if len(left) == _MOST_AT_ONCE:
                continue
            if self.patience.clock() >= until:
                return stayed
            self.patience.sleep(self.patience.interval_s)

    def _left(self, entity: EntityClient, ranges: Runs, counts: Callable[[Stamped], bool], seen: set[int]) -> list[Stamped]:
        """Messages of the job that nobody accounts for and that were not seen to stay: so many that memory is not a matter."""
        found = job_stamp.stamped(entity, self._prefix, ranges)
        return list(islice((one for one in found if counts(one) and one.sequence_number not in seen), _MOST_AT_ONCE))

    def _cancel(self, entity: EntityClient, messages: Sequence[Stamped], enqueued: set[int]) -> None:
        """Cancel those that are scheduled, and gather those that are enqueued already."""
        numbers = sorted(message.sequence_number for message in messages if message.state == SCHEDULED)
        enqueued.update(message.sequence_number for message in messages if message.state != SCHEDULED)
        if numbers:
            text = "%d messages of lost task attempts are cancelled at %s (sequence numbers %s)"
            _LOG.warning(text, len(numbers), entity.path, shown(numbers))
            cancel_runs(entity, runs_of(numbers))

    def _tell_enqueued(self, numbers: Iterable[int]) -> None:
        listed = sorted(numbers)
        if not listed:
            return
        text = f"{len(listed)} messages of the job were enqueued before they could be taken back (sequence numbers {shown(listed)})"
        if not self._is_replayable:
            raise SbMgmtError(f"{text}: schedule for a time after the end of the job")
        _LOG.warning("%s: an earlier run of this micro-batch had scheduled them", text)


def _is_enqueued_row(message: Stamped, tasks: Sequence[TaskDone]) -> bool:
    """A message of an attempt that counts, whose time came: it has a new number now."""
    return message.state != SCHEDULED and any(message.attempt == task.attempt.id for task in tasks)


def _instead_of_dropped(entity: EntityClient, left: Sequence[Stamped], exact: Runs) -> list[Stamped]:
    """Of what lost attempts left, the messages whose ids do not stand at any number that a task accounts for, while some of those numbers
    are empty: duplicate detection dropped the later ones. One for each id."""
    standing = 0
    missing = {message.message_id: message for message in left if message.message_id is not None and message.state == SCHEDULED}
    for batch in message_batches(entity.peek_ranges(exact, _PAGE), ["message_id"], entity.path):
        standing += batch.num_rows
        for identifier in batch.column(0).to_pylist():
            missing.pop(identifier, None)
    accounted = sum(end - start for start, end in exact)
    return list(missing.values()) if standing < accounted else []
