"""peek-message as a stream: micro-batches of what came behind the last one (CONTRACT section 1.4).

The one rule: no message between two offsets is left out, and reading from one offset to another again gives the same rows while the
messages are there. An offset is made of what stood when it was made; its last message did.

What is gone by the time a micro-batch is planned (received, expired, the entity emptied) cannot be read. It is noticed by the last message
of the micro-batch, which stood before; others may go unnoticed. An entity that was deleted and made anew starts its numbers anew: give the
query a new checkpoint then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.planning import Extent, lowest_sequence_number
from spark_sb_mgmt.errors import MessageNotFoundError
from spark_sb_mgmt.spark.connections import open_entity
from spark_sb_mgmt.spark.options.checks import wrong
from spark_sb_mgmt.spark.options.objects import StreamOptions
from spark_sb_mgmt.spark.reading.gaps import occupied
from spark_sb_mgmt.spark.reading.message_batches import Wanted
from spark_sb_mgmt.spark.reading.partitioning import PAGES_OF_A_PART, RangesPartition, Span, plan_ranges, spans_of
from spark_sb_mgmt.spark.reading.ranges_reader import read_ranges
from spark_sb_mgmt.spark.reading.read_errors import explained
from spark_sb_mgmt.spark.reading.read_schema import ReadColumns
from spark_sb_mgmt.spark.reading.stream_offsets import (
    Offset,
    Position,
    at_number,
    behind,
    furthest,
    no_further,
    ranges_between,
    shared_out,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_READ_LIMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

        HAS_READ_LIMITS = True
    except ImportError:
        # Before 4.2 a micro-batch is all there is, and so is the one of Trigger.AvailableNow.
        SupportsTriggerAvailableNow = object
        HAS_READ_LIMITS = False

_LOG: Final = logging.getLogger(__name__)


class PeekStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Messages that come, without taking them. Spark keeps one of these on the driver as long as the query runs."""

    def __init__(self, options: StreamOptions, columns: ReadColumns) -> None:
        if options.max_messages_per_trigger is not None and not HAS_READ_LIMITS:
            raise wrong("maxMessagesPerTrigger", "needs PySpark 4.2 or newer: this one reads all there is at once, so leave it out")
        self.options = options
        self.columns = columns
        self._initial: Offset | None = None
        # Whether a micro-batch without messages has made the initial offset a part of the checkpoint.
        self._is_pinned = options.starting_sequence_number != "latest"
        self._target: Offset | None = None
        # As far as this query is known to have planned.
        self._reached: Offset = {}

    # --- offsets --------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        # Asked for twice, to plan the first micro-batch and to read it: what came in between must not fall through.
        if self._initial is None:
            self._initial = {path: self._starting(path) for path in self.options.entities}
        return self._initial

    def _starting(self, path: str) -> Position:
        start = self.options.starting_sequence_number
        if isinstance(start, int):
            return at_number(start)
        return {} if start == "earliest" else behind(self._extents(path))

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """Up to 4.1 Spark gives neither where it starts nor a limit."""
        if self._initial is not None and not self._is_pinned and start in (None, self._initial):
            # Where the latest is, is not written down before the first micro-batch ends, and would be another place after a restart in
            # the middle of it: so that one is empty.
            self._is_pinned = True
            return self._initial
        start = self._reached if start is None else start
        end = {}
        for path in self.options.entities:
            position = start.get(path, {})
            reached = furthest(position, behind(self._extents(path)))
            end[path] = reached if self._target is None else no_further(reached, self._target.get(path, {}), position)
        return end if limit is None or isinstance(limit, ReadAllAvailable) else self._limited(start, end, limit.max_rows)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return {path: behind(self._extents(path)) for path in self.options.entities}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        most = self.options.max_messages_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.reportLatestOffset()

    @contextmanager
    def _entity(self, path: str) -> Iterator[EntityClient]:
        options = self.options
        with explained(options.operation, path, options.session_id), open_entity(options.connection, path) as entity:
            yield entity

    def _extents(self, path: str) -> list[Extent]:
        with self._entity(path) as entity:
            return entity.extents(self.options.session_id)

    def _limited(self, start: Offset, end: Offset, most: int) -> Offset:
        """Not so far that there are more messages than that. At least one is, if there are any, so that a gap is not read by inches."""
        waiting = {path: ranges_between(start.get(path, {}), end[path]) for path in end}
        standing = {path: self._first_of(path, ranges) for path, ranges in waiting.items()}
        widths = {at: high - low for at, (low, high) in enumerate(one for ranges in standing.values() for one in ranges)}
        shares = shared_out(widths, most, sum(number for position in start.values() for number in position.values()))
        limited: Offset = {}
        base = 0
        for path, ranges in standing.items():
            cuts = [(low + shares[base + at] - 1, high) for at, (low, high) in enumerate(ranges) if base + at in shares]
            base += len(ranges)
            reached = behind(Extent(low, low) for low, _ in self._first_of(path, cuts))
            limited[path] = furthest(start.get(path, {}), reached)
        return limited

    def _first_of(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Each range from its first message on; those without one are left out. One round trip."""
        if not ranges:
            return []
        with self._entity(path) as entity:
            found = entity.search([lowest_sequence_number(low, high) for low, high in ranges], self.options.session_id)
        return [(first, high) for first, (_, high) in zip(found, ranges, strict=True) if first is not None]

    # --- micro-batches --------------------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        options = self.options
        self._reached = end
        spans: list[Span] = []
        for path in end:
            ranges = ranges_between(start.get(path, {}), end[path])
            if not ranges:
                continue
            with self._entity(path) as entity:
                lasts = entity.search([lowest_sequence_number(high - 1, high) for _, high in ranges], options.session_id)
                gone = [high - 1 for last, (_, high) in zip(lasts, ranges, strict=True) if last is None]
                if gone:
                    self._data_loss(path, gone)
                if sum(high - low for low, high in ranges) > options.page_size * PAGES_OF_A_PART:
                    [ranges] = entity.search([occupied([Extent(low, high - 1) for low, high in ranges])], options.session_id)
            spans += spans_of(path, ranges, None, None)
        return plan_ranges(spans, num_partitions=options.num_partitions, page_size=options.page_size, max_messages=None)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPartition), "partitions() gives no other"
        return read_ranges(self.options, self.columns, partition, Wanted(self.options.states))

    def _data_loss(self, path: str, gone: Sequence[int]) -> None:
        problem = (
            f"messages that a micro-batch was planned with are gone, number {', '.join(map(str, gone))} among them: they were received, "
            "they expired, or the entity was emptied"
        )
        if self.options.fail_on_data_loss:
            raise MessageNotFoundError(
                f"{problem}. Set option failOnDataLoss to false to go on with what is left",
                operation=self.options.operation,
                entity=path,
            )
        _LOG.warning("%s: %s. Option failOnDataLoss is false: going on with what is left", path, problem)
