"""The message around a management request, read, and around its answer, written (wire-facts.md section 1.0).

The one rule: whoever sent a message-id gets an answer that carries it, with the type that it had. So only bytes that are no message, or
whose message-id no answer may carry, raise; whatever else is wrong with the envelope is kept as `problem`, to be answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.encode import encode_described, encode_map, encode_value
from spark_sb_mgmt.amqp.message import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    PROPERTIES,
    AmqpValue,
    Message,
    Properties,
    decode_message,
    encode_fields,
)
from spark_sb_mgmt.amqp.native import native_sender
from spark_sb_mgmt.amqp.types import Int, Map, Symbol, Value, type_name
from spark_sb_mgmt.emulator.entities.faults import ServiceBusFault, decode_error
from spark_sb_mgmt.errors import DecodeError
from spark_sb_mgmt.operations import names

# For clients that send none.
DEFAULT_SERVER_TIMEOUT_MS: Final = 60_000
# Some clients leave out the prefix.
_BARE_SERVER_TIMEOUT: Final = names.short_name(names.SERVER_TIMEOUT)
_SECTIONS: Final = frozenset((PROPERTIES, APPLICATION_PROPERTIES, AMQP_VALUE))
# What a message-id, and so a correlation-id, may be (AMQP 1.0 part 3, section 3.2.11 and after).
_ID_TYPES: Final = ("null", "string", "uuid", "ulong", "binary")


@dataclass(frozen=True)
class EncodedMap:
    """A map that ends a request and is known to decode, and has not been yet."""

    request: bytes
    offset: int

    def decode(self) -> Map:
        value: Map = decode_value(self.request, self.offset)[0]
        return value


@dataclass(frozen=True)
class ManagementRequest:
    """A request, its body not looked into. `operation` is the wire name, empty where there is none; `problem` is what is wrong with the
    envelope, None where nothing is."""

    message_id: Value
    reply_to: str | None
    operation: str
    server_timeout_ms: int
    associated_link_name: str | None
    tracking_id: str | None
    body: Value | EncodedMap
    problem: str | None = None


def read_request(raw: bytes | bytearray | memoryview) -> ManagementRequest:
    """The request in these bytes; a fault if no answer could say whose it is."""
    try:
        # The decoder slices what it is given, and a uuid wants bytes.
        message = _decode(raw if isinstance(raw, bytes) else bytes(raw))
    except DecodeError as error:
        raise decode_error(f"The request is not valid AMQP: {error}.") from error
    properties = message.properties or Properties()
    message_id = properties.message_id
    if type_name(message_id) not in _ID_TYPES:
        raise decode_error(f"The message-id of the request is an AMQP {type_name(message_id)}, not a string, uuid, ulong or binary.")
    if isinstance(message_id, str) and not is_utf8(message_id):
        raise decode_error("The message-id of the request is not valid UTF-8.")
    given = message.application_properties or Map()
    problems: list[str] = []
    return ManagementRequest(
        message_id,
        properties.reply_to if isinstance(properties.reply_to, str) else None,
        _text(given, names.OPERATION, problems, required=True) or "",
        _server_timeout(given, problems),
        _text(given, names.ASSOCIATED_LINK_NAME, problems),
        _text(given, names.TRACKING_ID, problems),
        message.body.value if isinstance(message.body, AmqpValue) else None,
        problems[0] if problems else None,
    )


def _decode(raw: bytes) -> Message:
    """The message, its body left as it is if that is a map without fault, as the bodies of nearly all requests are."""
    native = native_sender()
    at = -1 if native is None else native.body_map(raw)
    if at < 0:
        return decode_message(raw, sections=_SECTIONS)
    return replace(decode_message(raw, end=at - len(_BODY_START), sections=_SECTIONS), body=AmqpValue(EncodedMap(raw, at)))


def _text(given: Map, key: str, problems: list[str], *, required: bool = False) -> str | None:
    value = given.get(key)
    if isinstance(value, str) and is_utf8(value):
        return str(value)
    if isinstance(value, str):
        problems.append(f"The application property `{key}` is not valid UTF-8.")
    elif value is not None:
        problems.append(f"The application property `{key}` must be a string, not a {type_name(value)}.")
    elif required:
        problems.append(f"The application property `{key}` (string) is missing.")
    return None


def is_utf8(text: str) -> bool:
    """Whether text that was decoded can be read by everyone: the decoder keeps bytes that are no UTF-8 as lone surrogates."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _server_timeout(given: Map, problems: list[str]) -> int:
    """Milliseconds, of whatever integer type: clients differ."""
    value = given.get(names.SERVER_TIMEOUT, given.get(_BARE_SERVER_TIMEOUT))
    if value is None:
        return DEFAULT_SERVER_TIMEOUT_MS
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value)
    problems.append(f"The application property `{names.SERVER_TIMEOUT}` must be a uint of milliseconds, not {value!r:.80}.")
    return DEFAULT_SERVER_TIMEOUT_MS


_BODY_START: Final = bytes((c.DESCRIBED, c.SMALL_ULONG, AMQP_VALUE))
_MAP_HEAD: Final = Struct(">BII").pack
_STATUS_CODE, _STATUS_DESCRIPTION, _ERROR_CONDITION, _TRACKING_ID = (
    encode_value(key) for key in (names.STATUS_CODE, names.STATUS_DESCRIPTION, names.ERROR_CONDITION, names.TRACKING_ID)
)


def encode_response(
    message_id: Value,
    status: int,
    description: str,
    condition: str | None = None,
    body: Sequence[bytes] = (),
    tracking_id: str | None = None,
    *,
    items: int | None = None,
) -> bytes:
    """An answer. `body` is its map: encoded keys and values in turn, or if `items` says how many these are, their bytes in any pieces.
    A map is always there, because some clients read without looking."""
    readable = description.encode("utf-8", "backslashreplace").decode()
    pairs = [_STATUS_CODE, encode_value(Int(status)), _STATUS_DESCRIPTION, encode_value(readable)]
    if condition is not None:
        pairs += (_ERROR_CONDITION, encode_value(Symbol(condition)))
    if tracking_id is not None:
        pairs += (_TRACKING_ID, encode_value(tracking_id))
    # Joined once, with the head of the map written here: a page of messages is large, and each further copy costs more than all the rest.
    return b"".join(
        (
            encode_described(PROPERTIES, encode_fields(Properties(correlation_id=message_id))),
            encode_described(APPLICATION_PROPERTIES, encode_map(pairs)),
            _BODY_START,
            _MAP_HEAD(c.MAP_32, 4 + sum(map(len, body)), len(body) if items is None else items),
            *body,
        )
    )


def encode_fault(message_id: Value, fault: ServiceBusFault, tracking_id: str | None = None) -> bytes:
    """The answer that a fault is."""
    return encode_response(message_id, fault.status, fault.description, fault.condition, tracking_id=tracking_id)
