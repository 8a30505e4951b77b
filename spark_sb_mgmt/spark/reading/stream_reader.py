"""peek-message as a stream: micro-batches of what came behind the last one (CONTRACT section 1.4).

The one rule: no message between two offsets is left out, and reading from one offset to another again gives the same rows while the
messages are there. An offset is made of what stood when it was made; its last message did.

What is gone by the time a micro-batch is planned (received, expired, the entity emptied) cannot be read. It is noticed by the last message
of the micro-batch, which stood before; others may go unnoticed. An entity that was deleted and made anew starts its numbers anew: give the
query a new checkpoint then.

Into a dead-letter queue messages come with the numbers they had, so in any order: one with a lower number than was read already falls
behind the offset. That cannot be noticed either, so it is said when the query starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.planning import Extent, lowest_sequence_number
from spark_sb_mgmt.errors import MessageNotFoundError
from spark_sb_mgmt.spark.options.checks import wrong
from spark_sb_mgmt.spark.options.entity_names import is_dead_letter_queue
from spark_sb_mgmt.spark.options.objects import StreamOptions
from spark_sb_mgmt.spark.reading.gaps import occupied
from spark_sb_mgmt.spark.reading.message_batches import Wanted
from spark_sb_mgmt.spark.reading.partitioning import PAGES_OF_A_PART, RangesPartition, Span, plan_ranges, spans_of
from spark_sb_mgmt.spark.reading.ranges_reader import read_ranges
from spark_sb_mgmt.spark.reading.read_schema import ReadColumns
from spark_sb_mgmt.spark.reading.side_by_side import ask_each
from spark_sb_mgmt.spark.reading.stream_offsets import (
    Offset,
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

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)


class PeekStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Messages that come, without taking them. Spark keeps one of these on the driver as long as the query runs."""

    def __init__(self, options: StreamOptions, columns: ReadColumns) -> None:
        if options.max_messages_per_trigger is not None and not HAS_READ_LIMITS:
            raise wrong("maxMessagesPerTrigger", "needs PySpark 4.2 or newer: this one reads all there is at once, so leave it out")
        for path in options.entities:
            if is_dead_letter_queue(path):
                _LOG.warning(
                    "%s is a dead-letter queue, where messages keep the numbers they had: one that comes in with a lower number than was "
                    "read already is not seen by this stream; spark.read sees all",
                    path,
                )
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
            start = self.options.starting_sequence_number
            if start == "latest":
                self._initial = self.reportLatestOffset()
            else:
                self._initial = {path: at_number(start) if isinstance(start, int) else {} for path in self.options.entities}
        return self._initial

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """Up to 4.1 Spark gives neither where it starts nor a limit."""
        if self._initial is not None and not self._is_pinned and start in (None, self._initial):
            # Where the latest is, is not written down before the first micro-batch ends, and would be another place after a restart in
            # the middle of it: so that one is empty.
            self._is_pinned = True
            return self._initial
        start = self._reached if start is None else start
        end = {}
        for path, latest in self.reportLatestOffset().items():
            position = start.get(path, {})
            reached = furthest(position, latest)
            end[path] = reached if self._target is None else no_further(reached, self._target.get(path, {}), position)
        return end if limit is None or isinstance(limit, ReadAllAvailable) else self._limited(start, end, limit.max_rows)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        session_id = self.options.session_id
        return self._ask(self.options.entities, lambda entity: behind(entity.extents(session_id)))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        most = self.options.max_messages_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.reportLatestOffset()

    def _ask(self, paths: Iterable[str], ask: Callable[[EntityClient], T]) -> dict[str, T]:
        return ask_each(self.options, paths, ask, self.options.session_id)

    def _limited(self, start: Offset, end: Offset, most: int) -> Offset:
        """Not so far that there are more messages than that. At least one is, if there are any, so that a gap is not read by inches."""
        waiting = {path: ranges_between(start.get(path, {}), end[path]) for path in end}
        standing = self._first_of(waiting)
        widths = {at: high - low for at, (low, high) in enumerate(one for ranges in standing.values() for one in ranges)}
        shares = shared_out(widths, most, sum(number for position in start.values() for number in position.values()))
        cuts: dict[str, list[tuple[int, int]]] = {}
        base = 0
        for path, ranges in standing.items():
            cuts[path] = [(low + shares[base + at] - 1, high) for at, (low, high) in enumerate(ranges) if base + at in shares]
            base += len(ranges)
        reached = {path: behind(Extent(low, low) for low, _ in ranges) for path, ranges in self._first_of(cuts).items()}
        return {path: furthest(start.get(path, {}), reached[path]) for path in end}

    def _first_of(self, ranges: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
        """Each range from its first message on; those without one are left out. One round trip."""

        def first_of(entity: EntityClient) -> list[tuple[int, int]]:
            searched = ranges[entity.path]
            found = entity.search([lowest_sequence_number(low, high) for low, high in searched], self.options.session_id)
            return [(first, high) for first, (_, high) in zip(found, searched, strict=True) if first is not None]

        found = self._ask((path for path in ranges if ranges[path]), first_of)
        return {path: found.get(path, []) for path in ranges}

    # --- micro-batches --------------------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        options = self.options
        self._reached = end
        between = {path: ranges_between(start.get(path, {}), end[path]) for path in end}
        found = self._ask((path for path in between if between[path]), lambda entity: self._spans(entity, between[entity.path]))
        spans = [span for several in found.values() for span in several]
        return plan_ranges(spans, num_partitions=options.num_partitions, page_size=options.page_size, max_messages=None)

    def _spans(self, entity: EntityClient, ranges: Sequence[tuple[int, int]]) -> list[Span]:
        session_id = self.options.session_id
        lasts = entity.search([lowest_sequence_number(high - 1, high) for _, high in ranges], session_id)
        gone = [high - 1 for last, (_, high) in zip(lasts, ranges, strict=True) if last is None]
        if gone:
            self._data_loss(entity.path, gone)
        if sum(high - low for low, high in ranges) > self.options.page_size * PAGES_OF_A_PART:
            [ranges] = entity.search([occupied([Extent(low, high - 1) for low, high in ranges])], session_id)
        return spans_of(entity.path, ranges, None, None)

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
