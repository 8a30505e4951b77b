"""Rows to messages: every column goes on the wire with its one type, and a message that was read goes back as it was."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import proton
import pyarrow as pa
import pytest
from azure.servicebus._pyamqp._decode import decode_payload
from hypothesis import given, settings

from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.amqp.arrow_encode import BROKER_ANNOTATIONS, SENDER_COLUMNS, EncodedMessages, encode_messages
from spark_sb_mgmt.amqp.columns import COLUMNS
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.message import AmqpSequence, AmqpValue, Data, Header, Message, Properties, decode_message, encode_message
from spark_sb_mgmt.amqp.types import Byte, Float, Int, Long, Map, Short, Symbol, Timestamp, UInt
from spark_sb_mgmt.errors import EncodeError
from tests.amqp import shapes

NOW = 1_700_000_000_000
WHEN = datetime(2030, 1, 1, 12, 0, 0, 123_999, tzinfo=timezone.utc)
WHEN_MS = 1_893_499_200_123


def rows(columns: dict[str, list[Any]], types: dict[str, pa.DataType] | None = None) -> pa.RecordBatch:
    kinds = {name: (types or {}).get(name) or COLUMNS[name].type for name in columns}
    arrays = [pa.array(values, kinds[name]) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(kinds.items())))


def encode(columns: dict[str, list[Any]], types: dict[str, pa.DataType] | None = None, **how: Any) -> EncodedMessages:
    return encode_messages(rows(columns, types), now_ms=NOW, **how)


def one(columns: dict[str, Any], types: dict[str, pa.DataType] | None = None, **how: Any) -> Message:
    return decode_message(encode({name: [value] for name, value in columns.items()}, types, **how).messages[0])


def test_plain_columns_become_the_fields_of_a_message() -> None:
    found = one(
        {
            "message_id": "id",
            "session_id": "session",
            "partition_key": "session",
            "via_partition_key": "via",
            "correlation_id": "c",
            "subject": "label",
            "to": "to",
            "reply_to": "reply",
            "reply_to_session_id": "other",
            "content_type": "text/plain",
            "scheduled_enqueue_time": WHEN,
            "application_properties": [("a", "1"), ("b", None)],
            "body": b"body",
        }
    )
    assert encode_message(found) == encode_message(
        Message(
            message_annotations=Map(
                [
                    (Symbol("x-opt-partition-key"), "session"),
                    (Symbol("x-opt-via-partition-key"), "via"),
                    (Symbol("x-opt-scheduled-enqueue-time"), Timestamp(WHEN_MS)),
                ]
            ),
            properties=Properties(
                message_id="id",
                to="to",
                subject="label",
                reply_to="reply",
                correlation_id="c",
                content_type="text/plain",
                group_id="session",
                reply_to_group_id="other",
            ),
            application_properties=Map([("a", "1"), ("b", None)]),
            body=Data((b"body",)),
        )
    )


def test_nulls_leave_fields_out_row_by_row() -> None:
    encoded = encode({"message_id": ["a", None], "subject": [None, "s"], "body": [None, b"x"]}, scheduled_enqueue_time_ms=5)
    first, second = (decode_message(wire) for wire in encoded.messages)
    assert first.properties == Properties(message_id="a")
    assert first.body is None
    assert second.properties == Properties(subject="s")
    assert encoded.message_id == ["a", None]
    assert all(message.message_annotations == Map([(Symbol("x-opt-scheduled-enqueue-time"), Timestamp(5))]) for message in (first, second))


def test_the_entries_of_a_request_repeat_ids_and_keys() -> None:
    for extra in ({}, {"time_to_live_ms": [1000]}):
        encoded = encode({"message_id": ["id"], "session_id": ["s"], "partition_key": ["p"], "via_partition_key": ["v"], **extra})
        assert (encoded.message_id, encoded.session_id, encoded.partition_key, encoded.via_partition_key) == (["id"], ["s"], ["p"], ["v"])
        assert len(encoded) == 1


def test_outsiders_read_what_was_encoded() -> None:
    wire = encode(
        {
            "message_id": ["id"],
            "subject": ["s"],
            "body": [b"x" * 300],
            "application_properties": [[("k", "v")]],
            "scheduled_enqueue_time": [WHEN],
        }
    ).messages[0]
    theirs = proton.Message()
    theirs.decode(wire)
    assert (theirs.id, theirs.subject, bytes(theirs.body), theirs.properties) == ("id", "s", b"x" * 300, {"k": "v"})
    assert theirs.annotations == {"x-opt-scheduled-enqueue-time": WHEN_MS}
    azure = decode_payload(memoryview(wire))
    assert (azure.properties.message_id, azure.application_properties, azure.data) == (b"id", {b"k": b"v"}, [b"x" * 300])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.string(), "x", "x"),
        (pa.bool_(), True, True),
        (pa.int8(), -1, Byte(-1)),
        (pa.int16(), 5, Short(5)),
        (pa.int32(), 5, Int(5)),
        (pa.int64(), 5, Long(5)),
        (pa.float32(), 1.5, Float(1.5)),
        (pa.float64(), 1.5, 1.5),
        (pa.binary(), b"b", b"b"),
        (pa.timestamp("us", "UTC"), WHEN, Timestamp(WHEN_MS)),
        (pa.timestamp("us", "UTC"), datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc), Timestamp(-1)),
        (pa.date32(), date(2030, 1, 2), "2030-01-02"),
        (pa.decimal128(10, 2), Decimal("1.50"), "1.50"),
    ],
)
@pytest.mark.parametrize("typed", [False, True])
def test_property_columns_have_the_type_of_their_column(kind: pa.DataType, value: Any, expected: Any, typed: bool) -> None:
    beside: dict[str, Any] = {"typed_properties": [("t", {"type": "uint", "value": "7"})]} if typed else {}
    found = one({**beside, "p": value}, {"p": kind}, property_columns=["p"])
    before = [("t", UInt(7))] if typed else []
    assert encode_value(found.application_properties) == encode_value(Map([*before, ("p", expected)]))


def test_a_null_in_a_property_column_is_no_property() -> None:
    encoded = encode({"p": [None, 5]}, {"p": pa.int64()}, property_columns=["p"])
    assert [decode_message(wire).application_properties for wire in encoded.messages] == [None, Map([("p", Long(5))])]


@pytest.mark.parametrize("name", ["application_properties", "typed_properties"])
def test_a_property_column_wins_over_the_same_name_in_a_map(name: str) -> None:
    cell = "x" if name == "application_properties" else {"type": "string", "value": "x"}
    maps = [[("p", cell), ("other", cell)], [("p", cell)], [("p", cell)], None]
    encoded = encode({name: maps, "p": [5, 6, None, 7]}, {"p": pa.int64()}, property_columns=["p"])
    found = [encode_value(decode_message(wire).application_properties) for wire in encoded.messages]
    assert found == [
        encode_value(Map(pairs)) for pairs in ([("other", "x"), ("p", Long(5))], [("p", Long(6))], [("p", "x")], [("p", Long(7))])
    ]


def test_typed_properties_win_over_the_same_plain_ones() -> None:
    """A read DataFrame has both forms of the same properties."""
    found = one({"typed_properties": [("n", {"type": "int", "value": "5"})], "application_properties": [("n", "5"), ("new", "x")]})
    assert encode_value(found.application_properties) == encode_value(Map([("n", Int(5)), ("new", "x")]))


def test_plain_columns_win_over_the_typed_section() -> None:
    found = one(
        {
            "properties": [("message-id", {"type": "ulong", "value": "5"}), ("subject", {"type": "string", "value": "old"})],
            "subject": "new",
            "message_annotations": [("x-opt-partition-key", {"type": "string", "value": "old"}), ("mine", {"type": "int", "value": "1"})],
            "partition_key": "new",
        }
    )
    assert found.properties is not None
    assert (found.properties.message_id, found.properties.subject) == (5, "new")
    assert found.message_annotations == Map([(Symbol("mine"), Int(1)), (Symbol("x-opt-partition-key"), "new")])


@pytest.mark.parametrize(
    ("ttl", "header", "properties"),
    [
        (5000, Header(ttl=UInt(5000)), None),
        (2**32 + 1, Header(ttl=UInt(2**32 - 1)), Properties(creation_time=Timestamp(NOW), absolute_expiry_time=Timestamp(NOW + 2**32 + 1))),
    ],
)
def test_time_to_live(ttl: int, header: Header, properties: Properties | None) -> None:
    found = one({"time_to_live_ms": ttl})
    assert (found.header, found.properties) == (header, properties)


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"x", None, Data((b"x",))),
        (b"x", "data", Data((b"x",))),
        (encode_value("text"), "value", AmqpValue("text")),
        (encode_value((Int(1),)) + encode_value(()), "sequence", AmqpSequence(((Int(1),), ()))),
    ],
)
def test_bodies_of_every_kind(body: bytes, kind: str | None, expected: object) -> None:
    assert one({"body": body, "body_type": kind}).body == expected


@settings(max_examples=200)
@given(shapes.messages)
def test_a_message_that_was_read_goes_back_as_it_was(message: Message) -> None:
    """Through amqp_message, and through the typed sections with body and body_type: equal but for what the broker sets."""
    wire = encode_message(message)
    names = ["amqp_message", "typed_properties", "properties", "message_annotations", "delivery_annotations", "header", "footer"]
    batch = decode_responses([shapes.response([wire])], [*names, "body", "body_type"])
    whole = encode_messages(batch.select(["amqp_message"]), now_ms=NOW).messages[0]
    typed = encode_messages(batch.select([*names[1:], "body", "body_type"]), now_ms=NOW).messages[0]
    expected = _as_sent(message)
    assert whole == encode_message(expected)
    if isinstance(message.body, Data):
        # The one thing that the body column cannot say: where one of several data sections ended.
        expected = Message(**{**vars(expected), "body": Data((b"".join(message.body.sections),))})
    # A typed map holds each key once; a map on the wire may not have one twice either.
    if not _has_twice(message):
        assert typed == encode_message(expected)


def _as_sent(message: Message) -> Message:
    header = message.header and Header(message.header.durable, message.header.priority, message.header.ttl)
    return Message(
        header=header,
        delivery_annotations=_without(message.delivery_annotations, {"x-opt-lock-token"}),
        message_annotations=_without(message.message_annotations, BROKER_ANNOTATIONS),
        properties=message.properties,
        application_properties=message.application_properties,
        body=message.body,
        footer=message.footer,
    )


def _without(section: Map | None, keys: set[str] | frozenset[str]) -> Map | None:
    if section is None or not len(section):
        return section
    kept = [(key, value) for key, value in section if key not in keys]
    return Map(kept) if kept else None


def _has_twice(message: Message) -> bool:
    sections = (message.delivery_annotations, message.message_annotations, message.application_properties, message.footer)
    return any(section is not None and len({encode_value(key) for key, _ in section}) < len(section) for section in sections)


def test_a_schedule_replaces_the_one_the_message_had() -> None:
    message = Message(message_annotations=Map([(Symbol("x-opt-scheduled-enqueue-time"), Timestamp(1)), (Symbol("mine"), "x")]))
    found = one({"amqp_message": encode_message(message), "scheduled_enqueue_time": WHEN})
    assert found.message_annotations == Map([(Symbol("mine"), "x"), (Symbol("x-opt-scheduled-enqueue-time"), Timestamp(WHEN_MS))])


@pytest.mark.parametrize(
    ("columns", "types", "how", "problem"),
    [
        (
            {"colour": ["red"]},
            {"colour": pa.string()},
            {},
            "column 'colour' is not one that a sender may set: drop it",
        ),
        ({"sequence_number": [5]}, {}, {}, "column 'sequence_number' is not one that a sender may set"),
        ({"subject": [5]}, {"subject": pa.int64()}, {}, "column 'subject' must be string, not int64"),
        ({"body": ["x"]}, {"body": pa.string()}, {}, "column 'body' must be binary, not string"),
        ({"subject": ["x"]}, {}, {"property_columns": ["p"]}, "property column 'p' is not a column of the rows; there are subject"),
        ({"p": [[1]]}, {"p": pa.list_(pa.int64())}, {"property_columns": ["p"]}, "property column 'p' is list<.*>, which has no AMQP type"),
        ({"amqp_message": [b""], "body": [b""]}, {}, {}, "amqp_message is the whole message: drop it, or drop body"),
        ({"amqp_message": [b"", None]}, {}, {}, "row 1: amqp_message is null"),
        ({"amqp_message": [b"", b"\x01"]}, {}, {}, "row 1: amqp_message is no encoded AMQP message: .*at byte 0"),
        ({"scheduled_enqueue_time": [WHEN, None]}, {}, {}, "row 1: scheduled_enqueue_time is null: give the row a time, or set option"),
        ({"time_to_live_ms": [1, -1]}, {}, {}, "row 1: time_to_live_ms is -1"),
        (
            {"body": [b"x", b"\xa1\x05"], "body_type": ["data", "value"]},
            {},
            {},
            "row 1: body is no encoded AMQP value, as its",
        ),
        ({"body": [b"\x40\x40"], "body_type": ["value"]}, {}, {}, "row 0: body is no encoded AMQP value.*1 bytes after"),
        ({"body": [b"\x40"], "body_type": ["sequence"]}, {}, {}, "row 0: body holds a value that is no list"),
        ({"body": [b"\x40"], "body_type": ["text"]}, {}, {}, "row 0: body_type is 'text': it is data, value or sequence"),
        (
            {"typed_properties": [[], [("n", {"type": "int", "value": "five"})]]},
            {},
            {},
            "row 1: column 'typed_properties': 'n': ",
        ),
        ({"typed_properties": [[("n", {"type": None, "value": "5"})]]}, {}, {}, "row 0: column 'typed_properties': 'n' has no type"),
        (
            {"properties": [[("colour", {"type": "string", "value": "x"})]]},
            {},
            {},
            "row 0: column 'properties': properties has no field",
        ),
    ],
)
def test_what_cannot_be_encoded_is_one_error_that_names_it(
    columns: dict[str, list[Any]], types: dict[str, pa.DataType], how: dict[str, Any], problem: str
) -> None:
    with pytest.raises(EncodeError, match=problem):
        encode(columns, types, **how)


def test_no_rows_and_no_columns_are_no_messages() -> None:
    assert encode({"body": []}).messages == []


def test_every_sender_column_is_a_column_of_the_contract() -> None:
    assert set(COLUMNS) >= SENDER_COLUMNS


def test_ids_of_other_types_are_repeated_as_text() -> None:
    encoded = encode({"amqp_message": [encode_message(Message(properties=Properties(message_id=UUID(int=5))))]})
    assert encoded.message_id == [str(UUID(int=5))]
