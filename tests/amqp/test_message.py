"""Messages: section by section, type by type, nothing lost."""

from __future__ import annotations

from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload
from hypothesis import given

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.message import (
    AmqpSequence,
    AmqpValue,
    Data,
    Header,
    Message,
    Properties,
    decode_batch,
    decode_message,
    encode_batch,
    encode_message,
)
from spark_sb_mgmt.amqp.types import Int, Map, Symbol, Timestamp, UByte, UInt, ULong, Value
from spark_sb_mgmt.errors import DecodeError, EncodeError
from tests.amqp import reference, shapes, strategies


@given(shapes.messages)
def test_what_is_written_is_read_again_section_by_section(message: Message) -> None:
    wire = encode_message(message)
    again = decode_message(wire)
    assert encode_message(again) == wire
    for section in ("header", "delivery_annotations", "message_annotations", "properties", "application_properties", "body", "footer"):
        assert (getattr(again, section) is None) == (getattr(message, section) is None), section


@given(shapes.messages, strategies.variant_choices())
def test_any_legal_form_of_a_message_is_read_the_same(message: Message, choose: reference.Choose) -> None:
    assert encode_message(decode_message(reference.encode_message(message, choose))) == encode_message(message)


@given(shapes.messages)
def test_two_encoders_that_share_no_code_write_the_same_message(message: Message) -> None:
    assert encode_message(message) == reference.encode_message(message)


@pytest.mark.parametrize(
    "wire",
    [
        "00a310616d71703a6865616465723a6c69737445",
        "00b300000010616d71703a6865616465723a6c69737445",
        "00800000000000000070d00000000400000000",
    ],
    ids=["symbolic descriptor", "the same with a wide size", "descriptor of full width"],
)
def test_a_section_may_be_announced_in_other_ways(wire: str) -> None:
    assert decode_message(bytes.fromhex(wire)) == Message(header=Header())


@pytest.mark.parametrize("identifier", ["text", ULong(2**64 - 1), UUID(int=5), b"\x00\xff"])
def test_message_ids_keep_their_type(identifier: Value) -> None:
    message = Message(properties=Properties(message_id=identifier, correlation_id=identifier))
    found = decode_message(encode_message(message)).properties
    assert found is not None
    assert encode_value(found.message_id) == encode_value(found.correlation_id) == encode_value(identifier)


def test_plain_values_take_the_type_of_their_field() -> None:
    message = Message(header=Header(priority=4, ttl=5), properties=Properties(content_type="text/plain", creation_time=7))
    found = decode_message(encode_message(message))
    assert found.header is not None
    assert found.properties is not None
    assert [type(value) for value in (found.header.priority, found.header.ttl)] == [UByte, UInt]
    assert [type(value) for value in (found.properties.content_type, found.properties.creation_time)] == [Symbol, Timestamp]


def test_a_plain_int_has_no_place_where_the_field_has_several_types() -> None:
    with pytest.raises(EncodeError, match="properties field message-id cannot be the Python int 5"):
        encode_message(Message(properties=Properties(message_id=5)))


def test_absent_and_empty_sections_are_two_things() -> None:
    empty = Message(header=Header(), message_annotations=Map(), properties=Properties(), application_properties=Map(), footer=Map())
    assert decode_message(encode_message(empty)) == empty
    assert decode_message(b"") == Message()


def test_bodies_of_several_sections_stay_several() -> None:
    for body in (Data((b"a", b"", b"b")), AmqpSequence(((Int(1),), ())), AmqpValue(None)):
        assert decode_message(encode_message(Message(body=body))).body == body


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        ("a10161", r"must start with a descriptor \(0x00\), not 0xa1 \(at byte 0\)"),
        ("00537fa00161", "no message section has descriptor 0x7f"),
        ("00a3017840", "no message section has descriptor Symbol"),
        ("00537045 00537045", r"a second header section in one message \(at byte 4\)"),
        ("005370a00161", "section header is a list, not a binary"),
        ("005372c00100", "section message-annotations is a map, not a list"),
        ("005375a10161", "section data is a binary, not a string"),
        ("005370c00706404040404040", "header has at most 5 fields, not 6"),
        ("005375a000 00537740", "a body is of one kind"),
        ("0053", "needs 1 bytes where 0 are left"),
        ("00", "ends where a value must start"),
    ],
)
def test_what_is_no_message_is_one_clear_error(wire: str, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        decode_message(bytes.fromhex(wire))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message(message_annotations=(Int(1),)), "section message-annotations is a map, not a list"),  # type: ignore[arg-type]
        (Message(body=Data(("text",))), "section data is a binary, not a string"),  # type: ignore[arg-type]
        (Message(body=AmqpSequence(("text",))), "section amqp-sequence is a list, not a string"),  # type: ignore[arg-type]
        (Message(body=b"raw"), "a body is Data, AmqpSequence or AmqpValue, not a Python bytes"),  # type: ignore[arg-type]
        (Message(body=Data(())), "a body of Data has at least one section"),
        (Message(body=AmqpSequence(())), "a body of AmqpSequence has at least one section"),
    ],
)
def test_what_no_peer_could_read_is_not_written(message: Message, problem: str) -> None:
    with pytest.raises(EncodeError, match=problem):
        encode_message(message)


def test_a_content_type_sent_as_string_becomes_the_symbol_it_should_have_been() -> None:
    """The one thing that does not stay as it came: the specification allows no string here, and str is how callers say symbol."""
    found = decode_message(bytes.fromhex("005373c00a07404040404040a10178"))
    assert encode_message(found) == bytes.fromhex("005373c00a07404040404040a30178")


def test_sections_not_asked_for_are_skipped() -> None:
    message = Message(header=Header(ttl=5), properties=Properties(subject="s"), body=Data((b"x",)))
    assert decode_message(encode_message(message), sections={0x73}) == Message(properties=Properties(subject="s"))


def test_a_batch_is_encoded_messages_in_data_sections() -> None:
    wires = tuple(encode_message(Message(body=Data((bytes((index,)),)))) for index in range(3))
    batch = encode_batch(wires, Message(properties=Properties(message_id="first")))
    assert decode_batch(batch) == wires
    assert decode_message(batch).properties == Properties(message_id="first")
    with pytest.raises(EncodeError, match="at least one"):
        encode_batch([])
    with pytest.raises(DecodeError, match="must have data sections"):
        decode_batch(encode_message(Message(body=AmqpValue("x"))))


def test_a_batch_that_azure_servicebus_made_is_read() -> None:
    batch = ServiceBusMessageBatch(max_size_in_bytes=10_000)
    for text in ("one", "two"):
        batch.add_message(ServiceBusMessage(text, subject=text))
    wire = bytes(encode_payload(bytearray(), batch._message))
    messages = [decode_message(encoded) for encoded in decode_batch(wire)]
    assert [message.body for message in messages] == [Data((b"one",)), Data((b"two",))]
    assert [message.properties.subject for message in messages if message.properties] == ["one", "two"]
