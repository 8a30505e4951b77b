"""Values to bytes: canonical and type-exact (AMQP 1.0 part 1, section 1.6).

The one rule: the type of a value decides its bytes, nothing is guessed. Each type has one encoding, the shortest; elements of an
array have the full width, because the service refuses short ones (wire-facts.md, section 5, number 11). Equal bytes are
therefore equal values of equal types, which is how the tests compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct, error
from uuid import UUID

import numpy as np
import numpy.typing as npt

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.types import (
    Array,
    Byte,
    Char,
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
from spark_sb_mgmt.errors import EncodeError

_B = Struct(">BB").pack
_U32 = Struct(">BI").pack
_LONG = Struct(">Bq").pack
MAX_SIZE = 2**32 - 1


def encode_value(value: Value) -> bytes:
    """The encoding of a value, with its constructor."""
    try:
        return _ENCODERS[type_name(value)](value)
    except RecursionError:
        raise EncodeError("a value nested too deep to be encoded") from None


def encode_list(items: Iterable[bytes]) -> bytes:
    """A list of values that are encoded already."""
    encoded = list(items)
    if not encoded:
        return b"\x45"
    return _compound(c.LIST_8, c.LIST_32, len(encoded), b"".join(encoded))


def encode_map(pairs: Iterable[bytes]) -> bytes:
    """A map of keys and values, one after the other, that are encoded already."""
    encoded = list(pairs)
    return _compound(c.MAP_8, c.MAP_32, len(encoded), b"".join(encoded))


def list_head(count: int, size: int) -> bytes:
    """What stands before the items of a list, of which there is one at least; `size` is that of all of them together."""
    return _head(c.LIST_8, c.LIST_32, count, size)


def map_head(count: int, size: int) -> bytes:
    """What stands before the keys and values of a map, `count` of both."""
    return _head(c.MAP_8, c.MAP_32, count, size)


def encode_longs(values: npt.NDArray[np.int64]) -> bytes:
    """An array of long."""
    body = bytes((c.LONG,)) + values.astype(">i8").tobytes()
    return _compound(c.ARRAY_8, c.ARRAY_32, len(values), body)


def encode_binary(value: bytes) -> bytes:
    size = len(value)
    if size < 256:
        return _B(c.BINARY_8, size) + value
    return _U32(c.BINARY_32, _fits(size)) + value


def encode_described(descriptor: int, value: bytes) -> bytes:
    """An encoded value under a descriptor that fits the small form, as all of AMQP's own do."""
    return bytes((c.DESCRIBED, c.SMALL_ULONG, descriptor)) + value


def utf8(text: str) -> bytes:
    """Text to bytes; what was read from invalid UTF-8 gives those bytes again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as problem:
        raise EncodeError(f"text with a lone surrogate at position {problem.start} is not Unicode: {text[:40]!a}") from None


def _fits(size: int) -> int:
    if size > MAX_SIZE:
        raise EncodeError(f"{size} bytes do not fit in one AMQP value ({MAX_SIZE} at most)")
    return size


def encode_string(value: str) -> bytes:
    """What is known to be a string, and no symbol."""
    raw = utf8(value)
    size = len(raw)
    return (_B(c.STRING_8, size) if size < 256 else _U32(c.STRING_32, _fits(size))) + raw


def _symbol(value: str) -> bytes:
    raw = utf8(value)
    size = len(raw)
    return (_B(c.SYMBOL_8, size) if size < 256 else _U32(c.SYMBOL_32, _fits(size))) + raw


def _compound(narrow: int, wide: int, count: int, body: bytes) -> bytes:
    return _head(narrow, wide, count, len(body)) + body


def _head(narrow: int, wide: int, count: int, size: int) -> bytes:
    if size < 255 and count < 256:
        return bytes((narrow, size + 1, count))
    return _U32(wide, _fits(size + 4)) + count.to_bytes(4, "big")


def _uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return _B(c.SMALL_UINT, value) if value < 256 else _U32(c.UINT, value)


def _ulong(value: int) -> bytes:
    if value == 0:
        return b"\x44"
    return _B(c.SMALL_ULONG, value) if value < 256 else b"\x80" + value.to_bytes(8, "big")


def _int(value: int) -> bytes:
    if -128 <= value < 128:
        return bytes((c.SMALL_INT, value & 0xFF))
    return b"\x71" + value.to_bytes(4, "big", signed=True)


def _long(value: int) -> bytes:
    if -128 <= value < 128:
        return bytes((c.SMALL_LONG, value & 0xFF))
    return _LONG(c.LONG, value)


def _list(value: Iterable[Value]) -> bytes:
    return encode_list([encode_value(item) for item in value])


def _map(value: Map | dict[Value, Value]) -> bytes:
    pairs = value.pairs if isinstance(value, Map) else value.items()
    return encode_map([encode_value(part) for pair in pairs for part in pair])


def _described(value: Described) -> bytes:
    return b"\x00" + encode_value(value.descriptor) + encode_value(value.value)


def _fixed(constructor: int, layout: str) -> Callable[[Value], bytes]:
    pack = Struct(">B" + layout).pack
    return lambda value: pack(constructor, value)


def _array(value: Array) -> bytes:
    of, items = value.of, value.items
    described = b"" if value.descriptor is None else b"\x00" + encode_value(value.descriptor)
    if of in _KINDS and not _KINDS[of].issuperset(map(type, items)):
        misfit = next(item for item in items if type(item) not in _KINDS[of])
        raise EncodeError(f"{misfit!r:.80} is not an AMQP {of}, as this array's elements are")
    if of in _BULK:
        constructor, layout = _BULK[of]
        try:
            body = Struct(f">{len(items)}{layout}").pack(*items)
        except error:
            misfit = next(item for item in items if not _packs(layout, item))
            raise EncodeError(f"{misfit!r} is not an AMQP {of}, as this array's elements are") from None
    elif of in _ELEMENTS:
        constructor, element = _ELEMENTS[of]
        if of == "null" and len(items) > c.MAX_EMPTY_ELEMENTS:
            raise EncodeError(f"an array of {len(items)} nulls ({c.MAX_EMPTY_ELEMENTS} at most are written, as no more are read)")
        for item in items:
            # A float is acceptable among 32-bit floats; otherwise an element is of the array's type or the array is wrong.
            if type_name(item) != of and not (of == "float" and isinstance(item, float)):
                raise EncodeError(f"{item!r:.80} is an AMQP {type_name(item)} in an array of {of}")
        body = b"".join([element(item) for item in items])
    elif of in _VARIABLE:
        narrow, wide, raw = _VARIABLE[of]
        parts = [raw(item) for item in items]
        if all(len(part) < 256 for part in parts):
            constructor, body = narrow, b"".join([bytes((len(part),)) + part for part in parts])
        else:
            constructor, body = wide, b"".join([_fits(len(part)).to_bytes(4, "big") + part for part in parts])
    else:
        raise EncodeError(f"there is no array of {of!r} in AMQP")
    body = described + bytes((constructor,)) + body
    return _compound(c.ARRAY_8, c.ARRAY_32, len(items), body)


def _packs(layout: str, item: Value) -> bool:
    try:
        Struct(f">{layout}").pack(item)
    except error:
        return False
    return True


def _wide(value: Value) -> bytes:
    """A list, map or array as an element: always the four-byte form, without its constructor."""
    if isinstance(value, Array):
        encoded = _array(value)
    elif isinstance(value, (Map, dict)):
        encoded = _map(value)
    else:
        encoded = _list(value)
    if encoded[0] >> 4 in (0xD, 0xF):
        return encoded[1:]
    if encoded[0] == c.LIST_0:
        return (4).to_bytes(4, "big") + bytes(4)
    size, count, body = encoded[1], encoded[2], encoded[3:]
    return (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big") + body


_FIXED: dict[str, tuple[int, str]] = {
    "ubyte": (c.UBYTE, "B"),
    "ushort": (c.USHORT, "H"),
    "uint": (c.UINT, "I"),
    "ulong": (c.ULONG, "Q"),
    "byte": (c.BYTE, "b"),
    "short": (c.SHORT, "h"),
    "int": (c.INT, "i"),
    "long": (c.LONG, "q"),
    "double": (c.DOUBLE, "d"),
    "char": (c.CHAR, "I"),
    "timestamp": (c.TIMESTAMP, "q"),
}
_BULK = _FIXED
# The Python types of an array's items: plain ones too, because the array says the AMQP type, but none that says another.
_KINDS: dict[str, frozenset[type]] = {
    **{kind.amqp_type: frozenset((int, kind)) for kind in (UByte, UShort, UInt, ULong, Byte, Short, Int, Long, Char, Timestamp)},
    "double": frozenset((float,)),
    "binary": frozenset((bytes,)),
    "string": frozenset((str,)),
    "symbol": frozenset((str, Symbol)),
}


def _float_wire(value: float) -> bytes:
    return value.wire if isinstance(value, Float) else Float(value).wire


def _uuid_wire(value: UUID) -> bytes:
    return value.bytes


def _raw(value: bytes) -> bytes:
    return bytes(value)


_ELEMENTS: dict[str, tuple[int, Callable[[Value], bytes]]] = {
    "null": (c.NULL, lambda value: b""),
    "boolean": (c.BOOLEAN, lambda value: b"\x01" if value else b"\x00"),
    "float": (c.FLOAT, _float_wire),
    "decimal32": (c.DECIMAL32, _raw),
    "decimal64": (c.DECIMAL64, _raw),
    "decimal128": (c.DECIMAL128, _raw),
    "uuid": (c.UUID_, _uuid_wire),
    "list": (c.LIST_32, _wide),
    "map": (c.MAP_32, _wide),
    "array": (c.ARRAY_32, _wide),
}
_VARIABLE: dict[str, tuple[int, int, Callable[[Value], bytes]]] = {
    "binary": (c.BINARY_8, c.BINARY_32, _raw),
    "string": (c.STRING_8, c.STRING_32, utf8),
    "symbol": (c.SYMBOL_8, c.SYMBOL_32, utf8),
}

_ENCODERS: dict[str, Callable[[Value], bytes]] = {
    **{name: _fixed(constructor, layout) for name, (constructor, layout) in _FIXED.items()},
    "null": lambda value: b"\x40",
    "boolean": lambda value: b"\x41" if value else b"\x42",
    "uint": _uint,
    "ulong": _ulong,
    "int": _int,
    "long": _long,
    "float": lambda value: b"\x72" + value.wire,
    "decimal32": lambda value: b"\x74" + value,
    "decimal64": lambda value: b"\x84" + value,
    "decimal128": lambda value: b"\x94" + value,
    "uuid": lambda value: b"\x98" + value.bytes,
    "binary": encode_binary,
    "string": encode_string,
    "symbol": _symbol,
    "list": _list,
    "map": _map,
    "array": _array,
    "described": _described,
}
