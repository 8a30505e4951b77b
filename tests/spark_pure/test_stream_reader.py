"""Micro-batches as Spark asks for them, of a queue that fills meanwhile: every message in one of them, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any, cast

import pytest
from pyspark.sql.datasource import InputPartition

from spark_sb_mgmt.client import ManagementClient, ScheduledMessage
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.errors import EntityNotFoundError, InvalidArgumentError, MessageNotFoundError
from spark_sb_mgmt.spark.connections import CONNECTIONS
from spark_sb_mgmt.spark.options.parsing import stream_read_options
from spark_sb_mgmt.spark.reading import stream_reader
from spark_sb_mgmt.spark.reading.partitioning import RangesPartition
from spark_sb_mgmt.spark.reading.read_schema import read_columns, read_schema
from spark_sb_mgmt.spark.reading.stream_offsets import Offset
from spark_sb_mgmt.spark.reading.stream_reader import HAS_READ_LIMITS, PeekStreamReader, ReadAllAvailable, ReadMaxRows

_EACH = 40
LATER = datetime.now(timezone.utc) + timedelta(days=1)
needs_limits = pytest.mark.skipif(not HAS_READ_LIMITS, reason="PySpark 4.2 and newer limit micro-batches")


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    kinds = (("queue", {}), ("partitioned", {"EnablePartitioning": True}))
    queues = [{"Name": f"{kind}-{at}", "Properties": properties} for kind, properties in kinds for at in range(_EACH)]
    with Emulator.start({"UserConfig": {"Namespaces": [{"Name": "tests", "Queues": queues}]}}) as running:
        yield running
    CONNECTIONS.close()


_numbers = count()


class Queue:
    """One that nobody used before; scheduled messages stand to be peeked as any others do."""

    def __init__(self, emulator: Emulator, kind: str) -> None:
        self.name = f"{kind}-{next(_numbers) % _EACH}"
        self._emulator = emulator
        self._connection_string = emulator.connection_string

    def send(self, messages: int) -> list[int]:
        with ManagementClient.from_connection_string(self._connection_string) as client, client.entity(self.name) as entity:
            return entity.schedule_message([ScheduledMessage("body", LATER, str(at)) for at in range(messages)])

    def remove(self, numbers: list[int]) -> None:
        with ManagementClient.from_connection_string(self._connection_string) as client, client.entity(self.name) as entity:
            entity.cancel_scheduled_message(numbers)

    def reader(self, **options: object) -> PeekStreamReader:
        given = {"connectionString": self._connection_string, "queue": self.name, "startingSequenceNumber": "earliest"}
        read = stream_read_options({**given, **{name: str(value) for name, value in options.items()}}, {})
        return PeekStreamReader(read, read_columns(read_schema(read.operation), read.operation))


@pytest.fixture(params=["queue", "partitioned"])
def queue(request: pytest.FixtureRequest, emulator: Emulator) -> Queue:
    return Queue(emulator, request.param)


def through_json(offset: Offset) -> Offset:
    """As Spark hands it back."""
    return cast(Offset, json.loads(json.dumps(offset)))


def rows(reader: PeekStreamReader, start: Offset, end: Offset) -> list[int]:
    partitions = reader.partitions(through_json(start), through_json(end))
    return sorted(number for one in partitions for batch in reader.read(one) for number in batch.column("sequence_number").to_pylist())


def test_what_came_in_between_is_the_next_micro_batch(queue: Queue) -> None:
    reader = queue.reader()
    start = reader.initialOffset()
    seen = []
    for size in (5, 0, 3):
        sent = queue.send(size) if size else []
        end = reader.latestOffset(through_json(start), ReadAllAvailable() if HAS_READ_LIMITS else None)
        assert (end == start) == (not sent)
        seen.append(rows(reader, start, end))
        assert seen[-1] == sorted(sent)
        # The same offsets, the same rows.
        assert rows(queue.reader(), start, end) == seen[-1]
        start = end
    assert reader.reportLatestOffset() == start


def test_the_latest_is_what_comes_after_the_query_started(queue: Queue) -> None:
    """Also what comes before its first micro-batch ends, and if it never does: the checkpoint then has an end, and no start."""
    queue.send(5)
    reader = queue.reader(startingSequenceNumber="latest")
    start = reader.initialOffset()
    first = queue.send(4)
    assert reader.initialOffset() == start
    end = reader.latestOffset(through_json(start), None)
    assert end == start
    # Killed here, and started again with that end in the checkpoint.
    again = queue.reader(startingSequenceNumber="latest")
    assert rows(again, again.initialOffset(), end) == []
    more = queue.send(2)
    assert rows(again, end, again.latestOffset(through_json(end), None)) == sorted([*first, *more])


def test_before_4_2_spark_says_neither_start_nor_limit(queue: Queue) -> None:
    queue.send(3)
    reader = queue.reader(startingSequenceNumber="latest")
    start, end = reader.initialOffset(), reader.latestOffset()
    assert rows(reader, start, end) == []
    sent = queue.send(3)
    start, end = end, reader.latestOffset()
    assert rows(reader, start, end) == sorted(sent)
    queue.remove(sent)
    # Nothing stands where it was, and the offset is no less for that.
    assert reader.latestOffset() == end


def test_a_number_to_start_at(queue: Queue) -> None:
    sent = sorted(queue.send(10))
    reader = queue.reader(startingSequenceNumber=sent[4])
    start = reader.initialOffset()
    assert rows(reader, start, reader.latestOffset(start, None)) == sent[4:]


@needs_limits
def test_a_limit_is_kept_and_gaps_are_passed_at_once(queue: Queue) -> None:
    sent = sorted(queue.send(60))
    gap = sent[10:50]
    queue.remove(gap)
    reader = queue.reader(maxMessagesPerTrigger=7)
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    start, seen = reader.initialOffset(), []
    while (end := reader.latestOffset(through_json(start), ReadMaxRows(7))) != start:
        batch = rows(reader, start, end)
        assert 1 <= len(batch) <= 7
        seen += batch
        start = end
    assert sorted(seen) == [number for number in sent if number not in gap]


@needs_limits
def test_available_now_ends_where_it_was_when_it_began(queue: Queue) -> None:
    sent = sorted(queue.send(20))
    reader = queue.reader(maxMessagesPerTrigger=8)
    reader.prepareForTriggerAvailableNow()
    queue.send(5)
    start, seen = reader.initialOffset(), []
    while (end := reader.latestOffset(through_json(start), ReadMaxRows(8))) != start:
        seen += rows(reader, start, end)
        start = end
    assert sorted(seen) == sent
    # A later run goes on from there.
    assert len(rows(queue.reader(), start, queue.reader().latestOffset(through_json(start), ReadAllAvailable()))) == 5


def test_messages_that_are_gone_fail_the_query_or_are_warned_of(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    reader = queue.reader()
    start = reader.initialOffset()
    sent = sorted(queue.send(10))
    end = reader.latestOffset(start, None)
    queue.remove(sent[-1:])
    with pytest.raises(MessageNotFoundError, match=rf"are gone, number {sent[-1]} among them.*Set option failOnDataLoss to false"):
        reader.partitions(start, end)
    assert rows(queue.reader(failOnDataLoss="false"), start, end) == sent[:-1]
    assert f"number {sent[-1]} among them" in caplog.text


def test_a_wide_micro_batch_is_planned_without_its_gaps(emulator: Emulator) -> None:
    queue = Queue(emulator, "queue")
    reader = queue.reader(pageSize=5, numPartitions=1)
    start = reader.initialOffset()
    sent = sorted(queue.send(400))
    end = reader.latestOffset(start, None)
    queue.remove(sent[50:350])
    [partition] = reader.partitions(start, end)
    assert isinstance(partition, RangesPartition)
    # All of it but the gap, and of the gap what lies between two probes.
    width = sum(span.end - span.start for span in partition.spans)
    assert 100 <= width < 300
    assert rows(reader, start, end) == [*sent[:50], *sent[350:]]


def test_states_narrow_a_stream(queue: Queue) -> None:
    reader = queue.reader(states="active")
    start = reader.initialOffset()
    queue.send(3)
    assert rows(reader, start, reader.latestOffset(start, None)) == []


def test_several_entities_are_one_stream(emulator: Emulator) -> None:
    one, two = Queue(emulator, "queue"), Queue(emulator, "partitioned")
    given: dict[str, Any] = {"connectionString": emulator.connection_string, "entityPath": f"{one.name},{two.name}"}
    options = stream_read_options({**given, "startingSequenceNumber": "earliest"}, {})
    reader = PeekStreamReader(options, read_columns(read_schema(options.operation), options.operation))
    start = reader.initialOffset()
    sent = sorted([*one.send(4), *two.send(4)])
    end = reader.latestOffset(start, None)
    assert list(end) == [one.name, two.name]
    assert rows(reader, start, end) == sent


def test_an_entity_that_is_not_there_says_what_to_do(emulator: Emulator) -> None:
    nowhere = Queue(emulator, "queue")
    nowhere.name = "nowhere"
    with pytest.raises(EntityNotFoundError, match="There is no entity 'nowhere' in this namespace: check the name"):
        nowhere.reader(startingSequenceNumber="latest").initialOffset()


def test_a_limit_that_this_spark_cannot_keep_is_refused(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "HAS_READ_LIMITS", False)
    with pytest.raises(InvalidArgumentError, match=r"option maxMessagesPerTrigger needs PySpark 4\.2 or newer"):
        Queue(emulator, "queue").reader(maxMessagesPerTrigger=5)


def test_partitions_are_what_spark_sends_to_tasks(queue: Queue) -> None:
    reader = queue.reader(numPartitions=3)
    start = reader.initialOffset()
    queue.send(30)
    plan = reader.partitions(start, reader.latestOffset(start, None))
    assert len(plan) == 3
    assert all(isinstance(one, InputPartition) for one in plan)


def test_a_stream_of_dead_letters_says_what_it_does_not_see(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    """They keep their numbers: one that comes in late may be below what was read."""
    queue = Queue(emulator, "queue")
    queue.reader()
    assert caplog.text == ""
    queue.reader(subQueue="deadLetter")
    assert f"{queue.name}/$DeadLetterQueue is a dead-letter queue, where messages keep the numbers they had" in caplog.text
