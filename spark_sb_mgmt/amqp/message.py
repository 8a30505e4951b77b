"""The AMQP message: its sections, from bytes and to bytes (AMQP 1.0 part 3, section 3.2).

The one rule: nothing is lost. An absent section is None and an empty one is not; every field keeps the type it came with; the
several data or sequence sections of a body stay several. What a message means to Service Bus is for others to say (columns.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.decode import decode_value, skip_value
from spark_sb_mgmt.amqp.encode import encode_described, encode_list, encode_value
from spark_sb_mgmt.amqp.types import Map, Symbol, Timestamp, UByte, UInt, Value, type_name
from spark_sb_mgmt.errors import DecodeError, EncodeError

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, AMQP_SEQUENCE, AMQP_VALUE, FOOTER = range(0x75, 0x79)

SECTION_NAMES: dict[int, str] = {
    HEADER: "header",
    DELIVERY_ANNOTATIONS: "delivery-annotations",
    MESSAGE_ANNOTATIONS: "message-annotations",
    PROPERTIES: "properties",
    APPLICATION_PROPERTIES: "application-properties",
    DATA: "data",
    AMQP_SEQUENCE: "amqp-sequence",
    AMQP_VALUE: "amqp-value",
    FOOTER: "footer",
}
# A section's descriptor may be its symbol instead of its number (part 3, section 3.2).
_SYMBOLIC: dict[str, int] = {
    **{f"amqp:{SECTION_NAMES[code]}:map": code for code in (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER)},
    **{f"amqp:{SECTION_NAMES[code]}:list": code for code in (HEADER, PROPERTIES, AMQP_SEQUENCE)},
    "amqp:data:binary": DATA,
    "amqp:amqp-value:*": AMQP_VALUE,
    "amqp:value:*": AMQP_VALUE,
}
# Service Bus: each data section of such a transfer is a whole encoded message (wire-facts.md, section 3.6).
BATCH_MESSAGE_FORMAT = 0x80013700

# The field types that a plain Python value stands for; `*` is any of the four message-id types, which must be said.
_Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Header:
    """Part 3, section 3.2.1. A plain int is taken for the type that the specification gives the field."""

    durable: Value = None
    priority: Value = None
    ttl: Value = None
    first_acquirer: Value = None
    delivery_count: Value = None

    FIELDS: ClassVar[_Fields] = (
        ("durable", "boolean"),
        ("priority", "ubyte"),
        ("ttl", "uint"),
        ("first-acquirer", "boolean"),
        ("delivery-count", "uint"),
    )


@dataclass(frozen=True)
class Properties:
    """Part 3, section 3.2.4. Service Bus calls group-id the session id and subject the label."""

    message_id: Value = None
    user_id: Value = None
    to: Value = None
    subject: Value = None
    reply_to: Value = None
    correlation_id: Value = None
    content_type: Value = None
    content_encoding: Value = None
    absolute_expiry_time: Value = None
    creation_time: Value = None
    group_id: Value = None
    group_sequence: Value = None
    reply_to_group_id: Value = None

    FIELDS: ClassVar[_Fields] = (
        ("message-id", "*"),
        ("user-id", "binary"),
        ("to", "string"),
        ("subject", "string"),
        ("reply-to", "string"),
        ("correlation-id", "*"),
        ("content-type", "symbol"),
        ("content-encoding", "symbol"),
        ("absolute-expiry-time", "timestamp"),
        ("creation-time", "timestamp"),
        ("group-id", "string"),
        ("group-sequence", "uint"),
        ("reply-to-group-id", "string"),
    )


_Listed = Header | Properties


@dataclass(frozen=True)
class Data:
    """A body of one or several data sections."""

    sections: tuple[bytes, ...]


@dataclass(frozen=True)
class AmqpSequence:
    """A body of one or several sequence sections, each a list."""

    sections: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class AmqpValue:
    """A body of one value."""

    value: Value


Body = Data | AmqpSequence | AmqpValue


@dataclass(frozen=True)
class Message:
    header: Header | None = None
    delivery_annotations: Map | None = None
    message_annotations: Map | None = None
    properties: Properties | None = None
    application_properties: Map | None = None
    body: Body | None = None
    footer: Map | None = None


def decode_message(buffer: bytes, offset: int = 0, end: int | None = None, sections: Container[int] = SECTION_NAMES) -> Message:
    """The message that fills `buffer` from `offset` to `end`; sections not asked for are skipped by their size, unread."""
    end = len(buffer) if end is None else end
    found: dict[int, Value] = {}
    data: list[bytes] = []
    sequences: list[tuple[Value, ...]] = []
    at = offset
    while at < end:
        start = at
        code, at = read_descriptor(buffer, at, end)
        value_at = at
        if code not in sections:
            at = skip_value(buffer, at, end)
            continue
        value, at = decode_value(buffer, at, end)
        _check_kind(code, value, value_at)
        if code == DATA:
            data.append(value)
        elif code == AMQP_SEQUENCE:
            sequences.append(value)
        elif code in found:
            raise DecodeError(f"a second {SECTION_NAMES[code]} section in one message", start)
        elif code in _LISTED:
            found[code] = _from_list(_LISTED[code], value, value_at)
        else:
            found[code] = value
    get = found.get
    body = _body(data, sequences, found, offset)
    return _made(
        Message,
        (get(HEADER), get(DELIVERY_ANNOTATIONS), get(MESSAGE_ANNOTATIONS), get(PROPERTIES), get(APPLICATION_PROPERTIES), body, get(FOOTER)),
    )


def read_descriptor(buffer: bytes, at: int, end: int) -> tuple[int, int]:
    """The section that starts at `at`, and the offset of its value."""
    if buffer[at] != c.DESCRIBED:
        raise DecodeError(f"a message section must start with a descriptor (0x00), not 0x{buffer[at]:02x}", at)
    if at + 2 < end and buffer[at + 1] == c.SMALL_ULONG:
        code, after = buffer[at + 2], at + 3
        if HEADER <= code <= FOOTER:
            return code, after
        raise DecodeError(f"no message section has descriptor 0x{code:02x}", at)
    descriptor, after = decode_value(buffer, at + 1, end)
    named = _SYMBOLIC.get(descriptor) if isinstance(descriptor, Symbol) else None
    if named is None:
        if type_name(descriptor) != "ulong" or not HEADER <= descriptor <= FOOTER:
            raise DecodeError(f"no message section has descriptor {descriptor!r:.80}", at)
        named = int(descriptor)
    return named, after


_KINDS: dict[int, tuple[type, str]] = {
    **dict.fromkeys((DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER), (Map, "map")),
    **dict.fromkeys((HEADER, PROPERTIES, AMQP_SEQUENCE), (tuple, "list")),
    DATA: (bytes, "binary"),
}


def _check_kind(code: int, value: Value, at: int) -> None:
    expected = _KINDS.get(code)
    if expected is not None and type(value) is not expected[0]:
        raise DecodeError(f"section {SECTION_NAMES[code]} is a {expected[1]}, not a {type_name(value)}", at)


_LISTED: dict[int, type[_Listed]] = {HEADER: Header, PROPERTIES: Properties}
_NAMES: dict[type, tuple[str, ...]] = {kind: tuple(field.name for field in fields(kind)) for kind in (Header, Properties, Message)}
_Made = TypeVar("_Made")


def _from_list(kind: type[_Listed], values: tuple[Value, ...], at: int) -> _Listed:
    limit = len(kind.FIELDS)
    if len(values) > limit:
        raise DecodeError(f"{kind.__name__.lower()} has at most {limit} fields, not {len(values)}", at)
    return _made(kind, values + (None,) * (limit - len(values)))


def _made(kind: type[_Made], values: tuple[Value, ...]) -> _Made:
    """`kind(*values)` in a third of the time: a frozen dataclass would set its fields one by one, past its own lock."""
    made = kind.__new__(kind)
    vars(made).update(zip(_NAMES[kind], values, strict=True))
    return made


def _body(data: list[bytes], sequences: list[tuple[Value, ...]], found: dict[int, Value], at: int) -> Body | None:
    kinds = (bool(data), bool(sequences), AMQP_VALUE in found)
    if sum(kinds) > 1:
        raise DecodeError("a body is of one kind: data, amqp-sequence or amqp-value, not several", at)
    if data:
        return Data(tuple(data))
    if sequences:
        return AmqpSequence(tuple(sequences))
    return AmqpValue(found[AMQP_VALUE]) if AMQP_VALUE in found else None


def encode_message(message: Message) -> bytes:
    """The message as it goes on the wire: its sections in the specification's order."""
    parts: list[bytes] = []
    if message.header is not None:
        parts.append(encode_described(HEADER, encode_fields(message.header)))
    if message.delivery_annotations is not None:
        parts.append(_section(DELIVERY_ANNOTATIONS, message.delivery_annotations))
    if message.message_annotations is not None:
        parts.append(_section(MESSAGE_ANNOTATIONS, message.message_annotations))
    if message.properties is not None:
        parts.append(encode_described(PROPERTIES, encode_fields(message.properties)))
    if message.application_properties is not None:
        parts.append(_section(APPLICATION_PROPERTIES, message.application_properties))
    parts.extend(encode_body(message.body))
    if message.footer is not None:
        parts.append(_section(FOOTER, message.footer))
    return b"".join(parts)


def _section(code: int, value: Value) -> bytes:
    if code in _KINDS and type_name(value) != _KINDS[code][1]:
        raise EncodeError(f"section {SECTION_NAMES[code]} is a {_KINDS[code][1]}, not a {type_name(value)}")
    return encode_described(code, encode_value(value))


def encode_body(body: Body | None) -> list[bytes]:
    """The sections of a body, each encoded."""
    if body is None:
        return []
    if isinstance(body, AmqpValue):
        return [_section(AMQP_VALUE, body.value)]
    if not isinstance(body, (Data, AmqpSequence)):
        raise EncodeError(f"a body is Data, AmqpSequence or AmqpValue, not a Python {type(body).__name__}")
    if not body.sections:
        raise EncodeError(f"a body of {type(body).__name__} has at least one section; a message without a body has None")
    code = DATA if isinstance(body, Data) else AMQP_SEQUENCE
    return [_section(code, section) for section in body.sections]


def encode_fields(section: _Listed) -> bytes:
    """A header or properties section as its list, trailing nulls left out."""
    encoded = [
        encode_value(as_field(section, name, kind, getattr(section, field.name)))
        for (name, kind), field in zip(section.FIELDS, fields(section), strict=True)
    ]
    while encoded and encoded[-1] == b"\x40":
        encoded.pop()
    return encode_list(encoded)


_PLAIN: dict[str, Callable[[Value], Value]] = {"ubyte": UByte, "uint": UInt, "timestamp": Timestamp}


def as_field(section: _Listed, name: str, kind: str, value: Value) -> Value:
    """A plain Python value as the type that its field has; a value that says its own type stays as it is."""
    if type(value) is int:
        if kind not in _PLAIN:
            raise EncodeError(f"{type(section).__name__.lower()} field {name} cannot be the Python int {value}")
        return _PLAIN[kind](value)
    if type(value) is str and kind == "symbol":
        return Symbol(value)
    return value


def decode_batch(buffer: bytes) -> tuple[bytes, ...]:
    """The encoded messages inside a transfer of format BATCH_MESSAGE_FORMAT."""
    body = decode_message(buffer).body
    if not isinstance(body, Data):
        raise DecodeError("a batched message must have data sections, one encoded message in each", 0)
    return body.sections


def encode_batch(messages: Iterable[bytes], envelope: Message | None = None) -> bytes:
    """Encoded messages as one transfer of format BATCH_MESSAGE_FORMAT; the sections of `envelope` stand before them."""
    sections = tuple(messages)
    if not sections:
        raise EncodeError("a batch needs at least one message")
    outer = encode_message(envelope) if envelope is not None else b""
    return outer + b"".join(encode_body(Data(sections)))
