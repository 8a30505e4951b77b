"""Scheduling messages of 1 KB from Spark and cancelling them: against the azure-servicebus SDK in foreachPartition, and in memory.

One Spark (`local[2]`), one emulator in a process of its own, one run, the same rows in the same partitions, and as many messages in a
request; all of them share the machine's cores. Both are judged by all the time that a job takes, its starts and connections included. The
SDK's connections take a second each, which weighs the less the longer a job is; so there is a second ratio, to the time alone that its
tasks spend with requests, while ours still counts whole: its job, its plan, its commit.

The emulator takes one message after the other, on one core: where it is busy all the time, the rate is its own. So all is measured again
with a service that takes messages and forgets them, which holds up neither; and what the writer itself costs is told by the processor
time of Spark's Python workers, for a row, against what the SDK costs there. Part of it is PySpark's own, for each task and not for each
row: what jobs of next to no rows cost is told too. At last both go a way of ten milliseconds, as it is to a cloud.

Numbers are cancelled in the order in which receipts have them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.bench.bench_client import connection_string
from tests.bench.bench_emulator import Usage
from tests.bench.bench_read import local_spark, watching_memory, workers
from tests.bench.delaying_relay import delaying
from tests.bench.figures import Figure
from tests.bench.replay_service import taking
from tests.emulator.server.program import Program

QUEUE: Final = "q"
ROWS, FEW_ROWS = 200_000, 50_000
BODY: Final = 1024
TASKS, BATCH, ROUNDS = 4, 500, 2
# Of `local[2]`: so many tasks at a time.
CORES: Final = 2
# Over a way.
ROUND_TRIP_S, RELAYED = 0.01, 50_000
# To reach.
AGAINST_SDK, FLAT = 8.0, 1.1
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "bench", "Queues": [{"Name": QUEUE, "Properties": {"MaxMessageSizeInKilobytes": 1024}}]}]}}
TOMORROW = datetime.now(timezone.utc) + timedelta(days=1)


class Writing:
    """Jobs on one queue, each from rows that are in memory. `server` is the process of the service, where its time is measured too."""

    def __init__(self, spark: SparkSession, connection_string: str, folder: Path, server: int | None = None) -> None:
        self.spark = spark
        self.connection_string = connection_string
        self.folder = folder
        self.server = server
        self.receipts = 0
        self._rows: dict[int, DataFrame] = {}

    def rows(self, count: int) -> DataFrame:
        if count not in self._rows:
            df = self.spark.range(0, count, 1, TASKS).select(
                F.format_string("order-%08d", "id").alias("message_id"),
                F.lit("order.created").alias("subject"),
                F.lit("application/json").alias("content_type"),
                F.create_map(F.lit("region"), F.lit("west-europe")).alias("application_properties"),
                F.expr(f"cast(repeat('x', {BODY}) as binary)").alias("body"),
                F.lit(TOMORROW).alias("scheduled_enqueue_time"),
            )
            self._rows[count] = df.cache()
            self._rows[count].count()
        return self._rows[count]

    def ours(self, df: DataFrame, **options: object) -> Cost:
        writer = df.write.format("sbmgmt").mode("append").option("connectionString", self.connection_string)
        for name, value in {"queue": QUEUE, "maxBatchMessages": BATCH, **options}.items():
            writer = writer.option(name, str(value))
        return self.cost(writer.save)

    def schedule(self, count: int) -> tuple[Cost, DataFrame]:
        """What a job costs, with the numbers that it gave."""
        rows = self.rows(count)
        self.receipts += 1
        path = self.folder / f"receipts-{self.receipts}"
        cost = self.ours(rows, receiptsPath=path)
        numbers = self.spark.read.parquet(str(path)).select("sequence_number")
        numbers = numbers.repartitionByRange(TASKS, "sequence_number").sortWithinPartitions("sequence_number").cache()
        assert numbers.distinct().count() == count, "not every row has a number"
        return cost, numbers

    def cancel(self, numbers: DataFrame) -> Cost:
        return self.ours(numbers, operation="cancel-scheduled-message")

    def sdk_schedule(self, count: int) -> tuple[Cost, float]:
        return self.sdk(self.rows(count), schedule_by_sdk)

    def sdk_cancel(self, numbers: DataFrame) -> tuple[Cost, float]:
        return self.sdk(numbers, cancel_by_sdk)

    def sdk(self, df: DataFrame, way: Callable[[str, Iterable[Row], Accumulator[float]], None]) -> tuple[Cost, float]:
        """What a job costs, and how long its tasks spent with requests, as many at a time as there are cores."""
        string, spent = self.connection_string, self.spark.sparkContext.accumulator(0.0)
        cost = self.cost(lambda: df.foreachPartition(lambda part: way(string, part, spent)))
        return cost, spent.value / CORES

    def through(self, port: int) -> Writing:
        """The same by another port."""
        other = Writing(self.spark, f"Endpoint=sb://127.0.0.1:{port};{self.connection_string.partition(';')[2]}", self.folder / "relayed")
        other._rows = self._rows
        return other

    def cost(self, job: Callable[[], Any]) -> Cost:
        in_workers, in_server, start = busy_workers(), self.busy_server(), time.perf_counter()
        job()
        return Cost(time.perf_counter() - start, busy_workers() - in_workers, self.busy_server() - in_server)

    def busy_server(self) -> float:
        return 0.0 if self.server is None else Usage.of(self.server).seconds


class Cost(NamedTuple):
    """Seconds of a job: by the clock, and of processor time, in Spark's Python workers and in the emulator."""

    clock: float
    workers: float
    emulator: float

    @classmethod
    def best(cls, costs: Iterable[Cost]) -> Cost:
        """The least of each: whatever else goes on in the machine only adds."""
        return cls(*map(min, zip(*costs, strict=True)))


def busy_workers() -> float:
    return sum(Usage.of(int(worker.name)).seconds for worker in workers())


def in_batches(part: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in part:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def schedule_by_sdk(connection_string: str, part: Iterable[Row], spent: Accumulator[float]) -> None:
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_sender(QUEUE) as sender:
        started = time.perf_counter()
        for batch in in_batches(part):
            messages = [
                ServiceBusMessage(
                    bytes(row.body),
                    message_id=row.message_id,
                    subject=row.subject,
                    content_type=row.content_type,
                    application_properties=row.application_properties,
                )
                for row in batch
            ]
            sender.schedule_messages(messages, TOMORROW)
        spent += time.perf_counter() - started


def cancel_by_sdk(connection_string: str, part: Iterable[Row], spent: Accumulator[float]) -> None:
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_sender(QUEUE) as sender:
        started = time.perf_counter()
        for batch in in_batches(part):
            sender.cancel_scheduled_messages([row.sequence_number for row in batch])
        spent += time.perf_counter() - started


class Compared:
    """What one kind of job costs us and the SDK, what the SDK's requests take alone, and what ours costs with one row in each partition, so
    what there is besides rows. `target` is how many times as fast ours is to be, where that was promised."""

    def __init__(self, case: str, rows: int, target: float | None = AGAINST_SDK) -> None:
        self.case = case
        self.rows = rows
        self.target = target
        self.ours: list[Cost] = []
        self.sdk: list[Cost] = []
        self.sdk_requests: list[float] = []
        self.ours_besides: list[Cost] = []

    def by_sdk(self, job: tuple[Cost, float]) -> None:
        cost, requests = job
        self.sdk.append(cost)
        self.sdk_requests.append(requests)

    def by_the_clock(self) -> Iterator[Figure]:
        ours, sdk, requests, besides = Cost.best(self.ours), Cost.best(self.sdk), min(self.sdk_requests), Cost.best(self.ours_besides)
        yield Figure(self.case, f"seconds for {self.rows}", ours.clock)
        yield Figure(self.case, f"SDK in tasks: seconds for {self.rows}", sdk.clock)
        yield Figure(self.case, "rows/s", self.rows / ours.clock)
        yield Figure(self.case, "SDK in tasks: rows/s", self.rows / sdk.clock)
        yield Figure(self.case, "SDK in tasks: seconds of requests", requests)
        yield Figure(self.case, "seconds besides rows", besides.clock)
        yield Figure(self.case, "ours / SDK in tasks", sdk.clock / ours.clock, self.target)
        yield Figure(self.case, "ours / the SDK's requests alone", requests / ours.clock, self.target)

    def by_processor_time(self) -> Iterator[Figure]:
        ours, sdk = Cost.best(self.ours), Cost.best(self.sdk)
        yield Figure(self.case, "part of the time the emulator is busy", ours.emulator / ours.clock)
        yield Figure(self.case, "emulator: us per row", ours.emulator / self.rows * 1e6)
        yield Figure(self.case, "workers: us per row", ours.workers / self.rows * 1e6)
        yield Figure(self.case, "of these besides rows", Cost.best(self.ours_besides).workers / self.rows * 1e6)
        yield Figure(self.case, "workers with the SDK: us per row", sdk.workers / self.rows * 1e6)
        yield Figure(self.case, "workers with the SDK / workers", sdk.workers / ours.workers, self.target)


def run() -> Iterator[Figure]:
    spark = local_spark()
    with tempfile.TemporaryDirectory() as folder, Program(CONFIG, Path(folder)) as program:
        emulator = program.ready()
        writing = Writing(spark, emulator.connection_string, Path(folder), emulator.process.pid)
        yield from _figures(writing)
        with delaying(program.port, ROUND_TRIP_S) as port:
            yield from _figures_over_a_way(writing.through(port))
    with tempfile.TemporaryDirectory() as folder, taking() as port:
        yield from _figures_of_the_writer_alone(Writing(spark, connection_string(port), Path(folder)))
    spark.stop()


def _compare(writing: Writing, schedules: Compared, cancels: Compared | None = None, peaks: list[float] | None = None) -> None:
    """One round of each."""
    with watching_memory([] if peaks is None else peaks):
        cost, numbers = writing.schedule(schedules.rows)
    schedules.ours.append(cost)
    schedules.by_sdk(writing.sdk_schedule(schedules.rows))
    few_cost, few = writing.schedule(TASKS)
    schedules.ours_besides.append(few_cost)
    if cancels is not None:
        cancels.ours.append(writing.cancel(numbers))
        cancels.ours_besides.append(writing.cancel(few))
        cancels.by_sdk(writing.sdk_cancel(writing.schedule(cancels.rows)[1]))


def _figures(writing: Writing) -> Iterator[Figure]:
    # The first jobs of a kind pay for the starts of workers and the compiling of Spark's code.
    writing.cancel(writing.schedule(FEW_ROWS)[1])
    writing.sdk_schedule(TASKS)
    schedules, cancels = Compared("schedule 1 KB", ROWS), Compared("cancel", ROWS)
    few_peaks: list[float] = []
    peaks: list[float] = []
    for _ in range(ROUNDS):
        with watching_memory(few_peaks):
            writing.schedule(FEW_ROWS)
        _compare(writing, schedules, cancels, peaks)
    for compared in (schedules, cancels):
        yield from compared.by_the_clock()
        yield from compared.by_processor_time()
    yield Figure("schedule 1 KB", f"worker's peak for {FEW_ROWS}, MB", max(few_peaks))
    yield Figure("schedule 1 KB", f"worker's peak for {ROWS}, MB", max(peaks))
    yield Figure("schedule 1 KB", f"{FLAT:g} times the first / the second", FLAT * max(few_peaks) / max(peaks), 1.0)


def _figures_of_the_writer_alone(writing: Writing) -> Iterator[Figure]:
    """Where the service is not in the way."""
    writing.cancel(writing.schedule(FEW_ROWS)[1])
    schedules, cancels = Compared("schedule, a quick service", ROWS), Compared("cancel, a quick service", ROWS)
    for _ in range(ROUNDS):
        _compare(writing, schedules, cancels)
    for compared in (schedules, cancels):
        yield from compared.by_the_clock()


def _figures_over_a_way(writing: Writing) -> Iterator[Figure]:
    """Where each request is under way for a while."""
    way = f"{ROUND_TRIP_S * 1000:.0f} ms away"
    schedules, cancels = Compared(f"schedule, {way}", RELAYED, None), Compared(f"cancel, {way}", RELAYED, None)
    _compare(writing, schedules, cancels)
    for compared in (schedules, cancels):
        yield from compared.by_the_clock()
