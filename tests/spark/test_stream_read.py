"""peek-message as a stream in Spark: micro-batches, checkpoints, and queries that are started again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

import spark_sb_mgmt
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.spark.reading.stream_reader import HAS_READ_LIMITS

NewEntity = Callable[[str], str]
Stream = Callable[..., DataFrame]


@pytest.fixture
def stream(spark: SparkSession, emulator: Emulator) -> Stream:
    """`spark.readStream` on the emulator with these options."""
    spark_sb_mgmt.register(spark)

    def load(schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.readStream.format("sbmgmt").option("connectionString", emulator.connection_string)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return (reader if schema is None else reader.schema(schema)).load()

    return load


class Sink:
    """What each micro-batch brought, by `foreachBatch`; may be told to fail."""

    def __init__(self) -> None:
        self.batches: dict[int, list[list[int]]] = defaultdict(list)
        self.fails_at: int | None = None

    def __call__(self, df: DataFrame, batch: int) -> None:
        self.batches[batch].append(sorted(row.sequence_number for row in df.select("sequence_number").collect()))
        if batch == self.fails_at:
            raise RuntimeError("the sink is full")

    @property
    def numbers(self) -> list[int]:
        """Of every micro-batch as it came last."""
        return sorted(number for tries in self.batches.values() for number in tries[-1])


def available_now(df: DataFrame, sink: Sink, checkpoint: Path) -> None:
    writer: DataStreamWriter = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()


def send(sdk: ServiceBusClient, queue: str, count: int) -> None:
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(f"body {at}") for at in range(count)])


def test_available_now_reads_what_there_is_and_goes_on_from_its_checkpoint(
    stream: Stream, sdk: ServiceBusClient, new_entity: NewEntity, tmp_path: Path
) -> None:
    queue, sink = new_entity("partitioned"), Sink()
    limit: dict[str, Any] = {"maxMessagesPerTrigger": 10} if HAS_READ_LIMITS else {}
    df = stream(queue=queue, startingSequenceNumber="earliest", **limit)
    send(sdk, queue, 25)
    available_now(df, sink, tmp_path)
    assert len(sink.numbers) == len(set(sink.numbers)) == 25
    if HAS_READ_LIMITS:
        assert max(len(batch) for [batch] in sink.batches.values()) <= 10
    send(sdk, queue, 5)
    available_now(df, sink, tmp_path)
    assert len(sink.numbers) == len(set(sink.numbers)) == 30
    # Every micro-batch came once: none was repeated by the second run.
    assert all(len(tries) == 1 for tries in sink.batches.values())


def test_a_micro_batch_that_failed_comes_again_with_the_same_rows(
    stream: Stream, sdk: ServiceBusClient, new_entity: NewEntity, tmp_path: Path
) -> None:
    queue, sink = new_entity("queue"), Sink()
    df = stream(queue=queue, startingSequenceNumber="earliest")
    send(sdk, queue, 10)
    sink.fails_at = 0
    with pytest.raises(Exception, match="the sink is full"):
        available_now(df, sink, tmp_path)
    send(sdk, queue, 4)
    sink.fails_at = None
    # Without read limits Trigger.AvailableNow is one micro-batch: at first the one that failed, at the next run the rest.
    for _ in range(1 if HAS_READ_LIMITS else 2):
        available_now(df, sink, tmp_path)
    first, again = sink.batches[0]
    assert first == again == list(range(1, 11))
    assert sink.numbers == list(range(1, 15))


def test_a_query_that_starts_at_the_latest_sees_what_comes(
    stream: Stream, sdk: ServiceBusClient, new_entity: NewEntity, tmp_path: Path
) -> None:
    queue, sink = new_entity("queue"), Sink()
    send(sdk, queue, 3)
    query = stream(queue=queue).writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        send(sdk, queue, 4)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sink.numbers == [4, 5, 6, 7]


def test_columns_are_those_asked_for(
    spark: SparkSession, emulator: Emulator, sdk: ServiceBusClient, new_entity: NewEntity, tmp_path: Path
) -> None:
    queue, sink = new_entity("queue"), Sink()
    send(sdk, queue, 1)
    spark_sb_mgmt.register(spark)
    reader = spark.readStream.format("sbmgmt").schema("body binary, sequence_number long")
    options = {"connectionString": emulator.connection_string, "queue": queue, "startingSequenceNumber": "1"}
    df = reader.options(**options).load()
    assert df.columns == ["body", "sequence_number"]
    available_now(df, sink, tmp_path)
    assert sink.numbers == [1]


def test_mistakes_are_told_with_what_to_do(stream: Stream, new_entity: NewEntity, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="option startingSequenceNumber is 'newest': it must be"):
        stream(queue="q", startingSequenceNumber="newest")
    with pytest.raises(Exception, match=r"which is for spark\.read: a stream reads peek-message"):
        stream(queue="q", startingSequenceNumber="latest", operation="enumerate-rules")
    with pytest.raises(Exception, match=r"option maxMessages is only for spark\.read: leave it out"):
        available_now(stream(queue=new_entity("queue"), maxMessages=3), Sink(), tmp_path / "a")
    with pytest.raises(Exception, match=r"column bodi of \.schema\(\.\.\.\) is unknown") as caught:
        available_now(stream("bodi binary", queue=new_entity("queue")), Sink(), tmp_path / "c")
    # PySpark's own, which follows from a reader that is refused too early.
    assert "UnboundLocalError" not in str(caught.value)
    with pytest.raises(Exception, match="There is no entity 'nowhere' in this namespace"):
        available_now(stream(queue="nowhere"), Sink(), tmp_path / "b")
