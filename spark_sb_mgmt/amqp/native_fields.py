"""The fields of many messages by compiled code: what `_native.c` found, as Arrow columns over its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from spark_sb_mgmt.amqp import arrow_build as build
from spark_sb_mgmt.amqp import message as m
from spark_sb_mgmt.amqp.columns import BODY_TYPES, COLUMNS, FIELD_OF_TEXT, sections_of
from spark_sb_mgmt.amqp.lockstep import Ints, Mask
from spark_sb_mgmt.amqp.messages import Messages

_BODY_COLUMNS = {"body", "body_type"}


class NativeFields:
    def __init__(self, native: ModuleType, messages: Messages, names: Sequence[str]) -> None:
        self.native = native
        self.count = len(messages)
        sections = sections_of(names)
        bits = sum(1 << (section - m.HEADER) for section in sections)
        # Arrow's own memory pool keeps what it frees; the pages of a large block from malloc are new, and empty, for every batch.
        room = int((messages.end - messages.start).sum())
        self._bodies = None if _BODY_COLUMNS.isdisjoint(names) else pa.allocate_buffer(room)
        slow, self._integers, self._texts, self._map, self._body = native.decode(
            messages.buffer,
            np.ascontiguousarray(messages.start, np.int64),
            np.ascontiguousarray(messages.end, np.int64),
            bits,
            sum(1 << native.TEXTS.index(FIELD_OF_TEXT[name]) for name in names if name in FIELD_OF_TEXT),
            # Numbers cost next to nothing; which of them a column needs is the columns' own affair.
            (1 << len(native.INTEGERS)) - 1,
            "application_properties" in names,
            self._bodies,
        )
        self.slow: Mask = np.frombuffer(slow, np.bool_).copy()

    def text(self, name: str) -> pa.Array:
        return _array(pa.string(), self._texts[name])

    def integer(self, name: str) -> tuple[Ints, Mask]:
        index = self.native.INTEGERS.index(name)
        values, valid = self._integers
        return (
            np.frombuffer(values, np.int64, self.count, index * self.count * 8),
            np.frombuffer(valid, np.bool_, self.count, index * self.count),
        )

    def application_properties(self) -> pa.Array:
        valid, offsets, keys, values = self._map
        kind = COLUMNS["application_properties"].type
        return build.text_map(kind, self.count, valid, offsets, _array(pa.string(), keys), _array(pa.string(), values))

    def body(self) -> pa.Array:
        section, offsets, size = self._body
        valid = np.packbits(np.frombuffer(section, np.uint8) > 0, bitorder="little")
        assert self._bodies is not None
        data = self._bodies.slice(0, size)
        return pa.Array.from_buffers(pa.binary(), self.count, [pa.py_buffer(valid), pa.py_buffer(offsets), data])

    def body_type(self) -> pa.Array:
        section = np.frombuffer(self._body[0], np.uint8)
        return build.names(np.maximum(section, m.DATA) - np.uint8(m.DATA), section > 0, BODY_TYPES)


def _array(kind: pa.DataType, column: tuple[int, Any, Any, Any]) -> pa.Array:
    count, valid, offsets, data = column
    return pa.Array.from_buffers(kind, count, [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)])
