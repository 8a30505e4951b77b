"""Responses to Arrow: one RecordBatch with exactly the asked columns, straight from the bytes of peek and receive answers.

The one rule: every way gives the same batch. Fields of the common shapes are found for many messages at once, by compiled code where it
was built (`native_fields`) and by numpy where not (`lockstep_fields`); messages that these step aside from, small batches and the typed
section columns go through the scalar decoder (`columns`). Rows come out in the order of the responses whichever way they took.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa

from spark_sb_mgmt.amqp import arrow_build as build
from spark_sb_mgmt.amqp import columns as col
from spark_sb_mgmt.amqp.columns import COLUMNS, DEFAULT_COLUMNS, FIELD_OF_TEXT, Received, rows_to_batch, sections_of
from spark_sb_mgmt.amqp.lockstep import Ints, Mask
from spark_sb_mgmt.amqp.lockstep_fields import LockstepFields
from spark_sb_mgmt.amqp.message import decode_message
from spark_sb_mgmt.amqp.messages import Messages, locate
from spark_sb_mgmt.amqp.native import native_module
from spark_sb_mgmt.amqp.native_fields import NativeFields
from spark_sb_mgmt.errors import DecodeError

# Below this many messages a batch the fixed cost of doing many at once is more than it saves (make bench, decode).
FEWEST_FOR_LOCKSTEP = 48

_INTEGERS: dict[str, str] = {
    "sequence_number": "x-opt-sequence-number",
    "enqueued_sequence_number": "x-opt-enqueue-sequence-number",
}
_TIMES: dict[str, str] = {
    "enqueued_time": "x-opt-enqueued-time",
    "scheduled_enqueue_time": "x-opt-scheduled-enqueue-time",
    "locked_until": "x-opt-locked-until",
}


class Fields(Protocol):
    """The fields of many messages, by their names in AMQP or their keys in Service Bus. Rows that are `slow` mean nothing in any of them;
    a value that an integer field cannot give makes its row slow."""

    slow: Mask

    def text(self, name: str) -> pa.Array: ...
    def integer(self, name: str) -> tuple[Ints, Mask]: ...
    def application_properties(self) -> pa.Array: ...
    def body(self) -> pa.Array: ...
    def body_type(self) -> pa.Array: ...


def find_fields(messages: Messages, names: Sequence[str]) -> Fields:
    """The fields that these columns are made of, by the fastest way there is here."""
    native = native_module()
    if native is not None:
        return NativeFields(native, messages, names)
    return LockstepFields(messages, sections_of(names))


def decode_responses(responses: Sequence[bytes], names: Sequence[str] = DEFAULT_COLUMNS, *, entity: str | None = None) -> pa.RecordBatch:
    """The messages of these responses, in order, as one batch of the columns `names`."""
    return decode_located(locate(responses), names, entity=entity)


def decode_located(messages: Messages, names: Sequence[str], *, entity: str | None = None) -> pa.RecordBatch:
    """Messages to one batch of the columns `names`, by the fast path where it knows the way."""
    fast_names = [name for name in names if not _by_scalar_only(name)]
    if len(messages) < FEWEST_FOR_LOCKSTEP or not fast_names:
        return decode_scalar(messages, names, entity=entity)
    fast = _Columns(messages, fast_names, entity, find_fields(messages, fast_names)).batch()
    if len(fast_names) == len(names):
        return fast
    rest = decode_scalar(messages, [name for name in names if _by_scalar_only(name)], entity=entity)
    merged = [(fast if name in fast_names else rest).column(name) for name in names]
    return pa.RecordBatch.from_arrays(merged, schema=col.schema(names))


def _by_scalar_only(name: str) -> bool:
    return bool(COLUMNS[name].type == col.TYPED_MAP)


def decode_scalar(messages: Messages, names: Sequence[str], *, entity: str | None = None, which: Ints | None = None) -> pa.RecordBatch:
    """Messages to one batch, each decoded on its own: the reference, complete for every shape of message."""
    sections = sections_of(names)
    rows = []
    for index in range(len(messages)) if which is None else which.tolist():
        wire = messages.buffer[messages.start[index] : messages.end[index]]
        at = int(messages.token[index])
        token = None if at < 0 else UUID(bytes=messages.buffer[at : at + 16])
        try:
            rows.append(Received(decode_message(wire, sections=sections), wire, token, entity))
        except DecodeError as problem:
            raise problem.at_message(index) from None
    return rows_to_batch(rows, names)


class _Columns:
    """The columns of one batch from its fields, by the rules that columns.py says."""

    def __init__(self, messages: Messages, names: Sequence[str], entity: str | None, fields: Fields) -> None:
        self.messages = messages
        self.names = names
        self.entity = entity
        self.fields = fields
        self.count = len(messages)

    def batch(self) -> pa.RecordBatch:
        arrays = [self._column(name) for name in self.names]
        fast = pa.RecordBatch.from_arrays(arrays, schema=col.schema(self.names))
        slow = self.fields.slow.nonzero()[0]
        if len(slow) == 0:
            return fast
        # Only these messages take the slow way; then all are put back in order.
        rest = decode_scalar(self.messages, self.names, entity=self.entity, which=slow)
        order = np.arange(self.count)
        order[slow] = np.arange(self.count, self.count + len(slow))
        together = pa.Table.from_batches([fast, rest]).combine_chunks().to_batches()[0]
        return together.take(pa.array(order))

    def _column(self, name: str) -> pa.Array:
        if name in FIELD_OF_TEXT and name != "lock_token":
            return self.fields.text(FIELD_OF_TEXT[name])
        if name in _INTEGERS:
            return build.numbers(*self.fields.integer(_INTEGERS[name]), pa.int64())
        if name in _TIMES:
            return self._times(*self.fields.integer(_TIMES[name]))
        array: pa.Array = getattr(self, f"_{name}")()
        return array

    def _times(self, milliseconds: Ints, valid: Mask) -> pa.Array:
        valid = valid & (milliseconds > col.NEVER_SET_MS) & (milliseconds <= col.LAST_MS)
        return build.numbers(np.where(valid, milliseconds, 0) * 1000, valid, col.TIMESTAMP)

    def _entity(self) -> pa.Array:
        return pa.nulls(self.count, pa.string()) if self.entity is None else build.repeated(self.entity, self.count)

    @cached_property
    def _ttl(self) -> tuple[Ints, Mask]:
        ttl, valid = self.fields.integer("ttl")
        created, has_created = self.fields.integer("creation-time")
        expires, has_expires = self.fields.integer("absolute-expiry-time")
        # Times so far apart that their difference overflows are for the scalar decoder.
        longer = (~valid | (ttl == col.TTL_LIMIT)) & has_created & has_expires
        self.fields.slow |= longer & ((np.abs(created) > 2**61) | (np.abs(expires) > 2**61))
        return np.where(longer, expires - created, ttl), valid | longer

    def _time_to_live_ms(self) -> pa.Array:
        return build.numbers(*self._ttl, pa.int64())

    def _expires_at(self) -> pa.Array:
        ttl, has_ttl = self._ttl
        enqueued, has_enqueued = self.fields.integer("x-opt-enqueued-time")
        absolute, has_absolute = self.fields.integer("absolute-expiry-time")
        both = has_ttl & has_enqueued
        self.fields.slow |= both & ((np.abs(ttl) > 2**61) | (np.abs(enqueued) > 2**61))
        return self._times(np.where(both, enqueued + ttl, absolute), both | has_absolute)

    def _delivery_count(self) -> pa.Array:
        values, valid = self.fields.integer("delivery-count")
        valid = valid & (values >= -(2**31)) & (values < 2**31)
        return build.numbers(np.where(valid, values, 0), valid, pa.int32())

    def _state(self) -> pa.Array:
        values, valid = self.fields.integer("x-opt-message-state")
        self.fields.slow |= valid & ((values < 0) | (values >= len(col.STATES)))
        return build.names(np.where(valid, values, 0).clip(0, len(col.STATES) - 1).astype(np.uint8), None, col.STATES)

    def _lock_token(self) -> pa.Array:
        token = self.messages.token
        given = token >= 0
        uuids = build.uuids(self.messages.buffer, np.maximum(token, 0)) if given.any() else None
        if uuids is not None and given.all():
            return uuids
        annotated = self.fields.text(FIELD_OF_TEXT["lock_token"])
        if uuids is None:
            return annotated
        place = np.where(given, np.arange(self.count), np.arange(self.count, 2 * self.count))
        return pa.concat_arrays([uuids, annotated]).take(pa.array(place))

    def _application_properties(self) -> pa.Array:
        return self.fields.application_properties()

    def _body(self) -> pa.Array:
        return self.fields.body()

    def _body_type(self) -> pa.Array:
        return self.fields.body_type()

    def _amqp_message(self) -> pa.Array:
        return build.slices(self.messages.buffer, self.messages.start, self.messages.end)
