"""Pages of messages to record batches: gathered, narrowed, decoded.

The one rule: what is not wanted never becomes a row. Which messages are wanted is told from the few fields that say so, and only those
messages are decoded into the columns that were asked for.

Pages are gathered first, because many messages at once cost far less each than a page at a time (DESIGN section 4); how much is
gathered is bounded in messages and in bytes, so that memory is that of the pages in flight and one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_sb_mgmt.amqp.arrow_decode import decode_located
from spark_sb_mgmt.amqp.columns import STATES, TIMESTAMP
from spark_sb_mgmt.amqp.messages import Messages, locate
from spark_sb_mgmt.client import PeekPage
from spark_sb_mgmt.errors import DecodeError

# What a batch costs by itself, here and in Spark's JVM, fades from about 4,000 messages on.
BATCH_MESSAGES: Final = 4_000
BATCH_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True)
class Wanted:
    """Which messages become rows. Times in milliseconds since the Unix epoch, the end exclusive; None does not narrow."""

    states: tuple[str, ...] | None = None
    enqueued_from_ms: int | None = None
    enqueued_until_ms: int | None = None

    @property
    def is_all(self) -> bool:
        return self._columns() == []

    def _columns(self) -> list[str]:
        columns = []
        if self.states is not None and set(self.states) != set(STATES):
            columns.append("state")
        if self.enqueued_from_ms is not None or self.enqueued_until_ms is not None:
            columns.append("enqueued_time")
        return columns

    def of(self, messages: Messages) -> Messages:
        """Those of the messages that are wanted. One without an enqueued time is in no span of time."""
        columns = self._columns()
        if not columns or not len(messages):
            return messages
        fields = decode_located(messages, columns)
        masks = []
        if "state" in columns:
            masks.append(pc.is_in(fields.column("state"), pa.array(self.states, pa.string())))
        if self.enqueued_from_ms is not None:
            masks.append(pc.greater_equal(fields.column("enqueued_time"), _time(self.enqueued_from_ms)))
        if self.enqueued_until_ms is not None:
            masks.append(pc.less(fields.column("enqueued_time"), _time(self.enqueued_until_ms)))
        together = masks[0]
        for mask in masks[1:]:
            together = pc.and_(together, mask)
        return select(messages, pc.fill_null(together, False).to_numpy(zero_copy_only=False))


def _time(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds * 1000, pa.int64()).cast(TIMESTAMP)


def select(messages: Messages, which: Any) -> Messages:
    """Some of the messages, by a mask or by positions; the buffer stays as it is."""
    return Messages(messages.buffer, messages.start[which], messages.end[which], messages.token[which])


def message_batches(
    pages: Iterable[PeekPage],
    names: Sequence[str],
    entity: str,
    wanted: Wanted | None = None,
    max_messages: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The wanted messages of the pages, `max_messages` at most; no batch is empty."""
    wanted = wanted or Wanted()
    left = max_messages
    for gathered in _gathered(pages, left):
        messages = wanted.of(_kept(gathered))
        if left is not None:
            messages = select(messages, slice(0, left))
            left -= len(messages)
        if len(messages):
            yield _decoded(messages, names, entity)
        if left == 0:
            return


def _decoded(messages: Messages, names: Sequence[str], entity: str) -> pa.RecordBatch:
    try:
        return decode_located(messages, names, entity=entity)
    except DecodeError as problem:
        raise problem.about(entity=entity) from None


def _gathered(pages: Iterable[PeekPage], enough: int | None) -> Iterator[list[PeekPage]]:
    gathered: list[PeekPage] = []
    count = size = 0
    most = BATCH_MESSAGES if enough is None else min(BATCH_MESSAGES, enough)
    for page in pages:
        gathered.append(page)
        count += len(page)
        size += len(page.response)
        if count >= most or size >= BATCH_BYTES:
            yield gathered
            gathered, count, size = [], 0, 0
    if gathered:
        yield gathered


def _kept(pages: Sequence[PeekPage]) -> Messages:
    messages = locate([page.response for page in pages])
    if all(page.is_whole for page in pages):
        return messages
    places = []
    base = 0
    for page in pages:
        places += [np.arange(base + part.start, base + part.stop) for part in page.keep]
        base += len(page.messages)
    return select(messages, np.concatenate(places))
