"""Hostile bytes: always one clear error inside the buffer, never a hang, a crash or memory beyond a small multiple of the input."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.amqp.decode import MAX_DEPTH, decode_single
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.message import Data, Message, decode_message, encode_message
from spark_sb_mgmt.amqp.types import Array, Described, Map, Symbol, Value
from spark_sb_mgmt.errors import DecodeError
from tests.amqp import reference, shapes, strategies

# What Python makes of one byte at the worst: a tuple slot and an object of its own.
MEMORY_MULTIPLE = 64


def refused(decode: Callable[[bytes], object], wire: bytes, problem: str | None = None) -> DecodeError:
    with pytest.raises(DecodeError, match=problem) as caught:
        decode(wire)
    assert 0 <= caught.value.offset <= len(wire)
    return caught.value


@settings(max_examples=50)
@given(shapes.messages)
def test_a_message_cut_off_anywhere_is_an_error_or_a_shorter_message(message: Message) -> None:
    wire = encode_message(message)
    for length in range(min(len(wire), 400)):
        try:
            decode_message(wire[:length])
        except DecodeError as problem:
            assert 0 <= problem.offset <= length  # noqa: PT017


@given(shapes.scalars.filter(lambda value: value is not None and not isinstance(value, bool)))
def test_a_scalar_cut_off_anywhere_is_an_error(value: Value) -> None:
    wire = encode_value(value)
    for length in range(len(wire)):
        refused(decode_single, wire[:length])


@given(strategies.values(), strategies.variant_choices(), st.integers(0, 10**6), st.integers(0, 255))
def test_what_still_decodes_after_damage_is_a_value_that_can_be_written_again(
    value: Value, choose: reference.Choose, position: int, byte: int
) -> None:
    wire = bytearray(reference.encode(value, choose))
    wire[position % len(wire)] = byte
    try:
        found = decode_single(bytes(wire))
    except DecodeError as problem:
        assert 0 <= problem.offset <= len(wire)  # noqa: PT017
    else:
        assert encode_value(decode_single(encode_value(found))) == encode_value(found)


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_random_bytes_decode_or_are_refused(wire: bytes) -> None:
    for decode in (decode_single, decode_message, lambda raw: decode_responses([raw])):
        try:
            decode(wire)
        except DecodeError as problem:
            assert 0 <= problem.offset <= len(wire)  # noqa: PT017


@settings(max_examples=300)
@given(shapes.messages, strategies.variant_choices(), st.data())
def test_damaged_messages_decode_or_are_refused(message: Message, choose: reference.Choose, data: st.DataObject) -> None:
    wire = bytearray(reference.encode_message(message, choose))
    for _ in range(data.draw(st.integers(1, 4))):
        if wire:
            wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_message(bytes(wire))
    except DecodeError as problem:
        assert 0 <= problem.offset <= len(wire)  # noqa: PT017


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        ("a105", "string needs 5 bytes where 0 are left"),
        ("b0ffffffff00", "binary needs 4294967295 bytes where 1 are left"),
        ("b1ffffffff" + "00" * 1024, "string needs 4294967295 bytes where 1024 are left"),
        ("d0ffffffff00000001" + "00" * 1024, "list needs 4294967295 bytes"),
        ("d000000008ffffffff40404040", "a list of 4294967295 items cannot fit in 4 bytes"),
        ("d100000004ffffffff", "an even number of items, not 4294967295"),
        ("d100000004fffffffe", "a map of 4294967294 items cannot fit in 0 bytes"),
        ("f000000005ffffffff40", "an array of 4294967295 elements without bytes"),
        ("f000000005ffffffff45", "an array of 4294967295 elements without bytes"),
        ("f000000005ffffffff50", "an array of 4294967295 items cannot fit in 0 bytes"),
        ("f000000005ffffffffa1", "an array of 4294967295 items cannot fit in 0 bytes"),
        ("c00000", "no room for its own count"),
        ("c00101", "a list of 1 items cannot fit in 0 bytes"),
        ("c0030140 40", "1 bytes of a list are left after its 1 items"),
        ("c1020140", "an even number of items, not 1"),
        ("e00100", "element constructor of an array"),
        ("e0020100", "ends where a value must start"),
        ("e0020199", "unknown constructor 0x99"),
        ("e0050100405005", "described by null"),
        ("e009010053010053025005", "described twice"),
        ("e0022140", "an array of 33 elements without bytes"),
        ("5602", "a boolean byte is 0 or 1, not 2"),
        ("01", "unknown constructor 0x01"),
        ("ff", "unknown constructor 0xff"),
        ("", "ends where a value must start"),
    ],
)
def test_lengths_counts_and_constructors_that_lie(wire: str, problem: str) -> None:
    refused(decode_single, bytes.fromhex(wire), problem)


@pytest.mark.parametrize("code", sorted(set(range(256)) - set(range(0x40, 0x46))))
def test_every_other_constructor_needs_bytes_after_it(code: int) -> None:
    refused(decode_single, bytes((code,)))


def _nested(opening: bytes, depth: int = 10_000) -> bytes:
    return opening * depth + b"\x40"


def _lists(depth: int) -> bytes:
    wire = b"\x40"
    for _ in range(depth):
        wire = b"\xd0" + (4 + len(wire)).to_bytes(4, "big") + b"\x00\x00\x00\x01" + wire
    return wire


def _maps(depth: int) -> bytes:
    wire = b"\x40"
    for _ in range(depth):
        wire = b"\xd1" + (5 + len(wire)).to_bytes(4, "big") + b"\x00\x00\x00\x02\x40" + wire
    return wire


def _arrays(depth: int) -> bytes:
    wire = b"\x00\x00\x00\x01\x00\x00\x00\x00\x40"
    for _ in range(depth):
        wire = (5 + len(wire)).to_bytes(4, "big") + b"\x00\x00\x00\x01\xf0" + wire
    return b"\xf0" + wire


@pytest.mark.parametrize(
    "wire",
    [_lists(10_000), _maps(10_000), _arrays(10_000), _nested(b"\x00"), _nested(b"\x00\x40")],
    ids=["lists", "maps", "arrays", "descriptors", "described"],
)
def test_ten_thousand_levels_are_an_error_not_a_crash(wire: bytes) -> None:
    refused(decode_single, wire, f"nested deeper than {MAX_DEPTH} levels")


def test_as_deep_as_the_limit_is_read() -> None:
    value: Value = None
    for _ in range(MAX_DEPTH):
        value = (value,)
    assert decode_single(encode_value(value)) == value


def _array_value(constructor: int, element: bytes, count: int) -> bytes:
    """A message whose body is an array of that element, so many times."""
    items = bytes((constructor,)) + element * count
    return b"\x00\x53\x77\xf0" + (4 + len(items)).to_bytes(4, "big") + count.to_bytes(4, "big") + items


@pytest.mark.parametrize(
    "wire",
    [
        b"\x00\x53\x75\xa0\x00" * 200_000,
        b"\x00\x53\x76\x45" * 200_000,
        b"\x00\x53\x77\xd0" + (4 + 500_000).to_bytes(4, "big") + (500_000).to_bytes(4, "big") + b"\x45" * 500_000,
        b"\x00\x53\x77\xd0" + (4 + 500_000).to_bytes(4, "big") + (250_000).to_bytes(4, "big") + b"\x54\x05" * 250_000,
        b"\x00\x53\x77\xd0" + (4 + 500_000).to_bytes(4, "big") + (250_000).to_bytes(4, "big") + b"\xa3\x00" * 250_000,
        b"\x00\x53\x77\xd0" + (4 + 500_000).to_bytes(4, "big") + (125_000).to_bytes(4, "big") + b"\xc0\x02\x01\x40" * 125_000,
        b"\x00\x53\x77\xf0" + (5 + 500_000).to_bytes(4, "big") + (500_000).to_bytes(4, "big") + b"\x50" + b"\x05" * 500_000,
        _array_value(0xA3, b"\x00", 100_000),
        _array_value(0xA3, b"\x01\xff", 50_000),
        _array_value(0xC1, b"\x01\x00", 50_000),
        _array_value(0xE0, b"\x02\x20\x40", 30_000),
        _array_value(0xE0, b"\x02\x20\x44", 30_000),
        _array_value(0xC0, b"\x02\x01\x45", 30_000),
        _array_value(0x54, b"\x85", 100_000),
    ],
    ids=[
        *("data sections", "sequence sections", "empty lists", "small ints", "empty symbols", "lists of null", "array of ubyte"),
        *("array of empty symbols", "array of short symbols", "array of empty maps", "array of arrays of null"),
        *("array of arrays of ulong0", "array of lists of list0", "array of small ints"),
    ],
)
def test_memory_stays_within_a_multiple_of_the_input(wire: bytes) -> None:
    tracemalloc.start()
    try:
        decode_message(wire)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MEMORY_MULTIPLE * len(wire)


def test_an_entry_that_claims_more_than_its_response_is_the_one_named() -> None:
    """Found by fuzzing: the error named the place where the next entry would have started, far outside the response."""
    entry = encode_value(Map([("message", b"m" * 300)]))
    assert entry[0] == 0xD1
    entries = entry + b"\xd1\x00\xa3\x12\x30" + entry[5:] + entry
    at = len(bytes.fromhex("005377d1") + bytes(8) + encode_value("messages") + b"\xd0" + bytes(8))
    listed = encode_value("messages") + b"\xd0" + (4 + len(entries)).to_bytes(4, "big") + (3).to_bytes(4, "big") + entries
    wire = b"\x00\x53\x77\xd1" + (4 + len(listed)).to_bytes(4, "big") + (2).to_bytes(4, "big") + listed
    problem = refused(lambda raw: decode_responses([raw]), wire, "entry 1 of the messages list is cut off")
    assert problem.offset == at + len(entry)


def test_a_million_sections_are_read_or_refused_in_one_pass() -> None:
    body = decode_message(b"\x00\x53\x75\xa0\x00" * 1_000_000).body
    assert isinstance(body, Data)
    assert len(body.sections) == 1_000_000
    refused(decode_message, b"\x00\x53\x70\x45" * 1_000_000, "a second header section")


def test_an_error_costs_no_more_than_the_input() -> None:
    tracemalloc.start()
    try:
        refused(decode_single, b"\xb0\xff\xff\xff\xff" + bytes(1000))
        refused(decode_single, b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_odd_but_legal_values_are_no_error() -> None:
    for value in (Map([((), ()), (None, None)]), Described(Map(), Array("null", [None])), Symbol("")):
        assert encode_value(decode_single(encode_value(value))) == encode_value(value)
