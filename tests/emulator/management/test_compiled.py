"""What senders give, by compiled code and without: the same messages, the same answers, the same refusals."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.message import AmqpValue, Data, Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.native import native_sender
from spark_sb_mgmt.amqp.types import Int, Long, Map, Symbol, Timestamp, UInt
from spark_sb_mgmt.emulator.entities import IncomingMessage, read_message
from spark_sb_mgmt.emulator.entities.message import read_by_values
from spark_sb_mgmt.emulator.management import ManagementRequest, read_request
from spark_sb_mgmt.emulator.management.envelope import EncodedMap
from spark_sb_mgmt.operations.envelope import encode_request
from spark_sb_mgmt.operations.schedule import ScheduledMessage, cancel_scheduled_message, schedule_message
from tests.amqp import reference, shapes, strategies
from tests.emulator.entities.broker import START
from tests.emulator.management.service import HOLDER, MAX_BYTES, Service

LATER = START + 3_600_000


def compiled() -> Any:
    """That it was not built is a failure, not a skip."""
    native = native_sender()
    assert native is not None
    return native


def outcome(act: Callable[[], Any]) -> str:
    """What came of it, with the types of all that is in it."""
    try:
        return repr(act())
    except Exception as error:
        return f"{type(error).__name__} {error}"


def without(act: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SBMGMT_NATIVE", "0")
        assert native_sender() is None
        return act()


def damaged(wire: bytes, choice: Random) -> bytes:
    found = bytearray(wire)
    for _ in range(choice.randrange(3)):
        if found:
            found[choice.randrange(len(found))] = choice.choice([0, 0x40, 0x45, 0x53, 0x70, 0x75, 0xFF, choice.randrange(256)])
    return bytes(found[: choice.choice([len(found), len(found), choice.randrange(len(found) + 1)])])


# Messages


# More like those of senders than any message: most of these the compiled reader knows.
_ids = st.none() | st.text(max_size=8) | st.sampled_from(["i" * 128, "i" * 129, "ü" * 128, "𝄞" * 128, "𝄞" * 129])
_annotation = st.one_of(
    st.tuples(st.just("x-opt-scheduled-enqueue-time"), st.sampled_from([Timestamp(LATER), Timestamp(-1), Long(LATER), Int(5), None])),
    st.tuples(st.sampled_from(["x-opt-partition-key", "x-opt-via-partition-key"]), _ids | shapes.any_text),
    st.tuples(st.sampled_from(["x-opt-sequence-number", "x-opt-locked-until", "x-opt-message-state"]), shapes.scalars),
    st.tuples(st.text(max_size=3), shapes.scalars),
)
usual = st.builds(
    Message,
    header=st.none() | st.builds(Header, durable=st.sampled_from([None, True, False]), ttl=st.none() | st.integers(0, 2**32 - 1).map(UInt)),
    delivery_annotations=st.none() | shapes.delivery_annotations,
    message_annotations=st.none() | st.lists(_annotation.map(lambda pair: (Symbol(pair[0]), pair[1])), max_size=4).map(Map),
    properties=st.none() | st.builds(Properties, message_id=_ids, group_id=_ids, subject=st.none() | shapes.any_text),
    application_properties=st.none() | shapes.application_properties,
    body=shapes.bodies,
)
messages = usual | shapes.messages


@settings(max_examples=600)
@given(messages, st.integers(0, 2**32), st.booleans())
def test_a_message_says_the_same_either_way(message: Message, seed: int, damage: bool) -> None:
    choice = Random(seed)
    wire = encode_message(message) if seed % 2 else shapes.encode_message_any_width(message, choice)
    if damage:
        wire = damaged(wire, choice)
    assert outcome(lambda: read_message(wire)) == outcome(lambda: read_by_values(wire))


@pytest.mark.parametrize(
    "annotations",
    [
        *("02 a301 6b 53 00", "02 a301 6b 52 00", "02 a301 6b 54 80", "02 b3 00000001 6b 40", "02 a301 6b 56 01", "02 a301 6b 71 0000007f"),
        *("02 a301 6b 80 00000000000000ff", "02 a301 6b 81 ffffffffffffff80", "02 a301 6b 70 000000ff", "02 a301 6b a1 01 ff"),
        *("01 a301 6b", "03 a301 6b 40 40", "02 a301 6b 40 40", "01 a301 6b 40", "02 a301 6b", "02 a301 6b 82 7ff0000000000001"),
        # A key that comes twice.
        "04 a313 782d6f70742d706172746974696f6e2d6b6579 a10161 a113 782d6f70742d706172746974696f6e2d6b6579 a10162",
    ],
)
def test_annotations_that_no_encoder_of_ours_would_write_are_kept_the_same_either_way(annotations: str) -> None:
    pairs = bytes.fromhex(annotations)
    wire = b"\x00\x53\x72\xc1" + bytes((len(pairs),)) + pairs
    assert outcome(lambda: read_message(wire)) == outcome(lambda: read_by_values(wire))


@pytest.mark.parametrize(
    "entry",
    [
        *("c10c 02 a107 6d657373616765 a000", "c10d 02 a107 6d657373616765 a000 40", "c10d 03 a107 6d657373616765 a000 40"),
        *("c10b 01 a107 6d657373616765 40", "c117 04 a107 6d657373616765 a000 a107 6d657373616765 a000"),
        "c116 04 a107 6d657373616765 a000 a107 6d657373616765 40",
        *("45", "c10101", "c10100", "40"),
    ],
)
def test_an_entry_that_no_encoder_of_ours_would_write_is_answered_the_same_either_way(entry: str) -> None:
    entries = bytes.fromhex(entry)
    body = encode_value("messages") + b"\xc0" + bytes((len(entries) + 1, 1)) + entries
    envelope = encode_message(Message(application_properties=Map([("operation", "com.microsoft:schedule-message")])))
    raw = envelope + b"\x00\x53\x77\xc1" + bytes((len(body) + 1, 2)) + body
    assert outcome(lambda: answer_to(raw, "q")) == without(lambda: outcome(lambda: answer_to(raw, "q")))


def test_messages_of_senders_do_not_need_the_scalar_decoder() -> None:
    """The compiled reader would pass the test above by always stepping aside."""
    sent = ServiceBusMessage(
        b"body", message_id="1", session_id="s", subject="x", partition_key="s", application_properties={"a": 1, "b": "x", "c": 1.5}
    )
    of_sdk = bytearray()
    encode_payload(of_sdk, PyamqpTransport.to_outgoing_amqp_message(sent.raw_amqp_message))
    for wire in (
        bytes(of_sdk),
        encode_message(Message()),
        encode_message(
            Message(
                header=Header(durable=True, ttl=UInt(1000)),
                delivery_annotations=Map([(Symbol("x-opt-lock-token"), UUID(int=1))]),
                message_annotations=Map([(Symbol("x-opt-scheduled-enqueue-time"), Timestamp(1)), (Symbol("kept"), "k" * 300)]),
                properties=Properties(message_id="ü", group_id="s"),
                application_properties=Map([("list", ("a", Map([("b", Int(1))])))]),
                body=AmqpValue(Map([("a", (Int(1), None))])),
                footer=Map(),
            )
        ),
    ):
        assert compiled().message(IncomingMessage, wire) == read_by_values(wire)


def test_a_message_without_header_shares_the_one_that_says_nothing() -> None:
    wires = [encode_message(Message(header=header)) for header in (None, Header(), Header(ttl=UInt(1)))]
    assert len({id(read_message(wire).header) for wire in wires}) == 1


# Requests


@settings(max_examples=300)
@given(strategies.values(3) | strategies.maps(3) | strategies.arrays(2), st.integers(0, 2**32), st.booleans())
def test_a_body_that_is_left_encoded_decodes(value: Any, seed: int, damage: bool) -> None:
    choice = Random(seed)
    envelope = encode_message(Message(properties=Properties(message_id="1"), application_properties=Map([("operation", "x")])))
    raw = envelope + b"\x00\x53\x77" + reference.encode(value, reference.mostly_shortest(choice, 0.5))
    if damage:
        raw = damaged(raw, choice)

    def read() -> ManagementRequest:
        request = read_request(raw)
        return ManagementRequest(**{**vars(request), "body": decoded(request)})

    assert outcome(read) == without(lambda: outcome(read))


def decoded(request: ManagementRequest) -> Any:
    if not isinstance(request.body, EncodedMap):
        return request.body
    value, end = decode_value(request.body.request, request.body.offset)
    assert end == len(request.body.request)
    assert request.body.decode() == value
    return value


_entry_ids = st.one_of(_ids, _ids.map(lambda text: text and Symbol(text)), st.uuids(), st.just(Int(1)), shapes.any_text)
_entry_keys = st.sampled_from(["message-id", "message-id", "session-id", "partition-key", "via-partition-key", "other"])


@st.composite
def entries(draw: st.DrawFn) -> Any:
    """Most as they should be, some a little wrong, few not at all what they should be."""
    wire = encode_message(draw(usual))
    if draw(st.integers(0, 9)) == 0:
        wire = damaged(wire, Random(draw(st.integers(0, 2**32))))
    ids = draw(st.lists(st.tuples(_entry_keys, _entry_ids), max_size=2))
    message = draw(st.sampled_from([*[("message", wire)] * 12, ("message", "text"), ("message", None), ("else", wire)]))
    pairs = [("message-id", "1"), message] if draw(st.booleans()) else [*ids, message]
    return draw(st.sampled_from([*[Map(pairs)] * 12, Map([*pairs, message]), "text"]))


@settings(max_examples=250, deadline=None)
@given(
    st.lists(entries(), max_size=4),
    st.integers(0, 2**32),
    st.sampled_from(["q", "sessions", "partitioned", "small", "t", "q/$DeadLetterQueue"]),
)
def test_a_schedule_request_is_answered_the_same_either_way(listed: list[Any], seed: int, at: str) -> None:
    choice = Random(seed)
    properties = Map([("operation", "com.microsoft:schedule-message")])
    envelope = encode_message(Message(properties=Properties(message_id="1"), application_properties=properties))
    key = choice.choice(["messages"] * 12 + ["message"])
    more = choice.choice([[]] * 12 + [[("more", Int(1))]])
    body = Map([(key, tuple(listed)), *more])
    raw = envelope + b"\x00\x53\x77" + reference.encode(body, reference.mostly_shortest(choice, choice.choice([0.5, 0.99])))
    if choice.randrange(8) == 0:
        raw = damaged(raw, choice)

    assert outcome(lambda: answer_to(raw, at)) == without(lambda: outcome(lambda: answer_to(raw, at)))


def answer_to(raw: bytes, at: str) -> tuple[bytes, bytes]:
    """What a new service answers, and what it has then."""
    service = Service()
    entity = service.broker.namespace.resolve(at)
    asked = service.management.answer(entity, read_request(raw), holder=HOLDER, max_bytes=MAX_BYTES)
    return asked, b"".join(message.encoded() for message in entity.messages.values())


def test_requests_of_our_client_are_not_decoded() -> None:
    """Nor would these tests see anything if the compiled code stepped aside each time."""
    given_messages = [
        ScheduledMessage(b"x", LATER, "1", session_id="s", partition_key="s", via_partition_key="v", time_to_live_ms=5),
        ScheduledMessage("text", LATER, "2"),
        ScheduledMessage(AmqpValue(Map([("a", ())])), LATER, "3", application_properties={"a": 1, "b": 1.5, "c": True}),
    ]
    raw = encode_request(schedule_message(given_messages), "id", "reply-to", 1000)
    at = compiled().body_map(raw)
    assert [type(each) for each in compiled().scheduled(IncomingMessage, raw, at)] == [IncomingMessage] * 3
    raw = encode_request(cancel_scheduled_message([1, 2**40]), "id", "reply-to", 1000)
    assert isinstance(read_request(raw).body, EncodedMap)


def test_a_message_for_the_scalar_decoder_does_not_take_the_others_along() -> None:
    wires = [encode_message(Message(body=Data((b"x",)))), encode_message(Message(body=Data((b"x", b"y"))))]
    body = Map([("messages", tuple(Map([("message", wire)]) for wire in wires))])
    raw = encode_message(Message(body=AmqpValue(body)))
    assert [type(each) for each in compiled().scheduled(IncomingMessage, raw, compiled().body_map(raw))] == [IncomingMessage, bytes]


def test_values_nested_too_deep_for_compiled_code_are_decoded() -> None:
    value: Any = Map()
    for _ in range(40):
        value = Map([("a", value)])
    wire = encode_message(Message(body=AmqpValue(value)))
    assert compiled().message(IncomingMessage, wire) is None
    assert read_message(wire).bare == wire
    assert compiled().body_map(wire) == -1
    assert encode_value(read_request(wire).body) == encode_value(value)


@pytest.mark.parametrize("kind", [int, UUID, "tuple"])
def test_messages_are_made_as_nothing_but_tuples(kind: Any) -> None:
    raw = encode_request(schedule_message([ScheduledMessage(b"x", LATER, "1")]), "id", "reply-to", 1000)
    for make in (lambda: compiled().message(kind, b""), lambda: compiled().scheduled(kind, raw, compiled().body_map(raw))):
        with pytest.raises(TypeError, match="NamedTuple"):
            make()


def test_it_can_be_turned_off() -> None:
    assert os.environ.get("SBMGMT_NATIVE") != "0"
    assert native_sender() is not None
    assert without(native_sender) is None
