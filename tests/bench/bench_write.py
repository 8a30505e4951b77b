"""Scheduling messages of 1 KB from Spark and cancelling them: against the azure-servicebus SDK in foreachPartition, and in memory.

One Spark (`local[2]`), one emulator in a process of its own, one run, the same partitions and the same messages in a request; all of them
share the machine's cores. The SDK is given fewer rows, and judged by its steady rate: what it takes for more of them less what it takes for
few, so that its connections, a second each, are not held against it. Ours is judged by all the time that a job takes.

The emulator takes one message after the other, on one core: where it is busy all the time, the rate is its own. So scheduling is measured
again with a service that takes messages and forgets them, which holds up neither; and what the writer itself costs is told by the processor
time of Spark's Python workers, for a row, against what the SDK costs there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.bench.bench_client import connection_string
from tests.bench.bench_emulator import Usage
from tests.bench.bench_read import local_spark, watching_memory, workers
from tests.bench.figures import Figure
from tests.bench.replay_service import taking
from tests.emulator.server.program import Program

QUEUE: Final = "q"
ROWS, FEW_ROWS = 200_000, 50_000
BODY: Final = 1024
TASKS, BATCH, ROUNDS = 4, 500, 2
SDK_FEW, SDK_MORE = 4_000, 20_000
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
        numbers = self.spark.read.parquet(str(path)).select("sequence_number").repartition(TASKS).cache()
        assert numbers.distinct().count() == count, "not every row has a number"
        return cost, numbers

    def cancel(self, numbers: DataFrame) -> Cost:
        return self.ours(numbers, operation="cancel-scheduled-message")

    def sdk_schedule(self, count: int) -> Cost:
        rows, string = self.rows(count), self.connection_string
        return self.cost(lambda: rows.foreachPartition(lambda part: schedule_by_sdk(string, part)))

    def sdk_cancel(self, numbers: DataFrame) -> Cost:
        string = self.connection_string
        return self.cost(lambda: numbers.foreachPartition(lambda part: cancel_by_sdk(string, part)))

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


def schedule_by_sdk(connection_string: str, part: Iterable[Row]) -> None:
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_sender(QUEUE) as sender:
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


def cancel_by_sdk(connection_string: str, part: Iterable[Row]) -> None:
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_sender(QUEUE) as sender:
        for batch in in_batches(part):
            sender.cancel_scheduled_messages([row.sequence_number for row in batch])


def steady(few: tuple[int, Cost], more: tuple[int, Cost]) -> Cost:
    """For one row, between the two."""
    rows = more[0] - few[0]
    return Cost(*((after - before) / rows for before, after in zip(few[1], more[1], strict=True)))


def run() -> Iterator[Figure]:
    spark = local_spark()
    with tempfile.TemporaryDirectory() as folder, Program(CONFIG, Path(folder)) as program:
        emulator = program.ready()
        yield from _figures(Writing(spark, emulator.connection_string, Path(folder), emulator.process.pid))
    with tempfile.TemporaryDirectory() as folder, taking() as port:
        yield from _figures_of_the_writer_alone(Writing(spark, connection_string(port), Path(folder)))
    spark.stop()


def _figures(writing: Writing) -> Iterator[Figure]:
    # The first jobs of a kind pay for the starts of workers and the compiling of Spark's code.
    writing.cancel(writing.schedule(FEW_ROWS)[1])
    writing.sdk_schedule(SDK_FEW)
    ours: dict[str, list[Cost]] = {"schedule 1 KB": [], "cancel": []}
    sdk: dict[str, list[Cost]] = {"schedule 1 KB": [], "cancel": []}
    peaks: dict[int, list[float]] = {FEW_ROWS: [], ROWS: []}
    for _ in range(ROUNDS):
        for count in peaks:
            with watching_memory(peaks[count]):
                cost, numbers = writing.schedule(count)
            if count == ROWS:
                ours["schedule 1 KB"].append(cost)
                ours["cancel"].append(writing.cancel(numbers))
        sdk["schedule 1 KB"].append(steady((SDK_FEW, writing.sdk_schedule(SDK_FEW)), (SDK_MORE, writing.sdk_schedule(SDK_MORE))))
        # Its cancels are so fast that it takes as many of them.
        less, more = writing.schedule(ROWS)[1].randomSplit([0.1, 0.9], seed=1)
        sdk["cancel"].append(steady((less.count(), writing.sdk_cancel(less)), (more.count(), writing.sdk_cancel(more))))
    for case, costs in ours.items():
        best, other = min(costs), min(sdk[case])
        yield Figure(case, f"seconds for {ROWS}", best.clock)
        yield Figure(case, "rows/s", ROWS / best.clock)
        yield Figure(case, "SDK in tasks: rows/s", 1 / other.clock)
        yield Figure(case, "ours / SDK in tasks", ROWS / best.clock * other.clock, AGAINST_SDK)
        yield Figure(case, "part of the time the emulator is busy", best.emulator / best.clock)
        yield Figure(case, "emulator: us per row", best.emulator / ROWS * 1e6)
        yield Figure(case, "workers: us per row", best.workers / ROWS * 1e6)
        yield Figure(case, "workers with the SDK: us per row", other.workers * 1e6)
        yield Figure(case, "workers with the SDK / workers", other.workers * ROWS / best.workers, AGAINST_SDK)
    yield Figure("schedule 1 KB", f"worker's peak for {FEW_ROWS}, MB", max(peaks[FEW_ROWS]))
    yield Figure("schedule 1 KB", f"worker's peak for {ROWS}, MB", max(peaks[ROWS]))
    yield Figure("schedule 1 KB", f"{FLAT:g} times the first / the second", FLAT * max(peaks[FEW_ROWS]) / max(peaks[ROWS]), 1.0)


def _figures_of_the_writer_alone(writing: Writing) -> Iterator[Figure]:
    """Scheduling, where the service is not in the way."""
    writing.schedule(FEW_ROWS)
    writing.sdk_schedule(SDK_FEW)
    ours, sdk = [], []
    for _ in range(ROUNDS):
        ours.append(writing.schedule(ROWS)[0])
        sdk.append(steady((SDK_FEW, writing.sdk_schedule(SDK_FEW)), (SDK_MORE, writing.sdk_schedule(SDK_MORE))))
    case = "schedule, a quick service"
    yield Figure(case, "rows/s", ROWS / min(ours).clock)
    yield Figure(case, "SDK in tasks: rows/s", 1 / min(sdk).clock)
    yield Figure(case, "ours / SDK in tasks", ROWS / min(ours).clock * min(sdk).clock, AGAINST_SDK)
