"""Settling deferred messages from Spark, by their numbers and by lock tokens: against the azure-servicebus SDK in foreachPartition.

One Spark (`local[2]`), one emulator in a process of its own, one run, the same partitions; all share the machine's cores. The SDK's way is
the one that it has: `receive_deferred_messages`, then `complete_message` for each. It is given fewer rows, and judged by its steady rate:
what it takes for more of them less what it takes for few, so that its connections are not held against it. Ours is judged by all the time
that a job takes. After each job the emulator is asked what is left.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from azure.servicebus import ServiceBusClient
from pyspark.sql import DataFrame, Row, SparkSession

from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator.control import EmulatorControl
from tests.bench.bench_read import local_spark
from tests.bench.figures import Figure
from tests.bench.filling import NUMBER, fill
from tests.emulator.server.peer import message
from tests.emulator.server.program import Program

ROWS, SDK_FEW, SDK_MORE = 20_000, 400, 8_000
TASKS, BATCH, ROUNDS = 4, 500, 2
BODY: Final = 1024
# To reach.
AGAINST_SDK: Final = 8.0
# A queue for each job, so that numbers start at 1.
QUEUES: Final = tuple(f"q-{at}" for at in range(3 + 4 * ROUNDS))
PROPERTIES: Final = {"LockDuration": "PT5M", "MaxMessageSizeInKilobytes": 1024}
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "bench", "Queues": [{"Name": name, "Properties": PROPERTIES} for name in QUEUES]}]}}


class Settling:
    """Jobs, timed, each on a queue of its own with as many deferred messages as it settles."""

    def __init__(self, spark: SparkSession, program: Program, client: ManagementClient) -> None:
        self.spark = spark
        self.string = program.connection_string
        self._program = program
        self._client = client
        self._control = EmulatorControl.connect(self.string)
        self._queues = iter(QUEUES)

    def deferred(self, count: int) -> tuple[str, list[int]]:
        """A queue with so many deferred messages, and their numbers."""
        queue = next(self._queues)
        fill(self._program, queue, message(bytes(BODY), id=f"message-{NUMBER}"), count)
        numbers: list[int] = []
        with (
            self._client.entity(queue) as entity,
            ServiceBusClient.from_connection_string(self.string) as sdk,
            sdk.get_queue_receiver(queue) as receiver,
        ):
            while len(numbers) < count:
                messages = receiver.receive_messages(min(BATCH, count - len(numbers)), max_wait_time=5)
                numbers += [one.sequence_number or 0 for one in messages]
                entity.update_disposition("deferred", [str(one.lock_token) for one in messages])
        return queue, numbers

    def locked(self, count: int) -> tuple[str, list[str]]:
        """The same, all of them locked, and their tokens."""
        queue, numbers = self.deferred(count)
        tokens: list[str] = []
        with self._client.entity(queue) as entity:
            for start in range(0, count, BATCH):
                messages = entity.receive_by_sequence_number(numbers[start : start + BATCH])
                tokens += [str(messages.lock_token(index)) for index in range(len(messages))]
        return queue, tokens

    def by_number(self, count: int) -> float:
        queue, numbers = self.deferred(count)
        df = self._rows(numbers, "sequence_number long")
        return self._timed(queue, lambda: self._save(queue, df))

    def by_token(self, count: int) -> float:
        queue, tokens = self.locked(count)
        df = self._rows(tokens, "lock_token string")
        return self._timed(queue, lambda: self._save(queue, df))

    def by_sdk(self, count: int) -> float:
        queue, numbers = self.deferred(count)
        df, string = self._rows(numbers, "sequence_number long"), self.string
        return self._timed(queue, lambda: df.foreachPartition(lambda part: settle_by_sdk(string, queue, part)))

    def _rows(self, values: list[Any], column: str) -> DataFrame:
        df = self.spark.createDataFrame([(value,) for value in values], column).repartition(TASKS).cache()
        df.count()
        return df

    def _save(self, queue: str, df: DataFrame) -> None:
        options = {"connectionString": self.string, "queue": queue, "operation": "update-disposition", "dispositionStatus": "completed"}
        df.write.format("sbmgmt").mode("append").options(**options).save()

    def _timed(self, queue: str, job: Callable[[], Any]) -> float:
        start = time.perf_counter()
        job()
        seconds = time.perf_counter() - start
        left = self._control.counts(queue)["deferred"]
        assert left == 0, f"{left} messages were not settled"
        return seconds


def settle_by_sdk(connection_string: str, queue: str, part: Iterable[Row]) -> None:
    numbers = [row.sequence_number for row in part]
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_receiver(queue) as receiver:
        for start in range(0, len(numbers), BATCH):
            for locked in receiver.receive_deferred_messages(numbers[start : start + BATCH]):
                receiver.complete_message(locked)


def run() -> Iterator[Figure]:
    spark = local_spark()
    with tempfile.TemporaryDirectory() as folder, Program(CONFIG, Path(folder)) as program:
        string = program.ready().connection_string
        with ManagementClient.from_connection_string(string) as client:
            yield from _figures(Settling(spark, program, client))
    spark.stop()


def _figures(settling: Settling) -> Iterator[Figure]:
    # The first jobs of a kind pay for the starts of workers and the compiling of Spark's code.
    settling.by_number(SDK_FEW)
    settling.by_token(SDK_FEW)
    settling.by_sdk(SDK_FEW)
    number: list[float] = []
    token: list[float] = []
    few: list[float] = []
    more: list[float] = []
    for _ in range(ROUNDS):
        number.append(settling.by_number(ROWS))
        token.append(settling.by_token(ROWS))
        few.append(settling.by_sdk(SDK_FEW))
        more.append(settling.by_sdk(SDK_MORE))
    # The best of each, as of ours: a connection that happens to take a second longer must not count either way.
    sdk = (SDK_MORE - SDK_FEW) / (min(more) - min(few))
    for case, times in (("settle by number", number), ("settle by lock token", token)):
        yield Figure(case, f"seconds for {ROWS}", min(times))
        yield Figure(case, "rows/s", ROWS / min(times))
        yield Figure(case, f"SDK in tasks, {SDK_MORE} rows: rows/s", sdk)
        yield Figure(case, "ours / SDK in tasks", ROWS / min(times) / sdk, AGAINST_SDK)
