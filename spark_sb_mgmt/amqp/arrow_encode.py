"""Rows to wire-encoded messages for schedule-message (CONTRACT sections 1.3 and 2).

The one rule: what a column says goes on the wire with exactly one type, and what the broker sets itself does not go there at all. A row
that cannot be encoded is an error that names row and column, before anything is sent.

- A plain column that is not null wins over the same field in a typed section column; all else in the typed section stays.
- So does a column of `property_columns` over a property of its name in a map: no key comes twice.
- `amqp_message` stands alone: the message as it was read. Only option and column `scheduled_enqueue_time` may come with it.
- Left out on the way back, because the broker sets them: the annotations in BROKER_ANNOTATIONS, the delivery annotation x-opt-lock-token,
  and the header's delivery-count and first-acquirer.
- `application_properties` are strings (a null value is an AMQP null); `typed_properties` have the types they name; a column of
  `property_columns` has the type of its column, and a null there means that the message has no such property.
- Times are milliseconds on the wire: microseconds are cut off, towards the past.
- A life above the header's 32 bits is carried by creation-time and absolute-expiry-time, as the SDKs do it.

This is the reference for `native_encode`, which makes the same bytes of rows with nothing but plain columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_sb_mgmt.amqp import message as m
from spark_sb_mgmt.amqp.columns import COLUMNS, TTL_LIMIT
from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.encode import encode_binary, encode_described, encode_list, encode_map, encode_string, encode_value
from spark_sb_mgmt.amqp.message import AmqpSequence, AmqpValue, Body, Data, Header, Message, Properties
from spark_sb_mgmt.amqp.typed_text import TypedText, fields_from_typed, section_from_typed, to_text
from spark_sb_mgmt.amqp.types import Byte, Float, Int, Long, Map, Short, Symbol, Timestamp, Value
from spark_sb_mgmt.errors import DecodeError, EncodeError

BROKER_ANNOTATIONS = frozenset(
    (
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        "x-opt-partition-id",
    )
)
# Which fields of a message plain columns are: of its properties, and of its annotations.
PROPERTY_OF: dict[str, str] = {
    "message_id": "message_id",
    "to": "to",
    "subject": "subject",
    "reply_to": "reply_to",
    "correlation_id": "correlation_id",
    "content_type": "content_type",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
}
ANNOTATION_OF: dict[str, str] = {
    "partition_key": "x-opt-partition-key",
    "via_partition_key": "x-opt-via-partition-key",
}
SCHEDULED = "x-opt-scheduled-enqueue-time"
TYPED_SECTIONS = ("header", "delivery_annotations", "message_annotations", "properties", "typed_properties", "footer")
# Every column that a sender may set; all others of a read DataFrame must be dropped or named in `property_columns`.
SENDER_COLUMNS = frozenset(
    (
        *PROPERTY_OF,
        *ANNOTATION_OF,
        *TYPED_SECTIONS,
        "time_to_live_ms",
        "scheduled_enqueue_time",
        "application_properties",
        "body",
        "body_type",
        "amqp_message",
    )
)


@dataclass(frozen=True)
class EncodedMessages:
    """The rows of a batch as encoded messages, and what the entries of a schedule-message request repeat of them."""

    messages: list[bytes]
    message_id: list[str | None]
    session_id: list[str | None]
    partition_key: list[str | None]
    via_partition_key: list[str | None]

    def __len__(self) -> int:
        return len(self.messages)


def encode_messages(
    batch: pa.RecordBatch,
    *,
    now_ms: int,
    scheduled_enqueue_time_ms: int | None = None,
    property_columns: Sequence[str] = (),
    stamps: tuple[str, Sequence[str]] | None = None,
) -> EncodedMessages:
    """Every row of `batch` as an encoded message; `scheduled_enqueue_time_ms` serves rows that have no time of their own. `stamps`: a
    message annotation that each message gets whatever the row says, its key and a value for every row."""
    check_columns(batch.schema, property_columns)
    batch = without_overridden(batch, property_columns)
    columns = {name: batch.column(name) for name in batch.schema.names if batch.column(name).null_count < batch.num_rows}
    schedule = _schedule(columns, batch, scheduled_enqueue_time_ms)
    if "amqp_message" in columns:
        return _resend(columns["amqp_message"], schedule, stamps)
    return _Rows(columns, batch.num_rows, schedule, now_ms, property_columns, stamps).encode()


def check_columns(schema: pa.Schema, property_columns: Sequence[str]) -> None:
    """Raise for a column that no message can be made of."""
    for name in property_columns:
        if name not in schema.names:
            raise EncodeError(f"property column {name!r} is not a column of the rows; there are {', '.join(schema.names)}")
        if not _property_writer(schema.field(name).type):
            raise EncodeError(
                f"property column {name!r} is {schema.field(name).type}, which has no AMQP type: cast it to a scalar or a string"
            )
    for field in schema:
        if field.name in property_columns:
            continue
        if field.name not in SENDER_COLUMNS:
            raise EncodeError(f"column {field.name!r} is not one that a sender may set: drop it, or name it in property_columns")
        wanted = COLUMNS[field.name].type
        if not field.type.equals(wanted) and not (pa.types.is_timestamp(wanted) and pa.types.is_timestamp(field.type)):
            raise EncodeError(f"column {field.name!r} must be {wanted}, not {field.type}")
    if "amqp_message" in schema.names:
        beside = sorted(set(schema.names) - {"amqp_message", "scheduled_enqueue_time"})
        if beside:
            raise EncodeError(f"amqp_message is the whole message: drop it, or drop {', '.join(beside)}")


def without_overridden(batch: pa.RecordBatch, property_columns: Sequence[str]) -> pa.RecordBatch:
    """The rows without those properties in maps that a property column has for the same row."""
    wanted = pa.array(property_columns, pa.string())
    for name in ("application_properties", "typed_properties"):
        if not property_columns or name not in batch.schema.names:
            continue
        column = batch.column(name)
        if not pc.any(pc.is_in(column.keys, wanted)).as_py():
            continue
        own = {key: batch.column(key).is_valid().to_pylist() for key in property_columns}
        cells = [
            None if pairs is None else [(key, value) for key, value in pairs if not (key in own and own[key][row])]
            for row, pairs in enumerate(column.to_pylist())
        ]
        batch = batch.set_column(batch.schema.get_field_index(name), name, pa.array(cells, column.type))
    return batch


def _milliseconds(column: pa.Array) -> list[int | None]:
    """Times as whole milliseconds, cut off towards the past."""
    unit = {"s": 1000, "ms": 1, "us": -1000, "ns": -1_000_000}[column.type.unit]
    numbers: list[int | None] = column.cast(pa.int64()).to_pylist()
    if unit > 0:
        return [None if number is None else number * unit for number in numbers]
    return [None if number is None else number // -unit for number in numbers]


def _schedule(columns: dict[str, pa.Array], batch: pa.RecordBatch, default: int | None) -> list[int | None]:
    given = columns.pop("scheduled_enqueue_time", None)
    if given is None:
        times: list[int | None] = [None] * batch.num_rows
    else:
        times = _milliseconds(given)
    times = [default if time is None else time for time in times]
    if "scheduled_enqueue_time" in batch.schema.names and None in times:
        raise EncodeError("scheduled_enqueue_time is null: give the row a time, or set option scheduledEnqueueTime", row=times.index(None))
    return times


_Stamps = tuple[str, Sequence[str]] | None


def _resend(column: pa.Array, schedule: list[int | None], stamps: _Stamps) -> EncodedMessages:
    result = EncodedMessages([], [], [], [], [])
    for row, (wire, time) in enumerate(zip(column.to_pylist(), schedule, strict=True)):
        if wire is None:
            raise EncodeError("amqp_message is null: there is nothing to send", row=row)
        try:
            message = _without_broker_fields(m.decode_message(wire), time, _stamp(stamps, row))
        except DecodeError as problem:
            raise EncodeError(f"amqp_message is no encoded AMQP message: {problem}", row=row) from None
        _add(result, message, m.encode_message(message))
    return result


def _stamp(stamps: _Stamps, row: int) -> list[tuple[str, Value]]:
    return [] if stamps is None else [(stamps[0], stamps[1][row])]


def _without_broker_fields(message: Message, time: int | None, stamp: list[tuple[str, Value]]) -> Message:
    header, delivery = message.header, message.delivery_annotations
    own: list[tuple[str, Value]] = [] if time is None else [(SCHEDULED, Timestamp(time))]
    return replace(
        message,
        header=None if header is None else replace(header, delivery_count=None, first_acquirer=None),
        delivery_annotations=None if delivery is None else _dropped(delivery, {"x-opt-lock-token"}),
        message_annotations=_annotations(message.message_annotations, [*own, *stamp]),
    )


def _dropped(section: Map, keys: Iterable[str]) -> Map | None:
    """The section without these keys; none at all if nothing else was in it."""
    kept = [(key, value) for key, value in section if not (isinstance(key, str) and key in keys)]
    return Map(kept) if kept or not len(section) else None


def _annotations(section: Map | None, own: list[tuple[str, Value]]) -> Map | None:
    kept = None if section is None else _dropped(section, BROKER_ANNOTATIONS | {key for key, _ in own})
    added = [(Symbol(key), value) for key, value in own]
    return Map([*(kept or ()), *added]) if added else kept


def _add(result: EncodedMessages, message: Message, wire: bytes) -> None:
    properties, annotations = message.properties or Properties(), message.message_annotations or Map()
    result.messages.append(wire)
    result.message_id.append(to_text(properties.message_id))
    result.session_id.append(to_text(properties.group_id))
    result.partition_key.append(to_text(annotations.get("x-opt-partition-key")))
    result.via_partition_key.append(to_text(annotations.get("x-opt-via-partition-key")))


def _property_writer(kind: pa.DataType) -> Callable[[Any], Value] | None:
    """How a value of a property column gets its AMQP type."""
    writers: dict[pa.DataType, Callable[[Any], Value]] = {
        pa.bool_(): bool,
        pa.int8(): Byte,
        pa.int16(): Short,
        pa.int32(): Int,
        pa.int64(): Long,
        pa.float32(): Float,
        pa.float64(): float,
        pa.string(): str,
        pa.binary(): bytes,
        pa.date32(): lambda value: value.isoformat(),
    }
    if pa.types.is_timestamp(kind):
        return Timestamp
    if pa.types.is_decimal(kind):
        # AMQP's decimals are IEEE 754 encodings that no SDK of Service Bus writes; the digits as text lose nothing.
        return _digits
    return writers.get(kind)


def _digits(value: Any) -> str:
    return str(value)


class _Rows:
    """The rows of one batch, column by column as far as that goes: each column is encoded on its own, then rows are joined."""

    def __init__(
        self,
        columns: dict[str, pa.Array],
        count: int,
        schedule: list[int | None],
        now_ms: int,
        property_columns: Sequence[str],
        stamps: _Stamps,
    ) -> None:
        self.columns = columns
        self.count = count
        self.schedule = schedule
        self.now_ms = now_ms
        self.property_columns = [name for name in property_columns if name in columns]
        self.stamps = stamps

    def encode(self) -> EncodedMessages:
        plain = [name for name in TYPED_SECTIONS if name in self.columns]
        if not plain and "time_to_live_ms" not in self.columns:
            return self._encode_plain()
        return self._encode_rows()

    # The usual rows: plain columns only

    def _encode_plain(self) -> EncodedMessages:
        texts = {name: self.columns[name].to_pylist() for name in (*PROPERTY_OF, *ANNOTATION_OF) if name in self.columns}
        nothing: list[str | None] = [None] * self.count
        parts = [
            self._plain_annotations(texts),
            self._plain_properties(texts),
            self._plain_application_properties(),
            self._plain_bodies(),
        ]
        return EncodedMessages(
            [b"".join(row) for row in zip(*parts, strict=True)],
            texts.get("message_id", nothing),
            texts.get("session_id", nothing),
            texts.get("partition_key", nothing),
            texts.get("via_partition_key", nothing),
        )

    def _plain_annotations(self, texts: dict[str, list[str | None]]) -> list[bytes]:
        columns = [_keyed(Symbol(key), _encoded(name, texts[name])) for name, key in ANNOTATION_OF.items() if name in texts]
        columns.append(_keyed(Symbol(SCHEDULED), _Encodings(lambda time: encode_value(Timestamp(time))).of(self.schedule)))
        if self.stamps is not None:
            columns.append(_keyed(Symbol(self.stamps[0]), list(map(encode_string, self.stamps[1]))))
        return _map_sections(m.MESSAGE_ANNOTATIONS, columns, self.count)

    def _plain_properties(self, texts: dict[str, list[str | None]]) -> list[bytes]:
        by_field = {field: name for name, field in PROPERTY_OF.items() if name in texts}
        names = [by_field.get(field.name) for field in fields(Properties)]
        while names and names[-1] is None:
            names.pop()
        if not names:
            return [b""] * self.count
        nulls = [b"\x40"] * self.count
        columns = [
            nulls
            if name is None
            else [b"\x40" if part is None else part for part in _encoded(name, texts[name], Symbol if name == "content_type" else str)]
            for name in names
        ]
        sections = []
        for row in zip(*columns, strict=True):
            used = len(row)
            while used and row[used - 1] == b"\x40":
                used -= 1
            sections.append(encode_described(m.PROPERTIES, encode_list(row[:used])) if used else b"")
        return sections

    def _plain_application_properties(self) -> list[bytes]:
        columns = []
        if "application_properties" in self.columns:
            columns.append(_text_pairs(self.columns["application_properties"].to_pylist()))
        for name in self.property_columns:
            columns.append(_keyed(name, self._property_values(name)))
        return _map_sections(m.APPLICATION_PROPERTIES, columns, self.count)

    def _property_values(self, name: str) -> list[bytes | None]:
        column = self.columns[name]
        write = _property_writer(column.type)
        assert write is not None
        values = _milliseconds(column) if pa.types.is_timestamp(column.type) else column.to_pylist()
        return _encoded(name, values, write)

    def _plain_bodies(self) -> list[bytes]:
        bodies = self.columns.get("body")
        if bodies is None:
            return [b""] * self.count
        if "body_type" in self.columns and pc.any(pc.not_equal(self.columns["body_type"], "data")).as_py():
            return [b"".join(m.encode_body(body)) for body in self._bodies()]
        # One data section each: its bytes as they stand in the column's buffer, behind a head that says how many.
        return [b"" if value is None else encode_described(m.DATA, encode_binary(value)) for value in bodies.to_pylist()]

    # Rows with typed sections: one message at a time

    def _encode_rows(self) -> EncodedMessages:
        result = EncodedMessages([], [], [], [], [])
        lists = {name: column.to_pylist() for name, column in self.columns.items() if name not in ("body", "body_type")}
        own = {name: self._property_values(name) for name in self.property_columns}
        for row, body in enumerate(self._bodies()):
            values = {name: column[row] for name, column in lists.items()}
            try:
                message = self._message(values, row, body)
                wire = m.encode_message(self._with_own(message, {name: column[row] for name, column in own.items()}))
            except EncodeError as problem:
                raise problem.at_row(row) from None
            _add(result, message, wire)
        return result

    def _with_own(self, message: Message, own: dict[str, bytes | None]) -> Message:
        present = [(name, decode_value(wire)[0]) for name, wire in own.items() if wire is not None]
        if not present:
            return message
        return replace(message, application_properties=Map([*(message.application_properties or ()), *present]))

    def _message(self, values: dict[str, Any], row: int, body: Body | None) -> Message:
        header = _section("header", lambda: fields_from_typed(Header, _entries(values.get("header"))))
        properties = _section("properties", lambda: fields_from_typed(Properties, _entries(values.get("properties"))))
        maps = {
            name: _section(name, lambda name=name: section_from_typed(_entries(values.get(name)), _KEY_TYPES.get(name, "symbol")))  # type: ignore[misc]
            for name in ("delivery_annotations", "message_annotations", "typed_properties", "footer")
        }
        plain = {field: values[name] for name, field in PROPERTY_OF.items() if values.get(name) is not None}
        annotations = [(key, values[name]) for name, key in ANNOTATION_OF.items() if values.get(name) is not None]
        ttl = values.get("time_to_live_ms")
        if ttl is not None:
            if ttl < 0:
                raise EncodeError(f"time_to_live_ms is {ttl}: a message lives for a time of 0 or more")
            header = replace(header or Header(), ttl=min(ttl, TTL_LIMIT))
            if ttl > TTL_LIMIT:
                plain.update(creation_time=self.now_ms, absolute_expiry_time=self.now_ms + ttl)
        if plain:
            properties = replace(properties or Properties(), **plain)
        message = Message(
            header=header,
            delivery_annotations=maps["delivery_annotations"],
            message_annotations=_annotations(maps["message_annotations"], annotations),
            properties=properties,
            application_properties=_application_properties(maps["typed_properties"], values.get("application_properties")),
            body=body,
            footer=maps["footer"],
        )
        return _without_broker_fields(message, self.schedule[row], _stamp(self.stamps, row))

    def _bodies(self) -> list[Body | None]:
        values = self.columns["body"].to_pylist() if "body" in self.columns else [None] * self.count
        kinds = self.columns["body_type"].to_pylist() if "body_type" in self.columns else [None] * self.count
        return [_body(row, value, kind) for row, (value, kind) in enumerate(zip(values, kinds, strict=True))]


_KEY_TYPES = {"typed_properties": "string"}


def _entries(cell: list[tuple[str, dict[str, str | None] | None]] | None) -> list[tuple[str, TypedText]] | None:
    """A cell of a typed map column, as typed_text has it."""
    if cell is None:
        return None
    found: list[tuple[str, TypedText]] = []
    for key, typed in cell:
        if typed is None or typed["type"] is None:
            raise EncodeError(f"{key!a:.80} has no type: say one, as in struct('string' as type, 'x' as value)")
        found.append((key, (typed["type"], typed["value"])))
    return found


def _section(name: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except EncodeError as problem:
        raise EncodeError(f"column {name!r}: {problem.problem}") from None


def _application_properties(typed: Map | None, plain: list[tuple[str, str | None]] | None) -> Map | None:
    """The typed ones, and each plain one that is not among them: a read DataFrame has both forms of the same properties."""
    if plain is None:
        return typed
    return Map([*(typed or ()), *((key, value) for key, value in plain if typed is None or key not in typed)])


def _body(row: int, value: bytes | None, kind: str | None) -> Body | None:
    if value is None:
        return None
    if kind in (None, "data"):
        return Data((value,))
    if kind not in ("value", "sequence"):
        raise EncodeError(f"body_type is {kind!r}: it is data, value or sequence", row=row)
    try:
        found, at = decode_value(value)
        if kind == "value":
            if at != len(value):
                raise DecodeError(f"{len(value) - at} bytes after the value", at)
            return AmqpValue(found)
        lists = [found]
        while at < len(value):
            found, at = decode_value(value, at)
            lists.append(found)
    except DecodeError as problem:
        raise EncodeError(f"body is no encoded AMQP {kind}, as its body_type says: {problem}", row=row) from None
    if not all(isinstance(one, tuple) for one in lists):
        raise EncodeError("body holds a value that is no list, and its body_type is sequence", row=row)
    return AmqpSequence(tuple(lists))


class _Encodings(dict[Any, Any]):
    """Values with their encodings, each made once: most columns of text and times say the same of many rows. Not for numbers, of which 0.0
    and -0.0 are one to a dict."""

    def __init__(self, encode: Callable[[Any], bytes], null: bytes | None = None) -> None:
        super().__init__({None: null})
        self._encode = encode

    def __missing__(self, value: Any) -> bytes:
        encoded = self[value] = self._encode(value)
        return encoded

    def of(self, values: Iterable[Any]) -> list[bytes | None]:
        return [self[value] for value in values]


# What is text, by how it is written.
_TEXTS: dict[Callable[[Any], Value], Callable[[Any], bytes]] = {str: encode_string, Symbol: lambda text: encode_value(Symbol(text))}


def _encoded(name: str, values: Sequence[Any], write: Callable[[Any], Value] = str) -> list[bytes | None]:
    try:
        if write in _TEXTS:
            return _Encodings(_TEXTS[write]).of(values)
        return [None if value is None else encode_value(write(value)) for value in values]
    except EncodeError:
        for row, value in enumerate(values):
            try:
                encode_value(None if value is None else write(value))
            except EncodeError as problem:
                raise EncodeError(f"column {name!r}: {problem.problem}", row=row) from None
        raise


def _keyed(key: str, values: list[bytes | None]) -> list[tuple[bytes, ...]]:
    """For each row the encoded key and value, or nothing where there is no value."""
    name = encode_value(key)
    return [() if value is None else (name, value) for value in values]


def _text_pairs(maps: list[list[tuple[str, str | None]] | None]) -> list[tuple[bytes, ...]]:
    known = _Encodings(encode_string, null=encode_value(None))
    return [() if pairs is None else tuple(known[part] for pair in pairs for part in pair) for pairs in maps]


def _map_sections(code: int, columns: list[list[tuple[bytes, ...]]], count: int) -> list[bytes]:
    if not columns:
        return [b""] * count
    sections = []
    for row in zip(*columns, strict=True):
        parts = [part for pair in row for part in pair]
        sections.append(encode_described(code, encode_map(parts)) if parts else b"")
    return sections
