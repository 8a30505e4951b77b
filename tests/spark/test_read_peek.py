"""peek-message as a DataFrame: every message once, narrowed as the options say, shared among tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pyspark
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_sb_mgmt.emulator import Emulator, Fault

Read = Callable[..., DataFrame]
NewEntity = Callable[[str], str]


def send(sdk: ServiceBusClient, queue: str, count: int, **fields: object) -> None:
    with sdk.get_queue_sender(queue) as sender:
        for start in range(0, count, 500):
            sender.send_messages([ServiceBusMessage(f"body {at}", **fields) for at in range(start, min(count, start + 500))])


def peeked(sdk: ServiceBusClient, queue: str) -> list[ServiceBusReceivedMessage]:
    """All that stands in a queue, as the SDK sees it."""
    messages: list[ServiceBusReceivedMessage] = []
    with sdk.get_queue_receiver(queue) as receiver:
        while page := receiver.peek_messages(500, sequence_number=messages[-1].sequence_number + 1 if messages else 0):
            messages += page
    return messages


def numbers(df: DataFrame) -> list[int]:
    return sorted(row.sequence_number for row in df.select("sequence_number").collect())


@pytest.fixture
def capped_pages(emulator: Emulator) -> Iterator[None]:
    key = emulator.faults.add(Fault("cap-page", operation="peek-message", count=None, limit=7))
    yield
    assert emulator.faults.hits(key) > 0
    emulator.faults.remove(key)


@pytest.mark.parametrize("kind", ["queue", "partitioned"])
@pytest.mark.parametrize("num_partitions", [1, 5])
def test_every_message_is_one_row_however_many_tasks(
    read: Read, sdk: ServiceBusClient, new_entity: NewEntity, kind: str, num_partitions: int
) -> None:
    queue = new_entity(kind)
    send(sdk, queue, 1_234)
    df = read(queue=queue, numPartitions=num_partitions, pageSize=100)
    assert df.rdd.getNumPartitions() == num_partitions
    assert numbers(df) == [message.sequence_number for message in peeked(sdk, queue)]
    if num_partitions > 1:
        shares = [row["count"] for row in df.groupBy(F.spark_partition_id()).count().collect()]
        assert len(shares) == num_partitions
        assert max(shares) < 2 * min(shares)


@pytest.mark.usefixtures("capped_pages")
def test_short_pages_do_not_end_a_read(read: Read, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    queue = new_entity("queue")
    send(sdk, queue, 300)
    assert read(queue=queue, numPartitions=3).select("sequence_number").distinct().count() == 300


def test_an_empty_queue_is_an_empty_dataframe(read: Read, new_entity: NewEntity) -> None:
    queue = new_entity("queue")
    df = read(queue=queue)
    assert df.collect() == []
    assert df.columns[:2] == ["entity", "sequence_number"]
    assert read(queue=queue, numPartitions=4, maxMessages=3, enqueuedFrom="2026-01-01").count() == 0


def test_a_gap_of_nine_tenths_leaves_no_task_with_all_the_work(
    read: Read, sdk: ServiceBusClient, new_entity: NewEntity, emulator: Emulator
) -> None:
    queue = new_entity("queue")
    send(sdk, queue, 5_000)
    with sdk.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver:
        # The first one hundred are deferred; 4,500 go.
        for message in _receive(sdk, queue, 100):
            assert message.sequence_number <= 100
        taken = 0
        while taken < 4_500:
            taken += len(receiver.receive_messages(min(500, 4_500 - taken), max_wait_time=5))
    left = [message.sequence_number for message in peeked(sdk, queue)]
    assert (len(left), left[100] - left[99]) == (500, 4_501)
    df = read(queue=queue, numPartitions=4, pageSize=20)
    shares = {row[0]: row["count"] for row in df.groupBy(F.spark_partition_id()).count().collect()}
    assert sum(shares.values()) == 500
    assert max(shares.values()) <= 200, shares


def _receive(sdk: ServiceBusClient, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
    """Defer the next messages."""
    with sdk.get_queue_receiver(queue) as receiver:
        got: list[ServiceBusReceivedMessage] = []
        while len(got) < count:
            got += receiver.receive_messages(count - len(got), max_wait_time=5)
        for message in got:
            receiver.defer_message(message)
    return got


@pytest.fixture(scope="module")
def mixed(sdk: ServiceBusClient, new_entity: NewEntity) -> str:
    """A queue with 30 deferred, 20 scheduled and 50 active messages, mixed."""
    queue = new_entity("queue")
    send(sdk, queue, 30)
    _receive(sdk, queue, 30)
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("now") for _ in range(25)])
        sender.schedule_messages([ServiceBusMessage("later") for _ in range(20)], datetime.now(timezone.utc) + timedelta(days=1))
        sender.send_messages([ServiceBusMessage("now") for _ in range(25)])
    return queue


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("active", {"active": 50}),
        ("deferred", {"deferred": 30}),
        ("scheduled,deferred", {"deferred": 30, "scheduled": 20}),
        ("active,deferred,scheduled", {"active": 50, "deferred": 30, "scheduled": 20}),
    ],
)
def test_states(read: Read, mixed: str, states: str, expected: dict[str, int]) -> None:
    df = read(queue=mixed, states=states)
    assert {row.state: row["count"] for row in df.groupBy("state").count().collect()} == expected


def test_a_range_of_sequence_numbers(read: Read, mixed: str) -> None:
    assert numbers(read(queue=mixed, fromSequenceNumber=10, untilSequenceNumber=90)) == list(range(10, 90))
    assert numbers(read(queue=mixed, fromSequenceNumber=98)) == [98, 99, 100]
    assert numbers(read(queue=mixed, untilSequenceNumber=1)) == []
    assert numbers(read(queue=mixed, fromSequenceNumber=200, untilSequenceNumber=300)) == []


@pytest.mark.parametrize("kind", ["queue", "partitioned"])
def test_a_span_of_time_is_exact_and_found_by_search(
    read: Read, sdk: ServiceBusClient, new_entity: NewEntity, emulator: Emulator, kind: str
) -> None:
    queue = new_entity(kind)
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    with sdk.get_queue_sender(queue) as sender:
        for _ in range(6):
            sender.send_messages([ServiceBusMessage("now") for _ in range(50)])
            sender.schedule_messages([ServiceBusMessage("later") for _ in range(5)], tomorrow)
    messages = peeked(sdk, queue)
    times = sorted({message.enqueued_time_utc for message in messages})
    assert len(times) > 4
    start, end = times[len(times) // 4], times[3 * len(times) // 4]
    df = read(queue=queue, enqueuedFrom=start.isoformat(), enqueuedUntil=end.isoformat(), numPartitions=2)
    expected = [message.sequence_number for message in messages if start <= message.enqueued_time_utc < end]
    assert 0 < len(expected) < len(messages)
    assert numbers(df) == sorted(expected)
    assert numbers(read(queue=queue, enqueuedFrom=(times[-1] + timedelta(hours=1)).isoformat())) == []
    assert numbers(read(queue=queue, enqueuedUntil=times[0].isoformat())) == []


def test_one_session(read: Read, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    queue = new_entity("sessions")
    for session in ("a", "b", "a"):
        send(sdk, queue, 40, session_id=session)
    df = read(queue=queue, sessionId="a", numPartitions=3)
    assert {row.session_id for row in df.select("session_id").distinct().collect()} == {"a"}
    assert df.count() == 80
    assert read(queue=queue, sessionId="nobody").count() == 0
    assert read(queue=queue).count() == 120


def test_max_messages_are_the_first_of_those_wanted_and_the_same_each_time(read: Read, mixed: str) -> None:
    df = read(queue=mixed, maxMessages=7, states="scheduled", pageSize=10, numPartitions=4)
    first = numbers(df)
    assert first == list(range(56, 63))
    assert numbers(df) == first
    assert numbers(read(queue=mixed, maxMessages=1_000)) == list(range(1, 101))


def test_several_entities_at_once(read: Read, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    large, small, empty, topic = new_entity("queue"), new_entity("partitioned"), new_entity("queue"), new_entity("topic")
    send(sdk, large, 1_000)
    send(sdk, small, 20)
    with sdk.get_topic_sender(topic) as sender:
        sender.send_messages([ServiceBusMessage("event") for _ in range(30)])
    paths = [large, small, empty, f"{topic}/Subscriptions/one", f"{topic}/Subscriptions/two"]
    df = read(entityPath=",".join(paths), numPartitions=4, pageSize=50)
    assert {row.entity: row["count"] for row in df.groupBy("entity").count().collect()} == {
        large: 1_000,
        small: 20,
        paths[3]: 30,
        paths[4]: 30,
    }
    # The large one is not left to one task.
    assert df.where(F.col("entity") == large).select(F.spark_partition_id()).distinct().count() > 1
    assert read(entityPath=",".join(paths), maxMessages=1_010).count() == 1_010


def test_scheduled_messages_of_a_topic_stand_in_the_topic(read: Read, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    topic = new_entity("topic")
    with sdk.get_topic_sender(topic) as sender:
        sender.schedule_messages([ServiceBusMessage("later") for _ in range(3)], datetime.now(timezone.utc) + timedelta(days=1))
    assert [row.state for row in read(topic=topic).collect()] == ["scheduled"] * 3
    assert read(topic=topic, subscription="one").count() == 0


def test_a_dead_letter_queue(read: Read, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    queue = new_entity("queue")
    send(sdk, queue, 3)
    with sdk.get_queue_receiver(queue) as receiver:
        for message in receiver.receive_messages(3, max_wait_time=5):
            receiver.dead_letter_message(message, reason="why", error_description="because")
    df = read(queue=queue, subQueue="deadLetter")
    assert {(row.entity, row.dead_letter_reason, row.dead_letter_error_description) for row in df.collect()} == {
        (f"{queue}/$DeadLetterQueue", "why", "because")
    }
    assert read(queue=queue).count() == 0


def test_only_the_columns_asked_for_in_the_order_asked_for(read: Read, mixed: str) -> None:
    df = read("body binary, state string, header map<string,struct<type:string,value:string>>, sequence_number long", queue=mixed)
    assert df.columns == ["body", "state", "header", "sequence_number"]
    row = df.orderBy("sequence_number").first()
    assert row is not None
    assert (bytes(row.body), row.state, row.sequence_number) == (b"body 0", "deferred", 1)
    assert row.header["delivery-count"].type == "uint"
    assert read("message_id string", queue=mixed).count() == 100
    assert [row.state for row in read(queue=mixed).select("state").orderBy("sequence_number").take(1)] == ["deferred"]


def test_a_column_that_there_is_not_is_told_with_those_that_there_are(read: Read, mixed: str) -> None:
    with pytest.raises(Exception, match=r"column mesage_id of \.schema\(\.\.\.\) is unknown to peek-message, did you mean message_id"):
        read("mesage_id string", queue=mixed).collect()
    with pytest.raises(Exception, match=r"column body of \.schema\(\.\.\.\) is string: it must be binary; cast it after reading"):
        read("body string", queue=mixed).collect()


def test_a_plan_stays_as_it_was_at_the_first_action(read: Read, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    queue = new_entity("queue")
    send(sdk, queue, 10)
    df = read(queue=queue)
    assert df.count() == 10
    send(sdk, queue, 5)
    # The oldest PySpark plans anew for each action.
    assert df.count() == (15 if pyspark.__version__.startswith("4.0.") else 10)
    assert read(queue=queue).count() == 15


def test_a_dataframe_used_twice_in_one_query(read: Read, mixed: str) -> None:
    df = read(queue=mixed)
    assert df.where("state = 'deferred'").union(df.where("state = 'scheduled'")).count() == 50
    assert df.limit(3).count() == 3
    assert df.count() == 100


def test_faults_on_the_way_change_nothing(read: Read, sdk: ServiceBusClient, new_entity: NewEntity, emulator: Emulator) -> None:
    queue = new_entity("queue")
    send(sdk, queue, 2_000)
    keys = [
        emulator.faults.add(Fault("throttle", operation="peek-message", entity=queue, skip=40, count=2, seconds=0.01)),
        emulator.faults.add(Fault("drop-connection", operation="peek-message", entity=queue, skip=60, when="after")),
        emulator.faults.add(Fault("drop-link", operation="peek-message", entity=queue, skip=70)),
        emulator.faults.add(Fault("reorder", operation="peek-message", entity=queue, skip=50, count=20, limit=3, seconds=0.05)),
    ]
    assert numbers(read(queue=queue, numPartitions=2, pageSize=20)) == list(range(1, 2_001))
    assert all(emulator.faults.hits(key) > 0 for key in keys)
    for key in keys:
        emulator.faults.remove(key)


def test_workers_keep_their_connections_between_tasks_and_actions(read: Read, mixed: str, emulator: Emulator) -> None:
    df = read(queue=mixed, numPartitions=8, pageSize=10)
    df.count()
    before = emulator.connections
    for _ in range(3):
        assert df.count() == 100
    # At most one more, of a second worker that had nothing to do the first time.
    assert emulator.connections <= before + 1


def test_what_the_service_refuses_says_what_to_set(read: Read, new_entity: NewEntity) -> None:
    queue = new_entity("queue")
    with pytest.raises(Exception, match=r"There is no entity 'nowhere' in this namespace: check the name"):
        read(queue="nowhere").collect()
    with pytest.raises(Exception, match=rf"If '{queue}' has no sessions, leave option sessionId out"):
        read(queue=queue, sessionId="a").collect()
    with pytest.raises(Exception, match=r"topic and subscription together"):
        read(topic=new_entity("topic"), subscription="three").collect()
    with pytest.raises(Exception, match=r"option topic .*is a subscription: set option topic to 'events' and subscription to 'one'"):
        read(topic="events/Subscriptions/one").collect()


def test_mistakes_in_options_are_told_by_load(read: Read) -> None:
    with pytest.raises(Exception, match="option que is unknown, did you mean queue"):
        read(que="q")
    with pytest.raises(Exception, match="option queue is missing"):
        read()


def test_a_wrong_key_says_so_and_shows_nothing(spark: SparkSession, emulator: Emulator, new_entity: NewEntity) -> None:
    secret = "bm90IHRoZSBrZXkgYXQgYWxsLCByZWFsbHkgbm90"
    wrong = ";".join(
        f"SharedAccessKey={secret}" if part.startswith("SharedAccessKey=") else part for part in emulator.connection_string.split(";")
    )
    df = spark.read.format("sbmgmt").option("connectionString", wrong).option("queue", new_entity("queue")).load()
    with pytest.raises(Exception, match="needs the right Listen there") as caught:
        df.collect()
    assert secret not in str(caught.value)


def test_no_secret_in_plans(read: Read, emulator: Emulator, mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    df = read(queue=mixed)
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        df.explain(mode=mode)
    key = dict(part.partition("=")[::2] for part in emulator.connection_string.split(";") if part)["SharedAccessKey"]
    shown = capsys.readouterr().out
    assert "BatchScan" in shown
    assert key not in shown + repr(df) + str(df._jdf.queryExecution())
