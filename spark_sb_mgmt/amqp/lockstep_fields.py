"""The fields of many messages by numpy: what `lockstep` located, as Arrow columns.

The one rule: a field is looked for once, by its name in AMQP or its key in Service Bus; which section it stands in is known here alone.
"""

from __future__ import annotations

from collections.abc import Container
from sys import byteorder

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_sb_mgmt.amqp import arrow_build as build
from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp import message as m
from spark_sb_mgmt.amqp.columns import BODY_TYPES, COLUMNS
from spark_sb_mgmt.amqp.lockstep import Cells, Ints, Located, Mask, Pairs, Views, Walk, all_alike, by_code
from spark_sb_mgmt.amqp.messages import Messages

_LISTED: dict[str, tuple[int, int]] = {
    **{name: (m.HEADER, index) for index, (name, _) in enumerate(m.Header.FIELDS)},
    **{name: (m.PROPERTIES, index) for index, (name, _) in enumerate(m.Properties.FIELDS)},
}
_IN_OTHER_MAPS: dict[str, int] = {
    "x-opt-lock-token": m.DELIVERY_ANNOTATIONS,
    "DeadLetterReason": m.APPLICATION_PROPERTIES,
    "DeadLetterErrorDescription": m.APPLICATION_PROPERTIES,
}
_BODY_INDEX = {m.DATA: 0, m.AMQP_SEQUENCE: 1, m.AMQP_VALUE: 2}


class LockstepFields:
    def __init__(self, messages: Messages, sections: Container[int]) -> None:
        self.messages = messages
        self.count = len(messages)
        self.views = Views(messages.buffer)
        self.build = build.Builder(messages.buffer, self.views)
        self.located: Located = Walk(self.views, messages.start, messages.end).run(sections)
        self.slow: Mask = self.located.slow
        self._pairs: dict[int, Pairs | None] = {}
        self._marks: dict[int, tuple[Ints, npt.NDArray[np.uint64]]] = {}
        self._found: dict[str, Cells | None] = {}

    def _cells(self, name: str) -> Cells | None:
        if name in _LISTED:
            section, index = _LISTED[name]
            cells = self.located.fields.get(section, [])
            return cells[index] if index < len(cells) else None
        if name not in self._found:
            self._found[name] = self._find_key(_IN_OTHER_MAPS.get(name, m.MESSAGE_ANNOTATIONS), name.encode())
        return self._found[name]

    def _all_pairs(self, section: int) -> Pairs | None:
        """Every pair of a section, step by step: a key that comes twice in a row is found last where it stands last."""
        if section not in self._pairs:
            steps = self.located.maps.get(section, [])
            self._pairs[section] = Pairs(_join([step.keys for step in steps]), _join([step.values for step in steps])) if steps else None
        return self._pairs[section]

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

    def text(self, name: str) -> pa.Array:
        cells = self._cells(name)
        if cells is None:
            return pa.nulls(self.count, pa.string())
        whole = len(cells.rows) == self.count and not self.slow.any()
        if whole and cells.code[0] in build.TEXT_CODES and all_alike(cells.code):
            return self.build.texts(cells.start, cells.end)
        cells = cells.select(~self.slow[cells.rows])
        if len(cells.rows) == 0:
            return pa.nulls(self.count, pa.string())
        place = np.zeros(self.count, np.int64)
        valid = np.zeros(self.count, np.bool_)
        place[cells.rows] = np.arange(len(cells.rows))
        valid[cells.rows] = True
        return self.build.shown(cells).take(pa.array(place, mask=~valid))

    def integer(self, name: str) -> tuple[Ints, Mask]:
        """Integers of any width, one a row; a value of another type makes its row slow."""
        cells = self._cells(name)
        values, valid = np.zeros(self.count, np.int64), np.zeros(self.count, np.bool_)
        if cells is None:
            return values, valid
        for code, which in by_code(cells.code):
            rows = cells.rows[which]
            found = None if code == c.NULL else self.views.read(code, cells.start[which])
            if code == c.NULL:
                valid[rows] = False
            elif found is None:
                self.slow[rows] = True
            else:
                values[rows] = found
                valid[rows] = True if code != c.ULONG else found >= 0
        return values, valid

    def application_properties(self) -> pa.Array:
        kind = COLUMNS["application_properties"].type
        present = np.zeros(self.count, np.bool_)
        present[self.located.present.get(m.APPLICATION_PROPERTIES, np.empty(0, np.int64))] = True
        present &= ~self.slow
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
        return build.text_map(kind, self.count, np.packbits(present, bitorder="little"), offsets, keys, values)

    def body(self) -> pa.Array:
        start, end = self.messages.start.copy(), self.messages.start.copy()
        valid = np.zeros(self.count, np.bool_)
        for _, cells in self.located.body:
            start[cells.rows], end[cells.rows], valid[cells.rows] = cells.start, cells.end, True
        slow = self.slow
        if slow.any():
            start[slow], end[slow], valid[slow] = self.messages.start[slow], self.messages.start[slow], False
        return build.slices(self.messages.buffer, start, end, None if valid.all() else valid)

    def body_type(self) -> pa.Array:
        index, valid = np.zeros(self.count, np.uint8), np.zeros(self.count, np.bool_)
        for section, cells in self.located.body:
            index[cells.rows], valid[cells.rows] = _BODY_INDEX[section], True
        return build.names(index, valid, BODY_TYPES)


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
