"""Random values of every AMQP type, for the tests of every decoder and encoder; whole messages are in shapes.py.

values(max_depth)     a value of any AMQP type; compounds nested at most so deep
typed(name)           a value of the AMQP type of that name, no compound
arrays(max_depth)     an array of any element type, described or not
variant_choices()     a way for the reference encoder to write them
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

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


def maps(max_depth: int = 3, max_size: int = 4) -> Strategy:
    """A map with keys of any type, also compound ones."""
    inner = st.deferred(lambda: values(max_depth - 1))
    return st.lists(st.tuples(inner, inner), max_size=max_size).map(Map)


def arrays(max_depth: int = 3) -> Strategy:
    """An array of any element type; half of them described."""
    kinds = SCALAR_TYPES if max_depth <= 1 else SCALAR_TYPES + COMPOUND_TYPES
    return st.sampled_from(kinds).flatmap(lambda of: array_of(of, max_depth))


def array_of(of: str, max_depth: int = 3, max_size: int = 5) -> Strategy:
    elements: dict[str, Callable[[int], Strategy]] = {"list": lists, "map": maps, "array": arrays}
    items = elements[of](max_depth - 1) if of in elements else typed(of).map(_as_element)
    return st.builds(Array, st.just(of), st.lists(items, max_size=max_size), st.one_of(st.none(), typed("ulong"), typed("symbol")))


def _as_element(value: Value) -> Value:
    """The array says the type of its integers, so they are plain ones."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def variant_choices() -> st.SearchStrategy[reference.Choose]:
    """How the reference encoder may write a value: widest everywhere, or a mixture."""
    return st.one_of(st.just(reference.widest), st.integers(0, 2**32 - 1).map(reference.scattered))
