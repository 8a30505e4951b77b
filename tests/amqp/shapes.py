"""Messages as Service Bus sends them and as nobody would, in every legal way to write them down, and responses that hold them."""

from __future__ import annotations

import struct
from random import Random
from uuid import UUID

from hypothesis import strategies as st

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.message import AmqpSequence, AmqpValue, Data, Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from tests.amqp import reference
from tests.amqp.strategies import arrays


def encode_message_any_width(message: Message, choice: Random) -> bytes:
    """The message with constructors and section descriptors of any legal form; mostly the usual ones, or no fast path would be seen."""
    return reference.encode_message(message, reference.mostly_shortest(choice, 0.5), reference.mostly_shortest(choice, 0.93))


_int64 = st.integers(-(2**63), 2**63 - 1)
_texts = st.text(max_size=20) | st.sampled_from(["", "a" * 300, "grün", "\x00"])
# Bytes that are no UTF-8, held as the decoder holds them.
_broken_texts = st.binary(min_size=1, max_size=8).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
any_text = _texts | _broken_texts

scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    *(st.integers(kind.minimum, kind.maximum).map(kind) for kind in (UByte, UShort, UInt, ULong, Byte, Short, Int, Long)),
    st.integers(-5, 300).map(Int),
    st.integers(-5, 300).map(Long),
    st.integers(0, 300).map(ULong),
    st.binary(min_size=4, max_size=4).map(Float.from_wire),
    st.floats(),
    st.floats(min_value=0.0001, max_value=1e11),
    st.integers(-1000, 1000).map(float),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    st.integers(0, 2**32 - 1).map(Char),
    _int64.map(Timestamp),
    st.integers(0, 2**41).map(Timestamp),
    st.uuids(),
    st.binary(max_size=20),
    any_text,
    any_text.map(Symbol),
)


values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.lists(st.tuples(inner, inner), max_size=3).map(Map),
        st.builds(Described, st.integers(0, 2**64 - 1).map(ULong) | any_text.map(Symbol), inner),
        arrays(2),
    ),
    max_leaves=8,
)

_ids = st.one_of(st.none(), _texts, st.integers(0, 2**64 - 1).map(ULong), st.uuids(), st.binary(max_size=20), any_text)
_milliseconds = st.sampled_from([-62_135_596_800_000, 253_402_300_800_000, 253_402_300_799_999, 0]) | st.integers(0, 2**42)
_times = st.one_of(st.none(), _milliseconds.map(Timestamp), _milliseconds.map(Long), _int64.map(Timestamp), scalars)

headers = st.builds(
    Header,
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 255).map(UByte),
    ttl=st.none() | st.integers(0, 2**32 - 1).map(UInt) | st.just(UInt(2**32 - 1)),
    first_acquirer=st.none() | st.booleans(),
    delivery_count=st.none() | st.integers(0, 2**32 - 1).map(UInt),
)
properties = st.builds(
    Properties,
    message_id=_ids,
    user_id=st.none() | st.binary(max_size=10),
    to=st.none() | any_text,
    subject=st.none() | any_text,
    reply_to=st.none() | _texts,
    correlation_id=_ids,
    content_type=st.none() | _texts.map(Symbol),
    content_encoding=st.none() | _texts.map(Symbol),
    absolute_expiry_time=_times,
    creation_time=_times,
    group_id=st.none() | any_text,
    group_sequence=st.none() | st.integers(0, 2**32 - 1).map(UInt),
    reply_to_group_id=st.none() | _texts,
)
_annotation = st.one_of(
    st.tuples(st.sampled_from(["x-opt-sequence-number", "x-opt-enqueue-sequence-number"]), _int64.map(Long) | scalars),
    st.tuples(st.sampled_from(["x-opt-enqueued-time", "x-opt-locked-until", "x-opt-scheduled-enqueue-time"]), _times | scalars),
    st.tuples(st.sampled_from(["x-opt-partition-key", "x-opt-via-partition-key", "x-opt-deadletter-source"]), any_text | scalars),
    st.tuples(st.just("x-opt-message-state"), st.integers(-1, 4).map(Int) | st.integers(0, 2).map(Long) | scalars),
    st.tuples(_texts, values),
)
annotations = st.lists(_annotation.map(lambda pair: (Symbol(pair[0]), pair[1])), max_size=8).map(Map)
delivery_annotations = st.lists(
    st.tuples(st.just(Symbol("x-opt-lock-token")), st.uuids() | scalars) | st.tuples(any_text.map(Symbol), scalars), max_size=2
).map(Map)
application_properties = st.lists(
    st.tuples(st.sampled_from(["DeadLetterReason", "DeadLetterErrorDescription"]) | any_text, scalars | _texts)
    | st.tuples(st.just("odd"), values),
    max_size=6,
).map(Map)
bodies = st.one_of(
    st.none(),
    st.binary(max_size=50).map(lambda raw: Data((raw,))),
    st.sampled_from([Data((b"",)), Data((b"x" * 16384,)), Data((b"a", b"", b"b"))]),
    values.map(AmqpValue),
    _texts.map(AmqpValue),
    st.lists(st.lists(values, max_size=3).map(tuple), min_size=1, max_size=3).map(lambda lists: AmqpSequence(tuple(lists))),
)
messages = st.builds(
    Message,
    header=st.none() | headers,
    delivery_annotations=st.none() | delivery_annotations,
    message_annotations=st.none() | annotations,
    properties=st.none() | properties,
    application_properties=st.none() | application_properties,
    body=bodies,
    footer=st.none() | st.lists(st.tuples(any_text.map(Symbol), values), max_size=2).map(Map),
)


def response(wires: list[bytes], tokens: list[UUID | None] | None = None, choice: Random | None = None) -> bytes:
    """The answer to a peek or receive that holds these encoded messages."""
    choice = choice or Random(1)
    choose = reference.mostly_shortest(choice, 0.5)
    entries = []
    for index, wire in enumerate(wires):
        pairs: list[tuple[Value, Value]] = [("message", wire)]
        token = tokens[index] if tokens else None
        if token is not None:
            pairs.insert(choice.randrange(2), ("lock-token", token))
        if token is None and choice.random() < 0.8:
            body = encode_value("message") + b"\xb0" + len(wire).to_bytes(4, "big") + wire
            entries.append(b"\xd1" + struct.pack(">II", len(body) + 4, 2) + body)
        else:
            entries.append(reference.encode(Map(pairs), choose))
    envelope = Message(properties=Properties(correlation_id="1"), application_properties=Map([("statusCode", Int(200))]))
    body = reference.encode_map([encode_value("messages"), reference.encode_list(entries, choose)], choose)
    return encode_message(envelope) + b"\x00\x53\x77" + body
