"""What the official SDK sent is what is read: every column and every kind of body, in a session whose time zone is not UTC."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.amqp import AmqpAnnotatedMessage
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from spark_sb_mgmt.amqp.message import decode_message
from spark_sb_mgmt.spark.schema import message_schema
from tests.spark.test_datasource import ON_REQUEST

Read = Callable[..., DataFrame]
NewEntity = Callable[[str], str]

MOMENT = datetime(2026, 7, 1, 12, 30, 15, 123000, tzinfo=timezone.utc)
PROPERTIES: dict[str | bytes, Any] = {
    "text": "grün",
    "whole": 42,
    "large": 2**31 - 1,
    "float": 0.5,
    "yes": True,
    "uuid": UUID("01234567-89ab-cdef-0123-456789abcdef"),
    "time": MOMENT,
    "nothing": None,
}
PROPERTIES_AS_TEXT = {
    "text": "grün",
    "whole": "42",
    "large": "2147483647",
    "float": "0.5",
    "yes": "true",
    "uuid": "01234567-89ab-cdef-0123-456789abcdef",
    "time": "2026-07-01T12:30:15.123Z",
    "nothing": None,
}


def everything(**more: Any) -> ServiceBusMessage:
    """A message with all that a sender may set."""
    return ServiceBusMessage(
        b"\x00\xff body",
        application_properties=PROPERTIES,
        message_id="id-1",
        time_to_live=timedelta(hours=3),
        content_type="application/octet-stream",
        correlation_id="correlation-1",
        subject="subject-1",
        to="to-1",
        reply_to="reply-1",
        **more,
    )


def row(queue: str, message: ServiceBusReceivedMessage, body: bytes | None, body_type: str | None, **known: Any) -> dict[str, Any]:
    """The row of a message by what the SDK says of it; the SDK does not show bodies as bytes, nor properties as text."""
    raw = message.raw_amqp_message
    annotations = raw.annotations or {}
    via = annotations.get(b"x-opt-via-partition-key")
    properties = message.application_properties
    return {
        "entity": queue,
        "sequence_number": message.sequence_number,
        "enqueued_sequence_number": message.enqueued_sequence_number,
        "message_id": message.message_id,
        "session_id": message.session_id,
        "partition_key": message.partition_key,
        "via_partition_key": via.decode() if isinstance(via, bytes) else via,
        "correlation_id": message.correlation_id,
        "subject": message.subject,
        "to": message.to,
        "reply_to": message.reply_to,
        "reply_to_session_id": message.reply_to_session_id,
        "content_type": message.content_type,
        "time_to_live_ms": None if message.time_to_live is None else message.time_to_live // timedelta(milliseconds=1),
        "enqueued_time": message.enqueued_time_utc,
        "scheduled_enqueue_time": message.scheduled_enqueue_time_utc,
        "expires_at": message.expires_at_utc,
        "locked_until": None,
        "delivery_count": message.delivery_count,
        "state": message.state.name.lower(),
        "dead_letter_source": message.dead_letter_source,
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_error_description": message.dead_letter_error_description,
        "lock_token": None,
        "application_properties": None if properties is None else {key.decode(): text(value) for key, value in properties.items()},
        "body": body,
        "body_type": body_type,
        **known,
    }


def text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def expected(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(one.values()) for one in rows], message_schema())


def test_every_column_and_kind_of_body(spark: SparkSession, read: Read, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    queue = new_entity("queue")
    tomorrow = (datetime.now(timezone.utc) + timedelta(days=1)).replace(microsecond=456000)
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages(everything(partition_key="key-1"))
        sender.send_messages(ServiceBusMessage("plain text"))
        sender.send_messages(ServiceBusMessage(b""))
        sender.send_messages(AmqpAnnotatedMessage(data_body=[b"in two ", b"parts"], application_properties={}))
        sender.send_messages(AmqpAnnotatedMessage(value_body="a value"))
        sender.send_messages(AmqpAnnotatedMessage(value_body=-(2**31)))
        sender.send_messages(AmqpAnnotatedMessage(sequence_body=[["one", True], [None]]))
        sender.schedule_messages(ServiceBusMessage("later", message_id="id-2"), tomorrow)
    with sdk.get_queue_receiver(queue) as receiver:
        messages = receiver.peek_messages(100)
    bodies = [
        (b"\x00\xff body", "data"),
        (b"plain text", "data"),
        (b"", "data"),
        (b"in two parts", "data"),
        (b"\xa1\x07a value", "value"),
        (b"\x71" + struct.pack(">i", -(2**31)), "value"),
        # Two lists, as AMQP 1.0 part 1, section 1.6.22 encodes them: of the string "one" and true, of null.
        (b"\xc0\x07\x02\xa1\x03one\x41" + b"\xc0\x02\x01\x40", "sequence"),
        (b"later", "data"),
    ]
    known: list[dict[str, Any]] = [{} for _ in messages]
    known[0] = {"application_properties": PROPERTIES_AS_TEXT, "partition_key": "key-1", "time_to_live_ms": 3 * 3_600_000}
    known[7] = {"state": "scheduled", "scheduled_enqueue_time": tomorrow}
    rows = [row(queue, message, *body, **more) for message, body, more in zip(messages, bodies, known, strict=True)]
    assert_df_equality(read(queue=queue).orderBy("sequence_number"), expected(spark, rows))


def test_sessions_and_dead_letters(spark: SparkSession, read: Read, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    queue = new_entity("sessions")
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages([everything(session_id="session-1", reply_to_session_id="session-2") for _ in range(3)])
    with sdk.get_queue_receiver(queue, session_id="session-1") as receiver:
        dead, deferred, _ = receiver.receive_messages(3, max_wait_time=5)
        receiver.dead_letter_message(dead, reason="reason-1", error_description="description-1")
        receiver.defer_message(deferred)
        standing = receiver.peek_messages(10, sequence_number=1)
    own = {"session_id": "session-1", "reply_to_session_id": "session-2", "application_properties": PROPERTIES_AS_TEXT}
    rows = [row(queue, message, b"\x00\xff body", "data", **own) for message in standing]
    assert sorted(one["state"] for one in rows) == ["active", "deferred"]
    # One of them is still locked by the receiver that was just closed; peek shows no lock.
    assert_df_equality(read(queue=queue).orderBy("sequence_number"), expected(spark, rows))
    with sdk.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        [message] = receiver.peek_messages(10)
    reasons = {"DeadLetterReason": "reason-1", "DeadLetterErrorDescription": "description-1"}
    own["application_properties"] = {**PROPERTIES_AS_TEXT, **reasons}
    entity = f"{queue}/$DeadLetterQueue"
    more = {"dead_letter_reason": "reason-1", "dead_letter_error_description": "description-1"}
    dead_rows = [row(entity, message, b"\x00\xff body", "data", **own, **more)]
    assert_df_equality(read(queue=queue, subQueue="deadLetter"), expected(spark, dead_rows))


def test_columns_on_request(read: Read, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    queue = new_entity("queue")
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages(everything(partition_key="key-1"))
    [one] = read(f"sequence_number long, {ON_REQUEST}", queue=queue).collect()
    assert {key: (item.type, item.value) for key, item in one.typed_properties.items()} == {
        "text": ("string", "grün"),
        "whole": ("int", "42"),
        "large": ("int", "2147483647"),
        "float": ("double", "0.5"),
        "yes": ("boolean", "true"),
        "uuid": ("uuid", "01234567-89ab-cdef-0123-456789abcdef"),
        "time": ("timestamp", "2026-07-01T12:30:15.123Z"),
        "nothing": ("null", None),
    }
    assert one.properties["message-id"].asDict() == {"type": "string", "value": "id-1"}
    assert one.message_annotations["x-opt-partition-key"].value == "key-1"
    assert one.message_annotations["x-opt-sequence-number"].asDict() == {"type": "long", "value": str(one.sequence_number)}
    assert one.header["ttl"].asDict() == {"type": "uint", "value": "10800000"}
    assert one.footer is None
    wire = decode_message(bytes(one.amqp_message))
    assert wire.properties is not None
    assert (wire.properties.message_id, wire.properties.subject) == ("id-1", "subject-1")
