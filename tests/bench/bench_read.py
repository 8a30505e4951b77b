"""Reading a queue of a million messages of 1 KB into Spark: against the azure-servicebus SDK, by size, in memory, and over a long way.

One Spark (`local[2]`), one emulator in a process of its own, one run, all columns, into the noop sink; all of them share the machine's
cores. The SDK is given fewer messages and judged by its steady rate: what it takes for more of them less what it takes for few, so that its
connections, a second or two each, are not held against it. Both are the best of several rounds, for a connection that happens to take a
second longer must not count either way. Ours is judged by all the time that a job takes.

Rates by the clock depend on who else uses the machine, and ours keeps all of its cores busy, the loop on the driver but one. The processor
time of Spark's own processes for a message does not.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import spark_sb_mgmt
from spark_sb_mgmt.amqp.message import Data, Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.types import Int, Map, Symbol
from spark_sb_mgmt.spark.connections import CONNECTIONS
from spark_sb_mgmt.spark.options.objects import PeekOptions
from spark_sb_mgmt.spark.options.parsing import read_options
from spark_sb_mgmt.spark.reading.peek_reader import PeekReader
from spark_sb_mgmt.spark.reading.read_schema import read_columns, read_schema
from spark_sb_mgmt.spark.reading.side_by_side import MOST_AT_ONCE
from tests.bench.bench_emulator import Usage
from tests.bench.delaying_relay import delaying
from tests.bench.figures import Figure
from tests.bench.filling import NUMBER, fill
from tests.bench.sdk_ways import peek_in_tasks, peek_on_the_driver
from tests.emulator.server.program import Program

QUEUE: Final = "q"
MESSAGES: Final = 1_000_000
SIZES: Final = (10_000, 100_000, 300_000, 600_000, MESSAGES)
BODY: Final = 1024
TASKS, PAGE, ROUNDS = 4, 250, 3
SDK_FEW, SDK_MORE, LOOP_FEW, LOOP_MORE = 10_000, 210_000, 5_000, 100_000
# Over a long way.
ROUND_TRIP_S, DEPTH, RELAYED = 0.02, 32, 300_000
LONG_ROUND_TRIP_S: Final = 0.2
CASE: Final = "read 1 KB"
# To reach.
AGAINST_TASKS, AGAINST_LOOP, OFF_THE_LINE, FLAT, FOR_THE_WAY, TRIPS = 8.0, 20.0, 0.15, 1.1, 1.5, 12
# Of a plan of many entities.
MANY: Final = tuple(f"many-{at}" for at in range(16))
_QUEUES = [{"Name": name, "Properties": {"MaxMessageSizeInKilobytes": 1024}} for name in (QUEUE, *MANY)]
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "bench", "Queues": _QUEUES}]}}


def sample() -> bytes:
    """A message of an order system, as its sender sends it."""
    return encode_message(
        Message(
            header=Header(durable=True, ttl=86_400_000),
            message_annotations=Map([(Symbol("x-opt-partition-key"), "customer-00017")]),
            properties=Properties(
                message_id=f"order-{NUMBER}",
                to="orders",
                subject="order.created",
                reply_to="replies",
                correlation_id="flow-00000017",
                content_type="application/json",
            ),
            application_properties=Map([("region", "west-europe"), ("source", "shop-7"), ("items", Int(3)), ("express", True)]),
            body=Data((bytes(BODY),)),
        )
    )


class Reading:
    """Jobs on one queue, timed."""

    def __init__(self, spark: SparkSession, connection_string: str) -> None:
        self.spark = spark
        self.connection_string = connection_string

    def ours(self, count: int, **options: object) -> DataFrame:
        reader = self.spark.read.format("sbmgmt").option("connectionString", self.connection_string).option("queue", QUEUE)
        for name, value in {"untilSequenceNumber": count + 1, "numPartitions": TASKS, "pageSize": PAGE, **options}.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def cost(self, count: int, **options: object) -> Cost:
        """Of a whole job: planning, reading, everything."""
        return timed(lambda: self.ours(count, **options))

    def tasks(self, count: int) -> Cost:
        return timed(lambda: peek_in_tasks(self.spark, self.connection_string, QUEUE, count, PAGE, TASKS))

    def loop(self, count: int) -> Cost:
        return timed(lambda: peek_on_the_driver(self.spark, self.connection_string, QUEUE, count, PAGE))

    def through(self, port: int) -> Reading:
        """The same by another port."""
        rest = self.connection_string.partition(";")[2]
        return Reading(self.spark, f"Endpoint=sb://127.0.0.1:{port};{rest}")


class Cost(NamedTuple):
    """Seconds of a job: by the clock, and of processor time, in Spark's JVM and its Python workers."""

    clock: float
    processor: float


def timed(made: Callable[[], DataFrame]) -> Cost:
    busy, start = busy_spark(), time.perf_counter()
    made().write.format("noop").mode("overwrite").save()
    return Cost(time.perf_counter() - start, busy_spark() - busy)


# --- Spark's processes --------------------------------------------------------------------------------------------------


def workers() -> list[Path]:
    """Its Python daemons and workers."""
    return below_this(b"pyspark.daemon")


def busy_spark() -> float:
    """Seconds of processor time that its JVM and its workers have used up."""
    return sum(Usage.of(int(process.name)).seconds for process in below_this(b"pyspark.daemon", b"org.apache.spark"))


def below_this(*words: bytes) -> list[Path]:
    """Processes below this one that have one of these words in their commands."""
    parents = {int(status.parent.name): int(field(status, "PPid")) for status in Path("/proc").glob("[0-9]*/status") if status.exists()}
    found = []
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and any(word in Path(f"/proc/{pid}/cmdline").read_bytes() for word in words):
            found.append(Path(f"/proc/{pid}"))
    return found


def field(status: Path, name: str) -> str:
    lines = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
    return lines.get(name, "0").split()[0]


@contextmanager
def watching_memory(peaks: list[float]) -> Iterator[None]:
    """The most that any Python worker had in memory meanwhile, in MB."""
    for process in workers():
        # From here on the peak counts anew (proc(5), clear_refs).
        (process / "clear_refs").write_text("5")
    yield
    peaks.append(max(int(field(process / "status", "VmHWM")) for process in workers()) / 1024)


# --- figures ------------------------------------------------------------------------------------------------------------


def off_the_line(times: dict[int, float]) -> float:
    """How far the worst of the times is from the straight line that is nearest to them, in parts of the time."""
    counts, seconds = np.array(list(times)), np.array(list(times.values()))
    # Each time weighs the same, whether long or short: what counts is the part that it is off.
    a, b = np.linalg.lstsq(np.stack([1 / seconds, counts / seconds], axis=1), np.ones(len(counts)), rcond=None)[0]
    return float(np.abs((a + b * counts) / seconds - 1).max())


def local_spark() -> SparkSession:
    """A Spark on two cores that knows the source."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark_sb_mgmt.register(spark)
    return spark


def run() -> Iterator[Figure]:
    spark = local_spark()
    with tempfile.TemporaryDirectory() as folder, Program(CONFIG, Path(folder)) as program:
        fill(program.ready(), QUEUE, sample(), MESSAGES)
        for name in MANY:
            fill(program, name, sample(), 1_000)
        reading = Reading(spark, program.connection_string)
        yield from _figures(reading, program.port)
    spark.stop()


def _figures(reading: Reading, port: int) -> Iterator[Figure]:
    # The first jobs of a kind pay for the starts of workers and the compiling of Spark's code.
    for _ in range(2):
        reading.cost(SIZES[1])
    reading.tasks(SDK_FEW)
    costs: dict[int, list[Cost]] = {count: [] for count in SIZES}
    peaks: dict[int, list[float]] = {count: [] for count in SIZES}
    few_in_tasks, more_in_tasks = [], []
    for _ in range(ROUNDS):
        for count in SIZES:
            with watching_memory(peaks[count]):
                costs[count].append(reading.cost(count))
        few_in_tasks.append(reading.tasks(SDK_FEW))
        more_in_tasks.append(reading.tasks(SDK_MORE))
    tasks = steady(min(few_in_tasks), min(more_in_tasks), SDK_MORE - SDK_FEW)
    loop = steady(reading.loop(LOOP_FEW), reading.loop(LOOP_MORE), LOOP_MORE - LOOP_FEW)
    best = {count: min(each).clock for count, each in costs.items()}
    ours = Cost(*(seconds / MESSAGES for seconds in min(costs[MESSAGES])))
    yield Figure(CASE, "messages/s", 1 / ours.clock)
    yield Figure(CASE, "SDK in tasks: messages/s", 1 / tasks.clock)
    yield Figure(CASE, "SDK on the driver: messages/s", 1 / loop.clock)
    yield Figure(CASE, "ours / SDK in tasks", tasks.clock / ours.clock, AGAINST_TASKS)
    yield Figure(CASE, "ours / SDK on the driver", loop.clock / ours.clock, AGAINST_LOOP)
    yield Figure(CASE, "processor time: us per message", ours.processor * 1e6)
    yield Figure(CASE, "that of the SDK in tasks", tasks.processor * 1e6)
    yield Figure(CASE, "that of the SDK / ours", tasks.processor / ours.processor, AGAINST_TASKS)
    for count, seconds in best.items():
        yield Figure(CASE, f"seconds for {count}", seconds)
    off = off_the_line(best)
    yield Figure(CASE, "off a straight line", off)
    yield Figure(CASE, f"{OFF_THE_LINE:g} / that", OFF_THE_LINE / off, 1.0)
    few, many = max(peaks[SIZES[1]]), max(peaks[MESSAGES])
    yield Figure(CASE, f"worker's peak for {SIZES[1]}, MB", few)
    yield Figure(CASE, f"worker's peak for {MESSAGES}, MB", many)
    yield Figure(CASE, f"{FLAT:g} times the first / the second", FLAT * few / many, 1.0)
    yield from _over_a_long_way(reading, port)
    yield from _planning(port, reading)


def _over_a_long_way(reading: Reading, port: int) -> Iterator[Figure]:
    with delaying(port, 0.0) as near, delaying(port, ROUND_TRIP_S) as far:
        ways = {"0 ms": reading.through(near), "20 ms": reading.through(far)}
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(1 + ROUNDS):
            for name, way in ways.items():
                taken[name].append(way.cost(RELAYED, pipelineDepth=DEPTH).clock)
    # The first of each opened connections.
    best = {name: min(several[1:]) for name, several in taken.items()}
    case = f"{CASE}, depth {DEPTH}"
    for name, seconds in best.items():
        yield Figure(case, f"{name} round trip: messages/s", RELAYED / seconds)
    yield Figure(case, f"{FOR_THE_WAY:g} times that / the one before", FOR_THE_WAY * best["0 ms"] / best["20 ms"], 1.0)


def _planning(port: int, reading: Reading) -> Iterator[Figure]:
    """Round trips by the time that they take over a way so long that nothing else counts."""
    with delaying(port, LONG_ROUND_TRIP_S) as far:
        string = reading.through(far).connection_string
        for case, names in ((f"plan {MESSAGES} messages", [QUEUE]), (f"plan {len(MANY)} entities", MANY)):
            options = read_options({"connectionString": string, "entityPath": ",".join(names)}, {})
            assert isinstance(options, PeekOptions)
            reader = PeekReader(options, read_columns(read_schema(options.operation), options.operation))
            most = TRIPS * len(names) / min(len(names), MOST_AT_ONCE)
            for name, target in (("round trips, connecting too", None), ("round trips", most)):
                start = time.perf_counter()
                reader.partitions()
                trips = (time.perf_counter() - start) / LONG_ROUND_TRIP_S
                yield Figure(case, name, trips)
                if target is not None:
                    yield Figure(case, f"{target:g} / that", target / trips, 1.0)
            CONNECTIONS.close()


def steady(few: Cost, more: Cost, messages: int) -> Cost:
    """Of one message beyond the first few."""
    return Cost((more.clock - few.clock) / messages, (more.processor - few.processor) / messages)
