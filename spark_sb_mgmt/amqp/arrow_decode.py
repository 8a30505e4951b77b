"""Responses to Arrow: one RecordBatch with exactly the asked columns, straight from the bytes of peek and receive answers.

The one rule: both ways give the same batch. `lockstep` says where each field of the common shapes lies, `arrow_build` makes columns of
that; messages it steps aside from, small batches and the typed section columns go through the scalar decoder (`columns`), and the rows
come out in the order of the responses either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from sys import byteorder
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_sb_mgmt.amqp import arrow_build as build
from spark_sb_mgmt.amqp import columns as col
from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp import message as m
from spark_sb_mgmt.amqp.columns import COLUMNS, DEFAULT_COLUMNS, Received, rows_to_batch, sections_of
from spark_sb_mgmt.amqp.lockstep import PADDING, Cells, Ints, Located, Mask, Pairs, Views, Walk, all_alike, by_code
from spark_sb_mgmt.amqp.message import decode_message
from spark_sb_mgmt.amqp.response import find_entries, read_entry
from spark_sb_mgmt.errors import DecodeError

# Below this many messages a batch the fixed cost of the walk is more than it saves (make bench, decode).
FEWEST_FOR_LOCKSTEP = 48
# Arrow's binary and string columns have 32-bit offsets.
MAX_BATCH_BYTES = 2**31 - 1 - len(PADDING)

_FIELD_INDEX: dict[str, tuple[int, int]] = {
    **{name: (m.HEADER, index) for index, (name, _) in enumerate(m.Header.FIELDS)},
    **{name: (m.PROPERTIES, index) for index, (name, _) in enumerate(m.Properties.FIELDS)},
}
_TEXT_FIELDS: dict[str, str] = {
    "message_id": "message-id",
    "session_id": "group-id",
    "correlation_id": "correlation-id",
    "subject": "subject",
    "to": "to",
    "reply_to": "reply-to",
    "reply_to_session_id": "reply-to-group-id",
    "content_type": "content-type",
}
_TEXT_KEYS: dict[str, tuple[int, bytes]] = {
    "partition_key": (m.MESSAGE_ANNOTATIONS, b"x-opt-partition-key"),
    "via_partition_key": (m.MESSAGE_ANNOTATIONS, b"x-opt-via-partition-key"),
    "dead_letter_source": (m.MESSAGE_ANNOTATIONS, b"x-opt-deadletter-source"),
    "dead_letter_reason": (m.APPLICATION_PROPERTIES, b"DeadLetterReason"),
    "dead_letter_error_description": (m.APPLICATION_PROPERTIES, b"DeadLetterErrorDescription"),
}
_INTEGER_KEYS: dict[str, bytes] = {
    "sequence_number": b"x-opt-sequence-number",
    "enqueued_sequence_number": b"x-opt-enqueue-sequence-number",
}
_TIME_KEYS: dict[str, bytes] = {
    "enqueued_time": b"x-opt-enqueued-time",
    "scheduled_enqueue_time": b"x-opt-scheduled-enqueue-time",
    "locked_until": b"x-opt-locked-until",
}
_BODY_INDEX = {m.DATA: 0, m.AMQP_SEQUENCE: 1, m.AMQP_VALUE: 2}


@dataclass(frozen=True)
class Messages:
    """The encoded messages of some responses, as places in one buffer that ends in PADDING."""

    buffer: bytes
    start: Ints
    end: Ints
    # Where the 16 bytes of the lock token start, or -1.
    token: Ints

    def __len__(self) -> int:
        return len(self.start)


def locate(responses: Sequence[bytes]) -> Messages:
    """Find every message of these responses. An error in a response counts its offset from the start of that response, one in an
    entry of the messages list from the start of that entry."""
    size = sum(map(len, responses))
    if size > MAX_BATCH_BYTES:
        raise ValueError(f"{size} bytes of responses are more than one batch can hold ({MAX_BATCH_BYTES}): give fewer at once")
    starts: list[Ints] = []
    ends: list[Ints] = []
    base = 0
    for response in responses:
        bounds = np.array(find_entries(response), np.int64) + base
        starts.append(bounds[:-1])
        ends.append(bounds[1:])
        base += len(response)
    none: list[Ints] = [np.empty(0, np.int64)]
    buffer = b"".join([*responses, PADDING])
    return _entries(buffer, np.concatenate(starts or none), np.concatenate(ends or none))


# What an entry of a peek answer begins with, as every encoder seen writes it; `map32` with its size and count, str8 "message", binary32.
_ENTRY_KEY = int.from_bytes(b"\xa1\x07messag", byteorder)


def _entries(buffer: bytes, entry_start: Ints, entry_end: Ints) -> Messages:
    count = len(entry_start)
    token = np.full(count, -1, np.int64)
    if count == 0:
        return Messages(buffer, entry_start, entry_end, token)
    views = Views(buffer)
    start, end = entry_start.copy(), entry_end.copy()
    # The plain shape, for all at once: map32 of one pair, "message" and a binary32 that fills the entry.
    plain = (views.u8[entry_start] == c.MAP_32) & (views.u32[entry_start + 5] == 2)
    plain &= (views.words[entry_start + 9] == _ENTRY_KEY) & (views.u8[entry_start + 17] == ord("e"))
    plain &= views.u8[entry_start + 18] == c.BINARY_32
    plain &= entry_start + 23 + views.u32[entry_start + 19] == entry_end
    start += 23
    for index in (~plain).nonzero()[0]:
        at = int(entry_start[index])
        try:
            first, last, token_at = read_entry(buffer, at, int(entry_end[index]))
        except DecodeError as problem:
            raise DecodeError(problem.problem, problem.offset - at, message=int(index)) from None
        start[index], end[index], token[index] = first, last, -1 if token_at is None else token_at
    return Messages(buffer, start, end, token)


def decode_responses(responses: Sequence[bytes], names: Sequence[str] = DEFAULT_COLUMNS, *, entity: str | None = None) -> pa.RecordBatch:
    """The messages of these responses, in order, as one batch of the columns `names`."""
    return decode_located(locate(responses), names, entity=entity)


def decode_located(messages: Messages, names: Sequence[str], *, entity: str | None = None) -> pa.RecordBatch:
    """Messages to one batch of the columns `names`, by the fast path where it knows the way."""
    fast_names = [name for name in names if not _by_scalar_only(name)]
    if len(messages) < FEWEST_FOR_LOCKSTEP or not fast_names:
        return decode_scalar(messages, names, entity=entity)
    fast = _Lockstep(messages, fast_names, entity).batch()
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


class _Lockstep:
    """The columns of one batch from what the walk located."""

    def __init__(self, messages: Messages, names: Sequence[str], entity: str | None) -> None:
        self.messages = messages
        self.names = names
        self.entity = entity
        self.count = len(messages)
        self.views = Views(messages.buffer)
        self.build = build.Builder(messages.buffer, self.views)
        self.located: Located = Walk(self.views, messages.start, messages.end).run(sections_of(names))
        self._pairs: dict[int, Pairs | None] = {}
        self._marks: dict[int, tuple[Ints, npt.NDArray[np.uint64]]] = {}
        self._found: dict[tuple[int, bytes], Cells | None] = {}

    def batch(self) -> pa.RecordBatch:
        arrays = [self._column(name) for name in self.names]
        fast = pa.RecordBatch.from_arrays(arrays, schema=col.schema(self.names))
        slow = self.located.slow.nonzero()[0]
        if len(slow) == 0:
            return fast
        # Only these messages take the slow way; then all are put back in order.
        rest = decode_scalar(self.messages, self.names, entity=self.entity, which=slow)
        order = np.arange(self.count)
        order[slow] = np.arange(self.count, self.count + len(slow))
        together = pa.Table.from_batches([fast, rest]).combine_chunks().to_batches()[0]
        return together.take(pa.array(order))

    def _column(self, name: str) -> pa.Array:
        if name in _TEXT_FIELDS:
            return self._texts(self._field(_TEXT_FIELDS[name]))
        if name in _TEXT_KEYS:
            return self._texts(self._key(*_TEXT_KEYS[name]))
        if name in _INTEGER_KEYS:
            return build.numbers(*self._integers(self._key(m.MESSAGE_ANNOTATIONS, _INTEGER_KEYS[name])), pa.int64())
        if name in _TIME_KEYS:
            return self._times(*self._integers(self._key(m.MESSAGE_ANNOTATIONS, _TIME_KEYS[name])))
        array: pa.Array = getattr(self, f"_{name}")()
        return array

    # Where fields and keys are

    def _field(self, name: str) -> Cells | None:
        section, index = _FIELD_INDEX[name]
        cells = self.located.fields.get(section, [])
        return cells[index] if index < len(cells) else None

    def _all_pairs(self, section: int) -> Pairs | None:
        """Every pair of a section, step by step: a key that comes twice in a row is found last where it stands last."""
        if section not in self._pairs:
            steps = self.located.maps.get(section, [])
            self._pairs[section] = Pairs(_join([step.keys for step in steps]), _join([step.values for step in steps])) if steps else None
        return self._pairs[section]

    def _key(self, section: int, key: bytes) -> Cells | None:
        place = (section, key)
        if place not in self._found:
            self._found[place] = self._find_key(section, key)
        return self._found[place]

    def _find_key(self, section: int, key: bytes) -> Cells | None:
        """The values under a key of 8 bytes or more, compared eight bytes at a time from its end."""
        pairs = self._all_pairs(section)
        if pairs is None:
            return None
        length, last_word = self._key_marks(section, pairs)
        where = ((length == len(key)) & (last_word == _word(key, len(key)))).nonzero()[0]
        for after in [*range(len(key) - 8, 7, -8), 8]:
            where = where[self.views.words[pairs.keys.start[where] + (after - 8)] == _word(key, after)]
        return _last_of_each_row(pairs.values.select(where)) if len(where) else None

    def _key_marks(self, section: int, pairs: Pairs) -> tuple[Ints, npt.NDArray[np.uint64]]:
        """Of every key its length and last eight bytes: these tell the known keys apart but for chance."""
        if section not in self._marks:
            keys = pairs.keys
            self._marks[section] = (keys.end - keys.start, self.views.words[keys.end - 8])
        return self._marks[section]

    # Kinds of columns

    def _texts(self, cells: Cells | None) -> pa.Array:
        if cells is None:
            return pa.nulls(self.count, pa.string())
        whole = len(cells.rows) == self.count and not self.located.slow.any()
        if whole and cells.code[0] in build.TEXT_CODES and all_alike(cells.code):
            return self.build.texts(cells.start, cells.end)
        cells = cells.select(~self.located.slow[cells.rows])
        if len(cells.rows) == 0:
            return pa.nulls(self.count, pa.string())
        place = np.zeros(self.count, np.int64)
        valid = np.zeros(self.count, np.bool_)
        place[cells.rows] = np.arange(len(cells.rows))
        valid[cells.rows] = True
        return self.build.shown(cells).take(pa.array(place, mask=~valid))

    def _integers(self, cells: Cells | None) -> tuple[Ints, Mask]:
        """Integers of any width, one a row; a value of another type makes its row slow."""
        values, valid = np.zeros(self.count, np.int64), np.zeros(self.count, np.bool_)
        if cells is None:
            return values, valid
        for code, which in by_code(cells.code):
            rows = cells.rows[which]
            found = None if code == c.NULL else self.views.read(code, cells.start[which])
            if code == c.NULL:
                valid[rows] = False
            elif found is None:
                self.located.slow[rows] = True
            else:
                values[rows] = found
                valid[rows] = True if code != c.ULONG else found >= 0
        return values, valid

    def _times(self, milliseconds: Ints, valid: Mask) -> pa.Array:
        valid = valid & (milliseconds > col.NEVER_SET_MS) & (milliseconds <= col.LAST_MS)
        return build.numbers(np.where(valid, milliseconds, 0) * 1000, valid, col.TIMESTAMP)

    # Columns with a rule of their own (columns.py says them)

    def _entity(self) -> pa.Array:
        return pa.repeat(pa.scalar(self.entity, pa.string()), self.count)

    @cached_property
    def _ttl(self) -> tuple[Ints, Mask]:
        ttl, valid = self._integers(self._field("ttl"))
        created, has_created = self._integers(self._field("creation-time"))
        expires, has_expires = self._integers(self._field("absolute-expiry-time"))
        # Times so far apart that their difference overflows are for the scalar decoder.
        longer = (~valid | (ttl == col.TTL_LIMIT)) & has_created & has_expires
        self.located.slow |= longer & ((np.abs(created) > 2**61) | (np.abs(expires) > 2**61))
        return np.where(longer, expires - created, ttl), valid | longer

    def _time_to_live_ms(self) -> pa.Array:
        return build.numbers(*self._ttl, pa.int64())

    def _expires_at(self) -> pa.Array:
        ttl, has_ttl = self._ttl
        enqueued, has_enqueued = self._integers(self._key(m.MESSAGE_ANNOTATIONS, b"x-opt-enqueued-time"))
        absolute, has_absolute = self._integers(self._field("absolute-expiry-time"))
        both = has_ttl & has_enqueued
        self.located.slow |= both & ((np.abs(ttl) > 2**61) | (np.abs(enqueued) > 2**61))
        return self._times(np.where(both, enqueued + ttl, absolute), both | has_absolute)

    def _delivery_count(self) -> pa.Array:
        values, valid = self._integers(self._field("delivery-count"))
        valid &= (values >= -(2**31)) & (values < 2**31)
        return build.numbers(np.where(valid, values, 0), valid, pa.int32())

    def _state(self) -> pa.Array:
        values, valid = self._integers(self._key(m.MESSAGE_ANNOTATIONS, b"x-opt-message-state"))
        self.located.slow |= valid & ((values < 0) | (values >= len(col.STATES)))
        return build.names(np.where(valid, values, 0).clip(0, len(col.STATES) - 1).astype(np.uint8), None, col.STATES)

    def _lock_token(self) -> pa.Array:
        token = self.messages.token
        given = token >= 0
        if given.all():
            return self.build.uuids(token)
        annotated = self._texts(self._key(m.DELIVERY_ANNOTATIONS, b"x-opt-lock-token"))
        if not given.any():
            return annotated
        place = np.where(given, np.arange(self.count), np.arange(self.count, 2 * self.count))
        return pa.concat_arrays([self.build.uuids(np.maximum(token, 0)), annotated]).take(pa.array(place))

    def _application_properties(self) -> pa.Array:
        kind = COLUMNS["application_properties"].type
        present = np.zeros(self.count, np.bool_)
        present[self.located.present.get(m.APPLICATION_PROPERTIES, np.empty(0, np.int64))] = True
        present &= ~self.located.slow
        pairs = self._all_pairs(m.APPLICATION_PROPERTIES)
        if pairs is None:
            empty = pa.array([], pa.string())
            return self._map(np.zeros(self.count, np.int64), present, empty, empty, kind)
        # Steps come one after the other; each row's pairs must stand together, which is the order of their places.
        order = np.argsort(pairs.keys.start, kind="stable")
        order = order[present[pairs.keys.rows[order]]]
        keys, values = pairs.keys.select(order), pairs.values.select(order)
        sizes = np.bincount(keys.rows, minlength=self.count)
        return self._map(sizes, present, self.build.texts(keys.start, keys.end), self.build.shown(values), kind)

    def _map(self, sizes: Ints, present: Mask, keys: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
        offsets = np.zeros(self.count + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        entries = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(kind, self.count, [validity, pa.py_buffer(offsets)], children=[entries])

    def _body(self) -> pa.Array:
        start, end = self.messages.start.copy(), self.messages.start.copy()
        valid = np.zeros(self.count, np.bool_)
        for _, cells in self.located.body:
            start[cells.rows], end[cells.rows], valid[cells.rows] = cells.start, cells.end, True
        slow = self.located.slow
        if slow.any():
            start[slow], end[slow], valid[slow] = self.messages.start[slow], self.messages.start[slow], False
        return self.build.slices(start, end, None if valid.all() else valid)

    def _body_type(self) -> pa.Array:
        index, valid = np.zeros(self.count, np.uint8), np.zeros(self.count, np.bool_)
        for section, cells in self.located.body:
            index[cells.rows], valid[cells.rows] = _BODY_INDEX[section], True
        return build.names(index, valid, col.BODY_TYPES)

    def _amqp_message(self) -> pa.Array:
        return self.build.slices(self.messages.start, self.messages.end)


def _word(key: bytes, after: int) -> int:
    return int.from_bytes(key[after - 8 : after], byteorder)


def _join(cells: list[Cells]) -> Cells:
    if len(cells) == 1:
        return cells[0]
    return Cells(*(np.concatenate([getattr(one, part) for one in cells]) for part in ("rows", "code", "start", "end")))


def _last_of_each_row(cells: Cells) -> Cells:
    """Cells in the order of rows, the last one where a row has several."""
    rows = cells.rows
    if len(rows) > 1 and not (rows[1:] > rows[:-1]).all():
        order = np.argsort(rows, kind="stable")
        sorted_rows = rows[order]
        last = np.append(sorted_rows[1:] != sorted_rows[:-1], True)
        return cells.select(order[last])
    return cells
