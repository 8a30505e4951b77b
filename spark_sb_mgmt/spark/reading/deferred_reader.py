"""receive-by-sequence-number as a DataFrame: deferred messages, locked or taken for good (CONTRACT section 1.2, DESIGN section 5).

The one rule: a read with an effect says so. Locks that a failed attempt took are given back, those of a killed one are waited for; a second
evaluation of the DataFrame finds its own locks in the way, or with `receiveAndDelete` nothing at all, and the error says that.

Where a range is given instead of numbers, each task peeks its part of it and takes what is deferred there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.amqp.columns import batch_of
from spark_sb_mgmt.client import EntityClient, Messages
from spark_sb_mgmt.errors import MessageNotFoundError
from spark_sb_mgmt.spark.connections import open_entity
from spark_sb_mgmt.spark.options.objects import ReceiveOptions
from spark_sb_mgmt.spark.reading.deferred import DeferredMessages, Status, look, look_is_short, shown
from spark_sb_mgmt.spark.reading.message_batches import BATCH_BYTES, BATCH_MESSAGES, Wanted, message_batches
from spark_sb_mgmt.spark.reading.partitioning import NumbersPartition, RangesPartition, plan_numbers, plan_ranges
from spark_sb_mgmt.spark.reading.peek_plan import spans_of_read
from spark_sb_mgmt.spark.reading.read_errors import explained
from spark_sb_mgmt.spark.reading.read_schema import STATUS, ReadColumns
from spark_sb_mgmt.spark.reading.side_by_side import ask_each

_LOG: Final = logging.getLogger(__name__)
_DEFERRED: Final = Wanted(states=("deferred",))


class DeferredReader(DataSourceReader):
    """Deferred messages by their numbers."""

    def __init__(self, options: ReceiveOptions, columns: ReadColumns) -> None:
        self.options = options
        self.columns = columns

    @property
    def _deletes(self) -> bool:
        return self.options.receive_mode == "receiveAndDelete"

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        if self._deletes:
            _LOG.warning(
                "option receiveMode is receiveAndDelete: every evaluation of this DataFrame removes messages from %s for good, also those "
                "that a failed or repeated task does not deliver; evaluate it once, straight into a sink, or peek and settle instead",
                ", ".join(options.entities),
            )
        if options.sequence_numbers is not None:
            [path] = options.entities
            plan = plan_numbers(path, options.sequence_numbers, num_partitions=options.num_partitions, page_size=options.page_size)
            if options.on_missing == "fail" and (self._deletes or len(plan) > 1):
                self._check_standing(path, options.sequence_numbers)
            return plan
        return plan_ranges(spans_of_read(options), num_partitions=options.num_partitions, page_size=options.page_size, max_messages=None)

    def _check_standing(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Fail before anything is taken, if it is clear that the read will: what a task took that is done by then, no other can give back,
        and what is deleted nobody can. Locks are not seen, and a long list would take too long."""
        if not look_is_short(ranges):
            return
        session_id = self.options.session_id
        numbers: dict[int, str | None] = {number: session_id for start, end in ranges for number in range(start, end)}
        seen = ask_each(self.options, [path], lambda entity: look(entity, numbers), session_id)[path]
        reasons: dict[int, Status] = {number: status for number, status in seen.items() if status is not Status.LOCKED}
        if reasons:
            raise self._error(path, reasons)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, NumbersPartition):
            yield from self._entity_rows(partition.entity, partition.ranges, [], search=False)
            return
        assert isinstance(partition, RangesPartition), "partitions() gives no other"
        done: list[tuple[str, DeferredMessages]] = []
        try:
            for path, spans in groupby(partition.spans, key=lambda span: span.entity):
                yield from self._entity_rows(path, sorted((span.start, span.end) for span in spans), done, search=True)
        except GeneratorExit:
            raise
        except BaseException:
            # What was given of the entities before is given again by the next attempt.
            for path, receiving in done:
                with open_entity(self.options.connection, path) as entity:
                    receiving.release(entity)
            raise

    def _entity_rows(
        self, path: str, ranges: Sequence[tuple[int, int]], done: list[tuple[str, DeferredMessages]], *, search: bool
    ) -> Iterator[pa.RecordBatch]:
        options = self.options
        context = TaskContext.get()
        with explained(options.operation, path, options.session_id), open_entity(options.connection, path) as entity:
            numbers = self._deferred(entity, ranges) if search else ranges
            receiving = DeferredMessages(
                entity,
                page_size=options.page_size,
                delete=self._deletes,
                session_id=options.session_id,
                was_killed=context is not None and context.attemptNumber() > 0,
                or_none=options.on_missing == "fail",
            )
            try:
                yield from self._batches(path, receiving.receive(numbers))
                yield from self._not_received(path, receiving.not_received)
            except GeneratorExit:
                # Whoever reads has enough, such as a limit: what it was given stays locked for it, and only that.
                receiving.stop()
                raise
            except BaseException:
                receiving.release()
                raise
            done.append((path, receiving))

    def _deferred(self, entity: EntityClient, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The numbers of the deferred messages in these ranges, found as they are needed."""
        pages = entity.peek_ranges(ranges, self.options.page_size, None, self.options.session_id)
        for batch in message_batches(pages, ["sequence_number"], entity.path, _DEFERRED):
            for number in sorted(batch.column(0).to_pylist()):
                yield number, number + 1

    def _batches(self, path: str, answers: Iterable[Messages]) -> Iterator[pa.RecordBatch]:
        gathered: list[bytes] = []
        count = size = 0
        for answer in answers:
            gathered.append(answer.response)
            count += len(answer)
            size += len(answer.response)
            if count >= BATCH_MESSAGES or size >= BATCH_BYTES:
                yield self._decoded(path, gathered)
                gathered, count, size = [], 0, 0
        if gathered:
            yield self._decoded(path, gathered)

    def _decoded(self, path: str, responses: Sequence[bytes]) -> pa.RecordBatch:
        messages = decode_responses(responses, self.columns.message_columns, entity=path)
        if STATUS not in self.columns:
            return messages
        return self._with_status(messages, [Status.RECEIVED.value] * messages.num_rows)

    def _with_status(self, messages: pa.RecordBatch, statuses: Sequence[str]) -> pa.RecordBatch:
        known = {name: messages.column(name) for name in self.columns.message_columns}
        known[STATUS] = pa.array(statuses, pa.string())
        return pa.RecordBatch.from_arrays([known[name] for name in self.columns.names], schema=self.columns.arrow)

    def _not_received(self, path: str, reasons: dict[int, Status]) -> Iterator[pa.RecordBatch]:
        on_missing = self.options.on_missing
        if not reasons or on_missing == "skip":
            return
        if on_missing == "fail":
            raise self._error(path, reasons)
        numbers = sorted(reasons)
        cells = {
            "entity": [path] * len(numbers),
            "sequence_number": numbers,
            STATUS: [reasons[number].value for number in numbers],
        }
        nothing = [None] * len(numbers)
        arrays = [pa.array(cells.get(field.name, nothing), field.type) for field in self.columns.arrow]
        yield batch_of(arrays, self.columns.arrow, len(numbers))

    def _error(self, path: str, reasons: dict[int, Status]) -> MessageNotFoundError:
        parts = []
        for status in Status:
            numbers = sorted(number for number, reason in reasons.items() if reason is status)
            if numbers:
                parts.append(f"{status.value}: {shown(numbers)}")
        again = (
            "A DataFrame with receiveMode receiveAndDelete can be evaluated once"
            if self._deletes
            else "A lock is another receiver's, or that of an earlier evaluation of this DataFrame, until it ends"
        )
        return MessageNotFoundError(
            f"{len(reasons)} of the deferred messages that were asked for cannot be received ({'; '.join(parts)}). {again}. "
            "Set option onMissing to skip to leave them out, or to report for a row with its status",
            operation=self.options.operation,
            entity=path,
        )
