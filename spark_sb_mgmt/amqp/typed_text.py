"""The typed map form of CONTRACT.md, section 2: every AMQP value as a pair (type, text), and back.

The one rule: nothing is lost. Reading a pair gives a value whose encoding is the one that was written, byte for byte.

    null           no text
    boolean        true, false
    integers       decimal
    float, double  the shortest text that reads back the same; inf, -inf, nan; a NaN of other bits is nan:<hex bytes>
    decimal*       hex bytes
    char           the character; U+<hex> where the number is no Unicode scalar value (one character is never that long)
    timestamp      2024-05-01T12:00:00.000Z; integer milliseconds outside the years 1 to 9999. Both are read, whatever the year
    uuid           8-4-4-4-12
    binary         base64
    string, symbol the text itself. Bytes that are not UTF-8 have the types string;base64 and symbol;base64
    list           JSON: [node, ...]                 where a node is [type, content], and the content is
    map            JSON: [[node, node], ...]         null for a null, a string for a scalar's text,
    array          JSON: {"of": type, "items": [content, ...]}, with "descriptor": node if its elements are described
    described      JSON: {"descriptor": node, "value": node}         and JSON, not JSON in a string, for the rest

A key of a section's map is its plain text if it has the section's own key type (string for application-properties, symbol for
annotations and footer), and `<type>:<text>` otherwise. A plain key that looks like that is written with its own type before it.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from struct import Struct
from typing import Any, TypeVar
from uuid import UUID

import numpy as np

from spark_sb_mgmt.amqp.decode import MAX_DEPTH
from spark_sb_mgmt.amqp.encode import utf8
from spark_sb_mgmt.amqp.message import Header, Properties, as_field
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
from spark_sb_mgmt.errors import EncodeError

TypedText = tuple[str, "str | None"]
TypedSection = list[tuple[str, TypedText]]
_Content = Any  # None, a string, or the JSON structure of a composite value
_Fields = TypeVar("_Fields", Header, Properties)

_BASE64 = ";base64"
_INTEGERS: dict[str, Callable[[int], Value]] = {kind.amqp_type: kind for kind in (UByte, UShort, UInt, ULong, Byte, Short, Int, Long)}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
ISO_MINIMUM = (datetime.min.replace(tzinfo=timezone.utc) - _EPOCH) // _MILLISECOND
ISO_MAXIMUM = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // _MILLISECOND
_F32, _F64 = Struct(">f"), Struct(">d")


def to_typed(value: Value) -> TypedText:
    """The AMQP type of a value, and its text."""
    kind, content = _node(value, 0)
    return kind, content if content is None or type(content) is str else _dumps(content)


def to_text(value: Value) -> str | None:
    """The text alone, for columns that have no place for the type. Bytes that are not UTF-8 are shown as backslash escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return to_typed(value)[1]


def from_typed(type: str, text: str | None) -> Value:
    """The value that `to_typed` described."""
    return _from_typed(type, text, 0)


def section_to_typed(section: Map | Header | Properties | None, key_type: str = "symbol") -> TypedSection | None:
    """A section, pair by pair in its order; of a header or properties, the fields that are not null, by their names in AMQP."""
    if section is None:
        return None
    if isinstance(section, Map):
        return [(_key_text(key, key_type), to_typed(value)) for key, value in section.pairs]
    named = zip(section.FIELDS, fields(section), strict=True)
    values = [(name, as_field(section, name, kind, getattr(section, field.name))) for (name, kind), field in named]
    return [(name, to_typed(value)) for name, value in values if value is not None]


def section_from_typed(entries: Iterable[tuple[str, TypedText]] | None, key_type: str = "symbol") -> Map | None:
    """The map that `section_to_typed` described."""
    if entries is None:
        return None
    return Map([(_key(key, key_type), _named(key, typed)) for key, typed in entries])


def fields_from_typed(kind: type[_Fields], entries: Iterable[tuple[str, TypedText]] | None) -> _Fields | None:
    """The header or properties that `section_to_typed` described."""
    if entries is None:
        return None
    names = {name: field.name for (name, _), field in zip(kind.FIELDS, fields(kind), strict=True)}
    found: dict[str, Value] = {}
    for key, typed in entries:
        if key not in names:
            raise EncodeError(f"{kind.__name__.lower()} has no field {key!a:.80}; its fields are {', '.join(names)}")
        found[names[key]] = _named(key, typed)
    return kind(**found)


def _named(key: str, typed: TypedText) -> Value:
    try:
        # One level is the section's own: what is read here must decode again from inside it.
        return _from_typed(*typed, 1)
    except EncodeError as problem:
        raise EncodeError(f"{key!a:.80}: {problem.problem}") from None


# --- keys ---------------------------------------------------------------------------------------------------------------


def _key_text(key: Value, own: str) -> str:
    kind, text = to_typed(key)
    if kind == own and text is not None and not _TYPE_PREFIX.match(text):
        return text
    return f"{kind}:{text or ''}"


def _key(text: str, own: str) -> Value:
    prefix = _TYPE_PREFIX.match(text)
    if prefix is None:
        return from_typed(own, text)
    kind, rest = prefix[1], text[prefix.end() :]
    try:
        return _from_typed(kind, None if kind == "null" and not rest else rest, 1)
    except EncodeError as problem:
        raise EncodeError(f"key {text!a:.80}: {problem.problem}") from None


# --- values to text -----------------------------------------------------------------------------------------------------


def _node(value: Value, depth: int) -> tuple[str, _Content]:
    """The type and content of a value that stands `depth` levels deep."""
    if isinstance(value, str):
        return _text_node(value, "symbol" if isinstance(value, Symbol) else "string")
    kind = type_name(value)
    write = _WRITERS.get(kind)
    if write is not None:
        return kind, write(value)
    return kind, _COMPOSITES[kind](value, _deeper(depth))


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise EncodeError(f"a value nested deeper than {MAX_DEPTH} levels")
    return depth + 1


def _text_node(value: str, kind: str) -> tuple[str, str]:
    try:
        value.encode()
    except UnicodeEncodeError:
        return kind + _BASE64, _base64(utf8(value))
    return kind, str(value)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _dumps(content: _Content) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _integer_text(value: int) -> str:
    return int.__repr__(value)


def _float_text(value: Float) -> str:
    special = _special(value, value.wire, "7fc00000")
    if special is not None:
        return special
    text = str(np.float32(value))
    # The text is read as a double and then narrowed; where rounding twice goes astray, the double's own digits are exact.
    return text if _F32.pack(float(text)) == value.wire else repr(float(value))


def _double_text(value: float) -> str:
    return _special(value, _F64.pack(value), "7ff8000000000000") or float.__repr__(value)


def _special(value: float, wire: bytes, nan: str) -> str | None:
    if math.isfinite(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return "nan" if wire.hex() == nan else f"nan:{wire.hex()}"


def _char_text(value: int) -> str:
    return chr(value) if value <= 0x10FFFF and not 0xD800 <= value <= 0xDFFF else f"U+{int(value):04X}"


def _timestamp_text(value: int) -> str:
    if not ISO_MINIMUM <= value <= ISO_MAXIMUM:
        return int.__repr__(value)
    moment = _EPOCH + timedelta(milliseconds=int(value))
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


_WRITERS: dict[str, Callable[[Value], str | None]] = {
    "null": lambda value: None,
    "boolean": lambda value: "true" if value else "false",
    **dict.fromkeys(_INTEGERS, _integer_text),
    "float": _float_text,
    "double": _double_text,
    **dict.fromkeys(("decimal32", "decimal64", "decimal128"), bytes.hex),
    "char": _char_text,
    "timestamp": _timestamp_text,
    "uuid": str,
    "binary": _base64,
}


def _list_content(value: Sequence[Value], depth: int) -> _Content:
    return [_node(item, depth) for item in value]


def _map_content(value: Map | dict[Value, Value], depth: int) -> _Content:
    pairs = value.pairs if isinstance(value, Map) else value.items()
    return [(_node(key, depth), _node(item, depth)) for key, item in pairs]


def _described_content(value: Described, depth: int) -> _Content:
    return {"descriptor": _node(value.descriptor, depth), "value": _node(value.value, depth)}


def _array_content(value: Array, depth: int) -> _Content:
    as_element = _ELEMENT_TYPES.get(value.of, lambda item: item)
    items = [as_element(item) for item in value.items]
    for item in items:
        if type_name(item) != value.of:
            raise EncodeError(f"{item!r:.80} is an AMQP {type_name(item)} in an array of {value.of}")
    nodes = [_node(item, depth) for item in items]
    content: dict[str, _Content] = {"of": value.of, "items": [node[1] for node in nodes]}
    if any(kind.endswith(_BASE64) for kind, _ in nodes):
        # One type for all elements: the valid ones among invalid UTF-8 go the same way.
        content = {"of": value.of + _BASE64, "items": [_base64(utf8(item)) for item in items]}
    if value.descriptor is not None:
        content["descriptor"] = _node(value.descriptor, depth)
    return content


# Elements of an array may be plain Python values, since the array knows their type.
_ELEMENT_TYPES: dict[str, Callable[[Value], Value]] = {
    **_INTEGERS,
    "char": Char,
    "timestamp": Timestamp,
    "float": lambda item: Float(item) if type(item) is float else item,
    "symbol": lambda item: Symbol(item) if type(item) is str else item,
}
_COMPOSITES: dict[str, Callable[[Value, int], _Content]] = {
    "list": _list_content,
    "map": _map_content,
    "array": _array_content,
    "described": _described_content,
}


# --- text to values -----------------------------------------------------------------------------------------------------


def _from_typed(kind: str | None, text: str | None, depth: int) -> Value:
    if kind in _COMPOSITES and isinstance(text, str):
        return _value(kind, _loads(kind, text), depth)
    return _value(kind, text, depth)


# A map is three brackets a level, for itself, the pair and the node; no other type has more.
_MAX_BRACKETS = 3 * (MAX_DEPTH + 1)
_JSON_STRINGS_AND_REST = re.compile(r'"(?:[^"\\]|\\.)*"?|[^"\[\]{}]+', re.DOTALL)


def _loads(kind: str, text: str) -> _Content:
    depth = 0
    # Counted beforehand, since the JSON reader is recursive and gives up only at the end of Python's stack.
    for bracket in _JSON_STRINGS_AND_REST.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > _MAX_BRACKETS:
            raise EncodeError(f"the JSON of a {kind} is nested deeper than {MAX_DEPTH} AMQP levels can be")
    try:
        return json.loads(text)
    except ValueError as problem:
        raise EncodeError(f"the text of a {kind} is not JSON ({problem}): {text!a:.80}") from None


def _value(kind: str | None, content: _Content, depth: int) -> Value:
    """The value of a node that stands `depth` levels deep."""
    if kind in _COMPOSITES:
        if not isinstance(content, (list, dict)):
            raise EncodeError(f"a {kind} needs JSON that describes it, not {content!a:.80}")
        return _COMPOSITE_READERS[kind](content, _deeper(depth))
    if kind == "null":
        if content is not None:
            raise EncodeError(f"a null has no text, not {content!a:.80}")
        return None
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if kind is None or read is None:
        raise EncodeError(f"{kind!a:.80} is no AMQP type; the types are {', '.join(_TYPES)}")
    if content is None:
        raise EncodeError(f"a {kind} needs a text; a null value has the type null")
    if not isinstance(content, str):
        raise EncodeError(f"a {kind} needs a text, not {content!a:.80}")
    try:
        return read(content)
    except EncodeError:
        raise
    except ValueError:
        raise EncodeError(f"{content!a:.80} is not the text of a {kind}") from None


def _matched(pattern: str, text: str) -> re.Match[str]:
    found = re.fullmatch(pattern, text, re.ASCII)
    if found is None:
        raise ValueError(text)
    return found


def _read_boolean(text: str) -> bool:
    return {"true": True, "false": False}[_matched("true|false", text)[0]]


def _integer_reader(kind: Callable[[int], Value]) -> Callable[[str], Value]:
    # No AMQP integer has more than twenty digits; more would only keep Python busy.
    return lambda text: kind(int(_matched(r"[+-]?\d{1,20}", text)[0]))


_NUMBER = r"([+-]?)(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(inf|infinity)|(nan)(?::([0-9a-f]+))?)"


def _float_wire(text: str, layout: Struct) -> bytes:
    found = _matched(f"(?i:{_NUMBER})", text)
    if found[4] is not None:
        wire = bytes.fromhex(found[4])
        if found[1] or len(wire) != layout.size or not math.isnan(layout.unpack(wire)[0]):
            raise EncodeError(f"{text!a:.80} does not hold the {layout.size} bytes of a NaN")
        return wire
    number = float(found[0])
    try:
        if math.isinf(number) and found[2] is None:
            raise OverflowError
        return layout.pack(math.nan if math.isnan(number) else number)
    except OverflowError:
        raise EncodeError(f"{text!a:.80} is beyond the range of {layout.size * 8} bits") from None


def _read_float(text: str) -> Float:
    return Float.from_wire(_float_wire(text, _F32))


def _read_double(text: str) -> float:
    return float(_F64.unpack(_float_wire(text, _F64))[0])


def _read_char(text: str) -> Value:
    if len(text) == 1:
        return Char(ord(text.encode().decode()))
    return Char(int(_matched(r"U\+([0-9A-Fa-f]{1,8})", text)[1], 16))


_ISO = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,3}))?Z"


def _read_timestamp(text: str) -> Value:
    if not text.endswith("Z"):
        return _integer_reader(Timestamp)(text)
    found = _matched(_ISO, text)
    moment = datetime.fromisoformat(found[1]).replace(tzinfo=timezone.utc)
    return Timestamp((moment - _EPOCH) // _MILLISECOND + int((found[2] or "0").ljust(3, "0")))


def _read_text(kind: type[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise EncodeError(f"{text!a:.80} is not Unicode; use the type {kind.__name__.lower()}{_BASE64}") from None
        return kind(text)

    return read


def _read_base64(text: str) -> bytes:
    return b64decode(text, validate=True)


def _opaque_reader(kind: Callable[[bytes], Value]) -> Callable[[str], Value]:
    return lambda text: kind(bytes.fromhex(_matched("[0-9a-fA-F]*", text)[0]))


_READERS: dict[str, Callable[[str], Value]] = {
    "boolean": _read_boolean,
    **{name: _integer_reader(kind) for name, kind in _INTEGERS.items()},
    "float": _read_float,
    "double": _read_double,
    **{kind.amqp_type: _opaque_reader(kind) for kind in (Decimal32, Decimal64, Decimal128)},
    "char": _read_char,
    "timestamp": _read_timestamp,
    "uuid": lambda text: UUID(_matched("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text)[0]),
    "binary": _read_base64,
    "string": _read_text(str),
    "symbol": _read_text(Symbol),
    "string;base64": lambda text: _read_base64(text).decode("utf-8", "surrogateescape"),
    "symbol;base64": lambda text: Symbol(_read_base64(text), "utf-8", "surrogateescape"),
}


def _read_node(content: _Content, depth: int) -> Value:
    if not isinstance(content, list) or len(content) != 2 or not isinstance(content[0], str):
        raise EncodeError(f"a JSON node is [type, content], not {_shown(content)}")
    return _value(content[0], content[1], depth)


def _shown(content: _Content) -> str:
    text = _dumps(content)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _read_list(content: _Content, depth: int) -> Value:
    if not isinstance(content, list):
        raise EncodeError(f"a list is a JSON array of nodes, not {_shown(content)}")
    return tuple(_read_node(item, depth) for item in content)


def _read_map(content: _Content, depth: int) -> Value:
    if not isinstance(content, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in content):
        raise EncodeError(f"a map is a JSON array of pairs of nodes, not {_shown(content)}")
    return Map([(_read_node(key, depth), _read_node(item, depth)) for key, item in content])


def _read_described(content: _Content, depth: int) -> Value:
    if not isinstance(content, dict) or set(content) != {"descriptor", "value"}:
        raise EncodeError(f'a described value is {{"descriptor": node, "value": node}}, not {_shown(content)}')
    return Described(_read_node(content["descriptor"], depth), _read_node(content["value"], depth))


def _read_array(content: _Content, depth: int) -> Value:
    if not isinstance(content, dict) or set(content) - {"descriptor"} != {"of", "items"} or not isinstance(content["items"], list):
        raise EncodeError(f'an array is {{"of": type, "items": [...]}}, not {_shown(content)}')
    kind = content["of"]
    if not isinstance(kind, str) or kind not in _TYPES or kind == "described":
        raise EncodeError(f"there is no array of {_shown(kind)}")
    items = [_value(kind, item, depth) for item in content["items"]]
    of = kind.removesuffix(_BASE64)
    if of in _INTEGERS or of in ("char", "timestamp"):
        items = [int(item) for item in items]
    descriptor = _read_node(content["descriptor"], depth) if "descriptor" in content else None
    return Array(of, items, descriptor)


_COMPOSITE_READERS: dict[str, Callable[[_Content, int], Value]] = {
    "list": _read_list,
    "map": _read_map,
    "array": _read_array,
    "described": _read_described,
}
_TYPES = ("null", *_READERS, *_COMPOSITES)
_TYPE_PREFIX = re.compile(f"({'|'.join(map(re.escape, sorted(_TYPES, reverse=True)))}):")
