"""Bytes to values: the scalar decoder, complete and the reference for every faster one (AMQP 1.0 part 1).

The one rule: bytes are hostile until read. Every length is held against the space it must fit in before anything is sliced,
counted or allocated, so that an error costs no more than the input and always names the offset of what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from struct import Struct
from typing import NoReturn
from uuid import UUID

from spark_sb_mgmt.amqp import constructors as c
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
from spark_sb_mgmt.errors import DecodeError

# Deeper than any message seen, shallow enough for Python's own stack: 10,000 levels must be an error, not a RecursionError.
MAX_DEPTH = 64

_Reader = Callable[[bytes, int, int, int], tuple[Value, int]]

_U32 = Struct(">I").unpack_from
_new = int.__new__


def decode_value(buffer: bytes, offset: int = 0, end: int | None = None) -> tuple[Value, int]:
    """The value that starts at `offset`, and the offset after it."""
    return _value(buffer, offset, len(buffer) if end is None else end, 0)


def decode_single(buffer: bytes) -> Value:
    """The one value that `buffer` holds; bytes after it are an error."""
    value, offset = decode_value(buffer)
    if offset != len(buffer):
        raise DecodeError(f"{len(buffer) - offset} bytes after the end of the value", offset)
    return value


def skip_value(buffer: bytes, offset: int, end: int) -> int:
    """The offset after the value at `offset`, found by its size alone: what is inside is not looked at."""
    at = offset
    if at < end and buffer[at] == c.DESCRIBED:
        return decode_value(buffer, at, end)[1]
    if at >= end:
        raise DecodeError("the buffer ends where a value must start", at)
    code = buffer[at]
    if _READERS[code] is None:
        _unknown(buffer, at)
    width = c.FIXED_WIDTH.get(code >> 4)
    at += 1
    if width is None:
        size_width = c.SIZE_WIDTH[code >> 4]
        if at + size_width > end:
            _short("a size", at, size_width, end)
        width = buffer[at] if size_width == 1 else _U32(buffer, at)[0]
        at += size_width
    if at + width > end:
        _short("a value", at, width, end)
    return at + width


def _value(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    if at >= end:
        raise DecodeError("the buffer ends where a value must start", at)
    reader = _READERS[buffer[at]]
    if reader is None:
        _unknown(buffer, at)
    return reader(buffer, at + 1, end, depth)


def _unknown(buffer: bytes, at: int) -> NoReturn:
    raise DecodeError(f"unknown constructor 0x{buffer[at]:02x}", at)


def _short(what: str, at: int, need: int, end: int) -> NoReturn:
    raise DecodeError(f"{what} needs {need} bytes where {max(end - at, 0)} are left", at)


def _constant(value: Value) -> _Reader:
    def read(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        return value, at

    return read


def _integer(kind: type[int], code: str) -> _Reader:
    layout = Struct(code)
    unpack, width, name = layout.unpack_from, layout.size, kind.__name__.lower()

    def read(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        after = at + width
        if after > end:
            _short(name, at, width, end)
        return _new(kind, unpack(buffer, at)[0]), after

    return read


def _byte(kind: type[int], code: str) -> _Reader:
    """An integer of one byte: its 256 values are made once and shared."""
    table, name = [_new(kind, value) for (value,) in Struct(code).iter_unpack(bytes(range(256)))], kind.__name__.lower()

    def read(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at >= end:
            _short(name, at, 1, end)
        return table[buffer[at]], at + 1

    return read


def _fixed(name: str, width: int, make: Callable[[bytes], Value]) -> _Reader:
    def read(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        after = at + width
        if after > end:
            _short(name, at, width, end)
        return make(buffer[at:after]), after

    return read


def _boolean(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    if at >= end:
        _short("boolean", at, 1, end)
    if buffer[at] > 1:
        raise DecodeError(f"a boolean byte is 0 or 1, not {buffer[at]}", at)
    return buffer[at] == 1, at + 1


_double_unpack = Struct(">d").unpack


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


@lru_cache(maxsize=1024)
def _short_symbol(raw: bytes) -> Symbol:
    return Symbol(raw, "utf-8", "surrogateescape")


def _symbol(raw: bytes) -> Symbol:
    # Symbols are names, and the same few come again with every message; only short ones are kept, so that nobody can fill the memory.
    return _short_symbol(raw) if len(raw) <= 64 else Symbol(raw, "utf-8", "surrogateescape")


def _variable_8(name: str, make: Callable[[bytes], Value]) -> _Reader:
    def read(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at >= end:
            _short(f"the size of a {name}", at, 1, end)
        start = at + 1
        after = start + buffer[at]
        if after > end:
            _short(name, start, after - start, end)
        return make(buffer[start:after]), after

    return read


def _variable_32(name: str, make: Callable[[bytes], Value]) -> _Reader:
    def read(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        start = at + 4
        if start > end:
            _short(f"the size of a {name}", at, 4, end)
        after = start + _U32(buffer, at)[0]
        if after > end:
            _short(name, start, after - start, end)
        return make(buffer[start:after]), after

    return read


def _string_8(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    """What most values are; written out, it saves a call each."""
    if at >= end:
        _short("the size of a string", at, 1, end)
    start = at + 1
    after = start + buffer[at]
    if after > end:
        _short("string", start, after - start, end)
    return buffer[start:after].decode("utf-8", "surrogateescape"), after


def _frame(buffer: bytes, at: int, end: int, width: int, what: str) -> tuple[int, int, int]:
    """Of a compound or array: the count of its items, where they start, where they end."""
    start = at + 2 * width
    if start > end:
        _short(f"the size and count of a {what}", at, 2 * width, end)
    if width == 1:
        size, count = buffer[at], buffer[at + 1]
    else:
        size, count = _U32(buffer, at)[0], _U32(buffer, at + 4)[0]
    stop = at + width + size
    if stop > end:
        _short(what, at + width, size, end)
    if stop < start:
        raise DecodeError(f"a {what} of size {size} has no room for its own count", at)
    return count, start, stop


def _items(buffer: bytes, at: int, stop: int, count: int, depth: int, what: str) -> list[Value]:
    if count > stop - at:
        raise DecodeError(f"a {what} of {count} items cannot fit in {stop - at} bytes", at)
    if depth >= MAX_DEPTH:
        raise DecodeError(f"nested deeper than {MAX_DEPTH} levels", at)
    items: list[Value] = []
    append = items.append
    depth += 1
    for _ in range(count):
        if at >= stop:
            _short(f"an item of a {what}", at, 1, stop)
        reader = _READERS[buffer[at]]
        if reader is None:
            _unknown(buffer, at)
        value, at = reader(buffer, at + 1, stop, depth)
        append(value)
    if at != stop:
        raise DecodeError(f"{stop - at} bytes of a {what} are left after its {count} items", at)
    return items


def _list(width: int) -> _Reader:
    def read(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        count, start, stop = _frame(buffer, at, end, width, "list")
        return tuple(_items(buffer, start, stop, count, depth, "list")), stop

    return read


def _map(width: int) -> _Reader:
    def read(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        count, start, stop = _frame(buffer, at, end, width, "map")
        if count % 2:
            raise DecodeError(f"a map has an even number of items, not {count}", at)
        items = _items(buffer, start, stop, count, depth, "map")
        return Map.of(tuple(zip(items[::2], items[1::2], strict=True))), stop

    return read


def _array(width: int) -> _Reader:
    def read(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        count, start, stop = _frame(buffer, at, end, width, "array")
        return _array_items(buffer, start, stop, count, depth), stop

    return read


def _array_items(buffer: bytes, at: int, stop: int, count: int, depth: int) -> Array:
    if depth >= MAX_DEPTH:
        raise DecodeError(f"nested deeper than {MAX_DEPTH} levels", at)
    descriptor: Value = None
    if at >= stop:
        _short("the element constructor of an array", at, 1, stop)
    if buffer[at] == c.DESCRIBED:
        descriptor, at = _value(buffer, at + 1, stop, depth + 1)
        if descriptor is None:
            raise DecodeError("the elements of an array are described by null, which this codec cannot hold", at - 1)
        if at >= stop:
            _short("the element constructor of an array", at, 1, stop)
        if buffer[at] == c.DESCRIBED:
            raise DecodeError("the elements of an array are described twice, which this codec cannot hold", at)
    code = buffer[at]
    reader = _READERS[code]
    if reader is None:
        _unknown(buffer, at)
    at += 1
    width = c.FIXED_WIDTH.get(code >> 4)
    if width == 0:
        if count > c.MAX_EMPTY_ELEMENTS:
            raise DecodeError(f"an array of {count} elements without bytes (at most {c.MAX_EMPTY_ELEMENTS} are read)", at)
    elif count > (stop - at) // (width or c.SIZE_WIDTH[code >> 4]):
        raise DecodeError(f"an array of {count} items cannot fit in {stop - at} bytes", at)
    layout = _BULK.get(code)
    items: tuple[Value, ...]
    if width == 0:
        items = _empty_items(code, count)
    elif layout is not None and width:
        items = Struct(f">{count}{layout}").unpack_from(buffer, at)
        at += count * width
    else:
        decoded: list[Value] = []
        for _ in range(count):
            value, at = reader(buffer, at, stop, depth + 1)
            decoded.append(value)
        items = tuple(decoded)
    if at != stop:
        raise DecodeError(f"{stop - at} bytes of an array are left after its {count} items", at)
    return Array(c.TYPE_NAMES[code], items, descriptor)


@cache
def _empty_items(code: int, count: int) -> tuple[Value, ...]:
    """The items of an array whose elements have no bytes; shared, because three bytes on the wire can ask for them."""
    value, _ = _BY_CODE[code](b"", 0, 0, 0)
    return (int(value) if code in (c.UINT_0, c.ULONG_0) else value,) * count


def _described(buffer: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    if depth >= MAX_DEPTH:
        raise DecodeError(f"nested deeper than {MAX_DEPTH} levels", at)
    descriptor, at = _value(buffer, at, end, depth + 1)
    value, at = _value(buffer, at, end, depth + 1)
    return Described(descriptor, value), at


# Element constructors whose items a single unpack reads at once.
_BULK: dict[int, str] = {
    c.UBYTE: "B",
    c.USHORT: "H",
    c.UINT: "I",
    c.SMALL_UINT: "B",
    c.ULONG: "Q",
    c.SMALL_ULONG: "B",
    c.BYTE: "b",
    c.SHORT: "h",
    c.INT: "i",
    c.SMALL_INT: "b",
    c.LONG: "q",
    c.SMALL_LONG: "b",
    c.DOUBLE: "d",
    c.CHAR: "I",
    c.TIMESTAMP: "q",
}

_BY_CODE: dict[int, _Reader] = {
    c.DESCRIBED: _described,
    c.NULL: _constant(None),
    c.TRUE: _constant(True),
    c.FALSE: _constant(False),
    c.BOOLEAN: _boolean,
    c.UBYTE: _byte(UByte, ">B"),
    c.USHORT: _integer(UShort, ">H"),
    c.UINT: _integer(UInt, ">I"),
    c.SMALL_UINT: _byte(UInt, ">B"),
    c.UINT_0: _constant(UInt(0)),
    c.ULONG: _integer(ULong, ">Q"),
    c.SMALL_ULONG: _byte(ULong, ">B"),
    c.ULONG_0: _constant(ULong(0)),
    c.BYTE: _byte(Byte, ">b"),
    c.SHORT: _integer(Short, ">h"),
    c.INT: _integer(Int, ">i"),
    c.SMALL_INT: _byte(Int, ">b"),
    c.LONG: _integer(Long, ">q"),
    c.SMALL_LONG: _byte(Long, ">b"),
    c.FLOAT: _fixed("float", 4, Float.from_wire),
    c.DOUBLE: _fixed("double", 8, lambda raw: _double_unpack(raw)[0]),
    c.DECIMAL32: _fixed("decimal32", 4, Decimal32),
    c.DECIMAL64: _fixed("decimal64", 8, Decimal64),
    c.DECIMAL128: _fixed("decimal128", 16, Decimal128),
    c.CHAR: _integer(Char, ">I"),
    c.TIMESTAMP: _integer(Timestamp, ">q"),
    c.UUID_: _fixed("uuid", 16, lambda raw: UUID(bytes=raw)),
    c.BINARY_8: _variable_8("binary", bytes),
    c.BINARY_32: _variable_32("binary", bytes),
    c.STRING_8: _string_8,
    c.STRING_32: _variable_32("string", _text),
    c.SYMBOL_8: _variable_8("symbol", _symbol),
    c.SYMBOL_32: _variable_32("symbol", _symbol),
    c.LIST_0: _constant(()),
    c.LIST_8: _list(1),
    c.LIST_32: _list(4),
    c.MAP_8: _map(1),
    c.MAP_32: _map(4),
    c.ARRAY_8: _array(1),
    c.ARRAY_32: _array(4),
}
_READERS: list[_Reader | None] = [_BY_CODE.get(code) for code in range(256)]
