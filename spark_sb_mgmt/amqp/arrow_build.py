"""Arrow arrays straight from places in a buffer: offsets and one data buffer, never a Python object a value (DESIGN section 4).

The one rule: a place is a start and an end in the batch's buffer, places of one column come in the order of the buffer, and Arrow's own
kernels do the copying. A null has its place too, an empty one, so that the order holds.

Arrays that most batches have are made of buffers: `pa.array` and `pa.scalar` import pandas where it is installed, which costs every new
worker of Spark most of a second, and memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.lockstep import Bytes, Cells, Ints, Mask, Views, by_code
from spark_sb_mgmt.amqp.typed_text import ISO_MAXIMUM, ISO_MINIMUM, to_text
from spark_sb_mgmt.amqp.types import Timestamp

TEXT_CODES = (c.STRING_8, c.STRING_32, c.SYMBOL_8, c.SYMBOL_32)
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), "S2")
# Where the 32 hexadecimal digits of a uuid go among its 36 characters; dashes stand at the other four.
_DIGITS = np.array([place for place in range(36) if place not in (8, 13, 18, 23)])


class Builder:
    """Makes columns of one batch. `buffer` holds every message; numbers are read through `views`."""

    def __init__(self, buffer: bytes, views: Views) -> None:
        self.buffer = buffer
        self.views = views

    def texts(self, start: Ints, end: Ints, valid: Mask | None = None) -> pa.Array:
        """Text from start to end of each, as a string array; bytes that are not UTF-8 are shown as `\\xNN`."""
        raw = slices(self.buffer, start, end, valid)
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([_readable(value) for value in raw.to_pylist()], pa.string())

    def shown(self, cells: Cells) -> pa.Array:
        """Values of any type as the text that `to_text` gives, one for each cell."""
        kinds = list(by_code(cells.code))
        if all(code in TEXT_CODES for code, _ in kinds):
            return self.texts(cells.start, cells.end)
        return _assemble(len(cells.code), [(which, self._shown_alike(code, cells.select(which))) for code, which in kinds])

    def _shown_alike(self, code: int, cells: Cells) -> pa.Array:
        if code in TEXT_CODES:
            return self.texts(cells.start, cells.end)
        if code == c.NULL:
            return pa.nulls(len(cells.code), pa.string())
        if code in (c.TRUE, c.FALSE):
            return pa.repeat(pa.scalar("true" if code == c.TRUE else "false"), len(cells.code))
        if code == c.UUID_:
            return uuids(self.buffer, cells.start)
        if code == c.DOUBLE:
            return _doubles(self.views.doubles(cells.start))
        if code == c.TIMESTAMP:
            return _timestamps(self.views.read(code, cells.start))
        numbers = self.views.read(code, cells.start) if code != c.CHAR else None
        if numbers is not None and (code != c.ULONG or (numbers >= 0).all()):
            return pa.array(numbers).cast(pa.string())
        # The rest is rare: one at a time, by the reference. Its constructor stands right before a fixed-width value,
        # and before the size of a variable one.
        before = 1 + (c.SIZE_WIDTH.get(code >> 4) or 0)
        return pa.array([to_text(decode_value(self.buffer, int(at) - before)[0]) for at in cells.start], pa.string())


def uuids(buffer: bytes, start: Ints) -> pa.Array:
    """The 16 bytes at each start as the text of a uuid."""
    count = len(start)
    digits = _HEX[np.frombuffer(buffer, np.uint8)[start[:, None] + np.arange(16)]].view(np.uint8).reshape(count, 32)
    text = np.full((count, 36), ord("-"), np.uint8)
    text[:, _DIGITS] = digits
    offsets = np.arange(0, 36 * (count + 1), 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def slices(buffer: bytes, start: Ints, end: Ints, valid: Mask | None = None) -> pa.Array:
    """Bytes of the buffer from start to end of each, as a binary array. Invalid ones are null."""
    count = len(start)
    # One array over the whole buffer whose even elements are the values and whose odd ones are the gaps between them:
    # taking the even ones lets Arrow copy them together.
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = start
    bounds[1::2] = end
    whole = pa.Array.from_buffers(pa.binary(), max(2 * count - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(buffer)])
    even = _even(count) if valid is None else pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=~valid)
    return whole.take(even)


@lru_cache(maxsize=64)
def _even(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(np.arange(0, 2 * count, 2, dtype=np.int32))])


@lru_cache(maxsize=16)
def repeated(text: str, count: int) -> pa.Array:
    """A text column with one value."""
    return _strings((text,)).take(pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(bytes(count))]))


@lru_cache(maxsize=16)
def _strings(values: tuple[str, ...]) -> pa.Array:
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])


def _assemble(count: int, parts: list[tuple[Any, pa.Array]]) -> pa.Array:
    """One array from parts that were made apart, each with the selection of where its values belong."""
    if len(parts) == 1:
        return parts[0][1]
    place = np.empty(count, np.int64)
    base = 0
    for which, part in parts:
        place[which] = np.arange(base, base + len(part))
        base += len(part)
    return pa.concat_arrays([part for _, part in parts]).take(pa.array(place))


def _one_by_one(values: list[Any]) -> pa.Array:
    return pa.array([to_text(value) for value in values], pa.string())


def _doubles(values: npt.NDArray[np.float64]) -> pa.Array:
    """Doubles as `to_text` shows them. Arrow writes the same digits as Python, and the same form where no exponent and no `.0` is due."""
    size = np.abs(values)
    usual = (size >= 1e-4) & (size < 1e10)
    whole = usual & (values == np.rint(values))
    fraction = (usual & ~whole).nonzero()[0]
    odd = (~usual).nonzero()[0]
    parts = []
    if len(fraction):
        parts.append((fraction, pa.array(values[fraction].astype(np.float64)).cast(pa.string())))
    if whole.any():
        digits = pa.array(values[whole].astype(np.int64)).cast(pa.string())
        parts.append((whole.nonzero()[0], pc.binary_join_element_wise(digits, ".0", "")))
    if len(odd):
        parts.append((odd, _one_by_one(values[odd].tolist())))
    return _assemble(len(values), parts)


def _timestamps(milliseconds: Ints | None) -> pa.Array:
    """Timestamps as `to_text` shows them: ISO 8601 in UTC where the year has four digits."""
    assert milliseconds is not None
    if len(milliseconds) and not ISO_MINIMUM <= int(milliseconds.min()) <= int(milliseconds.max()) <= ISO_MAXIMUM:
        return _one_by_one([Timestamp(value) for value in milliseconds.tolist()])
    text = np.datetime_as_string(milliseconds.astype("datetime64[ms]"), timezone="UTC")
    return pa.array(text.astype("S24").astype(object), pa.binary()).cast(pa.string())


def _validity(valid: Mask | None) -> Any:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _readable(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def numbers(values: npt.NDArray[Any], valid: Mask, kind: pa.DataType) -> pa.Array:
    """Numbers as an array of `kind`, null where they are not valid."""
    if kind == pa.int32():
        values = values.astype(np.int32)
    return pa.Array.from_buffers(kind, len(values), [_validity(valid), pa.py_buffer(np.ascontiguousarray(values))])


def names(index: Bytes, valid: Mask | None, of: tuple[str, ...]) -> pa.Array:
    """A text column with few different values, by their index."""
    places = pa.Array.from_buffers(pa.uint8(), len(index), [_validity(valid), pa.py_buffer(np.ascontiguousarray(index))])
    return _strings(of).take(places)


def text_map(kind: pa.MapType, count: int, validity: Any, offsets: Any, keys: pa.Array, values: pa.Array) -> pa.Array:
    """A column of maps whose pairs stand one after the other, row by row."""
    # Counted before Arrow looks: some versions of it take nulls that nobody has counted for nulls, and end the process.
    if keys.null_count:
        raise ValueError("a key of a map is null")
    entries = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, count, [pa.py_buffer(validity), pa.py_buffer(offsets)], children=[entries])
