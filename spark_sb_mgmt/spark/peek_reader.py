"""peek-message as a DataFrame: ranges planned on the driver, each read by a task (CONTRACT sections 1.2 and 3).

The one rule: repeatable. Nothing is locked and nothing changes, so a task may be retried, run twice or killed, and a message that stands
from plan to end of read is exactly one row.

The plan is made once for a DataFrame, at its first action: messages that arrive later are above it. `load()` again plans again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_sb_mgmt.spark.connections import open_entity
from spark_sb_mgmt.spark.message_batches import Wanted, message_batches
from spark_sb_mgmt.spark.option_objects import PeekOptions
from spark_sb_mgmt.spark.partitioning import RangesPartition, Span, plan_ranges
from spark_sb_mgmt.spark.peek_plan import find_spans
from spark_sb_mgmt.spark.read_errors import explained
from spark_sb_mgmt.spark.read_schema import ReadColumns


class PeekReader(DataSourceReader):
    """Messages of ranges of sequence numbers."""

    def __init__(self, options: PeekOptions, columns: ReadColumns) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        spans: list[Span] = []
        for path in options.entities:
            with explained(options.operation, path, options.session_id), open_entity(options.connection, path) as entity:
                spans += find_spans(
                    entity,
                    from_sequence_number=options.from_sequence_number,
                    until_sequence_number=options.until_sequence_number,
                    enqueued_from_ms=options.enqueued_from_ms,
                    enqueued_until_ms=options.enqueued_until_ms,
                    session_id=options.session_id,
                )
        return plan_ranges(spans, num_partitions=options.num_partitions, page_size=options.page_size, max_messages=options.max_messages)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPartition), "partitions() gives no other"
        options = self.options
        wanted = Wanted(options.states, options.enqueued_from_ms, options.enqueued_until_ms)
        left = partition.limit
        for path, spans in groupby(partition.spans, key=lambda span: span.entity):
            if left == 0:
                return
            with explained(options.operation, path, options.session_id), open_entity(options.connection, path) as entity:
                pages = entity.peek_ranges(
                    sorted((span.start, span.end) for span in spans),
                    min(options.page_size, left) if left is not None and wanted.is_all else options.page_size,
                    # With a limit in order of their numbers, so that the same rows come each time.
                    None if left is None else 1,
                    options.session_id,
                )
                for batch in message_batches(pages, self.columns.names, path, wanted, left):
                    left = None if left is None else left - batch.num_rows
                    yield batch
