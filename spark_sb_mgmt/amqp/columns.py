"""What a message is to Service Bus: the columns of a row, their Arrow types and the rule for each (CONTRACT section 2).

The one rule: a column shows what it can hold exactly, or null; whatever is null here because it does not fit stands unchanged
in the typed section that it came from.

- A text column shows a value of any type as `typed_text.to_text` does; bytes that are not UTF-8 appear as `\\xNN`.
- An integer column is null for a value that is no integer or outside the column's range (a ulong above int64).
- A timestamp column takes an AMQP timestamp or any integer of milliseconds (azure-servicebus re-sends some times as long). It is null
  at or before .NET's DateTime.MinValue (the start of year 1: "never set") and after year 9999, which no Spark timestamp can hold.
- `time_to_live_ms` is the header's ttl. Where that is absent or at its 32-bit limit and the properties have both creation-time and
  absolute-expiry-time, it is their difference: so do the SDKs carry a longer life.
- `expires_at` is enqueued_time + time_to_live_ms as in the SDKs, else absolute-expiry-time.
- `body` is the bytes of the data sections, joined; for an amqp-value the encoded value, for amqp-sequence the encoded lists one after the
  other. `body_type` tells which; both are null where the message has no body.
- `state` is `active` where no x-opt-message-state says otherwise; a number that has no name is shown as it is.
- `lock_token` is the response's own, else the delivery annotation x-opt-lock-token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa

from spark_sb_mgmt.amqp import message as m
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.message import AmqpSequence, AmqpValue, Data, Header, Message, Properties
from spark_sb_mgmt.amqp.typed_text import section_to_typed, to_text
from spark_sb_mgmt.amqp.types import Map, Value

TIMESTAMP = pa.timestamp("us", tz="UTC")
TYPED_MAP = pa.map_(pa.string(), pa.struct([pa.field("type", pa.string()), pa.field("value", pa.string())]))

# DateTime.MinValue and the last millisecond of year 9999, in milliseconds since 1970.
NEVER_SET_MS = -62_135_596_800_000
LAST_MS = 253_402_300_799_999
TTL_LIMIT = 2**32 - 1
STATES = ("active", "deferred", "scheduled")
BODY_TYPES = ("data", "sequence", "value")


@dataclass(frozen=True)
class Received:
    """A message as a response brought it."""

    message: Message
    wire: bytes
    lock_token: UUID | None = None
    entity: str | None = None


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, the message sections it is read from, and how."""

    type: pa.DataType
    sections: frozenset[int]
    read: Callable[[Received], Any]
    on_request: bool = False


def _annotation(name: str) -> Callable[[Received], Value]:
    def read(row: Received) -> Value:
        annotations = row.message.message_annotations
        return None if annotations is None else annotations.get(name)

    return read


def _property(name: str) -> Callable[[Received], Value]:
    def read(row: Received) -> Value:
        properties = row.message.properties
        return None if properties is None else getattr(properties, name)

    return read


def _application_property(name: str) -> Callable[[Received], Value]:
    def read(row: Received) -> Value:
        properties = row.message.application_properties
        return None if properties is None else properties.get(name)

    return read


def _header(name: str) -> Callable[[Received], Value]:
    def read(row: Received) -> Value:
        header = row.message.header
        return None if header is None else getattr(header, name)

    return read


def _integer(value: Value, bits: int = 64) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        return int(value)
    return None


def _microseconds(value: Value) -> int | None:
    milliseconds = _integer(value)
    if milliseconds is None or not NEVER_SET_MS < milliseconds <= LAST_MS:
        return None
    return milliseconds * 1000


def _time_to_live(row: Received) -> int | None:
    ttl = _integer(_header("ttl")(row))
    if ttl is None or ttl == TTL_LIMIT:
        created = _integer(_property("creation_time")(row))
        expires = _integer(_property("absolute_expiry_time")(row))
        if created is not None and expires is not None:
            return _integer(expires - created)
    return ttl


def _expires_at(row: Received) -> int | None:
    ttl, enqueued = _time_to_live(row), _integer(_annotation("x-opt-enqueued-time")(row))
    if ttl is not None and enqueued is not None:
        return _microseconds(enqueued + ttl)
    return _microseconds(_property("absolute_expiry_time")(row))


def _state(row: Received) -> str | None:
    value = _annotation("x-opt-message-state")(row)
    if value is None:
        return STATES[0]
    number = _integer(value)
    return STATES[number] if number is not None and 0 <= number < len(STATES) else to_text(value)


def _lock_token(row: Received) -> str | None:
    if row.lock_token is not None:
        return str(row.lock_token)
    annotations = row.message.delivery_annotations
    return None if annotations is None else to_text(annotations.get("x-opt-lock-token"))


def _text_map(row: Received) -> list[tuple[str, str | None]] | None:
    properties = row.message.application_properties
    if properties is None:
        return None
    # A map column has no null keys; to_text gives null for an AMQP null only.
    return [(to_text(key) or "", to_text(value)) for key, value in properties]


def _body(row: Received) -> bytes | None:
    body = row.message.body
    if isinstance(body, Data):
        return b"".join(body.sections)
    if isinstance(body, AmqpValue):
        return encode_value(body.value)
    if isinstance(body, AmqpSequence):
        return b"".join(encode_value(section) for section in body.sections)
    return None


_BODY_NAMES: dict[type, str] = {Data: "data", AmqpSequence: "sequence", AmqpValue: "value"}


def _body_type(row: Received) -> str | None:
    return _BODY_NAMES.get(type(row.message.body))


def _typed(section: str, key_type: str) -> Callable[[Received], Any]:
    def read(row: Received) -> Any:
        value: Map | Header | Properties | None = getattr(row.message, section)
        typed = section_to_typed(value, key_type)
        return None if typed is None else [(key, {"type": kind, "value": text}) for key, (kind, text) in typed]

    return read


def _text(read: Callable[[Received], Value], *sections: int) -> Column:
    return Column(pa.string(), frozenset(sections), lambda row: to_text(read(row)))


def _long(read: Callable[[Received], Value], *sections: int) -> Column:
    return Column(pa.int64(), frozenset(sections), lambda row: _integer(read(row)))


def _time(read: Callable[[Received], Value], *sections: int) -> Column:
    return Column(TIMESTAMP, frozenset(sections), lambda row: _microseconds(read(row)))


def _typed_section(section: int, name: str, key_type: str = "symbol") -> Column:
    return Column(TYPED_MAP, frozenset({section}), _typed(name, key_type), on_request=True)


_BODY_SECTIONS = frozenset({m.DATA, m.AMQP_SEQUENCE, m.AMQP_VALUE})
_MA, _PROPERTIES, _AP = m.MESSAGE_ANNOTATIONS, m.PROPERTIES, m.APPLICATION_PROPERTIES

COLUMNS: dict[str, Column] = {
    "entity": Column(pa.string(), frozenset(), lambda row: row.entity),
    "sequence_number": _long(_annotation("x-opt-sequence-number"), _MA),
    "enqueued_sequence_number": _long(_annotation("x-opt-enqueue-sequence-number"), _MA),
    "message_id": _text(_property("message_id"), _PROPERTIES),
    "session_id": _text(_property("group_id"), _PROPERTIES),
    "partition_key": _text(_annotation("x-opt-partition-key"), _MA),
    "via_partition_key": _text(_annotation("x-opt-via-partition-key"), _MA),
    "correlation_id": _text(_property("correlation_id"), _PROPERTIES),
    "subject": _text(_property("subject"), _PROPERTIES),
    "to": _text(_property("to"), _PROPERTIES),
    "reply_to": _text(_property("reply_to"), _PROPERTIES),
    "reply_to_session_id": _text(_property("reply_to_group_id"), _PROPERTIES),
    "content_type": _text(_property("content_type"), _PROPERTIES),
    "time_to_live_ms": Column(pa.int64(), frozenset({m.HEADER, _PROPERTIES}), _time_to_live),
    "enqueued_time": _time(_annotation("x-opt-enqueued-time"), _MA),
    "scheduled_enqueue_time": _time(_annotation("x-opt-scheduled-enqueue-time"), _MA),
    "expires_at": Column(TIMESTAMP, frozenset({m.HEADER, _MA, _PROPERTIES}), _expires_at),
    "locked_until": _time(_annotation("x-opt-locked-until"), _MA),
    "delivery_count": Column(pa.int32(), frozenset({m.HEADER}), lambda row: _integer(_header("delivery_count")(row), bits=32)),
    "state": Column(pa.string(), frozenset({_MA}), _state),
    "dead_letter_source": _text(_annotation("x-opt-deadletter-source"), _MA),
    "dead_letter_reason": _text(_application_property("DeadLetterReason"), _AP),
    "dead_letter_error_description": _text(_application_property("DeadLetterErrorDescription"), _AP),
    "lock_token": Column(pa.string(), frozenset({m.DELIVERY_ANNOTATIONS}), _lock_token),
    "application_properties": Column(pa.map_(pa.string(), pa.string()), frozenset({_AP}), _text_map),
    "body": Column(pa.binary(), _BODY_SECTIONS, _body),
    "body_type": Column(pa.string(), _BODY_SECTIONS, _body_type),
    "amqp_message": Column(pa.binary(), frozenset(), lambda row: row.wire, on_request=True),
    "typed_properties": _typed_section(_AP, "application_properties", "string"),
    "properties": _typed_section(_PROPERTIES, "properties"),
    "message_annotations": _typed_section(_MA, "message_annotations"),
    "delivery_annotations": _typed_section(m.DELIVERY_ANNOTATIONS, "delivery_annotations"),
    "header": _typed_section(m.HEADER, "header"),
    "footer": _typed_section(m.FOOTER, "footer"),
}
# The one field that a text column shows, by its name in AMQP or its key in Service Bus.
FIELD_OF_TEXT: dict[str, str] = {
    "message_id": "message-id",
    "session_id": "group-id",
    "correlation_id": "correlation-id",
    "subject": "subject",
    "to": "to",
    "reply_to": "reply-to",
    "reply_to_session_id": "reply-to-group-id",
    "content_type": "content-type",
    "partition_key": "x-opt-partition-key",
    "via_partition_key": "x-opt-via-partition-key",
    "dead_letter_source": "x-opt-deadletter-source",
    "dead_letter_reason": "DeadLetterReason",
    "dead_letter_error_description": "DeadLetterErrorDescription",
    "lock_token": "x-opt-lock-token",
}
DEFAULT_COLUMNS: tuple[str, ...] = tuple(name for name, column in COLUMNS.items() if not column.on_request)


def schema(names: Iterable[str] = DEFAULT_COLUMNS) -> pa.Schema:
    """The Arrow schema of these columns, in this order, as strict as PySpark 4.2+ wants it."""
    return pa.schema([pa.field(name, COLUMNS[name].type) for name in names])


def sections_of(names: Iterable[str]) -> frozenset[int]:
    """The message sections that these columns are read from; the others need not be decoded."""
    return frozenset().union(*(COLUMNS[name].sections for name in names))


def rows_to_batch(rows: Iterable[Received], names: Iterable[str]) -> pa.RecordBatch:
    """Rows to Arrow, one value at a time: the reference for the lock-step decoder."""
    wanted, rows = tuple(names), list(rows)
    arrays = [pa.array([COLUMNS[name].read(row) for row in rows], COLUMNS[name].type) for name in wanted]
    return batch_of(arrays, schema(wanted), len(rows))


def batch_of(arrays: Sequence[pa.Array], fields: pa.Schema, rows: int) -> pa.RecordBatch:
    """Columns of so many rows as a batch. One without columns still has its number of rows: what `count()` needs."""
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=fields)
