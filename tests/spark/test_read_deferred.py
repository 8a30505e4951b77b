"""receive-by-sequence-number as a DataFrame: deferred messages locked or taken, and what becomes of those that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.errors import ArgumentError, MessageNotFoundError
from spark_sb_mgmt.spark.connections import CONNECTIONS
from spark_sb_mgmt.spark.options.parsing import ReceiveOptions, read_options
from spark_sb_mgmt.spark.reading.deferred import DeferredMessages, Patience, Status, give_back
from spark_sb_mgmt.spark.reading.deferred_reader import DeferredReader
from spark_sb_mgmt.spark.reading.read_schema import KEEPS_ROWS_WITHOUT_COLUMNS, read_columns, read_schema
from tests.spark.conftest import Deferring

Read = Callable[..., DataFrame]


def receive(read: Read, queue: str, **options: object) -> DataFrame:
    schema = options.pop("schema", None)
    return read(schema, operation="receive-by-sequence-number", queue=queue, **options)


def numbers(df: DataFrame) -> list[int]:
    return sorted(row.sequence_number for row in df.collect())


def test_listed_numbers_are_locked_and_can_be_settled(read: Read, deferring: Deferring, emulator: Emulator) -> None:
    queue, _ = deferring(30)
    rows = receive(read, queue, sequenceNumbers="1,3-5,20-29", pageSize=4, numPartitions=3).collect()
    assert sorted(row.sequence_number for row in rows) == [1, 3, 4, 5, *range(20, 30)]
    assert {(row.state, row.entity, row.body_type) for row in rows} == {("deferred", queue, "data")}
    assert all(row.locked_until is not None for row in rows)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        entity.update_disposition("completed", [row.lock_token for row in rows])
    assert emulator.counts(queue)["deferred"] == 30 - len(rows)


@pytest.mark.parametrize("kind", ["queue", "partitioned"])
def test_a_range_finds_what_is_deferred_there(read: Read, deferring: Deferring, kind: str) -> None:
    queue, deferred = deferring(40, others=40, kind=kind)
    df = receive(read, queue, fromSequenceNumber=0, numPartitions=3, pageSize=7)
    assert numbers(df) == deferred


def test_deleted_messages_are_gone(read: Read, deferring: Deferring, emulator: Emulator) -> None:
    queue, deferred = deferring(20)
    rows = receive(read, queue, sequenceNumbers="1-10", receiveMode="receiveAndDelete").collect()
    assert sorted(row.sequence_number for row in rows) == deferred[:10]
    assert {row.lock_token for row in rows} == {None}
    assert emulator.counts(queue)["deferred"] == 10
    with pytest.raises(Exception, match=r"10 of the deferred messages .* \(missing: 1, 2, 3, .*, 10\).*can be evaluated once"):
        receive(read, queue, sequenceNumbers="1-10", receiveMode="receiveAndDelete").collect()


def test_taking_for_good_warns_what_a_second_evaluation_does(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "connectionString": emulator.connection_string,
        "queue": "orders",
        "operation": "receive-by-sequence-number",
        "onMissing": "skip",
    }
    for mode, warnings in (("peekLock", 0), ("receiveAndDelete", 1)):
        options = read_options({**given, "sequenceNumbers": "1", "receiveMode": mode}, {})
        assert isinstance(options, ReceiveOptions)
        DeferredReader(options, read_columns(read_schema(options.operation), options.operation)).partitions()
        assert caplog.text.count("every evaluation of this DataFrame removes messages from orders for good") == warnings


def test_missing_fail_is_told_with_numbers_and_leaves_no_lock(read: Read, deferring: Deferring, emulator: Emulator) -> None:
    queue, _ = deferring(20, others=2)
    with pytest.raises(Exception, match=r"3 of the deferred messages .*missing: 30; not deferred: 21, 22.*onMissing"):
        receive(read, queue, sequenceNumbers="5-22,30", pageSize=6).collect()
    # Nothing is locked: all can be taken at once.
    assert numbers(receive(read, queue, sequenceNumbers="1-20", pageSize=100)) == list(range(1, 21))


def test_missing_fail_takes_nothing_in_any_task(read: Read, deferring: Deferring, emulator: Emulator) -> None:
    """A task that is done cannot give its locks back when another fails, so it is looked first whether all are there."""
    queue, _ = deferring(10, others=1)
    with pytest.raises(Exception, match=r"2 of the deferred messages .*missing: 99; not deferred: 11\).*onMissing"):
        receive(read, queue, sequenceNumbers="1-11,99", numPartitions=4).collect()
    assert emulator.counts(queue)["locked"] == 0


def test_missing_fail_deletes_nothing(read: Read, deferring: Deferring, emulator: Emulator) -> None:
    queue, deferred = deferring(10)
    with pytest.raises(Exception, match=r"1 of the deferred messages .*missing: 99\).*onMissing"):
        receive(read, queue, sequenceNumbers="1-10,99", receiveMode="receiveAndDelete").collect()
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        entity.receive_by_sequence_number([4])
    # A lock shows only when the messages are asked for.
    with pytest.raises(Exception, match=r"1 of the deferred messages .*locked: 4\).*onMissing"):
        receive(read, queue, sequenceNumbers="1-10", receiveMode="receiveAndDelete").collect()
    assert (emulator.counts(queue)["deferred"], emulator.counts(queue)["locked"]) == (len(deferred), 1)


def test_missing_skip_gives_the_others(read: Read, deferring: Deferring) -> None:
    queue, _ = deferring(12)
    assert numbers(receive(read, queue, sequenceNumbers="1-4,7,100-110", onMissing="skip")) == [1, 2, 3, 4, 7]


def test_missing_report_gives_a_row_with_its_status(read: Read, deferring: Deferring) -> None:
    queue, _ = deferring(5, others=1)
    first = receive(read, queue, sequenceNumbers="2")
    assert len(first.collect()) == 1
    df = receive(read, queue, sequenceNumbers="1-7", onMissing="report")
    assert df.columns[-1] == "status"
    rows = {row.sequence_number: row for row in df.collect()}
    assert {number: row.status for number, row in rows.items()} == {
        1: "received",
        2: "locked",
        3: "received",
        4: "received",
        5: "received",
        6: "not deferred",
        7: "missing",
    }
    assert [name for name, value in rows[7].asDict().items() if value is not None] == ["entity", "sequence_number", "status"]
    schema = "status string, sequence_number long"
    pruned = receive(read, queue, sequenceNumbers="7", onMissing="report", schema=schema).collect()
    assert [tuple(row) for row in pruned] == [("missing", 7)]
    if KEEPS_ROWS_WITHOUT_COLUMNS:
        assert receive(read, queue, sequenceNumbers="6-9", onMissing="report", schema=StructType()).count() == 4


def test_a_second_evaluation_is_told_about_its_own_locks(read: Read, deferring: Deferring) -> None:
    queue, _ = deferring(3)
    df = receive(read, queue, sequenceNumbers="1-3")
    assert len(df.collect()) == 3
    with pytest.raises(Exception, match=r"locked: 1, 2, 3\).*earlier evaluation of this DataFrame"):
        df.collect()


def test_who_stops_early_keeps_only_the_locks_of_what_he_was_given(
    deferring: Deferring, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark does for a limit: it closes the iterator, with requests in flight."""
    monkeypatch.setattr("spark_sb_mgmt.spark.reading.deferred_reader.BATCH_MESSAGES", 1)
    queue, deferred = deferring(20)
    given = {"connectionString": emulator.connection_string, "queue": queue, "operation": "receive-by-sequence-number"}
    options = read_options({**given, "sequenceNumbers": "1-20", "pageSize": "1", "pipelineDepth": "8", "numPartitions": "1"}, {})
    assert isinstance(options, ReceiveOptions)
    reader = DeferredReader(options, read_columns(read_schema(options.operation), options.operation))
    [partition] = reader.partitions()
    rows = reader.read(partition)
    [taken] = next(rows).column("sequence_number").to_pylist()
    rows.close()  # type: ignore[attr-defined]
    CONNECTIONS.close()
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        with pytest.raises(MessageNotFoundError):
            entity.receive_by_sequence_number([taken])
        assert len(entity.receive_by_sequence_number([number for number in deferred if number != taken])) == 19


def test_a_read_that_fails_gives_back_also_what_it_was_just_asking_for(deferring: Deferring, emulator: Emulator) -> None:
    queue, deferred = deferring(20)
    refused = Fault("fail", operation="receive-by-sequence-number", entity=queue, skip=2, status=400, condition="amqp:not-allowed")
    emulator.faults.add(refused)
    given = {"connectionString": emulator.connection_string, "queue": queue, "operation": "receive-by-sequence-number"}
    options = read_options({**given, "sequenceNumbers": "1-20", "pageSize": "1", "pipelineDepth": "8", "numPartitions": "1"}, {})
    assert isinstance(options, ReceiveOptions)
    reader = DeferredReader(options, read_columns(read_schema(options.operation), options.operation))
    [partition] = reader.partitions()
    with pytest.raises(ArgumentError, match="a fault was scripted"):
        list(reader.read(partition))
    CONNECTIONS.close()
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        assert len(entity.receive_by_sequence_number(deferred)) == 20


def test_a_read_that_fails_at_one_entity_gives_back_the_locks_of_those_before(deferring: Deferring, emulator: Emulator) -> None:
    first, second = deferring(3), deferring(3)
    refused = Fault("fail", operation="receive-by-sequence-number", entity=second[0], status=400, condition="amqp:not-allowed")
    emulator.faults.add(refused)
    given = {"connectionString": emulator.connection_string, "entityPath": f"{first[0]},{second[0]}", "numPartitions": "1"}
    options = read_options({**given, "operation": "receive-by-sequence-number", "fromSequenceNumber": "0"}, {})
    assert isinstance(options, ReceiveOptions)
    reader = DeferredReader(options, read_columns(read_schema(options.operation), options.operation))
    [partition] = reader.partitions()
    rows = reader.read(partition)
    assert next(rows).num_rows == 3
    with pytest.raises(ArgumentError, match="a fault was scripted"):
        next(rows)
    CONNECTIONS.close()
    assert [emulator.counts(queue)["locked"] for queue, _ in (first, second)] == [0, 0]


def test_locks_are_given_back_but_for_those_that_ended_and_not_to_a_service_that_is_silent(
    deferring: Deferring, emulator: Emulator
) -> None:
    queue, deferred = deferring(8)
    settings = {"max_retries": 0, "server_timeout_ms": 5000}
    with ManagementClient.from_connection_string(emulator.connection_string, **settings) as client, client.entity(queue) as entity:
        tokens = [UUID(str(message.lock_token)) for message in entity.receive_by_sequence_number(deferred)]
        entity.update_disposition("completed", tokens[:2])
        dropped = emulator.faults.add(Fault("drop-connection", operation="update-disposition", entity=queue, count=None))
        give_back(entity, tokens)
        # One by one is no way to someone who does not answer.
        assert emulator.faults.hits(dropped) == 1
        emulator.faults.remove(dropped)
        give_back(entity, tokens)
        assert (emulator.counts(queue)["deferred"], emulator.counts(queue)["locked"]) == (6, 0)


def test_a_long_list_of_which_little_is_there_takes_few_requests(deferring: Deferring, emulator: Emulator) -> None:
    queue, deferred = deferring(10, others=10)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        entity.receive_by_sequence_number([3])
        before = emulator.requests
        receiving = DeferredMessages(entity, page_size=100)
        taken = [message.sequence_number for answer in receiving.receive([(1, 2001)]) for message in answer]
        after = emulator.requests
    assert sorted(taken) == [number for number in deferred if number != 3]
    assert receiving.not_received == {
        3: Status.LOCKED,
        **dict.fromkeys(range(11, 21), Status.NOT_DEFERRED),
        **dict.fromkeys(range(21, 2001), Status.MISSING),
    }
    # One for each hundred, and those that find the one that is locked among ten.
    assert after["receive-by-sequence-number"] - before["receive-by-sequence-number"] < 20 + 10
    assert after["peek-message"] - before.get("peek-message", 0) < 50


class Clock:
    """Time that passes only by sleeping; what happens meanwhile is up to the test."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.now = 0.0
        self.meanwhile = meanwhile

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


def test_locks_of_a_killed_attempt_are_waited_for_with_a_word_about_it(
    deferring: Deferring, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    queue, deferred = deferring(9)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        first_attempt = [message.lock_token or "" for message in entity.receive_by_sequence_number(deferred[:5])]
        polls: list[str] = []

        def meanwhile() -> None:
            # At the third look the locks are over, but for one message that somebody else finished.
            polls.append("")
            if len(polls) == 3:
                entity.update_disposition("completed", first_attempt[:1])
                entity.update_disposition("deferred", first_attempt[1:])

        clock = Clock(meanwhile)
        patience = Patience(seconds=60, interval_s=1, clock=lambda: clock.now, sleep=clock.sleep)
        receiving = DeferredMessages(entity, page_size=4, was_killed=True, patience=patience)
        answers = list(receiving.receive([(1, 10)]))
        assert sorted(message.sequence_number for answer in answers for message in answer) == deferred[1:]
        assert receiving.not_received == {1: Status.MISSING}
        assert f"5 deferred messages of {queue} are locked, perhaps by an earlier attempt" in caplog.text
        # A lock that does not end is told as one, when the patience is over.
        late = DeferredMessages(entity, page_size=4, was_killed=True, patience=patience)
        assert list(late.receive([(2, 3)])) == []
        assert (late.not_received, clock.now >= 60) == ({2: Status.LOCKED}, True)


def test_listed_numbers_of_several_partition_ids(read: Read, deferring: Deferring) -> None:
    """The service refuses a request that mixes them."""
    queue, deferred = deferring(30, kind="partitioned")
    assert len({number >> 48 for number in deferred}) > 1
    missing = [deferred[0] - 1, deferred[-1] + 1]
    listed = ",".join(map(str, sorted([*deferred, *missing])))
    df = receive(read, queue, sequenceNumbers=listed, pageSize=7, numPartitions=2, onMissing="report")
    status = {row.sequence_number: row.status for row in df.collect()}
    assert status == {**dict.fromkeys(deferred, "received"), **dict.fromkeys(missing, "missing")}


def test_deferred_messages_of_a_session(read: Read, deferring: Deferring) -> None:
    queue, deferred = deferring(6, kind="sessions", session_id="a")
    df = receive(read, queue, fromSequenceNumber=0, sessionId="a")
    rows = df.collect()
    assert sorted(row.sequence_number for row in rows) == deferred
    assert {row.session_id for row in rows} == {"a"}


@pytest.mark.parametrize("page_size", [250, 1])
def test_a_lost_answer_is_waited_for_and_nothing_is_lost(read: Read, deferring: Deferring, emulator: Emulator, page_size: int) -> None:
    """The connection goes after the locks were taken, with all that was in flight: they end after five seconds, and the messages are taken
    then."""
    queue, deferred = deferring(8, kind="brief-locks")
    key = emulator.faults.add(Fault("drop-connection", operation="receive-by-sequence-number", entity=queue, when="after"))
    assert numbers(receive(read, queue, sequenceNumbers="1-8", numPartitions=1, pageSize=page_size)) == deferred
    assert emulator.faults.hits(key) == 1


def test_a_lost_connection_takes_many_answers_along_and_nothing_is_lost(deferring: Deferring, emulator: Emulator) -> None:
    queue, deferred = deferring(12, kind="brief-locks")
    key = emulator.faults.add(Fault("drop-connection", operation="receive-by-sequence-number", entity=queue, when="after"))
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        # Eight requests are in flight when the first of them costs the connection.
        receiving = DeferredMessages(entity, page_size=1)
        taken = [message.sequence_number for answer in receiving.receive([(1, 13)]) for message in answer]
    assert (sorted(taken), receiving.not_received) == (deferred, {})
    assert emulator.faults.hits(key) == 1
