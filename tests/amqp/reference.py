"""A second encoder, for tests only: it writes a value in any legal form, not only the canonical one (AMQP 1.0 part 1, section 1.6).

The one rule: it shares no code with the package's encoder. Given `shortest` it must produce the same bytes, which is a check of
both; given another choice it produces the forms that other peers may send, which is how decoders come to see every constructor.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any
from uuid import UUID

from spark_sb_mgmt.amqp import message as m
from spark_sb_mgmt.amqp import types as t

# From the legal forms of one value, shortest first, the one to write.
Choose = Callable[[list[bytes]], bytes]


def shortest(forms: list[bytes]) -> bytes:
    return forms[0]


def widest(forms: list[bytes]) -> bytes:
    return forms[-1]


def scattered(seed: int) -> Choose:
    """A different form each time, the same ones again for the same seed."""
    return random.Random(seed).choice


_FIXED: dict[Any, tuple[int, str]] = {
    t.UByte: (0x50, ">B"),
    t.UShort: (0x60, ">H"),
    t.UInt: (0x70, ">I"),
    t.ULong: (0x80, ">Q"),
    t.Byte: (0x51, ">b"),
    t.Short: (0x61, ">h"),
    t.Int: (0x71, ">i"),
    t.Long: (0x81, ">q"),
    t.Char: (0x73, ">I"),
    t.Timestamp: (0x83, ">q"),
    float: (0x82, ">d"),
}
_OPAQUE: dict[Any, int] = {t.Decimal32: 0x74, t.Decimal64: 0x84, t.Decimal128: 0x94}
# Type: the constructor of a single zero, if it has one; that of one byte, and how the byte is read.
_SHORT: dict[Any, tuple[int | None, int, str]] = {
    t.UInt: (0x43, 0x52, ">B"),
    t.ULong: (0x44, 0x53, ">B"),
    t.Int: (None, 0x54, ">b"),
    t.Long: (None, 0x55, ">b"),
}
_VARIABLE: dict[Any, tuple[int, int]] = {bytes: (0xA0, 0xB0), str: (0xA1, 0xB1), t.Symbol: (0xA3, 0xB3)}
_ELEMENT_TYPES: dict[str, Any] = {
    **{kind.amqp_type: kind for kind in (*(kind for kind in _FIXED if kind is not float), *_OPAQUE)},
    "double": float,
    "binary": bytes,
    "string": str,
    "symbol": t.Symbol,
}


def mostly_shortest(choice: random.Random, share: float) -> Choose:
    """The usual form in that share of cases, so that fast paths are seen too; any other in the rest."""
    return lambda forms: forms[0] if choice.random() < share else choice.choice(forms)


def encode(value: t.Value, choose: Choose = shortest) -> bytes:
    """A value in the form that `choose` picks, and so are the values inside it."""
    return choose([bytes((code,)) + body for code, body in _forms(value, choose)])


def _forms(value: t.Value, choose: Choose) -> list[tuple[int, bytes]]:
    """Every constructor that can carry the value, with the bytes that follow it, shortest first."""
    kind = type(value)
    if value is None:
        return [(0x40, b"")]
    if kind is bool:
        return [(0x41 if value else 0x42, b""), (0x56, bytes((value,)))]
    if kind in _SHORT:
        zero, short, layout = _SHORT[kind]
        forms = [(zero, b"")] if value == 0 and zero is not None else []
        if (0 if layout == ">B" else -128) <= value < (256 if layout == ">B" else 128):
            forms.append((short, struct.pack(layout, value)))
        return [*forms, (_FIXED[kind][0], struct.pack(_FIXED[kind][1], value))]
    if kind in _FIXED:
        code, layout = _FIXED[kind]
        return [(code, struct.pack(layout, value))]
    if kind is t.Float:
        return [(0x72, value.wire)]
    if kind in _OPAQUE:
        return [(_OPAQUE[kind], bytes(value))]
    if kind is UUID:
        return [(0x98, value.bytes)]
    if kind in _VARIABLE:
        narrow, wide = _VARIABLE[kind]
        raw = value if kind is bytes else value.encode("utf-8", "surrogateescape")
        return _sized(narrow, wide, b"", raw)
    if kind in (tuple, list):
        return _list_forms([encode(item, choose) for item in value])
    if kind in (t.Map, dict):
        return _map_forms([encode(part, choose) for pair in t.Map(value) for part in pair])
    if kind is t.Array:
        return _counted(0xE0, 0xF0, len(value.items), _array_body(value, choose))
    if kind is t.Described:
        return [(0x00, encode(value.descriptor, choose) + encode(value.value, choose))]
    raise AssertionError(f"no AMQP type: {value!r}")


def encode_list(items: list[bytes], choose: Choose) -> bytes:
    """A list of values that are encoded already."""
    return choose([bytes((code,)) + body for code, body in _list_forms(items)])


def encode_map(parts: list[bytes], choose: Choose) -> bytes:
    """A map of keys and values, one after the other, that are encoded already."""
    return choose([bytes((code,)) + body for code, body in _map_forms(parts)])


def _list_forms(items: list[bytes]) -> list[tuple[int, bytes]]:
    return [*([] if items else [(0x45, b"")]), *_counted(0xC0, 0xD0, len(items), b"".join(items))]


def _map_forms(parts: list[bytes]) -> list[tuple[int, bytes]]:
    return _counted(0xC1, 0xD1, len(parts), b"".join(parts))


def _sized(narrow: int, wide: int, prefix: bytes, raw: bytes) -> list[tuple[int, bytes]]:
    forms = [(wide, struct.pack(">I", len(raw)) + prefix + raw)]
    return [(narrow, bytes((len(raw),)) + prefix + raw), *forms] if len(raw) < 256 else forms


def _counted(narrow: int, wide: int, count: int, body: bytes) -> list[tuple[int, bytes]]:
    forms = [(wide, struct.pack(">II", len(body) + 4, count) + body)]
    if len(body) < 255 and count < 256:
        forms.insert(0, (narrow, bytes((len(body) + 1, count)) + body))
    return forms


def _array_body(array: t.Array, choose: Choose) -> bytes:
    """The element constructor and the elements: any constructor that can carry all of them."""
    kind = _ELEMENT_TYPES.get(array.of)
    items = [item if kind is None or type(item) is kind else kind(item) for item in array.items]
    by_code: dict[int, list[bytes]] = {code: [] for code in _ELEMENT_CODES[array.of]}
    for item in items:
        forms = dict(_forms(item, choose))
        by_code = {code: [*bodies, forms[code]] for code, bodies in by_code.items() if code in forms}
    descriptor = b"" if array.descriptor is None else b"\x00" + encode(array.descriptor, choose)
    return descriptor + choose([bytes((code,)) + b"".join(bodies) for code, bodies in by_code.items()])


# The constructors an array's elements may have. First comes what the package writes: full width for fixed ones, because the
# service refuses less; one-byte sizes for text where they do; four-byte sizes for compounds.
_ELEMENT_CODES: dict[str, tuple[int, ...]] = {
    **{kind.amqp_type: (_FIXED[kind][0],) for kind in _FIXED if kind is not float},
    **{kind.amqp_type: (_OPAQUE[kind],) for kind in _OPAQUE},
    "null": (0x40,),
    "boolean": (0x56, 0x41, 0x42),
    "uint": (0x70, 0x52, 0x43),
    "ulong": (0x80, 0x53, 0x44),
    "int": (0x71, 0x54),
    "long": (0x81, 0x55),
    "float": (0x72,),
    "double": (0x82,),
    "uuid": (0x98,),
    "binary": (0xA0, 0xB0),
    "string": (0xA1, 0xB1),
    "symbol": (0xA3, 0xB3),
    "list": (0xD0, 0xC0, 0x45),
    "map": (0xD1, 0xC1),
    "array": (0xF0, 0xE0),
}

_SECTION_SYMBOLS = {
    0x70: "amqp:header:list",
    0x71: "amqp:delivery-annotations:map",
    0x72: "amqp:message-annotations:map",
    0x73: "amqp:properties:list",
    0x74: "amqp:application-properties:map",
    0x75: "amqp:data:binary",
    0x76: "amqp:amqp-sequence:list",
    0x77: "amqp:amqp-value:*",
    0x78: "amqp:footer:map",
}


def encode_message(message: m.Message, choose: Choose = shortest, describe: Choose | None = None) -> bytes:
    """A message in the forms that `choose` picks; `describe` picks those of the section descriptors: small, full or symbolic."""
    return b"".join(_section(code, value, choose, describe or choose) for code, value in _sections(message))


def _section(code: int, value: t.Value, choose: Choose, describe: Choose) -> bytes:
    number = [bytes((form,)) + body for form, body in _forms(t.ULong(code), choose)]
    symbol = [bytes((form,)) + body for form, body in _forms(t.Symbol(_SECTION_SYMBOLS[code]), choose)]
    if code in (0x70, 0x73):
        # A list of fields may end in nulls or leave them out.
        lists = [encode(value[:length], choose) for length in range(_last_field(value), len(value) + 1)]
        return b"\x00" + describe(number + symbol) + choose(lists)
    return b"\x00" + describe(number + symbol) + encode(value, choose)


def _last_field(values: tuple[t.Value, ...]) -> int:
    return max((position + 1 for position, value in enumerate(values) if value is not None), default=0)


def _sections(message: m.Message) -> Iterable[tuple[int, t.Value]]:
    def listed(section: m.Header | m.Properties) -> tuple[t.Value, ...]:
        return tuple(getattr(section, field.name) for field in fields(section))

    if message.header is not None:
        yield 0x70, listed(message.header)
    if message.delivery_annotations is not None:
        yield 0x71, message.delivery_annotations
    if message.message_annotations is not None:
        yield 0x72, message.message_annotations
    if message.properties is not None:
        yield 0x73, listed(message.properties)
    if message.application_properties is not None:
        yield 0x74, message.application_properties
    if isinstance(message.body, m.Data):
        yield from ((0x75, section) for section in message.body.sections)
    elif isinstance(message.body, m.AmqpSequence):
        yield from ((0x76, section) for section in message.body.sections)
    elif isinstance(message.body, m.AmqpValue):
        yield 0x77, message.body.value
    if message.footer is not None:
        yield 0x78, message.footer
