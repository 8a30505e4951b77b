"""The constructor bytes of AMQP 1.0 (specification part 1, section 1.6): the one table that decoders and encoder share.

The high nibble of a constructor tells how many bytes follow it (section 1.2): 0x4_ none, 0x5_ one, 0x6_ two, 0x7_ four, 0x8_
eight, 0x9_ sixteen, 0xA_/0xB_ a size of one/four bytes and that many bytes, 0xC_/0xD_ the same with a count of items inside,
0xE_/0xF_ the same for arrays. 0x00 announces a descriptor.
"""

from __future__ import annotations

DESCRIBED = 0x00
NULL = 0x40
TRUE, FALSE, BOOLEAN = 0x41, 0x42, 0x56
UBYTE, USHORT = 0x50, 0x60
UINT, SMALL_UINT, UINT_0 = 0x70, 0x52, 0x43
ULONG, SMALL_ULONG, ULONG_0 = 0x80, 0x53, 0x44
BYTE, SHORT = 0x51, 0x61
INT, SMALL_INT = 0x71, 0x54
LONG, SMALL_LONG = 0x81, 0x55
FLOAT, DOUBLE = 0x72, 0x82
DECIMAL32, DECIMAL64, DECIMAL128 = 0x74, 0x84, 0x94
CHAR, TIMESTAMP, UUID_ = 0x73, 0x83, 0x98
BINARY_8, BINARY_32 = 0xA0, 0xB0
STRING_8, STRING_32 = 0xA1, 0xB1
SYMBOL_8, SYMBOL_32 = 0xA3, 0xB3
LIST_0, LIST_8, LIST_32 = 0x45, 0xC0, 0xD0
MAP_8, MAP_32 = 0xC1, 0xD1
ARRAY_8, ARRAY_32 = 0xE0, 0xF0

TYPE_NAMES: dict[int, str] = {
    NULL: "null",
    **dict.fromkeys((TRUE, FALSE, BOOLEAN), "boolean"),
    UBYTE: "ubyte",
    USHORT: "ushort",
    **dict.fromkeys((UINT, SMALL_UINT, UINT_0), "uint"),
    **dict.fromkeys((ULONG, SMALL_ULONG, ULONG_0), "ulong"),
    BYTE: "byte",
    SHORT: "short",
    **dict.fromkeys((INT, SMALL_INT), "int"),
    **dict.fromkeys((LONG, SMALL_LONG), "long"),
    FLOAT: "float",
    DOUBLE: "double",
    DECIMAL32: "decimal32",
    DECIMAL64: "decimal64",
    DECIMAL128: "decimal128",
    CHAR: "char",
    TIMESTAMP: "timestamp",
    UUID_: "uuid",
    **dict.fromkeys((BINARY_8, BINARY_32), "binary"),
    **dict.fromkeys((STRING_8, STRING_32), "string"),
    **dict.fromkeys((SYMBOL_8, SYMBOL_32), "symbol"),
    **dict.fromkeys((LIST_0, LIST_8, LIST_32), "list"),
    **dict.fromkeys((MAP_8, MAP_32), "map"),
    **dict.fromkeys((ARRAY_8, ARRAY_32), "array"),
}

# Bytes after the constructor, by its high nibble: a fixed width, or the width of the size that comes first.
FIXED_WIDTH: dict[int, int] = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
SIZE_WIDTH: dict[int, int] = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}

# Elements without bytes (an array of null, of list0) cost nothing on the wire, so their count is bounded by nothing else.
MAX_EMPTY_ELEMENTS = 32
