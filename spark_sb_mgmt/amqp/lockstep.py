"""Where everything lies, for a batch of messages at once: the numpy lock-step walk (DESIGN section 4).

All messages of a batch advance one field at a time, as arrays of cursors over one buffer. Nothing is decoded here: the result is, for every
field that somebody asked for, which rows have it and the constructor, start and end of its value.

The one rule: be right or step aside. A message that this walk does not know to the last byte is marked `slow` and left to the scalar
decoder, which either reads it or says what is wrong with it. So every check here only marks rows, and cursors of marked rows may
point anywhere inside the padded buffer, whose tail keeps reads past the end harmless.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp import message as m

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

# More items than this in one list or map are for the scalar decoder: a count of four billion must not become a loop.
MAX_ITEMS = 128
# A cursor overruns its end by at most one fixed-width value an item before the check at the end of the container catches it.
PADDING = bytes(MAX_ITEMS * 17 + 32)

_UNKNOWN = -1
# By constructor byte: bytes of a fixed-width value, bytes of the size of a variable one, else _UNKNOWN: nested values are left to
# the scalar decoder.
_FIXED = np.full(256, _UNKNOWN, np.int64)
_SIZE = np.zeros(256, np.int64)
for _code, _name in c.TYPE_NAMES.items():
    if _code >> 4 in c.FIXED_WIDTH and _name != "list":
        _FIXED[_code] = c.FIXED_WIDTH[_code >> 4]
    elif _code >> 4 in (0xA, 0xB):
        _FIXED[_code] = 0
        _SIZE[_code] = c.SIZE_WIDTH[_code >> 4]
# The same as lists: a look-up of a single one is quicker there.
_FIXED_OF: list[int] = _FIXED.tolist()
_SIZE_OF: list[int] = _SIZE.tolist()
_TEXT = np.zeros(256, np.bool_)
_TEXT[[c.STRING_8, c.STRING_32, c.SYMBOL_8, c.SYMBOL_32]] = True


class Views:
    """One buffer seen as numbers of every width, at any byte offset."""

    def __init__(self, buffer: bytes) -> None:
        """`buffer` must end in PADDING."""
        size = len(buffer) - 15
        self.u8: Bytes = np.frombuffer(buffer, np.uint8)
        self._buffer, self._size = buffer, size
        self.u32 = self._at_any_offset(">u4")
        # Eight bytes to compare, not to count with: in the machine's own order, which numpy compares fastest.
        self.words = self._at_any_offset("=u8")

    def _at_any_offset(self, dtype: str) -> npt.NDArray[Any]:
        return np.ndarray((self._size,), np.dtype(dtype), self._buffer, strides=(1,))

    def read(self, code: int, start: Ints) -> Ints | None:
        """The integers of one constructor at these offsets; None where it is no integer. A ulong may come out negative: too large."""
        dtype = _INTEGERS.get(code)
        if dtype is None:
            return None
        if dtype == "0":
            return np.zeros(len(start), np.int64)
        return self._at_any_offset(dtype)[start].astype(np.int64)

    def doubles(self, start: Ints) -> npt.NDArray[np.float64]:
        """The 64-bit floating point numbers at these offsets."""
        return self._at_any_offset(">f8")[start]


_INTEGERS: dict[int, str] = {
    c.UBYTE: "u1",
    c.SMALL_UINT: "u1",
    c.SMALL_ULONG: "u1",
    c.BYTE: "i1",
    c.SMALL_INT: "i1",
    c.SMALL_LONG: "i1",
    c.USHORT: ">u2",
    c.SHORT: ">i2",
    c.UINT: ">u4",
    c.INT: ">i4",
    c.CHAR: ">u4",
    c.ULONG: ">u8",
    c.LONG: ">i8",
    c.TIMESTAMP: ">i8",
    c.UINT_0: "0",
    c.ULONG_0: "0",
}


@dataclass
class Cells:
    """One field of many rows: for each of `rows`, the constructor of its value and where its bytes start and end."""

    rows: Ints
    code: Bytes
    start: Ints
    end: Ints

    def select(self, which: Any) -> Cells:
        return Cells(self.rows[which], self.code[which], self.start[which], self.end[which])


@dataclass
class Pairs:
    """The pairs of a map section of many rows, in the order of the buffer within each step."""

    keys: Cells
    values: Cells


@dataclass
class Located:
    """What the walk found. Rows that are `slow` may appear anywhere; their cells mean nothing."""

    slow: Mask
    fields: dict[int, list[Cells]] = field(default_factory=dict)
    maps: dict[int, list[Pairs]] = field(default_factory=dict)
    # Rows that have the section at all, also where it is empty.
    present: dict[int, Ints] = field(default_factory=dict)
    body: list[tuple[int, Cells]] = field(default_factory=list)


def all_alike(code: Bytes) -> bool:
    """Whether one constructor stands everywhere. Counting in bytes takes a third of the time of a comparison in numpy."""
    return code.tobytes().count(code[0].tobytes()) == len(code)


def by_code(code: Bytes) -> Iterator[tuple[int, Any]]:
    """Each constructor that occurs, with the selection of where."""
    if len(code) == 0:
        return
    if all_alike(code):
        yield int(code[0]), slice(None)
        return
    for value in np.bincount(code, minlength=256).nonzero()[0]:
        yield int(value), (code == value).nonzero()[0]


class Walk:
    """One pass over a batch: `start` and `end` bound each message within the buffer of `views`."""

    def __init__(self, views: Views, start: Ints, end: Ints) -> None:
        self.views = views
        self.end = end
        self.at = start
        self.all_rows = np.arange(len(start))
        self.located = Located(np.zeros(len(start), np.bool_))

    def run(self, wanted: Container[int]) -> Located:
        for section in (m.HEADER, m.DELIVERY_ANNOTATIONS, m.MESSAGE_ANNOTATIONS, m.PROPERTIES, m.APPLICATION_PROPERTIES):
            self._section(section, section in wanted)
        # A body of several sections, or of mixed kinds, leaves bytes that the last check finds.
        for section in (m.DATA, m.AMQP_SEQUENCE, m.AMQP_VALUE):
            self._section(section, section in wanted)
        self._section(m.FOOTER, m.FOOTER in wanted)
        self.located.slow |= self.at != self.end
        return self.located

    def _section(self, section: int, wanted: bool) -> None:
        here = (self.views.u32[self.at] >> 8) == (c.SMALL_ULONG << 8 | section)
        # What follows the end of a message is a neighbour's, or padding.
        here &= self.at + 3 < self.end
        if here.all():
            rows, at, end = self.all_rows, self.at + 3, self.end
        else:
            rows = here.nonzero()[0]
            if len(rows) == 0:
                return
            at, end = self.at[rows] + 3, self.end[rows]
        if not wanted:
            after = self._skip(rows, at, end)
        elif section == m.DATA:
            after = self._data(rows, at, end)
        elif section == m.AMQP_VALUE:
            after = self._value_body(rows, at, end)
        elif section in (m.HEADER, m.PROPERTIES):
            self.located.present[section] = rows
            after = self._list(section, rows, at, end)
        elif section in (m.DELIVERY_ANNOTATIONS, m.MESSAGE_ANNOTATIONS, m.APPLICATION_PROPERTIES):
            self.located.present[section] = rows
            after = self._map(section, rows, at, end)
        else:
            self.located.slow[rows] = True
            after = at
        if rows is self.all_rows:
            self.at = after
        else:
            self.at = self.at.copy()
            self.at[rows] = after

    def _mark(self, rows: Ints, bad: Mask) -> None:
        if bad.any():
            self.located.slow[rows[bad]] = True

    def _clip(self, rows: Ints, after: Ints, end: Ints) -> Ints:
        over = after > end
        if over.any():
            self.located.slow[rows[over]] = True
            return np.minimum(after, end)
        return after

    def _heads(self, rows: Ints, at: Ints, end: Ints) -> Cells:
        """The values that start at `at`: their constructors, and where their bytes are."""
        u8 = self.views.u8
        code = u8.take(at, mode="clip")
        if all_alike(code):
            first = int(code[0])
            width, size_width = _FIXED_OF[first], _SIZE_OF[first]
            if width == _UNKNOWN:
                self.located.slow[rows] = True
                return Cells(rows, code, at, at)
            if size_width == 0:
                start = at + 1
                if first == c.BOOLEAN:
                    self._mark(rows, u8.take(start, mode="clip") > 1)
                return Cells(rows, code, start, start + width if width else start)
            start = at + (1 + size_width)
            length = u8.take(at + 1, mode="clip") if size_width == 1 else self.views.u32[at + 1]
            stop = self._clip(rows, start + length, end)
            return Cells(rows, code, start, stop)
        widths, size_widths = _FIXED.take(code), _SIZE.take(code)
        self._mark(rows, widths == _UNKNOWN)
        lengths = np.maximum(widths, 0)
        narrow = size_widths == 1
        if narrow.any():
            lengths = np.where(narrow, u8.take(at + 1, mode="clip"), lengths)
        wide = (size_widths == 4).nonzero()[0]
        if len(wide):
            lengths[wide] = self.views.u32[at[wide] + 1]
        start = at + 1 + size_widths
        booleans = (code == c.BOOLEAN).nonzero()[0]
        if len(booleans):
            self._mark(rows[booleans], u8.take(start[booleans], mode="clip") > 1)
        return Cells(rows, code, start, self._clip(rows, start + lengths, end))

    def _skip(self, rows: Ints, at: Ints, end: Ints) -> Ints:
        """Past a section that nobody asked for, by its size."""
        after = at.copy()
        for code, which in by_code(self.views.u8.take(at, mode="clip")):
            here = at[which]
            if code not in c.TYPE_NAMES:
                self.located.slow[rows[which]] = True
            elif code >> 4 in c.FIXED_WIDTH:
                after[which] = here + 1 + c.FIXED_WIDTH[code >> 4]
            elif c.SIZE_WIDTH[code >> 4] == 1:
                after[which] = here + 2 + self.views.u8.take(here + 1, mode="clip")
            else:
                after[which] = here + 5 + self.views.u32[here + 1]
        return self._clip(rows, after, end)

    def _data(self, rows: Ints, at: Ints, end: Ints) -> Ints:
        cells = self._heads(rows, at, end)
        self._mark(rows, (cells.code != c.BINARY_8) & (cells.code != c.BINARY_32))
        self.located.body.append((m.DATA, cells))
        return cells.end

    def _value_body(self, rows: Ints, at: Ints, end: Ints) -> Ints:
        cells = self._heads(rows, at, end)
        # The column shows the canonical encoding: the bytes as they stand are that only for these.
        canonical = np.isin(cells.code, _SHORT_CANONICAL)
        canonical |= np.isin(cells.code, _LONG_CANONICAL) & (cells.end - cells.start >= 256)
        self._mark(rows, ~canonical)
        self.located.body.append((m.AMQP_VALUE, Cells(rows, cells.code, at, cells.end)))
        return cells.end

    def _frames(self, rows: Ints, at: Ints, end: Ints, codes: tuple[int, ...]) -> tuple[Ints, Ints, Ints]:
        """Of the lists or maps at `at`: count of items, start of the first, end of the last."""
        count, start, stop = np.zeros(len(at), np.int64), at + 1, at + 1
        for code, which in by_code(self.views.u8.take(at, mode="clip")):
            here = at[which]
            if code not in codes:
                self.located.slow[rows[which]] = True
            elif code != c.LIST_0:
                if code >> 4 == 0xC:
                    size, items = self.views.u8.take(here + 1, mode="clip"), self.views.u8.take(here + 2, mode="clip")
                    first, size_width = here + 3, 1
                else:
                    size, items = self.views.u32[here + 1], self.views.u32[np.minimum(here + 5, end[which])]
                    first, size_width = here + 9, 4
                last = here + 1 + size_width + size.astype(np.int64)
                if isinstance(which, slice):
                    count, start, stop = items.astype(np.int64), first, last
                else:
                    count[which], start[which], stop[which] = items, first, last
        stop = self._clip(rows, stop, end)
        bad = (count > MAX_ITEMS) | (start > stop)
        if bad.any():
            self.located.slow[rows[bad]] = True
            count = np.where(bad, 0, count)
            start = np.minimum(start, stop)
        return count, start, stop

    def _list(self, section: int, rows: Ints, at: Ints, end: Ints) -> Ints:
        count, start, stop = self._frames(rows, at, end, (c.LIST_0, c.LIST_8, c.LIST_32))
        most = len((m.Header if section == m.HEADER else m.Properties).FIELDS)
        if int(count.max()) > most:
            self._mark(rows, count > most)
            count = np.minimum(count, most)
        cells = self.located.fields.setdefault(section, [])
        for step in self._steps(rows, start, stop, count, 1):
            cells.append(step[0])
        return stop

    def _map(self, section: int, rows: Ints, at: Ints, end: Ints) -> Ints:
        count, start, stop = self._frames(rows, at, end, (c.MAP_8, c.MAP_32))
        self._mark(rows, (count & 1) == 1)
        pairs = self.located.maps.setdefault(section, [])
        for keys, values in self._steps(rows, start, stop, count // 2, 2):
            self._mark(keys.rows, ~_TEXT.take(keys.code))
            pairs.append(Pairs(keys, values))
        return stop

    def _steps(self, rows: Ints, at: Ints, stop: Ints, count: Ints, width: int) -> Iterator[list[Cells]]:
        """`width` values a step, of the rows that have that many, until the fullest row is done."""
        fewest, most = int(count.min()), int(count.max())
        for step in range(most):
            if step >= fewest:
                going = count > step
                if not going.all():
                    done = ~going
                    self._mark(rows[done], at[done] != stop[done])
                    rows, at, stop, count = rows[going], at[going], stop[going], count[going]
            found = []
            for _ in range(width):
                cells = self._heads(rows, at, stop)
                found.append(cells)
                at = cells.end
            yield found
        self._mark(rows, at != stop)


_SHORT_CANONICAL = np.array([c.NULL, c.TRUE, c.FALSE, c.BINARY_8, c.STRING_8], np.uint8)
_LONG_CANONICAL = np.array([c.BINARY_32, c.STRING_32], np.uint8)
