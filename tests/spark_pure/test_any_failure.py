"""Jobs driven as Spark drives them, in which anything goes wrong at any moment: no row is lost, none is done twice, none is told wrongly.

Attempts of tasks are killed, fail, or are done again after they were done; requests are throttled, lost with their links and connections,
answered late or not at all. What must hold then is what CONTRACT section 3 promises, whatever the order of events.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import WriterCommitMessage

from spark_sb_mgmt.amqp.columns import TIMESTAMP
from spark_sb_mgmt.client import EntityClient, ManagementClient, ScheduledMessage
from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.emulator import Emulator, Fault, ManualClock
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.spark.connections import CONNECTIONS
from spark_sb_mgmt.spark.options.parsing import read_options, write_options
from spark_sb_mgmt.spark.reading import deferred, deferred_reader
from spark_sb_mgmt.spark.reading.deferred import Patience
from spark_sb_mgmt.spark.reading.deferred_reader import DeferredReader
from spark_sb_mgmt.spark.reading.peek_reader import PeekReader
from spark_sb_mgmt.spark.reading.read_schema import read_columns, read_schema
from spark_sb_mgmt.spark.schema import spark_schema
from spark_sb_mgmt.spark.writing import schedule_job, schedule_writer, settle_locks
from spark_sb_mgmt.spark.writing import writer as writer_module
from spark_sb_mgmt.spark.writing.write_operation import TaskAttempt
from spark_sb_mgmt.spark.writing.writer import ManagementWriter
from tests.emulator.server.peer import Peer, message

SCHEDULE, CANCEL, SETTLE, PEEK, RECEIVE = (
    "schedule-message",
    "cancel-scheduled-message",
    "update-disposition",
    "peek-message",
    "receive-by-sequence-number",
)
# Rows of one batch of Spark's, and messages of one request.
BATCH, REQUEST = 16, 5
# More of them, with seeds of their own, by HYPOTHESIS_PROFILE=dev and this variable.
EXAMPLES = int(os.environ.get("SBMGMT_FAILURES", "30"))
# As Spark tries a task.
MOST_FAILURES = 4
LATE_S = 0.02


# --- what goes wrong ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fate:
    """What becomes of an attempt when so many batches were read: it is killed with its worker, or its input fails; or, when it is done with
    all of them, the executor is lost before Spark hears of it."""

    how: Literal["killed", "failed", "lost"]
    batches: int


@dataclass(frozen=True)
class Course:
    """What happens to one job: rows of each task, the fates of its first attempts, and what the service does wrong."""

    tasks: tuple[int, ...]
    fates: tuple[tuple[Fate, ...], ...]
    faults: tuple[Fault, ...]
    depth: int

    @property
    def repeats(self) -> bool:
        return any(self.fates)


def courses(*operations: str) -> st.SearchStrategy[Course]:
    operation = st.sampled_from([*operations, PEEK])
    skip = st.integers(0, 6)
    dropping = st.builds(
        Fault, st.sampled_from(["drop-link", "drop-connection"]), operation, skip=skip, when=st.sampled_from(["before", "after"])
    )
    refusing = st.builds(
        partial(Fault, status=503, condition="com.microsoft:server-busy", seconds=0.01), st.sampled_from(["throttle", "fail"]), operation,
        skip=skip, count=st.integers(1, 2),
    )  # fmt: skip
    late = st.builds(partial(Fault, "delay", seconds=LATE_S), operation, skip=skip, when=st.sampled_from(["before", "after"]))
    reordering = st.builds(partial(Fault, "reorder", seconds=LATE_S), operation, skip=skip, limit=st.integers(2, 3))
    short = st.builds(Fault, st.just("cap-page"), st.just(PEEK), skip=skip, count=st.integers(1, 9), limit=st.integers(1, 3))
    unreachable = st.builds(Fault, st.just("refuse-connections"), count=st.integers(1, 2))
    fate = st.builds(Fate, st.sampled_from(["killed", "failed", "lost"]), st.integers(1, 3))
    rows = st.integers(0, 3 * BATCH)
    return st.lists(st.tuples(rows, st.lists(fate, max_size=2).map(tuple)), min_size=1, max_size=3).flatmap(
        lambda tasks: st.builds(
            Course,
            st.just(tuple(number for number, _ in tasks)),
            st.just(tuple(fates for _, fates in tasks)),
            st.lists(st.one_of(dropping, refusing, late, reordering, short, unreachable), max_size=4).map(tuple),
            st.sampled_from([1, 2, 8]),
        )
    )


class KilledError(BaseException):
    """Nothing of a worker runs after it: no `except Exception`, no undo."""


class JobFailedError(Exception):
    """A task failed too often."""


# --- where it goes wrong ------------------------------------------------------------------------------------------------


class World:
    """A service with one queue, and what stands in it."""

    def __init__(self, emulator: Emulator, clock: ManualClock) -> None:
        self.emulator = emulator
        self.clock = clock
        self._is_late = False

    @property
    def later_ms(self) -> int:
        return self.clock() + 30 * 86_400_000

    def wait_for_attempts(self, seconds: float) -> None:
        """The service's time passes; of ours, as much as an answer is late, where one may be. A job waits several times."""
        if self._is_late:
            time.sleep(LATE_S)
        self.emulator.advance(seconds)

    @contextmanager
    def entity(self, sub_queue: str = "") -> Iterator[EntityClient]:
        string = self.emulator.connection_string
        with ManagementClient.from_connection_string(string) as client, client.entity(f"orders{sub_queue}") as orders:
            yield orders

    def schedule(self, ids: Sequence[str]) -> dict[str, int]:
        with self.entity() as orders:
            return dict(zip(ids, orders.schedule_message([ScheduledMessage(b"x", self.later_ms, one) for one in ids]), strict=True))

    def defer(self, ids: Sequence[str]) -> dict[str, int]:
        """Messages that are deferred, and their numbers."""
        if not ids:
            return {}
        with Peer.connect(self.emulator) as peer, self.entity() as orders:
            peer.send(peer.sender("orders"), *(message(b"x", id=one) for one in ids))
            received = peer.receive(peer.receiver("orders", credit=len(ids)), len(ids))
            orders.update_disposition("deferred", [one.lock_token for one in received])
        return {name: number for name, number, _ in self.standing()}

    def standing(self, sub_queue: str = "") -> list[tuple[str, int, str]]:
        """Ids, numbers and states of the messages there are."""
        with self.entity(sub_queue) as orders:
            found = [one for page in orders.peek_range() for one in page]
        return sorted((str(one.message_id), one.sequence_number, one.state) for one in found)

    def options(self, operation: str, course: Course, **given: object) -> dict[str, str]:
        options = {
            "connectionString": self.emulator.connection_string,
            "queue": "orders",
            "operation": operation,
            "pipelineDepth": course.depth,
            **given,
        }
        return {name: str(value) for name, value in options.items()}

    def break_down(self, course: Course, connection: Any) -> None:
        """From here on things go wrong."""
        CONNECTIONS.client(connection)._connection.settings.__dict__["retry"] = RetryPolicy(base_delay_s=0.01, max_delay_s=0.02)
        self._is_late = any(fault.action in ("delay", "reorder") for fault in course.faults)
        for fault in course.faults:
            self.emulator.faults.add(fault)


@contextmanager
def world() -> Iterator[World]:
    clock = ManualClock(time.time_ns() // 1_000_000)
    config = {"UserConfig": {"Namespaces": [{"Name": "tests", "Queues": [{"Name": "orders"}]}]}}
    with Emulator.start(config, clock=clock) as emulator, pytest.MonkeyPatch.context() as patched:
        this = World(emulator, clock)
        patient = partial(Patience, clock=lambda: clock() / 1_000)
        patched.setattr(schedule_job, "Patience", partial(patient, sleep=this.wait_for_attempts))
        for module in (deferred, settle_locks):
            patched.setattr(module, "Patience", partial(patient, sleep=emulator.advance))
        patched.setattr(schedule_writer, "LOOKS_S", (0.0, 2 * LATE_S))
        try:
            yield this
        finally:
            CONNECTIONS.close()


class WriteJob:
    """One write, with the attempts of its tasks one after another."""

    def __init__(self, world: World, course: Course, folder: Path, batches: Sequence[Sequence[pa.RecordBatch]], **options: object) -> None:
        self.folder = folder / "receipts"
        self._course = course
        self._batches = batches
        self._started = count()
        schema = batches[0][0].schema
        given = world.options(course=course, maxBatchMessages=REQUEST, receiptsPath=self.folder, **options)  # type: ignore[arg-type]
        self.writer = ManagementWriter(write_options(given, {}), spark_schema(schema))
        world.break_down(course, self.writer.options.connection)

    def run(self, *, broken: int | None = None) -> dict[int, list[dict[str, Any]]]:
        """To its commit, or to its abort if a task, such as the `broken` one, fails too often. Answers with the receipts."""
        messages: list[WriterCommitMessage | None] = [None] * len(self._batches)
        try:
            for partition, batches in enumerate(self._batches):
                messages[partition] = self._task(partition, batches, is_broken=partition == broken)
            self.writer.commit(messages)
        except Exception:
            self.writer.abort(messages)
            raise
        return {at: pq.read_table(part).to_pylist() for at, part in enumerate(sorted(self.folder.glob("*.parquet")))}

    def _task(self, partition: int, batches: Sequence[pa.RecordBatch], *, is_broken: bool) -> WriterCommitMessage:
        fates = iter(self._course.fates[partition])
        failures = 0
        for number in count():
            fate = Fate("failed", number) if is_broken else next(fates, None)
            try:
                done = self._attempt(partition, number, batches, fate)
            except (Exception, KilledError) as problem:
                failures += 1
                if failures == MOST_FAILURES:
                    raise JobFailedError from problem
            else:
                if fate is None or fate.how != "lost":
                    return done
        raise AssertionError

    def _attempt(self, partition: int, number: int, batches: Sequence[pa.RecordBatch], fate: Fate | None) -> WriterCommitMessage:
        started = next(self._started)
        this = TaskAttempt(partition, number, f"{started}-x", started=started)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(writer_module, "this_attempt", lambda job: this)
            return self.writer.write(until(fate, batches))


def until(fate: Fate | None, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for at, batch in enumerate(batches):
        if fate is not None and fate.batches == at:
            end(fate)
        yield batch
    if fate is not None:
        end(fate)


def end(fate: Fate) -> None:
    if fate.how == "killed":
        raise KilledError
    if fate.how == "failed":
        raise OSError("the input is gone")


def batches_of(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """At least one, which may be empty."""
    return [rows.slice(start, BATCH) for start in range(0, max(rows.num_rows, 1), BATCH)]


def names_of(course: Course) -> list[list[str]]:
    return [[f"order-{task}-{row:03d}" for row in range(rows)] for task, rows in enumerate(course.tasks)]


def every(names: list[list[str]]) -> list[str]:
    return [name for task in names for name in task]


@contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


# --- what holds ---------------------------------------------------------------------------------------------------------


def scheduling(world: World, course: Course, folder: Path) -> WriteJob:
    def rows(names: list[str]) -> pa.RecordBatch:
        size = len(names)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(names, pa.string()),
                pa.array([b"x"] * size, pa.binary()),
                pa.array([world.later_ms * 1_000] * size, pa.int64()).cast(TIMESTAMP),
            ],
            names=["message_id", "body", "scheduled_enqueue_time"],
        )

    return WriteJob(world, course, folder, [batches_of(rows(names)) for names in names_of(course)], operation=SCHEDULE)


@settings(max_examples=EXAMPLES)
@given(courses(SCHEDULE, CANCEL))
def test_every_row_is_scheduled_once_and_its_number_is_in_the_receipts(course: Course) -> None:
    with world() as there, temporary() as folder:
        there.schedule(["of another"])
        receipts = [row for part in scheduling(there, course, folder).run().values() for row in part]
        there.emulator.faults.clear()
        standing = {name: number for name, number, state in there.standing()}
        assert Counter(name for name, _, _ in there.standing()) == Counter([*every(names_of(course)), "of another"])
        del standing["of another"]
        assert {row["message_id"]: row["sequence_number"] for row in receipts} == standing
        assert {row["status"] for row in receipts} <= {"ok"}
        assert len(receipts) == len(standing)


@settings(max_examples=EXAMPLES)
@given(courses(SCHEDULE, CANCEL), st.integers(0, 2))
def test_a_job_that_fails_leaves_nothing(course: Course, broken: int) -> None:
    with world() as there, temporary() as folder:
        there.schedule(["of another"])
        with pytest.raises(JobFailedError):
            scheduling(there, course, folder).run(broken=broken % len(course.tasks))
        there.emulator.faults.clear()
        assert [name for name, _, _ in there.standing()] == ["of another"]
        assert list(folder.glob("**/*.parquet")) == []


@settings(max_examples=EXAMPLES)
@given(courses(CANCEL))
def test_every_row_is_cancelled_or_told_not_to_be(course: Course) -> None:
    with world() as there, temporary() as folder:
        names = names_of(course)
        numbers = there.schedule([*every(names), "of another"])
        # Every seventh is not there, between others that are.
        gone = [number for at, number in enumerate(sorted(numbers.values())) if at % 7 == 3 and number != numbers["of another"]]
        if gone:
            with there.entity() as orders:
                orders.cancel_scheduled_message(gone)
        tasks = [
            batches_of(pa.RecordBatch.from_pydict({"sequence_number": pa.array([numbers[n] for n in task], pa.int64())})) for task in names
        ]
        job = WriteJob(there, course, folder, tasks, operation=CANCEL, onError="report")
        parts = job.run()
        there.emulator.faults.clear()
        assert [name for name, _, _ in there.standing()] == ["of another"]
        receipts = [row for part in parts.values() for row in part]
        assert sorted(row["sequence_number"] for row in receipts) == sorted(numbers[name] for name in every(names))
        for row in receipts:
            if row["sequence_number"] in gone:
                # All of a request may be gone and its answer lost: a look shows then what it shows of those that were cancelled.
                looked_for = row["status"] == "ok" and "the answer was lost, and a look shows" in row["status_description"]
                assert row["status"] in ("failed", "unknown") or looked_for
            else:
                assert row["status"] == "ok" or (course.repeats and row["status"] == "unknown")


@settings(max_examples=EXAMPLES)
@given(courses(SETTLE, RECEIVE))
def test_every_row_is_settled_once_or_told_not_to_be(course: Course) -> None:
    with world() as there, temporary() as folder:
        names = names_of(course)
        numbers = there.defer([*every(names), "of another"])
        gone = [number for at, number in enumerate(sorted(numbers.values())) if at % 7 == 3 and number != numbers["of another"]]
        if gone:
            with there.entity() as orders:
                orders.receive_by_sequence_number(gone, 0)
        dead = {number for number in numbers.values() if number % 3 == 0}
        tasks = [
            batches_of(
                pa.RecordBatch.from_pydict(
                    {
                        "sequence_number": pa.array([numbers[name] for name in task], pa.int64()),
                        "disposition_status": pa.array(
                            ["suspended" if numbers[name] in dead else "completed" for name in task], pa.string()
                        ),
                    }
                )
            )
            for task in names
        ]
        job = WriteJob(there, course, folder, tasks, operation=SETTLE, onError="report")
        receipts = [row for part in job.run().values() for row in part]
        there.emulator.faults.clear()
        assert [name for name, _, _ in there.standing()] == ["of another"]
        to_die = sorted(name for name in every(names) if numbers[name] in dead and numbers[name] not in gone)
        assert [name for name, _, _ in there.standing("/$DeadLetterQueue")] == to_die
        assert sorted(row["sequence_number"] for row in receipts) == sorted(numbers[name] for name in every(names))
        for row in receipts:
            if row["sequence_number"] in gone:
                assert row["status"] in ("failed", "unknown")
            else:
                assert row["status"] == "ok" or ((course.repeats or course.faults) and row["status"] == "unknown")


def read_rows(reader: PeekReader | DeferredReader, course: Course) -> list[tuple[str, int]]:
    """Of the last attempts of all tasks. Those before were killed: nobody closes what they opened."""
    rows: list[tuple[str, int]] = []
    fates = iter(course.fates)
    for partition in reader.partitions():
        killed = [fate.batches for fate in next(fates, ())]
        for number, batches in enumerate([*killed, None]):
            attempt = SimpleNamespace(attemptNumber=lambda number=number: number)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(deferred_reader, "TaskContext", SimpleNamespace(get=lambda attempt=attempt: attempt))
                # What failed is done again, as Spark does it.
                for _ in range(MOST_FAILURES):
                    try:
                        got = list(islice(reader.read(partition), batches))
                    except SbMgmtError:
                        continue
                    break
                else:
                    raise JobFailedError
        rows += [(row["message_id"], row["sequence_number"]) for batch in got for row in batch.to_pylist()]
    return sorted(rows)


@settings(max_examples=EXAMPLES)
@given(courses(), st.integers(1, 60))
def test_every_message_is_read_once(course: Course, page_size: int) -> None:
    with world() as there:
        names = names_of(course)
        numbers: dict[str, int] = {}
        for task in names:
            # With gaps between them.
            gap = there.schedule([f"gap {at}" for at in range(len(task))]) if task else {}
            numbers |= there.schedule(task) if task else {}
            if gap:
                with there.entity() as orders:
                    orders.cancel_scheduled_message(gap.values())
        options = read_options(there.options(PEEK, course, numPartitions=len(names), pageSize=page_size), {})
        reader = PeekReader(options, read_columns(read_schema(options.operation), options.operation))
        there.break_down(course, options.connection)
        assert read_rows(reader, course) == sorted(numbers.items())


@settings(max_examples=EXAMPLES)
@given(courses(RECEIVE), st.booleans())
def test_every_deferred_message_is_locked_once(course: Course, searched: bool) -> None:
    with world() as there:
        numbers = there.defer(every(names_of(course)))
        by_number = {"sequenceNumbers": ",".join(map(str, numbers.values()))}
        wanted = {"fromSequenceNumber": 0} if searched or not numbers else by_number
        options = read_options(there.options(RECEIVE, course, numPartitions=len(course.tasks), pageSize=REQUEST, **wanted), {})
        reader = DeferredReader(options, read_columns(read_schema(options.operation), options.operation))
        there.break_down(course, options.connection)
        assert read_rows(reader, course) == sorted(numbers.items())
