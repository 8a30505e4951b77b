"""A message with the AMQP type of everything in it, as proton reads it.

The one rule: proton alone reads. Our own decoder would forgive our own encoder, and reads an SDK's bytes as it likes.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import proton

# (type, value) of one value; of a list the value is a list of such, of a map a dict of key to such, of an array (type of items, items).
Typed = Any

SECTIONS: Final = {
    0x70: "header",
    0x71: "delivery-annotations",
    0x72: "message-annotations",
    0x73: "properties",
    0x74: "application-properties",
    0x75: "data",
    0x76: "amqp-sequence",
    0x77: "amqp-value",
    0x78: "footer",
}
# The sections that are lists of fields (AMQP 1.0 part 3, sections 3.2.1 and 3.2.4).
_FIELDS: Final = {
    "header": ("durable", "priority", "ttl", "first-acquirer", "delivery-count"),
    "properties": (
        "message-id",
        "user-id",
        "to",
        "subject",
        "reply-to",
        "correlation-id",
        "content-type",
        "content-encoding",
        "absolute-expiry-time",
        "creation-time",
        "group-id",
        "group-sequence",
        "reply-to-group-id",
    ),
}
# proton's classes before Python's own: most of them are subclasses of those.
_TYPES: Final = (
    (type(None), "null"),
    (bool, "boolean"),
    (proton.ubyte, "ubyte"),
    (proton.ushort, "ushort"),
    (proton.uint, "uint"),
    (proton.ulong, "ulong"),
    (proton.byte, "byte"),
    (proton.short, "short"),
    (proton.int32, "int"),
    (proton.timestamp, "timestamp"),
    (proton.float32, "float"),
    (proton.symbol, "symbol"),
    (proton.char, "char"),
    (int, "long"),
    (float, "double"),
    (str, "string"),
    (UUID, "uuid"),
)
_PLAIN: Final = {"boolean": bool, "float": float, "double": float, "symbol": str, "char": str, "string": str}


def typed(value: Any) -> Typed:
    """A value of proton's, as (AMQP type, plain value)."""
    if isinstance(value, memoryview | bytes):
        return "binary", bytes(value)
    if isinstance(value, dict):
        return "map", {_key(key): typed(item) for key, item in value.items()}
    if isinstance(value, proton.Array):
        return "array", (proton.Data.type_names[value.type].lower(), [typed(item)[1] for item in value.elements])
    if isinstance(value, list):
        return "list", [typed(item) for item in value]
    if isinstance(value, proton.Described):
        return "described", (typed(value.descriptor), typed(value.value))
    name = next(name for kind, name in _TYPES if isinstance(value, kind))
    return name, value if name in ("null", "uuid") else _PLAIN.get(name, int)(value)


def _key(key: Any) -> str:
    kind, text = typed(key)
    return str(text) if kind == "string" else f"{kind} {text}"


def sections(raw: bytes) -> dict[str, Typed]:
    """The sections of a message by name, those made of fields as maps of the fields that are not null."""
    found: dict[str, Typed] = {}
    at = 0
    while at < len(raw):
        data = proton.Data()
        at += data.decode(raw[at:])
        data.rewind()
        data.next()
        section = data.get_py_described()
        name = SECTIONS[int(section.descriptor)]
        assert name not in found, f"{name} twice"
        found[name] = typed(section.value) if name not in _FIELDS else ("map", _fields(name, section.value))
    return found


def _fields(section: str, values: list[Any]) -> dict[str, Typed]:
    return {name: typed(value) for name, value in zip(_FIELDS[section], values, strict=False) if value is not None}


def leaves(value: Typed, path: str = "") -> dict[str, Typed]:
    """Every value that holds no other, by the path to it; a map or list that is empty counts as one."""
    kind, content = value
    if kind == "map" and content:
        return {at: leaf for key, item in content.items() for at, leaf in leaves(item, f"{path}/{key}").items()}
    if kind == "list" and content:
        return {at: leaf for index, item in enumerate(content) for at, leaf in leaves(item, f"{path}[{index}]").items()}
    return {path: value}


def message_leaves(raw: bytes) -> dict[str, Typed]:
    """The leaves of a whole message. An encoded message inside, as schedule-message carries it, is taken apart as well."""
    found: dict[str, Typed] = {}
    for name, section in sections(raw).items():
        for path, leaf in leaves(section, name).items():
            inner = path.endswith("/message") and leaf[0] == "binary"
            found.update({f"{path}:{at}": each for at, each in message_leaves(leaf[1]).items()} if inner else {path: leaf})
    return found
