"""Values: every constructor of AMQP 1.0 is read, each type is written in one way, and nothing is guessed."""

from __future__ import annotations

import copy
import pickle
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.constructors import MAX_EMPTY_ELEMENTS
from spark_sb_mgmt.amqp.decode import decode_single, decode_value
from spark_sb_mgmt.amqp.encode import encode_value
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
    type_name,
)
from spark_sb_mgmt.errors import DecodeError, EncodeError
from tests.amqp import reference, strategies

U = UUID("00112233-4455-6677-8899-aabbccddeeff")

# From AMQP 1.0 part 1, section 1.6, by hand. The first of several forms is the one we write.
FORMS: list[tuple[Value, list[str]]] = [
    (None, ["40"]),
    (True, ["41", "5601"]),
    (False, ["42", "5600"]),
    (UByte(255), ["50ff"]),
    (UShort(0x1234), ["601234"]),
    (UInt(0), ["43", "5200", "7000000000"]),
    (UInt(255), ["52ff", "70000000ff"]),
    (UInt(256), ["7000000100"]),
    (ULong(0), ["44", "5300", "800000000000000000"]),
    (ULong(255), ["53ff", "8000000000000000ff"]),
    (ULong(2**64 - 1), ["80ffffffffffffffff"]),
    (Byte(-1), ["51ff"]),
    (Short(-2), ["61fffe"]),
    (Int(-1), ["54ff", "71ffffffff"]),
    (Int(128), ["7100000080"]),
    (Long(127), ["557f", "81000000000000007f"]),
    (Long(-129), ["81ffffffffffffff7f"]),
    (Float(1.5), ["723fc00000"]),
    (1.5, ["823ff8000000000000"]),
    (Decimal32(b"\x01\x02\x03\x04"), ["7401020304"]),
    (Decimal64(bytes(range(8))), ["840001020304050607"]),
    (Decimal128(bytes(range(16))), ["94000102030405060708090a0b0c0d0e0f"]),
    (Char(0x1F600), ["730001f600"]),
    (Timestamp(-1), ["83ffffffffffffffff"]),
    (U, ["9800112233445566778899aabbccddeeff"]),
    (b"ab", ["a0026162", "b0000000026162"]),
    ("ü", ["a102c3bc", "b100000002c3bc"]),
    (Symbol("s"), ["a30173", "b30000000173"]),
    ((), ["45", "c00100", "d00000000400000000"]),
    ((True, Int(1)), ["c0040241 5401", "d00000000700000002 41 5401"]),
    (Map([("k", None)]), ["c10502a1016b40", "d10000000800000002a1016b40"]),
    (Map(), ["c10100", "d10000000400000000"]),
    (
        Array("long", [1, -1]),
        ["e01202 81 0000000000000001 ffffffffffffffff", "f0 00000015 00000002 81 0000000000000001 ffffffffffffffff", "e0040255 01ff"],
    ),
    (Array("boolean", [True, False]), ["e0040256 0100"]),
    (Array("boolean", [True, True]), ["e0040256 0101", "e0020241"]),
    (Array("null", [None, None]), ["e0020240"]),
    (Array("string", ["a", ""]), ["e00502a1 0161 00", "e00b02b1 0000000161 00000000"]),
    (Array("uint", [0, 0]), ["e00a0270 0000000000000000", "e0020243"]),
    (Array("list", [(), (None,)]), ["e01302d0 0000000400000000 000000050000000140"]),
    (Array("array", [Array("ubyte", [7])]), ["e00c01f0 00000006 00000001 5007"]),
    (Array("map", [Map()]), ["e00a01d1 0000000400000000"]),
    (Array("timestamp", [], Symbol("d")), ["e0060000a3016483"]),
    (Array("uuid", [U]), ["e0120198 00112233445566778899aabbccddeeff"]),
    (Described(ULong(0x24), ()), ["00532445", "0080000000000000002445"]),
    (Described(Symbol("x"), Described(None, "y")), ["00a301780040a10179"]),
]


@pytest.mark.parametrize(("value", "form"), [(value, form) for value, forms in FORMS for form in forms])
def test_every_constructor_is_read(value: Value, form: str) -> None:
    found = decode_single(bytes.fromhex(form))
    assert type_name(found) == type_name(value)
    assert found == value
    assert encode_value(found) == encode_value(value)


@pytest.mark.parametrize(("value", "form"), [(value, forms[0]) for value, forms in FORMS])
def test_each_value_is_written_in_one_way(value: Value, form: str) -> None:
    assert encode_value(value) == bytes.fromhex(form)


@given(strategies.values())
def test_what_is_written_is_read_again_type_by_type(value: Value) -> None:
    assert encode_value(decode_single(encode_value(value))) == encode_value(value)


@given(strategies.values())
def test_two_encoders_that_share_no_code_write_the_same_bytes(value: Value) -> None:
    assert encode_value(value) == reference.encode(value)


@settings(max_examples=300)
@given(strategies.values(), strategies.variant_choices())
def test_any_legal_form_of_a_value_is_read_the_same(value: Value, choose: reference.Choose) -> None:
    assert encode_value(decode_single(reference.encode(value, choose))) == encode_value(value)


@pytest.mark.parametrize("of", [*strategies.SCALAR_TYPES, *strategies.COMPOUND_TYPES])
@settings(max_examples=20)
@given(st.data(), strategies.variant_choices())
def test_arrays_of_every_type_are_read_in_any_legal_form(of: str, data: st.DataObject, choose: reference.Choose) -> None:
    value = data.draw(strategies.array_of(of))
    found = decode_single(reference.encode(value, choose))
    assert found.of == of
    assert encode_value(found) == encode_value(value) == reference.encode(value)


@given(strategies.values())
def test_values_survive_pickling(value: Value) -> None:
    assert encode_value(pickle.loads(pickle.dumps(value))) == encode_value(value)
    assert encode_value(copy.deepcopy(value)) == encode_value(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (5, r"the Python int 5 has no AMQP type: say which, as in Int\(5\) or Long\(5\)"),
        ((Int(1), 5), "Python int 5 has no AMQP type"),
        ({"k": 5}, "Python int 5 has no AMQP type"),
        (object(), "a Python object has no AMQP type"),
        (Array("long", ["a"]), "'a' is not an AMQP long"),
        (Array("ubyte", [1, 256]), "256 is not an AMQP ubyte"),
        (Array("string", [b"a"]), "b'a' is not an AMQP string"),
        (Array("string", [Symbol("a")]), "is not an AMQP string"),
        (Array("int", [True]), "True is not an AMQP int"),
        (Array("int", [Timestamp(4)]), r"Timestamp\(4\) is not an AMQP int"),
        (Array("double", [1]), "1 is not an AMQP double"),
        (Array("float", [1e300]), "outside AMQP float"),
        (Array("binary", [Decimal32(b"abcd")]), "is not an AMQP binary"),
        (Array("null", [None] * (MAX_EMPTY_ELEMENTS + 1)), "an array of 33 nulls"),
        (Array("uuid", ["a"]), "'a' is an AMQP string in an array of uuid"),
        (Array("thing", []), "there is no array of 'thing' in AMQP"),
        ("\ud800", "lone surrogate at position 0"),
    ],
)
def test_what_has_no_type_or_the_wrong_one_is_refused(value: Value, problem: str) -> None:
    with pytest.raises(EncodeError, match=problem):
        encode_value(value)


@pytest.mark.parametrize("kind", [UByte, UShort, UInt, ULong, Byte, Short, Int, Long, Timestamp, Char])
def test_integers_out_of_range_are_refused(kind: type[Int]) -> None:
    assert encode_value(decode_single(encode_value(kind(kind.minimum)))) == encode_value(kind(kind.minimum))
    assert encode_value(decode_single(encode_value(kind(kind.maximum)))) == encode_value(kind(kind.maximum))
    for value in (kind.minimum - 1, kind.maximum + 1):
        with pytest.raises(EncodeError, match=f"{value} is outside AMQP {kind.amqp_type}"):
            kind(value)


def test_a_float_too_large_and_decimals_of_the_wrong_width_are_refused() -> None:
    with pytest.raises(EncodeError, match="outside AMQP float"):
        Float(1e300)
    with pytest.raises(EncodeError, match="decimal64 is 8 bytes, not 3"):
        Decimal64(b"abc")


def test_a_value_nested_without_end_is_refused_not_a_crash() -> None:
    endless: list[Value] = []
    endless.append(endless)
    with pytest.raises(EncodeError, match="nested too deep"):
        encode_value(endless)


def test_a_signalling_nan_keeps_its_bits() -> None:
    for form in ("727fa00001", "827ff4000000000001"):
        assert encode_value(decode_single(bytes.fromhex(form))).hex() == form


def test_text_that_is_not_utf8_is_written_again_as_it_was() -> None:
    for code in (b"\xa1", b"\xa3"):
        assert encode_value(decode_single(code + b"\x03a\xff\xfe")) == code + b"\x03a\xff\xfe"


def test_a_map_is_searched_by_text_and_keeps_every_pair() -> None:
    pairs = Map([(Symbol("a"), Int(1)), ("b", Int(2)), (Int(1), "int"), (Long(1), "long"), ("b", Int(3))])
    assert (pairs["a"], pairs["b"], pairs.get("c", "none")) == (1, 3, "none")
    assert "a" in pairs
    assert "1" not in pairs
    assert len(decode_single(encode_value(pairs))) == 5


def test_values_are_read_from_the_middle_of_a_buffer() -> None:
    assert decode_value(b"\xff\xff\x54\x05\xff", 2) == (Int(5), 4)
    with pytest.raises(DecodeError, match=r"1 bytes after the end of the value \(at byte 1\)"):
        decode_single(b"\x40\x40")


def test_errors_survive_pickling() -> None:
    found = pickle.loads(pickle.dumps(DecodeError("wrong", 7).at_message(3)))
    assert (str(found), found.offset, found.message) == ("wrong (at message 3, byte 7)", 7, 3)
    refused = pickle.loads(pickle.dumps(EncodeError("too large").at_row(4)))
    assert (str(refused), refused.row) == ("row 4: too large", 4)
