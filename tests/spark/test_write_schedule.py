"""schedule-message: every row of a job stands once, or none does, whatever happens on the way; counted by the official SDK."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_sb_mgmt.amqp.arrow_encode import BROKER_ANNOTATIONS
from spark_sb_mgmt.amqp.columns import COLUMNS, TIMESTAMP
from spark_sb_mgmt.amqp.message import Header, Message, decode_message
from spark_sb_mgmt.client import EntityClient, ManagementClient, ScheduledMessage
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.errors import AuthenticationError, RowsFailedError, SbMgmtError
from spark_sb_mgmt.spark.connections import CONNECTIONS
from spark_sb_mgmt.spark.options.parsing import write_options
from spark_sb_mgmt.spark.schema import spark_schema
from spark_sb_mgmt.spark.writing import job_stamp, schedule_job, schedule_writer
from spark_sb_mgmt.spark.writing import writer as writer_module
from spark_sb_mgmt.spark.writing.schedule_writer import ScheduleMessages
from spark_sb_mgmt.spark.writing.write_operation import TaskAttempt
from spark_sb_mgmt.spark.writing.writer import ManagementWriter, TaskMessage
from tests.spark.conftest import NewEntity, Write
from tests.spark.test_read_columns import PROPERTIES, everything

Read = Callable[..., DataFrame]
TOMORROW = (datetime.now(timezone.utc) + timedelta(days=1)).replace(microsecond=0)
COLUMNS_OF_ROWS = pa.schema([("message_id", pa.string()), ("body", pa.binary()), ("scheduled_enqueue_time", TIMESTAMP)])


@pytest.fixture
def standing(emulator: Emulator, sdk: ServiceBusClient) -> Callable[[str], list[ServiceBusReceivedMessage]]:
    """What the official SDK sees in a queue, by its message ids."""

    def peek(queue: str, **options: Any) -> list[ServiceBusReceivedMessage]:
        with sdk.get_queue_receiver(queue, **options) as receiver:
            found: list[ServiceBusReceivedMessage] = []
            while page := receiver.peek_messages(250, sequence_number=(found[-1].sequence_number or 0) + 1 if found else 0):
                found += page
        return sorted(found, key=lambda message: str(message.message_id))

    return peek


@pytest.fixture
def orders(spark: SparkSession) -> Callable[..., DataFrame]:
    """So many messages for tomorrow, with ids `order-<n>`."""

    def make(count: int, tasks: int = 3) -> DataFrame:
        return spark.range(0, count, 1, tasks).select(
            F.format_string("order-%05d", "id").alias("message_id"),
            F.format_string("body %d", "id").cast("binary").alias("body"),
            F.lit(TOMORROW).alias("scheduled_enqueue_time"),
        )

    return make


def ids(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message.message_id) for message in messages]


def named(start: int, end: int) -> list[str]:
    return [f"order-{at:05d}" for at in range(start, end)]


# --- by Spark -----------------------------------------------------------------------------------------------------------


def test_every_row_stands_once_and_its_number_is_in_the_receipts(
    write: Write, orders: Callable[..., DataFrame], new_entity: NewEntity, standing: Any, tmp_path: Path
) -> None:
    queue = new_entity("queue")
    write(orders(700), queue=queue, receiptsPath=tmp_path, maxBatchMessages=50)
    messages = standing(queue)
    assert ids(messages) == named(0, 700)
    assert {message.scheduled_enqueue_time_utc for message in messages} == {TOMORROW}
    assert bytes(next(iter(messages[7].body))) == b"body 7"
    receipts = {row["message_id"]: row for part in tmp_path.glob("*.parquet") for row in pq.read_table(part).to_pylist()}
    assert {key: row["sequence_number"] for key, row in receipts.items()} == {
        str(message.message_id): message.sequence_number for message in messages
    }
    assert {(row["status"], row["status_code"]) for row in receipts.values()} == {("ok", 200)}


@pytest.mark.parametrize("kind", ["partitioned", "topic", "duplicates"])
def test_every_row_stands_once_in_other_kinds_of_entities(
    write: Write, orders: Callable[..., DataFrame], new_entity: NewEntity, emulator: Emulator, kind: str
) -> None:
    entity = new_entity(kind)
    write(orders(200), maxBatchMessages=30, **({"topic": entity} if kind == "topic" else {"queue": entity}))
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(entity) as opened:
        found = [message for page in opened.peek_range() for message in page]
    assert sorted(str(message.message_id) for message in found) == named(0, 200)
    assert {message.state for message in found} == {"scheduled"}


def test_all_that_a_sender_may_set(spark: SparkSession, write: Write, new_entity: NewEntity, standing: Any) -> None:
    queue = new_entity("sessions")
    df = spark.sql("""
        SELECT 'id' message_id, 'session' session_id, 'session' partition_key, 'via' via_partition_key, 'correlation' correlation_id,
               'subject' subject, 'to' to, 'reply' reply_to, 'reply session' reply_to_session_id, 'text/plain' content_type,
               7200000L time_to_live_ms, map('a', 'b') application_properties, cast('body' as binary) body, 42 priority, true urgent
    """)
    write(df, queue=queue, scheduledEnqueueTime=TOMORROW.isoformat(), propertyColumns="priority,urgent")
    [message] = standing(queue, session_id="session")
    assert message.message_id == "id"
    assert (message.session_id, message.partition_key, message.correlation_id) == ("session", "session", "correlation")
    assert (message.subject, message.to, message.reply_to, message.reply_to_session_id) == ("subject", "to", "reply", "reply session")
    assert (message.content_type, message.time_to_live) == ("text/plain", timedelta(hours=2))
    assert message.application_properties == {b"a": b"b", b"priority": 42, b"urgent": True}
    assert message.scheduled_enqueue_time_utc == TOMORROW
    assert (message.raw_amqp_message.annotations or {})[b"x-opt-via-partition-key"] == b"via"


def test_text_is_a_body_and_an_int_is_a_time_to_live(
    spark: SparkSession, write: Write, new_entity: NewEntity, standing: Any, tmp_path: Path
) -> None:
    queue = new_entity("queue")
    rows = spark.createDataFrame([("grüß dich", 90_000, TOMORROW)], "body string, time_to_live_ms int, scheduled_enqueue_time timestamp")
    write(rows, queue=queue, receiptsPath=str(tmp_path), rowKey="body")
    [message] = standing(queue)
    assert (b"".join(message.body), message.time_to_live) == ("grüß dich".encode(), timedelta(seconds=90))
    # The key is the column as it was given.
    assert pq.read_table(tmp_path).column("row_key").to_pylist() == ["grüß dich"]


@pytest.mark.parametrize(
    "columns",
    [
        ["amqp_message"],
        ["header", "delivery_annotations", "message_annotations", "properties", "typed_properties", "footer", "body", "body_type"],
    ],
)
def test_dead_letters_are_scheduled_back_without_loss(
    read: Read, write: Write, sdk: ServiceBusClient, new_entity: NewEntity, emulator: Emulator, columns: list[str]
) -> None:
    queue = new_entity("queue")
    bodies: list[Any] = [
        everything(partition_key="key-1"),
        ServiceBusMessage(b"", message_id="empty"),
        AmqpAnnotatedMessage(value_body={"a": [1, None]}, application_properties=PROPERTIES, annotations={"x-opt-own": 7}),
        AmqpAnnotatedMessage(sequence_body=[["one", True], [None]], footer={"f": 1}),
    ]
    with sdk.get_queue_sender(queue) as sender:
        for body in bodies:
            sender.send_messages(body)
    with sdk.get_queue_receiver(queue) as receiver:
        for message in receiver.receive_messages(len(bodies), max_wait_time=5):
            receiver.dead_letter_message(message, reason="reason-1")
    schema = ", ".join(f"{name} {kind}" for name, kind in spark_types(columns))
    df = read(schema, queue=queue, subQueue="deadLetter")
    write(df.withColumn("scheduled_enqueue_time", F.lit(TOMORROW)), queue=queue)
    with (
        ManagementClient.from_connection_string(emulator.connection_string) as client,
        client.entity(f"{queue}/$DeadLetterQueue") as dead,
        client.entity(queue) as live,
    ):
        before, after = by_place(dead), by_place(live)
    assert len(after) == len(bodies)
    assert list(map(without_what_is_set, after)) == list(map(without_what_is_set, before))


def spark_types(names: list[str]) -> list[tuple[str, str]]:
    fields = spark_schema(pa.schema([(name, COLUMNS[name].type) for name in names])).fields
    return [(field.name, field.dataType.simpleString()) for field in fields]


def by_place(entity: EntityClient) -> list[Message]:
    messages = [message for page in entity.peek_range() for message in page]
    return [message.message for message in sorted(messages, key=lambda message: message.sequence_number)]


def without_what_is_set(message: Message) -> list[Any]:
    """The sections, but for what the broker sets, the time, and the stamp."""
    own = {*BROKER_ANNOTATIONS, "x-opt-scheduled-enqueue-time", job_stamp.KEY}
    header, annotations = message.header or Header(), message.message_annotations or ()
    return [
        (header.durable, header.priority, header.ttl),
        [(key, value) for key, value in annotations if key not in own],
        message.properties,
        message.application_properties,
        message.body,
        message.footer,
    ]


def test_ids_that_rows_do_not_have_are_made_and_differ(spark: SparkSession, write: Write, new_entity: NewEntity, standing: Any) -> None:
    queue = new_entity("queue")
    df = spark.range(0, 40, 1, 2).selectExpr("if(id % 2 = 0, concat('own-', id), null) message_id", "cast('x' as binary) body")
    write(df, queue=queue, scheduledEnqueueTime=TOMORROW.isoformat())
    found = ids(standing(queue))
    assert len(set(found)) == 40
    assert sum(one.startswith("own-") for one in found) == 20


def test_times_are_spread(write: Write, orders: Callable[..., DataFrame], new_entity: NewEntity, standing: Any) -> None:
    queue = new_entity("queue")
    write(orders(100), queue=queue, spreadSeconds=600)
    late = [message.scheduled_enqueue_time_utc - TOMORROW for message in standing(queue)]
    assert timedelta(0) <= min(late) < timedelta(seconds=200)
    assert timedelta(seconds=400) < max(late) <= timedelta(seconds=600)


def test_transactional(write: Write, orders: Callable[..., DataFrame], new_entity: NewEntity, standing: Any) -> None:
    queue = new_entity("queue")
    write(orders(250), queue=queue, transactional="true")
    assert ids(standing(queue)) == named(0, 250)


def test_requests_are_bounded_by_messages_and_by_bytes(
    write: Write, orders: Callable[..., DataFrame], new_entity: NewEntity, emulator: Emulator
) -> None:
    def requests(**options: Any) -> int:
        queue = new_entity("queue")
        key = emulator.faults.add(Fault("delay", operation="schedule-message", entity=queue, count=None, seconds=0.0))
        write(orders(100, 1), queue=queue, **options)
        emulator.faults.remove(key)
        assert emulator.counts(queue)["scheduled"] == 100
        return emulator.faults.hits(key)

    assert requests(maxBatchMessages=30) == 4
    assert requests() == 1
    # Each entry has about 190 bytes.
    assert 4 <= requests(maxBatchBytes=5_000) <= 5


def test_what_the_link_takes_bounds_a_request_too(spark: SparkSession, write: Write, new_entity: NewEntity, standing: Any) -> None:
    queue = new_entity("queue")
    df = spark.range(0, 40, 1, 1).selectExpr("cast(id as string) message_id", "cast(repeat('x', 100000) as binary) body")
    write(df, queue=queue, scheduledEnqueueTime=TOMORROW.isoformat())
    assert len(standing(queue)) == 40


def test_a_failed_job_leaves_nothing_and_names_the_row(
    write: Write, orders: Callable[..., DataFrame], new_entity: NewEntity, standing: Any, tmp_path: Path
) -> None:
    queue = new_entity("queue")
    rows = orders(300).withColumn("body", F.expr("if(message_id = 'order-00250', cast(repeat('x', 2000000) as binary), body)"))
    with pytest.raises(Exception, match=r"1 row failed: row with message_id=order-00250, .*: its message has 2000\d\d\d bytes"):
        write(rows, queue=queue, maxBatchMessages=20, receiptsPath=tmp_path)
    assert standing(queue) == []
    assert list(tmp_path.iterdir()) == []


def test_a_time_that_is_past_is_refused(write: Write, orders: Callable[..., DataFrame], new_entity: NewEntity, emulator: Emulator) -> None:
    queue = new_entity("queue")
    rows = orders(5).withColumn("scheduled_enqueue_time", F.expr("scheduled_enqueue_time - interval 3 days"))
    with pytest.raises(Exception, match=r"scheduled_enqueue_time is .* which is before"):
        write(rows, queue=queue)
    with pytest.raises(Exception, match=r"option scheduledEnqueueTime is .* which is past"):
        write(orders(5).drop("scheduled_enqueue_time"), queue=queue, scheduledEnqueueTime="2020-01-01T00:00:00Z")
    assert sum(emulator.counts(queue).values()) == 0


def test_reported_rows_are_left_out_and_the_others_stand(
    write: Write, orders: Callable[..., DataFrame], new_entity: NewEntity, standing: Any, tmp_path: Path
) -> None:
    queue = new_entity("queue")
    rows = (
        orders(60)
        .withColumn("body", F.expr("if(message_id = 'order-00007', cast(repeat('x', 2000000) as binary), body)"))
        .withColumn("scheduled_enqueue_time", F.expr("if(message_id = 'order-00041', null, scheduled_enqueue_time)"))
        # Above what the queue takes, and not above what its link does: the service says so, of the whole request.
        .withColumn("body", F.expr("if(message_id = 'order-00050', cast(repeat('x', 400000) as binary), body)"))
    )
    write(rows, queue=queue, onError="report", receiptsPath=tmp_path, rowKey="message_id")
    assert ids(standing(queue)) == [one for one in named(0, 60) if one not in ("order-00007", "order-00041", "order-00050")]
    receipts = {row["row_key"]: row for part in tmp_path.glob("*.parquet") for row in pq.read_table(part).to_pylist()}
    assert len(receipts) == 60
    failed = {key: row["status_description"] for key, row in receipts.items() if row["status"] == "failed"}
    assert sorted(failed) == ["order-00007", "order-00041", "order-00050"]
    assert "the entity takes" in failed["order-00007"]
    assert failed["order-00041"] == "scheduled_enqueue_time is null, and schedule-message needs it"
    assert "exceeds the limit of 262144 bytes" in failed["order-00050"]


# --- attempts that are lost, driven as Spark drives them ----------------------------------------------------------------


class Cluster:
    """A job whose attempts a test lets succeed, fail or be killed. Time does not pass by itself."""

    def __init__(self, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, queue: str, **options: str) -> None:
        given = {"connectionString": emulator.connection_string, "queue": queue, "maxBatchMessages": "10", "pipelineDepth": "2", **options}
        self._monkeypatch = monkeypatch
        self._ids = 100
        self.slept = 0.0
        self.meanwhile: Callable[[], None] = lambda: None
        self.writer = ManagementWriter(write_options(given, {}), spark_schema(COLUMNS_OF_ROWS))
        assert isinstance(self.writer.operation, ScheduleMessages)
        self.work = self.writer.operation.work
        self.work.patience = replace(self.work.patience, clock=lambda: self.slept, sleep=self._sleep)

        self._count = lambda: emulator.counts(queue)["scheduled"]

    @property
    def standing(self) -> int:
        return self._count()

    def _sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.meanwhile()

    def attempt(self, rows: Iterator[pa.RecordBatch], partition: int = 0, number: int = 0, speculative: bool = False) -> TaskMessage:
        self._ids += 1
        this = TaskAttempt(partition, number, str(self._ids), speculative)
        self._monkeypatch.setattr(writer_module, "this_attempt", lambda job: this)
        message = self.writer.write(rows)
        assert isinstance(message, TaskMessage)
        return message


@pytest.fixture
def cluster(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    return lambda queue, **options: Cluster(emulator, monkeypatch, queue, **options)


class KilledError(BaseException):
    """Nothing of a worker runs after it: no `except Exception`, no undo."""


def rows(start: int, end: int, *, killed: bool = False, size: int = 20) -> Iterator[pa.RecordBatch]:
    for first in range(start, end, size):
        names = named(first, min(first + size, end))
        yield pa.RecordBatch.from_pydict(
            {"message_id": names, "body": [b"x"] * len(names), "scheduled_enqueue_time": [TOMORROW] * len(names)},
            COLUMNS_OF_ROWS,
        )
    if killed:
        raise KilledError


def kill(job: Cluster, start: int, end: int, partition: int = 0, number: int = 0) -> None:
    """An attempt that is killed when some of its requests were carried out, before Spark heard of it."""
    before = job.standing
    with pytest.raises(KilledError):
        job.attempt(rows(start, end, killed=True), partition, number)
    assert job.standing > before


@pytest.mark.parametrize("kind", ["queue", "partitioned"])
def test_what_a_killed_attempt_left_is_gone_after_the_commit(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator, kind: str
) -> None:
    queue = new_entity(kind)
    job = cluster(queue)
    kill(job, 0, 60)
    messages = [job.attempt(rows(0, 100), 0, 1), job.attempt(rows(100, 150), 1)]
    job.writer.commit(messages)
    assert standing_ids(emulator, queue) == named(0, 150)


def standing_ids(emulator: Emulator, queue: str) -> list[str]:
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        return sorted(str(message.message_id) for page in entity.peek_range() for message in page)


def test_a_stage_that_runs_again_counts_its_attempts_anew(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator
) -> None:
    queue = new_entity("queue")
    job = cluster(queue)
    kill(job, 0, 40)
    job.writer.commit([job.attempt(rows(0, 40))])
    assert standing_ids(emulator, queue) == named(0, 40)
    # That one was killed showed; so it is waited for others to end.
    assert job.slept >= schedule_job.QUIET_S


def test_a_job_in_which_nothing_was_lost_does_not_wait_and_looks_at_nothing_of_its_own(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator
) -> None:
    queue = new_entity("queue")
    job = cluster(queue)
    messages = [job.attempt(rows(0, 500, size=500)), job.attempt(rows(500, 1_000, size=500), 1)]
    key = emulator.faults.add(Fault("delay", operation="peek-message", entity=queue, count=None, seconds=0.0))
    job.writer.commit(messages)
    emulator.faults.remove(key)
    # One round trip: the peeks in flight share what is above the job's numbers.
    assert emulator.faults.hits(key) <= 4
    assert job.slept == 0.0


def test_messages_of_others_stay(cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator) -> None:
    queue = new_entity("queue")
    first, second = cluster(queue), cluster(queue)
    done = first.attempt(rows(0, 30))
    kill(second, 100, 130)
    others = [second.attempt(rows(100, 130), 0, 1)]
    first.writer.commit([done])
    second.writer.commit(others)
    assert standing_ids(emulator, queue) == [*named(0, 30), *named(100, 130)]


def test_with_speculation_the_slower_attempt_is_waited_for(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator
) -> None:
    queue = new_entity("queue")
    job = cluster(queue)
    winner = job.attempt(rows(0, 30), 0, 0, speculative=True)
    late = iter([lambda: kill(job, 0, 60, 0, 1)])
    # The other attempt still gets something through after the first look.
    job.meanwhile = lambda: next(late, lambda: None)()
    job.writer.commit([winner])
    assert standing_ids(emulator, queue) == named(0, 30)
    assert next(late, None) is None


def test_an_abort_takes_back_what_succeeded_and_what_was_killed(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator
) -> None:
    queue = new_entity("queue")
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        entity.schedule_message([ScheduledMessage(b"", TOMORROW, "before")])
        job = cluster(queue)
        entity.schedule_message([ScheduledMessage(b"", TOMORROW, "meanwhile")])
    done = job.attempt(rows(0, 70))
    kill(job, 70, 130, 1)
    late = iter([lambda: kill(job, 100, 160, 2)])
    job.meanwhile = lambda: next(late, lambda: None)()
    job.writer.abort([done, None, None])
    assert standing_ids(emulator, queue) == ["before", "meanwhile"]


def test_a_failing_attempt_takes_back_its_own_before_it_says_so(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator
) -> None:
    queue = new_entity("queue")
    job = cluster(queue)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows(0, 60)
        raise OSError("the input is gone")

    with pytest.raises(OSError, match="the input is gone"):
        job.attempt(broken())
    assert standing_ids(emulator, queue) == []


def test_a_commit_that_raises_is_followed_by_an_abort_that_leaves_nothing(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator, tmp_path: Path
) -> None:
    queue = new_entity("queue")
    job = cluster(queue, receiptsPath=str(tmp_path))
    messages = [job.attempt(rows(0, 50))]
    for part in tmp_path.rglob("*.parquet"):
        part.unlink()
    with pytest.raises(SbMgmtError, match="the driver does not see what an executor wrote"):
        job.writer.commit(messages)
    job.writer.abort(messages)
    assert standing_ids(emulator, queue) == []
    assert list(tmp_path.iterdir()) == []


def test_with_duplicate_detection_the_message_of_the_lost_attempt_is_the_rows_and_the_receipts_say_so(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator, tmp_path: Path
) -> None:
    queue = new_entity("duplicates")
    job = cluster(queue, receiptsPath=str(tmp_path))
    kill(job, 0, 40)
    job.writer.commit([job.attempt(rows(0, 100), 0, 1)])
    assert standing_ids(emulator, queue) == named(0, 100)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        numbers = {str(message.message_id): message.sequence_number for page in entity.peek_range() for message in page}
    [part] = tmp_path.glob("*.parquet")
    assert {row["message_id"]: row["sequence_number"] for row in pq.read_table(part).to_pylist()} == numbers


def test_ids_and_times_are_the_same_for_each_attempt(cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator) -> None:
    queue = new_entity("queue")
    job = cluster(queue, spreadSeconds="3600")

    def nameless() -> Iterator[pa.RecordBatch]:
        for batch in rows(0, 50):
            yield batch.set_column(0, "message_id", pa.nulls(batch.num_rows, pa.string()))

    job.attempt(nameless())
    job.attempt(nameless(), 0, 1)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        found = Counter((message.message_id, message.scheduled_enqueue_time) for page in entity.peek_range() for message in page)
    assert len(found) == 50
    assert set(found.values()) == {2}


def test_a_lost_attempts_message_that_was_enqueued_already_fails_the_job(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator
) -> None:
    queue = new_entity("queue")
    job = cluster(queue)
    kill(job, 0, 60)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        lost = entity.peek_message(0, 1)[0]
        wire = lost.message
        # It is enqueued: it has a new number and is not scheduled any more.
        entity.cancel_scheduled_message([lost.sequence_number])
    with ServiceBusClient.from_connection_string(emulator.connection_string) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(AmqpAnnotatedMessage(data_body=b"x", annotations={job_stamp.KEY: wire.message_annotations[job_stamp.KEY]}))
    message = job.attempt(rows(0, 60), 0, 1)
    told = r"1 messages of the job were enqueued before they could be taken back .* after the end of the job"
    with pytest.raises(SbMgmtError, match=told):
        job.writer.commit([message])
    with pytest.raises(SbMgmtError, match=told):
        job.writer.abort([message])
    # All but that one are taken back.
    assert sum(emulator.counts(queue).values()) == emulator.counts(queue)["active"] == 1


# --- answers that are lost ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactional", ["false", "true"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("action", ["drop-connection", "drop-link"])
def test_a_connection_lost_in_the_midst_doubles_nothing_and_loses_nothing(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator, action: Any, when: Any, transactional: str
) -> None:
    queue = new_entity("queue")
    job = cluster(queue, transactional=transactional)
    key = emulator.faults.add(Fault(action, operation="schedule-message", entity=queue, when=when, skip=2))
    messages = [job.attempt(rows(0, 100))]
    assert emulator.faults.hits(key) == 1
    assert standing_ids(emulator, queue) == named(0, 100)
    job.writer.commit(messages)
    assert standing_ids(emulator, queue) == named(0, 100)


def test_an_answer_that_never_comes_is_looked_for(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator, tmp_path: Path
) -> None:
    queue = new_entity("queue")
    job = cluster(queue, serverTimeoutMs="1", receiptsPath=str(tmp_path))
    emulator.faults.add(Fault("lose-reply", operation="schedule-message", entity=queue, skip=1))
    CONNECTIONS.client(job.writer.options.connection)._connection.settings.__dict__["request_margin_s"] = 0.5
    job.writer.commit([job.attempt(rows(0, 50))])
    assert standing_ids(emulator, queue) == named(0, 50)
    [part] = tmp_path.glob("*.parquet")
    assert len(set(pq.read_table(part).column("sequence_number").to_pylist())) == 50


def test_a_request_that_is_carried_out_after_it_was_given_up_is_taken_back(
    cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks find nothing, the rows are sent again, and then the first request is carried out after all."""
    queue = new_entity("queue")
    job = cluster(queue)
    monkeypatch.setattr(schedule_writer, "LOOKS_S", (0.0,))
    found = schedule_writer.ScheduleTask._found
    looks: list[int] = []

    def blind(task: schedule_writer.ScheduleTask, sent: Any) -> dict[int, int]:
        looks.append(1)
        return {} if len(looks) == 1 else found(task, sent)

    monkeypatch.setattr(schedule_writer.ScheduleTask, "_found", blind)
    emulator.faults.add(Fault("drop-connection", operation="schedule-message", entity=queue, when="after"))
    message = job.attempt(rows(0, 30))
    assert len(standing_ids(emulator, queue)) > 30
    job.writer.commit([message])
    assert standing_ids(emulator, queue) == named(0, 30)


def test_who_may_only_send_can_schedule_but_not_look(emulator: Emulator, new_entity: NewEntity, cluster: Callable[..., Cluster]) -> None:
    queue = new_entity("queue")
    key = emulator.faults.add(
        Fault("fail", operation="peek-message", entity=queue, count=None, status=401, condition="amqp:unauthorized-access")
    )
    job = cluster(queue)
    job.writer.commit([job.attempt(rows(0, 20))])
    emulator.faults.add(Fault("drop-connection", operation="schedule-message", entity=queue, when="after"))
    other = cluster(queue)
    with pytest.raises(RowsFailedError, match="give it Listen"):
        other.attempt(rows(100, 120))
    with pytest.raises(AuthenticationError, match="give its policy Listen"):
        other.writer.abort([None])
    emulator.faults.remove(key)
    other.work.highest = {}
    other.writer.abort([None])
    assert standing_ids(emulator, queue) == named(0, 20)


def test_throttling_is_waited_for(cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator) -> None:
    queue = new_entity("queue")
    key = emulator.faults.add(Fault("throttle", operation="schedule-message", entity=queue, seconds=0.01, count=3))
    job = cluster(queue)
    job.writer.commit([job.attempt(rows(0, 50))])
    assert emulator.faults.hits(key) == 3
    assert standing_ids(emulator, queue) == named(0, 50)


def test_the_stamp_does_not_show_in_what_consumers_look_at(cluster: Callable[..., Cluster], new_entity: NewEntity, standing: Any) -> None:
    queue = new_entity("queue")
    job = cluster(queue)
    job.writer.commit([job.attempt(rows(0, 1))])
    [message] = standing(queue)
    assert message.application_properties is None
    stamp = (message.raw_amqp_message.annotations or {})[job_stamp.KEY.encode()]
    assert stamp.decode() == f"{job.writer.job.id}/0/101/0"


def test_a_message_is_the_jobs_by_its_annotation_alone(cluster: Callable[..., Cluster], new_entity: NewEntity, emulator: Emulator) -> None:
    """Another message may carry the same bytes, in its body for instance."""
    queue = new_entity("queue")
    job = cluster(queue)
    message = job.attempt(rows(0, 5))
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        copy = next(iter(entity.peek_range())).messages[0].received.wire
        entity.schedule_message([ScheduledMessage(copy, TOMORROW, "a copy")])
        assert decode_message(copy).message_annotations is not None
    job.writer.abort([message])
    assert standing_ids(emulator, queue) == ["a copy"]
