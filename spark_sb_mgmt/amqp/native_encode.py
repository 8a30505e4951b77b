"""Plain rows to whole entries of schedule-message requests, by the compiled encoder (_native_encode.c).

The one rule: the same bytes as `arrow_encode` and `operations.schedule` make, or none. Whatever is not a plain column of text, a time, a
body of data or a map of text steps aside, and so does a batch with a row that cannot be sent: None says that the reference is to encode it,
or to tell what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.arrow_encode import ANNOTATION_OF, PROPERTY_OF, SCHEDULED, TYPED_SECTIONS, check_columns, without_overridden
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.message import Properties
from spark_sb_mgmt.amqp.native import native_encoder
from spark_sb_mgmt.amqp.types import Symbol

Ints: TypeAlias = npt.NDArray[np.int64]

# Columns that make a row more than plain, whatever is in them.
_NOT_PLAIN = (*TYPED_SECTIONS, "time_to_live_ms", "amqp_message")
# How the values of a property column are written.
_KINDS: dict[pa.DataType, int] = {
    pa.bool_(): c.BOOLEAN,
    pa.int32(): c.INT,
    pa.int64(): c.LONG,
    pa.float64(): c.DOUBLE,
    pa.string(): c.STRING_8,
    pa.binary(): c.BINARY_8,
}
# A string that all rows begin with and a number of their own: no constructor of AMQP.
_NUMBERED = 0
# Of a timestamp's units, those in a millisecond.
_PARTS: dict[str, int] = {"ms": 1, "us": 1000, "ns": 1_000_000}


@dataclass(frozen=True)
class EntryShape:
    """What an entry has around its message: the encoded key of each column that it repeats, `message_id` first, that of the message, and
    how many characters the repeated ones may have."""

    keys: Mapping[str, bytes]
    message_key: bytes
    longest: int


@dataclass(frozen=True)
class Stamps:
    """A message annotation of every row: its key, how all values begin, and the number that each ends with."""

    key: str
    prefix: str
    numbers: Ints

    def texts(self) -> list[str]:
        return [f"{self.prefix}{number}" for number in self.numbers.tolist()]


def encode_plain_entries(
    batch: pa.RecordBatch, shape: EntryShape, *, property_columns: Sequence[str] = (), stamps: Stamps
) -> tuple[bytes, Ints] | None:
    """The rows as entries, one behind the other, and where each starts and the last ends."""
    native = native_encoder()
    if native is None:
        return None
    check_columns(batch.schema, property_columns)
    batch = without_overridden(batch, property_columns)
    columns = {name: batch.column(name) for name in batch.schema.names if batch.column(name).null_count < batch.num_rows}
    times = _times(batch)
    if times is None or not _is_plain(columns, property_columns):
        return None
    found = native.encode(
        batch.num_rows,
        (
            *(_of(columns[name], c.STRING_8, encode_value(Symbol(key))) for name, key in ANNOTATION_OF.items() if name in columns),
            *times,
            (encode_value(Symbol(stamps.key)), _NUMBERED, 0, None, stamps.prefix.encode(), np.ascontiguousarray(stamps.numbers, np.int64)),
        ),
        _properties(columns, batch.num_rows),
        _map(columns.get("application_properties")),
        tuple(_of(columns[name], _KINDS[columns[name].type], encode_value(name)) for name in property_columns if name in columns),
        tuple(_of(columns[name], c.BINARY_8) for name in ("body",) if name in columns),
        tuple(_of(columns[name], c.STRING_8, key) for name, key in shape.keys.items() if name in columns),
        shape.message_key,
        shape.longest,
    )
    return None if found is None else (found[0], np.frombuffer(found[1], np.int64))


def _is_plain(columns: Mapping[str, pa.Array], property_columns: Sequence[str]) -> bool:
    if "message_id" not in columns or any(name in columns for name in _NOT_PLAIN):
        return False
    if any(name in columns and columns[name].type not in _KINDS for name in property_columns):
        return False
    if "body_type" in columns and pc.any(pc.not_equal(columns["body_type"], "data")).as_py():
        return False
    pairs = columns.get("application_properties")
    # No Spark makes pairs that are null; the reference knows what they mean.
    return pairs is None or not pairs.values.null_count


def _times(batch: pa.RecordBatch) -> tuple[Any, ...] | None:
    """The column of times in milliseconds, as far as the rows have any."""
    if "scheduled_enqueue_time" not in batch.schema.names:
        return ()
    given = batch.column("scheduled_enqueue_time")
    parts = _PARTS.get(given.type.unit)
    if parts is None or given.null_count:
        return None
    numbers = np.frombuffer(given.buffers()[1], np.int64, len(given), given.offset * 8)
    return ((encode_value(Symbol(SCHEDULED)), c.TIMESTAMP, 0, None, None, numbers // parts),)


def _properties(columns: Mapping[str, pa.Array], rows: int) -> tuple[Any, ...]:
    """The fields of the section up to the last that there is; those between that no column has are null in all rows."""
    by_field = {field: name for name, field in PROPERTY_OF.items() if name in columns}
    names = [by_field.get(field.name) for field in fields(Properties)]
    while names and names[-1] is None:
        names.pop()
    nothing = _of(pa.nulls(rows, pa.string()), c.STRING_8)
    return tuple(nothing if name is None else _of(columns[name], c.SYMBOL_8 if name == "content_type" else c.STRING_8) for name in names)


def _of(column: pa.Array, kind: int, key: bytes = b"") -> tuple[Any, ...]:
    """A column as the compiled encoder takes it."""
    buffers = column.buffers()
    valid, *values = buffers
    offsets, data = (None, *values) if len(values) == 1 else values
    return key, kind, column.offset, valid if column.null_count else None, offsets, data


def _map(column: pa.Array | None) -> tuple[Any, ...] | None:
    if column is None:
        return None
    pairs = column.values
    valid, offsets = column.buffers()[:2]
    parts = tuple(_of(pairs.field(at), c.STRING_8) for at in (0, 1))
    return column.offset, valid if column.null_count else None, offsets, len(pairs), parts
