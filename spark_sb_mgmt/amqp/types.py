"""AMQP 1.0 types as Python values (specification part 1, section 1.6).

The one rule: a value knows its AMQP type. Where Python has a type of its own that says it (None, bool,
float, bytes, str, UUID) that type is used; where it has not, a subclass here does. A bare Python `int` has no AMQP
type and is refused by the encoder, because `int`, `uint` and `long` are different things to the service.

    null None · boolean bool · ubyte UByte · ushort UShort · uint UInt · ulong ULong · byte Byte · short Short · int Int ·
    long Long · float Float · double float · decimal* Decimal32/64/128 (opaque bytes) · char Char · timestamp Timestamp ·
    uuid UUID · binary bytes · string str · symbol Symbol · list tuple (list is taken too) · map Map (dict is taken too) ·
    array Array · described Described

Text that is not valid UTF-8 is held with lone surrogates (PEP 383 "surrogateescape"), so encoding it
again gives the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar
from uuid import UUID

from spark_sb_mgmt.errors import EncodeError

__all__ = [
    "UUID",
    "Array",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "Float",
    "Int",
    "Long",
    "Map",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "Value",
    "type_name",
]

# A value of any AMQP type; the recursion through tuples and maps is beyond what the type checker can follow.
Value = Any


class _Integer(int):
    """An integer that knows its AMQP type. The decoder makes them with `int.__new__`: the wire cannot exceed the range."""

    __slots__ = ()
    amqp_type: ClassVar[str]
    minimum: ClassVar[int]
    maximum: ClassVar[int]

    def __new__(cls, value: int) -> _Integer:
        if not cls.minimum <= value <= cls.maximum:
            raise EncodeError(f"{value} is outside AMQP {cls.amqp_type} ({cls.minimum} to {cls.maximum})")
        return int.__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class UByte(_Integer):
    __slots__ = ()
    amqp_type, minimum, maximum = "ubyte", 0, 2**8 - 1


class UShort(_Integer):
    __slots__ = ()
    amqp_type, minimum, maximum = "ushort", 0, 2**16 - 1


class UInt(_Integer):
    __slots__ = ()
    amqp_type, minimum, maximum = "uint", 0, 2**32 - 1


class ULong(_Integer):
    __slots__ = ()
    amqp_type, minimum, maximum = "ulong", 0, 2**64 - 1


class Byte(_Integer):
    __slots__ = ()
    amqp_type, minimum, maximum = "byte", -(2**7), 2**7 - 1


class Short(_Integer):
    __slots__ = ()
    amqp_type, minimum, maximum = "short", -(2**15), 2**15 - 1


class Int(_Integer):
    __slots__ = ()
    amqp_type, minimum, maximum = "int", -(2**31), 2**31 - 1


class Long(_Integer):
    __slots__ = ()
    amqp_type, minimum, maximum = "long", -(2**63), 2**63 - 1


class Timestamp(_Integer):
    """Milliseconds since the Unix epoch, UTC."""

    __slots__ = ()
    amqp_type, minimum, maximum = "timestamp", -(2**63), 2**63 - 1


class Char(_Integer):
    """A UTF-32 code unit. An int, not a str: the wire can carry numbers that are no character."""

    __slots__ = ()
    amqp_type, minimum, maximum = "char", 0, 2**32 - 1


class Float(float):
    """A 32-bit IEEE 754 number, kept as its four bytes: Python's double would quieten a signalling NaN."""

    __slots__ = ("wire",)
    amqp_type: ClassVar[str] = "float"
    wire: bytes

    def __new__(cls, value: float) -> Float:
        try:
            return cls.from_wire(struct.pack(">f", value))
        except OverflowError:
            raise EncodeError(f"{value!r} is outside AMQP float; use a double (a plain Python float)") from None

    @classmethod
    def from_wire(cls, wire: bytes) -> Float:
        self = float.__new__(cls, struct.unpack(">f", wire)[0])
        self.wire = wire
        return self

    def __getnewargs__(self) -> tuple[float]:
        return (float(self),)

    def __repr__(self) -> str:
        return f"Float({float(self)!r})"


class _Opaque(bytes):
    """An IEEE 754 decimal: kept byte for byte, never computed with."""

    __slots__ = ()
    amqp_type: ClassVar[str]
    width: ClassVar[int]

    def __new__(cls, value: bytes) -> _Opaque:
        if len(value) != cls.width:
            raise EncodeError(f"AMQP {cls.amqp_type} is {cls.width} bytes, not {len(value)}")
        return bytes.__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({bytes(self)!r})"


class Decimal32(_Opaque):
    __slots__ = ()
    amqp_type, width = "decimal32", 4


class Decimal64(_Opaque):
    __slots__ = ()
    amqp_type, width = "decimal64", 8


class Decimal128(_Opaque):
    __slots__ = ()
    amqp_type, width = "decimal128", 16


class Symbol(str):
    """A symbolic value. Equal to the string of the same text, so that maps can be searched without caring."""

    __slots__ = ()
    amqp_type: ClassVar[str] = "symbol"

    def __repr__(self) -> str:
        return f"Symbol({str.__repr__(self)})"


class Map:
    """An AMQP map: its pairs in wire order, keys of any type. `get` and `[]` find a key by text, string or symbol alike.

    Pairs, not a dict: Python holds Int(1), Long(1), True and 1.0 for one key, AMQP does not.
    """

    __slots__ = ("_index", "pairs")
    pairs: tuple[tuple[Value, Value], ...]
    _index: dict[str, Value] | None

    def __init__(self, pairs: Iterable[tuple[Value, Value]] | Mapping[Any, Value] = ()) -> None:
        self.pairs = tuple(pairs.items()) if isinstance(pairs, Mapping) else tuple(pairs)
        self._index = None

    @classmethod
    def of(cls, pairs: tuple[tuple[Value, Value], ...]) -> Map:
        """A map of pairs that are a tuple already: the decoder's way, which need not ask what it was given."""
        self = cls.__new__(cls)
        self.pairs, self._index = pairs, None
        return self

    @property
    def _by_text(self) -> dict[str, Value]:
        if self._index is None:
            self._index = {key: value for key, value in self.pairs if isinstance(key, str)}
        return self._index

    def get(self, key: str, default: Value = None) -> Value:
        return self._by_text.get(key, default)

    def __getitem__(self, key: str) -> Value:
        return self._by_text[key]

    def __contains__(self, key: str) -> bool:
        return key in self._by_text

    def __iter__(self) -> Iterator[tuple[Value, Value]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Map) and self.pairs == other.pairs

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __repr__(self) -> str:
        return f"Map({list(self.pairs)!r})"


class Array:
    """An AMQP array: one element type for all, so that its items may be plain Python values.

    `of` is the AMQP type name of the elements; with `descriptor` given, every element is described by it.
    """

    __slots__ = ("descriptor", "items", "of")

    def __init__(self, of: str, items: Iterable[Value], descriptor: Value = None) -> None:
        self.of = of
        self.items = tuple(items)
        self.descriptor = descriptor

    def __iter__(self) -> Iterator[Value]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and (self.of, self.descriptor, self.items) == (
            other.of,
            other.descriptor,
            other.items,
        )

    def __hash__(self) -> int:
        return hash((self.of, self.descriptor, self.items))

    def __repr__(self) -> str:
        described = "" if self.descriptor is None else f", descriptor={self.descriptor!r}"
        return f"Array({self.of!r}, {list(self.items)!r}{described})"


class Described:
    """A described value: a descriptor (ulong or symbol, by custom) and the value it describes."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: Value, value: Value) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and (self.descriptor, self.value) == (other.descriptor, other.value)

    def __hash__(self) -> int:
        return hash((self.descriptor, self.value))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


_PYTHON_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    float: "double",
    bytes: "binary",
    str: "string",
    UUID: "uuid",
    tuple: "list",
    list: "list",
    Map: "map",
    dict: "map",
    Array: "array",
    Described: "described",
}
_PYTHON_TYPES.update(
    (kind, kind.amqp_type)
    for kind in (
        *(UByte, UShort, UInt, ULong, Byte, Short, Int, Long, Timestamp, Char),
        *(Float, Decimal32, Decimal64, Decimal128, Symbol),
    )
)


def type_name(value: Value) -> str:
    """The AMQP type of a value, or an error that says how to give it one."""
    name = _PYTHON_TYPES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, int):
        raise EncodeError(f"the Python int {value} has no AMQP type: say which, as in Int({value}) or Long({value})")
    raise EncodeError(f"a Python {type(value).__name__} has no AMQP type")
