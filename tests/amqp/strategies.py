"""Random AMQP values, messages and encodings of them, for the tests of every decoder and encoder.

    values(max_depth)        a value of any AMQP type; nested at most so deep
    typed(name)              a value of the AMQP type of that name, no compound
    arrays(max_depth)        an array of any element type
    messages()               any message at all: sections absent, empty, partial; every id type; every kind of body
    service_bus_messages()   what Service Bus sends: its annotations, in any order, some missing, odd property types
    wire_variants(message)   the bytes of a message as some peer could have written them, not only canonical ones

Values always say their type (Timestamp, not int, in `creation-time`), so that decoding the bytes gives an equal message.
"""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from spark_sb_mgmt.amqp.message import AmqpSequence, AmqpValue, Body, Data, Header, Message, Properties
from spark_sb_mgmt.amqp.types import (
    Array,
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

Strategy = st.SearchStrategy[Any]

# The borders between the forms that a number, a text or a list may take on the wire.
_BORDERS = (0, 1, 127, 128, 255, 256)


def _integers(kind: Any) -> Strategy:
    edges = {kind.minimum, kind.maximum, *_BORDERS, *(-border for border in _BORDERS), -129}
    inside = sorted(edge for edge in edges if kind.minimum <= edge <= kind.maximum)
    return st.one_of(st.sampled_from(inside), st.integers(kind.minimum, kind.maximum)).map(kind)


def _double(raw: bytes) -> float:
    value: float = struct.unpack(">d", raw)[0]
    return value


# Sizes around the change from a one-byte to a four-byte size, as well as small ones.
_BYTES = st.one_of(st.binary(max_size=12), st.sampled_from((254, 255, 256, 300)).map(lambda size: b"\xc3\xa9" * size))
_TEXT = st.one_of(
    st.text(max_size=12),
    st.sampled_from(("", "é", "\x00", "𝄞", "a" * 255, "a" * 256, "€" * 86)),
    # Not UTF-8: held with lone surrogates (PEP 383).
    st.binary(max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)

_SCALARS: dict[str, Strategy] = {
    "null": st.none(),
    "boolean": st.booleans(),
    **{kind.amqp_type: _integers(kind) for kind in (UByte, UShort, UInt, ULong, Byte, Short, Int, Long, Timestamp, Char)},
    # From bytes, so that every NaN comes up, signalling ones and their payloads too.
    "float": st.one_of(st.floats(width=32).map(Float), st.binary(min_size=4, max_size=4).map(Float.from_wire)),
    "double": st.one_of(st.floats(), st.binary(min_size=8, max_size=8).map(_double)),
    "decimal32": st.binary(min_size=4, max_size=4).map(Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(Decimal128),
    "uuid": st.uuids(),
    "binary": _BYTES,
    "string": _TEXT,
    "symbol": _TEXT.map(Symbol),
}
SCALAR_TYPES = tuple(_SCALARS)
COMPOUND_TYPES = ("list", "map", "array")


def typed(name: str) -> Strategy:
    """A value of one AMQP type that holds no others."""
    return _SCALARS[name]


def scalars() -> Strategy:
    return st.one_of(*_SCALARS.values())


def descriptors() -> Strategy:
    """What describes a value: a number or a symbol by custom, but anything is legal."""
    return st.one_of(typed("ulong"), typed("symbol"), typed("string"), typed("uuid"))


def values(max_depth: int = 3) -> Strategy:
    """A value of any AMQP type, compounds nested at most `max_depth` deep."""
    if max_depth == 0:
        return scalars()
    return st.one_of(
        scalars(),
        lists(max_depth),
        maps(max_depth),
        arrays(max_depth),
        st.builds(Described, descriptors(), st.deferred(lambda: values(max_depth - 1))),
    )


def lists(max_depth: int = 3, max_size: int = 4) -> Strategy:
    return st.lists(st.deferred(lambda: values(max_depth - 1)), max_size=max_size).map(tuple)


def maps(max_depth: int = 3, keys: Strategy | None = None, max_size: int = 4) -> Strategy:
    """A map with keys of any type, also compound ones, unless `keys` says which."""
    inner = st.deferred(lambda: values(max_depth - 1))
    return st.lists(st.tuples(keys if keys is not None else inner, inner), max_size=max_size).map(Map)


def arrays(max_depth: int = 3) -> Strategy:
    """An array of any element type; half of them described."""
    kinds = SCALAR_TYPES if max_depth <= 1 else SCALAR_TYPES + COMPOUND_TYPES
    return st.sampled_from(kinds).flatmap(lambda of: array_of(of, max_depth))


def array_of(of: str, max_depth: int = 3, max_size: int = 5) -> Strategy:
    elements = {"list": lists, "map": maps, "array": arrays}
    items = elements[of](max_depth - 1) if of in elements else typed(of).map(_as_element)
    return st.builds(Array, st.just(of), st.lists(items, max_size=max_size), st.one_of(st.none(), typed("ulong"), typed("symbol")))


def _as_element(value: Value) -> Value:
    """The array says the type of its integers, so they are plain ones."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def ids() -> Strategy:
    """A message-id or correlation-id of each of the four types."""
    return st.one_of(typed("string"), typed("ulong"), typed("uuid"), typed("binary"))


def _maybe(strategy: Strategy) -> Strategy:
    return st.one_of(st.none(), strategy)


def headers() -> Strategy:
    return st.builds(
        Header,
        durable=_maybe(st.booleans()),
        priority=_maybe(typed("ubyte")),
        ttl=_maybe(typed("uint")),
        first_acquirer=_maybe(st.booleans()),
        delivery_count=_maybe(typed("uint")),
    )


def properties() -> Strategy:
    return st.builds(
        Properties,
        message_id=_maybe(ids()),
        user_id=_maybe(typed("binary")),
        to=_maybe(typed("string")),
        subject=_maybe(typed("string")),
        reply_to=_maybe(typed("string")),
        correlation_id=_maybe(ids()),
        content_type=_maybe(typed("symbol")),
        content_encoding=_maybe(typed("symbol")),
        absolute_expiry_time=_maybe(typed("timestamp")),
        creation_time=_maybe(typed("timestamp")),
        group_id=_maybe(typed("string")),
        group_sequence=_maybe(typed("uint")),
        reply_to_group_id=_maybe(typed("string")),
    )


def bodies(max_depth: int = 2) -> st.SearchStrategy[Body | None]:
    return st.one_of(
        st.none(),
        st.lists(_BYTES, min_size=1, max_size=4).map(lambda sections: Data(tuple(sections))),
        st.lists(lists(max_depth), min_size=1, max_size=3).map(lambda sections: AmqpSequence(tuple(sections))),
        st.builds(AmqpValue, values(max_depth)),
    )


def messages(max_depth: int = 2) -> st.SearchStrategy[Message]:
    """Any message: each section absent, empty or full."""
    annotations = maps(max_depth, st.one_of(typed("symbol"), typed("ulong")))
    return st.builds(
        Message,
        header=_maybe(headers()),
        delivery_annotations=_maybe(annotations),
        message_annotations=_maybe(annotations),
        properties=_maybe(properties()),
        application_properties=_maybe(maps(max_depth, typed("string"))),
        body=bodies(max_depth),
        footer=_maybe(annotations),
    )


# wire-facts.md, section 3.6. 2026-01-01T00:00:00Z and some centuries around it; year 1 is how .NET says "never".
_TIMES = st.one_of(
    st.integers(1_700_000_000_000, 1_900_000_000_000),
    st.sampled_from((0, -62135596800000, 253402300799999)),
).map(Timestamp)
_SEQUENCE_NUMBERS = st.one_of(
    st.integers(0, 2**40), st.builds(lambda partition, n: partition << 48 | n, st.integers(0, 32767), st.integers(0, 999))
).map(Long)
_NAMES = st.one_of(st.text("abcdefghijklmnopqrstuvwxyz-ÄÖ", max_size=20), st.just(""), st.just("k" * 128))
_ANNOTATIONS: dict[str, Strategy] = {
    "x-opt-sequence-number": _SEQUENCE_NUMBERS,
    "x-opt-enqueue-sequence-number": _SEQUENCE_NUMBERS,
    "x-opt-enqueued-time": _TIMES,
    "x-opt-locked-until": _TIMES,
    "x-opt-scheduled-enqueue-time": _TIMES,
    "x-opt-partition-key": _NAMES,
    "x-opt-via-partition-key": _NAMES,
    "x-opt-partition-id": st.integers(0, 32767).map(Short),
    "x-opt-deadletter-source": _NAMES,
    # The width the service uses is not verified, so all are likely.
    "x-opt-message-state": st.builds(lambda kind, state: kind(state), st.sampled_from((Int, Long, UInt)), st.integers(0, 2)),
}
_PROPERTY_VALUES = st.one_of(typed("string"), typed("int"), typed("long"), typed("double"), typed("boolean"), typed("null"), scalars())
_DEAD_LETTER = (("DeadLetterReason", "MaxDeliveryCountExceeded"), ("DeadLetterErrorDescription", ""))


@st.composite
def _annotations(draw: st.DrawFn) -> Map:
    names = draw(st.permutations(tuple(_ANNOTATIONS)))
    kept = names[: draw(st.integers(0, len(names)))]
    pairs: list[tuple[Value, Value]] = [(Symbol(name), draw(_ANNOTATIONS[name])) for name in kept]
    if pairs and draw(st.integers(0, 4)) == 0:
        # Null, or of another type than usual: a decoder that trusts the name alone is wrong.
        position = draw(st.integers(0, len(pairs) - 1))
        pairs[position] = (pairs[position][0], draw(scalars()))
    if draw(st.integers(0, 4)) == 0:
        pairs.append((Symbol("x-opt-other"), draw(values(1))))
    return Map(pairs)


@st.composite
def _application_properties(draw: st.DrawFn) -> Map:
    pairs: list[tuple[Value, Value]] = draw(st.lists(st.tuples(_NAMES, _PROPERTY_VALUES), max_size=6))
    if draw(st.integers(0, 3)) == 0:
        pairs.extend(_DEAD_LETTER)
    return Map(pairs)


_SIZES = st.one_of(st.sampled_from((0, 1, 100, 255, 256, 1000, 16 * 1024)), st.integers(0, 2000))
_BODY_BYTES = st.builds(lambda size, byte: bytes((byte,)) * size, _SIZES, st.integers(0, 255))


def service_bus_messages() -> st.SearchStrategy[Message]:
    """What Service Bus hands out: mostly one data section of 0 B to 16 KB, its annotations in any order, odd ones among them."""
    usual_properties = st.builds(
        Properties,
        message_id=st.one_of(_NAMES, _maybe(ids())),
        to=_maybe(_NAMES),
        subject=_maybe(_NAMES),
        reply_to=_maybe(_NAMES),
        correlation_id=_maybe(st.one_of(_NAMES, ids())),
        content_type=_maybe(st.sampled_from(("application/json", "text/plain", "")).map(Symbol)),
        absolute_expiry_time=_maybe(_TIMES),
        creation_time=_maybe(_TIMES),
        group_id=_maybe(_NAMES),
        group_sequence=_maybe(typed("uint")),
        reply_to_group_id=_maybe(_NAMES),
    )
    return st.builds(
        Message,
        header=st.one_of(st.builds(Header, delivery_count=typed("uint")), _maybe(headers())),
        delivery_annotations=_maybe(st.one_of(st.just(Map()), st.uuids().map(lambda token: Map([(Symbol("x-opt-lock-token"), token)])))),
        message_annotations=st.one_of(_annotations(), st.none()),
        properties=st.one_of(usual_properties, _maybe(properties())),
        application_properties=_maybe(_application_properties()),
        body=st.one_of(_BODY_BYTES.map(lambda body: Data((body,))), bodies()),
        footer=st.one_of(st.none(), st.none(), st.just(Map())),
    )


def wire_variants(message: Message) -> st.SearchStrategy[bytes]:
    """The message in other legal forms: the widest everywhere, or a mixture; section descriptors in full or by symbol too."""
    return variant_choices().map(lambda choose: reference.encode_message(message, choose))


def variant_choices() -> st.SearchStrategy[reference.Choose]:
    return st.one_of(st.just(reference.widest), st.integers(0, 2**32 - 1).map(reference.scattered))
