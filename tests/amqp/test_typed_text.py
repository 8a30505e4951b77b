"""The typed map form: every AMQP value to a type and a text, and back to the same bytes."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given, settings

from spark_sb_mgmt.amqp.decode import MAX_DEPTH
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.message import Header, Message, Properties
from spark_sb_mgmt.amqp.typed_text import fields_from_typed, from_typed, section_from_typed, section_to_typed, to_text, to_typed
from spark_sb_mgmt.amqp.types import Array, Char, Decimal32, Described, Float, Int, Long, Map, Symbol, Timestamp, UInt, ULong, Value
from spark_sb_mgmt.errors import EncodeError
from tests.amqp import shapes

BROKEN = b"a\xff".decode("utf-8", "surrogateescape")


@settings(max_examples=500)
@given(shapes.values)
def test_every_value_reads_back_the_same(value: Value) -> None:
    kind, text = to_typed(value)
    assert encode_value(from_typed(kind, text)) == encode_value(value)
    if text is not None:
        text.encode("utf-8")


@given(shapes.messages)
def test_every_section_reads_back_the_same(message: Message) -> None:
    for section, key_type in (
        (message.delivery_annotations, "symbol"),
        (message.message_annotations, "symbol"),
        (message.application_properties, "string"),
        (message.footer, "symbol"),
    ):
        again = section_from_typed(section_to_typed(section, key_type), key_type)
        assert encode_value(again) == encode_value(section)
    assert fields_from_typed(Header, section_to_typed(message.header)) == message.header
    assert fields_from_typed(Properties, section_to_typed(message.properties)) == message.properties


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("null", None)),
        (True, ("boolean", "true")),
        (UInt(5), ("uint", "5")),
        (Long(-(2**63)), ("long", "-9223372036854775808")),
        (ULong(2**64 - 1), ("ulong", "18446744073709551615")),
        (Float(0.1), ("float", "0.1")),
        (0.1, ("double", "0.1")),
        (float("inf"), ("double", "inf")),
        (Float.from_wire(bytes.fromhex("7fa00001")), ("float", "nan:7fa00001")),
        (Decimal32(b"\x01\x02\x03\x04"), ("decimal32", "01020304")),
        (Char(0x1F600), ("char", "\U0001f600")),
        (Char(0xD800), ("char", "U+D800")),
        (Timestamp(1_700_000_000_123), ("timestamp", "2023-11-14T22:13:20.123Z")),
        (Timestamp(253_402_300_800_000), ("timestamp", "253402300800000")),
        (UUID(int=5), ("uuid", "00000000-0000-0000-0000-000000000005")),
        (b"\x00\xff", ("binary", "AP8=")),
        ("grün", ("string", "grün")),
        (Symbol("s"), ("symbol", "s")),
        (BROKEN, ("string;base64", "Yf8=")),
        (Symbol(BROKEN), ("symbol;base64", "Yf8=")),
        ((Int(1), "x", None), ("list", '[["int","1"],["string","x"],["null",null]]')),
        (Map([("k", (Int(1),))]), ("map", '[[["string","k"],["list",[["int","1"]]]]]')),
        (Array("long", [1, 2]), ("array", '{"of":"long","items":["1","2"]}')),
        (Described(Symbol("d"), "x"), ("described", '{"descriptor":["symbol","d"],"value":["string","x"]}')),
    ],
)
def test_the_text_of_each_type(value: Value, expected: tuple[str, str | None]) -> None:
    assert to_typed(value) == expected
    assert encode_value(from_typed(*expected)) == encode_value(value)


def test_plain_text_shows_bytes_that_are_no_utf8() -> None:
    assert to_text(BROKEN) == r"a\xff"


def test_keys_of_other_types_are_told_apart() -> None:
    section = Map([(Symbol("plain"), Int(1)), ("text", Int(2)), (ULong(5), Int(3)), (Symbol("ulong:5"), Int(4))])
    typed = section_to_typed(section, "symbol")
    assert typed is not None
    assert [key for key, _ in typed] == ["plain", "string:text", "ulong:5", "symbol:ulong:5"]
    assert encode_value(section_from_typed(typed, "symbol")) == encode_value(section)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "five"),
        ("int", "2147483648"),
        ("int", None),
        ("null", "x"),
        ("boolean", "yes"),
        ("uuid", "5"),
        ("binary", "§"),
        ("timestamp", "tomorrow"),
        ("decimal32", "00"),
        ("char", "ab"),
        ("list", "[1]"),
        ("list", "not json"),
        ("map", '[["int","1"]]'),
        ("array", '{"of":"thing","items":[]}'),
        ("colour", "red"),
        ("string;base64", "Yf8"),
    ],
)
def test_text_that_is_no_such_value_is_refused(kind: str, text: str | None) -> None:
    with pytest.raises(EncodeError):
        encode_value(from_typed(kind, text))


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 100_000])
def test_nesting_has_an_end_in_both_directions(depth: int) -> None:
    with pytest.raises(EncodeError):
        from_typed("list", '[["list",' * depth + "[]" + "]]" * depth)
    value: Value = ()
    for _ in range(MAX_DEPTH + 2):
        value = (value,)
    with pytest.raises(EncodeError, match="nested deeper"):
        to_typed(value)


def test_texts_are_json_that_others_can_read() -> None:
    assert json.loads(to_typed((Int(1),))[1] or "") == [["int", "1"]]
